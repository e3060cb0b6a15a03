"""How far rows spread, and observations around them: the prior of rows, and the noise.

    row_i ~ N(mean + effects_i, precision^-1),   mean ~ N(0, (2 precision)^-1)
    precision ~ Wishart(diag(scales)^-1, freedom)

Effects are those of implicit sets and of features (see ``regression``).

The factors share a scale, the bias has its own, and both are drawn: where most factors have nothing
to do, only a prior that can shrink lets the model say so. With few degrees of freedom it expects
some direction in which rows spread far, and few rows would take noise for taste: the fewer they
are beside the factors, the more degrees of freedom the prior has.

    residual_n ~ N(0, s_n),   s_n = sum_k P_ik Q_jk       (one factor per mode)

A residual is the sum of K independent parts, part k ~ N(0, P_ik Q_jk). Given the parts, every P_ik
and Q_jk has an inverse Gamma distribution. Parts are drawn anew for every mode, and not kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from scipy.linalg import solve_triangular

from noisewise.engine.arrays import Array
from noisewise.engine.gibbs import sweep
from noisewise.engine.gibbs.steps import regression
from noisewise.engine.gibbs.sweep import Draw, Step, Workspace
from noisewise.engine.random import gamma, normal, stream

MEAN_WEIGHT = 2.0  # rows that the prior mean, zero, is worth
SCALE_SHAPE = SCALE_RATE = 0.5  # of the Gamma prior of scales
MOST_STEPS = 50  # outwards, each by a factor of e, when a slice is looked for
SCALES_FROM = 10  # sweep from which scales of ratings are drawn
FLOOR = 1e-10  # of a variance, in standardised units: single precision tells no more apart
SHAPE = 4.0  # of the inverse Gamma priors of noise; their mean is 1, or the level of the last mode
LEAST = 1e-20  # of a factor of the variance: the product of a few is still a number
_U = np.uintp


class NormalWishart(Step[Any]):
    """Draw mean and precision of the rows of a mode; scales are drawn from some sweep on."""

    freedom: float
    scales_from: float

    def __init__(self, work: Workspace, mode: int, freedom: float, scales_from: float) -> None:
        super().__init__(work, mode)
        self.freedom, self.scales_from = freedom, scales_from

    def _draw(self, draw: Any) -> None:
        mode, rng = self.mode, self.work.rng(draw, sweep.NORMAL_WISHART, self.mode)
        regressed = draw.epoch >= regression.JOINS
        implicit = self.spec.implicit and regressed
        average, scatter, of_features = self._scatter(draw, implicit)
        n, D = self.data.shape[mode], len(average)
        many = n
        scatter += MEAN_WEIGHT * n / (MEAN_WEIGHT + n) * np.outer(average, average)
        if implicit:
            scatter += float(draw.strengths[mode]) * of_features
            many += self.data.shape[1 - mode]
        if self.data.designs and regressed:
            of_side, size = regression.side_scatter(draw, self.spec, self.data, mode)
            scatter += of_side
            many += size
        if draw.epoch >= self.scales_from:
            draw.scales[mode] = draw_scales(scatter, draw.scales[mode], self.freedom, many, rng)
        scatter[np.diag_indices(D)] += draw.scales[mode]
        draw.precisions[mode] = precision = _wishart(scatter, self.freedom + many, rng)
        root = np.linalg.cholesky((MEAN_WEIGHT + n) * precision)
        noise = solve_triangular(root, rng.standard_normal(D), lower=True, trans="T")
        draw.centres[mode] = n * average / (MEAN_WEIGHT + n) + noise

    def _scatter(self, draw: Any, implicit: bool) -> tuple[Any, Any, Any]:
        """Average of the rows, less effects; their scatter around it, and of features."""
        part = self.data.part(self.mode)
        rows = sweep.rows_of(draw, part, self.spec.rank)
        of_features = None
        if implicit or (self.data.designs and draw.epoch >= regression.JOINS):
            rows -= draw.effects[part]
        if implicit:
            own = regression.feature_part(self.data, self.mode)
            features = draw.features[own].astype(np.float64)
            of_features = features.T @ features
        average = rows.mean(axis=0)
        centred = rows - average
        return average, centred.T @ centred, of_features


def freedom(D: int, rows: int) -> float:
    """Return the prior's degrees of freedom, half as many again for up to ten rows a coordinate."""
    return D + 0.5 * D * min(1.0, (10.0 * D / rows) ** 4)


