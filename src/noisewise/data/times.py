"""Times of any kind, as numbers with real distances between them."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from noisewise.data.holes import Clock, Mode
from noisewise.data.ids import Ids
from noisewise.data.timestamps import read_stamps
from noisewise.errors import DataError

_SECOND = 1_000_000  # in microseconds, the finest that 64 bits of seconds can tell apart today


def time_mode(column: Any, words: str, axis: int) -> tuple[Mode, Clock]:
    """Turn times into numbers: dates are seconds since 1970, in UTC.

    Parameters
    ----------
    column : narwhals Series or 1-d array
        Dates with or without a time zone, lengths of time, or numbers.
    words : str
        What errors call it.
    axis : int
        The axis of the values that it lies along.

    Examples
    --------
    >>> mode, clock = time_mode(np.array(["2024-05-01T12:00", "2024-05-01T11:30"], "M8[m]"), "t", 0)
    >>> mode.ids.labels.tolist(), mode.codes.tolist(), clock
    ([1714563000, 1714564800], [1, 0], 'dates')
    """
    entries = column.to_numpy() if isinstance(column, nw.Series) else np.asarray(column)
    kind = entries.dtype.kind
    if kind in "mM":
        missing = np.isnat(entries)
        ticks = entries.astype(f"{kind}8[us]").astype(np.int64)
        whole = not (ticks % _SECOND).any()
        numbers = ticks // _SECOND if whole else ticks / _SECOND
    elif kind in "iuf":
        missing = ~np.isfinite(entries)
        numbers = entries
    else:
        numbers, dates = read_stamps(entries.astype(object))
        missing = np.isnan(numbers)
        kind = "M" if dates.any() else "f"
        if dates.any() and not dates.all():
            pair = entries[dates.argmin()], entries[dates.argmax()]
            raise DataError(f"{words} must not mix numbers and dates; got {pair}.")
    if missing.any():
        row = int(missing.argmax())
        raise DataError(
            f"{words} must hold dates or numbers; got {entries[row]!r} in row {row}: drop the row "
            "or give it a time."
        )
    return Mode.of(as_integers(numbers), "time", axis), "dates" if kind == "M" else "numbers"


def row_mode(n_rows: int, axis: int) -> Mode:
    """Return row numbers, for what has no times."""
    return Mode(Ids(np.arange(n_rows), "time"), np.arange(n_rows, dtype=np.int32), axis)


def as_integers(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers as integers, which are looked up faster, and others as they are."""
    whole = (numbers == np.floor(numbers)).all() and (np.abs(numbers) < 2.0**53).all()
    return numbers.astype(np.int64) if whole else numbers.astype(np.float64)
