"""TrimmedFactorizer: Biased MF on all but the worst cells, which are chosen again and again.

    min |X - S - L|  over L of low rank and S with at most a share of the cells

in turns: S takes the cells with the largest errors, L is trained on the rest. Direct robust matrix
factorization (DRMF; Xiong, Chen and Schneider, 2011), with Biased MF for L.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from noisewise.data import Observations, observe
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.layout import Params, State
from noisewise.engine.training import EpochInfo, Training
from noisewise.models.changing import at_one_moment
from noisewise.models.trained import RULES, Fit, Plan
from noisewise.models.trained_storage import Factored
from noisewise.settings import Rule, number, whole
from noisewise.storage import Tensors, take, take_real, take_whole
from noisewise_reproduction.rivals.robust import ADVICE, Task, biased_mf

COUNTS, ERRORS = ("epoch", "outliers", "changed"), ("train_rmse", "objective")  # of a round
LEAST = 1e-6  # a smaller error, in stds of the values, makes no outlier

Flags = npt.NDArray[np.bool_]


class TrimmedFactorizer(Factored):
    """Matrix factorization that leaves out the cells with the largest errors.

    Training goes in rounds of ``round_epochs`` epochs. After each, the ``outliers`` share of the
    cells with the largest errors is left out of the next, which goes on from there. The share is
    left out whether or not so many values are bad: ``rounds_`` shows what becomes of the errors.

    The std that it predicts is the same for all known cells but for what the number of observations
    of their ids leaves open: the root mean square of training errors outside the outliers, then
    calibrated on held-out data, outliers and all.

    Parameters
    ----------
    rank : int
        Factors of the mean.
    outliers : float
        Share of the cells to leave out.
    round_epochs : int
        Epochs between two choices of the outliers. The first round has none.
    epochs : int
        How often to visit every observation that is not left out, at most.
    patience : int or None
        A share of the data is held out, training stops after so many epochs without a better
        result there, and std and intervals are calibrated on it. None runs all epochs on all data.
    refit : bool
        Once the number of epochs was chosen on held-out data, train again on everything.
    monitor : {"rmse", "nll"}
        What must get better on the held-out data.
    validation_fraction : float
        Share to hold out.
    learning_rate : float
        AdaGrad's step.
    l2, bias_l2 : float
        Penalty on the squares of factors, and of biases, charged with each observation.
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
    verbose : bool or None
        Show a progress bar: True always, False never; None on a terminal and in a notebook.

    Attributes
    ----------
    ids_ : tuple of Ids
        Ids of each mode.
    factors_ : Factors
        What was learned; ``row(id)`` reads it by id.
    threshold_ : float
        Smallest error of an outlier, in units of the values, when they were last chosen.
    rounds_ : dict of lists
        Per round of the first training: round; epoch, its last; outliers, how many cells were left
        out; changed, how many of them were not left out before; train_rmse, of all cells;
        objective, the sum of squared errors of the cells not left out; validation_rmse.
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
    >>> ratings = [(user, item, user + item) for user in range(9) for item in range(9)]
    >>> ratings[40] = (4, 4, 100)
    >>> settings = {"patience": None, "epochs": 20, "random_state": 0}
    >>> model = TrimmedFactorizer(rank=2, outliers=0.01, **settings).fit(ratings)
    >>> [ratings[n] for n in np.flatnonzero(model.is_outlier(ratings))]
    [(4, 4, 100)]
    """

    _rules: ClassVar[dict[str, Rule]] = RULES | {
        "rank": whole(0),
        "outliers": number(above=0.0, most=0.5),
        "round_epochs": whole(1),
        "learning_rate": number(above=0.0),
        "l2": number(least=0.0),
        "bias_l2": number(least=0.0),
    }

    threshold_: float
    rounds_: dict[str, list[Any]]

    def __init__(
        self,
        rank: int = 128,
        *,
        outliers: float = 0.01,
        round_epochs: int = 5,
        epochs: int = 100,
        patience: int | None = 3,
        refit: bool = True,
        monitor: Literal["rmse", "nll"] = "rmse",
        validation_fraction: float = 0.1,
        learning_rate: float = 0.045,
        l2: float = 0.04,
        bias_l2: float = 0.03,
        value_range: Literal["auto"] | tuple[float, float] | None = "auto",
        unknown: Literal["default"] | float = "default",
        duplicates: Literal["error", "last", "mean"] = "error",
        keep_seen: bool = True,
        checkpoint: str | Path | None = None,
        checkpoint_epochs: int | None = 1,
        checkpoint_minutes: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = -1,
        verbose: bool | None = None,
    ) -> None:
        self.rank = rank
        self.outliers = outliers
        self.round_epochs = round_epochs
        self.epochs = epochs
        self.patience = patience
        self.refit = refit
        self.monitor = monitor
        self.validation_fraction = validation_fraction
        self.learning_rate = learning_rate
        self.l2 = l2
        self.bias_l2 = bias_l2
        self.value_range = value_range
        self.unknown = unknown
        self.duplicates = duplicates
        self.keep_seen = keep_seen
        self.checkpoint = checkpoint
        self.checkpoint_epochs = checkpoint_epochs
        self.checkpoint_minutes = checkpoint_minutes
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

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
        learned = Learned(task.settle(chosen), threshold, rounds)
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

    def _adopt(self, knowledge: Learned) -> None:
        self.factors_, self.threshold_ = knowledge.factors, knowledge.threshold
        if knowledge.rounds is not None:
            self.rounds_ = knowledge.rounds

    def _pack(self) -> tuple[dict[str, Any], Tensors]:
        header, tensors = super()._pack()
        return {**header, "threshold": self.threshold_, "rounds": self.rounds_}, tensors

    def _unpack(self, path: str | Path, header: dict[str, Any], tensors: Tensors) -> None:
        super()._unpack(path, header, tensors)
        self.threshold_ = take_real(path, header, "threshold", above=0.0)
        self.rounds_ = dict(header["rounds"])


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

    def restored(self, path: Any, header: dict[str, Any], tensors: Tensors) -> Trimmed:
        """Return a state like this one with what ``pack`` gave; the file is not trusted."""
        own = super().restored(path, header, tensors)
        outlier = take(path, tensors, "outlier", "uint8", len(self.outlier)).astype(bool)
        changed = take_whole(path, header, "changed", most=len(outlier))
        rounds = [
            {name: take_whole(path, row, name) for name in COUNTS}
            | {name: take_real(path, row, name) for name in ERRORS}
            for row in header["rounds"]
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
