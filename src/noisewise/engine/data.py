"""What to sample (Spec), and observations as they are visited: by row, in time, as series."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from noisewise.engine.arrays import Array, Codes, Floats, Ints
from noisewise.engine.design import Designs
from noisewise.engine.training import chunks, dealt, in_threads
from noisewise.errors import brief

_U = np.uintp
_ONE = np.uintp(1)


@dataclass(frozen=True)
class Series:
    """Observations of series, each in the order of time: s has ``starts[s]:starts[s + 1]``."""

    starts: Ints
    time: Array
    values: Array

    __repr__ = brief

    @classmethod
    def group(cls, which: npt.NDArray[Any], time: Array, values: Any, n: int) -> Series:
        """Group observations in any order into n series; ``which`` has the series of each.

        Examples
        --------
        >>> series = Series.group(np.array([1, 1]), np.array([5.0, 2.0]), [50, 20], 2)
        >>> series.starts.tolist(), series.values.tolist()
        ([0, 0, 2], [20.0, 50.0])
        """
        order = np.lexsort([time, which])
        counts = np.bincount(which, minlength=n)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(starts, time[order], np.asarray(values, dtype=np.float64)[order])

    def __len__(self) -> int:
        return len(self.starts) - 1

    def joined(self, which: Ints, time: Array, values: Array) -> Series:
        """Return the same series with more observations; of one time, the new one holds.

        Examples
        --------
        >>> series = Series.group(np.zeros(2, int), np.array([0.0, 2.0]), [1.0, 3.0], 1)
        >>> series.joined(np.zeros(2, int), np.array([1.0, 2.0]), np.array([5.0, 7.0])).values
        array([1., 5., 7.])
        """
        every = np.append(self.which, which), np.append(self.time, time)
        order = np.lexsort([every[1], every[0]])  # which keeps the new one behind the old
        last = np.ones(len(order), dtype=bool)
        last[:-1] = (np.diff(every[0][order]) != 0) | (np.diff(every[1][order]) != 0)
        order = order[last]
        counts = np.bincount(every[0][order], minlength=len(self))
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Series(starts, every[1][order], np.append(self.values, values)[order])

    @property
    def counts(self) -> Ints:
        """Observations of every series."""
        return np.diff(self.starts)

    @cached_property
    def which(self) -> Ints:
        """The series of every observation."""
        return np.repeat(np.arange(len(self)), self.counts)

    @cached_property
    def tasks(self) -> list[Ints]:
        """Series dealt into tasks of about equal work, the longest first."""
        return dealt(np.argsort(-self.counts, kind="stable"))

    @cached_property
    def gaps(self) -> Array:
        """Time since the observation before in the series; infinite for the first."""
        apart = np.diff(self.time, prepend=0.0)
        apart[self.starts[:-1][self.counts > 0]] = np.inf
        return apart

    def usual_step(self) -> float:
        """Return the time that mostly lies between one stamp and the next, of all there are."""
        steps = np.diff(np.unique(self.time))
        return float(np.median(steps)) if len(steps) else 1.0

    def place(self, which: Ints, when: Array, n_jobs: int = 1) -> Ints:
        """Return the first observation of a series that is not before a time, by bisection."""
        out = np.empty(len(when), dtype=np.int64)

        def work(part: slice) -> None:
            _place(self.starts, self.time, which[part], when[part], out[part])

        in_threads(work, chunks(len(when)), n_jobs)
        return out


class Line(NamedTuple):
    """Interpolated values, and what their variance is made of."""

    value: Array
    reach: Array  # the variance that a random walk has between its two neighbours
    load: Array  # how often their noise, and its own, is in the error


def interpolate(
    series: Series, which: Ints, when: Array, *, leave_out: bool = False, n_jobs: int = 1
) -> Line:
    """Interpolate series at any times; beyond their ends they stay as they were.

    An observation of exactly that time can be left out. Where a series has none to tell, it is NaN.

    Examples
    --------
    >>> series = Series.group(np.zeros(2, int), np.array([0.0, 10.0]), [1.0, 3.0], 1)
    >>> interpolate(series, np.zeros(2, int), np.array([5.0, 20.0])).value.tolist()
    [2.0, 3.0]
    """
    line = Line(*np.empty((3, len(when))))
    right = series.place(which, when, n_jobs)

    def work(part: slice) -> None:
        _interpolate(
            series.starts, series.time, series.values, which[part], when[part], right[part],
            leave_out, *(array[part] for array in line),
        )  # fmt: skip

    in_threads(work, chunks(len(when)), n_jobs)
    return line


@dataclass(frozen=True)
class Spec:
    """What the user chose."""

    rank: int  # factors of the mean
    noise_rank: int  # of the variance; 0 gives all observations, or those of a series, the same
    likelihood: Literal["gaussian", "ordinal"]  # values as they are, or as levels
    implicit: bool  # whether what a row was seen with is part of its prior
    time: bool  # whether rows have temporal effects
    seed: int  # of all random streams
    chain: int = 0  # chains of the same seed have different streams

    @property
    def ordinal(self) -> bool:
        """Whether values are levels."""
        return self.likelihood == "ordinal"


class Scale(NamedTuple):
    """How standardised values become values; of levels, their values and the cut-point at 0."""

    location: float
    scale: float
    low: float  # predictions are clipped to this range
    high: float
    levels: Floats
    anchor: int


@dataclass(frozen=True)
class Data:
    """Observations in the order of the first mode's rows, and within a row of time.

    Row i of mode m has the observations ``index[m][starts[m][i]:starts[m][i + 1]]``.
    """

    shape: tuple[int, ...]  # rows of every mode
    places: npt.NDArray[np.int32]  # per mode, of every row, when modes are laid one after another
    values: Floats  # standardised; of levels, their number
    starts: tuple[Ints, ...]
    index: tuple[Codes, ...]
    designs: Designs = field(default=Designs(), kw_only=True)  # features of rows, if there are any
    weight: Floats | None = field(default=None, kw_only=True)  # its root, that divides the std
    unit: float = field(default=1.0, kw_only=True)  # what weights usually are

    @classmethod
    def arrange(
        cls, codes: tuple[Codes, ...], values: Floats, shape: tuple[int, ...], time: Any = None
    ) -> tuple[Data, npt.NDArray[np.intp]]:
        """Put observations in order; also return which observation each one was."""
        order = visiting_order(codes, 0, time)
        codes = tuple(c[order] for c in codes)
        time = None if time is None else time[order]
        index = [np.arange(len(values), dtype=np.int32)]
        index += [visiting_order(codes, m, time).astype(np.int32) for m in range(1, len(shape))]
        firsts = np.cumsum([0, *shape[:-1]])
        places = np.array([c + first for c, first in zip(codes, firsts, strict=True)], np.int32)
        counts = [np.bincount(c, minlength=n) for c, n in zip(codes, shape, strict=True)]
        starts = tuple(np.concatenate([[0], np.cumsum(count)]) for count in counts)
        return cls(shape, places, values[order], starts, tuple(index)), order

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_modes(self) -> int:
        """The number of modes."""
        return len(self.shape)

    @property
    def n_here(self) -> int:
        """How many of the observations are in this process."""
        return len(self.values)

    @cached_property
    def firsts(self) -> list[int]:
        """The place of each mode's first row."""
        return [0, *np.cumsum(self.shape)[:-1].tolist()]

    def part(self, mode: int) -> slice:
        """Return the places of a mode's rows."""
        return slice(self.firsts[mode], self.firsts[mode] + self.shape[mode])

    @cached_property
    def others(self) -> list[npt.NDArray[np.int32]]:
        """Per mode, places in all other modes, in the order in which it visits observations."""
        return [np.delete(self.places, m, 0)[:, order] for m, order in enumerate(self.index)]

    @cached_property
    def members(self) -> list[Codes]:
        """Of two modes: the rows of each, sorted by the row of the other they were seen with."""
        return [self.others[1 - m][0] - np.int32(self.firsts[m]) for m in (0, 1)]

    @cached_property
    def shares(self) -> list[Floats]:
        """Per mode, one over the root of the number of each row's observations."""
        counts = [np.maximum(np.diff(starts), 1) for starts in self.starts]
        return [(1.0 / np.sqrt(count)).astype(np.float32) for count in counts]

    @cached_property
    def tasks(self) -> list[list[Codes]]:
        """Per mode, rows dealt into tasks of about equal work, the heaviest rows first."""
        orders = [np.argsort(-np.diff(starts), kind="stable") for starts in self.starts]
        return [dealt(order.astype(np.int32)) for order in orders]


