"""HuberFactorizer: Biased MF that large errors pull no harder than a limit.

    mean_ij = mu + u_i + v_j + U_i . V_j,     weight_ij = min(1, k sigma / |error_ij|)

with the weights of Huber's M-estimator, taken anew before every epoch: robust collaborative
filtering (RCF; Mehta, Hofmann and Nejdl, 2007) with an L2 penalty.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from noisewise import storage
from noisewise.data import Observations, observe
from noisewise.engine.arrays import Floats
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.layout import Params, State
from noisewise.engine.training import EpochInfo
from noisewise.models.changing import at_one_moment
from noisewise.models.trained import RULES, Fit, Plan
from noisewise.models.trained_storage import Factored
from noisewise.settings import Rule, number, whole
from noisewise_reproduction.rivals.robust import ADVICE, Task, biased_mf, robust_std


class HuberFactorizer(Factored):
    """Matrix factorization with Huber's weights: outliers are heard, but do not shout.

    An observation whose error is more than ``k`` robust stds is given less weight, so that its
    pull on the factors stays that of an error of ``k`` stds. Values are centred and divided by
    their standard deviation before training, those far out brought near for that.

    The std that it predicts is the same for all known cells but for what the number of observations
    of their ids leaves open: the root mean square of training errors, large ones cut to the limit,
    then calibrated on held-out data.

    Parameters
    ----------
    rank : int
        Factors of the mean.
    k : float
        Robust stds at which an error counts as large. 1.345 loses 5 % of efficiency where errors
        are normal; a very large k is Biased MF.
    scale_floor : float
        The robust std never falls below this share of the std of all values. Errors of training
        shrink as the factors adapt to them; without a floor, good values would lose their weight.
        Held-out errors are the measure: on MovieLens-1M their robust std has a share of .71, that
        of training errors one of .55. Lower it where values can be predicted better than ratings.
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
    scale_ : float
        The robust std of errors that weights refer to, in units of the values.
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
    >>> ratings = [("ann", "Alien", 5), ("ann", "M", 4), ("bob", "Alien", 1), ("bob", "M", 999)]
    >>> model = HuberFactorizer(rank=2, patience=None, random_state=0).fit(ratings)
    >>> model.weights(ratings).round(1).tolist()
    [1.0, 1.0, 1.0, 0.0]
    """

    _rules: ClassVar[dict[str, Rule]] = RULES | {
        "rank": whole(0),
        "k": number(above=0.0),
        "scale_floor": number(above=0.0),
        "learning_rate": number(above=0.0),
        "l2": number(least=0.0),
        "bias_l2": number(least=0.0),
    }

    scale_: float

    def __init__(
        self,
        rank: int = 128,
        *,
        k: float = 1.345,
        scale_floor: float = 0.7,
        epochs: int = 100,
        patience: int | None = 3,
        refit: bool = True,
        monitor: Literal["rmse", "nll"] = "rmse",
        validation_fraction: float = 0.1,
        learning_rate: float = 0.035,
        l2: float = 0.058,
        bias_l2: float = 0.05,
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
        self.k = k
        self.scale_floor = scale_floor
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
    def weights(self, X: Any, y: Any = None) -> Floats:
        """Return the weight of observations: 1, or less where their error is large.

        Parameters
        ----------
        X, y
            Observations, as for ``fit``.
        """
        check_is_fitted(self)
        seen = observe(X, y, duplicates="last", ids=self.ids_)
        error = np.abs(seen.values - self.predict(seen))
        limit = np.float32(self.k * self.scale_)
        return np.asarray(limit / np.maximum(error, limit))

    def _learn(
        self, observations: Observations, held_out: Observations | None, plan: Plan, seed: int
    ) -> Fit:
        task = Task.of(self._params(seed), observations, self._threads())
        validate = task.validate(held_out, plan.value_range)
        step = partial(self._epoch, task)
        training = plan.train(task.start(), step, validate, advice=ADVICE.format(self))
        chosen = training.chosen
        scale = task.units.scale * self._sigma(task.errors(chosen))
        learned = Learned(task.settle(chosen), scale)
        return Fit(learned, chosen.epoch, training.curve, training.interrupted)

    def _epoch(self, task: Task, state: State) -> EpochInfo:
        """Weigh every observation, and visit it.

        To weigh an error is to pull the value towards its prediction: the gradient is the same.
        """
        mean = task.predicted(state)
        error = task.blocks.values - mean
        limit = np.float32(self.k * self._sigma(error))
        pulled = mean + np.clip(error, -limit, limit)
        info = strata.epoch(state, replace(task.blocks, values=pulled), task.params, task.n_jobs)
        squared = float(np.mean(error.astype(np.float64) ** 2))
        scaled = math.log(2.0 * math.pi * state.variance) + squared / state.variance
        return replace(
            info,
            train_rmse=math.sqrt(squared) * task.units.scale,
            train_nll=0.5 * scaled + math.log(task.units.scale),
        )

    def _sigma(self, error: Floats) -> float:
        return max(robust_std(error), self.scale_floor)

    def _params(self, seed: int) -> Params:
        return biased_mf(self.rank, self.learning_rate, self.l2, self.bias_l2, seed)

    def _adopt(self, knowledge: Learned) -> None:
        self.factors_, self.scale_ = knowledge

    def _pack(self) -> tuple[dict[str, Any], storage.Tensors]:
        header, tensors = super()._pack()
        return {**header, "scale": self.scale_}, tensors

    def _unpack(self, path: str | Path, header: dict[str, Any], tensors: storage.Tensors) -> None:
        super()._unpack(path, header, tensors)
        self.scale_ = storage.take_real(path, header, "scale", above=0.0)


class Learned(NamedTuple):
    """What a training gives: the factors, and the robust std of errors."""

    factors: Factors
    scale: float
