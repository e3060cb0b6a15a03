"""Rows that come in after a table was filled: what the filled rows say of them.

What was not read of a row is what rows most like it had, or what the covariance of the filled table
makes of what was read (shrunk as Ledoit and Wolf do). Of a row of which nothing was read, lines
between readings tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.covariance import ledoit_wolf
from sklearn.impute import KNNImputer

from noisewise.engine.arrays import Array
from noisewise.engine.data import Series, interpolate
from noisewise.errors import brief

MOST_ROWS = 4_000  # the last ones, that are looked at
NEIGHBOURS = 10


@dataclass(frozen=True, eq=False)
class KnownRows:
    """A table that was filled, series by times, and what it tells of other rows."""

    filled: Array
    times: Array
    mean: Array  # of every series
    std: Array
    covariance: Array  # of readings less their mean, over their std
    nearest: Any  # a fitted KNNImputer, or None

    __repr__ = brief

    @classmethod
    def of(cls, filled: Array, times: Array, by_neighbours: bool) -> KnownRows:
        """Learn from the last rows of a filled table."""
        mean, std = filled.mean(axis=1), filled.std(axis=1)
        std = np.where(std > 0, std, 1.0)
        rows = ((filled - mean[:, None]) / std[:, None]).T[-MOST_ROWS:]
        nearest = None
        if by_neighbours:
            nearest = KNNImputer(n_neighbors=NEIGHBOURS, weights="distance").fit(rows)
        covariance = ledoit_wolf(rows, assume_centered=True)[0]
        return cls(filled, times, mean, std, covariance, nearest)

    def extended(self, series: Series) -> tuple[Array, Array]:
        """Return times and the filled table with all times at which series were read."""
        times = np.union1d(self.times, series.time)
        at = np.searchsorted(times, self.times)
        new = np.setdiff1d(np.arange(len(times)), at)
        table = np.full((len(self.filled), len(times)), np.nan)
        table[series.which, np.searchsorted(times, series.time)] = series.values
        table[:, at] = np.where(np.isnan(table[:, at]), self.filled, table[:, at])
        rows = ((table[:, new] - self.mean[:, None]) / self.std[:, None]).T
        found = self._from_others(rows)
        every = np.repeat(np.arange(len(table)), len(new))
        lines = interpolate(series, every, np.tile(times[new], len(table))).value
        lines = lines.reshape(len(table), len(new))
        told = self.mean[:, None] + self.std[:, None] * found.T
        told = np.where(np.isnan(rows).all(axis=1), lines, told)
        table[:, new] = np.where(np.isnan(table[:, new]), told, table[:, new])
        return times, table

    def _from_others(self, rows: Array) -> Array:
        """Return rows, less mean and over std, with what was not read filled from what was."""
        if self.nearest is not None:
            return np.asarray(self.nearest.transform(rows)) if len(rows) else rows
        out, read = rows.copy(), ~np.isnan(rows)
        for pattern in np.unique(read, axis=0):
            if pattern.any() and not pattern.all():
                own = (read == pattern).all(axis=1)
                inner = self.covariance[np.ix_(pattern, pattern)]
                weights = np.linalg.solve(inner, self.covariance[np.ix_(pattern, ~pattern)])
                out[np.ix_(own, ~pattern)] = rows[np.ix_(own, pattern)] @ weights
        return out