class Timeline(NamedTuple):
    """Observations of two modes in the order of time; ties go by the row of the other mode.

    Row i of mode m has n + 1 gaps, before, between and after its n observations; they start at
    ``starts[m][i] + i``.
    """

    starts: tuple[Ints, ...]
    times: tuple[npt.NDArray[np.float64], ...]
    others: tuple[Codes, ...]

    @classmethod
    def of(cls, data: Data, time: npt.NDArray[Any]) -> Timeline:
        """Remember when observations, in the order of the data, were made."""
        times = tuple(time.astype(np.float64)[index] for index in data.index)
        return cls(data.starts, times, tuple(reversed(data.members)))

    def gaps(self, codes: tuple[Codes, ...], time: npt.NDArray[Any] | None) -> list[Ints]:
        """Per mode, the gap of each cell: without a time the last one, of rows never seen any."""
        found = []
        for mode in (0, 1):
            n = len(self.starts[mode]) - 1
            rows = np.minimum(codes[mode], n - 1)
            if time is None:
                place = self.starts[mode][rows + 1]
            else:
                place = np.empty(len(rows), dtype=np.int64)
                _search(
                    self.starts[mode], self.times[mode], self.others[mode], rows,
                    time.astype(np.float64), codes[1 - mode], place,
                )  # fmt: skip
            found.append(place + rows)
        return found


