"""DeviationFactorizer: every observation has a mean and a deviation, both low-rank.

    mean_ij     = mu + u_i + v_j + U_i . V_j
    variance_ij = P_i . Q_j + delta            P, Q >= 0

and for tensors likewise, with a third and further modes:

    mean_ijk     = mu + u_i + v_j + t_k + sum_d U_id V_jd T_kd
    variance_ijk = sum_d P_id Q_jd W_kd + delta

learned together by projected AdaGrad on the Gaussian likelihood (Lee, Yang and Lin, 2017).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from noisewise.data import Observations, encode_ids, observe
from noisewise.data.ids import Seen
from noisewise.engine import workers
from noisewise.engine.arrays import Codes, Counts
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.layout import Params, State, aligned, initial_state
from noisewise.engine.training import (
    Callback,
    EpochInfo,
    mean_in_units,
    standardised,
    usual_weight,
)
from noisewise.engine.workers import Cluster
from noisewise.errors import FitInterrupted
from noisewise.models import on_cluster, on_gpu
from noisewise.models.base import Cells, in_one_step
from noisewise.models.factor_rows import FactorRows
from noisewise.models.iterative import Fit, Iterative, Plan, judged
from noisewise.models.learner import (
    Given,
    How,
    count_rows,
    mean_and_std,
    refuse_on_cluster,
    warn_of_new_types,
)
from noisewise.models.on_gpu import FactorsOnDevice
from noisewise.recommend import Lists, Sought
from noisewise.settings import check, number, one_of, setting, settings, whole

ADVICE = (
    "Try a smaller learning_rate (now {0.learning_rate}) or deviation_learning_rate (now "
    "{0.deviation_learning_rate}), a larger delta (now {0.delta}), or a longer warmup (now "
    "{0.warmup})."
)


# For tensors of sensors, near the best trials of experiments/search_sensors.py.
PTF: dict[str, Any] = {
    "rank": 64,
    "deviation_rank": 0,
    "epochs": 60,
    "patience": 5,
    "learning_rate": 0.3,
    "biases": False,
    "l2": 4.0,
    "penalty": "row",
    "delta": 0.02,
    "beta": 0.0,
}
DTF: dict[str, Any] = PTF | {
    "deviation_rank": 8,
    "deviation_learning_rate": 0.1,
    "deviation_l1": 0.1,
}


@settings
class DeviationFactorizer(Iterative, FactorRows, FactorsOnDevice):
    """Factorization of matrices and tensors that learns how noisy each observation is.

    With two id columns this is DMF, with three or more DTF; ``deviation_rank=0`` makes of them
    Biased MF and PTF. Settings are for values over their std, be they stars, percents or volts.

    The defaults are for two modes, which alone can ``recommend`` and ``fold_in``; their penalty
    drives all factors of a tensor to zero: with more modes, start from ``DTF`` or ``PTF`` of this
    module, as in ``DeviationFactorizer(**DTF)``.

    Examples
    --------
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Alien", 1), ("bob", "M", 5)]
    >>> model = DeviationFactorizer(rank=2, deviation_rank=1, patience=None, random_state=0)
    >>> model = model.fit(ratings)
    >>> mean, std = model.predict([("ann", "M")], return_std=True)
    >>> bool(std[0] > 0)
    True
    """

    _any_modes = True
    _on_clusters = True
    _takes_weight = True

    rank: int = setting(whole(0), "Factors of the mean.", default=128, kw_only=False)
    deviation_rank: int = setting(
        whole(0), "Factors of the variance. 0 gives every observation the same variance.", default=8
    )
    learning_rate: float = setting(
        number(above=0.0), "AdaGrad's step for the mean and the biases.", default=0.055
    )
    deviation_learning_rate: float = setting(
        number(above=0.0), "AdaGrad's step for the deviation.", default=0.015
    )
    biases: bool = setting(
        one_of(True, False),
        "Whether every id has a bias, which is added to the mean.",
        default=True,
    )
    l2: float = setting(number(least=0.0), "Penalty on the squares of mean factors.", default=0.05)
    bias_l2: float = setting(number(least=0.0), "Penalty on the squares of biases.", default=0.02)
    deviation_l1: float = setting(
        number(least=0.0),
        "Penalty on the size of deviation factors; makes them sparse.",
        default=0.0006,
    )
    penalty: Literal["rating", "row"] = setting(
        one_of("rating", "row"),
        "Charge the penalty of a row with each of its observations, or once.",
        default="rating",
    )
    delta: float = setting(
        number(above=0.0),
        "Floor of the variance, as a share of the variance of all values.",
        default=0.24,
    )
    beta: float = setting(
        number(least=0.0, most=1.0),
        "Weight every term of the likelihood by ``variance ** beta``: 0 is the paper's model, 1 "
        "fits the mean as if all observations were alike.",
        default=0.25,
    )
    warmup: int = setting(whole(0), "Epochs in which only the mean is learned.", default=2)
    adagrad: Literal["coordinate", "row"] = setting(
        one_of("coordinate", "row"),
        "One sum of squared gradients per coordinate, or one per row: faster, another optimiser.",
        default="coordinate",
    )

    @in_one_step
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
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
        sample_weight : sequence of float, optional
            How much every value is worth: the variance of its noise is divided by it.
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
            Train on a cluster of Ray ("local", "auto", "ray://host:port"): no bit changes.

        Raises
        ------
        FitInterrupted
            At Ctrl-C, after the epoch is finished: a ``KeyboardInterrupt`` that ends loops around
            the fit. The model has learned what its message says.
        """
        kept = checkpoint, checkpoint_epochs, checkpoint_minutes
        given = Given(X, y, validation, sample_weight)
        return self._fit(given, How(callbacks, kept, cluster))

    def _learn(
        self, observations: Observations, held_out: Observations | None, plan: Plan, seed: int
    ) -> Fit:
        params, data = self._params(seed), (observations, held_out)
        team = workers.current()
        if team is not None:
            refuse_on_cluster(observations)
            return on_cluster.fit_factors(team, params, *data, plan, ADVICE.format(params))
        return self._trained_on(
            observations,
            lambda device: on_gpu.fit_factors(
                device, self._options(), params, *data, plan, ADVICE.format(params)
            ),
            lambda: fit_factors(params, *data, plan, self._threads()),
        )

    def _adopt(self, outcome: Factors) -> None:
        self.factors_ = outcome

    @in_one_step
    def partial_fit(
        self, X: Any, y: Any = None, *, epochs: int = 10, sample_weight: Any = None
    ) -> Self:
        """Go on learning from new observations, of new ids or old ones, without a restart.

        Only the new observations are visited, ``epochs`` times; ``sample_weight`` is as for
        ``fit``. Scale, calibration and range of values stay as they are. On a model that was never
        fitted, this trains on all of X.
        """
        check(self)
        whole(1).require("epochs", epochs)
        if not hasattr(self, "factors_"):
            patience, limit = self.patience, self.epochs
            try:
                self.patience, self.epochs = None, epochs
                return self.fit(X, y, sample_weight=sample_weight)
            finally:
                self.patience, self.epochs = patience, limit
        started = time.perf_counter()
        new = self._new(X, y, sample_weight)
        plan = Plan(self.factors_.state.epoch + epochs, label="partial fit", verbose=self.verbose)
        advice = ADVICE.format(self.factors_.params)
        fitted = self._trained_on(
            new,
            lambda device: on_gpu.continue_factors(
                device, self._options(), self.factors_, new, plan, advice
            ),
            lambda: continue_factors(self.factors_, new, plan, self._threads()),
        )
        self._adopt(fitted.outcome)
        before, self.ids_ = self.seen_, new.ids
        if len(self._levels()):
            self._note_levels(np.append(self._levels(), new.values))
        self._describe(new, fitted.curve, fitted.epochs)
        if before is not None:
            self.seen_ = Seen.of(tuple(map(np.append, before.cells(), new.codes)), new.shape)
        self.seconds_ = time.perf_counter() - started
        if fitted.interrupted:
            run = fitted.epochs - plan.epochs + epochs
            raise FitInterrupted(
                f"Learning from new observations was interrupted after epoch {run} of {epochs}: "
                "the model is that of this epoch.",
                self,
            )
        return self

    def _new(self, X: Any, y: Any, weight: Any) -> Observations:
        given = {"duplicates": self.duplicates, "ids": self.ids_, "weight": weight}
        new = self._checked(observe(X, y, **given))
        warn_of_new_types(self.ids_, new)
        if self.factors_.worth != 1.0 and new.weight is None:
            new = replace(new, weight=np.ones(len(new), dtype=np.float32))
        return new

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        codes = encode_ids(X, self.ids_)
        if len(codes) > 2 or len(codes[0]) < on_gpu.MANY_CELLS or self.device == "cpu":
            return super().cells(X)
        known = tuple(self.factors_.known_codes(m, code) for m, code in enumerate(codes))
        moments = self._on_device(
            lambda device: on_gpu.moments(device, self.factors_, known),
            lambda: self.factors_.moments(known, self._threads()),
        )
        return Cells(moments, self._unseen(known))

    def _best(self, mode: int, codes: Codes, sought: Sought) -> Lists:
        return on_gpu.best_columns(self, super()._best, on_gpu.best, mode, codes, sought)

    def _fold_many(self, mode: int, starts: Counts, codes: Codes, values: Any) -> list[Any]:
        return on_gpu.new_rows(self, self._fold_each, mode, starts, codes, values)

    def _remember(self, observations: Observations) -> None:
        if not self.keep_seen or observations.n_modes != 2 or self.device == "cpu":
            super()._remember(observations)
            return
        self.seen_ = self._on_device(
            lambda device: on_gpu.seen(device, observations),
            lambda: Seen.of(observations.codes, observations.shape),
        )

    def _has_shape(self) -> bool:
        return self.deviation_rank > 0  # else the noise is the same for all

    def _params(self, seed: int) -> Params:
        names = {field.name for field in fields(Params)} - {"seed"}
        return Params(**{name: getattr(self, name) for name in names}, seed=seed)


