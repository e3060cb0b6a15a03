"""Arrays with holes: samples x features as scikit-learn has them, or tensors over time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.data.holes import (
    Floats,
    Layout,
    Mask,
    Mode,
    Table,
    column_modes,
    refuse,
    type_mode,
)
from noisewise.data.times import row_mode
from noisewise.errors import DataError


def time_axis(n_dimensions: int, time: Any) -> int:
    """Return the axis of time: the first of two, the last of more, or the one that is named.

    Examples
    --------
    >>> time_axis(2, None), time_axis(3, None), time_axis(3, -2)
    (0, 2, 1)
    """
    if time is None:
        return 0 if n_dimensions <= 2 else n_dimensions - 1
    if not isinstance(time, int) or not -n_dimensions <= time < n_dimensions:
        refuse("time", time, f"the number of one of {n_dimensions} axes")
    return time % n_dimensions


def read(X: NDArray[Any], layout: Layout) -> Table:
    """Read an array of numbers of two or more dimensions.

    Examples
    --------
    >>> table = read(np.array([[20.0, 55.0], [np.nan, 54.0]]), Layout())
    >>> table.names, table.group
    (('series', 'time'), 0)
    """
    if X.ndim < 2:
        raise DataError(f"X must have two dimensions or more, times x series; got shape {X.shape}.")
    if layout.value is not None:
        refuse("value", layout.value, "None, as only long frames have a column of values,")
    time = time_axis(X.ndim, layout.time)
    others = [axis for axis in range(X.ndim) if axis != time]
    if len(others) == 1:
        modes, group = column_modes(range(X.shape[others[0]]), layout, others[0])
    else:
        if layout.location is not None:
            refuse("location", layout.location, "None, as every axis is a mode,")
        modes = [Mode.of(np.arange(X.shape[axis]), f"axis{axis}", axis) for axis in others]
        group = type_mode(modes, _among(others, layout.sensor, X.ndim))
    values = np.ascontiguousarray(X, dtype=np.float64)
    rows = row_mode(X.shape[time], time)
    return Table(values, (*modes, rows), group, "rows", lambda new, where: put(X, new, where))


def put(X: NDArray[Any], values: Floats, where: Mask) -> NDArray[Any]:
    """Return a copy of an array with other values at some places; whole numbers become floats then.

    Examples
    --------
    >>> put(np.array([1, 2]), np.array([0.5, 0.5]), np.array([False, True])).tolist()
    [1.0, 0.5]
    """
    keep = X.dtype.kind == "f" or not where.any()
    out = X.copy(order="K") if keep else X.astype(np.float64)
    out[where] = values[where]
    return out


def _among(others: list[int], sensor: Any, n_dimensions: int) -> Any:
    """Return the place of an axis among those that are not time."""
    if not isinstance(sensor, int):
        return sensor
    axis = sensor + n_dimensions if sensor < 0 else sensor
    if axis not in others:
        refuse("sensor", sensor, f"one of the axes {others}, 'auto' or None")
    return others.index(axis)
