"""What a text file looks like: its encoding, where its table begins, what its columns are called.

Loggers write lines above a table, names in one line or in two, units below them, and more. What is
a row of the table is told by most lines: they have as many fields, of the same kinds.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from noisewise.data import reader
from noisewise.data.dates import is_date
from noisewise.data.numerals import Numerals, decimal_of, is_numeral
from noisewise.data.roles import names_time
from noisewise.errors import DataError, SettingError, listed

DELIMITERS = ("\t", ";", "|", ",")

_LINES, _LETTERS = 400, 2**18  # of the beginning of a file, which is looked at
_UNDEFINED = bytes((0x81, 0x8D, 0x8F, 0x90, 0x9D))  # in Windows-1252
_UNIT = re.compile(
    r"\W*(?:deg|°|[CFK%VAW]|[munkµμ]?(?:g|m|s|V|A|W|l)|[hk]?Pa|m?bar|pp[mb]|w/?m|m/s|km/h|lux|ph|hrs?|"
    r"TS|RN|Smp|Avg|Min|Max|Tot|unit|none)\b.{0,12}|\W+|(?:(?:y{2,4}|m{1,2}|d{1,2}|h{1,2}|s{1,2})\b\W*){2,}",
    re.I,
)
_FITTING = 0.8  # share of rows that must look like those below for a table to begin


class Given(NamedTuple):
    """What somebody said of a text file; None is found out."""

    delimiter: str | None = None
    header: int | None = None  # the line with the names, counted from 1; 0 if there is none
    decimal: str | None = None
    encoding: str | None = None
    missing: tuple[str | float, ...] = ()


class Dialect(NamedTuple):
    """What a text file looks like."""

    encoding: str
    delimiter: str
    names: list[str]
    least: int  # fields that a row has at least; those behind may be left out
    above: int  # lines above the first row of the table
    names_line: int | None  # the one of them, counted from 1, that the names are in
    head: list[str]  # the fields of that line
    numerals: Numerals
    decimal_is_open: bool  # nothing told the decimal mark so far
    begins_with_data: bool  # rows begin with a number or a date

    @classmethod
    def of(cls, path: Path, given: Given) -> Dialect:
        """Look at the beginning of a file."""
        encoding = given.encoding or encoding_of(path)
        _check_encoding(encoding)
        lines = _head(path, encoding)
        if not any(line.strip() for line in lines):
            raise DataError("The file is empty: it has no line with text.")
        delimiter = given.delimiter or _delimiter(lines)
        head = _Head(lines, delimiter, Numerals.of(".", given.missing))
        names, above, names_line, fields = head.names(given.header)
        reader.check_columns(len(names))
        if len(names) < 2 and head.kinds != ["data"]:
            raise DataError(
                f"The table must have two columns or more; got {listed(names)}. If something else "
                f"than spaces, a tab or one of ; , | is between them, say so with delimiter=."
            )
        cells = [cell for line, row in head.rows if line > above for cell in row]
        decimal = decimal_of(cells, delimiter) if given.decimal is None else given.decimal
        if decimal == "?":
            raise DataError(
                "The commas in numbers may be decimal or stand between thousands: say decimal=',' "
                "or decimal='.'."
            )
        numerals = Numerals.of(decimal or ".", given.missing)
        least = min(head.width, len(names))
        return cls(
            encoding, delimiter, names, least, above, names_line, fields, numerals, decimal is None,
            head.kinds[0] == "data",
        )  # fmt: skip


class _Head:
    """The first rows of a file, and what can be told from them."""

    def __init__(self, lines: list[str], delimiter: str, numerals: Numerals) -> None:
        self.numerals, self.lines = numerals, lines
        rows = _rows(lines, delimiter)
        self.rows = [(line, row) for line, row in rows if any(cell.strip() for cell in row)]
        self.width = _usual_width([row for _, row in self.rows])
        reader.check_columns(self.width)
        full = [row for _, row in self.rows if len(row) == self.width]
        below = full[len(full) // 2 :]
        self.kinds = [self._most(row[k] for row in below) for k in range(self.width)]

    def _kind(self, cell: str) -> str:
        cell = cell.strip()
        if self.numerals.is_missing(cell):
            return "missing"
        return "data" if is_numeral(cell) or is_date(cell) else "text"

    def _most(self, cells: Iterable[str]) -> str:
        counts = Counter(map(self._kind, cells))
        del counts["missing"]
        return counts.most_common(1)[0][0] if counts else "missing"

    def _fits(self, row: Sequence[str]) -> bool:
        """Tell whether a row looks like those of the table."""
        if len(row) != self.width:
            return False
        kinds = [self._kind(cell) for cell in row]
        wrong = any(a == "data" and b == "text" for a, b in zip(self.kinds, kinds, strict=True))
        return not wrong and ("data" in kinds or "data" not in self.kinds)

    def _begin(self) -> int:
        """Return the number of the first row of the table."""
        fitting = [self._fits(row) for _, row in self.rows]
        if "data" not in self.kinds:
            return min(1, len(self.rows))
        for k, fits in enumerate(fitting):
            following = fitting[k : k + 10]
            if fits and sum(following) >= _FITTING * len(following):
                return k
        return fitting.index(True) if True in fitting else len(self.rows)

    def _holds(self, k: int) -> bool:
        """Tell whether a row holds a number or a date where others do, as no line of units does."""
        cells = zip(self.kinds, self.rows[k][1], strict=False)
        return any(kind == "data" and self._kind(cell) == "data" for kind, cell in cells)

    def names(self, header: int | None) -> tuple[list[str], int, int | None, list[str]]:
        """Return names, the number of lines above the table, the line with the names, as it is."""
        if header:
            at = next((k for k, (line, _) in enumerate(self.rows) if line >= header), None)
            if at is None or self.rows[at][0] != header:
                raise DataError(f"line {header} cannot have the names of columns: it is empty.")
            below = [k for k in range(at + 1, len(self.rows)) if self._fits(self.rows[k][1])]
            first = below[0] if below else at + 1
            chosen, joined = self.rows[at][1], list[list[str]]()
        else:
            first = self._begin()
            at, joined = (None, []) if header == 0 else self._header(first)
            chosen = [] if at is None else self.rows[at][1]
            if at is not None:
                first = next(k for k in range(at + 1, first + 1) if k == first or self._holds(k))
        above = self.rows[first][0] - 1 if first < len(self.rows) else self.rows[-1][0]
        named = _distinct(_joined(self._padded(chosen, above + 1), joined))
        return named, above, None if at is None else self.rows[at][0], chosen

    def _header(self, first: int) -> tuple[int | None, list[list[str]]]:
        """Return which row has the names, and a row above it that belongs to them."""
        start = first
        while start and abs(len(self.rows[start - 1][1]) - self.width) <= 1:
            start -= 1
            if self.rows[start][0] > 1 and not self.lines[self.rows[start][0] - 2].strip():
                break  # what is above an empty line is no part of the table
        likely = [k for k in range(start, first) if self._filled(k) * 2 >= self.width]
        remarks = [k for k in likely if re.match(r"\s*#\s*[^\s#]", self.rows[k][1][0])]
        rows = [k for k in likely if k not in remarks]
        likely = rows or remarks
        if not likely:
            return None, []
        if self.rows[0][1][0] == "TOA5" and len(self.rows) > 1:
            return 1, []
        timed = [k for k in likely if any(map(names_time, self.rows[k][1]))]
        plain = [k for k in likely if not self._has_units(k)]
        named = [k for k in timed if k in plain] or timed or plain or likely[:1]
        at = named[-1] if rows else named[0]
        names = [cell.strip() for cell in self.rows[at][1]]
        over = self.rows[at - 1][1] if at > start else []
        if len(over) != len(names) or over[0].strip():
            return at, []
        filled, repeated = self._filled(at - 1), len(set(names)) < len(names)
        belongs = filled * 2 >= self.width or (repeated and filled > 1)
        return at, [over] if belongs else []

    def _has_units(self, k: int) -> bool:
        cells = [cell.strip() for cell in self.rows[k][1]]
        return sum(not cell or bool(_UNIT.fullmatch(cell)) for cell in cells) * 2 >= len(cells)

    def _filled(self, k: int) -> int:
        return sum(bool(cell.strip()) for cell in self.rows[k][1])

    def _counts(self) -> bool:
        """Tell whether the first fields of rows count them, as R writes them without a name."""
        first = [row[0].strip() for _, row in self.rows if len(row) == self.width]
        begin = int(first[0]) if first[0].isdecimal() else 0
        return len(first) > 1 and first == [str(begin + k) for k in range(len(first))]

    def _padded(self, row: Sequence[str], line: int) -> list[str]:
        """Return names for every column: the last one may have none if nothing is in it."""
        names = [cell.strip().lstrip("\ufeff") for cell in row]
        if names and names[0].startswith("#") and len(names[0]) > 1:
            names[0] = names[0][1:].strip()
        missing = self.width - len(names)
        if missing == 1 and names and self._counts():
            return ["", *names]
        if missing > 0 and names and self.kinds[-1] != "missing":
            raise DataError(
                f"line {line}: found {self.width} fields, expected {len(names)}, which are "
                f"{listed(names)}; mend the line, or say with header= which one has the names."
            )
        while len(names) > self.width and not names[-1]:
            names.pop()
        return [*names, *[""] * missing]


def _rows(lines: list[str], delimiter: str) -> list[tuple[int, list[str]]]:
    """Split the lines of the beginning; the last row may have been cut off."""
    return list(reader.csv_rows(lines, delimiter, strict=False))


def _usual_width(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of fields that most rows have, of two or more if there are such rows."""
    counts = Counter(len(row) for row in rows)
    several = {width: n for width, n in counts.items() if width > 1} or counts
    return max(several, key=lambda width: (several[width], width))


