"""Files of any known format: delimited text, Parquet, npz; public datasets as they come.

``read`` goes by the name of a file and checks that the content is what the name says; `read_cells`
reads ids without values, and `read_panel` readings of sensors. MovieLens comes in three layouts:

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
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from noisewise import registry
from noisewise.data.columns import choose_columns, find_ids
from noisewise.data.ids import Ids
from noisewise.data.npz import read_npz, read_npz_panel
from noisewise.data.observations import Duplicates, Observations, check_duplicates, observe
from noisewise.data.panel import Panel
from noisewise.data.parquet import read_parquet
from noisewise.data.reader import named_errors, text_lines
from noisewise.data.text import Cells, read_text, read_text_cells, typed
from noisewise.data.timestamps import check_seconds
from noisewise.errors import DataError, SettingError, listed

Format: TypeAlias = Literal["csv", "tsv", "text", "parquet", "npz"]
Repeats: TypeAlias = Duplicates | Literal["first"]

FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "text",
    ".data": "text",
    ".dat": "text",
    ".parquet": "parquet",
    ".npz": "npz",
}
DELIMITERS = {"csv": [",", ";", "\t"], "tsv": ["\t"], "text": ["\t", ",", ";", "::"]}
_TEXT, _GZIP, _PARQUET = "text", "a gzip file", "Parquet"
_ZIP = "a zip archive, as .npz and .xlsx are"
_MAGIC = {
    b"PAR1": _PARQUET,
    b"PK\x03\x04": _ZIP,
    b"\x1f\x8b": _GZIP,
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"\x93NUMPY": "a single numpy array, as .npy is",
    b"ARROW1": "Arrow (Feather)",
    b"\x89HDF": "HDF5",
    b"SQLite": "an SQLite database",
    b"<!": "a web page",
    b"<html": "a web page",
}


class _MovieLens(NamedTuple):
    """How a file of MovieLens is written: what its first line looks like, and its columns."""

    delimiter: str
    first_line: str
    pattern: str
    names: list[str] | None


_COLUMNS = ["user", "item", "rating", "timestamp"]
_HEADER = "userId,movieId,rating,timestamp"
_MOVIELENS = {
    "u.data": _MovieLens("\t", "196\t242\t3\t881250949", r"\d+\t\d+\t\d\t\d+", _COLUMNS),
    "ratings.dat": _MovieLens("::", "1::1193::5::978300760", r"\d+::\d+::\d(\.\d)?::\d+", _COLUMNS),
    "ratings.csv": _MovieLens(",", _HEADER, _HEADER, None),
}


def read(
    path: str | PathLike[str],
    *,
    ids: Sequence[str | int] | None = None,
    value: str | int | None = None,
    time: str | int | None = None,
    duplicates: Duplicates = "error",
    format: Format | None = None,
) -> Observations:
    r"""Read observations from a file, in its order.

    Columns that are not asked for are found by their usual names: user and item; rating, value,
    score or stars. Where there is no user and item, all columns but the last are ids and the last
    is the value. A text file without names holds user, item, value and perhaps the unix time. Where
    that leaves a doubt, an error asks for `ids` and `value`.

    Parameters
    ----------
    path : str or path
        A file ``.csv``, ``.tsv``, ``.txt``, ``.data`` or ``.dat`` (each also with ``.gz``),
        ``.parquet`` or ``.npz`` (laid out as in `noisewise.data.npz`), or a folder of MovieLens.
        Files and folders that installed packages know are read as they come.
    ids : sequence of str or int, optional
        Names or positions of the id columns, one per mode.
    value, time : str or int, optional
        Name or position of the value column, and of one of times; none is read by default.
    duplicates : {"error", "last", "mean"}
        What to do about a cell that is given more than once: raise, keep the last, take the mean.
    format : {"csv", "tsv", "text", "parquet", "npz"}, optional
        What the file is, where its name does not say so.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "stars.csv")
    ...     _ = file.write_text("user,film,stars\nann,Alien,5\nbob,Alien,3\nbob,Brazil,4\n")
    ...     read(file)
    Observations(3 of 2 user x 2 film)
    """
    check_duplicates(duplicates)
    path = Path(path)
    columns: dict[str, Any] = {"ids": ids, "value": value, "time": time}
    if path.is_dir():
        published = _published(path, columns, duplicates)
        if published is not None:
            return published()
        path = _find_movielens(path)
    format = _format_of(path, format)
    with named_errors(path):
        _check_content(path, format)
        if format == "parquet":
            return _read_parquet(path, columns, duplicates)
        if format == "npz":
            return read_npz(path, **columns, duplicates=duplicates)
        published = _published(path, columns, duplicates)
        if published is None:
            return read_text(path, delimiters=DELIMITERS[format], **columns, duplicates=duplicates)
    return published()


def read_cells(path: str | Path, ids: Sequence[Ids], time: str | None = None) -> Cells:
    """Read the id columns of a CSV, TSV or Parquet file, one list per mode, and times if any.

    Text is read as ``noisewise.read`` does: delimiters, quotes and blanks may be any that it knows.
    Columns are found by the names of the modes in the first line. A file without such a header has
    its ids in the first columns, and at least one id of its first line must be known: else it
    could be a header with other names.

    Ids are numbers where those of the model are. ``time`` names a column of times to read too, as
    unix seconds or dates, where the file has it.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    with named_errors(path):
        if path.suffix.lower() == ".parquet":
            return _parquet_cells(path, ids, time)
        suffix = Path(_unpacked_name(path)).suffix.lower()
        delimiters = DELIMITERS.get(FORMATS.get(suffix, ""), DELIMITERS["text"])
        return read_text_cells(path, ids, time, delimiters)


