"""What the sampler is told: the model (Model) and the observations, arranged for it (Problem)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Codes, Floats
from noisewise.engine.threads import chunks, dealt

Ints = npt.NDArray[np.int64]
Floats64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    """What the user chose.

    Attributes
    ----------
    rank
        Factors of the mean.
    noise_rank
        Factors of the variance; 0 gives all observations the same.
    likelihood
        Values as they are, or as levels.
    sets
        Whether what a row was seen with is part of its prior.
    time
        Whether rows have paths over time.
    seed, chain
        Of all random streams: chains of the same seed have different ones.
    """

    rank: int
    noise_rank: int
    likelihood: Literal["gaussian", "ordinal"]
    sets: bool
    time: bool
    seed: int
    chain: int = 0

    @property
    def ordinal(self) -> bool:
        """Whether values are levels."""
        return self.likelihood == "ordinal"


@dataclass(frozen=True)
class Problem:
    """Observations in the order of the first mode's rows, and within a row of time.

    Attributes
    ----------
    shape
        Rows of every mode.
    places
        For each mode, the place of every observation's row, when modes are laid one after another.
    values
        Standardised; of levels, their number.
    starts, index
        Per mode, observations of row i are ``index[m][starts[m][i]:starts[m][i + 1]]``.
    """

    shape: tuple[int, ...]
    places: npt.NDArray[np.int32]
    values: Floats
    starts: tuple[Ints, ...]
    index: tuple[Codes, ...]

    @classmethod
    def arrange(
        cls,
        codes: tuple[Codes, ...],
        values: Floats,
        shape: tuple[int, ...],
        time: npt.NDArray[Any] | None = None,
    ) -> tuple[Problem, npt.NDArray[np.intp]]:
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
        return [
            (self.places[m][self.index[1 - m]] - self.firsts[m]).astype(np.int32) for m in (0, 1)
        ]

    @cached_property
    def shares(self) -> list[Floats]:
        """Per mode, one over the root of the number of each row's observations."""
        counts = [np.maximum(np.diff(starts), 1) for starts in self.starts]
        return [(1.0 / np.sqrt(count)).astype(np.float32) for count in counts]

    @cached_property
    def tasks(self) -> list[list[Codes]]:
        """Per mode, rows dealt into tasks of about equal work, the heaviest rows first."""
        tasks = []
        for starts in self.starts:
            order = np.argsort(-np.diff(starts), kind="stable").astype(np.int32)
            tasks.append(dealt(order))
        return tasks

    def chunks(self) -> list[slice]:
        """Observations in chunks."""
        return chunks(len(self))


def visiting_order(
    codes: tuple[Codes, ...], mode: int, time: npt.NDArray[Any] | None
) -> npt.NDArray[np.intp]:
    """Order by the row of a mode, then time, then the rows of the other modes."""
    keys = [codes[m] for m in reversed(range(len(codes))) if m != mode]
    return np.lexsort([*keys, *([] if time is None else [time]), codes[mode]])
