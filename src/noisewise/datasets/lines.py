"""Lines of a text file, and blocks of their fields, each with its line number."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from noisewise.errors import DataError

if TYPE_CHECKING:
    from _csv import Reader

_LINES = 4096  # in a block; the fields of more would not stay in the cache
_ROWS = 512  # in a block; more lists at a time would keep the garbage collector busy


class Block(NamedTuple):
    """Some rows of a file, column by column, and the line each row begins in."""

    columns: list[Sequence[str]]
    lines: Sequence[int]


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file in UTF-8, unpacked if its name ends in ``.gz``."""
    number = 0
    try:
        with io.TextIOWrapper(_open(path), "utf-8-sig", newline="") as text:
            for line in text:
                number += 1
                yield line
    except UnicodeDecodeError:
        with _open(path) as binary:
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


def split_line(line: str, delimiter: str) -> list[str]:
    """Return the fields of the first line."""
    try:
        return [field.strip() for field in next(_rows([line], delimiter))]
    except csv.Error as error:
        raise DataError(f"line 1: {error}; is a quote left open?") from None


def blocks(lines: Iterator[str], delimiter: str, names: list[str], number: int) -> Iterator[Block]:
    """Split lines into fields.

    Parameters
    ----------
    lines : iterator of str
        The lines of a file or the rest of them.
    delimiter : str
        What stands between fields.
    names : list of str
        The columns there must be.
    number : int
        The number of the first line.

    Yields
    ------
    Block
        Rows that all have the right number of fields.
    """
    while taken := list(itertools.islice(lines, _LINES)):
        text = "".join(taken).replace("\r\n", "\n")
        quoted = '"' in text
        columns = None if quoted else _split_plain(text, delimiter, len(names))
        if columns:
            yield Block(columns, range(number, number + len(taken)))
        else:
            # A quoted field may go on in the next lines, so all of them are left to the parser.
            parsed = itertools.chain(taken, lines) if quoted else taken
            yield from _parse(parsed, delimiter, names, number)
        number += len(taken)


def _split_plain(text: str, delimiter: str, width: int) -> list[Sequence[str]] | None:
    """Return the columns of lines without quotes, None if a line has not the right width.

    All lines are split at once, with the line ends as fields of their own. That is a few times
    faster than a list for every line.
    """
    text = text if text.endswith("\n") else text + "\n"
    fields = text.replace("\n", f"{delimiter}\n{delimiter}").split(delimiter)
    fields.pop()
    period = width + 1
    ends = fields[width::period]
    if "\r" in text or set(ends) != {"\n"} or len(ends) != text.count("\n"):
        return None
    return [fields[k::period] for k in range(width)]


def _parse(lines: Iterable[str], delimiter: str, names: list[str], number: int) -> Iterator[Block]:
    """Split lines by the rules of csv, leave out empty ones, find the one that is wrong."""
    reader = _rows(lines, delimiter)
    while True:
        rows: list[list[str]] = []
        start = number + reader.line_num
        try:
            rows.extend(itertools.islice(reader, _ROWS))
        except csv.Error as error:  # the rows before the broken one are in the list
            line = start + sum(map(_height, rows))
            raise DataError(f"line {line}: {error}; is a quote left open?") from None
        if not rows:
            return
        lines_of: Sequence[int] = range(start, start + len(rows))
        if number + reader.line_num != start + len(rows):
            lines_of = list(itertools.accumulate(map(_height, rows[:-1]), initial=start))
        widths = set(map(len, rows))
        if 0 in widths:  # empty lines
            lines_of = [line for line, row in zip(lines_of, rows, strict=True) if row]
            rows = [row for row in rows if row]
        if not widths <= {0, len(names)}:
            k = next(k for k, row in enumerate(rows) if len(row) != len(names))
            raise DataError(
                f"line {lines_of[k]}: found {len(rows[k])} fields, expected {len(names)}, which "
                f"are {', '.join(names)}; mend or remove the line."
            )
        if rows:
            yield Block(list(zip(*rows, strict=True)), lines_of)


def _rows(lines: Iterable[str], delimiter: str) -> Reader:
    """Return a reader of rows; the csv module knows delimiters of one character only."""
    if len(delimiter) > 1:
        separated = map(methodcaller("replace", delimiter, "\x1f"), lines)
        return csv.reader(separated, delimiter="\x1f", quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)


def _height(row: list[str]) -> int:
    """Return how many lines a row takes; a quoted field may hold line ends."""
    return 1 + sum(field.count("\n") for field in row)


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
