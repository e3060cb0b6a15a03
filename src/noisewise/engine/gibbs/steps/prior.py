"""The prior of rows: what rows of a mode have in common, and what a row was seen with.

    row_i ~ N(mean + sum_l x_il Y_l, precision^-1),   mean ~ N(0, (2 precision)^-1)
    precision ~ Wishart(diag(scales)^-1, freedom),   Y_l ~ N(0, (strength precision)^-1)

``x_il = 1 / sqrt(n_i)`` for every l that i was seen with: implicit sets, which say something of a
row whatever its values. As they share the precision with rows, coordinates are independent once
they are multiplied by its root, and every Y_l is drawn given the others in one pass over its rows.

The factors share a scale, the bias has its own, and both are drawn: ratings that are nothing but
noise, and a table of rank one, leave most factors nothing to do, and only a prior that can shrink
with them lets the model say so. With no more degrees of freedom than coordinates, it expects some
direction in which rows spread far. Many rows outvote it. Few rows would take noise for taste: the
fewer they are beside the factors, the more degrees of freedom the prior has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from scipy.linalg import solve_triangular

from noisewise.engine.gibbs.data import Data
from noisewise.engine.gibbs.sweep import (
    FEATURES,
    NORMAL_WISHART,
    Floats64,
    RatingDraw,
    Step,
    Workspace,
    rows_of,
)
from noisewise.engine.random import normal_pair, stream
from noisewise.engine.threads import in_threads

MEAN_WEIGHT = 2.0  # rows that the prior mean, zero, is worth
SCALE_SHAPE = SCALE_RATE = 0.5  # of the Gamma prior of scales
MOST_STEPS = 50  # outwards, each by a factor of e, when a slice is looked for
SCALES_FROM = 10  # sweep from which scales of ratings are drawn
BLOCK = 32  # coordinates of implicit sets that a thread takes: four vectors
_U = np.uintp


class Implicit(Step[RatingDraw]):
    """Draw the weights of what rows of a mode were seen with, and what they add to the rows."""

    joins = 3

    def _draw(self, draw: RatingDraw) -> None:
        data, mode, work = self.data, self.mode, self.work
        part, own = data.part(mode), feature_part(data, mode)
        root = np.linalg.cholesky(draw.precisions[mode])
        centred = rows_of(draw, part, self.spec.rank) - draw.centres[mode]
        whitened = ((centred - draw.effects[part]) @ root).astype(np.float32)
        weights = (draw.features[own] @ root).astype(np.float32)
        strength = np.float32(draw.strengths[mode])

        def draw_block(start: int) -> None:
            block = slice(start, start + BLOCK)
            E, Y = (np.ascontiguousarray(array[:, block]) for array in (whitened, weights))
            draw_features(
                data.starts[1 - mode], data.members[mode], data.shares[mode],
                strength, work.key(draw, FEATURES, mode, start), E, Y,
            )  # fmt: skip
            whitened[:, block], weights[:, block] = E, Y

        in_threads(draw_block, range(0, self.spec.rank + 1, BLOCK), work.n_jobs)
        rate = 1.0 + 0.5 * float(np.einsum("ij,ij->", weights, weights, dtype=np.float64))
        rng = work.rng(draw, FEATURES, mode)
        draw.strengths[mode] = rng.gamma(1.0 + 0.5 * weights.size, 1.0 / rate)
        draw.features[own] = solve_triangular(root, weights.T, lower=True, trans="T").T
        left = solve_triangular(root, whitened.T, lower=True, trans="T").T
        draw.effects[part] = centred - left


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
        mode, part = self.mode, self.data.part(self.mode)
        rows, rng = rows_of(draw, part, self.spec.rank), self.work.rng(draw, NORMAL_WISHART, mode)
        implicit = self.spec.implicit and draw.epoch >= Implicit.joins
        if implicit:
            rows -= draw.effects[part]
        n, D = rows.shape
        many, average = n, rows.mean(axis=0)
        centred = rows - average
        scatter = centred.T @ centred
        scatter += MEAN_WEIGHT * n / (MEAN_WEIGHT + n) * np.outer(average, average)
        if implicit:
            features = draw.features[feature_part(self.data, mode)].astype(np.float64)
            scatter += float(draw.strengths[mode]) * (features.T @ features)
            many += len(features)
        if draw.epoch >= self.scales_from:
            draw.scales[mode] = draw_scales(scatter, draw.scales[mode], self.freedom, many, rng)
        scatter[np.diag_indices(D)] += draw.scales[mode]
        draw.precisions[mode] = precision = _wishart(scatter, self.freedom + many, rng)
        root = np.linalg.cholesky((MEAN_WEIGHT + n) * precision)
        noise = solve_triangular(root, rng.standard_normal(D), lower=True, trans="T")
        draw.centres[mode] = n * average / (MEAN_WEIGHT + n) + noise


def freedom(D: int, rows: int) -> float:
    """Return the degrees of freedom of the prior, for so many coordinates and rows.

    Half as many again as there are coordinates, up to ten rows for each; then they soon vanish.
    """
    return D + 0.5 * D * min(1.0, (10.0 * D / rows) ** 4)


def draw_scales(
    scatter: Floats64, scales: Floats64, freedom: float, n: int, rng: np.random.Generator
) -> Floats64:
    """Draw the scales of factors and of the bias, given the scatter of n rows.

    The precision is integrated out: given it, a scale could hardly move.
    """
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


def _wishart(scatter: Floats64, freedom: float, rng: np.random.Generator) -> Floats64:
    """Draw from Wishart(scatter^-1, freedom) by Bartlett's decomposition."""
    D = len(scatter)
    bartlett = np.tril(rng.standard_normal((D, D)), -1)
    bartlett[np.diag_indices(D)] = np.sqrt(rng.chisquare(freedom - np.arange(D)))
    root = np.linalg.cholesky(scatter)
    half = solve_triangular(root, bartlett, lower=True, trans="T")
    return np.asarray(half @ half.T)


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def draw_features(starts, members, x, strength, key, E, Y):
    """Draw the weights Y of every feature, one after the other, for a block of coordinates.

    Rows that have feature l are ``members[starts[l]:starts[l + 1]]``; E are rows less their mean
    and the effects of their sets, and changes with Y.
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