def read_panel(path: str | PathLike[str], *, repeats: Repeats = "first") -> Panel:
    """Read readings of sensors: an npz file of them, or what an installed package knows.

    ``repeats`` says what to do about a cell that was read more than once. An npz file should have
    none, so there "first" raises like "error".
    """
    if repeats != "first":
        check_duplicates(repeats)
    path = Path(path)
    if path.suffix == ".npz":
        with named_errors(path):
            return read_npz_panel(path, "error" if repeats == "first" else repeats)
    found = registry.recognised("sensors", path)
    if found is None:
        known = " or ".join(["an npz file of sensors", *registry.formats("sensors")])
        raise DataError(f"{path}: expected {known}.")
    panel: Panel = found(path, repeats=repeats)
    return panel


def is_panel(path: Path) -> bool:
    """Tell whether a text file or a folder holds readings that an installed package knows."""
    return registry.recognised("sensors", path) is not None


def named_panel(name: str, path: str | PathLike[str], *, exact: bool = True) -> Panel:
    """Make one of ``registry.tensors()``, which results are reported on, from a copy of its data.

    Every id of its shape is there, observed or not; rows are sorted by location, sensor and time.
    If ``exact``, a copy must have as many observed cells as the tensor is known to have.
    """
    known = registry.tensor(name)
    panel: Panel = registry.make_tensor(name, Path(path))
    if exact and len(panel.observations) != known.observed:
        raise DataError(
            f"{path}: {name} has {known.observed:,} observed cells, but this copy gives "
            f"{len(panel.observations):,}; get another one, or pass exact=False to take it as it "
            "is."
        )
    return panel


def read_movielens(
    path: str | PathLike[str], *, time: str | int | None = None, duplicates: Duplicates = "error"
) -> Observations:
    """Read the users, movies and stars of a MovieLens release: a file above, or its folder.

    With ``time="timestamp"`` the timestamps are read too.
    """
    path = Path(path)
    path = _find_movielens(path) if path.is_dir() else path
    with named_errors(path):
        layout = _MOVIELENS.get(_unpacked_name(path))
        if layout is None:
            raise DataError(f"MovieLens comes in files called {', '.join(_MOVIELENS)}; give one.")
        if not _is_movielens(path):
            raise DataError(f"line 1: expected one like {layout.first_line!r}, as in MovieLens.")
        return read_text(
            path,
            delimiters=[layout.delimiter],
            names=layout.names,
            time=time,
            duplicates=duplicates,
        )