def draw_scales(
    scatter: Array, scales: Array, freedom: float, n: int, rng: np.random.Generator
) -> Array:
    """Draw scales given the scatter of n rows; the precision, which pins them, integrated out."""
    D = len(scatter) - 1
    spread, turn = np.linalg.eigh(scatter[:D, :D])
    spread, cross = np.maximum(spread, 0.0), turn.T @ scatter[:D, D]

    def bias_left(scale: float) -> float:
        """Scatter of the bias that factors do not explain."""
        return max(float(scatter[D, D] - (cross**2 / (spread + scale)).sum()), 0.0)

    def factors(log_scale: float) -> float:
        scale = math.exp(log_scale)
        determinant = np.log(spread + scale).sum() + math.log(scales[D] + bias_left(scale))
        return D * freedom * log_scale - (freedom + n) * float(determinant)

    def bias(log_scale: float) -> float:
        return freedom * log_scale - (freedom + n) * math.log(math.exp(log_scale) + left)

    scales = scales.copy()
    if D:
        scales[:D] = _sliced(factors, float(scales[0]), rng)
    left = bias_left(float(scales[0]))
    scales[D] = _sliced(bias, float(scales[D]), rng)
    return scales


def _sliced(twice: Callable[[float], float], scale: float, rng: np.random.Generator) -> float:
    """Draw a scale by slice sampling of its logarithm (Neal 2003), given twice its likelihood."""

    def density(at: float) -> float:
        return 0.5 * twice(at) + (SCALE_SHAPE * at - SCALE_RATE * math.exp(at))

    at = math.log(scale)
    height = density(at) - float(rng.exponential())
    low = at - float(rng.uniform())
    high = low + 1.0
    for _ in range(MOST_STEPS):
        if density(low) <= height:
            break
        low -= 1.0
    for _ in range(MOST_STEPS):
        if density(high) <= height:
            break
        high += 1.0
    while True:
        new = float(rng.uniform(low, high))
        if density(new) > height or new == at:
            return math.exp(new)
        low, high = (new, high) if new < at else (low, new)


def _wishart(scatter: Array, freedom: float, rng: np.random.Generator) -> Array:
    """Draw from Wishart(scatter^-1, freedom) by Bartlett's decomposition."""
    D = len(scatter)
    bartlett = np.tril(rng.standard_normal((D, D)), -1)
    bartlett[np.diag_indices(D)] = np.sqrt(rng.chisquare(freedom - np.arange(D)))
    root = np.linalg.cholesky(scatter)
    half = solve_triangular(root, bartlett, lower=True, trans="T")
    return np.asarray(half @ half.T)


def _of_weight_1(work: Workspace) -> Any:
    """Return residuals as they would be of observations of weight 1."""
    weight = work.data.weight
    return work.residual if weight is None else work.residual * weight


class Precisions(Step[Draw]):
    """Take the precision of every observation from the noise factors."""

    def _draw(self, draw: Draw) -> None:
        root = self.work.root
        if self.spec.noise_rank == 0:
            root[:] = 1.0 / math.sqrt(max(draw.level[0], FLOOR))
        else:
            self.work.over_observations(
                lambda part: roots(self.data.places[:, part], draw.noise, root[part])
            )
        if self.data.weight is not None:
            root *= self.data.weight


class ConstantNoise(Step[Draw]):
    """Draw the variance that all observations share; its prior has the density (1 + s)^-2.

    That is an inverse Gamma one of shape 1, whose rate has a Gamma(1, 1) prior, and is drawn first.
    With weights, s is in units of what they usually are.
    """

    def _draw(self, draw: Draw) -> None:
        rng, square = self.work.rng(draw, sweep.NOISE), self._square()
        rate = rng.gamma(2.0) / (1.0 / self.data.unit + 1.0 / float(draw.level[0]))
        variance = (rate + 0.5 * square) / rng.gamma(1.0 + 0.5 * len(self.data))
        draw.level[0] = max(float(variance), FLOOR)

    def _square(self) -> float:
        residual = _of_weight_1(self.work)
        return float(np.einsum("i,i->", residual, residual, dtype=np.float64))