def of_sensors(settings: dict[str, Any]) -> Any:
    """Return a factorization for sensors, each in units of its type."""
    from noisewise.models.residual import ResidualFactorizer

    return ResidualFactorizer(DeviationFactorizer(**settings, keep_seen=False), base="type")


dtf, ptf = partial(of_sensors, DTF), partial(of_sensors, PTF)


def fit_factors(
    params: Params,
    observations: Observations,
    held_out: Observations | None,
    plan: Plan,
    n_jobs: int,
) -> Fit:
    """Train on observations, watching held-out ones if there are any."""
    units, counts = mean_and_std(observations.values), count_rows(observations)

    def start(blocks: strata.Blocks) -> State:
        return initial_state(params, blocks.placed(counts))

    worth = 1.0 if observations.weight is None else usual_weight(observations.weight)
    return _fit(params, observations, counts, units, worth, start, held_out, plan, n_jobs)


def continue_factors(old: Factors, observations: Observations, plan: Plan, n_jobs: int) -> Fit:
    """Train on from what was learned, visiting only new observations; their ids extend the old."""
    counts = tuple(
        new + np.pad(count, (0, len(new) - len(count)))
        for count, new in zip(old.counts, count_rows(observations), strict=True)
    )

    def start(blocks: strata.Blocks) -> State:
        state = old.grown(counts)
        return replace(state, rows=tuple(map(aligned, blocks.placed(state.rows))))

    units, worth, old = (old.location, old.scale), old.worth, old.in_units_of(1.0)
    return _fit(old.params, observations, counts, units, worth, start, None, plan, n_jobs)