def _find_movielens(folder: Path) -> Path:
    """Return the file of ratings in a folder of MovieLens."""
    found = [file for file in sorted(folder.iterdir()) if _unpacked_name(file) in _MOVIELENS]
    if len(found) != 1:
        raise DataError(
            f"Folder {folder} needs one of {', '.join(_MOVIELENS)} in it; found "
            f"{' and '.join(file.name for file in found) or 'none'}. Give the path of a file."
        )
    return found[0]


def _is_movielens(path: Path) -> bool:
    """Tell whether a file has the name and the first line of a MovieLens file."""
    layout = _MOVIELENS.get(_unpacked_name(path))
    if layout is None:
        return False
    first = next(text_lines(path), "").rstrip("\r\n")
    return re.fullmatch(layout.pattern, first) is not None


def _unpacked_name(path: Path) -> str:
    return path.name.removesuffix(".gz")


def _published(
    path: Path, columns: dict[str, Any], duplicates: Duplicates
) -> Callable[[], Observations] | None:
    """Return what reads a dataset as its owners publish it, None where nobody knows the path."""
    if columns["ids"] is not None or columns["value"] is not None:
        return None
    time = columns["time"]
    if time is None and is_panel(path):
        return lambda: read_panel(path, repeats=duplicates).observations
    found = registry.recognised("ratings", path)
    if found is None and path.is_file() and _is_movielens(path):
        found = read_movielens
    if found is None:
        return None
    reader = found

    def read_ratings() -> Observations:
        ratings: Observations = reader(path, time=time, duplicates=duplicates)
        return ratings

    return read_ratings


def _format_of(path: Path, format: Format | None) -> Format:
    if format is None:
        format = FORMATS.get(Path(_unpacked_name(path)).suffix.lower())
        if format is None:
            raise DataError(
                f"{path}: the name does not tell the format; pass format=, one of "
                f"{', '.join(get_args(Format))}."
            )
    if format not in get_args(Format):
        raise SettingError(f"format must be one of {', '.join(get_args(Format))}; got {format!r}.")
    return format


def _check_content(path: Path, format: Format) -> None:
    """Raise unless the first bytes are those of the format."""
    with path.open("rb") as file:
        head = file.read(512)
    if not head:
        raise DataError("The file is empty: it has 0 bytes.")
    expected = {"parquet": _PARQUET, "npz": _ZIP}.get(format, _TEXT)
    if expected == _TEXT and path.suffix == ".gz":
        expected = _GZIP
    kind = "binary data" if b"\0" in head else _TEXT
    found = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), kind)
    if found != expected:
        raise DataError(f"Expected {expected}, but it looks like {found}; rename or convert it.")


def _read_parquet(path: Path, columns: dict[str, Any], duplicates: Duplicates) -> Observations:
    chosen: list[str] = []
    timed: list[str] = []

    def choose(names: list[str]) -> list[str]:
        choice = choose_columns(names, **columns)
        chosen.extend(names[k] for k in (*choice.ids, choice.value))
        timed.extend([] if choice.time is None else [names[choice.time]])
        return list(dict.fromkeys(chosen + timed))

    table = read_parquet(path, choose)
    time = table.column(timed[0]) if timed else None
    return observe(table.select(chosen), duplicates=duplicates, time=time)


def _parquet_cells(path: Path, ids: Sequence[Ids], time: str | None) -> Cells:
    names = [mode.name for mode in ids]

    def choose(found: list[str]) -> list[str]:
        places = find_ids(found, names)
        if places is None:
            raise DataError(f"The columns {listed(names)} are needed; it has {listed(found)}.")
        return [found[k] for k in places] + ([time] if time is not None and time in found else [])

    table = read_parquet(path, choose)
    columns = [
        [typed(entry, mode) for entry in column.to_pylist()]
        for column, mode in zip(table.columns, ids, strict=False)
    ]
    timed = table.num_columns > len(names)
    return columns, check_seconds(table[time], table.num_rows) if timed else None
