"""Features of rows as a sparse matrix, and where what is drawn for them has its place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from noisewise.engine.arrays import Codes, Floats, Ints
from noisewise.errors import brief


class Columns(NamedTuple):
    """A sparse matrix by columns: feature l is there in the rows ``members[starts[l]:...]``.

    Its entry k is ``values[k]``, or 1 where there are no values, times the share of its row.
    """

    starts: Ints
    members: Codes
    shares: Floats
    values: Floats


@dataclass(frozen=True)
class Design:
    """Features of the rows of a mode; those of one field have a strength in common.

    ``matrix`` is scipy's, a row for each row of the mode; the features of field g are
    ``bounds[g]:bounds[g + 1]``.
    """

    matrix: Any
    bounds: Ints

    __repr__ = brief

    def __len__(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def n_fields(self) -> int:
        """The number of fields."""
        return len(self.bounds) - 1

    def columns(self, shares: Floats) -> Columns:
        """Return the matrix by columns, each row of it times a share."""
        found = self.matrix.tocsc()
        members, values = found.indices.astype(np.int32), found.data.astype(np.float32)
        return Columns(found.indptr.astype(np.int64), members, shares, values)


class Place(NamedTuple):
    """Where the features of a mode are among those of all modes, and their fields."""

    features: slice
    fields: slice


@dataclass(frozen=True)
class Designs:
    """The features of all modes; None for a mode that has none."""

    of_modes: tuple[Design | None, ...] = ()

    def __bool__(self) -> bool:
        return any(design is not None for design in self.of_modes)

    def of(self, mode: int) -> Design | None:
        """Return the features of a mode, if it has any."""
        return self.of_modes[mode] if self.of_modes else None

    def __getitem__(self, mode: int) -> Design:
        found = self.of(mode)
        if found is None:
            raise KeyError(mode)
        return found

    @cached_property
    def places(self) -> list[Place]:
        """Where those of each mode are when they are laid one after another."""
        sizes = [(0, 0) if d is None else (len(d), d.n_fields) for d in self.of_modes]
        ends = np.cumsum([(0, 0), *sizes], axis=0).tolist()
        return [Place(slice(a[0], b[0]), slice(a[1], b[1])) for a, b in pairwise(ends)]

    @property
    def size(self) -> tuple[int, int]:
        """The number of features and of fields of all modes."""
        if not self.of_modes:
            return 0, 0
        return self.places[-1].features.stop, self.places[-1].fields.stop
