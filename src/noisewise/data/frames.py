"""Frames and arrays of xarray with holes: read alike, and written back as what they were.

A wide frame of pandas, polars or pyarrow has a column for each series, a long one a column of
values; every dimension of an array of xarray is a mode. What is written back is of the same
library, with the same labels and types; a column of whole numbers becomes one of floats only where
something in it was missing.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np

from noisewise.data.tables_with_holes import (
    SENSOR_NAMES,
    Floats,
    LabelledArray,
    Mask,
    Mode,
    Roles,
    column_modes,
    put_array,
    refuse,
    refuse_repeats,
    row_mode,
    sensor_mode,
    time_mode,
)
from noisewise.data.timestamps import Clock
from noisewise.errors import DataError


def as_frame(X: Any) -> nw.DataFrame[Any] | None:
    """Wrap a frame of any library; return None for what is no frame."""
    try:
        frame = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise DataError(f"Rename columns of X so that no two are alike. {error}") from None
    if isinstance(frame, nw.LazyFrame):
        raise DataError("X is a lazy frame; call its collect() first.")
    return frame if isinstance(frame, nw.DataFrame) else None


def read_frame(frame: nw.DataFrame[Any], roles: Roles) -> LabelledArray:
    """Read a frame: a long one if a column of values is named, else a wide one."""
    if not len(frame):
        raise DataError("X has 0 rows; there is nothing to learn from or to fill.")
    return _wide(frame, roles) if roles.value is None else _long(frame, roles)


def _wide(frame: nw.DataFrame[Any], roles: Roles) -> LabelledArray:
    columns = list(frame.iter_columns())
    time = None if roles.time is None else _place(frame, roles.time, "time")
    chosen = [k for k in range(len(columns)) if k != time]
    if not chosen:
        raise DataError(f"X needs a column for each series; it has only {frame.columns}.")
    rows, clock, entry = _rows(frame, columns, time)
    if roles.duplicates == "error":
        refuse_repeats([rows], "time stamp", entry)
    labels = [frame.columns[k] for k in chosen]
    levels = getattr(getattr(frame.to_native(), "columns", None), "nlevels", 1)
    if levels > 1:
        modes, sensor = _level_modes(frame.to_native().columns, labels, roles)
    else:
        modes, sensor = column_modes(labels, roles, axis=1)

    def put(new: Floats, where: Mask) -> Any:
        changed = np.flatnonzero(where.any(axis=0)).tolist()
        return _replaced(
            frame,
            {chosen[k]: _filled(columns[chosen[k]], new[:, k], where[:, k]) for k in changed},
        )

    values = np.column_stack([_numbers(columns[k]) for k in chosen])
    return LabelledArray(values, (*modes, rows), sensor, clock, put)


def _long(frame: nw.DataFrame[Any], roles: Roles) -> LabelledArray:
    columns = list(frame.iter_columns())
    at = _place(frame, roles.value, "value")
    if roles.time is None:
        refuse("time", None, "the name of the column with the times")
    rows, clock, _ = _rows(frame, columns, _place(frame, roles.time, "time"))
    column = roles.sensor
    if column == "auto" and column not in frame.columns:
        column = next((name for name in SENSOR_NAMES if name in frame.columns), None)
    named = {"location": roles.location, "sensor": column}
    given = {setting: name for setting, name in named.items() if name is not None}
    places = {setting: _place(frame, name, setting) for setting, name in given.items()}
    modes = [Mode.of(columns[k].to_native(), frame.columns[k], 0) for k in places.values()]
    sensor = len(modes) - 1 if "sensor" in places else None
    if not modes:
        modes = [Mode.of([roles.value] * len(frame), "series", 0)]
    if roles.duplicates == "error":
        who = [columns[k] for k in (*places.values(), frame.columns.index(roles.time))]
        refuse_repeats([*modes, rows], "cell", lambda row: tuple(str(c[row]) for c in who))

    def put(new: Floats, where: Mask) -> Any:
        changed = {at: _filled(columns[at], new, where)} if where.any() else {}
        return _replaced(frame, changed)

    return LabelledArray(_numbers(columns[at]), (*modes, rows), sensor, clock, put)


def _rows(
    frame: nw.DataFrame[Any], columns: list[nw.Series[Any]], time: int | None
) -> tuple[Mode, Clock, Callable[[int], Any]]:
    """Return the times of rows: from a column, else from the index, else their numbers."""
    if time is not None:
        column = columns[time]
        return *time_mode(column, f"Column {column.name!r}", 0), lambda row: str(column[row])
    index = nw.maybe_get_index(frame)
    plain = getattr(index, "start", None) == 0 and getattr(index, "step", None) == 1
    if index is None or plain:
        return row_mode(len(frame), 0), "rows", str
    if getattr(index, "nlevels", 1) > 1:
        raise DataError(
            f"The index of X must hold the times alone; got the levels {list(index.names)}: name a "
            "column with time=, and for a long frame location=, sensor= and value= too."
        )
    stamps = index.to_timestamp() if hasattr(index, "to_timestamp") else index
    if getattr(stamps, "tz", None) is not None:
        stamps = stamps.tz_convert(None)  # which is UTC
    return *time_mode(stamps.to_numpy(), "The index of X", 0), lambda row: str(index[row])


def _level_modes(columns: Any, labels: list[Any], roles: Roles) -> tuple[list[Mode], int | None]:
    """Return a mode for each level of the columns."""
    if roles.location is not None:
        refuse("location", roles.location, "None, as every level of the columns is a mode,")
    names = [f"level{k}" if name is None else str(name) for k, name in enumerate(columns.names)]
    parts = zip(names, zip(*labels, strict=True), strict=True)
    modes = [Mode.of(list(part), name, 1) for name, part in parts]
    return modes, sensor_mode(modes, roles.sensor)


def _place(frame: nw.DataFrame[Any], name: Any, setting: str) -> int:
    if name not in frame.columns:
        refuse(setting, name, f"one of the columns {frame.columns}")
    return frame.columns.index(name)


def _numbers(column: nw.Series[Any]) -> Floats:
    """Return a column as floats, NaN where it has nothing."""
    if column.is_null().all():
        return np.full(len(column), np.nan)
    if column.dtype.is_integer():  # which a cast refuses if floats cannot tell them apart
        values = column.fill_null(0).to_numpy().astype(np.float64)
        values[column.is_null().to_numpy()] = np.nan
        return values
    if _is_numeric(column):
        return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
    hint = ", or name it with time=" if column.dtype.is_temporal() else ""
    absent = column.is_null().to_numpy()
    values = np.full(len(column), np.nan)
    for row in np.flatnonzero(~absent).tolist():
        entry = column[row]
        if not isinstance(entry, numbers.Real | Decimal):
            raise DataError(
                f"Column {column.name!r} must hold numbers; got {entry!r} in row {row}: drop the "
                f"column{hint}."
            )
        values[row] = float(entry)
    return values


def _is_numeric(column: nw.Series[Any]) -> bool:
    return bool(column.dtype.is_numeric() or column.dtype == nw.Boolean)


def _filled(column: nw.Series[Any], new: Floats, where: Mask) -> nw.Series[Any]:
    """Return a column with other values in some rows, all other rows as they were."""
    if column.dtype.is_integer() or not _is_numeric(column):
        new, where = np.where(where, new, _numbers(column)), np.ones(len(new), dtype=bool)
        # Something of the same library and length that casts to floats, whatever was in it.
        small = column.dtype.is_integer() and column.dtype != nw.UInt64
        column = column * 0 if small else column.is_null()
    if column.dtype != nw.Float32:
        column = column.cast(nw.Float64)
    kind = np.float32 if column.dtype == nw.Float32 else np.float64
    return column.scatter(np.flatnonzero(where), new[where].astype(kind))


def _replaced(frame: nw.DataFrame[Any], changed: dict[int, nw.Series[Any]]) -> Any:
    """Return a copy of a frame with other columns at some places."""
    if not frame.implementation.is_pandas_like():
        return frame.with_columns(*changed.values()).to_native()
    out = frame.to_native().copy()
    for k, column in changed.items():
        out.isetitem(k, column.to_native())  # by place: labels may be tuples
    return out


def is_xarray(X: Any) -> bool:
    """Tell whether X is of xarray, which nobody needs who has none."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(X, xarray.DataArray | xarray.Dataset)


