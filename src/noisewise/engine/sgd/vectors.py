"""Vectors inside compiled loops: sixteen floats at a time where numba allows it, else one.

``wide`` tells numba of a type of its own, by ways that another version of numba may not have. So it
is tried once; where it fails, or gives wrong numbers, ``NARROW`` takes its place, and a warning
says so. A loop over factors goes on by ``STEP``; rows are padded to whole ``LANES`` in either case.
One float at a time, sums come in another order, and an inverse root is exact: models agree to three
digits or so, and not to the bit.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators
# as numba infers the types

import importlib
import os
import warnings
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
from numba import njit

LANES = 16
CHOICES = ("wide", "narrow")
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@njit(inline="always")
def _store(matrix, row, column, x):
    matrix[row, column] = x


@njit(fastmath=True, error_model="numpy", inline="always")
def _inverse_root(x):
    return _ONE / np.sqrt(x)


NARROW = SimpleNamespace(  # of one float
    STEP=1,
    zeros=njit(inline="always")(lambda: _ZERO),
    load=njit(inline="always")(lambda matrix, row, column: matrix[row, column]),
    store=_store,
    total=njit(inline="always")(lambda x: x),
    positive=njit(inline="always")(lambda x: max(x, _ZERO)),
    inverse_root=_inverse_root,
)


def choose() -> Any:
    """Return what has the vectors that compiled loops use here: ``wide`` or ``NARROW``."""
    asked = os.environ.get("NOISEWISE_VECTORS", "wide")
    if asked not in CHOICES:
        raise ImportError(f"NOISEWISE_VECTORS must be one of {', '.join(CHOICES)}; got {asked!r}.")
    if asked == "wide":
        try:
            wide = importlib.import_module("noisewise.engine.sgd.wide")
            wide.check()
            return wide
        except Exception as error:  # what a version of numba to come may raise is unknown
            warnings.warn(
                f"Vectors do not work with numba {numba.__version__} ({type(error).__name__}: "
                f"{error}), so training goes one float at a time, which takes longer. An earlier "
                "numba helps.",
                RuntimeWarning,
                stacklevel=2,
            )
    return NARROW


_chosen = choose()
STEP: int = _chosen.STEP
# numba's cache does not know which of the two a loop was compiled with.
CACHE = "NOISEWISE_VECTORS" not in os.environ

inverse_root: Any = _chosen.inverse_root
load: Any = _chosen.load
positive: Any = _chosen.positive
store: Any = _chosen.store
total: Any = _chosen.total
zeros: Any = _chosen.zeros
