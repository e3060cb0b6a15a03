"""The one reader of text: lines, rows by the rules of CSV, and numbers as files write them.

How much a file may take is checked before memory is taken, as a small file can claim anything. A
compressed file may unpack to a hundred times its size, and any to 64 MiB, or to the bytes that
``NOISEWISE_MAX_UNPACKED`` says: tables compress five to twenty times. Every error names the line.
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import io
import itertools
import lzma
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from noisewise.errors import DataError, MissingExtraError, SettingError, listed

SETTING = "NOISEWISE_MAX_UNPACKED"
LONGEST_LINE = 2**24  # bytes
MOST_COLUMNS = 100_000
INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as Python writes it, and within int64

_FLOOR = 2**26
_RATIO = 100
_LETTERS = 2**17  # in a block; the fields of more would not stay in the cache
_ROWS = 512  # in a block; more lists at a time would keep the garbage collector busy
_FIELDS = 2**18  # in a block of rows
_TEXT, _GZIP, _PARQUET = "text", "a gzip file", "Parquet"
_ZIP = "a zip archive, as .npz and .xlsx are"
_MAGIC = {
    b"PAR1": _PARQUET, b"PK\x03\x04": _ZIP, b"\x1f\x8b": _GZIP, b"\x89HDF": "HDF5",
    b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text", b"ARROW1": "Arrow (Feather)",
    b"\x93NUMPY": "a single numpy array, as .npy is", b"SQLite": "an SQLite database",
    b"<!": "a web page", b"<html": "a web page",
}  # fmt: skip
PACKED: dict[str, Any] = {".gz": gzip.GzipFile, ".bz2": bz2.BZ2File, ".xz": lzma.LZMAFile}
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)  # what unpacking raises


class Block(NamedTuple):
    """Some rows of a file, column by column, and the line each row begins in."""

    columns: list[Sequence[str]]
    lines: Sequence[int]


def suffix_of(path: Path) -> str:
    """Return how the name of a file ends, in small letters, before any ``.gz``."""
    return Path(bare_name(path)).suffix.lower()


def bare_name(path: Path) -> str:
    """Return the name of a file without the ending of what is packed."""
    return path.name[: -len(path.suffix)] if is_packed(path) else path.name


def is_packed(path: Path) -> bool:
    """Tell whether the name of a file says that its content is compressed."""
    return path.suffix.lower() in PACKED


@contextlib.contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Put the path in front of errors about data."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def text_lines(path: Path, encoding: str = "utf-8-sig") -> Iterator[str]:
    """Yield the lines of a file, unpacked if its name ends in ``.gz`` or the like."""
    number = 0
    try:
        guarded = cast(BinaryIO, _Guarded(path))
        with io.TextIOWrapper(guarded, encoding, newline="") as text:
            for line in text:
                number += 1
                yield line
    except UnicodeDecodeError as error:
        if encoding != "utf-8-sig":
            raise DataError(f"line {number + 1} is not {encoding} text: {error.reason}.") from None
        raise _not_utf8(path) from None
    except _DAMAGED as error:
        raise _cut_off(number, error) from None


def pieces(path: Path) -> Iterator[bytes]:
    """Yield the content of a file, unpacked, in pieces of up to a megabyte."""
    try:
        with _Guarded(path) as file:
            while piece := file.read1(2**20):
                yield piece
    except _DAMAGED as error:
        raise DataError(
            f"the compressed file is damaged or cut off; get a new copy. {error}"
        ) from None


class TextTable(NamedTuple):
    """A text file that is open: its first line, what stands between fields, and the other lines."""

    first: str
    delimiter: str
    fields: list[str]
    lines: Iterator[str]

    @classmethod
    def open(cls, path: Path, delimiters: Sequence[str]) -> TextTable:
        """Open a file; the delimiter is the most frequent one in the first line."""
        lines = text_lines(path)
        first = next(lines, "")
        delimiter = max(delimiters, key=first.count)
        check_columns(first.count(delimiter) + 1)
        fields = [field.strip() for _, row in csv_rows([first], delimiter) for field in row]
        return cls(first, delimiter, fields, lines)

    def blocks(self, names: list[str], *, below: bool) -> Iterator[Block]:
        """Yield rows of as many fields as there are names, maybe only those below line 1."""
        lines = self.lines if below else itertools.chain([self.first], self.lines)
        return _blocks(lines, self.delimiter, names, 1 + below)


def csv_rows(
    lines: Iterable[str], delimiter: str = ",", number: int = 1, *, strict: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """Split lines by the rules of csv; yield the line that a row begins in, and its fields.

    The first line has this number. If not ``strict``, a quote in the wrong place is no error.
    """
    if len(delimiter) > 1:  # the csv module knows delimiters of one character only
        separated = map(methodcaller("replace", delimiter, "\x1f"), lines)
        reader = csv.reader(separated, delimiter="\x1f", quoting=csv.QUOTE_NONE)
    else:
        if delimiter == " ":  # any number of them, and none at either end
            lines = (line.strip(" \r\n") + "\n" for line in lines)
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=strict)
    line = number
    try:
        for row in reader:
            yield line, row
            line = number + reader.line_num
    except csv.Error as error:
        raise DataError(f"line {line}: {error}; is a quote left open?") from None


def _blocks(lines: Iterator[str], delimiter: str, names: list[str], number: int) -> Iterator[Block]:
    """Split lines into fields; the first one has this number."""
    while taken := _take(lines):
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


def _take(lines: Iterator[str]) -> list[str]:
    """Return the next lines: not by their number, as some may be very long."""
    taken, letters = [], 0
    for line in lines:
        taken.append(line)
        letters += len(line)
        if letters >= _LETTERS:
            break
    return taken


def _split_plain(text: str, delimiter: str, width: int) -> list[Sequence[str]] | None:
    """Return the columns of lines without quotes, None if a line has not the right width."""
    text = text if text.endswith("\n") else text + "\n"
    if "\r" in text or text.count(delimiter) != (width - 1) * text.count("\n"):
        return None
    # With line ends as fields of their own, a few times faster than a list for every line.
    fields = text.replace("\n", f"{delimiter}\n{delimiter}").split(delimiter)
    fields.pop()
    period = width + 1
    ends = fields[width::period]
    if set(ends) != {"\n"} or len(ends) != text.count("\n"):
        return None
    return [fields[k::period] for k in range(width)]


def _parse(lines: Iterable[str], delimiter: str, names: list[str], number: int) -> Iterator[Block]:
    """Split lines by the rules of csv."""
    rows = _full_rows(lines, delimiter, names, number)
    most = max(1, min(_ROWS, _FIELDS // len(names)))
    while taken := list(itertools.islice(rows, most)):
        lines_of, fields = zip(*taken, strict=True)
        yield Block(list(zip(*fields, strict=True)), lines_of)


def _full_rows(
    lines: Iterable[str], delimiter: str, names: list[str], number: int
) -> Iterator[tuple[int, list[str]]]:
    """Leave out rows that are empty, find the one that is wrong."""
    for line, row in csv_rows(lines, delimiter, number):
        if row and len(row) != len(names):
            raise DataError(
                f"line {line}: found {len(row)} fields, expected {len(names)}, which are "
                f"{listed(names)}; mend or remove the line."
            )
        if row:
            yield line, row


class _Guarded(io.BufferedIOBase):
    """The bytes of a file, unpacked; ends with an error where there are too many of them."""

    def __init__(self, path: Path) -> None:
        self.most = most_unpacked(path) if is_packed(path) else None
        if self.most is not None and path.suffix == ".gz" and _said_size(path) > self.most:
            _unpack(path, self.most)  # which is faster than to read what is in it
        self.file = _open(path)
        self.read_so_far = self.in_line = 0

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1) -> bytes:
        try:
            content = self.file.read1(size)
        except OSError as error:
            if error.errno is None and self.most is not None:  # which is what bz2 raises
                raise EOFError(str(error)) from None
            raise
        self.read_so_far += len(content)
        if self.most is not None:
            check_unpacked(self.read_so_far, self.most)
        end = max(content.rfind(b"\n"), content.rfind(b"\r"))
        self.in_line = len(content) - end - 1 + (self.in_line if end < 0 else 0)
        if self.in_line > LONGEST_LINE:
            raise DataError(
                f"found a line of more than {LONGEST_LINE:,} bytes, which no table has; is it text?"
            )
        return content

    def close(self) -> None:
        self.file.close()
        super().close()


def _not_utf8(path: Path) -> DataError:
    """Return the error about the first line of a file that is not UTF-8."""
    number, line = 0, b""
    try:
        with _open(path) as binary:
            for line in binary:
                line.decode()
                number += 1
    except _DAMAGED as error:
        return _cut_off(number, error)
    except UnicodeDecodeError:
        pass  # which is looked for
    return DataError(
        f"line {number + 1}: {line[:60]!r} is not UTF-8 text; convert the file, for instance with "
        "iconv -f latin1 -t utf-8."
    )


def _cut_off(number: int, error: Exception) -> DataError:
    return DataError(
        f"line {number + 1}: the compressed file is damaged or cut off here; get a new copy. "
        f"{error}"
    )


def _said_size(path: Path) -> int:
    """Return the size that a gzip file says it unpacks to: its last four bytes."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, io.SEEK_END) - 4))
        return int.from_bytes(file.read(4), "little")


