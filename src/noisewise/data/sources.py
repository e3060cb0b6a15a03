"""Tables in text or Parquet, by what their columns hold; and back with other numbers in them.

Both become tables of pyarrow (extra: parquet).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisewise.data import dates, dates_in_numbers, reader, roles
from noisewise.data.binary import read_parquet
from noisewise.data.dialect import Given
from noisewise.data.ids import Codes, Ids
from noisewise.data.text_rows import MoreRows, Replaced, TextRows
from noisewise.data.timestamps import Ints, time_numbers
from noisewise.errors import DataError, SettingError, shortened
from noisewise.storage import write_bytes

Source: TypeAlias = "TextSource | ParquetSource"

PURPOSE = "Filling gaps in tables"


@dataclass(frozen=True, eq=False)
class TextSource:
    """A table in a text file."""

    rows: TextRows
    date_order: str | None

    @classmethod
    def read(
        cls, path: Path, given: Given, date_order: str | None, named: Sequence[str]
    ) -> TextSource:
        """Read a file; the columns that are named may be ids."""
        reader.require_pyarrow(PURPOSE)
        if date_order not in (None, *dates.ORDERS):
            raise SettingError(
                f"date_order must be one of {', '.join(dates.ORDERS)}; got {date_order!r}."
            )
        rows = TextRows.read(path, given, lambda name: name in named or roles.may_be_id(name))
        return cls(rows, date_order)

    @property
    def names(self) -> list[str]:
        """All columns."""
        return self.rows.dialect.names

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.rows.n_rows

    def is_number(self, name: str) -> bool:
        """Tell whether a column holds readings."""
        return self.rows.columns[name].is_number and name not in self._rare

    @cached_property
    def _rare(self) -> set[str]:
        """Columns that most rows leave out."""
        return set(self.names[self.rows.dialect.least :])

    def is_empty(self, name: str) -> bool:
        """Tell whether nothing is in a column."""
        column = self.rows.columns[name]
        return column.kind is None or (column.kind == "number" and not column.n_known)

    @cached_property
    def _parts(self) -> dict[str, dates.Parts]:
        found = {}
        for name, column in self.rows.columns.items():
            if column.kind == "date":
                found[name] = column.parts()
            elif column.is_number and column.odd is None and roles.names_time(name):
                parts = dates_in_numbers.compact(column.numbers())
                found |= {} if parts is None else {name: parts}
        return found

    def date_kind(self, name: str) -> str | None:
        """Tell if a column holds days, moments or times of day; "broken" if most rows do."""
        if name in self._parts:
            parts = self._parts[name]
            return ("moments" if parts.has_times else "days") if parts.has_days else "times"
        column = self.rows.columns[name]
        if not column.was_date or column.odd is None:
            return None
        is_gap = column.numerals.is_missing(column.odd[1])
        return None if is_gap and not roles.may_be_time(name) else "broken"

    def is_epoch(self, name: str) -> bool:
        """Tell whether a column of numbers holds unix seconds that rise."""
        column = self.rows.columns[name]
        if not self.is_number(name) or column.odd is not None:
            return False
        numbers = column.numbers()
        return dates_in_numbers.epochs(numbers) is not None and bool((np.diff(numbers) > 0).all())

    def varies(self, name: str) -> bool:
        """Tell whether a column of dates holds more than one."""
        parts = self._parts.get(name)
        return parts is None or any((column != column[:1]).any() for column in parts)

    def codes(self, name: str) -> Codes | None:
        """Return which id every row has."""
        found = self.rows.columns[name].ids()
        return None if found is None else found[1]

    def labels(self, names: Sequence[str]) -> Any:
        """Return the ids of every row; those of several columns with a space between."""
        parts = []
        for name in names:
            found = self.rows.columns[name].ids()
            if found is None:
                raise DataError(f"column {name!r} has too many different entries to be ids.")
            parts.append(np.array(found[0], dtype=object)[found[1]])
        whole = parts[0]
        for part in parts[1:]:
            whole = whole + " " + part
        return whole

    def numbers(self, name: str) -> Any:
        """Return readings."""
        return self.rows.columns[name].numbers()

    def times(self, names: Sequence[str]) -> Any:
        """Return times as dates of pyarrow, or as numbers."""
        first = names[0]
        if len(names) > 1 and first not in self._parts:
            columns = [self.rows.columns[name].numbers() for name in names]
            return self._arrow(_calendar(columns, names))
        if first in self._parts:
            of_day = None
            if len(names) > 1:
                of_day = self._parts.get(names[1])
                of_day = of_day or dates_in_numbers.of_day(self.numbers(names[1]))
                if of_day is None:
                    raise DataError(f"column {names[1]!r} must hold times of day, such as 13:30.")
            return self._arrow(dates.understood(self._parts[first], first, self.date_order, of_day))
        column = self.rows.columns[first]
        if not column.is_number:
            self._refuse_time(first)
        numbers = column.numbers()
        missing = np.flatnonzero(~np.isfinite(numbers))
        if len(missing):
            line = self.rows.line_of(int(missing[0]))
            raise DataError(f"line {line}: column {first!r} has no time; remove the line.")
        parts = dates_in_numbers.compact(numbers)  # of a column that somebody named
        if parts is not None:
            return self._arrow(dates.understood(parts, first, self.date_order))
        found = dates_in_numbers.epochs(numbers)
        return numbers if found is None else self._arrow(found)

    def _refuse_time(self, name: str) -> NoReturn:
        column = self.rows.columns[name]
        ids = column.ids()
        line, entry = column.odd or (self.rows.line_of(0), ids[0][0] if ids else "")
        if not entry.strip():
            raise DataError(f"line {line}: column {name!r} has no time; remove the line.")
        raise DataError(
            f"line {line}: column {name!r} must hold times, as dates such as 2013-03-31 12:00 or "
            f"as numbers; got {shortened(entry)}. Name another column with time=, or mend the line."
        )

    @staticmethod
    def _arrow(moments: dates.Moments) -> Any:
        arrow = reader.require_pyarrow(PURPOSE)
        zone = "UTC" if moments.has_zone else None
        return arrow.array(moments.ticks, arrow.int64()).cast(arrow.timestamp("us", zone))

    def write(
        self, path: Path, replaced: Replaced, added: Mapping[str, Any], more: dict[str, Ints]
    ) -> None:
        """Write the file with other numbers in some rows, more columns and more rows."""
        sources = {self.names.index(name): rows for name, rows in more.items()}
        self.rows.write(path, replaced, added, MoreRows(sources) if sources else None)


def _calendar(columns: list[NDArray[np.float64]], names: Sequence[str]) -> dates.Moments:
    """Return dates from columns of their parts: of year, month and day, or of year and its day."""
    said = ", ".join(names)
    if not roles.is_day_of_year(names[1]):
        return dates.calendar(columns, said)
    year, day, *clock = columns
    if not (np.isfinite(year).all() and (day >= 1.0).all() and (day < 367.0).all()):
        raise DataError(
            f"the columns {said} must hold a year and a day from 1 to 366 in every row."
        )
    whole = np.floor(day)
    if clock and clock[0].max() > 24:  # hours and minutes, such as 1230
        clock = [*np.divmod(clock[0], 100)]
    if not clock:
        minutes = np.round((day - whole) * 1440.0)
        clock = [*np.divmod(minutes, 60)]
    first = dates.calendar([year, np.ones_like(year), np.ones_like(year), *clock], said)
    return first._replace(ticks=first.ticks + (whole - 1.0).astype(np.int64) * dates.DAY)


@dataclass(frozen=True, eq=False)
class ParquetSource:
    """A table in a Parquet file."""

    table: Any  # of pyarrow

    @classmethod
    def read(cls, path: Path) -> ParquetSource:
        """Read a file."""
        return cls(read_parquet(path, list, PURPOSE))

    @property
    def names(self) -> list[str]:
        """All columns."""
        return list(self.table.column_names)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.table.num_rows)

    def _type(self, name: str) -> Any:
        return self.table.schema.field(self.names.index(name)).type

    def is_number(self, name: str) -> bool:
        """Tell whether a column holds readings."""
        types, own = reader.require_pyarrow(PURPOSE).types, self._type(name)
        kinds = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
        return any(kind(own) for kind in kinds)

    def is_empty(self, name: str) -> bool:
        """Tell whether a column is of no type; one of numbers may be all holes."""
        return bool(reader.require_pyarrow(PURPOSE).types.is_null(self._type(name)))

    def date_kind(self, name: str) -> str | None:
        """Tell whether a column holds dates."""
        types, own = reader.require_pyarrow(PURPOSE).types, self._type(name)
        return "moments" if types.is_timestamp(own) or types.is_date(own) else None

    def is_epoch(self, name: str) -> bool:
        """Tell that types say what is time."""
        return False

    def varies(self, name: str) -> bool:
        """Tell whether a column holds more than one entry."""
        return len(self.table.column(name).unique()) > 1

    def codes(self, name: str) -> Codes | None:
        """Return which id every row has."""
        try:
            return Ids.encode(self.table.column(name).to_pylist(), name)[1]
        except DataError:
            return None

    def labels(self, names: Sequence[str]) -> Any:
        """Return the ids of every row; those of several columns as text with a space between."""
        if len(names) == 1:
            return self.table.column(names[0])
        columns = [map(str, self.table.column(name).to_pylist()) for name in names]
        return [" ".join(entries) for entries in zip(*columns, strict=True)]

    def numbers(self, name: str) -> Any:
        """Return readings."""
        return self.table.column(name)

    def times(self, names: Sequence[str]) -> Any:
        """Return times as they are."""
        if len(names) > 1:
            columns = [self._floats(name) for name in names]
            return TextSource._arrow(_calendar(columns, names))
        return self.table.column(names[0])

    def _floats(self, name: str) -> NDArray[np.float64]:
        return np.asarray(self.table.column(name).to_numpy(), dtype=np.float64)

    def write(
        self, path: Path, replaced: Replaced, added: Mapping[str, Any], more: dict[str, Ints]
    ) -> None:
        """Write the table with other numbers in some rows, more columns and more rows."""
        arrow = reader.require_pyarrow(PURPOSE)
        table = self.table
        if more:
            many = len(next(iter(more.values())))
            new = {
                field.name: table.column(field.name).take(arrow.array(more[field.name]))
                if field.name in more
                else arrow.nulls(many, field.type)
                for field in table.schema
            }
            table = arrow.concat_tables([table, arrow.table(new, schema=table.schema)])
        columns = {name: table.column(name) for name in self.names}
        columns |= {name: numbers for name, (numbers, _) in replaced.items()} | dict(added)
        whole = arrow.table(columns)
        floats = {name for name in replaced if whole.schema.field(name).type != self._type(name)}
        metadata = _told_of_floats(self.table.schema.metadata or {}, floats)
        write_parquet(path, whole.replace_schema_metadata(metadata))


def _told_of_floats(metadata: dict[bytes, bytes], names: set[str]) -> dict[bytes, bytes]:
    """Return metadata in which pandas, which takes types from there, finds that columns are floats.

    Filled columns of its own whole numbers could not be read otherwise.
    """
    try:
        told = json.loads(metadata.get(b"pandas", b""))
        own = [one for one in told["columns"] if one["field_name"] in names]
        for one in own:
            one |= {"pandas_type": "float64", "numpy_type": "float64"}
    except (ValueError, TypeError, KeyError):  # it is of no pandas that we know
        return metadata
    return metadata | {b"pandas": json.dumps(told).encode()} if own else metadata


def time_codes(times: Any) -> Codes:
    """Return which of the distinct times every row has."""
    return Ids.encode(time_numbers(np.asarray(times), "time")[0], "time")[1]


def write_parquet(path: Path, table: Any) -> None:
    """Write a table of pyarrow, wholly or not at all."""
    content = io.BytesIO()
    reader.require_pyarrow("Writing Parquet").parquet.write_table(table, content)
    write_bytes(path, content.getvalue())


def write_text(path: Path, table: Mapping[str, Sequence[Any]], delimiter: str) -> None:
    """Write columns as CSV or TSV, packed if the path ends in ``.gz``, wholly or not at all."""
    content = as_text(table, delimiter).encode()
    write_bytes(path, gzip.compress(content, mtime=0) if path.suffix.lower() == ".gz" else content)


def as_text(table: Mapping[str, Sequence[Any]], delimiter: str = ",") -> str:
    """Return columns as the text of a CSV or TSV file."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return text.getvalue()
