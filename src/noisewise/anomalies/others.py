"""What other series let expect of each: the median of those that move as it does.

Who moves alike is told by changes over a while, not by levels: a series that is off for good has
its own changes still. And the median of ten does not follow one that is off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from noisewise.anomalies.tracks import NORMAL, middle, spread
from noisewise.data.timestamps import Floats, Ints
from noisewise.engine.training import one_blas_thread

NEIGHBOURS = 10
ALIKE = 0.3  # correlation of changes, at least
COMMON = 50  # changes that two series have in common, at least
WHILE = 150  # parts of the grid: changes are from one to the next
CLIP = 4.0  # spreads that a change counts at most
CHUNK = 512  # series compared with all others at a time
ROUNDS = 3  # in which levels of neighbours are brought together


class Near(NamedTuple):
    """The series that move as one does, what takes them to its units, and how much they count."""

    series: Ints
    factor: Floats
    weight: Floats

    def say(self, rows: Floats) -> Floats:
        """Return what their rows say together, in units of the series, up to a constant."""
        if not len(self.series):
            return np.full(rows.shape[1], np.nan)
        return _together(self.factor[:, None] * rows, self.weight)


class Others:
    """Tells for any series of a table which others move as it does."""

    def __init__(self, table: Floats) -> None:
        self.table = table.copy()
        self._lag = max(1, table.shape[1] // WHILE)
        self._known = np.zeros((len(table), table.shape[1] - self._lag))
        self._moves, self._scale = np.zeros_like(self._known), np.zeros(len(table))
        for series in range(len(table)):
            self._look_at(series)

    def forget(self, series: int, start: int) -> None:
        """Leave out a series from a bin on."""
        self.table[series, start:] = np.nan
        self._look_at(series)

    def near(self, own: int) -> Near:
        """Return who is like a series."""
        return self._nearest(own, self._likeness(slice(own, own + 1))[0])

    def references(self) -> Iterator[Floats]:
        """Return for each series what others say in every bin, in its units, up to a constant.

        NaN where nobody says anything: in all bins of a series that nobody is like.
        """
        for start in range(0, len(self.table), CHUNK):
            for own, row in enumerate(self._likeness(slice(start, start + CHUNK)), start):
                near = self._nearest(own, row)
                yield near.say(self.table[near.series])

    def _look_at(self, series: int) -> None:
        """Keep the changes of a series, from one while to the next, in its own scale."""
        change = self.table[series, self._lag :] - self.table[series, : -self._lag]
        known = ~np.isnan(change)
        change = change[known] - _middle(change)  # a drift is no likeness
        scale = self._scale[series] = _scale(change)
        self._known[series], self._moves[series] = known, 0.0
        if scale > 0.0:
            self._moves[series, known] = np.clip(change / scale, -CLIP, CLIP)

    def _likeness(self, part: slice) -> Floats:
        with one_blas_thread():
            return _correlation(self._moves[part], self._known[part], self._moves, self._known)

    def _nearest(self, own: int, likeness: Floats) -> Near:
        likeness[own] = 0.0
        near = np.argsort(-np.abs(likeness), kind="stable")[:NEIGHBOURS]
        near = near[np.abs(likeness[near]) >= ALIKE]
        factor = np.sign(likeness[near]) * self._scale[own] / self._scale[near]
        return Near(near, factor, likeness[near] ** 2)


def _middle(row: Floats) -> float:
    """Return the median of what is there."""
    there = row[~np.isnan(row)]
    return middle(there) if len(there) else 0.0


def _scale(changes: Floats) -> float:
    """Return how large changes are; of a series that mostly stays, those that there are."""
    if not len(changes):
        return 0.0
    middle, mean = NORMAL * np.median(np.abs(changes)), 1.25 * np.abs(changes).mean()
    return float(middle if middle > 0.1 * mean else mean)


def _correlation(a: Floats, in_a: Floats, b: Floats, in_b: Floats) -> Floats:
    """Return the correlation of rows with rows, over what both have."""
    size = np.sqrt((a**2 @ in_b.T) * (in_a @ (b**2).T))
    enough = (in_a @ in_b.T >= COMMON) & (size > 0.0)
    return np.divide(a @ b.T, size, out=np.zeros_like(size), where=enough)


def _together(rows: Floats, weights: Floats) -> Floats:
    """Return the weighted median of rows in every column, their levels brought together first."""
    level = np.array([_middle(row) for row in rows])
    for _ in range(ROUNDS):
        middle = _weighted_median(rows - level[:, None], weights)
        apart = rows - level[:, None] - middle
        level += [_middle(row) for row in apart]
    return _weighted_median(rows - level[:, None], weights)


def _weighted_median(rows: Floats, weights: Floats) -> Floats:
    order = np.argsort(rows, axis=0, kind="stable")  # NaN last
    ordered = np.take_along_axis(rows, order, axis=0)
    weight = np.cumsum(np.where(np.isnan(ordered), 0.0, weights[order]), axis=0)
    at = (weight >= 0.5 * weight[-1]).argmax(axis=0)
    return np.where(weight[-1] > 0.0, ordered[at, np.arange(rows.shape[1])], np.nan)


class Relation:
    """What a series is where others say x: a line, what is left of it by parts of x, and a spread.

    Without others (x is 0 throughout), it is a level and a spread.
    """

    slope: float
    at: Floats
    level: Floats
    spread: Floats

    PARTS = 12
    FEWEST = 25  # bins of a part
    LEAST = 0.1  # of the spread of all parts, in each

    def __init__(self, x: Floats, y: Floats, floor: float) -> None:
        variance = float(x.var())
        self.slope = float(((x - x.mean()) * (y - y.mean())).mean() / variance) if variance else 0.0
        rest = y - self.slope * x
        many = max(1, min(self.PARTS, len(x) // self.FEWEST)) if variance else 1
        parts: list[Any] = np.array_split(np.argsort(x, kind="stable"), many)
        self.at = np.array([middle(x[part]) for part in parts])
        self.level = np.array([middle(rest[part]) for part in parts])
        rest = rest - np.interp(x, self.at, self.level)
        least = max(self.LEAST * spread(rest), floor)
        self.spread = np.array([max(spread(rest[part]), least) for part in parts])

    def __call__(self, x: Floats) -> tuple[Floats, Floats]:
        """Return what to expect, and how far off it may be."""
        expected = self.slope * x + np.interp(x, self.at, self.level)
        return expected, np.interp(x, self.at, self.spread)
