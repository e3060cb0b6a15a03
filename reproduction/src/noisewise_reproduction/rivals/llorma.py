"""LLORMA: a low-rank matrix in every neighbourhood, and a blend of them all.

A small global factorization says which rows are alike. Anchors are drawn among the observed cells;
around each, a local model is fitted to the observations, weighted by how near their rows are to
those of the anchor (Lee, Kim, Lebanon and Singer, 2013).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from noisewise.data import Observations, encode_ids
from noisewise.engine.arrays import Codes, Floats, Moments
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.layout import Params
from noisewise.engine.training import EpochInfo, mean_in_units, one_blas_thread, variance_in_units
from noisewise.models.base import Cells
from noisewise.models.deviation import fit_factors
from noisewise.models.factor_rows import factors_schema, restored_factors
from noisewise.models.iterative import Fit, Iterative, Plan, judged
from noisewise.schema import ANY, Found, Rule, Schema, Tensor
from noisewise.settings import learned, number, one_of, setting, settings, whole
from noisewise_reproduction.rivals.engine import local
from noisewise_reproduction.rivals.engine.local import LocalState, Weights, local_schema

GLOBAL_EPOCHS = 25
ADVICE = "Try a smaller learning_rate (now {0.learning_rate}), or a larger l2 (now {0.l2})."


class Blend(NamedTuple):
    """What was learned: the global factorization, the neighbourhoods, and the local models."""

    factors: Factors
    weights: Weights  # the last column, of an id never seen, is 0
    state: LocalState
    alone: bool  # each model learned on its own, so that they may disagree


@settings
class LLORMA(Iterative):
    """Blend of local low-rank models, each fitted to one neighbourhood of users and items.

    Local models have biases and factors, and start from the biases of the global factorization;
    where no neighbourhood reaches, that factorization is predicted. The noise is that of the
    training errors, the same for every cell. Epistemic variance is that of the global
    factorization, from the number of observations, and how far local models that learned on their
    own disagree.
    Held-out data scales both.

    Examples
    --------
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Alien", 1), ("bob", "M", 5)]
    >>> model = LLORMA(rank=2, models=3, patience=None, random_state=0).fit(ratings)
    >>> mean, std = model.predict([("ann", "M")], return_std=True)
    >>> bool(std[0] > 0)
    True
    """

    rank: int = setting(
        whole(0),
        "Factors of every local model; 0 leaves biases.",
        default=20,
        kw_only=False,
    )
    models: int = setting(
        whole(1),
        "Local models, and so anchors.",
        default=50,
    )
    kernel: Literal["epanechnikov", "quadratic"] = setting(
        one_of("epanechnikov", "quadratic"),
        "How the weight of a row falls with the angle to the anchor's row: ``1 - (angle / "
        "bandwidth)²``, down to 0; or ``1 - angle²``, cut off at the bandwidth.",
        default="epanechnikov",
    )
    bandwidth: float = setting(
        number(above=0.0),
        "The widest angle that counts, in radians.",
        default=3.0,
    )
    loss: Literal["local", "global"] = setting(
        one_of("local", "global"),
        "Each model minimises its own weighted error; or all together the error of their blend.",
        default="local",
    )
    learning_rate: float = setting(
        number(above=0.0),
        "Step of the gradient.",
        default=0.01,
    )
    l2: float = setting(
        number(least=0.0),
        "Penalty on the squares of biases and factors, with every observation.",
        default=0.011,
    )
    global_rank: int = setting(
        whole(1),
        "Factors of the global factorization, from which the angles come.",
        default=5,
    )
    epochs: int = setting(
        whole(1),
        "How often to visit every observation, at most.",
        default=150,
    )
    factors_: Factors = learned("The global factorization.")
    weights_: Weights = learned("Per mode, the weight of every row in every neighbourhood.")
    local_: LocalState = learned("Biases and factors of the local models.")

    def _learn(
        self, observations: Observations, held_out: Observations | None, plan: Plan, seed: int
    ) -> Fit:
        n_jobs = self._threads()
        first = Plan(GLOBAL_EPOCHS, label="global", verbose=plan.verbose)
        whole_fit = fit_factors(self._params(seed), observations, None, first, n_jobs)
        if whole_fit.interrupted:
            return Fit(None, 0, [], interrupted=True)
        factors: Factors = whole_fit.outcome
        weights = self._neighbourhoods(factors, observations, seed)
        left = (observations.values - _from_biases(factors, observations.codes)) / factors.scale
        cells = local.Cells.arrange(
            observations.codes, left.astype(np.float32), observations.shape, 1 + self.rank
        )
        learning, alone = (self.learning_rate, self.l2), self.loss == "local"

        def step(state: LocalState) -> EpochInfo:
            if alone:
                info = local.epoch_of_each(state, cells, weights, *learning, n_jobs)
            else:
                info = local.epoch_of_blend(state, cells, weights, *learning, seed, n_jobs)
            return replace(
                info,
                train_rmse=info.train_rmse * factors.scale,
                train_nll=info.train_nll + math.log(factors.scale),
            )

        validate = None
        if held_out is not None:
            truth, known = held_out.values, _known(factors, held_out.codes)

            def validate(state: LocalState) -> tuple[float, float]:
                mean, noise, epistemic = _moments(
                    Blend(factors, weights, state, alone), known, n_jobs
                )
                variance = noise.astype(np.float64) + epistemic
                return judged(truth, mean, variance, plan.value_range)

        start = LocalState.start(len(weights[0]), observations.shape, self.rank, seed)
        training = plan.train(start, step, validate, advice=ADVICE.format(self))
        chosen = training.chosen
        blend = Blend(factors, weights, chosen, alone)
        return Fit(blend, chosen.epoch, training.curve, training.interrupted)

    def _neighbourhoods(self, factors: Factors, observations: Observations, seed: int) -> Weights:
        """Draw anchors among the observed cells, and weigh every row around each."""
        rng = np.random.default_rng([seed, 5])
        n = len(observations)
        anchors = rng.choice(n, min(self.models, n), replace=False)
        with one_blas_thread():  # the same bits on any machine's threads
            first, second = (
                self._weights(factors, mode, codes[anchors])
                for mode, codes in enumerate(observations.codes)
            )
        return first, second

    def _weights(self, factors: Factors, mode: int, anchors: Codes) -> Floats:
        rows = factors.state.mean_factors(mode).astype(np.float64)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        angle = np.arccos(np.clip(rows[anchors] @ rows.T, -1.0, 1.0))
        if self.kernel == "epanechnikov":
            weight = np.maximum(1.0 - (angle / self.bandwidth) ** 2, 0.0)
        else:
            weight = np.where(angle < self.bandwidth, np.maximum(1.0 - angle**2, 0.0), 0.0)
        weight[:, np.append(factors.counts[mode], 0) == 0] = 0.0
        return weight.astype(np.float32)

    def _params(self, seed: int) -> Params:
        """Describe the global factorization: Biased MF."""
        return Params(
            rank=self.global_rank, deviation_rank=0, learning_rate=0.05,
            deviation_learning_rate=1.0, l2=0.05, bias_l2=0.02, deviation_l1=0.0,
            penalty="rating", delta=1e-6, beta=1.0, warmup=0, adagrad="row", seed=seed,
        )  # fmt: skip

    def _adopt(self, outcome: Blend) -> None:
        self.factors_, self.weights_, self.local_, self._alone = outcome

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        codes = encode_ids(X, self.ids_)
        known = _known(self.factors_, codes)
        first, second = (
            code == len(count) for code, count in zip(known, self.factors_.counts, strict=True)
        )
        outcome = Blend(self.factors_, self.weights_, self.local_, self._alone)
        return Cells(_moments(outcome, known, self._threads()), first | second)

    def schema(self) -> Schema:
        """Declare what a file keeps: the global factors, the neighbourhoods, the local models."""
        yield from super().schema()
        yield from factors_schema(self)
        shape = tuple(map(len, self.ids_))
        models: int | None = ANY
        for mode, n in enumerate(shape):
            name = f"weights{mode}"
            weights = yield Tensor(name, "float32", (models, n + 1), f"weights_.{mode}", WEIGHTS)
            models = len(weights)
        yield from local_schema(int(models or 0), shape, self.rank, "local.", "local_.")

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        self.factors_ = restored_factors(self, found)
        self.weights_ = found["weights0"], found["weights1"]
        self.local_ = LocalState.of(found, "local.")
        self._alone = self.loss == "local"


WEIGHTS = Rule("makes no sense", lambda a: not (a < 0).any() and not a[:, -1].any())


def _known(factors: Factors, codes: tuple[Codes, ...]) -> tuple[Codes, ...]:
    return tuple(factors.known_codes(mode, code) for mode, code in enumerate(codes))


def _from_biases(factors: Factors, codes: tuple[Codes, ...]) -> Floats:
    """Return what the biases of the global factorization predict."""
    first, second = (factors.state.biases(mode)[code] for mode, code in enumerate(codes))
    return mean_in_units(first + second, factors.location, factors.scale)


def _moments(outcome: Blend, codes: tuple[Codes, ...], n_jobs: int) -> Moments:
    """Moments of cells, their ids known or sent to the last row."""
    factors, weights, state, alone = outcome
    units = factors.location, factors.scale
    everywhere, _, epistemic = factors.moments(codes, n_jobs)
    blended, between, reached = local.blend(state, weights, codes, n_jobs)
    local_mean = _from_biases(factors, codes)
    local_mean += local_mean.dtype.type(factors.scale) * blended
    mean = np.where(reached, local_mean, everywhere)
    noise = variance_in_units(np.full_like(between, state.variance), *units)
    if alone:
        epistemic = epistemic + variance_in_units(between, *units)
    return Moments(mean, noise, epistemic)
