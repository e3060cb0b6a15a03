"""Tables with holes, whatever they came from: values in an array, and the ids of every cell.

A mode lies along one axis. Of frames (pandas, polars, pyarrow), a wide one has a column for each
series, an axis that may carry two modes, location and sensor; the rows of a long one carry all.
What is written back is alike, but whole numbers become floats where one of them was missing.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn, TypeAlias

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from noisewise.data.ids import Codes, Ids, from_frame, group_cells
from noisewise.data.observations import Duplicates, Observations, assemble
from noisewise.data.timestamps import Clock, Floats, time_numbers
from noisewise.errors import DataError, SettingError, warn

Mask: TypeAlias = NDArray[np.bool_]

CLOCKS = ("dates", "numbers", "rows")
SHOWN = 5  # series that a warning names
SENSOR_NAMES = ("sensor", "variable")  # what the mode that is the sensor is called, as a rule


class Roles(NamedTuple):
    """Which columns or axes have which role, as a user said; each kind of table reads its part."""

    time: Any = None
    location: Any = None
    sensor: Any = "auto"
    value: Any = None
    duplicates: Duplicates = "error"


class Mode(NamedTuple):
    """The ids of a mode, and the row number of each place along an axis of the values."""

    ids: Ids
    codes: Codes
    axis: int

    @classmethod
    def of(cls, labels: Any, name: str, axis: int) -> Mode:
        """Give labels their row numbers, one label for each place along an axis."""
        return cls(*Ids.encode(labels, name), axis)


@dataclass(frozen=True, eq=False)
class LabelledArray:
    """A table with holes, whatever it came from."""

    values: Floats  # of any shape; NaN is a hole
    modes: tuple[Mode, ...]  # the last one is time, whose ids are numbers (seconds for dates)
    sensor: int | None  # the mode that is the sensor, of one unit each; None if all have one
    clock: Clock
    put: Callable[[Floats, Mask], Any]  # makes a table of the same kind with other values

    def __post_init__(self) -> None:
        infinite = np.isinf(self.values)
        if infinite.any():
            at = np.unravel_index(infinite.argmax(), self.values.shape)
            who = self.series(np.array([infinite.argmax()]))[0]
            raise DataError(
                f"Readings must be finite, or NaN for a hole; got {self.values[at]} for {who!r} in "
                f"row {at[self.modes[-1].axis]}: put NaN there to have it filled."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each mode."""
        return tuple(mode.ids.name for mode in self.modes)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of ids of each mode but time."""
        return tuple(len(mode.ids) for mode in self.modes[:-1])

    @property
    def n_rows(self) -> int:
        """The number of places along the axis of time."""
        return len(self.modes[-1].codes)

    def cells(self, places: NDArray[np.intp]) -> Observations:
        """Return what is at some places of the flattened array; its values stay float64."""
        at = np.unravel_index(places, self.values.shape)
        codes = tuple(mode.codes[at[mode.axis]] for mode in self.modes)
        values: Any = self.values.take(places)
        return Observations(codes, values, tuple(mode.ids for mode in self.modes))

    def observed(self, duplicates: Duplicates) -> Observations:
        """Return what is no hole, each cell once."""
        seen = self.cells(np.flatnonzero(~np.isnan(self.values)))
        if not len(seen):
            return seen
        return assemble(seen.codes, seen.values, seen.ids, duplicates=duplicates, at_least=1)

    def series(self, places: NDArray[np.intp]) -> list[Any]:
        """Return the series that some places are of, each once."""
        cells = self.cells(places)
        _, first = np.unique(np.stack(cells.codes[:-1]), axis=1, return_index=True)
        return [row[0] if len(row) == 2 else row[:-1] for row in cells.decode(np.sort(first))]

    def later(self, n_rows: int) -> LabelledArray:
        """Return the same table, its rows that much later."""
        rows = self.modes[-1]
        moved = rows._replace(ids=Ids(rows.ids.labels + n_rows, rows.ids.name))
        return replace(self, modes=(*self.modes[:-1], moved))


class Fitted(NamedTuple):
    """What a fitted table was like, to compare others with."""

    names: tuple[str, ...]  # of its modes
    lengths: tuple[int, ...]  # of all modes but time
    clock: Clock
    end: int  # the time that rows without times are counted from if they come next

    @classmethod
    def of(cls, table: LabelledArray) -> Fitted:
        """Describe a table."""
        last = max(table.modes[-1].ids.labels)
        return cls(table.names, table.lengths, table.clock, int(last) + 1)


def time_mode(column: Any, words: str, axis: int) -> tuple[Mode, Clock]:
    """Return times along an axis as a mode of numbers; ``words`` are what errors call them."""
    numbers, clock = time_numbers(column, words)
    return Mode.of(numbers, "time", axis), clock


def row_mode(n_rows: int, axis: int) -> Mode:
    """Return row numbers, for what has no times."""
    return Mode(Ids(np.arange(n_rows), "time"), np.arange(n_rows, dtype=np.int32), axis)


def column_modes(columns: Sequence[Any], roles: Roles, axis: int) -> tuple[list[Mode], int | None]:
    """Return the modes of plain columns, and which of them is the sensor."""
    location, sensor = roles.location, roles.sensor
    if not (isinstance(sensor, Mapping) or callable(sensor)):
        if location is not None:
            refuse("location", location, "a dict or a function, beside one for sensor")
        if sensor not in ("auto", None):
            refuse("sensor", sensor, "a dict or a function from columns to sensors, 'auto' or None")
        return [Mode.of(columns, "series", axis)], None if sensor is None else 0
    places = columns if location is None else [_said(location, c, "location") for c in columns]
    sensors = [_said(sensor, column, "sensor") for column in columns]
    pairs = list(zip(places, sensors, strict=True))
    if len(set(pairs)) < len(pairs):
        twin = next(pair for pair in pairs if pairs.count(pair) > 1)
        alike = [column for column, pair in zip(columns, pairs, strict=True) if pair == twin]
        raise DataError(
            f"Columns must differ in location or sensor; got {twin} for all of {alike}."
        )
    return [Mode.of(places, "location", axis), Mode.of(sensors, "sensor", axis)], 1


def sensor_mode(modes: Sequence[Mode], sensor: Any) -> int | None:
    """Return which mode is the sensor: as named or counted, else by its name or length."""
    names = [mode.ids.name for mode in modes]
    if sensor is None:
        return None
    if isinstance(sensor, str) and sensor in names:
        return names.index(sensor)
    if isinstance(sensor, int) and -len(modes) <= sensor < len(modes):
        return sensor % len(modes)
    if sensor != "auto":
        refuse("sensor", sensor, f"one of {names} or its number, 'auto' or None")
    called = [name in SENSOR_NAMES for name in names]
    if any(called):
        return called.index(True)
    return int(np.argmin([len(mode.ids) if len(mode.ids) > 1 else np.inf for mode in modes]))


def warn_of_unread(table: LabelledArray, places: NDArray[np.intp]) -> None:
    """Name the series of holes that could not be filled."""
    if not len(places):
        return
    names = table.series(places)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    warn(
        f"Nothing was ever read of {', '.join(map(repr, names[:SHOWN]))}{more}, nor of any "
        "series of the same sensor, so the holes there stay: drop these series, or say with "
        "sensor= which others are of theirs.",
    )


def refuse_repeats(modes: Sequence[Mode], what: str, entry: Callable[[int], Any]) -> None:
    """Raise if two rows have the same ids in all these modes."""
    groups = group_cells([mode.codes for mode in modes], [len(mode.ids) for mode in modes])
    if groups is not None:
        raise groups.error(what, entry, "rows {} and {}".format)


def refuse(setting: str, got: Any, expected: str) -> NoReturn:
    """Raise for a setting that does not suit the table."""
    raise SettingError(f"{setting} must be {expected} for this kind of X; got {got!r}.")


def _said(mapping: Any, column: Any, setting: str) -> Any:
    """Return what a dict or a function says of a column."""
    if callable(mapping):
        return mapping(column)
    if not isinstance(mapping, Mapping):
        refuse(setting, mapping, "a dict or a function from columns")
    if column not in mapping:
        raise SettingError(f"{setting} must have an entry for every column; {column!r} has none.")
    return mapping[column]


def as_frame(X: Any) -> nw.DataFrame[Any] | None:
    """Wrap a frame of any library; return None for what is no frame."""
    frame = from_frame(X)
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
        changed = [(chosen[k], k) for k in np.flatnonzero(where.any(axis=0)).tolist()]
        filled = {at: _filled(columns[at], new[:, k], where[:, k]) for at, k in changed}
        return _replaced(frame, filled)

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