def read_xarray(X: Any, roles: Roles) -> LabelledArray:
    """Read a DataArray, or a Dataset, whose variables over time are the sensors."""
    for setting in ("location", "value"):
        got = getattr(roles, setting)
        if got is not None:
            refuse(setting, got, "None, as every dimension is a mode,")
    time = "time" if roles.time is None else roles.time
    return _dataset(X, time, roles) if hasattr(X, "data_vars") else _array(X, time, roles)


def _array(X: Any, time: Any, roles: Roles) -> LabelledArray:
    _check_dimensions(X, time)
    modes = [_dimension(X, dim, axis) for axis, dim in enumerate(X.dims) if dim != time]
    if not modes:
        modes = [Mode.of([str(X.name)] * X.size, "series", 0)]
    rows, clock = _xarray_rows(X, time, X.dims.index(time), roles)
    values = _xarray_numbers(X)

    def fill(new: Floats, where: Mask) -> Any:
        return X.copy(data=put_array(X.values, new, where))

    return LabelledArray(values, (*modes, rows), sensor_mode(modes, roles.sensor), clock, fill)


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


def _check_dimensions(X: Any, time: Any) -> None:
    if time not in X.dims:
        raise DataError(
            f"X needs a dimension {time!r}; it has {list(X.dims)}: name the one that is time with "
            "time=."
        )


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
