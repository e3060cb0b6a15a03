"""How far stds must be stretched, by series and by how large they are, as hidden cells tell.

A factor for all would do if a model were off everywhere by the same. It is not: of one series it
knows too little, and far from readings it may be too sure. Factors are drawn to 1 by how few cells
they are learned from; what is left is for ``Calibration``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.calibration import Calibration, normal_half_width
from noisewise.engine.arrays import Array, Ints
from noisewise.errors import brief

Mask = npt.NDArray[np.bool_]

COVERAGE = 0.9  # that factors are made for
KNOTS = (0.1, 0.3, 0.5, 0.7, 0.9)  # shares of the cells that have a smaller std
BY_STD, BY_SERIES = 60.0, 20.0  # cells that a factor of 1 is worth
OUTAGE = 2.0  # cells of an outage tell as much as so many
FARTHEST = 10.0  # times the usual score that one counts at most
SUPPOSED = 10  # scores of a normal distribution that join those of the cells
MOST_SUPPOSED = 300  # cells beyond which they do not


@dataclass(frozen=True, eq=False)
class LocalScale:
    """Factors of a std: of every series, and by its size."""

    series: Array  # factor of every series
    unit: Array  # std of the values of every series
    knots: Array  # logarithms of std over unit
    by_std: Array  # factors there; between them they change evenly

    __repr__ = brief

    @classmethod
    def none(cls, unit: Array) -> LocalScale:
        """Leave every std as it is."""
        return cls(np.ones(len(unit)), unit, np.zeros(1), np.ones(1))

    def factors(self, which: Ints, std: Array) -> Array:
        """Return the factor of stds of some series; -1 is one never seen."""
        known = np.maximum(which, 0)
        size = np.log(np.maximum(std, 1e-300) / self.unit[known])
        by_std = np.exp(np.interp(size, self.knots, np.log(self.by_std)))
        return np.where(which < 0, 1.0, self.series[known] * by_std)


class Hidden(NamedTuple):
    """Cells that were hidden."""

    error: Array
    std: Array  # that was predicted
    which: Ints  # their series
    outage: Ints  # numbers cells that were hidden together: they tell less than single ones
    trial: Ints
    weight: Array  # how much each counts
    n_different: int  # cells without those that were hidden before


def measure(cells: Hidden, unit: Array) -> tuple[LocalScale, Calibration]:
    """Learn from errors on hidden cells, and the std predicted for them.

    What is left for ``Calibration`` is measured with factors of the other trials, so that it is not
    less than it will be; of a single trial, with those of the other half of the outages.
    """
    part = cells.trial if np.ptp(cells.trial) else cells.outage % 2
    std, which = np.maximum(cells.std, 1e-300), cells.which
    score = np.abs(cells.error) / std
    score = np.minimum(score, FARTHEST * max(float(np.quantile(score, COVERAGE)), 1e-12))
    size = np.log(std / unit[which])
    tells = 1.0 / np.maximum(np.bincount(cells.outage)[cells.outage] / OUTAGE, 1.0)
    parts = (score, size, tells, which, unit)
    local = _factors(np.ones(len(score), dtype=bool), *parts)
    left = np.empty(len(score))
    for one in np.unique(part):
        own, rest = part == one, part != one
        by_others = _factors(rest if rest.any() else own, *parts)
        left[own] = score[own] / by_others.factors(which[own], std[own])
    left = _spread(left, cells.weight, max(int(min(tells.sum(), cells.n_different)), 1))
    if len(left) < MOST_SUPPOSED:
        left = np.append(left, [normal_half_width(share) for share in _even(SUPPOSED)])
    return local, Calibration.measure(left, np.ones(len(left)))


def _even(n: int) -> list[float]:
    return [(k + 0.5) / n for k in range(n)]


def _spread(score: Array, weight: Array, n: int) -> Array:
    """Return n scores that count the same: as many as the cells are worth."""
    order = np.argsort(score)
    upto = np.cumsum(weight[order]) / weight.sum()
    return np.asarray(score[order][np.searchsorted(upto, _even(n)).clip(max=len(score) - 1)])


def _factors(
    part: Mask, score: Array, size: Array, weight: Array, which: Ints, unit: Array
) -> LocalScale:
    """Learn factors from a part of the cells."""
    score, size, weight, which = score[part], size[part], weight[part], which[part]
    knots, by_std = _by_size(score, size, weight)
    score = score / np.exp(np.interp(size, knots, np.log(by_std)))
    return LocalScale(_by_series(score, which, weight, len(unit)), unit, knots, by_std)


def _by_size(score: Array, size: Array, weight: Array) -> tuple[Array, Array]:
    knots = np.unique(np.quantile(size, KNOTS))
    if len(knots) < 2 or not np.ptp(score):
        return np.zeros(1), np.ones(1)
    near = np.abs(size[:, None] - knots).argmin(axis=1)
    logs = np.zeros(len(knots))
    for k in range(len(knots)):
        logs[k] = _log_ratio(score, near == k, weight, BY_STD)
    return knots, np.exp(logs)


def _by_series(score: Array, which: Ints, weight: Array, n: int) -> Array:
    out = np.ones(n)
    if np.ptp(score):
        for s in np.unique(which):
            out[s] = np.exp(_log_ratio(score, which == s, weight, BY_SERIES))
    return out


def _log_ratio(score: Array, part: Array, weight: Array, prior: float) -> float:
    """Return how much larger scores of a part are than all, drawn to 0 by how few they are."""
    own = score[part]
    if not len(own):
        return 0.0
    ratios = [float(f(own)) / max(float(f(score)), 1e-300) for f in (_high, np.mean)]
    n = float(weight[part].sum())
    return n / (n + prior) * 0.5 * float(np.sum(np.log(np.maximum(ratios, 1e-3))))


def _high(score: Array) -> float:
    return float(np.quantile(score, COVERAGE))
