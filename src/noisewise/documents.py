"""JSON files that are read back: results, trials, cells. Nothing in them is believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from noisewise.errors import DataError, shortened


def read_json(path: str | Path, what: str) -> Any:
    """Read a JSON file; one that is none is a ``DataError``.

    Parameters
    ----------
    path : path
        The file.
    what : str
        What it must hold, for the error.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # brackets may be too deep to read
        raise DataError(f"{path} must hold {what} as JSON: {shortened(error)}.") from None


def is_number(value: Any) -> bool:
    """Tell whether a value is a number that fits a float.

    Examples
    --------
    >>> is_number(3), is_number(True), is_number("3"), is_number(10**400)
    (True, False, False, False)
    """
    return isinstance(value, float) or (
        isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**1023
    )


def is_score(value: Any) -> bool:
    """Tell whether a value is a number, or None for what could not be measured."""
    return value is None or is_number(value)
