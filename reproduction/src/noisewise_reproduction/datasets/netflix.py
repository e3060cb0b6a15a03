"""Ratings of the Netflix Prize, as its training files have them.

==========================  ===============================================================
file                        what is in it
==========================  ===============================================================
``combined_data_1.txt``     the ratings of a quarter of the movies, one movie after another
``mv_0000001.txt``          the ratings of one movie; there are 17,770 in ``training_set``
==========================  ===============================================================

In both, a line ``1:`` names a movie, and lines ``1488844,3,2005-09-06`` below it are its ratings:
user, whole stars from 1 to 5, date. ``probe.txt`` and ``qualifying.txt`` look alike, but hold no
stars.

Lines are taken apart by a compiled loop, some megabytes at a time, so that memory stays near the 12
bytes an observation needs. Every error names the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from noisewise.data.ids import Codes, Ids
from noisewise.data.observations import Duplicates, Observations, assemble
from noisewise.data.reader import join, named_errors
from noisewise.data.tables import choose_columns
from noisewise.errors import DataError, progress

DAY = 86_400

_COLUMNS = ["user", "item", "rating", "date"]
_FOLDERS = (".", "training_set")
_FILES = ("combined_data_*.txt", "mv_*.txt")
_CHUNK = 2**23  # bytes to read at a time
_LONGEST = 24  # bytes of the longest line
_MOST = 2**24  # ids are smaller; those of the prize end at 2,649,429
_YEARS, _MONTH, _YEAR = 170, 31, 372  # a calendar in which every month has 31 days

_MOVIE = re.compile(rb"\d{1,8}:\r?\n?")
_PROBE = re.compile(rb"\d{1,8}")
_QUALIFYING = re.compile(rb"\d{1,8},\d{4}-\d\d-\d\d")


def read(
    path: str | PathLike[str], *, time: str | int | None = None, duplicates: Duplicates = "error"
) -> Observations:
    r"""Read the ratings of the Netflix Prize.

    Parameters
    ----------
    path : str or path
        One of the files above, or a folder with some of them, or the folder above
        ``training_set``.
    time : {"date"}, optional
        Read the dates too, as unix seconds.
    duplicates : {"error", "last", "mean"}
        What to do about a movie that a user rated more than once; the prize has none.

    Returns
    -------
    Observations
        Users, movies and stars, in the order of the files.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lines = "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n2:\n822109,4,2005-10-19\n"
    ...     _ = Path(folder, "combined_data_1.txt").write_text(lines)
    ...     read(folder)
    Observations(3 of 2 user x 2 item)
    """
    path = Path(path)
    files = find(path) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: expected {' or '.join(_FILES)} in it; found neither.")
    with named_errors(path):
        ratings = _Ratings(choose_columns(_COLUMNS, time=time).time is not None)
    size = sum(file.stat().st_size for file in files)
    bar = progress(total=size, desc=path.name, unit="B", unit_scale=True, delay=0.5, leave=False)
    with bar:
        for file in files:
            with named_errors(file):
                ratings.append(file, bar)
    with named_errors(path):
        return ratings.assemble(duplicates)


def find(folder: Path) -> list[Path]:
    """Return the files of ratings in a folder; none if it is not one of the Netflix Prize."""
    places = ((folder / inner, pattern) for inner in _FOLDERS for pattern in _FILES)
    return next((files for place, pattern in places if (files := sorted(place.glob(pattern)))), [])


def recognise(path: Path) -> bool:
    """Tell whether a file or a folder is one of the prize."""
    return bool(find(path)) if path.is_dir() else is_netflix(path)


def is_netflix(path: Path) -> bool:
    """Tell whether a file begins with a movie, as those of the prize do."""
    with path.open("rb") as file:
        return _MOVIE.fullmatch(file.readline(_LONGEST)) is not None


class _Ratings:
    """The ratings of all files, growing chunk by chunk."""

    def __init__(self, with_dates: bool) -> None:
        self.with_dates = with_dates
        self.calendar = _calendar()
        self.is_user = np.zeros(_MOST, dtype=np.bool_)
        self.n = 0
        self.users: list[NDArray[np.int32]] = []
        self.stars: list[NDArray[np.uint8]] = []
        self.days: list[NDArray[np.uint16]] = []
        self.movies: list[NDArray[np.int64]] = []
        self.starts: list[NDArray[np.int64]] = []

    def append(self, file: Path, bar: Any) -> None:
        """Add the ratings of a file."""
        if not is_netflix(file):
            raise DataError("line 1: expected a movie, such as '1:', as in the Netflix Prize.")
        lines = 0
        for text in _chunks(file):
            n_lines, n_movies = text.count(b"\n"), text.count(b":")
            movies, starts = np.empty((2, n_movies), np.int64)
            users, stars = np.empty(n_lines, np.int32), np.empty(n_lines, np.uint8)
            days = np.empty(n_lines, np.uint16)
            n, wrong = _parse(
                np.frombuffer(text, np.uint8), self.calendar, movies, starts, users, stars, days
            )
            if wrong >= 0:
                line = lines + text.count(b"\n", 0, wrong) + 1
                found = text[wrong : text.index(b"\n", wrong)]
                raise DataError(f"line {line}: {_fault(found)}")
            self.is_user[users[:n]] = True
            self.movies.append(movies)
            self.starts.append(starts + self.n)
            self.users.append(users[:n].copy())
            self.stars.append(stars[:n].copy())
            if self.with_dates:
                self.days.append(days[:n].copy())
            self.n += n
            lines += n_lines
            bar.update(len(text))

    def assemble(self, duplicates: Duplicates) -> Observations:
        """Put the ratings together, one column after another."""
        labels = np.flatnonzero(self.is_user)
        rank = np.cumsum(self.is_user[: labels.max(initial=0) + 1], dtype=np.int32) - np.int32(1)
        users: Codes = rank[join(self.users, np.int32)]
        starts, movies = join(self.starts, np.int64), join(self.movies, np.int64)
        counts = np.diff(starts, append=self.n)
        rated = counts > 0
        starts, movies, counts = starts[rated], movies[rated], counts[rated]
        item_ids, of_movie = Ids.encode(movies, "item")
        values = join(self.stars, np.uint8).astype(np.float32)
        time = None
        if self.with_dates:
            time = join(self.days, np.uint16).astype(np.int64)
            time *= DAY
        codes, ids = (users, np.repeat(of_movie, counts)), (Ids(labels, "user"), item_ids)
        # Ratings come movie by movie, which shows without sorting that no cell is there twice.
        if self.n > 1 and len(item_ids) == len(movies) and _all_differ(users, starts, len(labels)):
            return Observations(codes, values, ids, time)
        place = "ratings {} and {}, counted from 0".format
        return assemble(codes, values, ids, time, duplicates=duplicates, place=place)


def _chunks(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, a few megabytes of whole lines at a time."""
    rest = b""
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            cut = piece.rfind(b"\n") + 1 or len(piece)  # without a line end, something is wrong
            whole, rest = rest + piece[:cut], piece[cut:]
            yield whole if whole.endswith(b"\n") else whole + b"\n"
    if rest:
        yield rest + b"\n"


