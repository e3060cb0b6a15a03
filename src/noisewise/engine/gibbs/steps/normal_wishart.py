"""Normal-Wishart draws of what rows have in common: their mean and precision.

    precision ~ Wishart(diag(scales)^-1, freedom),   mean ~ N(0, (2 precision)^-1)

The factors share a scale, the bias has its own, and both are drawn: ratings that are nothing but
noise, and a table of rank one, leave most factors nothing to do, and only a prior that can shrink
with them lets the model say so.

With no more degrees of freedom than coordinates, the prior expects some direction in which rows
spread far. Many rows outvote it. Few rows would take noise for taste: the fewer they are beside the
factors, the more degrees of freedom the prior has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from noisewise.engine.gibbs.draw import Floats64
from noisewise.engine.gibbs.steps.implicit import Implicit, feature_part
from noisewise.engine.gibbs.sweep import NORMAL_WISHART, Step, Workspace, rows_of

MEAN_WEIGHT = 2.0  # rows that the prior mean, zero, is worth
SCALE_SHAPE = SCALE_RATE = 0.5  # of the Gamma prior of scales
MOST_STEPS = 50  # outwards, each by a factor of e, when a slice is looked for

SCALES_FROM = 10  # sweep from which scales of ratings are drawn


class NormalWishart(Step[Any]):
    """Draw mean and precision of the rows of a mode.

    Parameters
    ----------
    work, mode
        What steps share, and whose rows.
    freedom
        Degrees of freedom of the prior.
    scales_from
        Sweep from which scales are drawn; infinite if they stay as they are.
    """

    def __init__(self, work: Workspace, mode: int, freedom: float, scales_from: float) -> None:
        super().__init__(work, mode)
        self.freedom, self.scales_from = freedom, scales_from

    def __call__(self, draw: Any) -> None:
        """Draw them."""
        mode, part = self.mode, self.data.part(self.mode)
        rows = rows_of(draw, part, self.spec.rank)
        features, strength = None, 0.0
        if self.spec.implicit and draw.epoch >= Implicit.joins:
            rows -= draw.effects[part]
            features = draw.features[feature_part(self.data, mode)].astype(np.float64)
            strength = float(draw.strengths[mode])
        rng = self.work.rng(draw, NORMAL_WISHART, mode)
        draw.centres[mode], draw.precisions[mode], draw.scales[mode] = draw_normal_wishart(
            rows, features, strength, draw.scales[mode], self.freedom, rng,
            rescale=draw.epoch >= self.scales_from,
        )  # fmt: skip


def freedom(D: int, rows: int) -> float:
    """Return the degrees of freedom of the prior, for so many coordinates and rows.

    Half as many again as there are coordinates, up to ten rows for each; then they soon vanish.
    """
    return D + 0.5 * D * min(1.0, (10.0 * D / rows) ** 4)


def draw_normal_wishart(
    rows: Floats64,
    features: Floats64 | None,
    strength: float,
    scales: Floats64,
    freedom: float,
    rng: np.random.Generator,
    *,
    rescale: bool = True,
) -> tuple[Floats64, Floats64, Floats64]:
    """Draw scales, and mean and precision of rows.

    Parameters
    ----------
    rows
        One row each, its bias last, less the effect of its set.
    features
        Weights of a set's features, which share the precision times ``strength``; None without.
    scales, freedom
        Of the prior of the precision: the scales drawn last, and the degrees of freedom.
    rng
        Where random numbers come from.
    rescale
        Whether to draw new scales.

    Returns
    -------
    mean, precision, scales
    """
    n, D = rows.shape
    average = rows.mean(axis=0)
    centred = rows - average
    scatter = centred.T @ centred
    scatter += MEAN_WEIGHT * n / (MEAN_WEIGHT + n) * np.outer(average, average)
    many = n
    if features is not None:
        scatter += strength * (features.T @ features)
        many += len(features)
    if rescale:
        scales = draw_scales(scatter, scales, freedom, many, rng)
    scatter[np.diag_indices(D)] += scales
    precision = _wishart(scatter, freedom + many, rng)
    root = np.linalg.cholesky((MEAN_WEIGHT + n) * precision)
    noise = solve_triangular(root, rng.standard_normal(D), lower=True, trans="T")
    return n * average / (MEAN_WEIGHT + n) + noise, precision, scales


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
        prior = SCALE_SHAPE * at - SCALE_RATE * math.exp(at)
        return 0.5 * twice(at) + prior

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
