"""Drift: whether what comes in is still like what was learned.

Every series is taken for an AR(1) process, whose filter says what to expect of a reading from the
one before, however long before it was: the standardised surprise is how far off it is, in stds of
those in the fitted table.
Two things are watched over the last readings of a series: their level, and how large surprises are.
Both are compared with the most that there ever was in as many readings of the fitted table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from noisewise.engine.arrays import Array, Ints
from noisewise.engine.data import Series
from noisewise.errors import brief, warn

WINDOW = 24  # readings of a series that are looked at
MARGIN = 0.5  # beyond the most there was, as a share of it, and
LEAST = 1.0  # stds of the series from its mean that count as drift at least
FARTHEST = 6.0  # stds that a surprise counts at most: a spike is no drift
TIMES = 3.0  # mean squared surprises that count as drift at least: 1 is usual
SHOWN = 3


class Drift(NamedTuple):
    """What the last readings of every series are like; NaN where there are too few new ones."""

    level: Array  # how far they are from the mean of the series, in stds of it
    most_level: Array  # that as many readings of the fitted table were, up or down
    surprise: Array  # the mean of squared surprises
    most_surprise: Array

    @property
    def drifted(self) -> Any:
        """Which series have drifted."""
        far = np.abs(self.level) > np.maximum((1 + MARGIN) * self.most_level, LEAST)
        return far | self.surprising

    @property
    def surprising(self) -> Any:
        """Which series do what nobody could expect of them, wherever they are."""
        return self.surprise > np.maximum((1 + MARGIN) * self.most_surprise, TIMES)


@dataclass(frozen=True, eq=False)
class Watch:
    """What the fitted table was like; arrays have an entry for each series."""

    mean: Array
    std: Array
    phi: Array  # correlation of a reading with the one a step before
    step: Array  # the time that mostly lies between two readings
    spread: Array  # std of surprises, in stds of the series
    most_level: Array
    most_surprise: Array
    last: Array  # reading, less mean and over std
    end: Array  # its time

    __repr__ = brief

    @classmethod
    def of(cls, series: Series) -> Watch:
        """Learn what is usual from the fitted readings."""
        n, which = len(series), series.which
        counts = np.maximum(series.counts, 1)
        mean = np.bincount(which, series.values, n) / counts
        away = series.values - mean[which]
        std = np.sqrt(np.bincount(which, away**2, n) / counts)
        std = np.where(std > 0, std, 1.0)
        z = away / std[which]
        same = which[1:] == which[:-1]
        pairs = np.bincount(which[1:][same], (z[1:] * z[:-1])[same], n)
        phi = np.clip(pairs / np.maximum(counts - 1, 1), 0.0, 1.0)
        step, gaps = np.ones(n), np.diff(series.time)
        for s in range(n):
            if series.counts[s] >= 2:
                step[s] = np.median(gaps[series.starts[s] : series.starts[s + 1] - 1])
        own_phi, wide = _after(phi[which[1:]], gaps / step[which[1:]])
        error = np.zeros(len(z))
        error[1:] = np.where(same, (z[1:] - own_phi * z[:-1]) / wide, 0.0)
        spread = np.sqrt(np.bincount(which, error**2, n) / np.maximum(counts - 1, 1))
        spread = np.where(spread > 0, spread, 1.0)
        squared = np.minimum(np.abs(error / spread[which]), FARTHEST) ** 2
        most = np.full((2, n), np.inf)  # of a series that is too short to tell
        last, end = np.zeros(n), np.zeros(n)
        for s in range(n):
            own = slice(*series.starts[s : s + 2])
            if series.counts[s]:
                last[s], end[s] = z[own][-1], series.time[own][-1]
            if series.counts[s] >= 2 * WINDOW:
                most[:, s] = np.abs(_rolling(z[own])).max(), _rolling(squared[own]).max()
        return cls(mean, std, phi, step, spread, most[0], most[1], last, end)

    def look(self, which: Ints, when: Array, values: Array) -> Drift:
        """Look at readings that came in since."""
        level, surprise = np.full((2, len(self.mean)), np.nan)
        order = np.lexsort([when, which])
        bounds = np.searchsorted(which[order], np.arange(len(self.mean) + 1))
        for s in np.flatnonzero(np.diff(bounds) >= WINDOW):
            own = order[bounds[s] : bounds[s + 1]]
            z = (values[own] - self.mean[s]) / self.std[s]
            gaps = np.abs(np.diff(when[own], prepend=self.end[s]))
            phi, wide = _after(np.full(len(z), self.phi[s]), gaps / self.step[s])
            error = (z - phi * np.append(self.last[s], z[:-1])) / (wide * self.spread[s])
            level[s] = z[-WINDOW:].mean()
            surprise[s] = (np.minimum(np.abs(error[-WINDOW:]), FARTHEST) ** 2).mean()
        return Drift(level, self.most_level, surprise, self.most_surprise)


def _after(phi: Array, steps: Array) -> tuple[Array, Array]:
    """Return the correlation of readings some steps apart, and how much wider surprises are then.

    Examples
    --------
    >>> phi, wide = _after(np.array([0.5, 0.5, 1.0]), np.array([1.0, 2.0, 4.0]))
    >>> phi.tolist(), wide.round(2).tolist()
    ([0.5, 0.25, 1.0], [1.0, 1.12, 2.0])
    """
    steps = np.maximum(steps, 1.0)
    far = phi**steps
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (1.0 - far**2) / (1.0 - phi**2)
    return far, np.sqrt(np.where(phi < 1.0, share, steps))


def _rolling(values: Array) -> Array:
    """Return the means of all windows."""
    sums = np.cumsum(np.append(0.0, values))
    return np.asarray((sums[WINDOW:] - sums[:-WINDOW]) / WINDOW)


def warn_of(found: Drift, names: list[Any], which: Any) -> None:
    """Say that some series have drifted, and by how much, the worst first."""
    drifted = np.flatnonzero(which)
    if not len(drifted):
        return
    ratio = np.fmax(np.abs(found.level) / found.most_level, found.surprise / found.most_surprise)
    drifted = drifted[np.argsort(-ratio[drifted], kind="stable")]
    told = []
    for s in drifted[:SHOWN]:
        side = "above" if found.level[s] > 0 else "below"
        told.append(
            f"{names[s]!r} is {abs(found.level[s]):.2g} stds {side} its mean (in fit "
            f"{found.most_level[s]:.2g} at most), with squared surprises of {found.surprise[s]:.2g}"
            f" (in fit {found.most_surprise[s]:.2g} at most, 1 on average)"
        )
    more = f"; and {len(drifted) - SHOWN:,} more" if len(drifted) > SHOWN else ""
    warn(
        f"{len(drifted):,} of {len(names):,} series have drifted away from what was learned, over "
        f"their last {WINDOW} readings: {'; '.join(told)}{more}. Fit again if that is to last."
    )
