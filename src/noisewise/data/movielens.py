"""MovieLens ratings, in the three layouts GroupLens has published.

===============  =============  ==================================================
file             releases       a line
===============  =============  ==================================================
``u.data``       100K           user, movie, rating, timestamp, with tabs between
``ratings.dat``  1M, 10M        ``user::movie::rating::timestamp``
``ratings.csv``  20M and later  ``user,movie,rating,timestamp``, below a header
===============  =============  ==================================================

Ratings are stars from 1 to 5, in newer releases from 0.5 in steps of one half; timestamps are unix
seconds.
"""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from noisewise.data.observations import Duplicates, Observations
from noisewise.data.reader import named_errors, text_lines
from noisewise.data.text import read_text
from noisewise.errors import DataError


class Layout(NamedTuple):
    """How one of the files is written: what its first line looks like, and its columns."""

    delimiter: str
    first_line: str
    pattern: str
    names: list[str] | None


_COLUMNS = ["user", "item", "rating", "timestamp"]
_HEADER = "userId,movieId,rating,timestamp"
_LAYOUTS = {
    "u.data": Layout("\t", "196\t242\t3\t881250949", r"\d+\t\d+\t\d\t\d+", _COLUMNS),
    "ratings.dat": Layout("::", "1::1193::5::978300760", r"\d+::\d+::\d(\.\d)?::\d+", _COLUMNS),
    "ratings.csv": Layout(",", _HEADER, _HEADER, None),
}


def read(
    path: str | PathLike[str], *, time: str | int | None = None, duplicates: Duplicates = "error"
) -> Observations:
    r"""Read the ratings of a MovieLens release.

    Parameters
    ----------
    path : str or path
        One of the three files, or the folder that holds it.
    time : {"timestamp"}, optional
        Read the timestamps too.
    duplicates : {"error", "last", "mean"}
        What to do about a movie that a user rated more than once; no release has one.

    Returns
    -------
    Observations
        Users, movies and stars.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lines = "1::1193::5::978300760\n1::661::3::978302109\n2::1193::4.5::978298413\n"
    ...     _ = Path(folder, "ratings.dat").write_text(lines)
    ...     read(folder)
    Observations(3 of 2 user x 2 item)
    """
    path = Path(path)
    path = find(path) if path.is_dir() else path
    with named_errors(path):
        layout = _LAYOUTS.get(_name(path))
        if layout is None:
            raise DataError(f"MovieLens comes in files called {', '.join(_LAYOUTS)}; give one.")
        if not is_movielens(path):
            raise DataError(f"line 1: expected one like {layout.first_line!r}, as in MovieLens.")
        return read_text(
            path,
            delimiters=[layout.delimiter],
            names=layout.names,
            time=time,
            duplicates=duplicates,
        )


def find(folder: Path) -> Path:
    """Return the file of ratings in a folder of MovieLens."""
    found = [file for file in sorted(folder.iterdir()) if _name(file) in _LAYOUTS]
    if len(found) != 1:
        raise DataError(
            f"Folder {folder} needs one of {', '.join(_LAYOUTS)} in it; found "
            f"{' and '.join(file.name for file in found) or 'none'}. Give the path of a file."
        )
    return found[0]


def is_movielens(path: Path) -> bool:
    """Tell whether a file has the name and the first line of a MovieLens file."""
    layout = _LAYOUTS.get(_name(path))
    if layout is None:
        return False
    first = next(text_lines(path), "").rstrip("\r\n")
    return re.fullmatch(layout.pattern, first) is not None


def _name(path: Path) -> str:
    return path.name.removesuffix(".gz")
