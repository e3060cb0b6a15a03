"""The one parser of times: numbers, dates of any library and ISO text, with real distances.

Dates become seconds since 1970; without a time zone they are taken to be of UTC. Numbers stay what
they are.
"""

from __future__ import annotations

import math
import numbers
from datetime import UTC, date, datetime
from typing import Any, Literal, TypeAlias

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from noisewise.data.ids import Ids
from noisewise.data.reader import to_float
from noisewise.data.tables import is_missing
from noisewise.errors import DataError

Floats: TypeAlias = NDArray[np.float64]
Clock: TypeAlias = Literal["dates", "numbers", "rows"]

FARTHEST = 2.0**53  # seconds from 1970: beyond, floats do not tell one from the next
_SECOND = 1_000_000  # in microseconds, the finest that 64 bits of seconds can tell apart today


def read_stamps(entries: Any) -> tuple[Floats, NDArray[np.bool_]]:
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


def checked_stamps(ids: Ids) -> tuple[Floats, bool]:
    """Return the ids of a mode as times, and whether they are dates."""
    stamps, dates = read_stamps(ids.labels)
    bad = np.isnan(stamps)
    if bad.any():
        raise DataError(
            f"Column {ids.name!r} must hold times, as numbers or dates; got "
            f"{ids.labels[bad.argmax()]!r}. Name the mode that is time with time=."
        )
    _refuse_mixture(f"Column {ids.name!r}", ids.labels, dates)
    return stamps, bool(dates.any())


def check_seconds(column: Any, n_rows: int) -> NDArray[Any]:
    """Return a column of ``n_rows`` numbers or dates as unix seconds; only floats stay floats."""
    column = nw.from_native(column, allow_series=True, pass_through=True)
    array = column.to_numpy() if isinstance(column, nw.Series) else np.asarray(column)
    if array.shape != (n_rows,):
        raise DataError(f"time needs one entry per row, {n_rows}; got shape {array.shape}.")
    given = array
    if array.dtype.kind == "O":
        stamps, dates = read_stamps(array)
        strange = [row for row in np.flatnonzero(np.isnan(stamps)) if not is_missing(given[row])]
        if strange:
            found = f"{given[strange[0]]!r} in row {strange[0]}"
            raise DataError(f"time must hold unix seconds or dates; got {found}.")
        array = as_integers(np.where(dates, np.floor(stamps), stamps))
    if array.dtype.kind not in "iufM":
        raise DataError(f"time must hold unix seconds or dates; got {array.dtype} entries.")
    missing = np.isnat(array) if array.dtype.kind == "M" else ~np.isfinite(array)
    if missing.any():
        row = int(missing.argmax())
        raise DataError(f"Row {row} of time is {given[row]}; drop the row or give it a time.")
    if array.dtype.kind == "M":
        array = array.astype("datetime64[s]")
    elif (far := np.abs(array.astype(np.float64)) > FARTHEST).any():
        row = int(far.argmax())
        raise DataError(f"Row {row} of time is {given[row]}, more than 2**53 seconds from 1970.")
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


def time_numbers(column: Any, words: str) -> tuple[NDArray[Any], Clock]:
    """Return times of a table as numbers, dates as seconds, and whether they are dates.

    ``column`` holds dates, lengths of time or numbers, in a series of narwhals or an array;
    ``words`` are what errors call it.

    Examples
    --------
    >>> time_numbers(np.array(["2024-05-01T12:00", "2024-05-01T11:30"], "M8[m]"), "t")
    (array([1714564800, 1714563000]), 'dates')
    """
    entries = column.to_numpy() if isinstance(column, nw.Series) else np.asarray(column)
    kind = entries.dtype.kind
    if kind in "mM":
        missing = np.isnat(entries)
        ticks = entries.astype(f"{kind}8[us]").astype(np.int64)
        whole = not (ticks % _SECOND).any()
        stamps = ticks // _SECOND if whole else ticks / _SECOND
    elif kind in "iuf":
        missing, stamps = ~np.isfinite(entries), entries
    else:
        stamps, dates = read_stamps(entries.astype(object))
        missing, kind = np.isnan(stamps), "M" if dates.any() else "f"
        _refuse_mixture(words, entries, dates)
    if missing.any():
        row = int(missing.argmax())
        raise DataError(
            f"{words} must hold dates or numbers; got {entries[row]!r} in row {row}: drop the row "
            "or give it a time."
        )
    return as_integers(stamps), "dates" if kind == "M" else "numbers"


def text_times(entries: list[str]) -> Any:
    """Return a column of text as numbers, or as dates of numpy; what is neither stays text."""
    distinct, places = np.unique(np.array(entries, dtype=object), return_inverse=True)
    try:
        return np.array([to_float(entry) for entry in distinct.tolist()])[places]
    except ValueError:
        seconds, _ = read_stamps(distinct)
    if np.isnan(seconds).any():
        return entries
    return (seconds * 1e6).round().astype("M8[us]")[places]


def to_seconds(text: str) -> float:
    """Return the unix seconds of a time in a file; raise ``ValueError`` for what is none.

    Examples
    --------
    >>> to_seconds("1970-01-02"), to_seconds("-7.5")
    (86400.0, -7.5)
    """
    try:
        seconds = to_float(text)
    except ValueError:
        return _timestamp(datetime.fromisoformat(text.strip()))
    if not abs(seconds) <= FARTHEST:
        raise ValueError(f"{text} is more than 2**53 seconds from 1970")
    return seconds


def as_integers(stamps: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers as integers, which are looked up faster, and others as they are."""
    whole = (stamps == np.floor(stamps)).all() and (np.abs(stamps) < FARTHEST).all()
    return stamps.astype(np.int64) if whole else stamps.astype(np.float64)


def _number(entry: Any) -> float:
    return math.nan if isinstance(entry, bool) else float(entry)


def _seconds(entry: Any) -> float:
    """Return the seconds of a date; NaN for what is none."""
    if isinstance(entry, np.datetime64):
        return float((entry - np.datetime64(0, "s")) / np.timedelta64(1, "s"))
    if isinstance(entry, str):
        try:
            entry = datetime.fromisoformat(entry)
        except ValueError:
            return math.nan
    if isinstance(entry, date) and not isinstance(entry, datetime):
        entry = datetime(entry.year, entry.month, entry.day)
    return _timestamp(entry) if isinstance(entry, datetime) else math.nan


def _timestamp(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _refuse_mixture(words: str, entries: Any, dates: NDArray[np.bool_]) -> None:
    if dates.any() and not dates.all():
        pair = entries[dates.argmin()], entries[dates.argmax()]
        raise DataError(f"{words} must not mix numbers and dates; got {pair}.")
