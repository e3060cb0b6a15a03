"""Rows by alternating least squares: what they were observed with, summed; and solved.

Rows are independent of each other, so threads share them out. A symmetric matrix is packed as its
lower triangle, row after row.

All indices are unsigned: numba vectorises no loop whose index may be negative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

_ONE = np.uintp(1)


@dataclass(frozen=True)
class Grouped:
    """Observations of one mode by row: of row n, those from ``starts[n]`` to ``starts[n + 1]``."""

    starts: npt.NDArray[np.int64]
    others: Codes
    values: Array

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Observations of every row."""
        return np.diff(self.starts)


def grouped(codes: tuple[Codes, ...], values: Any, shape: tuple[int, ...]) -> tuple[Grouped, ...]:
    """Group observations by the rows of either mode."""
    groups = []
    for mode, n in enumerate(shape):
        order = np.argsort(codes[mode], kind="stable")
        starts = np.append(0, np.cumsum(np.bincount(codes[mode], minlength=n)))
        groups.append(Grouped(starts, codes[1 - mode][order], values[order].astype(np.float64)))
    return tuple(groups)


def gathered(side: Grouped, part: slice, moments: Array) -> tuple[Array, ...]:
    """Sum over the observations of some rows what is known of the rows of the other mode.

    Parameters
    ----------
    side
        The observations.
    part
        The rows.
    moments
        For every row of the other mode a packed matrix; the end of it is a vector, and its last
        entry a weight.

    Returns
    -------
    counts, sums, products, squares
        Of every row in ``part``: how many observations, the sum of their matrices, of their vectors
        times the value, and of their weights times its square.
    """
    n, width = part.stop - part.start, moments.shape[1]
    size = (math.isqrt(8 * width + 1) - 1) // 2
    sums, products, squares = np.zeros((n, width)), np.zeros((n, size)), np.zeros(n)
    starts = side.starts[part.start : part.stop + 1]
    _gather(starts, side.others, side.values, moments, sums, products, squares)
    return np.diff(starts), sums, products, squares


def inverted(A: Array) -> tuple[Array, Array]:
    """Return the inverses of positive definite matrices, and the logs of their determinants."""
    inverse, log_det = np.empty_like(A), np.empty(len(A))
    _invert(A.copy(), inverse, log_det)
    return inverse, log_det


def unpacked(packed: Array, size: int) -> Array:
    """Return matrices of ``size`` rows from their packed triangles."""
    i, j = np.tril_indices(size)
    full = np.empty((len(packed), size, size))
    full[:, i, j] = full[:, j, i] = packed
    return full


@njit(nogil=True, cache=True, error_model="numpy", fastmath=True)  # type: ignore[untyped-decorator]
def _gather(
    starts: Any, others: Any, values: Any, moments: Any, sums: Any, products: Any, squares: Any
) -> None:
    """Add up what ``gathered`` returns."""
    width, size = np.uintp(moments.shape[1]), np.uintp(products.shape[1])
    end = width - size
    for row in range(len(starts) - 1):
        r = np.uintp(row)
        for n in range(starts[row], starts[row + 1]):
            m, y = np.uintp(others[n]), values[n]
            for p in range(width):
                sums[r, p] += moments[m, p]
            for p in range(size):
                products[r, p] += y * moments[m, end + p]
            squares[r] += y * y * moments[m, width - _ONE]


@njit(nogil=True, cache=True, error_model="numpy", fastmath=True)  # type: ignore[untyped-decorator]
def _invert(A: Any, inverse: Any, log_det: Any) -> None:
    """Invert positive definite matrices by their Cholesky roots; A is overwritten.

    Every inner loop runs along rows: ``inverse`` first holds the transposed inverse of the root.
    """
    size = np.uintp(A.shape[1])
    for matrix in range(len(A)):
        r = np.uintp(matrix)
        log_det[r] = 0.0
        for i in range(size):
            for j in range(i + _ONE):
                total = A[r, i, j]
                for k in range(j):
                    total -= A[r, i, k] * A[r, j, k]
                A[r, i, j] = math.sqrt(total) if i == j else total / A[r, j, j]
            log_det[r] += 2.0 * math.log(A[r, i, i])
        for j in range(size):
            inverse[r, j, j] = 1.0 / A[r, j, j]
            for i in range(j + _ONE, size):
                total = 0.0
                for k in range(j, i):
                    total -= A[r, i, k] * inverse[r, j, k]
                inverse[r, j, i] = total / A[r, i, i]
        for i in range(size):
            for j in range(i, size):
                total = 0.0
                for k in range(j, size):
                    total += inverse[r, i, k] * inverse[r, j, k]
                A[r, i, j] = A[r, j, i] = total
        inverse[r] = A[r]