def _delimiter(lines: list[str]) -> str:
    """Return what stands between fields: what leaves the most cells that are numbers or dates."""
    said = lines[0].strip().lower()
    if said.startswith("sep=") and len(said) == 5:
        return said[4:]
    numerals = Numerals.of(".")

    def clean(delimiter: str) -> tuple[int, int, int]:
        try:
            rows = [row for _, row in _rows(lines, delimiter)]
        except DataError:
            return 0, 0, 0
        rows = [row for row in rows if any(cell.strip() for cell in row)]
        if not rows or (width := _usual_width(rows)) < 2:
            return 0, 0, 0
        cells = [cell for row in rows if len(row) == width for cell in row[:200]]
        data = sum(bool(cell.strip()) and (is_numeral(cell) or is_date(cell)) for cell in cells)
        return data, sum(map(numerals.is_missing, cells)), len(cells)

    best = max(DELIMITERS, key=clean)
    return best if clean(best)[2] else max((best, " "), key=clean)


def _joined(names: list[str], over: list[list[str]]) -> list[str]:
    """Put names of a line above in front of names; one stands for all columns up to the next."""
    for row in over:
        sparse = sum(bool(cell.strip()) for cell in row) * 2 < len(row)
        last, above = "", []
        for cell in row:
            last = cell.strip() or (last if sparse else "")
            above.append(last)
        names = [f"{a} {b}".strip() for a, b in zip(above, names, strict=False)]
    return names


