"""Files of any known format: delimited text, Parquet, npz; public datasets; cells to predict.

Text is read as a stream, its fields turned into row numbers block by block, so that memory stays
near the 12 bytes an observation needs; every error names the line.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from noisewise import registry
from noisewise.data import reader
from noisewise.data.binary import read_npz, read_parquet
from noisewise.data.ids import Codes, Ids, Index, fitting
from noisewise.data.observations import Duplicates, Observations, assemble, check_repeats, observed
from noisewise.data.tables import At, choose_columns, find_ids
from noisewise.data.timestamps import check_seconds, to_seconds
from noisewise.errors import DataError, SettingError, listed, progress

Cells: TypeAlias = tuple[list[list[Any]], NDArray[Any] | None]
Format: TypeAlias = Literal["csv", "tsv", "text", "parquet", "npz"]

_LARGEST = float(np.finfo(np.float32).max)
_UNIX_1973 = 10**8

FORMATS: dict[str, Format] = {
    ".csv": "csv", ".tsv": "tsv", ".txt": "text", ".data": "text", ".dat": "text",
    ".parquet": "parquet", ".npz": "npz",
}  # fmt: skip
DELIMITERS = {"csv": [",", ";", "\t"], "tsv": ["\t"], "text": ["\t", ",", ";", "::"]}
# Files of MovieLens by their names; of those that do not name columns, what lines look like.
_MOVIELENS = {
    "u.data": r"\d+\t\d+\t\d\t\d+",
    "ratings.dat": r"\d+::\d+::\d(\.\d)?::\d+",
    "ratings.csv": None,
}


def read(
    path: str | PathLike[str],
    *,
    ids: Sequence[str | int] | None = None,
    value: str | int | None = None,
    time: str | int | None = None,
    weight: str | int | None = None,
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
        ``.parquet`` or ``.npz`` (laid out as in `noisewise.data.binary`), or a folder of MovieLens.
        Files and folders that installed packages know are read as they come.
    ids : sequence of str or int, optional
        Names or positions of the id columns, one per mode.
    value, time, weight : str or int, optional
        Name or position of the value column, and of those of times and of weights (see
        `noisewise.observe`), which are not read by default.
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
    check_repeats(duplicates)
    path = Path(path)
    columns: dict[str, Any] = {"ids": ids, "value": value, "time": time, "weight": weight}
    untold = path.is_dir() or (format is None and reader.suffix_of(path) not in FORMATS)
    if untold and (published := _published(path, columns, duplicates)) is not None:
        return published()
    path = _find_movielens(path) if path.is_dir() else path
    format = _format_of(path, format)
    with reader.named_errors(path):
        reader.check_content(path, format)
        if format == "parquet":
            return _read_parquet(path, columns, duplicates)
        published = _published(path, columns, duplicates)
        if published is None and format == "npz":
            return read_npz(path, **columns, duplicates=duplicates)
        if published is None:
            return _read_text(path, DELIMITERS[format], columns, duplicates)
    return published()


def _find_movielens(folder: Path) -> Path:
    """Return the file of ratings in a folder of MovieLens."""
    found = [file for file in sorted(folder.iterdir()) if _unpacked_name(file) in _MOVIELENS]
    if len(found) != 1:
        raise DataError(
            f"Folder {folder} needs one of {', '.join(_MOVIELENS)} in it; found "
            f"{' and '.join(file.name for file in found) or 'none'}. Give the path of a file."
        )
    return found[0]


def _unpacked_name(path: Path) -> str:
    return path.name.removesuffix(".gz")


def _published(
    path: Path, columns: dict[str, Any], duplicates: Duplicates
) -> Callable[[], Observations] | None:
    """Return what reads a dataset as its owners publish it, None where nobody knows the path."""
    if any(columns[name] is not None for name in ("ids", "value", "weight")):
        return None
    time = columns["time"]
    ratings = registry.recognised("ratings", path)
    if ratings is not None:
        return partial(ratings, path, time=time, duplicates=duplicates)
    panel = registry.recognised("sensors", path) if time is None else None
    return panel and (lambda: panel(path, repeats=duplicates).observations)


def _format_of(path: Path, format: Format | None) -> Format:
    if format is None:
        format = FORMATS.get(reader.suffix_of(path))
        if format is None:
            raise DataError(
                f"{path}: the name does not tell the format; pass format=, one of "
                f"{', '.join(get_args(Format))}."
            )
    if format not in get_args(Format):
        raise SettingError(f"format must be one of {', '.join(get_args(Format))}; got {format!r}.")
    return format


def _read_parquet(path: Path, columns: dict[str, Any], duplicates: Duplicates) -> Observations:
    chosen: list[str] = []
    beside: dict[str, str] = {}

    def choose(names: list[str]) -> list[str]:
        choice = choose_columns(names, **columns)
        chosen.extend(names[k] for k in (*choice.ids, choice.value))
        places = {"time": choice.time, "weight": choice.weight}
        beside.update({role: names[k] for role, k in places.items() if k is not None})
        return list(dict.fromkeys([*chosen, *beside.values()]))

    table = read_parquet(path, choose)
    apart = {role: table.column(name) for role, name in beside.items()}
    return observed(table.select(chosen), duplicates=duplicates, **apart)


def _read_text(
    path: Path, delimiters: Sequence[str], chosen: dict[str, Any], duplicates: Duplicates
) -> Observations:
    """Read a text file with one observation a line, maybe below a line without a number, of names.

    Ids are integers where all of a column are, else text; times are unix seconds or ISO dates.
    """
    table = reader.TextTable.open(path, delimiters)
    if table.delimiter not in table.first:
        wanted = " or ".join(map(repr, delimiters))
        raise DataError(f"line 1: found no {wanted} between fields, but {table.first[:60]!r}.")
    named = not any(map(_is_number, table.fields))
    names = table.fields if named else _usual_names(path, table, chosen["ids"], chosen["value"])
    columns = TextColumns(names, *choose_columns(names, **chosen))
    bar = progress(desc=path.name, unit=" lines", unit_scale=True, delay=0.5, leave=False)
    with bar:
        for block in table.blocks(names, below=named):
            columns.append(block)
            bar.update(len(block.lines))
    return columns.assemble(duplicates)


def _usual_names(path: Path, table: reader.TextTable, ids: Any, value: Any) -> list[str]:
    """Name the columns of a file without names."""
    fields = table.fields
    if ids is not None and value is not None:
        return [f"column {k}" for k in range(len(fields))]
    movielens = _MOVIELENS.get(_unpacked_name(path))
    if movielens and ids is value is None and re.fullmatch(movielens, table.first.rstrip("\r\n")):
        return ["user", "item", "rating", "timestamp"]
    time = fields[3] if len(fields) == 4 else ""
    has_time = reader.INTEGER.fullmatch(time) and int(time) > _UNIX_1973
    if len(fields) == 3 or has_time:
        return ["user", "item", "value", "time"][: len(fields)]
    raise DataError(
        f"line 1: found no column names and {len(fields)} columns; say which are ids and which is "
        "the value by position, such as ids=[0, 1], value=2."
    )


class TextColumns:
    """The columns that are read, growing block by block."""

    def __init__(
        self, names: list[str], ids: tuple[int, ...], value: At, time: At, weight: At = None
    ) -> None:
        self.names = names
        self.ids, self.value, self.time, self.weight = ids, value, time, weight
        self.indexes = [_TextIndex() for _ in ids]
        self.codes: list[list[Codes]] = [[] for _ in ids]
        self.values: list[NDArray[Any]] = []
        self.times: list[NDArray[np.float64]] = []
        self.weights: list[NDArray[Any]] = []
        self.lines: list[Sequence[int]] = []

    def append(self, block: reader.Block) -> None:
        """Add rows."""
        length = len(block.lines)
        try:
            for at, index, codes in zip(self.ids, self.indexes, self.codes, strict=True):
                numbers = map(index.__getitem__, block.columns[at])
                codes.append(np.fromiter(numbers, np.int32, length))
            if self.value is not None:
                values = reader.to_floats(block.columns[self.value])
                if not np.all(np.abs(values) <= _LARGEST):
                    raise ValueError("a value is not finite")
                self.values.append(fitting(values))
            if self.weight is not None:
                weights = reader.to_floats(block.columns[self.weight])
                if not np.all((weights >= 0) & (weights <= _LARGEST)):
                    raise ValueError("a weight is not finite, or below 0")
                self.weights.append(weights)
            if self.time is not None:
                times = map(to_seconds, block.columns[self.time])
                self.times.append(np.fromiter(times, np.float64, length))
        except ValueError:
            self._blame(block)
            raise
        self.lines.append(block.lines)

    def assemble(self, duplicates: Duplicates) -> Observations:
        """Put observations together; ids that are all integers become integers."""
        ids, codes = [], []
        for at, index, parts in zip(self.ids, self.indexes, self.codes, strict=True):
            labels: list[Any] = [text.strip() for text in index]  # Ids.encode merges equal ones
            if all(map(reader.INTEGER.fullmatch, labels)):
                labels = list(map(int, labels))
            mode, numbers = Ids.encode(labels, self.names[at])
            ids.append(mode)
            codes.append(numbers[reader.join(parts, np.int32)])
        times = None
        if self.time is not None:
            times = reader.join(self.times, np.float64)
            if np.all(times == np.floor(times)):
                times = times.astype(np.int64)
        values = reader.join(self.values, np.float32)
        worth = None if self.weight is None else reader.join(self.weights, np.float64)
        how: Any = {"duplicates": duplicates, "place": self._place, "at_least": 1}
        return assemble(codes, values, ids, times, worth, **how)

    def _place(self, first: int, second: int) -> str:
        return f"lines {self._line(first)} and {self._line(second)}"

    def _line(self, observation: int) -> int:
        return next(itertools.islice(itertools.chain.from_iterable(self.lines), observation, None))

    def _blame(self, block: reader.Block) -> None:
        """Raise for the first field that is wrong."""
        checks: list[tuple[int | None, Callable[[str], str | None]]] = [
            *((at, _id_fault) for at in self.ids),
            (self.value, _value_fault),
            (self.time, _time_fault),
            (self.weight, _weight_fault),
        ]
        for line, row in zip(block.lines, zip(*block.columns, strict=True), strict=True):
            for at, fault_of in checks:
                if at is not None and (fault := fault_of(row[at])):
                    found = f"{self.names[at]} {row[at][:60]!r}"
                    raise DataError(f"line {line}: {found} {fault}; mend or remove the line.")


class _TextIndex(Index):
    """Numbers by the text of an id, which must be sound."""

    def __missing__(self, text: str) -> int:
        fault = _id_fault(text)
        if fault:
            raise ValueError(fault)
        return super().__missing__(text)


def _id_fault(text: str) -> str | None:
    if not text.strip():
        return "is empty"
    return "has a NUL byte" if "\0" in text else None


def _value_fault(text: str) -> str | None:
    try:
        number = reader.to_float(text)
    except ValueError:
        return "is not a number"
    return None if abs(number) <= _LARGEST else "is not finite as float32"


def _weight_fault(text: str) -> str | None:
    fault = _value_fault(text)
    return "is below 0" if fault is None and reader.to_float(text) < 0 else fault


def _time_fault(text: str) -> str | None:
    try:
        to_seconds(text)
    except ValueError:
        far = "is more than 2**53 seconds from 1970"
        return far if _is_number(text) else "is neither unix seconds nor an ISO date"
    return None


def _is_number(text: str) -> bool:
    return _value_fault(text) is None


def read_cells(path: str | Path, ids: Sequence[Ids], time: str | None = None) -> Cells:
    """Read the id columns of a CSV, TSV or Parquet file, one list per mode, and times if any.

    Columns are found by the names of the modes, or are the first ones of a text file without names,
    where an id of the first line must be known: else it could be a header with other names.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    parquet = path.suffix.lower() == ".parquet"
    with reader.named_errors(path):
        reader.check_content(path, "parquet" if parquet else "text")
        return (_parquet_cells if parquet else _text_cells)(path, ids, time)


def typed(entry: Any, ids: Ids) -> Any:
    """Turn the text of an id into a number where the known ids are numbers and it is one."""
    wanted = isinstance(entry, str) and ids.labels.dtype.kind == "i"
    return int(entry) if wanted and reader.INTEGER.fullmatch(entry.strip()) else entry


def _text_cells(path: Path, ids: Sequence[Ids], time: str | None) -> Cells:
    names = [mode.name for mode in ids]
    format = FORMATS.get(reader.suffix_of(path), "text")
    table = reader.TextTable.open(path, DELIMITERS.get(format, DELIMITERS["text"]))
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
    fields = [called.get(k, field) for k, field in enumerate(head)]
    columns = TextColumns(fields, places, None, timed)
    for block in table.blocks(head, below=found is not None):
        columns.append(block)
    entries = []
    for mode, index, parts in zip(ids, columns.indexes, columns.codes, strict=True):
        labels = [typed(text.strip(), mode) for text in index]
        entries.append([labels[code] for code in reader.join(parts, np.int32).tolist()])
    return entries, None if timed is None else reader.join(columns.times, np.float64)


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
