"""HuberFactorizer: Biased MF that large errors pull no harder than a limit.

    mean_ij = mu + u_i + v_j + U_i . V_j,     weight_ij = min(1, k sigma / |error_ij|)

with the weights of Huber's M-estimator, taken anew before every epoch: robust collaborative
filtering (RCF; Mehta, Hofmann and Nejdl, 2007) with an L2 penalty.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from noisewise.data import Observations, observe
from noisewise.engine.arrays import Floats
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.layout import Params, State
from noisewise.engine.training import EpochInfo
from noisewise.models.base import at_one_moment
from noisewise.models.factor_rows import FactorRows
from noisewise.models.iterative import Fit, Iterative, Plan
from noisewise.schema import Entry, Schema, real
from noisewise.settings import learned, number, setting, settings, whole
from noisewise_reproduction.rivals.robust import ADVICE, Task, biased_mf, robust_std


@settings
class HuberFactorizer(Iterative, FactorRows):
    """Matrix factorization with Huber's weights: outliers are heard, but do not shout.

    An observation whose error is more than ``k`` robust stds is given less weight, so that its
    pull on the factors stays that of an error of ``k`` stds. Values are centred and divided by
    their standard deviation before training, those far out brought near for that.

    The std that it predicts is the same for all known cells but for what the number of observations
    of their ids leaves open: the root mean square of training errors, large ones cut to the limit,
    then calibrated on held-out data.

    Examples
    --------
    >>> ratings = [("ann", "Alien", 5), ("ann", "M", 4), ("bob", "Alien", 1), ("bob", "M", 999)]
    >>> model = HuberFactorizer(rank=2, patience=None, random_state=0).fit(ratings)
    >>> model.weights(ratings).round(1).tolist()
    [1.0, 1.0, 1.0, 0.0]
    """

    rank: int = setting(
        whole(0),
        "Factors of the mean.",
        default=128,
        kw_only=False,
    )
    k: float = setting(
        number(above=0.0),
        "Robust stds at which an error counts as large. 1.345 loses 5 % of efficiency where "
        "errors are normal; a very large k is Biased MF.",
        default=1.345,
    )
    scale_floor: float = setting(
        number(above=0.0),
        "The robust std never falls below this share of the std of all values. Errors of "
        "training shrink as the factors adapt to them; without a floor, good values would lose "
        "their weight. Held-out errors are the measure: on MovieLens-1M their robust std has a "
        "share of .71, that of training errors one of .55. Lower it where values can be "
        "predicted better than ratings.",
        default=0.7,
    )
    learning_rate: float = setting(
        number(above=0.0),
        "AdaGrad's step.",
        default=0.035,
    )
    l2: float = setting(
        number(least=0.0),
        "Penalty on the squares of factors, and of biases, charged with each observation.",
        default=0.058,
    )
    bias_l2: float = setting(
        number(least=0.0),
        "Penalty on the squares of factors, and of biases, charged with each observation.",
        default=0.05,
    )
    scale_: float = learned(
        "The robust std of errors that weights refer to, in units of the values."
    )

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
        learned = Learned(task.finalize(chosen), scale)
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

    def _adopt(self, outcome: Learned) -> None:
        self.factors_, self.scale_ = outcome

    def schema(self) -> Schema:
        """Declare what a file keeps: also the robust std of errors."""
        yield from super().schema()
        yield Entry("scale", "scale_", real(above=0.0))


class Learned(NamedTuple):
    """What a training gives: the factors, and the robust std of errors."""

    factors: Factors
    scale: float