def _unpack(path: Path, most: int) -> None:
    """Raise if a gzip file unpacks to too much; what else is wrong, its reader will say."""
    unpacked = 0
    with gzip.GzipFile(path) as file, contextlib.suppress(*_DAMAGED):
        while piece := file.read(2**20):
            unpacked += len(piece)
            check_unpacked(unpacked, most)


def _open(path: Path) -> io.BufferedIOBase:
    opened: io.BufferedIOBase = PACKED.get(path.suffix.lower(), open)(path, "rb")
    return opened


def join(parts: list[NDArray[Any]], dtype: type) -> NDArray[Any]:
    """Return a column that was read in parts; the parts are gone then."""
    joined = np.concatenate([np.empty(0, dtype), *parts])
    parts.clear()  # at once, so that no more than one column is there twice
    return joined


def to_floats(column: Sequence[str]) -> NDArray[np.float64]:
    """Return the numbers of a column; raise ``ValueError`` if one of them is none."""
    text = "".join(column)
    plain = text.isascii() and text.isprintable() and "_" not in text
    return np.fromiter(map(float if plain else to_float, column), np.float64, len(column))


def to_float(text: str) -> float:
    """Return the number that a text is; raise ``ValueError`` if it is none."""
    text = text.strip()
    if "_" in text or not text.isascii():
        raise ValueError(f"{text[:60]!r} has an underscore, or digits that are not 0 to 9")
    return float(text)


