"""Tables with holes, whatever they came from: values in an array, and the ids of every cell.

A mode lies along one axis, and an axis may carry several.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from noisewise.data.ids import Codes, Ids, group_cells
from noisewise.data.observations import Duplicates, Observations, assemble
from noisewise.data.timestamps import Clock, Floats, time_numbers
from noisewise.errors import DataError, SettingError, warn

Mask: TypeAlias = NDArray[np.bool_]

CLOCKS = get_args(Clock)
SHOWN = 5  # series that a warning names
LARGEST = 1e100  # reading, whose square is a number still
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
        beyond = np.abs(self.values) > LARGEST
        if beyond.any():
            at = np.unravel_index(beyond.argmax(), self.values.shape)
            who = self.series(np.array([beyond.argmax()]))[0]
            rule = "finite" if np.isinf(self.values[at]) else f"at most {LARGEST:g} in size"
            raise DataError(
                f"Readings must be {rule}, or NaN for a hole; got {self.values[at]:g} for {who!r} "
                f"in row {at[self.modes[-1].axis]}: put NaN there to have it filled."
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

    @property
    def when(self) -> Any:
        """The time of every place along the axis of time."""
        rows = self.modes[-1]
        return rows.ids.labels[rows.codes]

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

    def first_of_runs(self, holes: Mask, limit: int) -> Mask:
        """Return the first holes of every run of them, in the order of time of each series."""
        cells = self.cells(np.arange(self.values.size))
        when = cells.ids[-1].labels[cells.codes[-1]]
        order = np.lexsort([when, *cells.codes[:-1]])
        empty = holes.ravel()[order]
        new = np.ones(len(order), dtype=bool)  # where another series, or a run, begins
        for code in cells.codes[:-1]:
            new[1:] &= code[order][1:] == code[order][:-1]
        new[0] = False
        begins = empty & ~(new & np.append(False, empty[:-1]))
        start = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
        first = np.zeros(len(order), dtype=bool)
        first[order] = empty & (np.arange(len(order)) - start < limit)
        return first.reshape(self.values.shape)

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

    def later(self, table: LabelledArray) -> Fitted:
        """Return the same after a table that has come in since."""
        return self._replace(end=max(self.end, int(max(table.modes[-1].ids.labels)) + 1))


def time_mode(column: Any, words: str, axis: int, *, has_zone: bool = False) -> tuple[Mode, Clock]:
    """Return times along an axis as a mode of numbers; ``words`` are what errors call them."""
    numbers, clock = time_numbers(column, words, has_zone=has_zone)
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


def is_xarray(X: Any) -> bool:
    """Tell whether X is of xarray, which nobody needs who has none."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(X, xarray.DataArray | xarray.Dataset)
