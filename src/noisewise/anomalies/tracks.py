"""Series as they were read, and the same on a grid of time that all of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisewise.data import Observations
from noisewise.data.timestamps import Floats, Ints, series_keys

Mask: TypeAlias = NDArray[np.bool_]

MOST_BINS = 1500  # of the grid: changes that last are looked for there
NORMAL = 1.4826  # a median distance times this is a standard deviation, of normal numbers


@dataclass(frozen=True, eq=False)
class Tracks:
    """Readings of all series, one series after the other, each in the order of time."""

    time: Floats
    value: Floats
    bounds: Ints  # where each series begins, and the end of the last
    rows: Ints  # which observation a reading was

    @classmethod
    def of(cls, seen: Observations) -> Tracks:
        """Sort observations, whose last mode is time, into series, as the keys of these are."""
        keys = series_keys(seen.codes, seen.shape, seen.n_modes - 1)[0]
        when = seen.ids[-1].labels[seen.codes[-1]].astype(np.float64)
        rows = np.lexsort([when, keys])
        begins = np.flatnonzero(np.diff(keys[rows], prepend=-1))
        values = seen.values[rows].astype(np.float64)
        return cls(when[rows], values, np.append(begins, len(rows)), rows)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def span(self, series: int) -> slice:
        """Return where a series has its readings."""
        return slice(int(self.bounds[series]), int(self.bounds[series + 1]))

    @property
    def which(self) -> Ints:
        """The series of every reading."""
        return np.repeat(np.arange(len(self)), np.diff(self.bounds))

    @property
    def step(self) -> float:
        """The median from one time to the next, of all times at which anything was read."""
        steps = np.diff(np.unique(self.time))
        return float(np.median(steps)) if len(steps) else 1.0


class Grid(NamedTuple):
    """Medians of series in bins of time: one reading that is off does not count there."""

    start: float
    width: float
    table: Floats  # series by bins; NaN where nothing was read

    @classmethod
    def of(cls, tracks: Tracks, good: Mask) -> Grid:
        """Sum up the readings that are good."""
        start, step = float(tracks.time.min()), tracks.step
        span = float(tracks.time.max()) - start
        width = step * max(1, int(np.ceil(span / step / MOST_BINS)))
        n = int(span // width) + 1
        table = np.full((len(tracks), n), np.nan)
        cell = tracks.which[good] * n + ((tracks.time[good] - start) // width).astype(np.int64)
        if len(cell):
            value = tracks.value[good]
            order = np.lexsort([value, cell])
            first = np.flatnonzero(np.diff(cell[order], prepend=-1))
            many = np.diff(np.append(first, len(cell)))
            ends = order[first + (many - 1) // 2], order[first + many // 2]
            table.ravel()[cell[order[first]]] = 0.5 * (value[ends[0]] + value[ends[1]])
        return cls(start, width, table)

    def bin(self, time: float) -> int:
        """Return the bin of a time."""
        return int(np.clip((time - self.start) // self.width, 0, self.table.shape[1] - 1))


def spread(values: Floats) -> float:
    """Return the standard deviation of values, told by their median distance where it can be."""
    if not len(values):
        return 0.0
    away = np.abs(values - np.median(values))
    return float(NORMAL * np.median(away) or away.mean())