def _fit(
    params: Params,
    observations: Observations,
    counts: tuple[Counts, ...],
    units: tuple[float, float],
    worth: float,
    start: Callable[[strata.Blocks], State],
    held_out: Observations | None,
    plan: Plan,
    n_jobs: int,
) -> Fit:
    """Train from a state whose rows have the engine's order; ``counts`` has that of the ids.

    Noise is learned as if weights were over ``worth``.
    """
    weight = None if observations.weight is None else observations.weight / np.float32(worth)
    blocks = strata.arrange(
        observations.codes, standardised(observations.values, *units), observations.shape,
        params.layout.width, weight,
    )  # fmt: skip
    state, order = start(blocks), blocks.order
    step = partial(_epoch, blocks, params, units[1], n_jobs)
    validate = None
    if held_out is not None:
        cells = tuple(own[codes] for own, codes in zip(order, held_out.codes, strict=True))
        share = (1.0 if held_out.weight is None else held_out.weight) / worth
        truth, square = held_out.values, units[1] ** 2 / share

        def validate(state: State) -> tuple[float, float]:
            mean, variance = strata.predict(state, cells, params, n_jobs)
            mean = mean_in_units(mean, *units)
            return judged(truth, mean, variance.astype(np.float64) * square, plan.value_range)

    warmup, advice = params.warmup if params.deviation_rank else 0, ADVICE.format(params)
    training = plan.train(state, step, validate, warmup=warmup, advice=advice)
    state = training.state = training.best = training.chosen
    del blocks, step  # nor is the other state kept, while what was learned is laid out anew
    factors = Factors.finalize(params, state, counts, *units, order).in_units_of(worth)
    return Fit(factors, state.epoch, training.curve, training.interrupted)


def _epoch(
    blocks: strata.Blocks, params: Params, scale: float, n_jobs: int, state: State
) -> EpochInfo:
    """Run an epoch, and report in units of the values."""
    info = strata.epoch(state, blocks, params, n_jobs)
    rmse, nll = info.train_rmse * scale, info.train_nll + math.log(scale)
    return replace(info, train_rmse=rmse, train_nll=nll)
