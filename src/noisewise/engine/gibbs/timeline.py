"""When rows were observed: finds the place of a new observation in the sequence of its row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from noisewise.engine.arrays import Codes
from noisewise.engine.gibbs.data import Ints, Problem
from noisewise.storage import Tensors, check_codes, take, take_starts

_U = np.uintp


class Timeline(NamedTuple):
    """Observations of two modes in the order of time; ties go by the row of the other mode.

    Row i of mode m has n + 1 gaps, before, between and after its n observations; they start at
    ``starts[m][i] + i``.
    """

    starts: tuple[Ints, ...]
    times: tuple[npt.NDArray[np.float64], ...]
    others: tuple[Codes, ...]

    @classmethod
    def of(cls, problem: Problem, time: npt.NDArray[Any]) -> Timeline:
        """Remember when observations, in the order of the problem, were made."""
        seconds = time.astype(np.float64)
        others = [problem.places[1 - m] - problem.firsts[1 - m] for m in (0, 1)]
        return cls(
            problem.starts,
            tuple(seconds[index] for index in problem.index),
            tuple(
                other[index].astype(np.int32)
                for other, index in zip(others, problem.index, strict=True)
            ),
        )

    def gaps(self, codes: tuple[Codes, ...], time: npt.NDArray[Any] | None) -> list[Ints]:
        """Per mode, the gap that each cell falls into; without a time, the last one.

        A row never seen has no gap; any number stands for it.
        """
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

    def pack(self) -> Tensors:
        """Tensors of a file."""
        tensors: Tensors = {}
        for mode in (0, 1):
            tensors[f"timeline{mode}.starts"] = self.starts[mode]
            tensors[f"timeline{mode}.times"] = self.times[mode]
            tensors[f"timeline{mode}.others"] = self.others[mode]
        return tensors

    @classmethod
    def unpack(cls, path: Any, tensors: Tensors, shape: tuple[int, ...]) -> Timeline:
        """Undo ``pack``; the file is not trusted."""
        parts: list[tuple[Any, ...]] = []
        for mode in (0, 1):
            starts = take_starts(path, tensors, f"timeline{mode}.starts", shape[mode])
            n = int(starts[-1])
            times = take(path, tensors, f"timeline{mode}.times", "float64", n)
            others = take(path, tensors, f"timeline{mode}.others", "int32", n)
            check_codes(path, f"timeline{mode}.others", others, shape[1 - mode])
            parts.append((starts, times, others))
        return cls(*zip(*parts, strict=True))


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
