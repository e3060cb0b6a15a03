"""Tables in text, read in pieces: columns become numbers, dates or ids; the text stays in the file.

What is written back is read once more on the way: every field that is not filled stays letter for
letter, and so do the lines above the table, among its rows and below it.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisewise.data import reader
from noisewise.data.columns import Column, OtherDecimal
from noisewise.data.dialect import Dialect, Given
from noisewise.data.numerals import Decimal, Numerals
from noisewise.errors import DataError, listed
from noisewise.storage import writing

Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Replaced: TypeAlias = Mapping[str, tuple[Floats, Mask]]  # numbers for some rows of a column

# How rows begin that sum up those above them.
_SUMMARIES = frozenset(
    (
        "total", "totals", "sum", "average", "averages", "avg", "mean", "median", "min", "minimum",
        "max", "maximum", "std", "stdev", "std dev", "count", "summe", "gesamt", "mittel",
        "mittelwert", "moyenne", "somme", "media", "promedio", "totale", "minimo", "massimo",
    )
)  # fmt: skip
_BATCH = 2**15  # fields that are turned into columns at a time


class Record(NamedTuple):
    """A row of a table, or a line that is none."""

    line: int
    raw: str  # with its line end
    fields: list[str] | None  # None if it is no row


@dataclass(frozen=True, eq=False)
class TextRows:
    """A table in a text file."""

    path: Path
    dialect: Dialect
    columns: dict[str, Column]
    n_rows: int

    @classmethod
    def read(cls, path: Path, given: Given, is_id: Callable[[str], bool]) -> TextRows:
        """Read a file; columns that may be ids are kept as such, even if they hold numbers."""
        dialect = Dialect.of(path, given)
        try:
            return cls._read(path, dialect, is_id)
        except OtherDecimal:
            comma: Decimal = ","
            numerals = Numerals.of(comma, given.missing)
            return cls._read(
                path, dialect._replace(numerals=numerals, decimal_is_open=False), is_id
            )

    @classmethod
    def _read(cls, path: Path, dialect: Dialect, is_id: Callable[[str], bool]) -> TextRows:
        columns = [
            Column(name, dialect.numerals, is_id=is_id(name), is_open=dialect.decimal_is_open)
            for name in dialect.names
        ]
        rows = (record for record in records(path, dialect) if record.fields is not None)
        n_rows, most = 0, max(1, _BATCH // len(columns))
        while batch := list(itertools.islice(rows, most)):
            lines = [record.line for record in batch]
            fields = zip(*(record.fields or [] for record in batch), strict=True)
            for column, entries in zip(columns, fields, strict=True):
                column.add(entries, lines)
            n_rows += len(batch)
        for column in columns:
            column.finish()
        if not n_rows:
            raise DataError("There are no rows below the names of the columns.")
        return cls(path, dialect, {column.name: column for column in columns}, n_rows)

    def line_of(self, row: int) -> int:
        """Return the line that a row begins in."""
        rows = (record for record in records(self.path, self.dialect) if record.fields is not None)
        return next(itertools.islice(rows, row, None)).line

    def write(
        self, out: Path, replaced: Replaced, added: Mapping[str, Any], more: MoreRows | None = None
    ) -> None:
        """Write the file again with other numbers in some rows, and columns added behind the last.

        More rows go below the last one of the table.
        """
        places = {self.dialect.names.index(name): new for name, new in replaced.items()}
        behind = [list(map(self._text, column)) for column in added.values()]
        kept, units = _Kept(more), [column.unit for column in self.columns.values()]

        def changes(row: int) -> dict[int, str]:
            asked = ((k, new[row]) for k, (new, where) in places.items() if where[row])
            return {k: self._text(number) + units[k] for k, number in asked if not np.isnan(number)}

        def lines() -> Iterator[str]:
            row, end, ended = 0, "\n", True
            for record in records(self.path, self.dialect):
                raw = record.raw.rstrip("\r\n")
                found = record.raw[len(raw) :]
                end, ended = found or end, bool(found)
                if record.fields is not None:
                    kept.look(row, record.fields)
                    more = [column[row] for column in behind]
                    raw = self._changed(raw, record.fields, changes(row), more)
                    row += 1
                elif added:
                    raw = self._head(raw, record.line, list(added))
                yield raw + found
            for n, fields in enumerate(kept.rows(len(self.dialect.names)), start=row):
                whole = [changes(n).get(k, field) for k, field in enumerate(fields)]
                whole += [column[n] for column in behind]
                yield ("" if ended else end) + self._joined(whole) + end
                ended = True

        with _packed(out) as binary:
            text = io.TextIOWrapper(binary, self.dialect.encoding, newline="")
            text.writelines(lines())
            text.flush()
            text.detach()

    def _text(self, number: Any) -> str:
        return self.dialect.numerals.text(float(number))

    def _head(self, raw: str, line: int, names: list[str]) -> str:
        """Add names of columns to the line with the names, and nothing to lines of units below."""
        first = self.dialect.names_line
        if first is None or not first <= line <= self.dialect.above or not raw.strip():
            return raw
        words = names if line == first else [""] * len(names)
        return self.dialect.delimiter.join([raw, *map(self._quoted, words)])

    def _changed(
        self, raw: str, fields: list[str], changes: dict[int, str], behind: list[str]
    ) -> str:
        """Return a line with some fields changed and some added."""
        if changes:
            parts = raw_fields(raw, self.dialect.delimiter)
            if not len(fields) <= len(parts) <= len(fields) + 1 or self.dialect.delimiter == " ":
                parts = [self._quoted(field) for field in fields]
            for k, text in changes.items():
                parts[k] = self._quoted(text)
            raw = self.dialect.delimiter.join(parts)
        return self.dialect.delimiter.join([raw, *map(self._quoted, behind)])

    def _joined(self, fields: list[str]) -> str:
        return self.dialect.delimiter.join(map(self._quoted, fields))

    def _quoted(self, text: str) -> str:
        """Put a field between quotes if it needs them."""
        if self.dialect.delimiter in text or any(sign in text for sign in '"\r\n'):
            return '"' + text.replace('"', '""') + '"'
        return text


class MoreRows(NamedTuple):
    """Rows to add: some columns as in one row, some as in another, nothing in all others."""

    sources: dict[int, NDArray[np.int64]]  # by the place of a column, the row to take it from


class _Kept:
    """Fields that rows to be added take from others, seen as these go by."""

    def __init__(self, more: MoreRows | None) -> None:
        self.sources = {} if more is None else more.sources
        self.wanted = {k: set(rows.tolist()) for k, rows in self.sources.items()}
        self.found: dict[tuple[int, int], str] = {}

    def look(self, row: int, fields: list[str]) -> None:
        """Keep what is wanted of a row."""
        for k, rows in self.wanted.items():
            if row in rows:
                self.found[k, row] = fields[k]

    def rows(self, width: int) -> Iterator[list[str]]:
        """Yield the rows to add."""
        many = max((len(rows) for rows in self.sources.values()), default=0)
        for n in range(many):
            taken = {k: self.found[k, int(rows[n])] for k, rows in self.sources.items()}
            yield [taken.get(k, "") for k in range(width)]


def records(path: Path, dialect: Dialect) -> Iterator[Record]:
    """Yield every line of a file, rows of the table with their fields."""
    lines = reader.text_lines(path, dialect.encoding)
    for number, line in enumerate(itertools.islice(lines, dialect.above), start=1):
        yield Record(number, line, None)
    names, head, width = dialect.names, dialect.head, len(dialect.names)
    loose: tuple[int, int] | None = None  # a line that only the end of a file may have
    empty: list[Record] = []  # lines of a table of one column, which are gaps if a row follows
    for number, raw, fields in raw_rows(lines, dialect.delimiter, dialect.above + 1):
        if width == 1 and not raw.strip():
            empty.append(Record(number, raw, [""]))
            continue
        if (
            dialect.begins_with_data
            and len(fields) > 1
            and fields[0].strip(" :.").lower() in _SUMMARIES
        ):
            yield Record(number, raw, None)
            continue
        if len(fields) == width + 1 and not fields[-1].strip():
            fields.pop()
        if dialect.least <= len(fields) < width:
            fields += [""] * (width - len(fields))
        is_row = len(fields) == width and fields != head
        if is_row and not any(map(str.strip, fields)):
            is_row = False
        if not is_row:
            alone = len(fields) < 2 or not any(map(str.strip, fields[1:]))
            remark = raw.lstrip().startswith("#") or fields == head or not raw.strip()
            if len(fields) != width and not (alone or remark):
                raise _wrong_width(number, len(fields), names)
            if len(fields) != width and not remark and loose is None:
                loose = number, len(fields)
        elif loose is not None:
            raise _wrong_width(*loose, names)
        yield from (one if is_row else one._replace(fields=None) for one in empty)
        empty.clear()
        yield Record(number, raw, fields if is_row else None)
    yield from (one._replace(fields=None) for one in empty)


def _wrong_width(line: int, found: int, names: list[str]) -> DataError:
    return DataError(
        f"line {line}: found {found} fields, expected {len(names)}, which are {listed(names)}; "
        "mend or remove the line."
    )


def raw_rows(
    lines: Iterable[str], delimiter: str, number: int
) -> Iterator[tuple[int, str, list[str]]]:
    """Split lines by the rules of csv; yield the number and the text that a row has in the file."""
    taken: list[str] = []

    def recorded() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            yield line

    for line, fields in reader.csv_rows(recorded(), delimiter, number):
        yield line, "".join(taken), fields
        taken.clear()


def raw_fields(raw: str, delimiter: str) -> list[str]:
    """Split a line into fields as they are written, with their quotes."""
    if '"' not in raw:
        return raw.split(delimiter)
    mark = re.escape(delimiter)
    return re.findall(rf'(?:^|(?<={mark}))(\s*"(?:[^"]|"")*"[^{mark}]*|[^{mark}]*)', raw)


@contextlib.contextmanager
def _packed(path: Path) -> Iterator[Any]:
    """Open a file to write to, packed as its name says, with the same bits every time."""
    suffix = path.suffix.lower()
    with writing(path) as file:
        if suffix not in reader.PACKED:
            yield file
        elif suffix == ".gz":
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                yield packed
        else:
            with reader.PACKED[suffix](file, "wb") as packed:
                yield packed
