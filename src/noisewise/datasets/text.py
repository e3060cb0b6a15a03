"""Observations from delimited text, read as a stream.

Rows are taken a few thousand at a time and turned into row numbers at once, so that memory stays
near the 12 bytes an observation needs. Every error names the line.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from noisewise.datasets.columns import Choice, choose_columns
from noisewise.errors import DataError
from noisewise.observations import Codes, Duplicates, Ids, Observations, assemble

if TYPE_CHECKING:
    from _csv import Reader

_CHUNK = 4096  # rows; more at a time is slower, for it keeps the garbage collector busy
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as Python writes it, and within int64
_LARGEST = float(np.finfo(np.float32).max)
_UNIX_1973 = 10**8


def read_text(
    path: Path,
    *,
    delimiters: Sequence[str],
    names: list[str] | None = None,
    ids: Sequence[str | int] | None = None,
    value: str | int | None = None,
    time: str | int | None = None,
    duplicates: Duplicates = "error",
) -> Observations:
    """Read a text file with one observation a line.

    A first line with a number in it is an observation, else it names the columns. Without names,
    three columns are user, item and value, and a fourth may be the unix time.

    Parameters
    ----------
    path : Path
        A text file in UTF-8; compressed if its name ends in ``.gz``.
    delimiters : sequence of str
        What may stand between fields; the most frequent one in the first line does.
    names : list of str, optional
        The columns of a file that is known to have no header.
    ids, value, time : optional
        Columns, as for `choose_columns`. Times are unix seconds or ISO dates, which without a time
        zone are UTC.
    duplicates : {"error", "last", "mean"}
        As for `noisewise.observations.observe`.

    Returns
    -------
    Observations
        In the order of the lines. Ids are integers where all of a column are, else text.
    """
    lines = text_lines(path)
    first = next(lines, "")
    delimiter = max(delimiters, key=first.count)
    if delimiter not in first:
        wanted = " or ".join(map(repr, delimiters))
        raise DataError(f"line 1: found no {wanted} between fields, but {first[:60]!r}.")
    has_header = False
    if names is None:
        fields = _split_line(first, delimiter)
        has_header = not any(map(_is_number, fields))
        names = fields if has_header else _usual_names(fields, None not in (ids, value))
    columns = _Columns(names, choose_columns(names, ids=ids, value=value, time=time))
    body = lines if has_header else itertools.chain([first], lines)
    for rows, numbers in _chunks(_split(body, delimiter), int(has_header), names):
        columns.append(rows, numbers)
    return columns.assemble(duplicates)


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file; what is wrong with its bytes comes up here."""
    number = 0
    try:
        with io.TextIOWrapper(open_binary(path), "utf-8-sig", newline="") as text:
            for line in text:
                number += 1
                yield line
    except UnicodeDecodeError:
        with open_binary(path) as binary:
            found = next(pair for pair in enumerate(binary, 1) if not _is_utf8(pair[1]))
        raise DataError(
            f"line {found[0]}: {found[1][:60]!r} is not UTF-8 text; convert the file, for instance "
            "with iconv -f latin1 -t utf-8."
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"line {number + 1}: the compressed file is damaged or cut off here; get a new copy. "
            f"{error}"
        ) from None


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Put the path in front of errors about data."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading bytes, unpacked if its name ends in ``.gz``."""
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


class _Columns:
    """The columns that are read, growing chunk by chunk."""

    def __init__(self, names: list[str], choice: Choice) -> None:
        self.names = names
        self.choice = choice
        self.indexes = [_Index() for _ in choice.ids]
        self.codes: list[list[Codes]] = [[] for _ in choice.ids]
        self.values: list[NDArray[np.float32]] = []
        self.times: list[NDArray[np.float64]] = []
        self.lines: list[Sequence[int]] = []

    def append(self, rows: list[list[str]], lines: Sequence[int]) -> None:
        """Add rows, given with the number of the line each came from."""
        fields = list(zip(*rows, strict=True))
        try:
            for at, index, codes in zip(self.choice.ids, self.indexes, self.codes, strict=True):
                codes.append(np.fromiter(map(index.__getitem__, fields[at]), np.int32, len(rows)))
            numbers = np.fromiter(map(float, fields[self.choice.value]), np.float64, len(rows))
            if not np.all(np.abs(numbers) <= _LARGEST):
                raise ValueError("a value is not finite")
            self.values.append(numbers.astype(np.float32))
            if self.choice.time is not None:
                times = map(_seconds, fields[self.choice.time])
                self.times.append(np.fromiter(times, np.float64, len(rows)))
        except ValueError:
            self._blame(rows, lines)  # slow, field by field
            raise
        self.lines.append(lines)

    def assemble(self, duplicates: Duplicates) -> Observations:
        """Put the columns together; integers become integers."""
        ids, codes = [], []
        for at, index, chunks in zip(self.choice.ids, self.indexes, self.codes, strict=True):
            integers = all(map(_INTEGER.fullmatch, index))
            mode, numbers = Ids.encode(list(map(int, index) if integers else index), self.names[at])
            ids.append(mode)
            codes.append(numbers[_joined(chunks, np.int32)])
        times = None
        if self.choice.time is not None:
            times = _joined(self.times, np.float64)
            if np.all(times == np.floor(times)):
                times = times.astype(np.int64)
        values = _joined(self.values, np.float32)
        return assemble(codes, values, ids, times, duplicates=duplicates, place=self._place)

    def _place(self, first: int, second: int) -> str:
        return f"lines {self._line(first)} and {self._line(second)}"

    def _line(self, observation: int) -> int:
        return next(itertools.islice(itertools.chain.from_iterable(self.lines), observation, None))

    def _blame(self, rows: list[list[str]], lines: Sequence[int]) -> None:
        """Raise for the first field that is wrong."""
        checks = [(at, _id_fault) for at in self.choice.ids] + [(self.choice.value, _value_fault)]
        if self.choice.time is not None:
            checks.append((self.choice.time, _time_fault))
        for row, line in zip(rows, lines, strict=True):
            for at, fault_of in checks:
                fault = fault_of(row[at])
                if fault:
                    found = f"{self.names[at]} {row[at][:60]!r}"
                    raise DataError(f"line {line}: {found} {fault}; mend or remove the line.")


