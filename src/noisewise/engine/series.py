"""Series over real time: their observations, and lines between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from noisewise.engine.threads import chunks, dealt, in_threads
from noisewise.errors import brief

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_U = np.uintp
_ONE = np.uintp(1)


@dataclass(frozen=True)
class Series:
    """Observations of many series: of series s, those from ``starts[s]`` to ``starts[s + 1]``.

    Within a series they are in the order of time.
    """

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

    What is asked for has a series and a time each; an observation of exactly that time can be left
    out. Where a series has no observation to tell, there is NaN.

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
