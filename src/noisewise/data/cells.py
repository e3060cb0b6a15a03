"""Ids without values: the cells to predict, from text or Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisewise.data.binary import read_parquet
from noisewise.data.files import DELIMITERS, FORMATS, TextColumns
from noisewise.data.ids import Ids
from noisewise.data.reader import INTEGER, TextTable, join, named_errors, suffix_of
from noisewise.data.tables import find_ids
from noisewise.data.timestamps import check_seconds
from noisewise.errors import DataError, listed

Cells: TypeAlias = tuple[list[list[Any]], NDArray[Any] | None]


def read_cells(path: str | Path, ids: Sequence[Ids], time: str | None = None) -> Cells:
    """Read the id columns of a CSV, TSV or Parquet file, one list per mode, and times if any.

    Columns are found by the names of the modes, or are the first ones of a text file without names,
    where an id of the first line must be known: else it could be a header with other names.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    with named_errors(path):
        if path.suffix.lower() == ".parquet":
            return _parquet_cells(path, ids, time)
        delimiters = DELIMITERS.get(FORMATS.get(suffix_of(path), ""), DELIMITERS["text"])
        return _text_cells(path, ids, time, delimiters)


def typed(entry: Any, ids: Ids) -> Any:
    """Turn the text of an id into a number where the known ids are numbers and it is one."""
    if isinstance(entry, str) and ids.labels.dtype.kind == "i" and INTEGER.fullmatch(entry.strip()):
        return int(entry)
    return entry


def _text_cells(
    path: Path, ids: Sequence[Ids], time: str | None, delimiters: Sequence[str]
) -> Cells:
    names = [mode.name for mode in ids]
    table = TextTable.open(path, delimiters)
    head = table.fields
    if len(head) < len(ids):
        raise DataError(
            f"{len(ids)} id columns ({listed(names)}) are needed; line 1 has {listed(head)}."
        )
    found = find_ids(head, names)
    places = tuple(range(len(ids))) if found is None else found
    asked = [(typed(head[k], mode), mode) for k, mode in zip(places, ids, strict=True)]
    if found is None and all(mode.lookup([entry])[0] < 0 for entry, mode in asked):
        raise DataError(
            f"line 1 names no column {listed(names)} and holds no known id (it is {listed(head)}); "
            f"put a header {','.join(names)} above the ids."
        )
    timed = head.index(time) if found is not None and time in head else None
    called = dict(zip(places, names, strict=True))
    columns = TextColumns(
        [called.get(k, field) for k, field in enumerate(head)], places, None, timed
    )
    for block in table.blocks(head, below=found is not None):
        columns.append(block)
    entries = []
    for mode, index, parts in zip(ids, columns.indexes, columns.codes, strict=True):
        labels = [typed(text.strip(), mode) for text in index]
        entries.append([labels[code] for code in join(parts, np.int32).tolist()])
    return entries, None if timed is None else join(columns.times, np.float64)


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
