"""How far rows spread, and observations around them: the prior of rows, and the noise.

    row_i ~ N(mean + sum_l x_il Y_l, precision^-1),   mean ~ N(0, (2 precision)^-1)
    precision ~ Wishart(diag(scales)^-1, freedom),   Y_l ~ N(0, (strength precision)^-1)

``x_il = 1 / sqrt(n_i)`` for every l that i was seen with (implicit sets). Coordinates are
independent once they are multiplied by the root of the precision.

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
from noisewise.engine.data import Data
from noisewise.engine.gibbs import sweep
from noisewise.engine.gibbs.sweep import Draw, RatingDraw, Step, Workspace
from noisewise.engine.random import gamma, normal, normal_pair, stream
from noisewise.engine.training import in_threads

MEAN_WEIGHT = 2.0  # rows that the prior mean, zero, is worth
SCALE_SHAPE = SCALE_RATE = 0.5  # of the Gamma prior of scales
MOST_STEPS = 50  # outwards, each by a factor of e, when a slice is looked for
SCALES_FROM = 10  # sweep from which scales of ratings are drawn
BLOCK = 32  # coordinates of implicit sets that a thread takes: four vectors
FLOOR = 1e-10  # of a variance, in standardised units: single precision tells no more apart
SHAPE = 4.0  # of the inverse Gamma priors of noise; their mean is 1, or the level of the last mode
LEAST = 1e-20  # of a factor of the variance: the product of a few is still a number
_U = np.uintp


class Implicit(Step[RatingDraw]):
    """Draw the weights of what rows of a mode were seen with, and what they add to the rows."""

    joins = 3

    def _draw(self, draw: RatingDraw) -> None:
        data, mode, work = self.data, self.mode, self.work
        part, own = data.part(mode), feature_part(data, mode)
        root = np.linalg.cholesky(draw.precisions[mode])
        centred = sweep.rows_of(draw, part, self.spec.rank) - draw.centres[mode]
        whitened = ((centred - draw.effects[part]) @ root).astype(np.float32)
        weights = (draw.features[own] @ root).astype(np.float32)
        self._draw_weights(draw, whitened, weights, np.float32(draw.strengths[mode]))
        rate = 1.0 + 0.5 * float(np.einsum("ij,ij->", weights, weights, dtype=np.float64))
        rng = work.rng(draw, sweep.FEATURES, mode)
        draw.strengths[mode] = rng.gamma(1.0 + 0.5 * weights.size, 1.0 / rate)
        draw.features[own] = solve_triangular(root, weights.T, lower=True, trans="T").T
        left = solve_triangular(root, whitened.T, lower=True, trans="T").T
        draw.effects[part] = centred - left

    def _draw_weights(self, draw: RatingDraw, whitened: Any, weights: Any, strength: Any) -> None:
        """Draw weights of all features, whitened as rows are; some coordinates at a time."""
        data, mode, work = self.data, self.mode, self.work

        def draw_block(start: int) -> None:
            block = slice(start, start + BLOCK)
            E, Y = (np.ascontiguousarray(array[:, block]) for array in (whitened, weights))
            draw_features(
                data.starts[1 - mode], data.members[mode], data.shares[mode],
                strength, work.key(draw, sweep.FEATURES, mode, start), E, Y,
            )  # fmt: skip
            whitened[:, block], weights[:, block] = E, Y

        in_threads(draw_block, range(0, self.spec.rank + 1, BLOCK), work.n_jobs)


def feature_part(data: Data, mode: int) -> slice:
    """Return where the features of a mode's sets lie: they are the rows of the other mode."""
    start = 0 if mode == 0 else data.shape[1]
    return slice(start, start + data.shape[1 - mode])


