"""Arrays with holes: of numpy and xarray (extra: xarray).

Arrays of numpy are samples x features as scikit-learn has them, or tensors over time; every
dimension of an array of xarray is a mode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.data import tables_with_holes as holes
from noisewise.data.timestamps import Clock, Floats
from noisewise.errors import DataError


def time_axis(n_dimensions: int, time: Any) -> int:
    """Return the axis of time: the first of two, the last of more, or the one that is named."""
    if time is None:
        return 0 if n_dimensions <= 2 else n_dimensions - 1
    if not isinstance(time, int) or not -n_dimensions <= time < n_dimensions:
        holes.refuse("time", time, f"the number of one of {n_dimensions} axes")
    return time % n_dimensions


def read_array(X: NDArray[Any], roles: holes.Roles) -> holes.LabelledArray:
    """Read an array of numbers of two or more dimensions."""
    if X.ndim < 2:
        raise DataError(f"X must have two dimensions or more, times x series; got shape {X.shape}.")
    if roles.value is not None:
        holes.refuse("value", roles.value, "None, as only long frames have a column of values,")
    time = time_axis(X.ndim, roles.time)
    others = [axis for axis in range(X.ndim) if axis != time]
    if len(others) == 1:
        modes, sensor = holes.column_modes(range(X.shape[others[0]]), roles, others[0])
    else:
        if roles.location is not None:
            holes.refuse("location", roles.location, "None, as every axis is a mode,")
        modes = [holes.Mode.of(np.arange(X.shape[axis]), f"axis{axis}", axis) for axis in others]
        sensor = holes.sensor_mode(modes, _among(others, roles.sensor, X.ndim))
    values = np.ascontiguousarray(X, dtype=np.float64)
    rows = holes.row_mode(X.shape[time], time)
    return holes.LabelledArray(
        values, (*modes, rows), sensor, "rows", lambda new, where: put_array(X, new, where)
    )


def put_array(X: NDArray[Any], values: Floats, where: holes.Mask) -> NDArray[Any]:
    """Return a copy of an array with other values at some places; whole numbers become floats."""
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
        holes.refuse("sensor", sensor, f"one of the axes {others}, 'auto' or None")
    return others.index(axis)


def read_xarray(X: Any, roles: holes.Roles) -> holes.LabelledArray:
    """Read a DataArray, or a Dataset, whose variables over time are the sensors."""
    for setting in ("location", "value"):
        got = getattr(roles, setting)
        if got is not None:
            holes.refuse(setting, got, "None, as every dimension is a mode,")
    time = "time" if roles.time is None else roles.time
    return _dataset(X, time, roles) if hasattr(X, "data_vars") else _array(X, time, roles)


def _array(X: Any, time: Any, roles: holes.Roles) -> holes.LabelledArray:
    if time not in X.dims:
        raise DataError(
            f"X needs a dimension {time!r}; it has {list(X.dims)}: name the one that is time with "
            "time=."
        )
    modes = [_dimension(X, dim, axis) for axis, dim in enumerate(X.dims) if dim != time]
    if not modes:
        modes = [holes.Mode.of([str(X.name)] * X.size, "series", 0)]
    rows, clock = _xarray_rows(X, time, X.dims.index(time), roles)
    sensor = holes.sensor_mode(modes, roles.sensor)

    def fill(new: Floats, where: holes.Mask) -> Any:
        return X.copy(data=put_array(X.values, new, where))

    return holes.LabelledArray(_xarray_numbers(X), (*modes, rows), sensor, clock, fill)


def _dataset(X: Any, time: Any, roles: holes.Roles) -> holes.LabelledArray:
    names = [name for name, part in X.data_vars.items() if time in part.dims]
    if not names:
        raise DataError(
            f"X needs variables with the dimension {time!r}; its dimensions are {list(X.dims)}: "
            "name the one that is time with time=."
        )
    dims = X[names[0]].dims
    other = next((name for name in names if set(X[name].dims) != set(dims)), None)
    if other is not None:
        raise DataError(
            f"Variables over {time!r} must have the same dimensions; got {dims} for {names[0]!r} "
            f"and {X[other].dims} for {other!r}: fill them one at a time."
        )
    if roles.sensor not in ("auto", "variable"):
        holes.refuse("sensor", roles.sensor, "'auto', as each variable is a sensor,")
    parts = [X[name].transpose(*dims) for name in names]
    modes = [holes.Mode.of(names, "variable", 0)]
    modes += [_dimension(X, dim, axis) for axis, dim in enumerate(dims, 1) if dim != time]
    rows, clock = _xarray_rows(X, time, 1 + dims.index(time), roles)
    values = np.stack([_xarray_numbers(part) for part in parts])

    def fill(new: Floats, where: holes.Mask) -> Any:
        filled = {
            name: part.copy(data=put_array(part.values, *own)).transpose(*X[name].dims)
            for name, part, *own in zip(names, parts, new, where, strict=True)
        }
        return X.assign(filled)

    return holes.LabelledArray(values, (*modes, rows), 0, clock, fill)


def _dimension(X: Any, dim: Any, axis: int) -> holes.Mode:
    labels = X.indexes[dim].tolist() if dim in X.indexes else np.arange(X.sizes[dim])
    return holes.Mode.of(labels, str(dim), axis)


def _xarray_rows(X: Any, time: Any, axis: int, roles: holes.Roles) -> tuple[holes.Mode, Clock]:
    if not X.sizes[time]:
        raise DataError(f"X has no {time!r}; there is nothing to learn from or to fill.")
    if time not in X.indexes:
        return holes.row_mode(X.sizes[time], axis), "rows"
    stamps = X[time].values
    rows, clock = holes.time_mode(stamps, f"Dimension {time!r}", axis)
    if roles.duplicates == "error":
        holes.refuse_repeats([rows], "time stamp", lambda row: str(stamps[row]))
    return rows, clock


def _xarray_numbers(X: Any) -> Floats:
    if X.dtype.kind not in "biuf":
        raise DataError(f"{X.name or 'X'} must hold numbers; got {X.dtype}.")
    return np.ascontiguousarray(X.values, dtype=np.float64)
