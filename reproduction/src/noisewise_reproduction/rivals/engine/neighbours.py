"""The nearest places at which something was observed at the same time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from noisewise.engine.training import in_threads

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TASK = 8_192  # cells that a thread takes at a time
NOWHERE = 1e-9  # share of the widest distance below which two places are one

_ONE = np.uintp(1)


@dataclass(frozen=True)
class Snapshots:
    """What was observed at places in each snapshot: from ``starts[s]`` to ``starts[s + 1]``.

    ``position`` has a row of coordinates for every place.
    """

    starts: Ints
    places: Ints
    values: Array
    position: Array

    @classmethod
    def group(cls, which: Ints, places: Ints, values: Any, n: int, position: Array) -> Snapshots:
        """Group observations in any order into n snapshots; ``which`` has the one of each."""
        order = np.lexsort([places, which])
        starts = np.concatenate([[0], np.cumsum(np.bincount(which, minlength=n))])
        values = np.asarray(values, dtype=np.float64)[order]
        return cls(starts.astype(np.int64), places[order], values, position)

    @property
    def least(self) -> float:
        """The distance that two places have at least, for weights to stay finite."""
        widest = float(np.linalg.norm(np.ptp(self.position, axis=0)))
        return NOWHERE * (widest or 1.0)


class Nearest(NamedTuple):
    """Of every cell: how many neighbours were found, their values and distances, nearest first."""

    found: Ints
    values: Array
    distances: Array

    def average(self, n: int, power: float, least: float) -> Array:
        """Average the n nearest, weighted by ``distance ** -power``; NaN where there is none."""
        used = np.arange(self.values.shape[1]) < np.minimum(self.found, n)[:, None]
        weights = np.where(used, np.maximum(self.distances, least) ** -power, 0.0)
        with np.errstate(invalid="ignore"):  # 0 / 0 is the NaN that is promised
            mean: Array = (weights * self.values).sum(axis=1) / weights.sum(axis=1)
        return mean


def nearest(snapshots: Snapshots, which: Ints, places: Ints, n: int, n_jobs: int = 1) -> Nearest:
    """Find the n nearest observed places in the same snapshot, never the place itself.

    Parameters
    ----------
    snapshots
        The observations.
    which, places
        Snapshot and place of every cell; -1 where there is none.
    n
        How many neighbours at most. Of two at the same distance, the first place comes first.
    n_jobs
        Threads; they change no bit.

    Examples
    --------
    >>> position = np.array([[0.0], [1.0], [3.0]])
    >>> zeros = np.zeros(3, int)
    >>> seen = Snapshots.group(zeros, np.arange(3), [10.0, 20.0, 40.0], 1, position)
    >>> nearest(seen, np.array([0]), np.array([1]), 2).values
    array([[10., 40.]])
    """
    many = len(which)
    found = np.zeros(many, dtype=np.int64)
    values, distances = np.zeros((many, n)), np.full((many, n), np.inf)

    def work(start: int) -> None:
        part = slice(start, start + TASK)
        _nearest(
            snapshots.starts, snapshots.places, snapshots.values, snapshots.position,
            which[part], places[part], found[part], values[part], distances[part],
        )  # fmt: skip

    in_threads(work, range(0, many, TASK), n_jobs)
    return Nearest(found, values, np.sqrt(distances, out=distances))


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = njit(nogil=True, cache=True, error_model="numpy")(function)
    return compiled


@_compiled
def _nearest(
    starts: Any, seen: Any, seen_values: Any, position: Any,
    which: Any, places: Any, found: Any, values: Any, distances: Any,
) -> None:  # fmt: skip
    most = values.shape[1]
    for cell in range(len(which)):
        c = np.uintp(cell)
        if which[c] < 0 or places[c] < 0:
            continue
        s, own = np.uintp(which[c]), np.uintp(places[c])
        for k in range(starts[s], starts[s + _ONE]):
            n = np.uintp(k)
            other = np.uintp(seen[n])
            if other == own:
                continue
            squared = 0.0
            for d in range(position.shape[1]):
                squared += (position[own, d] - position[other, d]) ** 2
            if squared >= distances[c, most - 1]:
                continue
            at = min(found[c], most - 1)
            while at > 0 and distances[c, at - 1] > squared:
                distances[c, at], values[c, at] = distances[c, at - 1], values[c, at - 1]
                at -= 1
            distances[c, at], values[c, at] = squared, seen_values[n]
            found[c] = min(found[c] + 1, most)