def most_unpacked(path: Path) -> int:
    """Return how many bytes a compressed file may unpack to."""
    given = os.environ.get(SETTING)
    if given is None:
        return max(_FLOOR, _RATIO * path.stat().st_size)
    if not (given.isascii() and given.isdigit() and len(given) < 19):
        raise SettingError(f"{SETTING} must be a number of bytes, such as 4000000000; got {given}.")
    return int(given)


def check_unpacked(n_bytes: int, most: int) -> None:
    """Raise if content is larger than a file may unpack to."""
    if n_bytes > most:
        raise DataError(
            f"the file unpacks to {n_bytes:,} bytes or more, and {most:,} are allowed, as it may "
            f"be made to fill the memory. If you trust it, set {SETTING} to more."
        )


def check_columns(n_columns: int) -> None:
    """Raise if there are more columns than a table has."""
    if n_columns > MOST_COLUMNS:
        raise DataError(
            f"found {n_columns:,} columns; at most {MOST_COLUMNS:,} can be read: put the values "
            "one below the other, with a column for each id."
        )


def require_pyarrow(purpose: str) -> Any:
    """Return pyarrow, or raise with what it is needed for."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError(purpose, "parquet") from None
    return pyarrow


def check_content(path: Path, format: str) -> None:
    """Raise unless the first bytes are those of the format."""
    with path.open("rb") as file:
        head = file.read(512)
    if not head:
        raise DataError("The file is empty: it has 0 bytes.")
    expected = {"parquet": _PARQUET, "npz": _ZIP}.get(format, _TEXT)
    if expected == _TEXT and path.suffix == ".gz":
        expected = _GZIP
    found = looks_like(head)
    if found != expected:
        raise DataError(f"Expected {expected}, but it looks like {found}; rename or convert it.")


def looks_like(head: bytes) -> str:
    """Say what the first bytes of a file are of; "text" for all that has no sign of its own."""
    kind = "binary data" if b"\0" in head else _TEXT
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), kind)
