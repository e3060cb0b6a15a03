"""Series as they were read, and the same on a grid of time that all of them share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
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

    @cached_property
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
    def of(
        cls, tracks: Tracks, good: Mask, most: int = MOST_BINS, series: Ints | None = None
    ) -> Grid:
        """Sum up readings that are good, of some series or of all, in so many bins or less."""
        rows = np.arange(len(tracks)) if series is None else series
        start, step = float(tracks.time.min()), tracks.step
        span = float(tracks.time.max()) - start
        width = step * max(1, int(np.ceil(span / step / most)))
        n = int(span // width) + 1
        table = np.full((len(rows), n), np.nan)
        for row, own in enumerate(rows.tolist()):
            part = tracks.span(own)
            time, value = tracks.time[part][good[part]], tracks.value[part][good[part]]
            cell = ((time - start) // width).astype(np.int64)
            order = np.lexsort([value, cell])
            first = np.flatnonzero(np.diff(cell[order], prepend=-1))
            many = np.diff(np.append(first, len(cell)))
            ends = order[first + (many - 1) // 2], order[first + many // 2]
            table[row, cell[order[first]]] = 0.5 * (value[ends[0]] + value[ends[1]])
        return cls(start, width, table)

    def bins(self, time: Floats) -> Ints:
        """Return the bins of times."""
        last = self.table.shape[1] - 1
        return np.clip((time - self.start) // self.width, 0, last).astype(np.int64)


def middle(values: Floats) -> float:
    """Return the median of values, of which none is missing; faster than numpy's for few."""
    half = len(values) // 2
    ordered = np.partition(values, half)
    if len(values) % 2:
        return float(ordered[half])
    return float(0.5 * (ordered[:half].max() + ordered[half]))


def spread(values: Floats) -> float:
    """Return the standard deviation of values, told by their median distance where it can be."""
    if not len(values):
        return 0.0
    away = np.abs(values - middle(values))
    return float(NORMAL * middle(away) or away.mean())
