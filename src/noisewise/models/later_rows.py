"""Rows that come in after a table was filled: what the filled rows say of them.

What was not read of a row is what rows most like it had, or what the covariance of the filled table
makes of what was read (shrunk as Ledoit and Wolf do).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from sklearn.covariance import ledoit_wolf

from noisewise.engine.arrays import Array
from noisewise.engine.data import Series
from noisewise.errors import brief

MOST_ROWS = 4_000  # the last ones, that are looked at
NEIGHBOURS = 10
MOST_TOLD = 10_000  # rows that are remembered
LEAST = 1e-9  # distance, so that rows that are the same tell alone; and variance


@dataclass(frozen=True, eq=False)
class KnownRows:
    """A table that was filled, series by times, and what it tells of other rows."""

    filled: Array
    times: Array
    mean: Array  # of every series
    std: Array
    covariance: Array  # of readings less their mean, over their std
    rows: Array | None  # the last ones, less mean and over std, where the nearest tell
    told: dict[bytes, Array] = field(default_factory=dict)  # rows that came, and as filled

    __repr__ = brief

    @classmethod
    def of(cls, filled: Array, times: Array, by_neighbours: bool) -> KnownRows:
        """Learn from the last rows of a filled table."""
        mean, std = filled.mean(axis=1), filled.std(axis=1)
        std = np.where(std > 0, std, 1.0)
        rows = ((filled - mean[:, None]) / std[:, None]).T[-MOST_ROWS:]
        return cls(filled, times, mean, std, _covariance(rows), rows if by_neighbours else None)

    def extended(self, series: Series) -> tuple[Array, Array]:
        """Return times and the filled table with all times at which series were read."""
        times = np.union1d(self.times, series.time)
        at = np.searchsorted(times, self.times)
        new = np.setdiff1d(np.arange(len(times)), at)
        table = np.full((len(self.filled), len(times)), np.nan)
        table[series.which, np.searchsorted(times, series.time)] = series.values
        table[:, at] = np.where(np.isnan(table[:, at]), self.filled, table[:, at])
        for k in new.tolist():
            table[:, k] = self._completed(table[:, k])
        return times, table

    def _completed(self, row: Array) -> Array:
        """Return a row with what was not read filled from what was.

        Every row by itself, so that no bit depends on which others come with it; and once, as all
        rows since the fit come again with the next.
        """
        key = row.tobytes()
        found = self.told.get(key)
        if found is None:
            if len(self.told) >= MOST_TOLD:
                self.told.clear()
            found = self.told[key] = np.where(np.isnan(row), self._from_others(row), row)
        return found

    def _from_others(self, row: Array) -> Array:
        read = ~np.isnan(row)
        out = np.zeros(len(row))
        z = (row[read] - self.mean[read]) / self.std[read]
        if self.rows is None:
            inner, outer = self.covariance[read][:, read], self.covariance[read][:, ~read]
            out[~read] = np.linalg.solve(inner, z) @ outer
        else:
            out[~read] = _of_nearest(self.rows[:, read], z, self.rows[:, ~read])
        return np.asarray(self.mean + self.std * out)


def _covariance(rows: Array) -> Array:
    """Return the covariance of series, which can be inverted whatever rows are like."""
    least = LEAST * np.eye(rows.shape[1])
    if len(rows) < 2:
        return least
    covariance, shrunk = ledoit_wolf(rows, assume_centered=True)
    # No eigenvalue is below what shrinking put there. That is nothing where no row differs from the
    # others by chance: where all are the same, or there are two.
    enough = shrunk * np.trace(covariance) >= LEAST * len(covariance)
    return np.asarray(covariance if enough else covariance + least)


def _of_nearest(known: Array, row: Array, wanted: Array) -> Array:
    """Return what the nearest rows had, each by one over its distance."""
    distance = np.sqrt(((known - row) ** 2).sum(axis=1))
    nearest = np.argsort(distance, kind="stable")[:NEIGHBOURS]
    weight = 1.0 / np.maximum(distance[nearest], LEAST)
    return np.asarray(weight @ wanted[nearest] / weight.sum())