class _Index(dict[str, int]):
    """Row numbers by id; a new id gets the next one."""

    def __missing__(self, label: str) -> int:
        fault = _id_fault(label)
        if fault:
            raise ValueError(fault)
        code = self[label] = len(self)
        return code


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _split(lines: Iterable[str], delimiter: str) -> Reader:
    """Return a reader of rows; the csv module takes only one character as a delimiter."""
    if len(delimiter) > 1:
        separated = map(methodcaller("replace", delimiter, "\x1f"), lines)
        return csv.reader(separated, delimiter="\x1f", quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)


def _split_line(line: str, delimiter: str) -> list[str]:
    try:
        return [field.strip() for field in next(_split([line], delimiter))]
    except csv.Error as error:
        raise DataError(f"line 1: {error}; is a quote left open?") from None


def _chunks(
    reader: Reader, n_header: int, names: list[str]
) -> Iterator[tuple[list[list[str]], Sequence[int]]]:
    """Yield rows of full width, some at a time, with the number of the line each began in."""
    while True:
        rows: list[list[str]] = []
        start = reader.line_num + n_header + 1
        try:
            rows.extend(itertools.islice(reader, _CHUNK))
        except csv.Error as error:  # the rows before the broken one are in the list
            line = _line_numbers(start, rows)[-1]
            raise DataError(f"line {line}: {error}; is a quote left open?") from None
        lines: Sequence[int] = range(start, start + len(rows))
        if reader.line_num + n_header != start + len(rows) - 1:
            lines = _line_numbers(start, rows)[:-1]
        widths = set(map(len, rows))
        if 0 in widths:  # empty lines
            lines = [line for line, row in zip(lines, rows, strict=True) if row]
            rows = [row for row in rows if row]
        if widths - {0, len(names)}:
            line, row = next(
                (li, row) for li, row in zip(lines, rows, strict=True) if len(row) != len(names)
            )
            raise DataError(
                f"line {line}: found {len(row)} fields, expected {len(names)}, which are "
                f"{', '.join(names)}; mend or remove the line."
            )
        if not widths:
            return
        if rows:
            yield rows, lines


def _line_numbers(start: int, rows: list[list[str]]) -> list[int]:
    """Return the line each row begins in, and the line after them; a quoted field may be long."""
    heights = (1 + sum(field.count("\n") for field in row) for row in rows)
    return list(itertools.accumulate(heights, initial=start))


def _usual_names(fields: list[str], columns_are_given: bool) -> list[str]:
    """Name the columns of a file without names."""
    if columns_are_given:
        return [f"column {k}" for k in range(len(fields))]
    has_time = len(fields) == 4 and _INTEGER.fullmatch(fields[3]) and int(fields[3]) > _UNIX_1973
    if len(fields) == 3 or has_time:
        return ["user", "item", "value", "time"][: len(fields)]
    raise DataError(
        f"line 1: found no column names and {len(fields)} columns; say which are ids and which is "
        "the value by position, such as ids=[0, 1], value=2."
    )


def _joined(chunks: list[NDArray[Any]], dtype: type) -> NDArray[Any]:
    joined = np.concatenate([np.empty(0, dtype), *chunks])
    chunks.clear()  # at once, so that no more than one column is there twice
    return joined


def _id_fault(text: str) -> str | None:
    if not text:
        return "is empty"
    return "has a NUL byte" if "\0" in text else None


def _value_fault(text: str) -> str | None:
    try:
        number = float(text)
    except ValueError:
        return "is not a number"
    return None if abs(number) <= _LARGEST else "is not finite as float32"


def _time_fault(text: str) -> str | None:
    try:
        _seconds(text)
    except ValueError:
        return "is neither unix seconds nor an ISO date"
    return None


def _is_number(text: str) -> bool:
    return _value_fault(text) is None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(seconds):
        raise ValueError(f"{text} is not finite")
    return seconds
