"""Arrays of draws that are in several places: rows are taken from there as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from noisewise.engine.arrays import Ints, Values
from noisewise.engine.rounding import coded
from noisewise.errors import DataError


class Pieces(NamedTuple):
    """An array that is never here as a whole: what it consists of, made one after the other."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    make: Callable[[], Iterable[Values]]

    def pieces(self) -> Iterable[Values]:
        """Return arrays whose numbers follow each other."""
        return self.make()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        found = np.concatenate([np.empty(0, self.dtype), *map(np.ravel, self.make())])
        return found.reshape(self.shape).astype(dtype or self.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Sharded:
    """Draws (the first axis) of rows (the second), that lie in shards.

    ``open`` returns for every shard an array of all draws of its rows, which may be a map of a
    file; shards follow each other as rows do. What is pickled is where they are.

    Examples
    --------
    >>> both = Sharded(lambda: [np.arange(4).reshape(2, 2), np.array([[7], [8]])], rounded=False)
    >>> both.shape
    (2, 3)
    >>> both[1][np.array([2, 0])].tolist()
    [8, 2]
    """

    open: Callable[[], Sequence[Values]]
    rounded: bool  # whether all rows take a byte a number (see ``rounding``)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sharded, (self.open, self.rounded)

    @cached_property
    def shards(self) -> tuple[Values, ...]:
        """The array of every shard."""
        return tuple(self.open())

    @cached_property
    def starts(self) -> Ints:
        """The first row of every shard, and the number of all rows."""
        return np.cumsum([0, *(shard.shape[1] for shard in self.shards)])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of numbers."""
        return self.shards[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Draws, rows, and what a row has."""
        return (len(self), int(self.starts[-1]), *self.shards[0].shape[2:])

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return len(self.shards[0])

    def __getitem__(self, key: Any) -> Any:
        """Return one draw, whose rows are not here yet, or some rows of some draws."""
        if not isinstance(key, tuple):
            return OneDraw(self, key)
        some, rows = key
        return np.stack([self[draw][rows] for draw in np.arange(len(self))[some]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        return np.concatenate(self.shards, axis=1).astype(dtype or self.dtype, copy=False)

    def copy(self) -> Values:
        """Bring everything here."""
        return np.asarray(self)

    def pieces(self) -> Iterator[Values]:
        """Return everything, a draw of a shard at a time."""
        for draw in range(len(self)):
            for shard in self.shards:
                yield shard[draw]

    def coded(self) -> tuple[Pieces, Pieces] | None:
        """Return multiples and powers of all rows as bytes; None unless all were rounded."""
        if not self.rounded:
            return None

        def part(number: int) -> Iterator[Values]:
            for piece in self.pieces():
                both = coded(piece)
                if both is None:
                    raise DataError("Shards hold numbers that are not rounded as they should be.")
                yield both[number]

        byte = np.dtype(np.uint8)
        return (
            Pieces(byte, self.shape, lambda: part(0)),
            Pieces(byte, self.shape[:-1], lambda: part(1)),
        )


@dataclass(frozen=True, eq=False)
class OneDraw:
    """One draw of what is sharded."""

    of: Sharded
    number: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of numbers."""
        return self.of.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and what a row has."""
        return self.of.shape[1:]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """Bring rows here: of a number, of several, or of a slice."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        index = np.asarray(rows, dtype=np.int64)
        owners = np.searchsorted(self.of.starts, index.ravel(), side="right") - 1
        found = np.empty((index.size, *self.shape[1:]), dtype=self.dtype)
        for owner in np.unique(owners):
            own = owners == owner
            places = index.ravel()[own] - self.of.starts[owner]
            found[own] = self.of.shards[owner][self.number][places]
        return found.reshape((*index.shape, *self.shape[1:]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        whole = np.concatenate([shard[self.number] for shard in self.of.shards])
        return whole.astype(dtype or self.dtype, copy=False)

    def astype(self, dtype: Any) -> Values:
        """Bring all rows here."""
        return np.asarray(self).astype(dtype)
