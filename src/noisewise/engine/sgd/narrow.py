"""One float at a time: what ``wide`` does for sixteen, in plain numba.

Sums over the factors of a row come in another order, and an inverse root is exact here, where
``wide`` is content with 0.07 %: so models agree to three digits or so, and not to the bit.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators
# as numba infers the types

import numpy as np
from numba import njit

STEP = 1
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@njit(inline="always")
def zeros():
    """Return zero."""
    return _ZERO


@njit(inline="always")
def load(matrix, row, column):
    """Return what stands in a row of a matrix at a column."""
    return matrix[row, column]


@njit(inline="always")
def store(matrix, row, column, x):
    """Put a float into a row of a matrix at a column."""
    matrix[row, column] = x


@njit(inline="always")
def total(x):
    """Return the float itself."""
    return x


@njit(inline="always")
def positive(x):
    """Return zero for what is negative."""
    return max(x, _ZERO)


@njit(fastmath=True, error_model="numpy", inline="always")
def inverse_root(x):
    """Return 1 / sqrt(x)."""
    return _ONE / np.sqrt(x)
