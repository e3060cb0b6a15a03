"""Rows of a table, from text or Parquet: read, filled, and written with all else as it was.

Both are tables of pyarrow (extra: parquet). All columns of text are text, letter for letter.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.data.parquet import read_parquet, require_pyarrow
from noisewise.data.reader import blocks, split_line, text_lines, to_float
from noisewise.data.timestamps import text_times
from noisewise.errors import DataError, listed
from noisewise.storage import write_bytes

DELIMITERS = (",", ";", "\t")
_PURPOSE = "Filling gaps in tables"
ABSENT = ("", "na", "n/a", "nan", "null", "none")  # how text says that there is no reading

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """A table that can be filled and written back.

    Attributes
    ----------
    table : pyarrow Table
        As the file has it.
    delimiter : str or None
        What stands between fields of text; None for Parquet.
    """

    table: Any
    delimiter: str | None

    @classmethod
    def read_text(cls, path: Path) -> Rows:
        """Read a file in UTF-8 whose first line names the columns."""
        arrow = require_pyarrow(_PURPOSE)
        lines = text_lines(path)
        first = next(lines, "")
        delimiter = max(DELIMITERS, key=first.count)
        names = split_line(first, delimiter) if first else []
        if len(names) < 2 or len(set(names)) < len(names):
            raise DataError(
                f"line 1 must name the columns, two or more and no two alike; got {listed(names)}."
            )
        columns: dict[str, list[str]] = {name: [] for name in names}
        for block in blocks(lines, delimiter, names, 2):
            for column, part in zip(columns.values(), block.columns, strict=True):
                column.extend(part)
        if not columns[names[0]]:
            raise DataError("There are no rows below the names of the columns.")
        return cls(arrow.table(columns), delimiter)

    @classmethod
    def read_parquet(cls, path: Path) -> Rows:
        """Read a Parquet file."""
        return cls(read_parquet(path, lambda names: names, _PURPOSE), None)

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.table.column_names)

    def entries(self, name: str) -> list[Any]:
        """Return a column of ids."""
        column = self.table.column(name).to_pylist()
        return column if self.delimiter is None else [entry.strip() for entry in column]

    def frame(self, ids: Sequence[str], times: Sequence[str], readings: Sequence[str]) -> Any:
        """Return some columns: of text, times as numbers or dates and readings as numbers."""
        if self.delimiter is None:
            return self.table.select([*ids, *times, *readings])
        columns: dict[str, Any] = {name: self.entries(name) for name in ids}
        columns |= {name: text_times(self.entries(name)) for name in times}
        columns |= {name: _numbers(self.entries(name), name) for name in readings}
        return require_pyarrow(_PURPOSE).table(columns)

    def filled(self, name: str, numbers: Any, holes: Mask) -> Any:
        """Return a column of readings with numbers in its holes."""
        if self.delimiter is None:
            return numbers
        column = self.table.column(name).to_pylist()
        new = numbers.to_numpy()
        for row in np.flatnonzero(holes & ~np.isnan(new)).tolist():
            column[row] = _text(new[row])
        return column

    def added(self, numbers: Any) -> Any:
        """Return a new column of numbers."""
        if self.delimiter is None:
            return numbers
        return [_text(number) for number in numbers.to_numpy().tolist()]

    def extended(self, ids: Sequence[str], like: Ints, time: str, at: Ints) -> Rows:
        """Add rows with the ids of some rows and the times of others, and nothing else in them."""
        arrow = require_pyarrow(_PURPOSE)
        rows = dict.fromkeys(ids, like) | {time: at}
        absent = None if self.delimiter is None else ""
        new = {
            field.name: self.table.column(field.name).take(arrow.array(rows[field.name]))
            if field.name in rows
            else arrow.array([absent] * len(at), field.type)
            for field in self.table.schema
        }
        both = [self.table, arrow.table(new)]
        return Rows(arrow.concat_tables(both, promote_options="permissive"), self.delimiter)

    def write(self, path: Path, columns: dict[str, Any]) -> None:
        """Write columns, in the format that the rows came in."""
        table = require_pyarrow(_PURPOSE).table(columns)
        if self.delimiter is None:
            content = io.BytesIO()
            table = table.replace_schema_metadata(self.table.schema.metadata)
            require_pyarrow(_PURPOSE).parquet.write_table(table, content)
            write_bytes(path, content.getvalue())
            return
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self.delimiter, lineterminator="\n")
        writer.writerow(table.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
        encoded = text.getvalue().encode()
        write_bytes(path, gzip.compress(encoded, mtime=0) if path.suffix == ".gz" else encoded)


def holes_of(column: Any) -> Mask:
    """Tell which entries of a column of pyarrow are null or NaN."""
    return np.asarray(column.is_null(nan_is_null=True).to_numpy(), dtype=bool)


def _numbers(entries: list[str], name: str) -> NDArray[np.float64]:
    """Return readings as numbers, NaN where there is none."""
    try:
        return np.array([_number(entry) for entry in entries])
    except ValueError:
        row = next(row for row, entry in enumerate(entries) if not _is_reading(entry))
        raise DataError(
            f"row {row + 1} of column {name!r} must be a number, or empty for a gap; got "
            f"{entries[row][:60]!r}: mend it, or remove the column if it holds no readings. If the "
            "table has a row for each reading, name the column of values."
        ) from None


def _number(entry: str) -> float:
    return np.nan if entry.lower() in ABSENT else to_float(entry)


def _is_reading(entry: str) -> bool:
    try:
        _number(entry)
    except ValueError:
        return False
    return True


def _text(number: float) -> str:
    return "" if np.isnan(number) else f"{number:.7g}"
