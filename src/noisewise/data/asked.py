"""Tables of ids without values: the cells to predict."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisewise.data.columns import find_ids
from noisewise.data.files import DELIMITERS, FORMATS
from noisewise.data.ids import Ids
from noisewise.data.parquet import read_parquet
from noisewise.data.reader import INTEGER, Block, blocks, named_errors, split_line, text_lines
from noisewise.data.text import id_fault, time_fault
from noisewise.data.timestamps import check_seconds, to_seconds
from noisewise.errors import DataError, listed

Cells: TypeAlias = tuple[list[list[Any]], NDArray[Any] | None]

_ANY = DELIMITERS["text"]


def read_cells(path: str | Path, ids: Sequence[Ids], time: str | None = None) -> Cells:
    """Read the id columns of a CSV, TSV or Parquet file, one list per mode, and times if any.

    Text is read as ``noisewise.read`` does: delimiters, quotes and blanks may be any that it knows.
    Columns are found by the names of the modes in the first line. A file without such a header has
    its ids in the first columns, and at least one id of its first line must be known: else it
    could be a header with other names.

    Parameters
    ----------
    path : path
        The file. Other columns are not read.
    ids : sequence of Ids
        Ids of the model; where they are numbers, the file's are read as numbers.
    time : str, optional
        A column of times to read too, as unix seconds or dates, where the file has it.

    Returns
    -------
    columns, time
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    with named_errors(path):
        if path.suffix.lower() == ".parquet":
            return _parquet(path, ids, time)
        return _text(path, ids, time)


def typed(entry: Any, ids: Ids) -> Any:
    """Turn the text of an id into a number where the known ids are numbers and it is one.

    Examples
    --------
    >>> numbers, _ = Ids.encode([7, 9], "user")
    >>> typed("7", numbers), typed("ann", numbers)
    (7, 'ann')
    """
    if isinstance(entry, str) and ids.labels.dtype.kind == "i" and INTEGER.fullmatch(entry.strip()):
        return int(entry)
    return entry


def _text(path: Path, ids: Sequence[Ids], time: str | None) -> Cells:
    names = [mode.name for mode in ids]
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    lines = text_lines(path)
    first = next(lines, "")
    delimiter = max(DELIMITERS.get(FORMATS.get(suffix, ""), _ANY), key=first.count)
    head = split_line(first, delimiter)
    if len(head) < len(ids):
        raise DataError(
            f"{len(ids)} id columns ({listed(names)}) are needed; line 1 has {listed(head)}."
        )
    found = find_ids(head, names)
    named = found is not None
    places = range(len(ids)) if found is None else found
    body, number = (lines, 2) if named else (itertools.chain([first], lines), 1)
    asked = [(typed(head[k], mode), mode) for k, mode in zip(places, ids, strict=True)]
    if not named and all(mode.lookup([entry])[0] < 0 for entry, mode in asked):
        raise DataError(
            f"line 1 names no column {listed(names)} and holds no known id (it is {listed(head)}); "
            f"put a header {','.join(names)} above the ids."
        )
    timed = head.index(time) if named and time in head else None
    columns: list[list[Any]] = [[] for _ in places]
    seconds: list[float] = []
    for block in blocks(body, delimiter, head, number):
        for k, column, mode in zip(places, columns, ids, strict=True):
            _check(block, k, mode.name, id_fault)
            column.extend(typed(entry.strip(), mode) for entry in block.columns[k])
        if timed is not None:
            _check(block, timed, head[timed], time_fault)
            seconds.extend(map(to_seconds, block.columns[timed]))
    return columns, None if timed is None else np.array(seconds)


def _check(block: Block, at: int, name: str, fault_of: Callable[[str], str | None]) -> None:
    """Raise for the first entry of a column that is wrong."""
    for line, entry in zip(block.lines, block.columns[at], strict=True):
        fault = fault_of(entry)
        if fault:
            raise DataError(f"line {line}: {name} {entry[:60]!r} {fault}; mend or remove the line.")


def _parquet(path: Path, ids: Sequence[Ids], time: str | None) -> Cells:
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
