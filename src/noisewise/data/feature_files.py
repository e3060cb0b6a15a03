"""Files of features: CSV, TSV, Parquet and npz, each with ids and columns of what is known of them.

An npz file has arrays of one length. If none of them holds the ids, rows go by the order of ids
that are given, such as ``user_id`` and ``item_id`` of an npz file of ratings.
"""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.data import reader
from noisewise.data.binary import open_npz, read_parquet
from noisewise.data.features import id_column
from noisewise.data.files import DELIMITERS, FORMATS
from noisewise.errors import DataError, listed

_MISSING = {"", "NA", "NaN", "nan", "null", "NULL", "\\N"}  # texts that stand for no entry
# 02134 is no number, as it would not be written so.
_NUMBER = re.compile(r"[+-]?((0|[1-9]\d{0,300})(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?")


def read_features(path: str | PathLike[str], mode: str, *, ids: Any = None) -> dict[str, Any]:
    r"""Read a table of features of the ids of a mode, to be given to ``fit`` or ``predict``.

    Parameters
    ----------
    path : str or path
        A file ``.csv``, ``.tsv``, ``.txt`` or ``.dat`` (each also with ``.gz``) whose first line
        names its columns, ``.parquet`` or ``.npz``.
    mode : str
        What the ids are: ``"user"``, ``"item"``, or the name of their column.
    ids : sequence of ids, or path of an npz file of ratings, optional
        The ids of the rows, in order, for an npz file that does not hold them.

    Returns
    -------
    dict
        Columns by name; the one called like the mode has the ids.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "films.csv")
    ...     _ = file.write_text("item,year,genre\nAlien,1979,Horror|SciFi\nM,,Thriller\n")
    ...     read_features(file, "item")
    {'item': ['Alien', 'M'], 'year': [1979.0, None], 'genre': ['Horror|SciFi', 'Thriller']}
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    format = FORMATS.get(reader.suffix_of(path))
    if format is None:
        raise DataError(f"{path}: features are read from files {', '.join(FORMATS)}.")
    with reader.named_errors(path):
        reader.check_content(path, format)
        if format == "npz":
            columns = _npz_columns(path, mode, ids)
        elif format == "parquet":
            table = read_parquet(path, list)
            columns = {name: table.column(name).to_pylist() for name in table.column_names}
        else:
            columns = _text_columns(path, DELIMITERS[format])
        own = id_column(list(columns), mode)
        if own is None:
            raise DataError(
                f"The features of {mode} need a column of ids called {mode!r} or 'id'; found "
                f"{listed(list(columns))}."
            )
    return {mode if name == own else name: column for name, column in columns.items()}


def _text_columns(path: Path, delimiters: list[str]) -> dict[str, Any]:
    table = reader.TextTable.open(path, delimiters)
    names = table.fields
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1 or not name]
    if repeated:
        raise DataError(f"line 1 must name every column once; got {listed(repeated)}.")
    columns: list[list[str]] = [[] for _ in names]
    for block in table.blocks(names, below=True):
        for column, texts in zip(columns, block.columns, strict=True):
            column.extend(map(str.strip, texts))
    if not columns[0]:
        raise DataError("there are no rows below line 1.")
    return {name: _typed(column) for name, column in zip(names, columns, strict=True)}


def _typed(texts: list[str]) -> list[Any]:
    """Return numbers where all of a column are, else text; None is missing."""
    there = {text for text in texts if text not in _MISSING}
    if len(there) == len(set(texts)) and all(map(reader.INTEGER.fullmatch, there)):
        return [int(text) for text in texts]
    if there and all(map(_NUMBER.fullmatch, there)):
        return [None if text in _MISSING else float(text) for text in texts]
    return [None if text in _MISSING else text for text in texts]


def _npz_columns(path: Path, mode: str, ids: Any) -> dict[str, Any]:
    with open_npz(path) as archive:
        own = id_column(archive.files, mode)
        if own is not None:
            labels = archive.column(own)
        elif ids is None:
            raise DataError(
                f"It has no array {mode!r} or 'id' that holds the ids of its rows, and no npz of "
                f"ratings with it that says which they are; found {listed(archive.files)}."
            )
        else:
            labels = _labels(ids, mode)
        columns: dict[str, Any] = {mode: labels}
        for name in archive.files:
            array = archive.array(name) if name != own else labels
            if name != own and array.ndim in (1, 2) and len(array) == len(labels):
                columns[name] = array
    if len(columns) == 1:
        raise DataError(f"No array has as many entries as there are ids, {len(labels):,}.")
    return columns


def _labels(ids: Any, mode: str) -> NDArray[Any]:
    """Return ids in the order of rows: as given, or as an npz file of ratings has them."""
    if not isinstance(ids, str | PathLike):
        return np.asarray(ids)
    path = Path(ids)
    with reader.named_errors(path), open_npz(path) as archive:
        own = id_column([name for name in archive.files if name != mode], mode)
        if own is None:
            raise DataError(
                f"It has no array with the ids of {mode}, such as {mode + '_id'!r}; found "
                f"{listed(archive.files)}."
            )
        return archive.column(own)
