"""TrimmedFactorizer: Biased MF on all but the worst cells, which are chosen again and again.

    min |X - S - L|  over L of low rank and S with at most a share of the cells

in turns: S takes the cells with the largest errors, L is trained on the rest. Direct robust matrix
factorization (DRMF; Xiong, Chen and Schneider, 2011), with Biased MF for L.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from noisewise.data import Observations, observe
from noisewise.engine import arrays
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.layout import Params, State
from noisewise.engine.training import EpochInfo, Training
from noisewise.models.base import at_one_moment
from noisewise.models.factor_rows import FactorRows
from noisewise.models.iterative import Fit, Iterative, Plan
from noisewise.schema import Entry, Schema, Source, real, record
from noisewise.settings import learned, number, setting, settings, whole
from noisewise.storage import Tensors
from noisewise_reproduction.rivals.robust import ADVICE, Task, biased_mf

COUNTS, ERRORS = ("epoch", "outliers", "changed"), ("train_rmse", "objective")  # of a round
LEAST = 1e-6  # a smaller error, in stds of the values, makes no outlier

Flags = npt.NDArray[np.bool_]


@settings
class TrimmedFactorizer(Iterative, FactorRows):
    """Matrix factorization that leaves out the cells with the largest errors.

    Training goes in rounds of ``round_epochs`` epochs. After each, the ``outliers`` share of the
    cells with the largest errors is left out of the next, which goes on from there. The share is
    left out whether or not so many values are bad: ``rounds_`` shows what becomes of the errors.

    The std that it predicts is the same for all known cells but for what the number of observations
    of their ids leaves open: the root mean square of training errors outside the outliers, then
    calibrated on held-out data, outliers and all.

    Examples
    --------
    >>> ratings = [(user, item, user + item) for user in range(9) for item in range(9)]
    >>> ratings[40] = (4, 4, 100)
    >>> settings = {"patience": None, "epochs": 20, "random_state": 0}
    >>> model = TrimmedFactorizer(rank=2, outliers=0.01, **settings).fit(ratings)
    >>> [ratings[n] for n in np.flatnonzero(model.is_outlier(ratings))]
    [(4, 4, 100)]
    """

    rank: int = setting(
        whole(0),
        "Factors of the mean.",
        default=128,
        kw_only=False,
    )
    outliers: float = setting(
        number(above=0.0, most=0.5),
        "Share of the cells to leave out.",
        default=0.01,
    )
    round_epochs: int = setting(
        whole(1),
        "Epochs between two choices of the outliers. The first round has none.",
        default=5,
    )
    learning_rate: float = setting(
        number(above=0.0),
        "AdaGrad's step.",
        default=0.045,
    )
    l2: float = setting(
        number(least=0.0),
        "Penalty on the squares of factors, and of biases, charged with each observation.",
        default=0.04,
    )
    bias_l2: float = setting(
        number(least=0.0),
        "Penalty on the squares of factors, and of biases, charged with each observation.",
        default=0.03,
    )
    threshold_: float = learned(
        "Smallest error of an outlier, in units of the values, when they were last chosen."
    )
    rounds_: dict[str, list[Any]] = learned(
        "Per round of the first training: round; epoch, its last; outliers, how many "
        "cells were left out; changed, how many of them were not left out before; "
        "train_rmse, of all cells; objective, the sum of squared errors of the cells not "
        "left out; validation_rmse."
    )

    @at_one_moment
    def is_outlier(self, X: Any, y: Any = None) -> Flags:
        """Return whether the errors of observations are as large as those of outliers.

        Parameters
        ----------
        X, y
            Observations, as for ``fit``.
        """
        check_is_fitted(self)
        seen = observe(X, y, duplicates="last", ids=self.ids_)
        rounded = self.threshold_ * (1.0 - 1e-6)  # an outlier's own error is known to 7 digits
        return np.asarray(np.abs(seen.values - self.predict(seen)) >= rounded)

    def _learn(
        self, observations: Observations, held_out: Observations | None, plan: Plan, seed: int
    ) -> Fit:
        task = Task.of(self._params(seed), observations, self._threads())
        start, nothing = task.start(), np.zeros(len(task.blocks), dtype=bool)
        state = Trimmed(start.rows, start.layout, outlier=nothing)
        validate = task.validate(held_out, plan.value_range)
        step = partial(self._epoch, task)
        training = plan.train(state, step, validate, advice=ADVICE.format(self))
        chosen = training.chosen
        rounds = _rounds(training) if plan.label == "fit" else None
        error = np.abs(task.errors(chosen))
        threshold = task.units.scale * max(float(error[self._largest(error)].min()), LEAST)
        learned = Learned(task.finalize(chosen), threshold, rounds)
        return Fit(learned, chosen.epoch, training.curve, training.interrupted)

    def _epoch(self, task: Task, state: Trimmed) -> EpochInfo:
        """Visit what is not left out; after the last epoch of a round, choose anew."""
        info = strata.epoch(state, task.without(state.outlier), task.params, task.n_jobs)
        if state.epoch % self.round_epochs == 0:
            self._end_round(task, state)
        scale = task.units.scale
        return replace(
            info, train_rmse=scale * info.train_rmse, train_nll=info.train_nll + math.log(scale)
        )

    def _end_round(self, task: Task, state: Trimmed) -> None:
        error = task.units.scale * task.errors(state).astype(np.float64)
        new = np.zeros_like(state.outlier)
        new[self._largest(np.abs(error))] = True
        state.rounds.append(
            {
                "epoch": state.epoch,
                "outliers": int(state.outlier.sum()),
                "changed": state.changed,
                "train_rmse": math.sqrt(np.mean(error**2)),
                "objective": float(np.sum(error[~state.outlier] ** 2)),
            }
        )
        state.changed = int((new & ~state.outlier).sum())
        state.outlier = new

    def _largest(self, error: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
        """Return where the largest errors are: the share of outliers, but one at least."""
        n = max(1, round(self.outliers * len(error)))
        return np.argpartition(error, len(error) - n)[len(error) - n :]

    def _params(self, seed: int) -> Params:
        return biased_mf(self.rank, self.learning_rate, self.l2, self.bias_l2, seed)

    def _adopt(self, outcome: Learned) -> None:
        self.factors_, self.threshold_ = outcome.factors, outcome.threshold
        if outcome.rounds is not None:
            self.rounds_ = outcome.rounds

    def schema(self) -> Schema:
        """Declare what a file keeps: also the rounds, and where outliers begin."""
        yield from super().schema()
        yield Entry("threshold", "threshold_", real(above=0.0))
        yield Entry("rounds", "rounds_", record)


class Learned(NamedTuple):
    """What a training gives; a refit has no rounds to tell of."""

    factors: Factors
    threshold: float
    rounds: dict[str, list[Any]] | None


@dataclass
class Trimmed(State):
    """A state of the engine, with what is left out of training at the moment.

    Attributes
    ----------
    outlier
        Whether each observation, in the order of the blocks, is left out.
    changed
        How many of them were not left out before.
    rounds
        What each round came to.
    """

    outlier: Flags = field(default_factory=lambda: np.zeros(0, dtype=bool))
    changed: int = 0
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def copy(self) -> Trimmed:
        """Return a state of its own, to be kept while training goes on."""
        own = super().copy()
        return replace(self, rows=own.rows, outlier=self.outlier.copy(), rounds=list(self.rounds))

    def pack(self) -> tuple[dict[str, Any], Tensors]:
        """Header and tensors of a checkpoint."""
        header, tensors = super().pack()
        tensors["outlier"] = self.outlier.astype(np.uint8)
        return {**header, "changed": self.changed, "rounds": self.rounds}, tensors

    def restored(self, source: arrays.Source) -> Trimmed:
        """Return a state like this one with what ``pack`` gave; the file is not trusted."""
        own = super().restored(source)
        outlier = source.array("outlier", "uint8", len(self.outlier)).astype(bool)
        changed = source.whole("changed", most=len(outlier))
        rounds = [
            {name: row.whole(name) for name in COUNTS} | {name: row.real(name) for name in ERRORS}
            for row in (Source(row, {}) for row in source.header["rounds"])
        ]
        return Trimmed(own.rows, own.layout, own.epoch, own.variance, outlier, changed, rounds)


def _rounds(training: Training[Trimmed]) -> dict[str, list[Any]]:
    """Return the rounds of a training as columns, with the held-out error where there is one."""
    held_out = {info.epoch: info.validation_rmse for info in training.curve}
    rows = [
        {"round": k, **row, "validation_rmse": held_out[row["epoch"]]}
        for k, row in enumerate(training.state.rounds, start=1)
        if row["epoch"] in held_out  # a checkpoint may tell of others
    ]
    names = ("round", *COUNTS, *ERRORS, "validation_rmse")
    return {name: [row[name] for row in rows] for name in names}