def _distinct(names: list[str]) -> list[str]:
    """Give every column a name of its own: by its place, or with a number as pandas does."""
    taken: set[str] = set()
    found = []
    for k, name in enumerate(names):
        name = name or f"column {k + 1}"
        new, n = name, 0
        while new in taken:
            n += 1
            new = f"{name}.{n}"
        taken.add(new)
        found.append(new)
    return found


def _head(path: Path, encoding: str) -> list[str]:
    lines, letters = [], 0
    for line in itertools.islice(reader.text_lines(path, encoding), _LINES):
        lines.append(line)
        letters += len(line)
        if letters > _LETTERS and len(lines) > 2:
            break
    return lines


def encoding_of(path: Path) -> str:
    """Return how the text of a file is encoded: as its first bytes say, UTF-8, or Windows-1252."""
    parts = reader.pieces(path)
    head = next(parts, b"")
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    few = head[:1000]
    if len(few) > 3 and few.count(0) * 2 >= len(few) - 2 and 0 in few[:2]:
        return "utf-16-be" if few[0] == 0 else "utf-16-le"
    found = reader.looks_like(few)
    if found != "text":
        raise DataError(f"Expected text, but it looks like {found}; rename or convert it.")
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_utf8, is_windows = True, True
    for piece in itertools.chain([head], parts):
        try:
            decoder.decode(piece) if is_utf8 else None
        except UnicodeDecodeError:
            is_utf8 = False
        is_windows = is_windows and not any(byte in piece for byte in _UNDEFINED)
    if is_utf8:
        return "utf-8-sig" if head.startswith(codecs.BOM_UTF8) else "utf-8"
    return "cp1252" if is_windows else "latin-1"


def _check_encoding(encoding: str) -> None:
    try:
        "".encode(encoding)
    except LookupError:
        raise SettingError(
            f"encoding must be one that Python knows, such as utf-8 or cp1252; got {encoding!r}."
        ) from None