class LowRankNoise(Step[Draw]):
    """Draw the factors of the variance, mode by mode, and the level, with a Gamma(1, 1) prior.

    With weights, the level is in units of what they usually are.
    """

    def __init__(self, work: Workspace, joins: int) -> None:
        super().__init__(work)
        self.joins = joins

    def _draw(self, draw: Draw) -> None:
        data, work = self.data, self.work
        last = data.n_modes - 1
        for mode in range(data.n_modes):
            level = draw.level if mode == last else np.ones_like(draw.level)
            self._draw_mode(draw, mode, level, work.key(draw, sweep.NOISE, mode))
        if not self.spec.ordinal:
            rng, inverse = work.rng(draw, sweep.NOISE), self._inverse(draw, last)
            rate = 1.0 / data.unit + (SHAPE - 1.0) * inverse
            draw.level[:] = rng.gamma(1.0 + SHAPE * data.shape[last], 1.0 / rate)

    def _draw_mode(self, draw: Draw, mode: int, level: Array, key: np.uint64) -> None:
        data, work = self.data, self.work
        work.over(
            data.tasks[mode], draw_noise, data.starts[mode], data.others[mode], draw.noise,
            data.firsts[mode], work.visited(mode, _of_weight_1(work)), level, key,
        )  # fmt: skip

    def _inverse(self, draw: Draw, mode: int) -> Array:
        """Sum of one over the noise of a mode's rows."""
        own = draw.noise[self.data.part(mode)].astype(np.float64)
        return np.asarray((1.0 / own).sum(axis=0))


@njit(nogil=True, error_model="numpy", cache=True)
def draw_noise(chosen, starts, others, noise, first, residual, level, key):
    """Draw noise factors of the chosen rows, of prior mean ``level``; visits are as in ``rows``."""
    K = noise.shape[1]
    sums, rest = np.empty(K), np.empty(K)
    for row in chosen:
        i = _U(row)
        place = _U(first) + i
        state = stream(key, i)
        sums[:] = 0.0
        spare, has_spare = 0.0, False
        for n in range(_U(starts[i]), _U(starts[i + _U(1)])):
            total = 0.0
            for k in range(K):
                product = np.float64(noise[_U(others[0, n]), k])
                for other in range(1, others.shape[0]):
                    product *= noise[_U(others[other, n]), k]
                rest[k] = product
                total += noise[place, k] * product
            left = np.float64(residual[n])
            for k in range(K - 1):
                own = noise[place, k] * rest[k]
                after = max(total - own, 0.0)
                state, z, spare, has_spare = normal(state, spare, has_spare)
                part = left * own / total + z * math.sqrt(own * after / total)
                sums[k] += part * part / rest[k]
                left -= part
                total = after
            sums[K - 1] += left * left / rest[K - 1]
        shape = SHAPE + 0.5 * (starts[i + _U(1)] - starts[i])
        for k in range(K):
            state, draw = gamma(state, shape)
            noise[place, k] = max(((SHAPE - 1.0) * level[k] + 0.5 * sums[k]) / draw, LEAST)


@njit(nogil=True, fastmath=True, error_model="numpy", inline="always")
def _variance(places, noise, n):
    total = np.float32(0.0)
    for k in range(_U(noise.shape[1])):
        product = noise[_U(places[0, n]), k]
        for mode in range(1, places.shape[0]):
            product *= noise[_U(places[mode, n]), k]
        total += product
    return max(total, np.float32(FLOOR))


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def roots(places, noise, out):
    """Fill in the root of the precision of observations, whose rows are at ``places``."""
    for n in range(_U(len(out))):
        out[n] = np.float32(1.0) / math.sqrt(_variance(places, noise, n))


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def low_rank_variances(places, noise, out):
    """Fill in the sum over factors of products of noise."""
    for cell in range(places.shape[1]):
        out[_U(cell)] = _variance(places, noise, _U(cell))
