"""Frames of pandas, polars and pyarrow with holes, and back.

A wide frame has a column for each series, an axis that may carry two modes, location and sensor;
the rows of a long one carry all. What is written back is alike, but whole numbers become floats
where one of them was missing.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np

from noisewise.data.ids import from_frame
from noisewise.data.numerals import is_numeral
from noisewise.data.tables_with_holes import (
    SENSOR_NAMES,
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
from noisewise.errors import DataError

PLAIN = (np.dtype(np.float64), np.dtype(np.float32))  # of columns of pandas that are arrays


def as_frame(X: Any) -> nw.DataFrame[Any] | None:
    """Wrap a frame of any library; return None for what is no frame."""
    frame = from_frame(X)
    return frame if isinstance(frame, nw.DataFrame) else None


def read_frame(frame: nw.DataFrame[Any], roles: Roles) -> LabelledArray:
    """Read a frame: a long one if a column of values is named, else a wide one."""
    if not len(frame):
        raise DataError("X has 0 rows; there is nothing to learn from or to fill.")
    if roles.value is not None:
        return _long(frame, roles)
    is_named = isinstance(roles.location, str) and roles.location in frame.columns
    return _by_place(frame, roles) if is_named else _wide(frame, roles)


def _wide(frame: nw.DataFrame[Any], roles: Roles) -> LabelledArray:
    columns = list(frame.iter_columns())
    time = None if roles.time is None else _place(frame, roles.time, "time")
    chosen = [k for k in range(len(columns)) if k != time]
    if not chosen:
        raise DataError(f"X needs a column for each series; it has only {frame.columns}.")
    rows, clock, entry = _rows(frame, columns, time)
    if roles.duplicates == "error":
        refuse_repeats([rows], "time stamp", entry)
    names = frame.columns
    labels = [names[k] for k in chosen]
    levels = getattr(getattr(frame.to_native(), "columns", None), "nlevels", 1)
    if levels > 1:
        modes, sensor = _level_modes(frame.to_native().columns, labels, roles)
    else:
        modes, sensor = column_modes(labels, roles, axis=1)

    def put(new: Floats, where: Mask) -> Any:
        changed = [(chosen[k], k) for k in np.flatnonzero(where.any(axis=0)).tolist()]
        filled = {at: _filled(columns[at], new[:, k], where[:, k]) for at, k in changed}
        return _replaced(frame, filled)

    values = np.column_stack([_numbers(columns[k]) for k in chosen])
    return LabelledArray(values, (*modes, rows), sensor, clock, put)


def _by_place(frame: nw.DataFrame[Any], roles: Roles) -> LabelledArray:
    """Read rows for each place and time, and a column for each sensor."""
    columns = list(frame.iter_columns())
    time = None if roles.time is None else _place(frame, roles.time, "time")
    at = _place(frame, roles.location, "location")
    chosen = [k for k in range(len(columns)) if k not in (time, at)]
    if not chosen:
        raise DataError(f"X needs a column for each sensor; it has only {frame.columns}.")
    if roles.sensor not in ("auto", None):
        refuse("sensor", roles.sensor, "'auto' or None, as every column is a sensor,")
    rows, clock, entry = _rows(frame, columns, time)
    place = Mode.of(columns[at].to_native(), frame.columns[at], 0)
    if roles.duplicates == "error":
        refuse_repeats([place, rows], "cell", lambda row: (str(columns[at][row]), entry(row)))
    names = frame.columns
    sensors = Mode.of([names[k] for k in chosen], "sensor", 1)

    def put(new: Floats, where: Mask) -> Any:
        changed = [(chosen[k], k) for k in np.flatnonzero(where.any(axis=0)).tolist()]
        return _replaced(
            frame, {p: _filled(columns[p], new[:, k], where[:, k]) for p, k in changed}
        )

    values = np.column_stack([_numbers(columns[k]) for k in chosen])
    sensor = None if roles.sensor is None else 1
    return LabelledArray(values, (place, sensors, rows), sensor, clock, put)


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
    has_zone = getattr(stamps, "tz", None) is not None
    if has_zone:
        stamps = stamps.tz_convert(None)  # which is UTC
    mode = time_mode(stamps.to_numpy(), "The index of X", 0, has_zone=has_zone)
    return *mode, lambda row: str(index[row])


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
    plain = _plain(column)
    if plain is not None:
        return np.asarray(plain, dtype=np.float64).copy()
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
                f"Column {column.name!r} must hold numbers; got {entry!r} in row {row}: "
                f"{_remedy(entry)}{hint}."
            )
        values[row] = float(entry)
    return values


def _remedy(entry: Any) -> str:
    """Return what to do about a column with an entry that is no number."""
    if isinstance(entry, str) and is_numeral(entry.strip()):
        return "make numbers of that text first, or drop the column"
    return "drop the column"


def _plain(column: nw.Series[Any]) -> Any:
    """Return the array of floats that a column of pandas is; None for any other column."""
    native = column.to_native()
    is_plain = column.implementation.is_pandas() and native.dtype in PLAIN
    return native.to_numpy() if is_plain else None


def _is_numeric(column: nw.Series[Any]) -> bool:
    return bool(column.dtype.is_numeric() or column.dtype == nw.Boolean)


def _filled(column: nw.Series[Any], new: Floats, where: Mask) -> Any:
    """Return a column with other values in some rows, all other rows as they were."""
    plain = _plain(column)
    if plain is not None:  # the usual case, and many times as fast
        return np.where(where, new.astype(plain.dtype), plain)
    if column.dtype.is_integer() or not _is_numeric(column):
        new, where = np.where(where, new, _numbers(column)), np.ones(len(new), dtype=bool)
        # Something of the same library and length that casts to floats, whatever was in it.
        small = column.dtype.is_integer() and column.dtype != nw.UInt64
        column = column * 0 if small else column.is_null()
    if column.dtype != nw.Float32:
        column = column.cast(nw.Float64)
    kind = np.float32 if column.dtype == nw.Float32 else np.float64
    return column.scatter(np.flatnonzero(where), new[where].astype(kind))


def _replaced(frame: nw.DataFrame[Any], changed: dict[int, Any]) -> Any:
    """Return a copy of a frame with other columns at some places."""
    if not frame.implementation.is_pandas_like():
        return frame.with_columns(*changed.values()).to_native()
    out = frame.to_native().copy()
    for k, column in changed.items():
        own = column.to_native() if isinstance(column, nw.Series) else column
        out.isetitem(k, own)  # by place: labels may be tuples
    return out
