"""DeviationFactorizer: every observation has a mean and a deviation, both low-rank.

    mean_ij     = mu + u_i + v_j + U_i . V_j
    variance_ij = P_i . Q_j + delta            P, Q >= 0

learned together by projected AdaGrad on the Gaussian likelihood (Lee, Yang and Lin, 2017).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils import check_random_state

from noisewise import storage
from noisewise.engine.factors import Factors
from noisewise.engine.state import EpochInfo, Params
from noisewise.engine.training import Callback, Checkpoint
from noisewise.errors import DataError, ModelFileError, SettingError
from noisewise.models.fitting import Plan, continue_factors, fit_factors
from noisewise.models.low_rank import LowRank
from noisewise.models.settings import (
    check,
    either,
    number,
    one_of,
    path,
    random_seed,
    span,
    threads,
    whole,
)
from noisewise.observations import Observations, observe
from noisewise.recommend import Seen
from noisewise.splits import random_split

FEWEST_HELD_OUT = 3  # fewer tell nothing: then all epochs are run, on all data

RULES = {
    "rank": whole(0),
    "deviation_rank": whole(0),
    "epochs": whole(1),
    "patience": either(whole(1), None),
    "refit": one_of(True, False),
    "monitor": one_of("rmse", "nll"),
    "validation_fraction": number(above=0.0, most=0.5),
    "learning_rate": number(above=0.0),
    "deviation_learning_rate": number(above=0.0),
    "l2": number(least=0.0),
    "bias_l2": number(least=0.0),
    "deviation_l1": number(least=0.0),
    "penalty": one_of("rating", "row"),
    "delta": number(above=0.0),
    "beta": number(least=0.0, most=1.0),
    "warmup": whole(0),
    "adagrad": one_of("coordinate", "row"),
    "value_range": either(span(), "auto", None),
    "unknown": either(number(), "default"),
    "duplicates": one_of("error", "last", "mean"),
    "keep_seen": one_of(True, False),
    "checkpoint": either(path(), None),
    "checkpoint_epochs": either(whole(1), None),
    "checkpoint_minutes": either(number(above=0.0), None),
    "random_state": random_seed(),
    "n_jobs": threads(),
}


class DeviationFactorizer(LowRank):
    """Matrix factorization that learns how noisy each observation is.

    Values are centred and divided by their standard deviation before training, so that the
    settings below mean the same for stars, percents and volts.

    Parameters
    ----------
    rank : int
        Factors of the mean.
    deviation_rank : int
        Factors of the variance. 0 gives every observation the same variance: Biased MF.
    epochs : int
        How often to visit every observation, at most.
    patience : int or None
        A share of the data is held out, training stops after so many epochs without a better
        result there, and std and intervals are calibrated on it. None runs all epochs on all data.
    refit : bool
        Once the number of epochs was chosen on held-out data, train again on everything.
    monitor : {"rmse", "nll"}
        What must get better on the held-out data.
    validation_fraction : float
        Share to hold out.
    learning_rate, deviation_learning_rate : float
        AdaGrad's step for the mean (and biases), and for the deviation.
    l2, bias_l2 : float
        Penalty on the squares of mean factors, and of biases.
    deviation_l1 : float
        Penalty on the size of deviation factors; makes them sparse.
    penalty : {"rating", "row"}
        Charge the penalty of a row with each of its observations, or once.
    delta : float
        Floor of the variance, as a share of the variance of all values.
    beta : float
        Weight every term of the likelihood by ``variance ** beta``: 0 is the paper's model, 1 fits
        the mean as if all observations were alike.
    warmup : int
        Epochs in which only the mean is learned.
    adagrad : {"coordinate", "row"}
        One sum of squared gradients per coordinate, or one per row: faster, another optimiser.
    value_range : "auto", None or (low, high)
        Clip predictions to the range of the training values, not at all, or to this range.
    unknown : "default" or float
        What to predict for a cell with an id never seen: what is known of the rest, or a constant.
    duplicates : {"error", "last", "mean"}
        What to do about a cell that is given more than once.
    keep_seen : bool
        Remember which cells were trained on (4 bytes each), for ``recommend`` to leave them out.
    checkpoint : path or None
        Keep the state of training in this file, and go on from it if it is there. The file is
        removed when training has ended.
    checkpoint_epochs, checkpoint_minutes : int, float or None
        Write it after so many epochs, or minutes, whichever comes first.
    random_state : int, RandomState or None
        The same int gives the same bits, whatever the number of threads.
    n_jobs : int or None
        Threads; -1 uses all cores.

    Attributes
    ----------
    ids_ : tuple of Ids
        Ids of each mode.
    factors_ : Factors
        What was learned; ``row(id)`` reads it by id.
    calibration_ : Calibration or None
        What held-out errors said of the std.
    learning_curve_ : dict of lists
        Per epoch: epoch, train_rmse, train_nll, validation_rmse, validation_nll, seconds.
    n_epochs_ : int
        Epochs of the model that is kept.
    seconds_ : float
        Time that fit took.

    Examples
    --------
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Alien", 1), ("bob", "M", 5)]
    >>> model = DeviationFactorizer(rank=2, deviation_rank=1, patience=None, random_state=0)
    >>> model = model.fit(ratings)
    >>> mean, std = model.predict([("ann", "M")], return_std=True)
    >>> bool(std[0] > 0)
    True
    """

    learning_curve_: dict[str, list[Any]]
    n_epochs_: int
    seconds_: float

    def __init__(
        self,
        rank: int = 128,
        *,
        deviation_rank: int = 8,
        epochs: int = 100,
        patience: int | None = 3,
        refit: bool = True,
        monitor: Literal["rmse", "nll"] = "rmse",
        validation_fraction: float = 0.1,
        learning_rate: float = 0.055,
        deviation_learning_rate: float = 0.015,
        l2: float = 0.05,
        bias_l2: float = 0.02,
        deviation_l1: float = 0.0006,
        penalty: Literal["rating", "row"] = "rating",
        delta: float = 0.24,
        beta: float = 0.25,
        warmup: int = 2,
        adagrad: Literal["coordinate", "row"] = "coordinate",
        value_range: Literal["auto"] | tuple[float, float] | None = "auto",
        unknown: Literal["default"] | float = "default",
        duplicates: Literal["error", "last", "mean"] = "error",
        keep_seen: bool = True,
        checkpoint: str | Path | None = None,
        checkpoint_epochs: int | None = 1,
        checkpoint_minutes: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = -1,
    ) -> None:
        self.rank = rank
        self.deviation_rank = deviation_rank
        self.epochs = epochs
        self.patience = patience
        self.refit = refit
        self.monitor = monitor
        self.validation_fraction = validation_fraction
        self.learning_rate = learning_rate
        self.deviation_learning_rate = deviation_learning_rate
        self.l2 = l2
        self.bias_l2 = bias_l2
        self.deviation_l1 = deviation_l1
        self.penalty = penalty
        self.delta = delta
        self.beta = beta
        self.warmup = warmup
        self.adagrad = adagrad
        self.value_range = value_range
        self.unknown = unknown
        self.duplicates = duplicates
        self.keep_seen = keep_seen
        self.checkpoint = checkpoint
        self.checkpoint_epochs = checkpoint_epochs
        self.checkpoint_minutes = checkpoint_minutes
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        validation: Observations | None = None,
        callbacks: Sequence[Callback] = (),
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

        Returns
        -------
        self
        """
        started = time.perf_counter()
        check(self, RULES)
        observations = _two_modes(observe(X, y, duplicates=self.duplicates))
        seed = _seed(self.random_state)
        kept, held_out = self._parts(observations, validation, seed)
        everything = observations
        if validation is not None and held_out is not None:
            everything = _joined(kept, held_out)
        params = self._params(seed)
        value_range = _range(self.value_range, everything)

        plan = Plan(
            self.epochs, self.patience, self.monitor, value_range, callbacks,
            self._checkpoint("fit", everything, len(kept)), "fit",
        )  # fmt: skip
        fitted = fit_factors(params, kept, held_out, plan, self._threads())
        curve, interrupted = fitted.curve, fitted.interrupted
        self.factors_, self.ids_ = fitted.factors, everything.ids
        self.value_range_, self.calibration_ = value_range, None
        if held_out is not None:
            self.calibrate(held_out)
        if held_out is not None and self.refit and not interrupted:
            again = Plan(
                self.factors_.state.epoch, callbacks=callbacks, label="refit",
                checkpoint=self._checkpoint("refit", everything, len(kept)),
            )  # fmt: skip
            del kept, held_out, observations, fitted
            fitted = fit_factors(params, everything, None, again, self._threads())
            interrupted = fitted.interrupted
            if not interrupted:  # else the model of the first training is the better one
                self.factors_ = fitted.factors
        self._describe(everything, curve)
        if self.checkpoint is not None and not interrupted:
            for stage in ("fit", "refit"):
                self._checkpoint_path(stage).unlink(missing_ok=True)
        self.seconds_ = time.perf_counter() - started
        return self

    def partial_fit(self, X: Any, y: Any = None, *, epochs: int = 10) -> Self:
        """Go on learning from new observations, of new ids or old ones, without a restart.

        Only the new observations are visited, ``epochs`` times. Scale, calibration and range of
        values stay as they are. On a model that was never fitted, this trains on all of X.
        """
        check(self, RULES)
        if not whole(1).holds(epochs):
            raise SettingError(f"epochs must be {whole(1).words}; got {epochs!r}.")
        if not hasattr(self, "factors_"):
            patience, limit = self.patience, self.epochs
            try:
                self.patience, self.epochs = None, epochs
                return self.fit(X, y)
            finally:
                self.patience, self.epochs = patience, limit
        started = time.perf_counter()
        new = _two_modes(observe(X, y, duplicates=self.duplicates, ids=self.ids_))
        plan = Plan(self.factors_.state.epoch + epochs, label="partial fit")
        self.factors_, curve, _ = continue_factors(self.factors_, new, plan, self._threads())
        before, self.ids_ = self.seen_, new.ids
        self._describe(new, curve)
        if before is not None:
            cells = zip(before.cells(), new.codes, strict=True)
            self.seen_ = Seen.of(tuple(np.append(a, b) for a, b in cells), new.shape)
        self.seconds_ = time.perf_counter() - started
        return self

    def _describe(self, observations: Observations, curve: list[EpochInfo]) -> None:
        self.learning_curve_ = _columns(curve)
        self.n_features_in_ = observations.n_modes
        self.n_epochs_ = self.factors_.state.epoch
        self.seen_ = Seen.of(observations.codes, observations.shape) if self.keep_seen else None

    def _params(self, seed: int) -> Params:
        names = {field.name for field in fields(Params)} - {"seed"}
        return Params(**{name: getattr(self, name) for name in names}, seed=seed)

    def _parts(
        self, observations: Observations, validation: Observations | None, seed: int
    ) -> tuple[Observations, Observations | None]:
        """Decide what to train on at first, and what to hold out."""
        if self.patience is None:
            if validation is not None:
                raise SettingError("validation is only used with patience; got patience=None.")
            return observations, None
        if validation is not None:
            validation = observe(validation, ids=observations.ids)
            return _with_ids(observations, validation), validation
        if len(observations) * self.validation_fraction < FEWEST_HELD_OUT:
            return observations, None
        rng = np.random.default_rng([seed, 3])
        kept, held_out = random_split(len(observations), self.validation_fraction, rng)
        return observations.take(kept), observations.take(held_out)

    def _checkpoint_path(self, stage: str) -> Path:
        path = Path(str(self.checkpoint))
        return path if stage == "fit" else path.with_name(f"{path.name}.{stage}")

    def _checkpoint(self, stage: str, observations: Observations, n_kept: int) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        if not isinstance(self.random_state, int | np.integer):
            raise SettingError("checkpoint needs random_state to be an int, to go on with it.")
        neutral = {"n_jobs", "checkpoint", "checkpoint_epochs", "checkpoint_minutes", "keep_seen"}
        settings = {k: v for k, v in self.get_params().items() if k not in neutral}
        digest = hashlib.sha256(json.dumps([stage, settings, n_kept], default=str).encode())
        for array in (*observations.codes, observations.values):
            digest.update(np.ascontiguousarray(array).data)
        path = self._checkpoint_path(stage)
        every = self.checkpoint_epochs, self.checkpoint_minutes
        return Checkpoint(path, digest.hexdigest(), *every)

    def _pack(self) -> tuple[dict[str, Any], storage.Tensors]:
        header, tensors = self.factors_.pack()
        record = {"learning_curve": self.learning_curve_, "seconds": self.seconds_}
        if self.seen_ is not None:
            tensors |= {"seen.starts": self.seen_.starts, "seen.columns": self.seen_.columns}
        return {"factors": header, "record": record}, tensors

    def _unpack(self, path: str | Path, header: dict[str, Any], tensors: storage.Tensors) -> None:
        check(self, RULES)
        shape = tuple(map(len, self.ids_))
        if len(shape) != 2:
            raise ModelFileError(f"{path} is damaged: it must have 2 modes, but has {len(shape)}.")
        params = self._params(int(header["factors"]["seed"]))
        self.factors_ = Factors.unpack(path, params, header["factors"], tensors, shape)
        self.seen_ = Seen.unpack(path, tensors, shape) if "seen.starts" in tensors else None
        self.n_features_in_ = len(shape)
        self.n_epochs_ = self.factors_.state.epoch
        self.learning_curve_ = dict(header["record"]["learning_curve"])
        self.seconds_ = float(header["record"]["seconds"])


def _two_modes(observations: Observations) -> Observations:
    if observations.n_modes != 2:
        raise DataError(f"X must have 2 id columns here; got {observations.n_modes}.")
    return observations


def _with_ids(observations: Observations, other: Observations) -> Observations:
    """Return observations with the longer ids of ``other``."""
    return Observations(observations.codes, observations.values, other.ids, observations.time)


def _joined(first: Observations, second: Observations) -> Observations:
    ids = second.ids
    codes = tuple(np.append(a, b) for a, b in zip(first.codes, second.codes, strict=True))
    return Observations(codes, np.append(first.values, second.values), ids)


def _range(chosen: Any, observations: Observations) -> tuple[float, float] | None:
    if chosen is None:
        return None
    if chosen == "auto":
        return float(observations.values.min()), float(observations.values.max())
    return float(chosen[0]), float(chosen[1])


def _columns(curve: list[EpochInfo]) -> dict[str, list[Any]]:
    rows = [asdict(info) for info in curve]
    return {field.name: [row[field.name] for row in rows] for field in fields(EpochInfo)}


def _seed(random_state: Any) -> int:
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
