"""Cells that are given more than once: found by one sort, settled by keeping or averaging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Duplicates: TypeAlias = Literal["error", "last", "mean"]


class Groups(NamedTuple):
    """Observations grouped by cell; within a cell they keep their order."""

    order: NDArray[np.intp]
    starts: NDArray[np.intp]
    counts: NDArray[np.intp]

    def firsts(self) -> NDArray[np.intp]:
        """Return the first observation of every cell."""
        return self.order[self.starts]

    def lasts(self) -> NDArray[np.intp]:
        """Return the last observation of every cell."""
        lasts: NDArray[np.intp] = self.order[self.starts + self.counts - 1]
        return lasts

    def means(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean value of every cell."""
        sums = np.add.reduceat(values[self.order].astype(np.float64), self.starts)
        return np.asarray(sums / self.counts)


def check_duplicates(duplicates: str) -> None:
    """Raise unless the choice is one there is."""
    if duplicates not in ("error", "last", "mean"):
        raise ValueError(f"duplicates must be 'error', 'last' or 'mean'; got {duplicates!r}.")


def group_cells(codes: Sequence[NDArray[np.int32]], shape: Sequence[int]) -> Groups | None:
    """Group observations by cell.

    Parameters
    ----------
    codes : sequence of ndarray of int32
        For each mode, the row number of every observation; at least one observation.
    shape : sequence of int
        The number of rows in each mode.

    Returns
    -------
    Groups or None
        None when no cell occurs twice.

    Examples
    --------
    >>> groups = group_cells([np.array([0, 1, 0]), np.array([2, 2, 2])], (2, 3))
    >>> groups.lasts().tolist()
    [2, 1]
    """
    # Most data has no duplicates, and a plain sort shows that many times faster than an argsort.
    cells = _number_cells(codes, shape)
    cells.sort()
    if np.all(cells[1:] != cells[:-1]):
        return None
    cells = _number_cells(codes, shape)
    order = np.argsort(cells, kind="stable")
    cells = cells[order]
    starts = np.flatnonzero(np.concatenate([[True], cells[1:] != cells[:-1]]))
    return Groups(order, starts, np.diff(starts, append=len(order)))


def _number_cells(codes: Sequence[NDArray[np.int32]], shape: Sequence[int]) -> NDArray[np.int64]:
    """Return a number per observation; two have the same only if they are of the same cell."""
    cells, size = codes[0].astype(np.int64), shape[0]
    for more, length in zip(codes[1:], shape[1:], strict=True):
        if size * length >= 2**63:  # too many cells for int64, so number only those that occur
            cells, size = np.unique(cells, return_inverse=True)[1], len(cells)
        cells = cells * length + more
        size *= length
    return cells
