"""How much hidden cells count, and in which unit: by the series with holes, by how hard others are.

Where a table has many outages, cells count as often as there are holes of their series. Where it
has few, in one series perhaps, these are too few to tell models apart, and cells of other series
join them: not by the size of their errors, as a series that is ten times as hard would decide
alone, but by how they compare with what is usual in their series.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from noisewise.engine.arrays import Array, Ints

FEW = 2.0  # outages of series with holes that count as much as all other cells together
HARDEST = 10.0  # times as much as one of series with holes that a cell of an easy series counts
TAIL = 0.025  # share of readings at either end that do not count for the unit of a series
LEAST = 1e-18  # of a squared error, in units of the variance of a series


class Hidden(NamedTuple):
    """Cells that are hidden, trial by trial."""

    which: Ints  # their series
    outage: Ints  # numbers cells that are hidden together
    alike: Array  # how much they count to be like holes

    def some(self, part: Any) -> Hidden:
        """Return some of them: a slice, or which."""
        return Hidden(self.which[part], self.outage[part], self.alike[part])


def usual_errors(squared: Array, cells: Hidden, n: int) -> Array:
    """Return what the squared errors of models x cells are in each of n series.

    It is the geometric mean of what they are for each model; 1 where nothing is hidden.

    Examples
    --------
    >>> cells = Hidden(np.array([0, 0, 2]), np.arange(3), np.ones(3))
    >>> usual_errors(np.array([[1.0, 3.0, 5.0], [8.0, 8.0, 5.0]]), cells, 3).round(9).tolist()
    [4.0, 1.0, 5.0]
    """
    total = np.bincount(cells.which, cells.alike, n)
    logs = np.zeros(n)
    for one in squared:
        mean = np.bincount(cells.which, cells.alike * one, n) / np.where(total > 0, total, 1.0)
        logs += np.log(np.maximum(mean, LEAST)) / len(squared)
    return np.where(total > 0, np.exp(logs), 1.0)


def by_holes(cells: Hidden, holes: Ints, usual: Array) -> Array:
    """Return how much cells count, 1 on average.

    Parameters
    ----------
    cells : Hidden
    holes : one for each series
        How many holes it has.
    usual : one for each series
        What a squared error is there.

    Examples
    --------
    Series 0 has the holes, and 3 of 6 outages that were hidden; errors of series 1 are larger:

    >>> cells = Hidden(np.array([0, 0, 0, 1, 1, 1]), np.arange(6), np.ones(6))
    >>> by_holes(cells, np.array([9, 0]), np.array([1.0, 4.0])).round(3).tolist()
    [1.882, 1.882, 1.882, 0.118, 0.118, 0.118]
    """
    n = len(holes)
    there = np.bincount(cells.which, cells.alike, n)
    wanted = np.where(there > 0, holes, 0).astype(np.float64)
    if not wanted.any():
        return np.asarray(cells.alike / cells.alike.mean())
    wanted /= wanted.sum()
    level = usual[cells.which]
    own = (wanted / np.where(there > 0, there, 1.0))[cells.which] * cells.alike
    others = np.minimum(wanted @ usual / usual, HARDEST)[cells.which] * cells.alike
    losses = np.bincount(cells.outage, own * level)
    n_outages = losses.sum() ** 2 / (losses**2).sum()  # as many that count the same
    share = n_outages / (n_outages + FEW)
    weight = share * own / (own @ level) + (1.0 - share) * others / (others @ level)
    return np.asarray(weight / weight.mean())


def series_scale(values: Array, which: Ints, n: int) -> Array:
    """Return the std of every series without its tails; that of all of them for a constant one.

    Examples
    --------
    >>> values = np.array([0.0, 1.0] * 50 + [7.0] * 4)
    >>> series_scale(values, np.repeat([0, 1], [100, 4]), 2).round(2).tolist()
    [0.5, 0.5]
    """
    order = np.argsort(which, kind="stable")
    bounds = np.searchsorted(which[order], np.arange(n + 1))
    scale = np.zeros(n)
    for s in range(n):
        own = values[order[bounds[s] : bounds[s + 1]]].astype(np.float64)
        if len(own) > 1:
            low, high = np.quantile(own, [TAIL, 1.0 - TAIL])
            scale[s] = np.clip(own, low, high).std() or own.std()
    usual = float(np.median(scale[scale > 0])) if (scale > 0).any() else 1.0
    return np.where(scale > 0, scale, usual)
