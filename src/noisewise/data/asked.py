"""Tables of ids without values: the cells to predict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from noisewise.data.columns import find_ids
from noisewise.data.files import DELIMITERS, FORMATS
from noisewise.data.ids import Ids
from noisewise.data.parquet import read_parquet
from noisewise.data.reader import named_errors
from noisewise.data.text import Cells, read_text_cells, typed
from noisewise.data.timestamps import check_seconds
from noisewise.errors import DataError, listed


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
        suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
        delimiters = DELIMITERS.get(FORMATS.get(suffix, ""), DELIMITERS["text"])
        return read_text_cells(path, ids, time, delimiters)


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
