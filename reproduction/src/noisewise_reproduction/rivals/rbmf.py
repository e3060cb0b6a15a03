"""RobustBayesianFactorizer: a noise of its own for every row and column, and heavy tails.

    value_ij ~ N(mu + u_i + v_j + U_i . V_j,  1 / (tau a_i b_j))
    [U_i, u_i] ~ N(0, (a_i L)**-1),     a_i ~ Gamma(s, s)          and alike for items

Robust Bayesian matrix factorization (RBMF; Lakshminarayanan, Bouchard and Archambeau, 2011): rows
are Student-t, their posterior is structured (see ``engine/variational.py``), and tau, L and s are
those under which the data are likeliest. There is no step size and no penalty to choose.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from noisewise import storage
from noisewise.data import Observations
from noisewise.engine.arrays import Codes, Floats
from noisewise.engine.sgd.factors import Factors, Side
from noisewise.engine.sgd.layout import Params
from noisewise.engine.threads import one_blas_thread
from noisewise.engine.training import EpochInfo
from noisewise.models.fitting import count_rows, judged
from noisewise.models.trained import RULES, Fit, Plan
from noisewise.models.trained_storage import Factored
from noisewise.settings import Rule, number, whole
from noisewise_reproduction.rivals.engine.als import grouped
from noisewise_reproduction.rivals.engine.predictive import as_factors, new_side
from noisewise_reproduction.rivals.engine.variational import (
    Common,
    Posterior,
    initial_posterior,
    sweep,
)
from noisewise_reproduction.rivals.robust import Units


class RobustBayesianFactorizer(Factored):
    """Bayesian matrix factorization in which every id has a noise of its own, and few are far out.

    A sweep gives every row its exact posterior, given what is believed of the others. What a std is
    made of is told apart by ``predict_parts``: noise, the product of what user and item add, and
    epistemic uncertainty of their rows. The posterior covariance of a row has ``rank ** 2 / 2``
    numbers while training; the model keeps one of them, the share of uncertainty that is left.

    Parameters
    ----------
    rank : int
        Factors of the mean. Those that are not needed vanish by themselves.
    max_precision : float
        The precision of a row is at most so many times that of an average one. Else a short row
        that happens to fit well would be believed ever more.
    epochs : int
        Sweeps over all rows, at most.
    patience : int or None
        A share of the data is held out, training stops after so many sweeps without a better
        result there, and std and intervals are calibrated on it. None runs all sweeps on all data.
    refit : bool
        Once the number of sweeps was chosen on held-out data, train again on everything.
    monitor : {"rmse", "nll"}
        What must get better on the held-out data.
    validation_fraction : float
        Share to hold out.
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
        Write it after so many sweeps, or minutes, whichever comes first.
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
    common_ : Common
        What rows have in common: their prior, and the precision of the noise.
    elbo_ : list of float
        After each sweep of the first training, the lower bound of the log-likelihood of the
        standardised values. It never falls.
    calibration_ : Calibration or None
        What held-out errors said of the std.
    learning_curve_ : dict of lists
        Per sweep: epoch, train_rmse, train_nll, validation_rmse, validation_nll, seconds.
    n_epochs_ : int
        Sweeps of the model that is kept.
    seconds_ : float
        Time that fit took.

    Examples
    --------
    >>> from noisewise.data.synthetic import make_ratings
    >>> ratings = make_ratings(n_users=60, n_items=40, seed=0).observations
    >>> model = RobustBayesianFactorizer(rank=2, epochs=20, random_state=0).fit(ratings)
    >>> bool(np.all(np.diff(model.elbo_) > 0))
    True
    """

    _rules: ClassVar[dict[str, Rule]] = RULES | {
        "rank": whole(0),
        "max_precision": number(least=1.0),
    }

    common_: Common
    elbo_: list[float]

    def __init__(
        self,
        rank: int = 32,
        *,
        max_precision: float = 10.0,
        epochs: int = 200,
        patience: int | None = 5,
        refit: bool = True,
        monitor: Literal["rmse", "nll"] = "rmse",
        validation_fraction: float = 0.1,
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
        self.max_precision = max_precision
        self.epochs = epochs
        self.patience = patience
        self.refit = refit
        self.monitor = monitor
        self.validation_fraction = validation_fraction
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

    def _adopt(self, knowledge: Learned) -> None:
        self.factors_, self.common_ = knowledge.factors, knowledge.common
        if knowledge.bounds is not None:
            self.elbo_ = knowledge.bounds

    def _pack(self) -> tuple[dict[str, Any], storage.Tensors]:
        header, tensors = super()._pack()
        common, priors = self.common_.pack()
        return {**header, "common": common, "elbo": self.elbo_}, tensors | priors

    def _unpack(self, path: str | Path, header: dict[str, Any], tensors: storage.Tensors) -> None:
        super()._unpack(path, header, tensors)
        self.common_ = Common.unpack(path, header["common"], tensors, self.rank)
        self.elbo_ = [float(bound) for bound in header["elbo"]]


class Learned(NamedTuple):
    """What a training gives; a refit does not tell of its bounds."""

    factors: Factors
    common: Common
    bounds: list[float] | None
