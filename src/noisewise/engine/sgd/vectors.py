"""Vectors inside compiled loops: sixteen floats at a time where numba allows it, else one.

``wide`` tells numba of a type of its own, by ways that another version of numba may not have. So it
is tried once, when this file is imported; where it fails, or gives wrong numbers, ``narrow`` takes
its place, and a warning says so. ``NOISEWISE_VECTORS=narrow`` asks for that without a trial.

A loop over factors goes on by ``STEP``. Rows are padded to whole ``LANES`` in either case, so that
a model has the same arrays.
"""

import importlib
import os
import warnings
from types import ModuleType

import numba

LANES = 16
CHOICES = ("wide", "narrow")


def choose() -> ModuleType:
    """Return the module whose vectors compiled loops use here."""
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
    return importlib.import_module("noisewise.engine.sgd.narrow")


_chosen = choose()
STEP: int = _chosen.STEP
# numba's cache does not know which of the two a loop was compiled with.
CACHE = "NOISEWISE_VECTORS" not in os.environ

inverse_root, load, positive = _chosen.inverse_root, _chosen.load, _chosen.positive
store, total, zeros = _chosen.store, _chosen.total, _chosen.zeros