class NormalWishart(Step[Any]):
    """Draw mean and precision of the rows of a mode; scales are drawn from some sweep on."""

    def __init__(self, work: Workspace, mode: int, freedom: float, scales_from: float) -> None:
        super().__init__(work, mode)
        self.freedom, self.scales_from = freedom, scales_from

    def _draw(self, draw: Any) -> None:
        mode, rng = self.mode, self.work.rng(draw, sweep.NORMAL_WISHART, self.mode)
        implicit = self.spec.implicit and draw.epoch >= Implicit.joins
        average, scatter, of_features = self._scatter(draw, implicit)
        n, D = self.data.shape[mode], len(average)
        many = n
        scatter += MEAN_WEIGHT * n / (MEAN_WEIGHT + n) * np.outer(average, average)
        if implicit:
            scatter += float(draw.strengths[mode]) * of_features
            many += self.data.shape[1 - mode]
        if draw.epoch >= self.scales_from:
            draw.scales[mode] = draw_scales(scatter, draw.scales[mode], self.freedom, many, rng)
        scatter[np.diag_indices(D)] += draw.scales[mode]
        draw.precisions[mode] = precision = _wishart(scatter, self.freedom + many, rng)
        root = np.linalg.cholesky((MEAN_WEIGHT + n) * precision)
        noise = solve_triangular(root, rng.standard_normal(D), lower=True, trans="T")
        draw.centres[mode] = n * average / (MEAN_WEIGHT + n) + noise

    def _scatter(self, draw: Any, implicit: bool) -> tuple[Any, Any, Any]:
        """Average of the rows, less what sets add; their scatter around it, and of features."""
        part = self.data.part(self.mode)
        rows = sweep.rows_of(draw, part, self.spec.rank)
        of_features = None
        if implicit:
            rows -= draw.effects[part]
            features = draw.features[feature_part(self.data, self.mode)].astype(np.float64)
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


class Precisions(Step[Draw]):
    """Take the precision of every observation from the noise factors."""

    def _draw(self, draw: Draw) -> None:
        root = self.work.root
        if self.spec.noise_rank == 0:
            root[:] = 1.0 / math.sqrt(max(draw.level[0], FLOOR))
            return
        self.work.over_observations(
            lambda part: roots(self.data.places[:, part], draw.noise, root[part])
        )


class ConstantNoise(Step[Draw]):
    """Draw the variance that all observations share; its prior has the density (1 + s)^-2.

    That is an inverse Gamma one of shape 1, whose rate has a Gamma(1, 1) prior, and is drawn first.
    """

    def _draw(self, draw: Draw) -> None:
        rng, square = self.work.rng(draw, sweep.NOISE), self._square()
        rate = rng.gamma(2.0) / (1.0 + 1.0 / float(draw.level[0]))
        variance = (rate + 0.5 * square) / rng.gamma(1.0 + 0.5 * len(self.data))
        draw.level[0] = max(float(variance), FLOOR)

    def _square(self) -> float:
        residual = self.work.residual
        return float(np.einsum("i,i->", residual, residual, dtype=np.float64))


class LowRankNoise(Step[Draw]):
    """Draw the factors of the variance, mode by mode, and the level, with a Gamma(1, 1) prior."""

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
            rng, rate = work.rng(draw, sweep.NOISE), 1.0 + (SHAPE - 1.0) * self._inverse(draw, last)
            draw.level[:] = rng.gamma(1.0 + SHAPE * data.shape[last], 1.0 / rate)

    def _draw_mode(self, draw: Draw, mode: int, level: Array, key: np.uint64) -> None:
        data, work = self.data, self.work
        work.over(
            data.tasks[mode], draw_noise, data.starts[mode], data.others[mode], draw.noise,
            data.firsts[mode], work.visited(mode, work.residual), level, key,
        )  # fmt: skip

    def _inverse(self, draw: Draw, mode: int) -> Array:
        """Sum of one over the noise of a mode's rows."""
        own = draw.noise[self.data.part(mode)].astype(np.float64)
        return np.asarray((1.0 / own).sum(axis=0))


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def draw_features(starts, members, x, strength, key, E, Y):
    """Draw the weights Y of every feature, one after the other, for a block of coordinates.

    ``members[starts[l]:starts[l + 1]]`` have feature l; E, rows less all means, changes with Y.
    """
    width = _U(E.shape[1])
    total, change = np.empty(E.shape[1], np.float32), np.empty(E.shape[1], np.float32)
    for feature in range(len(starts) - 1):
        l = _U(feature)  # noqa: E741
        state = stream(key, l)
        total[:] = 0.0
        square = np.float32(0.0)
        for k in range(starts[l], starts[l + _U(1)]):
            i = _U(members[k])
            square += x[i] * x[i]
            for d in range(width):
                total[d] += x[i] * E[i, d]
        precision = square + strength
        scale = math.sqrt(1.0 / precision)
        for d in range(_U(0), width, _U(2)):
            state, a, b = normal_pair(state)
            for step in range(_U(2)):
                e = d + step
                if e < width:
                    new = (total[e] + square * Y[l, e]) / precision + scale * (b if step else a)
                    change[e] = new - Y[l, e]
                    Y[l, e] = new
        for k in range(starts[l], starts[l + _U(1)]):
            i = _U(members[k])
            for d in range(width):
                E[i, d] -= x[i] * change[d]


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
