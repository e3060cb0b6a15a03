"""Files of any known format: delimited text, Parquet, npz; public datasets as they come.

``read`` goes by the name of a file and checks that the content is what the name says.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from noisewise import registry
from noisewise.data import movielens, sensors
from noisewise.data.columns import choose_columns
from noisewise.data.npz import read_npz
from noisewise.data.observations import Duplicates, Observations, check_duplicates, observe
from noisewise.data.parquet import read_parquet
from noisewise.data.reader import named_errors
from noisewise.data.text import read_text
from noisewise.errors import DataError, SettingError

Format: TypeAlias = Literal["csv", "tsv", "text", "parquet", "npz"]

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


def read(
    path: str | PathLike[str],
    *,
    ids: Sequence[str | int] | None = None,
    value: str | int | None = None,
    time: str | int | None = None,
    duplicates: Duplicates = "error",
    format: Format | None = None,
) -> Observations:
    r"""Read observations from a file.

    Columns that are not asked for are found by their usual names: user and item; rating, value,
    score or stars. Where there is no user and item, all columns but the last are ids and the last
    is the value. A text file without names holds user, item, value and perhaps the unix time. Where
    that leaves a doubt, an error asks for `ids` and `value`.

    Parameters
    ----------
    path : str or path
        A file ``.csv``, ``.tsv``, ``.txt``, ``.data`` or ``.dat`` (each also with ``.gz``),
        ``.parquet`` or ``.npz``, or a folder of MovieLens. Files and folders that installed
        packages know are read as they come.
    ids : sequence of str or int, optional
        Names or positions of the id columns, one per mode.
    value : str or int, optional
        Name or position of the value column.
    time : str or int, optional
        Name or position of a column of times; none is read by default.
    duplicates : {"error", "last", "mean"}
        What to do about a cell that is given more than once: raise, keep the last, take the mean.
    format : {"csv", "tsv", "text", "parquet", "npz"}, optional
        What the file is, where its name does not say so.

    Returns
    -------
    Observations
        In the order of the file.

    Notes
    -----
    The layouts of an npz file are described in `noisewise.data.npz`, those of MovieLens in
    `noisewise.data.movielens`.

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
    unnamed = ids is None and value is None
    free = unnamed and time is None
    if path.is_dir():
        if free and sensors.is_sensors(path):
            return sensors.read(path, repeats=duplicates).observations
        reader = registry.recognised("ratings", path) if unnamed else None
        if reader is not None:
            ratings: Observations = reader(path, time=time, duplicates=duplicates)
            return ratings
        path = movielens.find(path)
    format = _format_of(path, format)
    with named_errors(path):
        _check_content(path, format)
        if format == "parquet":
            return _read_parquet(path, columns, duplicates)
        if format == "npz":
            return read_npz(path, **columns, duplicates=duplicates)
        of_sensors = free and sensors.is_sensors(path)
        of_movielens = unnamed and movielens.is_movielens(path)
        reader = registry.recognised("ratings", path) if unnamed else None
        if not (of_sensors or of_movielens or reader):
            return read_text(path, delimiters=DELIMITERS[format], **columns, duplicates=duplicates)
    if of_sensors:
        return sensors.read(path, repeats=duplicates).observations
    read_ratings = reader or movielens.read
    seen: Observations = read_ratings(path, time=time, duplicates=duplicates)
    return seen


def _format_of(path: Path, format: Format | None) -> Format:
    if format is None:
        format = FORMATS.get(Path(path.name.removesuffix(".gz")).suffix.lower())
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
