"""Tables of ids without values: the cells to predict."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.datasets.lines import text_lines
from noisewise.errors import DataError, MissingExtraError
from noisewise.observations import Ids
from noisewise.observations.tables import check_seconds


def read_cells(
    path: str | Path, ids: Sequence[Ids], time: str | None = None
) -> tuple[list[list[Any]], NDArray[Any] | None]:
    """Read the id columns of a CSV, TSV or Parquet file, one list per mode, and times if any.

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
    columns = _parquet(path, ids, time) if path.suffix == ".parquet" else _text(path, ids, time)
    seconds = None
    if len(columns) > len(ids):
        seconds = _seconds(path, columns.pop())
    typed_columns = [
        [typed(entry, mode) for entry in column] for column, mode in zip(columns, ids, strict=True)
    ]
    return typed_columns, seconds


def typed(entry: Any, ids: Ids) -> Any:
    """Turn the text of an id into a number where the known ids are numbers and it is one.

    Examples
    --------
    >>> numbers, _ = Ids.encode([7, 9], "user")
    >>> typed("7", numbers), typed("ann", numbers)
    (7, 'ann')
    """
    if isinstance(entry, str) and ids.labels.dtype.kind == "i":
        digits = entry.strip().removeprefix("-")
        return int(entry) if digits.isascii() and digits.isdigit() else entry
    return entry


def _seconds(path: Path, column: list[Any]) -> NDArray[Any]:
    if all(isinstance(entry, str) for entry in column):
        try:
            return np.array(column, dtype=np.float64)
        except ValueError:
            pass  # then they must be dates, and what is neither is refused below
    try:
        return check_seconds(np.array(column, dtype=object), len(column))
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _text(path: Path, ids: Sequence[Ids], time: str | None) -> list[list[str]]:
    names = [mode.name for mode in ids]
    lines = text_lines(path)
    first = next(lines, "").rstrip("\r\n")
    delimiter = "::" if "::" in first else "\t" if "\t" in first else ","
    rows: Iterable[list[str]]
    if delimiter == "::":
        rows = (line.rstrip("\r\n").split("::") for line in lines)
        head = first.split("::")
    else:
        rows = csv.reader(lines, delimiter=delimiter)
        (head,) = csv.reader([first], delimiter=delimiter)
    if not head or len(head) < len(ids):
        raise DataError(
            f"{path} needs {len(ids)} id columns ({', '.join(names)}); line 1 has {head}."
        )
    named = set(names) <= set(head)
    places = [head.index(name) for name in names] if named else list(range(len(ids)))
    if named and time in head:
        places.append(head.index(time))
    columns: list[list[str]] = [[] for _ in places]
    if not named:
        cells = [(head[k], mode) for k, mode in zip(places, ids, strict=True)]
        if all(mode.lookup([typed(entry, mode)])[0] < 0 for entry, mode in cells):
            raise DataError(
                f"{path}: line 1 names no column {' or '.join(names)} and holds no known id "
                f"(it is {first!r}); put a header {','.join(names)} above the ids."
            )
        for column, (entry, _) in zip(columns, cells, strict=True):
            column.append(entry)
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) <= max(places):
            raise DataError(
                f"{path}, line {number}: {len(row)} fields, but {max(places) + 1} are needed."
            )
        for column, k in zip(columns, places, strict=True):
            column.append(row[k])
    return columns


def _parquet(path: Path, ids: Sequence[Ids], time: str | None) -> list[list[Any]]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Reading Parquet", "parquet") from error
    names = [mode.name for mode in ids]
    found = pyarrow.parquet.read_schema(path).names
    if not set(names) <= set(found):
        raise DataError(f"{path} needs the columns {', '.join(names)}; it has {', '.join(found)}.")
    names += [time] if time is not None and time in found else []
    table = pyarrow.parquet.read_table(path, columns=names)
    return [table[name].to_pylist() for name in names]
