"""Observations, and cells to predict, from delimited text, read as a stream.

Fields are turned into row numbers block by block, so that memory stays near the 12 bytes an
observation needs. Every error names the line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisewise.data.columns import choose_columns, find_ids
from noisewise.data.ids import Codes, Ids
from noisewise.data.observations import Duplicates, Observations, assemble
from noisewise.data.reader import INTEGER, Block, TextTable, join, to_float, to_floats
from noisewise.data.tables import fitting
from noisewise.data.timestamps import to_seconds
from noisewise.errors import DataError, listed
from noisewise.progress import progress

Cells: TypeAlias = tuple[list[list[Any]], NDArray[Any] | None]

_LARGEST = float(np.finfo(np.float32).max)
_UNIX_1973 = 10**8


def read_text(
    path: Path,
    *,
    delimiters: Sequence[str],
    names: list[str] | None = None,
    ids: Sequence[str | int] | None = None,
    value: str | int | None = None,
    time: str | int | None = None,
    duplicates: Duplicates = "error",
) -> Observations:
    """Read a text file in UTF-8 with one observation a line.

    A first line with a number in it is an observation, else it names the columns. Without names,
    three columns are user, item and value, and a fourth may be the unix time. Blanks around a field
    and empty lines do not count. Ids are integers where all of a column are, else text.

    The file is unpacked if its name ends in ``.gz``. What stands between fields is the one of the
    ``delimiters`` that is most frequent in the first line; ``names`` has the columns of a file that
    is known to have no header. Columns are as for `choose_columns`: times are unix seconds or ISO
    dates, which without a time zone are UTC.
    """
    table = TextTable.open(path, delimiters)
    if table.delimiter not in table.first:
        wanted = " or ".join(map(repr, delimiters))
        raise DataError(f"line 1: found no {wanted} between fields, but {table.first[:60]!r}.")
    named = names is None and not any(map(_is_number, table.fields))
    if names is None:
        given = None not in (ids, value)
        names = table.fields if named else _usual_names(table.fields, given)
    columns = _Columns(names, *choose_columns(names, ids=ids, value=value, time=time))
    bar = progress(desc=path.name, unit=" lines", unit_scale=True, delay=0.5, leave=False)
    with bar:
        for block in table.blocks(names, below=named):
            columns.append(block)
            bar.update(len(block.lines))
    return columns.assemble(duplicates)


def read_text_cells(
    path: Path, ids: Sequence[Ids], time: str | None, delimiters: Sequence[str]
) -> Cells:
    """Read ids without values; the model's own say which columns, and whether they are numbers.

    Without a header the ids are in the first columns, and at least one id of the first line must be
    known: else it could be a header with other names.
    """
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
    columns = _Columns([called.get(k, field) for k, field in enumerate(head)], places, None, timed)
    for block in table.blocks(head, below=found is not None):
        columns.append(block)
    return columns.cells(ids)


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


class _Columns:
    """The columns that are read, growing block by block."""

    def __init__(
        self, names: list[str], ids: tuple[int, ...], value: int | None, time: int | None
    ) -> None:
        self.names = names
        self.ids, self.value, self.time = ids, value, time
        self.indexes = [_Index() for _ in ids]
        self.codes: list[list[Codes]] = [[] for _ in ids]
        self.values: list[NDArray[Any]] = []
        self.times: list[NDArray[np.float64]] = []
        self.lines: list[Sequence[int]] = []

    def append(self, block: Block) -> None:
        """Add rows."""
        length = len(block.lines)
        try:
            for at, index, codes in zip(self.ids, self.indexes, self.codes, strict=True):
                numbers = map(index.__getitem__, block.columns[at])
                codes.append(np.fromiter(numbers, np.int32, length))
            if self.value is not None:
                values = to_floats(block.columns[self.value])
                if not np.all(np.abs(values) <= _LARGEST):
                    raise ValueError("a value is not finite")
                self.values.append(fitting(values))
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
            if all(map(INTEGER.fullmatch, labels)):
                labels = list(map(int, labels))
            mode, numbers = Ids.encode(labels, self.names[at])
            ids.append(mode)
            codes.append(numbers[join(parts, np.int32)])
        times = None
        if self.time is not None:
            times = join(self.times, np.float64)
            if np.all(times == np.floor(times)):
                times = times.astype(np.int64)
        values = join(self.values, np.float32)
        return assemble(codes, values, ids, times, duplicates=duplicates, place=self._place)

    def cells(self, ids: Sequence[Ids]) -> Cells:
        """Return the ids of every row, mode by mode, and the times if there are any."""
        columns = []
        for mode, index, parts in zip(ids, self.indexes, self.codes, strict=True):
            labels = [typed(text.strip(), mode) for text in index]
            columns.append([labels[code] for code in join(parts, np.int32).tolist()])
        return columns, None if self.time is None else join(self.times, np.float64)

    def _place(self, first: int, second: int) -> str:
        return f"lines {self._line(first)} and {self._line(second)}"

    def _line(self, observation: int) -> int:
        return next(itertools.islice(itertools.chain.from_iterable(self.lines), observation, None))

    def _blame(self, block: Block) -> None:
        """Raise for the first field that is wrong."""
        checks: list[tuple[int | None, Callable[[str], str | None]]] = [
            *((at, _id_fault) for at in self.ids),
            (self.value, _value_fault),
            (self.time, _time_fault),
        ]
        for line, row in zip(block.lines, zip(*block.columns, strict=True), strict=True):
            for at, fault_of in checks:
                fault = None if at is None else fault_of(row[at])
                if at is not None and fault:
                    found = f"{self.names[at]} {row[at][:60]!r}"
                    raise DataError(f"line {line}: {found} {fault}; mend or remove the line.")


class _Index(dict[str, int]):
    """Numbers by the text of an id; a new text gets the next one."""

    def __missing__(self, text: str) -> int:
        fault = _id_fault(text)
        if fault:
            raise ValueError(fault)
        code = self[text] = len(self)
        return code


def _usual_names(fields: list[str], columns_are_given: bool) -> list[str]:
    """Name the columns of a file without names."""
    if columns_are_given:
        return [f"column {k}" for k in range(len(fields))]
    has_time = len(fields) == 4 and INTEGER.fullmatch(fields[3]) and int(fields[3]) > _UNIX_1973
    if len(fields) == 3 or has_time:
        return ["user", "item", "value", "time"][: len(fields)]
    raise DataError(
        f"line 1: found no column names and {len(fields)} columns; say which are ids and which is "
        "the value by position, such as ids=[0, 1], value=2."
    )


def _id_fault(text: str) -> str | None:
    if not text.strip():
        return "is empty"
    return "has a NUL byte" if "\0" in text else None


def _value_fault(text: str) -> str | None:
    try:
        number = to_float(text)
    except ValueError:
        return "is not a number"
    return None if abs(number) <= _LARGEST else "is not finite as float32"


def _time_fault(text: str) -> str | None:
    try:
        to_seconds(text)
    except ValueError:
        far = "is more than 2**53 seconds from 1970"
        return far if _is_number(text) else "is neither unix seconds nor an ISO date"
    return None


def _is_number(text: str) -> bool:
    return _value_fault(text) is None
