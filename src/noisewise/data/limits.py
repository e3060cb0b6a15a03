"""How much a file may take: checked before memory is taken, as a small file can claim anything.

A compressed file may unpack to a hundred times its size, and any to 64 MiB: tables compress five to
twenty times. Whoever has a larger one sets ``NOISEWISE_MAX_UNPACKED``, in bytes. Plain text is as
large as it is; only its lines and columns have limits.
"""

from __future__ import annotations

import os
from pathlib import Path

from noisewise.errors import DataError, SettingError

SETTING = "NOISEWISE_MAX_UNPACKED"
LONGEST_LINE = 2**24  # bytes
MOST_COLUMNS = 100_000

_FLOOR = 2**26
_RATIO = 100


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
