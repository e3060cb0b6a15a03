"""Types of arrays, moments of predictions, and single precision: standardised values and back.

Learning works on values that are centred and divided by their std, in single precision; where
that is too coarse for the values themselves, they come and go in double.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.errors import too_coarse

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Values = npt.NDArray[Any]


class Moments(NamedTuple):
    """Mean of cells, and their variance told apart: noise, and epistemic, of rows hardly known."""

    mean: Floats
    noise: Floats
    epistemic: Floats


def standardised(values: Values, location: float, scale: float) -> Floats:
    """Return values centred and scaled, in single precision, from the precision that they have."""
    if values.dtype == np.float64:
        return ((values - location) / scale).astype(np.float32)
    return (values - np.float32(location)) / np.float32(scale)


def mean_in_units(mean: Values, location: float, scale: float) -> Values:
    """Undo `standardised` for predictions; in double precision where single is too coarse."""
    if too_coarse(abs(location), scale):
        return location + scale * mean.astype(np.float64)
    return np.float32(location) + np.float32(scale) * mean


def variance_in_units(variance: Values, location: float, scale: float) -> Values:
    """Return variances in units of the values, in the precision of `mean_in_units`."""
    if too_coarse(abs(location), scale):
        return scale**2 * variance.astype(np.float64)
    return np.float32(scale**2) * variance
