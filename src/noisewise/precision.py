"""When single precision is too coarse for values: they are then kept, and predicted, in double.

Learning works on values that are centred and divided by their std, in single precision. Values far
from 0 for their spread (an offset of 1e8) lose their digits if they are made single before that,
and squares of very small or large ones leave its range.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

COARSE = 1e-4  # of the std: what may be lost in rounding
SMALLEST, LARGEST = 1e-15, 1e15  # stds whose squares, and parts of these, single precision can hold
CHUNK = 1_000_000  # values whose squares are held at a time

Values = npt.NDArray[Any]


def too_coarse(largest: float, std: float) -> bool:
    """Tell whether single precision is too coarse for values of this size and spread.

    Examples
    --------
    >>> too_coarse(5.0, 1.1), too_coarse(101_330.0, 3.0), too_coarse(1e-22, 1e-23)
    (False, True, True)
    """
    step = float(np.finfo(np.float32).eps) * largest
    return step > COARSE * std or not SMALLEST <= std <= LARGEST


def fitting(values: Values) -> Values:
    """Return finite values in single precision where that is enough, else in double.

    Values that are all alike are single if that does not change them.

    Examples
    --------
    >>> fitting(np.array([1.0, 3.5, 5.0])).dtype, fitting(1e8 + np.array([1.0, 3.5, 5.0])).dtype
    (dtype('float32'), dtype('float64'))
    """
    single = values.astype(np.float32)
    if not len(values):
        return single
    low, high = float(values.min()), float(values.max())
    if low == high:
        coarse = float(single[0]) != low
    else:
        coarse = too_coarse(max(abs(low), abs(high)), _std(values))
    return values.astype(np.float64) if coarse else single


def standardised(values: Values, location: float, scale: float) -> npt.NDArray[np.float32]:
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


def _std(values: Values) -> float:
    mean = float(values.mean(dtype=np.float64))
    chunks = (values[k : k + CHUNK].astype(np.float64) for k in range(0, len(values), CHUNK))
    return math.sqrt(sum(float(np.square(chunk - mean).sum()) for chunk in chunks) / len(values))
