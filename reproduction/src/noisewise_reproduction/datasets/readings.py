"""What readers of sensors share: first lines, numbers, and readings put together."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.data.ids import Codes, Ids, check_values, group_cells
from noisewise.data.observations import Observations, assemble, check_repeats
from noisewise.data.panel import Repeats
from noisewise.data.reader import to_float
from noisewise.errors import DataError

_EARTH = 6_371_000.0  # metres
_CHARING_CROSS = 51.5074, -0.1278  # where distances in London are measured from


def gather(
    location: tuple[Ids, Codes],
    sensor: tuple[Ids, Codes],
    time: NDArray[np.int64],
    value: NDArray[Any],
    repeats: Repeats,
) -> tuple[Observations, int]:
    """Put readings together.

    Parameters
    ----------
    location, sensor : pair of Ids and codes
        One row number per reading.
    time : ndarray of int64
        The time id of each reading.
    value : ndarray of float
        What was read.
    repeats : {"first", "error", "last", "mean"}
        What to do about a cell that was read more than once.

    Returns
    -------
    observations, repeated
        No cell twice, and how many readings went for that.
    """
    if repeats != "first":
        check_repeats(repeats)
    if not len(value):
        raise DataError("Found no reading; at least 2 are needed.")
    coded = [location, sensor, Ids.encode(time, "time")]
    codes, ids = [codes for _, codes in coded], [ids for ids, _ in coded]
    values = check_values(value, "value")
    if repeats == "first":
        groups = group_cells(codes, [len(mode) for mode in ids])
        if groups is not None:
            firsts = np.sort(groups.order[groups.starts])
            codes, values = [column[firsts] for column in codes], values[firsts]
        seen = assemble(codes, values, ids)
    else:
        place = "readings {} and {}".format
        seen = assemble(codes, values, ids, duplicates=repeats, place=place)
    return seen, len(value) - len(seen)


def first_line(path: Path) -> str:
    """Return the beginning of a file's first line, to see what it is; "" if it cannot be read."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = file.readline(500).decode("utf-8-sig", "replace")
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return ""  # whoever reads it for good will say what is wrong
    return next(iter(text.splitlines()), "")


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


def from_degrees(latitude: float, longitude: float) -> tuple[float, float]:
    """Turn degrees into metres east and north of Charing Cross, right to a metre in ten kilometres.

    Examples
    --------
    >>> x, y = from_degrees(51.5226, -0.1546)  # Marylebone Road
    >>> round(x), round(y)
    (-1855, 1690)
    """
    if not (abs(latitude) <= 90 and abs(longitude) <= 360):
        raise DataError(f"A place has a latitude and a longitude; got {latitude}, {longitude}.")
    north, east = np.radians(np.subtract((latitude, longitude), _CHARING_CROSS))
    parallel = _EARTH * np.cos(np.radians(_CHARING_CROSS[0]))
    return float(parallel * east), float(_EARTH * north)