@dataclass(frozen=True)
class SeriesData(Data):
    """Observations by series, then by time, which is the last mode; its rows are in order."""

    series: Series  # the same observations
    stamps: Array  # times of the rows of the last mode

    @classmethod
    def of(
        cls, codes: tuple[Codes, ...], values: Floats, shape: tuple[int, ...], stamps: Array
    ) -> SeriesData:
        """Put observations in order.

        Examples
        --------
        >>> codes = np.array([1, 0, 1], dtype=np.int32), np.array([2, 0, 1], dtype=np.int32)
        >>> values = np.array([5, 6, 7], dtype=np.float32)
        >>> table = SeriesData.of(codes, values, (2, 3), np.array([0.0, 1.0, 10.0]))
        >>> table.series.values.tolist(), table.series.gaps.tolist()
        ([6.0, 7.0, 5.0], [inf, inf, 9.0])
        """
        data, _ = Data.arrange(codes, values, shape)
        series = as_series(data.places, data.values, stamps, data.firsts[-1])
        return cls(shape, data.places, data.values, data.starts, data.index, series, stamps)


def visiting_order(codes: tuple[Codes, ...], mode: int, time: Any) -> npt.NDArray[np.intp]:
    """Order by the row of a mode, then time, then the rows of the other modes."""
    keys = [codes[m] for m in reversed(range(len(codes))) if m != mode]
    return np.lexsort([*keys, *([] if time is None else [time]), codes[mode]])


def as_series(places: npt.NDArray[np.int32], values: Floats, stamps: Array, first: int) -> Series:
    """Return observations that are in order as series; rows of time start at ``first``."""
    new = np.append(True, (np.diff(places[:-1], axis=1) != 0).any(axis=0))
    starts = np.append(np.flatnonzero(new), len(values))
    return Series(starts, stamps[places[-1] - first], values.astype(np.float64))


@njit(nogil=True, cache=True)
def _search(starts, times, others, rows, time, other, out):
    """Fill in where each (time, other) belongs among those of its row, by bisection."""
    for n in range(len(rows)):
        low, high = starts[rows[n]], starts[rows[n] + 1]
        while low < high:
            middle = (low + high) // 2
            before = times[middle] < time[n]
            if times[middle] == time[n]:
                before = others[middle] < other[n]
            if before:
                low = middle + 1
            else:
                high = middle
        out[n] = low


@njit(nogil=True, error_model="numpy", cache=True)
def _place(starts, time, which, when, out):
    for query in range(len(when)):
        s, t = _U(which[query]), when[query]
        start, end = starts[s], starts[s + _ONE]
        while start < end:
            middle = (start + end) // 2
            if time[_U(middle)] < t:
                start = middle + 1
            else:
                end = middle
        out[_U(query)] = start


@njit(nogil=True, error_model="numpy", cache=True)
def _interpolate(starts, time, values, which, when, place, leave_out, out, reach, load):
    for query in range(len(when)):
        q, s, t = _U(query), _U(which[query]), when[query]
        start, end = starts[s], starts[s + _ONE]
        right = place[q]
        left = right - 1
        if right < end and time[_U(right)] == t:
            if leave_out:
                right += 1
            else:
                left = right
        if left < start and right >= end:
            out[q] = reach[q] = load[q] = np.nan
        elif left == right or left < start or right >= end:
            k = _U(right if left < start else left)
            out[q], reach[q], load[q] = values[k], abs(t - time[k]), 2.0
        else:
            a, b = _U(left), _U(right)
            gap = time[b] - time[a]
            share = (t - time[a]) / gap if gap > 0.0 else 0.5
            out[q] = values[a] + share * (values[b] - values[a])
            reach[q] = gap * share * (1.0 - share)
            load[q] = 1.0 + share * share + (1.0 - share) * (1.0 - share)
