"""Observations in time: which of them are one series, and which moments are drawn together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Codes, Floats
from noisewise.engine.gibbs.data import Problem
from noisewise.engine.series import Array, Ints, Series

STRETCHES = 16  # of time, for threads to share out; their number must not depend on threads
SHORTEST = 32  # moments in a stretch, at least


@dataclass(frozen=True)
class Timetable:
    """Observations by series and, within a series, in the order of time.

    Attributes
    ----------
    problem
        The observations. The last mode is time, and its rows, the moments, are in order.
    series
        The same observations as series.
    """

    problem: Problem
    series: Series

    @classmethod
    def arrange(
        cls, codes: tuple[Codes, ...], values: Floats, shape: tuple[int, ...], stamps: Array
    ) -> Timetable:
        """Put observations in order; ``stamps`` has the times of moments, which are the last mode.

        Examples
        --------
        >>> codes = np.array([1, 0, 1], dtype=np.int32), np.array([2, 0, 1], dtype=np.int32)
        >>> values = np.array([5, 6, 7], dtype=np.float32)
        >>> table = Timetable.arrange(codes, values, (2, 3), np.array([0.0, 1.0, 10.0]))
        >>> table.series.values.tolist(), table.gaps.tolist()
        ([6.0, 7.0, 5.0], [inf, inf, 9.0])
        """
        problem, _ = Problem.arrange(codes, values, shape)
        return cls(problem, as_series(problem.places, problem.values, stamps, problem.firsts[-1]))

    @cached_property
    def gaps(self) -> Array:
        """Time since the observation before in the series; infinite for the first."""
        return gaps(self.series)

    @cached_property
    def stretches(self) -> list[Codes]:
        """Moments, dealt into stretches of about equal work."""
        part = self._stretch
        return [np.flatnonzero(part == k).astype(np.int32) for k in range(part[-1] + 1)]

    @cached_property
    def bound(self) -> npt.NDArray[np.bool_]:
        """Observations next to one of their series in another stretch, or of the same time.

        Stretches are drawn side by side, so what lies across their borders must not move.
        """
        part = self._stretch[self.problem.places[-1] - self.problem.firsts[-1]]
        across = np.zeros(len(part) + 1, dtype=bool)
        across[1:-1] = (part[1:] != part[:-1]) | (self.gaps[1:] == 0.0)
        across[self.series.starts] = False
        return np.asarray(across[1:] | across[:-1])

    @cached_property
    def _stretch(self) -> Ints:
        """The stretch of every moment."""
        before = self.problem.starts[-1]
        many = max(1, min(STRETCHES, self.problem.shape[-1] // SHORTEST))
        return np.asarray(np.minimum(before[:-1] * many // before[-1], many - 1))


def as_series(places: npt.NDArray[np.int32], values: Floats, stamps: Array, first: int) -> Series:
    """Return observations that are in order as series; moments are at ``first`` and after."""
    new = np.append(True, (np.diff(places[:-1], axis=1) != 0).any(axis=0))
    starts = np.append(np.flatnonzero(new), len(values))
    return Series(starts, stamps[places[-1] - first], values.astype(np.float64))


def gaps(series: Series) -> Array:
    """Return the time since the observation before in a series; infinite for the first."""
    apart = np.diff(series.time, prepend=0.0)
    apart[series.starts[:-1]] = np.inf
    return apart
