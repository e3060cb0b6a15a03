"""What other series let expect of each: the median of those that move as it does.

Who moves alike is told by changes over a while, not by levels: a series that is off for good has
its own changes still. And the median of ten does not follow one that is off.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewise.anomalies.tracks import NORMAL, spread
from noisewise.data.timestamps import Floats, Ints
from noisewise.engine.training import one_blas_thread

NEIGHBOURS = 10
ALIKE = 0.3  # correlation of changes, at least
COMMON = 50  # changes that two series have in common, at least
WHILE = 150  # parts of the grid: changes are from one to the next
CLIP = 4.0  # spreads that a change counts at most
CHUNK = 512  # series compared with all others at a time
ROUNDS = 3  # in which levels of neighbours are brought together


def references(table: Floats, series: Ints) -> Floats:
    """Return for some series what others say in every bin, in their units, up to a constant.

    NaN where nobody says anything: in all bins of a series that nobody is like.
    """
    lag = max(1, table.shape[1] // WHILE)
    change = table[:, lag:] - table[:, :-lag]
    known = ~np.isnan(change)
    change -= np.array([_middle(row) for row in change])[:, None]  # a drift is no likeness
    scale = np.array([_scale(row[ok]) for row, ok in zip(change, known, strict=True)])
    moves = np.where(scale > 0.0, scale, np.inf)[:, None]
    z = np.clip(np.where(known, change, 0.0) / moves, -CLIP, CLIP)
    mask = known.astype(np.float64)
    out = np.full((len(series), table.shape[1]), np.nan)
    for start in range(0, len(series), CHUNK):
        part = series[start : start + CHUNK]
        with one_blas_thread():
            alike = _correlation(z[part], mask[part], z, mask)
        for row, (own, likeness) in enumerate(zip(part, alike, strict=True), start):
            likeness[own] = 0.0
            near = np.argsort(-np.abs(likeness), kind="stable")[:NEIGHBOURS]
            near = near[np.abs(likeness[near]) >= ALIKE]
            if len(near):
                factor = np.sign(likeness[near]) * scale[own] / scale[near]
                out[row] = _together(factor[:, None] * table[near], likeness[near] ** 2)
    return out


def _middle(row: Floats) -> float:
    """Return the median of what is there."""
    there = row[~np.isnan(row)]
    return float(np.median(there)) if len(there) else 0.0


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
        self.at = np.array([np.median(x[part]) for part in parts])
        self.level = np.array([np.median(rest[part]) for part in parts])
        rest = rest - np.interp(x, self.at, self.level)
        least = max(self.LEAST * spread(rest), floor)
        self.spread = np.array([max(spread(rest[part]), least) for part in parts])

    def __call__(self, x: Floats) -> tuple[Floats, Floats]:
        """Return what to expect, and how far off it may be."""
        expected = self.slope * x + np.interp(x, self.at, self.level)
        return expected, np.interp(x, self.at, self.spread)
