"""Observations on a cluster: in chunks that workers take from, wherever they are.

A chunk has the row numbers of every mode, the values, and the times if there are any. Who leads a
training has the values, four bytes each, and the ids; row numbers stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.data import Ids, Observations
from noisewise.engine import workers
from noisewise.engine.arrays import Codes, Counts

CHUNK = 1_000_000  # observations in a chunk, at most


class SpreadObservations(Observations):
    """Observations whose row numbers, and times, are in chunks on a cluster.

    Everything can be asked of them that can be asked of observations; ``codes`` brings all row
    numbers here, which a training on the cluster has no need for.
    """

    __slots__ = ("chunks", "has_time", "sizes")

    chunks: list[Any]  # references
    sizes: list[int]  # observations in each
    has_time: bool

    def __init__(
        self, chunks: Sequence[Any], sizes: Sequence[int], values: NDArray[Any],
        ids: tuple[Ids, ...], has_time: bool,
    ) -> None:  # fmt: skip
        given = {"chunks": list(chunks), "sizes": list(sizes), "has_time": has_time}
        for name, value in (given | {"values": values, "ids": ids, "weight": None}).items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, seen: Observations, size: int = CHUNK) -> SpreadObservations:
        """Spread observations that are here."""
        if isinstance(seen, SpreadObservations):
            return seen
        columns = [*seen.codes, seen.values, *([] if seen.time is None else [seen.time])]
        cuts = [*range(0, len(seen), size), len(seen)]
        parts = [tuple(c[i:j] for c in columns) for i, j in pairwise(cuts)]
        chunks = [workers.put(part) for part in parts]
        return cls(chunks, np.diff(cuts).tolist(), seen.values, seen.ids, seen.time is not None)

    @property
    def codes(self) -> tuple[Codes, ...]:
        """Row numbers of every mode, brought here."""
        return tuple(np.concatenate(list(self._column(m))) for m in range(self.n_modes))

    @property
    def time(self) -> NDArray[Any] | None:
        """When values were observed, brought here; None where it is not known."""
        return np.concatenate(list(self._column(self.n_modes + 1))) if self.has_time else None

    @property
    def n_modes(self) -> int:
        """The number of id columns."""
        return len(self.ids)

    def _column(self, number: int) -> Iterator[NDArray[Any]]:
        """Bring a column here, chunk by chunk."""
        pick = workers.library().remote(_column).options(num_cpus=0)
        for chunk in self.chunks:
            yield workers.take([pick.remote(chunk, number)])[0]

    def columns(self) -> Iterator[Iterator[NDArray[Any]] | None]:
        """Return all columns in chunks: row numbers, values, and times or None."""
        for mode in range(self.n_modes):
            yield self._column(mode)
        yield iter([self.values])
        yield self._column(self.n_modes + 1) if self.has_time else None

    def take(self, index: NDArray[Any] | slice) -> Observations:
        """Return some of the observations; values come in the order of the index."""
        chosen = np.zeros(len(self), dtype=bool)
        chosen[index] = True
        cuts = np.concatenate([[0], np.cumsum(self.sizes)]).tolist()
        masks = [chosen[i:j] for i, j in pairwise(cuts)]
        some = workers.library().remote(_some).options(num_cpus=0)
        chunks = [some.remote(*pair) for pair in zip(self.chunks, masks, strict=True)]
        sizes = [int(mask.sum()) for mask in masks]
        return SpreadObservations(chunks, sizes, self.values[index], self.ids, self.has_time)

    def here(self, index: NDArray[Any]) -> Observations:
        """Bring some of the observations here, in the order of the index."""
        some = self.take(np.sort(index))
        order = np.argsort(np.argsort(index, kind="stable"), kind="stable")
        return Observations(some.codes, some.values, some.ids, some.time).take(order)

    def with_ids(self, ids: tuple[Ids, ...]) -> SpreadObservations:
        """Return the same observations with longer ids."""
        return SpreadObservations(self.chunks, self.sizes, self.values, ids, self.has_time)

    def joined(self, other: Observations) -> SpreadObservations:
        """Return all observations of both, with the ids of the other."""
        more = SpreadObservations.of(other)
        has_time = self.has_time and more.has_time
        return SpreadObservations(
            [*self.chunks, *more.chunks], [*self.sizes, *more.sizes],
            np.append(self.values, other.values), other.ids, has_time,
        )  # fmt: skip

    def counts(self) -> tuple[Counts, ...]:
        """Count the observations of every id of every mode."""
        count = workers.library().remote(_counts).options(num_cpus=0)
        totals = [np.zeros(n, dtype=np.int64) for n in self.shape]
        for chunk in self.chunks:
            for total, own in zip(
                totals, workers.take([count.remote(chunk, self.shape)])[0], strict=True
            ):
                total += own
        return tuple(totals)


def here(seen: Observations, index: NDArray[Any]) -> Observations:
    """Return some observations, in the order of the index, which are here wherever they were."""
    return seen.here(index) if isinstance(seen, SpreadObservations) else seen.take(index)


def _column(chunk: tuple[Any, ...], number: int) -> NDArray[Any]:
    return np.asarray(chunk[number])


def _some(chunk: tuple[Any, ...], mask: NDArray[np.bool_]) -> tuple[Any, ...]:
    return tuple(column[mask] for column in chunk)


def _counts(chunk: tuple[Any, ...], shape: tuple[int, ...]) -> list[Counts]:
    return [np.bincount(chunk[m], minlength=n) for m, n in enumerate(shape)]
