"""What a column of text holds, told from all of its entries: numbers, dates, ids or words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisewise.data import dates, reader
from noisewise.data.ids import Codes
from noisewise.data.numerals import Numerals, is_numeral, unit_of
from noisewise.errors import DataError, shortened

Floats: TypeAlias = NDArray[np.float64]

MOST_IDS = 100_000  # a column with more different entries is none of ids


class OtherDecimal(Exception):
    """Numbers have a decimal comma after all."""


class Column:
    """What a column holds, told from all of its entries."""

    name: str
    numerals: Numerals
    n_rows: int
    n_known: int
    n_odd: int
    was_date: bool
    unit: str

    def __init__(self, name: str, numerals: Numerals, *, is_id: bool, is_open: bool):
        self.name, self.numerals = name, numerals
        self.kind: str | None = None  # "number", "date" or "text"; None if nothing is in it
        self.n_rows = self.n_known = self.n_odd = 0
        self.odd: tuple[int, str] | None = None  # the first entry of another kind, and its line
        self.was_date = False  # but for the odd entry
        self.unit = ""  # behind every number
        self._word: tuple[int, str] | None = None  # the first entry that is no number, of text
        self._is_id, self._open = is_id, is_open
        self._numbers: list[Floats] = []
        self._parts: list[dates.Parts] = []
        self._labels: dict[str, int] | None = {}
        self._codes: list[Codes] = []

    def add(self, entries: Sequence[str], lines: Sequence[int]) -> None:
        """Take in some rows."""
        if self.kind is None:
            self._begin(entries, lines)
        self.n_rows += len(entries)
        if self.kind == "date":
            parts = dates.Parts.of([entry.strip() for entry in entries])
            if parts is None:
                self._give_up_dates(entries, lines)
            else:
                self._parts.append(parts)
        elif self.kind != "text":
            self._add_numbers(entries, lines)
        if self._is_id or self.kind == "text":
            self._encode(entries)

    def _begin(self, entries: Sequence[str], lines: Sequence[int]) -> None:
        """Tell what a column holds from the first rows that hold anything."""
        known = [entry for entry in entries if not self.numerals.is_missing(entry)]
        if not known:
            return
        self.unit = unit_of(known) or ""
        if self.unit or sum(map(is_numeral, known)) * 2 >= len(known):
            self.kind = "number"
        else:
            n_dates = 0 if self.n_rows else sum(dates.is_date(entry) for entry in known)
            self.kind = "date" if n_dates * 2 >= len(known) else "text"
            word = next(entry for entry in known if not is_numeral(entry))
            self._word = lines[entries.index(word)], word
        if self.kind == "text" and self.n_rows and not self._is_id:
            self._encode([""] * self.n_rows)

    def _add_numbers(self, entries: Sequence[str], lines: Sequence[int]) -> None:
        if self.unit:
            entries = [entry.rstrip().removesuffix(self.unit) for entry in entries]
        numbers, odd = self.numerals.floats(entries)
        self._numbers.append(numbers)
        self.n_known += int((~np.isnan(numbers)).sum())
        self.n_odd += len(odd)
        if odd and self._open and any(is_numeral(entries[row]) for row in odd):
            raise OtherDecimal
        if odd and self.odd is None:
            self.odd = lines[odd[0]], entries[odd[0]]

    def _give_up_dates(self, entries: Sequence[str], lines: Sequence[int]) -> None:
        wrong = next(k for k, e in enumerate(entries) if not dates.is_date(e))
        self.odd = lines[wrong], entries[wrong]
        self.kind, self.was_date = "text", True
        if not self._is_id and self.n_rows > len(entries):  # rows that are gone as text
            self._labels = None
        self._parts.clear()

    def _encode(self, entries: Sequence[str]) -> None:
        if self._labels is None:
            return
        labels = self._labels
        codes = [labels.setdefault(entry.strip(), len(labels)) for entry in entries]
        self._codes.append(np.array(codes, dtype=np.int32))
        if len(labels) > MOST_IDS:
            self._labels = None
            self._codes.clear()

    def finish(self) -> None:
        """Look again at a column that began with words, and may hold numbers all the same."""
        if self.kind != "text" or self._labels is None or self.was_date:
            return
        labels = list(self._labels)
        many = np.bincount(np.concatenate(self._codes), minlength=len(labels))
        numbers = np.array([is_numeral(label) for label in labels])
        words = ~numbers & [not self.numerals.is_missing(label) for label in labels]
        self.n_known, self.n_odd = int(many[numbers].sum()), int(many[words].sum())
        if self.n_known >= self.n_odd:
            self.kind, self.odd = "number", self._word

    @property
    def is_number(self) -> bool:
        """Whether it holds readings: numbers, more often than anything else."""
        return self.kind == "number" and self.n_known >= self.n_odd and self.n_known > 0

    @property
    def is_text(self) -> bool:
        """Whether it holds something else, which is left alone."""
        return not self.is_number and self.kind is not None

    def numbers(self) -> Floats:
        """Return readings, NaN where there is none."""
        if self.odd is not None and self.kind == "number":
            line, entry = self.odd
            hint = "decimal=',', if commas are decimal" if is_numeral(entry) else (
                f"missing='{entry.strip()[:20]}', if it stands for a missing reading"
            )  # fmt: skip
            raise DataError(
                f"line {line}: column {self.name!r} must hold a number, or nothing for a gap; got "
                f"{shortened(entry)}. Say {hint}, or ignore={self.name!r} to leave it alone."
            )
        if not self._numbers:
            return np.full(self.n_rows, np.nan)
        if len(self._numbers) > 1:
            self._numbers = [reader.join(self._numbers, np.float64)]
        return self._numbers[0]

    def parts(self) -> dates.Parts:
        """Return dates, taken apart."""
        self._parts = [dates.Parts.joined(self._parts)]
        return self._parts[0]

    def ids(self) -> tuple[list[str], Codes] | None:
        """Return different entries, and which of them a row has; None if there are too many."""
        if self._labels is None or not self._codes:
            return None
        return list(self._labels), np.concatenate(self._codes)
