"""Times as people write them, turned into numbers with real distances between them."""

from __future__ import annotations

import datetime
import math
import numbers
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise.data.ids import Ids
from noisewise.errors import DataError

Array = npt.NDArray[np.float64]


def checked_stamps(ids: Ids) -> tuple[Array, bool]:
    """Return the ids of a mode as times, and whether they are dates."""
    stamps, dates = read_stamps(ids.labels)
    bad = np.isnan(stamps)
    if bad.any():
        raise DataError(
            f"Column {ids.name!r} must hold times, as numbers or dates; got "
            f"{ids.labels[bad.argmax()]!r}. Name the mode that is time with time=."
        )
    if dates.any() and not dates.all():
        pair = ids.labels[dates.argmin()], ids.labels[dates.argmax()]
        raise DataError(f"Column {ids.name!r} must not mix numbers and dates; got {pair}.")
    return stamps, bool(dates.any())


def read_stamps(entries: Any) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return times as numbers, dates as seconds, NaN for what is neither; and which are dates.

    Examples
    --------
    >>> read_stamps([3, "1970-01-02", "soon"])[0].tolist()
    [3.0, 86400.0, nan]
    """
    if isinstance(entries, np.ndarray) and entries.dtype != object:
        return entries.astype(np.float64), np.zeros(len(entries), dtype=bool)
    plain = [isinstance(entry, numbers.Real) for entry in entries]
    pairs = zip(entries, plain, strict=True)
    stamps = [_number(entry) if is_number else _seconds(entry) for entry, is_number in pairs]
    return np.array(stamps, dtype=np.float64), ~np.array(plain, dtype=bool)


def _number(entry: Any) -> float:
    return math.nan if isinstance(entry, bool) else float(entry)


def _seconds(entry: Any) -> float:
    """Seconds since 1970; without a time zone, a date is taken to be of UTC."""
    if isinstance(entry, np.datetime64):
        return float((entry - np.datetime64(0, "s")) / np.timedelta64(1, "s"))
    if isinstance(entry, str):
        try:
            entry = datetime.datetime.fromisoformat(entry)
        except ValueError:
            return math.nan
    if isinstance(entry, datetime.date) and not isinstance(entry, datetime.datetime):
        entry = datetime.datetime(entry.year, entry.month, entry.day)
    if not isinstance(entry, datetime.datetime):
        return math.nan
    aware = entry if entry.tzinfo else entry.replace(tzinfo=datetime.UTC)
    return aware.timestamp()
