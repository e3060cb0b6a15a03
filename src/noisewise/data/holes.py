"""What tables with holes come down to: values in an array, and the ids of every cell.

A mode lies along one axis of the array. The columns of a wide frame are an axis that may carry two
modes, location and sensor; the rows of a long frame carry all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisewise.data.duplicates import Duplicates, group_cells
from noisewise.data.ids import Codes, Ids
from noisewise.data.observations import Observations, assemble
from noisewise.errors import DataError, SettingError, warn

Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Clock: TypeAlias = Literal["dates", "numbers", "rows"]

CLOCKS = ("dates", "numbers", "rows")
SHOWN = 5  # series that a warning names
TYPES = ("sensor", "variable")  # modes of these names are the type of sensor, unless told otherwise


class Layout(NamedTuple):
    """What a user said of where things are in a table; each kind of table reads its own part."""

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
class Table:
    """A table with holes, whatever it came from.

    Attributes
    ----------
    values
        An array of any shape; NaN is a hole.
    modes
        What its axes stand for; the last mode is time, whose ids are numbers (seconds for dates).
    group
        The mode that is the type of sensor: readings of one type have one unit. None if all have.
    clock
        Whether times are dates, numbers, or just the numbers of rows.
    put
        Makes a table of the same kind with other values at some places.
    """

    values: Floats
    modes: tuple[Mode, ...]
    group: int | None
    clock: Clock
    put: Callable[[Floats, Mask], Any]

    def __post_init__(self) -> None:
        infinite = np.isinf(self.values)
        if infinite.any():
            at = np.unravel_index(infinite.argmax(), self.values.shape)
            who = self.series(np.array([infinite.argmax()]))[0]
            raise DataError(
                f"Readings must be finite, or NaN for a hole; got {self.values[at]} for "
                f"{who!r} in row {at[self.modes[-1].axis]}: put NaN there to have it "
                "filled."
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

    def later(self, n_rows: int) -> Table:
        """Return the same table, its rows that much later."""
        ids, codes, axis = self.modes[-1]
        moved = Mode(Ids(ids.labels + n_rows, ids.name), codes, axis)
        return replace(self, modes=(*self.modes[:-1], moved))


class Fitted(NamedTuple):
    """What a fitted table was like, to compare others with.

    Names of its modes, and lengths of all but time; its clock; and the time that rows without times
    are counted from if they come next.
    """

    names: tuple[str, ...]
    lengths: tuple[int, ...]
    clock: Clock
    end: int

    @classmethod
    def of(cls, table: Table) -> Fitted:
        """Describe a table."""
        last = max(table.modes[-1].ids.labels)
        return cls(table.names, table.lengths, table.clock, int(last) + 1)


def column_modes(
    columns: Sequence[Any], layout: Layout, axis: int
) -> tuple[list[Mode], int | None]:
    """Return the modes of plain columns, and which of them is the type.

    Examples
    --------
    >>> layout = Layout(location={"a1": "attic", "h1": "hall"}, sensor=lambda column: "heat")
    >>> modes, group = column_modes(["a1", "h1"], layout, axis=1)
    >>> [mode.ids for mode in modes], group
    ([Ids(2 location), Ids(1 sensor)], 1)
    """
    location, sensor = layout.location, layout.sensor
    if not _says(sensor):
        if location is not None:
            refuse("location", location, "a dict or a function, beside one for sensor")
        if sensor not in ("auto", None):
            refuse("sensor", sensor, "a dict or a function from columns to types, 'auto' or None")
        return [Mode.of(columns, "series", axis)], None if sensor is None else 0
    places = columns if location is None else [_said(location, c, "location") for c in columns]
    kinds = [_said(sensor, column, "sensor") for column in columns]
    pairs = list(zip(places, kinds, strict=True))
    if len(set(pairs)) < len(pairs):
        twin = next(pair for pair in pairs if pairs.count(pair) > 1)
        alike = [column for column, pair in zip(columns, pairs, strict=True) if pair == twin]
        raise DataError(
            f"Columns must differ in location or sensor; got {twin} for all of {alike}."
        )
    return [Mode.of(places, "location", axis), Mode.of(kinds, "sensor", axis)], 1


def type_mode(modes: Sequence[Mode], sensor: Any) -> int | None:
    """Return which mode is the type of sensor: as named or counted, else by its name or length."""
    names = [mode.ids.name for mode in modes]
    if sensor is None:
        return None
    if isinstance(sensor, str) and sensor in names:
        return names.index(sensor)
    if isinstance(sensor, int) and -len(modes) <= sensor < len(modes):
        return sensor % len(modes)
    if sensor != "auto":
        refuse("sensor", sensor, f"one of {names} or its number, 'auto' or None")
    called = [name in TYPES for name in names]
    if any(called):
        return called.index(True)
    lengths = [(len(mode.ids) if len(mode.ids) > 1 else np.inf) for mode in modes]
    return int(np.argmin(lengths))


def warn_of_unread(table: Table, places: NDArray[np.intp]) -> None:
    """Name the series of holes that could not be filled."""
    if not len(places):
        return
    names = table.series(places)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    warn(
        f"Nothing was ever read of {', '.join(map(repr, names[:SHOWN]))}{more}, nor of any "
        "series of the same type, so the holes there stay: drop these series, or say with sensor= "
        "which others are of their type.",
    )


def refuse_repeats(modes: Sequence[Mode], what: str, entry: Callable[[int], Any]) -> None:
    """Raise if two rows have the same ids in all these modes."""
    groups = group_cells([mode.codes for mode in modes], [len(mode.ids) for mode in modes])
    if groups is None:
        return
    repeated = groups.starts[groups.counts > 1]
    first, second = groups.order[repeated[0] : repeated[0] + 2].tolist()
    many = f"1 {what} is" if len(repeated) == 1 else f"{len(repeated):,} {what}s are"
    raise DataError(
        f"{many} given more than once, e.g. {entry(first)} in rows {first} and {second}; pass "
        "duplicates='mean' or duplicates='last', or drop rows."
    )


def refuse(setting: str, got: Any, expected: str) -> NoReturn:
    """Raise for a setting that does not suit the table."""
    raise SettingError(f"{setting} must be {expected} for this kind of X; got {got!r}.")


def _says(mapping: Any) -> bool:
    return isinstance(mapping, Mapping) or callable(mapping)


def _said(mapping: Any, column: Any, setting: str) -> Any:
    if not _says(mapping):
        refuse(setting, mapping, "a dict or a function from columns")
    if callable(mapping):
        return mapping(column)
    if column not in mapping:
        raise SettingError(f"{setting} must have an entry for every column; {column!r} has none.")
    return mapping[column]
