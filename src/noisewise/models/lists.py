"""Lists for many as people take them: of named tuples, as a frame, or straight into Parquet."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import narwhals as nw
import numpy as np
import numpy.typing as npt

from noisewise.data.ids import as_objects
from noisewise.data.reader import require_pyarrow
from noisewise.data.tables import LIBRARIES
from noisewise.engine.mapped import mapped
from noisewise.engine.training import chunks
from noisewise.engine.workers import Cluster
from noisewise.errors import SettingError
from noisewise.recommend import Lists
from noisewise.settings import either, one_of
from noisewise.storage import check_writable, writing

ROWS_AT_ONCE = 20_000  # whose lists are made and written together
FRAME = either(one_of(*LIBRARIES), None)

Columns = dict[str, npt.NDArray[Any]]


class Recommendation(NamedTuple):
    """An id, and the value that is expected of it, give or take."""

    id: Any
    mean: float
    std: float


class Similar(NamedTuple):
    """An id, and the cosine of its factors with those that were asked about."""

    id: Any
    similarity: float


LISTED = 50_000  # lists that are made at a time, so that what is needed on the way is soon free


def labels_of(model: Any, mode: int) -> npt.NDArray[Any]:
    """Return ids by the codes of rows: those trained on, none, and those that have features."""
    known: npt.NDArray[Any] = model.ids_[mode].labels
    table = getattr(model, "features_", {}).get(mode)
    if table is None:
        return known
    if known.dtype == table.ids.labels.dtype == np.int64:
        return np.concatenate([known, [-1], table.ids.labels])
    return as_objects([*known.tolist(), None, *table.ids.labels.tolist()])


def as_recommendations(lists: Lists, labels: npt.NDArray[Any]) -> list[list[Recommendation]]:
    """Return lists of named tuples; ``labels`` has the ids of columns."""
    names = np.empty(len(labels), dtype=object)
    names[:] = labels.tolist()  # one object for each id, however often it is listed
    made: list[list[Recommendation]] = []
    with _nothing_collected():
        for start in range(0, len(lists.codes), LISTED):
            codes, mean, std = (part[start : start + LISTED] for part in lists)
            found = codes >= 0
            triples = zip(
                names[codes[found]].tolist(), mean[found].tolist(), std[found].tolist(), strict=True
            )
            # As _make does, but without a call of Python for each of millions.
            described = list(map(tuple.__new__, repeat(Recommendation), triples))
            ends = np.cumsum(found.sum(axis=1)).tolist()
            made += [described[a:b] for a, b in pairwise([0, *ends])]
    return made


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Keep Python from looking for garbage, again and again, among millions of new objects."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def as_columns(lists: Lists, own: Any, labels: npt.NDArray[Any], names: list[str]) -> Columns:
    """Return a line for each entry: whose list, the rank from 1 on, the id, mean and std.

    ``own`` has the ids of rows, ``labels`` those of columns, ``names`` what both are called.
    """
    rows, ranks = np.nonzero(lists.codes >= 0)
    codes = lists.codes[rows, ranks]
    numbers = {"rank": ranks + 1, "mean": lists.mean[rows, ranks], "std": lists.std[rows, ranks]}
    taken = {name if name not in names else f"list_{name}": c for name, c in numbers.items()}
    rank, mean, std = taken.items()
    return dict([(names[0], own[rows]), rank, (names[1], labels[codes]), mean, std])


def as_frame(columns: Columns, library: str | None) -> Any:
    """Return columns as a frame of a library; None leaves them as they are."""
    if library is None:
        return columns
    try:
        backend: Any = library
        return nw.from_dict(_plain(columns), backend=backend).to_native()
    except ImportError:
        raise SettingError(f"frame={library!r} needs {library}: pip install {library}.") from None


def held(
    pair: tuple[npt.NDArray[Any], npt.NDArray[Any]], library: str | None, out: Any
) -> tuple[npt.NDArray[Any], ...]:
    """Return ids of rows and of columns as what is made of lists holds them: some are text.

    That is decided by all ids, so that parts of a table that is written have the same types.
    """
    if library is None and out is None:
        return pair
    return tuple(_of_one_type(ids, out is None and library == "pandas") for ids in pair)


def _of_one_type(ids: npt.NDArray[Any], of_any: bool) -> npt.NDArray[Any]:
    """Return ids, as text where they are of several types, or of one that frames do not have."""
    entries = [] if ids.dtype != object else [entry for entry in ids.tolist() if entry is not None]
    kinds = set(map(type, entries))
    if len(kinds) <= 1 and (of_any or all(map(_is_plain, entries))):
        return ids
    return as_objects(map(str, ids.tolist()))


def _is_plain(entry: Any) -> bool:
    if isinstance(entry, int | np.integer):
        return int(entry).bit_length() < 64
    return isinstance(entry, float | np.floating | np.bool_ | str | bytes | date | Decimal | UUID)


def _plain(columns: Columns) -> dict[str, Any]:
    """Return ids as lists, whose types libraries find out, and numbers as they are."""
    return {n: c.tolist() if c.dtype == object else c for n, c in columns.items()}


def write_parquet(path: str | Path, parts: Iterable[Columns]) -> int:
    """Write parts of a table one after the other, wholly or not at all; return its length."""
    if Path(path).suffix.lower() != ".parquet":
        raise SettingError(f"out must end in .parquet; got {path}.")
    arrow = require_pyarrow("Writing Parquet")
    check_writable(path)
    total, writer = 0, None
    with writing(path) as file:
        for columns in parts:
            table = arrow.table(_plain(columns))
            writer = writer or arrow.parquet.ParquetWriter(file, table.schema)
            writer.write_table(table.cast(writer.schema))
            total += len(table)
        if writer is not None:
            writer.close()
    return total


def for_all(
    columns: Callable[[slice, int | None], Columns],
    n: int,
    library: str | None,
    out: str | Path | None,
    place: Cluster | None,
) -> Any:
    """Return one table of the lists of n rows, or write it; see ``Rows.recommend_all``.

    ``columns`` makes those of some rows, in so many threads; on a cluster, its workers do.
    """
    FRAME.require("frame", library)
    if out is None and place is None:
        return as_frame(columns(slice(None), None), library)
    tasks = chunks(n, ROWS_AT_ONCE) or [slice(0)]
    parts: Iterable[Columns] = (columns(task, None) for task in tasks)
    if place is not None:
        parts = mapped(place, columns, tasks)
    if out is not None:
        return write_parquet(out, parts)
    found = list(parts)
    return as_frame({name: np.concatenate([p[name] for p in found]) for name in found[0]}, library)
