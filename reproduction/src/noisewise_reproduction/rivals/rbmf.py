"""RobustBayesianFactorizer: a noise of its own for every row and column, and heavy tails.

    value_ij ~ N(mu + u_i + v_j + U_i . V_j,  1 / (tau a_i b_j))
    [U_i, u_i] ~ N(0, (a_i L)**-1),     a_i ~ Gamma(s, s)          and alike for items

Robust Bayesian matrix factorization (RBMF; Lakshminarayanan, Bouchard and Archambeau, 2011): rows
are Student-t, their posterior is structured (see ``engine/variational.py``), and tau, L and s are
those under which the data are likeliest. There is no step size and no penalty to choose.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from noisewise.data import Observations
from noisewise.engine.arrays import Codes, Floats
from noisewise.engine.sgd.factors import Factors, Side
from noisewise.engine.sgd.layout import Params
from noisewise.engine.training import EpochInfo, one_blas_thread
from noisewise.models.factor_rows import FactorRows
from noisewise.models.iterative import Fit, Iterative, Plan, judged
from noisewise.models.learner import count_rows
from noisewise.schema import Entry, Found, Schema
from noisewise.settings import either, learned, number, setting, settings, whole
from noisewise_reproduction.rivals.engine.als import grouped
from noisewise_reproduction.rivals.engine.predictive import as_factors, new_side
from noisewise_reproduction.rivals.engine.variational import (
    Common,
    Posterior,
    initial_posterior,
    sweep,
)
from noisewise_reproduction.rivals.robust import Units


@settings
class RobustBayesianFactorizer(Iterative, FactorRows):
    """Bayesian matrix factorization in which every id has a noise of its own, and few are far out.

    A sweep gives every row its exact posterior, given what is believed of the others. What a std is
    made of is told apart by ``predict_parts``: noise, the product of what user and item add, and
    epistemic uncertainty of their rows. The posterior covariance of a row has ``rank ** 2 / 2``
    numbers while training; the model keeps one of them, the share of uncertainty that is left.

    Examples
    --------
    >>> import numpy as np
    >>> from noisewise.data.synthetic import make_ratings
    >>> ratings = make_ratings(n_users=60, n_items=40, seed=0).observations
    >>> model = RobustBayesianFactorizer(rank=2, epochs=20, random_state=0).fit(ratings)
    >>> bool(np.all(np.diff(model.elbo_) > 0))
    True
    """

    rank: int = setting(
        whole(0),
        "Factors of the mean. Those that are not needed vanish by themselves.",
        default=32,
        kw_only=False,
    )
    max_precision: float = setting(
        number(least=1.0),
        "The precision of a row is at most so many times that of an average one. Else a short "
        "row that happens to fit well would be believed ever more.",
        default=10.0,
    )
    epochs: int = setting(
        whole(1),
        "Sweeps over all rows, at most.",
        default=200,
    )
    patience: int | None = setting(
        either(whole(1), None),
        "A share of the data is held out, training stops after so many sweeps without a better "
        "result there, and std and intervals are calibrated on it. None runs all sweeps on all "
        "data.",
        default=5,
    )
    common_: Common = learned(
        "What rows have in common: their prior, and the precision of the noise."
    )
    elbo_: list[float] = learned(
        "After each sweep of the first training, the lower bound of the log-likelihood of "
        "the standardised values. It never falls."
    )

    def _fold(self, mode: int, codes: Codes, values: Floats) -> Side:
        """Give a new row its posterior, as the rows of a sweep get theirs."""
        factors = self.factors_
        standardised = (values - factors.location) / factors.scale
        with one_blas_thread():
            return new_side(factors, self.common_, mode, codes, standardised, self.max_precision)

    def _learn(
        self, observations: Observations, held_out: Observations | None, plan: Plan, seed: int
    ) -> Fit:
        params, n_jobs = self._params(seed), self._threads()
        units, counts = Units.of(observations.values), count_rows(observations)
        values = units.standardised(observations.values)
        sides = grouped(observations.codes, values, observations.shape)

        def judge(state: Posterior, seen: Observations, span: Any) -> tuple[float, float]:
            factors = as_factors(state, params, counts, *units)
            codes = tuple(factors.known_codes(m, c) for m, c in enumerate(seen.codes))
            mean, noise, epistemic = factors.moments(codes, n_jobs)
            return judged(seen.values, mean, noise + epistemic, span)

        def step(state: Posterior) -> EpochInfo:
            sweep(state, sides, self.max_precision, n_jobs)
            return EpochInfo(state.epoch, *judge(state, observations, None))

        validate = None
        if held_out is not None:
            validate = partial(judge, seen=held_out, span=plan.value_range)
        training = plan.train(
            initial_posterior(observations.shape, self.rank, seed), step, validate,
            unit="sweep", advice=f"Try a smaller rank (now {self.rank}).",
        )  # fmt: skip
        chosen = training.chosen
        bounds = training.state.bounds[: len(training.curve)] if plan.label == "fit" else None
        learned = Learned(as_factors(chosen, params, counts, *units), chosen.common, bounds)
        return Fit(learned, chosen.epoch, training.curve, training.interrupted)

    def _params(self, seed: int) -> Params:
        """Lay out rows as mean factors, a bias, and the noise as a deviation of rank 1."""
        return Params(
            rank=self.rank, deviation_rank=1, learning_rate=1.0, deviation_learning_rate=1.0,
            l2=1.0, bias_l2=1.0, deviation_l1=0.0, penalty="row", delta=0.0, beta=0.0, warmup=0,
            adagrad="row", seed=seed,
        )  # fmt: skip

    def _adopt(self, outcome: Learned) -> None:
        self.factors_, self.common_ = outcome.factors, outcome.common
        if outcome.bounds is not None:
            self.elbo_ = outcome.bounds

    def schema(self) -> Schema:
        """Declare what a file keeps: also what rows have in common, and the bounds."""
        yield from super().schema()
        yield from Common.schema(self.rank, "common_")
        yield Entry("elbo", "elbo_", lambda bounds: [float(bound) for bound in bounds])

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        self.common_ = Common.of(found)


class Learned(NamedTuple):
    """What a training gives; a refit does not tell of its bounds."""

    factors: Factors
    common: Common
    bounds: list[float] | None