def _calendar() -> NDArray[np.int32]:
    """Return days since 1970 for each day of a calendar with long months; -1 for none."""
    month = np.repeat(np.arange(12 * _YEARS), _MONTH).astype("datetime64[M]")
    day = month.astype("datetime64[D]") + np.tile(np.arange(_MONTH), 12 * _YEARS)
    return np.where(day.astype("datetime64[M]") == month, day.astype(np.int64), -1).astype(np.int32)


def _compiled(function: Any) -> Any:
    return njit(nogil=True, cache=True, error_model="numpy")(function)


@_compiled
def _parse(
    text: NDArray[np.uint8],
    calendar: NDArray[np.int32],
    movies: NDArray[np.int64],
    starts: NDArray[np.int64],
    users: NDArray[np.int32],
    stars: NDArray[np.uint8],
    days: NDArray[np.uint16],
) -> tuple[int, int]:
    """Take lines apart; return the number of ratings, and where a wrong line begins, or -1."""
    n = m = at = 0
    end = len(text)
    while at < end:
        begin, number = at, 0
        while 48 <= text[at] <= 57 and number < _MOST:  # the last byte is a line end
            number = 10 * number + text[at] - 48
            at += 1
        if at == begin or number >= _MOST:
            return n, begin
        if text[at] == 58:  # a colon
            movies[m], starts[m] = number, n
            m += 1
            at += 1
        else:  # ,3,2005-09-06
            if at + 13 >= end or text[at] != 44 or text[at + 2] != 44:
                return n, begin
            star = text[at + 1] - 48
            date = at + 3
            if not 1 <= star <= 5 or text[date + 4] != 45 or text[date + 7] != 45:
                return n, begin
            for k in (0, 1, 2, 3, 5, 6, 8, 9):
                if not 48 <= text[date + k] <= 57:
                    return n, begin
            year = 0
            for k in range(4):
                year = 10 * year + text[date + k] - 48
            month = 10 * (text[date + 5] - 48) + text[date + 6] - 48
            day = 10 * (text[date + 8] - 48) + text[date + 9] - 48
            place = (year - 1970) * _YEAR + (month - 1) * _MONTH + day - 1
            in_order = 1 <= month <= 12 and 1 <= day <= _MONTH and 0 <= place < len(calendar)
            if not in_order or calendar[place] < 0:
                return n, begin
            users[n], stars[n], days[n] = number, star, calendar[place]
            n += 1
            at += 13
        if text[at] == 13:  # a carriage return, as files from Windows have
            at += 1
        if at >= end or text[at] != 10:
            return n, begin
        at += 1
    return n, -1


def _fault(line: bytes) -> str:
    """Say what is wrong with a line."""
    shown = repr(line[:60].decode("utf-8", "replace").rstrip("\r"))
    if _PROBE.fullmatch(line.rstrip()):
        return (
            f"{shown} is a user without stars, as in probe.txt, whose ratings are among those of "
            "the training files; read these, and hold some of them out."
        )
    if _QUALIFYING.fullmatch(line.rstrip()):
        return (
            f"{shown} has a date and no stars, as in qualifying.txt, whose ratings were never "
            "published; read combined_data_1.txt to combined_data_4.txt, or training_set."
        )
    return (
        f"{shown} is neither a movie, such as '1:', nor user, stars and date, such as "
        "'1488844,3,2005-09-06'; mend or remove the line."
    )


def _all_differ(users: Codes, starts: NDArray[np.int64], n_users: int) -> bool:
    """Tell whether no user is there twice between two starts."""
    last = np.zeros(n_users, dtype=np.int64)
    for start, stop in pairwise([*starts.tolist(), len(users)]):
        own, place = users[start:stop], np.arange(start, stop)
        last[own] = place
        if not np.array_equal(last[own], place):
            return False
    return True
