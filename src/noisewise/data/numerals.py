"""Numbers as people write them: decimal commas, thousands apart, and signs of a missing reading."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisewise.data.reader import to_float
from noisewise.errors import SettingError

Decimal: TypeAlias = Literal[".", ","]

# How text says that there is no reading, in small letters; dashes and dots are one however many.
ABSENT = frozenset(
    (
        "", "na", "n/a", "n.a.", "#n/a", "#na", "nan", "null", "none", "nil", "missing", "no data",
        "nodata", "nd", "n/d", "n.d.", "s/d", "k.a.", "unknown", "unavailable", "undefined", "nat",
        "\\n", "#div/0!", "#value!", "#ref!", "#num!", "#name?", "<na>", "<null>", "#n/a n/a",
        "#nv", "#n/d", "#wert!", "#valeur!", "#bezug!", "1.#qnan", "1.#ind", "-1.#ind", "-nan",
        "err", "error",
    )
)  # fmt: skip
# What loggers write as a number for want of a better word.
CODES = frozenset(
    sign * code
    for sign in (1.0, -1.0)
    for code in (99.9, 99.99, 999.0, 999.9, 999.99, 9999.0, 9999.9, 99999.0, 6999.0, 7999.0)
) | {-99.0, -200.0, 32767.0, -32768.0, 65535.0}  # fmt: skip
_DASHES = re.compile("[-\u2013\u2014.*?]+")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(?:(?P<mark>[., '\u2019\u00a0\u202f])[0-9]{3})"
                      r"(?:(?P=mark)[0-9]{3})*(?:[.,][0-9]+)?")  # fmt: skip
_WITH_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?")
_WITH_POINT = re.compile(r"[+-]?[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?")
_THREE = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+")


_WITH_UNIT = re.compile(
    r"[+-]?[0-9][0-9., '\u2019\u00a0\u202f]*?(?P<unit>\s*(?:%|°\s?[CFK]?|[℃℉CFKVAW]|[hk]?Pa|"
    r"mbar|mb|inHg|in|[cmk]?m|mph|km/h|m/s|kn|pp[mb]|lx|lux|W/m²|[µμu]g/m[³3]|dB|m[VA]|k?Wh?))"
)


class Numerals(NamedTuple):
    """How a file writes numbers, and what in it stands for a missing one."""

    decimal: Decimal
    words: frozenset[str]  # missing, beside those that always are
    codes: frozenset[float]

    @classmethod
    def of(cls, decimal: str, missing: Iterable[str | float] = ()) -> Numerals:
        """Take what somebody said that stands for a missing reading: words, or numbers."""
        if decimal not in (".", ","):
            raise SettingError(f"decimal must be '.' or ','; got {decimal!r}.")
        plain = cls("." if decimal == "." else ",", frozenset(), frozenset())
        words, codes = set(), set()
        for entry in map(str, missing):
            words.add(entry.strip().lower())
            try:
                codes.add(plain.number(entry))
            except ValueError:
                continue
        return cls(plain.decimal, frozenset(words), frozenset(codes))

    def is_missing(self, text: str) -> bool:
        """Tell whether a text says that there is no reading."""
        text = text.strip().lower()
        return text in ABSENT or text in self.words or bool(_DASHES.fullmatch(text))

    def number(self, text: str) -> float:
        """Return the number that a text is; raise ``ValueError`` if it is none."""
        text = text.strip().replace("\u2212", "-")
        grouped = _GROUPED.fullmatch(text)
        if grouped and grouped["mark"] != self.decimal:
            mark = grouped["mark"]
            # A point that may be one of a decimal number is one, unless commas are.
            if mark != "." or self.decimal == ",":
                text = text.replace(mark, "")
        if self.decimal == ",":
            text = text.replace(",", ".") if "." not in text else text
        return to_float(text)

    def is_number(self, text: str) -> bool:
        """Tell whether a text is a number."""
        try:
            self.number(text)
        except ValueError:
            return False
        return True

    def floats(self, entries: Sequence[str]) -> tuple[NDArray[np.float64], list[int]]:
        """Return a column as numbers, NaN where there is none, and which rows hold something else.

        What is missing, is NaN and nothing else.
        """
        text = "".join(entries)
        plain = self.decimal == "." and text.isascii() and text.isprintable() and "_" not in text
        try:
            if not plain:
                raise ValueError
            numbers = np.array([float(entry) if entry else np.nan for entry in entries], np.float64)
            odd: list[int] = []
        except ValueError:
            numbers, odd = self._one_by_one(entries)
        for code in self.codes:
            numbers[numbers == code] = np.nan
        return numbers, odd

    def _one_by_one(self, entries: Sequence[str]) -> tuple[NDArray[np.float64], list[int]]:
        known: dict[str, float | None] = {}
        numbers, odd = np.full(len(entries), np.nan), []
        for row, entry in enumerate(entries):
            if entry not in known:
                known[entry] = self._read(entry)
            number = known[entry]
            if number is None:
                odd.append(row)
            else:
                numbers[row] = number
        return numbers, odd

    def _read(self, entry: str) -> float | None:
        if self.is_missing(entry):
            return np.nan
        try:
            return self.number(entry)
        except ValueError:
            return None

    def text(self, number: float) -> str:
        """Write a number as the file does; nothing for NaN."""
        return "" if np.isnan(number) else f"{number:.7g}".replace(".", self.decimal)


def unit_of(entries: Iterable[str]) -> str | None:
    """Return the unit that stands behind every number of some entries; None if there is none."""
    found = [_WITH_UNIT.fullmatch(entry.strip()) for entry in entries]
    units = {match["unit"] if match else None for match in found}
    return units.pop() if len(units) == 1 else None


def is_numeral(text: str) -> bool:
    """Tell whether a text is a number with either kind of decimal mark."""
    return any(Numerals(mark, frozenset(), frozenset()).is_number(text) for mark in _MARKS)


_MARKS: tuple[Decimal, Decimal] = (".", ",")


def decimal_of(cells: Iterable[str], delimiter: str) -> Decimal | Literal["?"] | None:
    """Return the decimal mark that cells have: None if none of them tells, "?" if it is open."""
    commas, threes, points, groups = 0, 0, 0, 0
    for cell in map(str.strip, cells):
        if "," in cell:
            grouped = _GROUPED.fullmatch(cell)
            if grouped and "." in cell:
                commas, groups = (
                    commas + (grouped["mark"] == "."),
                    groups + (grouped["mark"] == ","),
                )
            elif _THREE.fullmatch(cell):
                threes += 1
            else:
                commas += bool(_WITH_COMMA.fullmatch(cell))
        elif "." in cell:
            points += bool(_WITH_POINT.fullmatch(cell))
    if commas:
        return "?" if groups else ","
    if points or groups or (threes and delimiter == ","):
        return "."
    return "?" if threes else None


def unlikely(numbers: NDArray[np.float64]) -> float | None:
    """Return a number that loggers write for a missing reading, if it lies far from all others."""
    known = numbers[np.isfinite(numbers)]
    found: Any = [code for code in CODES if known.size and code in (known.min(), known.max())]
    for code in found:
        rest = known[known != code]
        if len(rest) > 1 and np.abs(rest - code).min() > 2.0 * np.ptp(rest) + 1e-9:
            return float(code)
    return None
