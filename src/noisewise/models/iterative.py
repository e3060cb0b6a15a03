"""What models trained in epochs share: held-out data, early stop, refit, checkpoint."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from noisewise.data import Observations, observe
from noisewise.engine import training
from noisewise.engine.arrays import Floats
from noisewise.engine.training import Callback, EpochInfo, S, Step, Training, Validate
from noisewise.engine.workers import Cluster
from noisewise.errors import DataError, FitInterrupted, SettingError, training_bar
from noisewise.models import learner
from noisewise.models.base import NOTHING_KEPT, in_one_step
from noisewise.models.lead import fit_at
from noisewise.models.learner import Checkpoint, Given, How, Learner
from noisewise.schema import Schema
from noisewise.settings import check, either, number, one_of, setting, settings, whole
from noisewise.storage import Damaged


class Plan(NamedTuple):
    """How long to train, and what to watch meanwhile."""

    epochs: int
    patience: int | None = None
    monitor: Literal["rmse", "nll"] = "rmse"
    value_range: tuple[float, float] | None = None
    callbacks: Sequence[Callback] = ()
    checkpoint: Checkpoint | None = None
    label: str = "fit"
    verbose: bool | None = None

    def train(
        self, state: S, step: Step[S], validate: Validate[S] | None, unit: str = "epoch", **how: Any
    ) -> Training[S]:
        """Train as planned; the rest is what else the loop is told."""
        return training.train(
            state, step, validate=validate, epochs=self.epochs, patience=self.patience,
            monitor=self.monitor, callbacks=self.callbacks, checkpoint=self.checkpoint,
            bar=training_bar(self.label, unit=unit, verbose=self.verbose), **how,
        )  # fmt: skip


class Fit(NamedTuple):
    """What training came to: what was learned, after how many epochs, and the way there."""

    outcome: Any  # None if training was interrupted before there was anything to keep
    epochs: int
    curve: list[EpochInfo]
    interrupted: bool


@settings
class Iterative(Learner):
    """Base class of models that are trained in epochs on one part of the data, watching another."""

    _any_modes: ClassVar[bool] = False  # two id columns only, else two or more
    _on_clusters: ClassVar[bool] = False  # whether workers of a cluster can train it
    _takes_weight: ClassVar[bool] = False  # what divides the variance of an observation's noise

    epochs: int = setting(whole(1), "How often to visit every observation, at most.", default=100)
    patience: int | None = setting(
        either(whole(1), None),
        "A share of the data is held out, training stops after so many epochs without a better "
        "result there, and std and intervals are calibrated on it. None runs all epochs on all "
        "data.",
        default=3,
    )
    refit: bool = setting(
        one_of(True, False),
        "Once the number of epochs was chosen on held-out data, train again on everything.",
        default=True,
    )
    monitor: Literal["rmse", "nll"] = setting(
        one_of("rmse", "nll"), "What must get better on the held-out data.", default="rmse"
    )
    validation_fraction: float = setting(
        number(above=0.0, most=0.5), "Share to hold out.", default=0.1
    )

    def schema(self) -> Schema:
        """Declare what a file keeps."""
        if len(self.ids_) > 2 and not self._any_modes:
            raise Damaged(f"it must have 2 modes, but has {len(self.ids_)}")
        yield from super().schema()

    @abstractmethod
    def _learn(
        self, observations: Observations, held_out: Observations | None, plan: Plan, seed: int
    ) -> Fit:
        """Train once, watching held-out observations if there are any."""

    @abstractmethod
    def _adopt(self, outcome: Any) -> None:
        """Keep what training has come to, for ``cells`` to use."""

    def _checked(self, observations: Observations) -> Observations:
        """Raise for observations that this model cannot learn from."""
        if observations.n_modes != 2 and not self._any_modes:
            raise DataError(f"X must have 2 id columns here; got {observations.n_modes}.")
        if not self._takes_weight:
            learner.refuse_weight(self, observations)
        return observations

    def _observed(self, given: Given) -> Observations:
        """Observe what to learn from."""
        own: Any = {"duplicates": self.duplicates, "weight": given.sample_weight}
        seen = self._checked(observe(given.X, given.y, **own))
        learner.warn_if_alike(seen)
        return seen

    @in_one_step
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        validation: Observations | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
        checkpoint_epochs: int | None = 1,
        checkpoint_minutes: float | None = None,
        cluster: str | Cluster | None = None,
    ) -> Self:
        """Learn from a table of ids and a value for each row.

        Parameters
        ----------
        X : table of ids, sparse matrix or Observations
            One id column per mode (see ``noisewise.observe``).
        y : sequence of float, optional
            The values; without it, the last column of X.
        validation : Observations, optional
            Held-out values to use instead of a random share of X. With ``refit`` they are trained
            on in the end, as a random share is.
        callbacks : sequence of callables
            Called with (EpochInfo, State) after each epoch; one that returns True ends training.
        checkpoint : path or None
            Keep the state of training in this file, and go on from it if it is there. The file is
            removed when training has ended.
        checkpoint_epochs, checkpoint_minutes : int, float or None
            Write it after so many epochs, or minutes, whichever comes first.
        cluster : str or Cluster, optional
            Train on a cluster of Ray, with the bits of one machine: "local", "auto" for the cluster
            that this machine is part of, or where it is, as in "ray://host:10001". X may then be
            the place of a Parquet folder, or a dataset of Ray, which workers read.

        Raises
        ------
        FitInterrupted
            At Ctrl-C, after the epoch is finished: a ``KeyboardInterrupt`` that ends loops around
            the fit. The model has learned what its message says.
        """
        kept = checkpoint, checkpoint_epochs, checkpoint_minutes
        return self._fit(Given(X, y, validation), How(callbacks, kept, cluster))

    def _fit(self, given: Given, how: How) -> Self:
        """Fit here or on a cluster, which may read the ratings itself."""
        fit_at(self._place(how.cluster), self, self._train, given, how)
        return self

    def _train(
        self, given: Given, callbacks: Sequence[Callback], wanted: Checkpoint | None
    ) -> None:
        started, validation = time.perf_counter(), given.validation
        check(self)
        observations = self._observed(given)
        seed = learner.fixed_seed(self.random_state)
        kept, held_out = observations, None
        if self.patience is not None:
            fraction = self.validation_fraction
            kept, held_out = learner.hold_out(observations, validation, fraction, seed)
        elif validation is not None:
            raise SettingError("validation is only used with patience; got patience=None.")
        everything = observations
        if validation is not None and held_out is not None:
            everything = learner.joined(kept, held_out)
        value_range = learner.range_of(self.value_range, everything)

        stages = ["fit", "refit"] if held_out is not None and self.refit else ["fit"]
        checkpoints = learner.checkpoints_of(self, wanted, stages, everything, len(kept))
        plan = Plan(
            self.epochs, self.patience, self.monitor, value_range, callbacks,
            checkpoints.get("fit"), "fit", self.verbose,
        )  # fmt: skip
        fitted = self._learn(kept, held_out, plan, seed)
        curve, epochs = fitted.curve, fitted.epochs
        worth = self._worth(fitted, held_out is not None) if fitted.interrupted else None
        self._adopt(fitted.outcome)
        self.ids_, self.value_range_, self.calibration_ = everything.ids, value_range, None
        self._note_levels(everything.values)
        if held_out is not None:
            self.calibrate(held_out)
        if held_out is not None and self.refit and worth is None:
            again = Plan(
                epochs, callbacks=callbacks, label="refit", verbose=self.verbose,
                checkpoint=checkpoints.get("refit"),
            )  # fmt: skip
            del kept, held_out, observations, fitted
            fitted = self._learn(everything, None, again, seed)
            if fitted.interrupted:
                worth = (
                    f"The refit was interrupted after epoch {fitted.epochs} of {epochs}: the model "
                    "is that of the first training, which has not learned from what was held out."
                )
            else:
                self._adopt(fitted.outcome)
        self._describe(everything, curve, epochs)
        self._note_columns(given.X)
        self.seconds_ = time.perf_counter() - started
        if worth is not None:
            raise FitInterrupted(worth, self)
        for finished in checkpoints.values():
            finished.remove()

    def _worth(self, fitted: Fit, judged: bool) -> str:
        """Say what a model is worth whose training was interrupted."""
        if fitted.outcome is None:
            raise KeyboardInterrupt(NOTHING_KEPT)
        best = ", the best so far on held-out data" if judged else ""
        return (
            f"Training was interrupted after epoch {fitted.curve[-1].epoch} of {self.epochs}: the "
            f"model is that of epoch {fitted.epochs}{best}."
        )


def judged(
    truth: Floats,
    mean: Floats,
    variance: npt.NDArray[np.floating],
    value_range: tuple[float, float] | None,
) -> tuple[float, float]:
    """RMSE and NLL of predictions, clipped to a range."""
    if value_range is not None:
        mean = np.clip(mean, *value_range)
    squared = (truth - mean).astype(np.float64) ** 2
    least = 1e-12 * min(1.0, float(truth.var(dtype=np.float64)) or 1.0)
    s = np.maximum(variance.astype(np.float64), least)
    return math.sqrt(squared.mean()), float(0.5 * np.mean(np.log(2 * math.pi * s) + squared / s))
