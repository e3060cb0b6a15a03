"""Arrays with holes: of numpy and xarray, and NetCDF files (extra: xarray).

Arrays of numpy are samples x features as scikit-learn has them, or tensors over time; every
dimension of an array of xarray is a mode. NetCDF 4 is read by the HDF5 library, which a file that
was made to do so can crash or keep busy for ever: take such files only from those you trust.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.data.reader import check_unpacked, most_unpacked
from noisewise.data.tables_with_holes import (
    LabelledArray,
    Mask,
    Mode,
    Roles,
    column_modes,
    refuse,
    refuse_repeats,
    row_mode,
    sensor_mode,
    time_mode,
)
from noisewise.data.timestamps import Clock, Floats
from noisewise.errors import DataError, MissingExtraError, listed, shortened
from noisewise.storage import write_bytes

_HDF5 = b"\x89HDF\r\n\x1a\n"


def _time_axis(n_dimensions: int, time: Any) -> int:
    """Return the axis of time: the first of two, the last of more, or the one that is named."""
    if time is None:
        return 0 if n_dimensions <= 2 else n_dimensions - 1
    if not isinstance(time, int) or not -n_dimensions <= time < n_dimensions:
        refuse("time", time, f"the number of one of {n_dimensions} axes")
    return time % n_dimensions


def read_array(X: NDArray[Any], roles: Roles) -> LabelledArray:
    """Read an array of numbers of two or more dimensions."""
    if X.ndim < 2:
        raise DataError(f"X must have two dimensions or more, times x series; got shape {X.shape}.")
    if roles.value is not None:
        refuse("value", roles.value, "None, as only long frames have a column of values,")
    time = _time_axis(X.ndim, roles.time)
    others = [axis for axis in range(X.ndim) if axis != time]
    if len(others) == 1:
        modes, sensor = column_modes(range(X.shape[others[0]]), roles, others[0])
    else:
        if roles.location is not None:
            refuse("location", roles.location, "None, as every axis is a mode,")
        modes = [Mode.of(np.arange(X.shape[axis]), f"axis{axis}", axis) for axis in others]
        sensor = sensor_mode(modes, _among(others, roles.sensor, X.ndim))
    values = np.ascontiguousarray(X, dtype=np.float64)
    rows = row_mode(X.shape[time], time)
    return LabelledArray(
        values, (*modes, rows), sensor, "rows", lambda new, where: put_array(X, new, where)
    )


def put_array(X: NDArray[Any], values: Floats, where: Mask) -> NDArray[Any]:
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
        refuse("sensor", sensor, f"one of the axes {others}, 'auto' or None")
    return others.index(axis)


def read_xarray(X: Any, roles: Roles) -> LabelledArray:
    """Read a DataArray, or a Dataset, whose variables over time are the sensors."""
    for setting in ("location", "value"):
        got = getattr(roles, setting)
        if got is not None:
            refuse(setting, got, "None, as every dimension is a mode,")
    time = "time" if roles.time is None else roles.time
    return _dataset(X, time, roles) if hasattr(X, "data_vars") else _array(X, time, roles)


def _array(X: Any, time: Any, roles: Roles) -> LabelledArray:
    if time not in X.dims:
        raise DataError(
            f"X needs a dimension {time!r}; it has {list(X.dims)}: name the one that is time with "
            "time=."
        )
    modes = [_dimension(X, dim, axis) for axis, dim in enumerate(X.dims) if dim != time]
    if not modes:
        modes = [Mode.of([str(X.name)] * X.size, "series", 0)]
    rows, clock = _xarray_rows(X, time, X.dims.index(time), roles)
    sensor = sensor_mode(modes, roles.sensor)

    def fill(new: Floats, where: Mask) -> Any:
        return X.copy(data=put_array(X.values, new, where))

    return LabelledArray(_xarray_numbers(X), (*modes, rows), sensor, clock, fill)


def _dataset(X: Any, time: Any, roles: Roles) -> LabelledArray:
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
        refuse("sensor", roles.sensor, "'auto', as each variable is a sensor,")
    parts = [X[name].transpose(*dims) for name in names]
    modes = [Mode.of(names, "variable", 0)]
    modes += [_dimension(X, dim, axis) for axis, dim in enumerate(dims, 1) if dim != time]
    rows, clock = _xarray_rows(X, time, 1 + dims.index(time), roles)
    values = np.stack([_xarray_numbers(part) for part in parts])

    def fill(new: Floats, where: Mask) -> Any:
        filled = {
            name: part.copy(data=put_array(part.values, *own)).transpose(*X[name].dims)
            for name, part, *own in zip(names, parts, new, where, strict=True)
        }
        return X.assign(filled)

    return LabelledArray(values, (*modes, rows), 0, clock, fill)


def _dimension(X: Any, dim: Any, axis: int) -> Mode:
    labels = X.indexes[dim].tolist() if dim in X.indexes else np.arange(X.sizes[dim])
    return Mode.of(labels, str(dim), axis)


def _xarray_rows(X: Any, time: Any, axis: int, roles: Roles) -> tuple[Mode, Clock]:
    if not X.sizes[time]:
        raise DataError(f"X has no {time!r}; there is nothing to learn from or to fill.")
    if time not in X.indexes:
        return row_mode(X.sizes[time], axis), "rows"
    stamps = X[time].values
    rows, clock = time_mode(stamps, f"Dimension {time!r}", axis)
    if roles.duplicates == "error":
        refuse_repeats([rows], "time stamp", lambda row: str(stamps[row]))
    return rows, clock


def _xarray_numbers(X: Any) -> Floats:
    if X.dtype.kind not in "biuf":
        raise DataError(f"{X.name or 'X'} must hold numbers; got {X.dtype}.")
    return np.ascontiguousarray(X.values, dtype=np.float64)


def read_netcdf(
    path: Path, time: str | None, sensor: str | None, value: str | None
) -> tuple[Any, dict[str, Any], Callable[[Path, Any, Any], list[Path]], list[str]]:
    """Read a file: the variable ``value``, or all over time, which are the sensors then.

    Table, options, write and names are as ``Gapped`` has them. Written back, each variable has two
    more beside it: the std, 0 at readings, and ``NAME_imputed``, 1 where a gap was filled.
    """
    try:
        import h5py
        import xarray
    except ImportError:
        raise MissingExtraError("Reading NetCDF", "xarray") from None
    most = most_unpacked(path)
    try:
        # The content is opened and not the path, under which a broken file could stay open.
        with path.open("rb") as content:
            if content.read(len(_HDF5)) == _HDF5:
                with h5py.File(content, "r") as whole:
                    _look_through(whole)
            content.seek(0)
            with xarray.open_dataset(content) as file:
                check_unpacked(file.nbytes, most)
                data = file.load()
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # of broken files, xarray and what it reads with raise anything
        raise DataError(f"{path} cannot be read as NetCDF: {shortened(error)}") from error
    time = time or "time"
    over_time = [str(name) for name, part in data.data_vars.items() if time in part.dims]
    names = over_time if value is None else [value]
    if not names or names[0] not in over_time:
        raise DataError(
            f"{path} needs variables with the dimension {time!r}; it has {listed(over_time)} of "
            f"them, and the dimensions {listed(list(data.dims))}."
        )
    options: dict[str, Any] = {"time": time} | ({} if sensor is None else {"sensor": sensor})

    def write(out: Path, filled: Any, std: Any) -> list[Path]:
        added = {}
        for name in names:
            whole, spread = (filled, std) if value is not None else (filled[name], std[name])
            added[name] = whole
            added[f"{name}_std"] = spread.drop_attrs()
            added[f"{name}_imputed"] = (data[name].isnull() & whole.notnull()).astype("int8")
        with tempfile.TemporaryDirectory() as folder:
            whole_file = Path(folder, out.name)
            try:
                data.assign(added).to_netcdf(whole_file)
            except (ValueError, TypeError, RuntimeError) as error:  # of names and attributes
                raise DataError(f"{out} cannot be written as NetCDF: {shortened(error)}") from error
            write_bytes(out, whole_file.read_bytes())
        return [out]

    return data[value] if value is not None else data, options, write, over_time


def _look_through(whole: Any) -> None:
    """Look at every part of an HDF5 file: h5netcdf does not clean up after what it cannot open."""

    def look(name: str, part: Any) -> None:
        dict(part.attrs)

    look("", whole)
    whole.visititems(look)
