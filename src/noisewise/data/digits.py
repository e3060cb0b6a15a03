"""Numbers as files write them: ASCII digits, without the underscores that Python allows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as Python writes it, and within int64


def to_floats(column: Sequence[str]) -> NDArray[np.float64]:
    """Return the numbers of a column; raise ``ValueError`` if one of them is none.

    Examples
    --------
    >>> to_floats(["1", " 2.5", "1e3"]).tolist()
    [1.0, 2.5, 1000.0]
    """
    text = "".join(column)
    to_number = float if text.isascii() and "_" not in text else to_float
    return np.fromiter(map(to_number, column), np.float64, len(column))


def to_float(text: str) -> float:
    """Return the number that a text is; raise ``ValueError`` if it is none."""
    text = text.strip()
    if "_" in text or not text.isascii():
        raise ValueError(f"{text[:60]!r} has an underscore, or digits that are not 0 to 9")
    return float(text)


def to_int(text: str) -> int:
    """Return the integer of at most 18 digits that a text is; raise ``ValueError`` if it is none.

    Examples
    --------
    >>> to_int("007")
    7
    """
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise ValueError(f"{text[:60]!r} is not an integer of at most 18 digits")
    return int(text)


def finite_pair(first: str, second: str) -> tuple[float, float]:
    """Return two numbers; raise ``ValueError`` unless both are finite."""
    pair = to_float(first), to_float(second)
    if not all(map(math.isfinite, pair)):
        raise ValueError(f"{first[:60]!r} or {second[:60]!r} is not finite")
    return pair
