"""Ratings read by a cluster: a Parquet folder, or a dataset of Ray, in parts; ids numbered there.

Every part is read where there is room. The distinct ids of all parts are dealt by their hash, and
numbered as one machine would: whole numbers in their order, text in the order of appearance. Who
asks holds neither ratings nor row numbers, but values, and ids in the end.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.data import Ids
from noisewise.data.ids import as_objects, check_values
from noisewise.data.reader import require_pyarrow
from noisewise.data.tables import choose_columns
from noisewise.data.timestamps import check_seconds
from noisewise.engine import workers
from noisewise.engine.arrays import Ints
from noisewise.errors import DataError, SettingError, listed
from noisewise.spread import CHUNK, SpreadObservations

HANDS = 8  # that distinct ids are dealt to, at least
FAR = 2**40  # rows in a part, at most: where an id appears first is part * FAR + row

Part = Any  # a file and some of its row groups, or a reference to a table of Arrow


class Source(NamedTuple):
    """What to read, and its columns."""

    parts: list[Part]
    ids: list[str]
    value: str
    time: str | None

    @property
    def names(self) -> list[str]:
        """Return all columns that are needed."""
        return [*self.ids, self.value, *([] if self.time is None else [self.time])]


class FilePart(NamedTuple):
    """Some row groups of a Parquet file, on any filesystem that pyarrow knows."""

    place: str
    groups: list[int]

    def read(self, names: list[str]) -> Any:
        """Read columns as a table of Arrow."""
        arrow = require_pyarrow("Reading Parquet")
        system, path = opened(self.place)
        faults = (arrow.ArrowException, OSError, ValueError, KeyError)
        try:
            with system.open_input_file(path) as file:
                return arrow.parquet.ParquetFile(file).read_row_groups(self.groups, columns=names)
        except faults as error:
            raise DataError(f"{self.place} cannot be read as Parquet ({error}).") from error


def opened(place: str) -> tuple[Any, str]:
    """Return the filesystem of a place, and the path there."""
    require_pyarrow("Reading Parquet")
    from pyarrow import fs

    if "://" in place:
        system, path = fs.FileSystem.from_uri(place)
        return system, str(path)
    return fs.LocalFileSystem(), place


def is_spread(X: Any) -> bool:
    """Whether a cluster reads it: a place, as text or a path, or a dataset of Ray."""
    return isinstance(X, str | PurePath) or hasattr(X, "to_arrow_refs")


def source_of(X: Any, ids: Sequence[str] | None, value: Any, time: Any) -> Source:
    """Find parts and columns of a Parquet file or folder, or of a dataset of Ray."""
    if hasattr(X, "to_arrow_refs"):
        names, parts = list(X.schema().names), list(X.to_arrow_refs())
    else:
        names, parts = _listed(str(X))
    choice = choose_columns(names, ids=ids or None, value=value, time=time)
    timed = None if choice.time is None else names[choice.time]
    return Source(parts, [names[k] for k in choice.ids], names[choice.value], timed)


def _listed(place: str) -> tuple[list[str], list[Part]]:
    """Return the columns of a Parquet file or folder, and its row groups in parts."""
    arrow = require_pyarrow("Reading Parquet")
    from pyarrow import fs

    system, path = opened(place)
    info = system.get_file_info(path)
    found = [info]
    if info.type == fs.FileType.Directory:
        found = system.get_file_info(fs.FileSelector(path, recursive=True))
    paths = sorted(f.path for f in found if f.type == fs.FileType.File and _is_data(f.path))
    if not paths:
        raise DataError(f"There is no Parquet file at {place}.")
    scheme = f"{place.split('://')[0]}://" if "://" in place else ""
    names: list[str] = []
    parts: list[Part] = []
    for path in paths:
        try:
            with system.open_input_file(path) as file:
                about = arrow.parquet.ParquetFile(file)
                own, size = list(about.schema_arrow.names), about.metadata
                sizes = [size.row_group(g).num_rows for g in range(size.num_row_groups)]
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read as Parquet ({error}).") from error
        if names and set(own) != set(names):
            raise DataError(f"{path} has the columns {listed(own)}, others {listed(names)}.")
        names = names or own
        group: list[int] = []
        for number, rows in enumerate(sizes):
            if group and sum(sizes[g] for g in group) + rows > CHUNK:
                parts.append(FilePart(scheme + path, group))
                group = []
            group.append(number)
        if group:
            parts.append(FilePart(scheme + path, group))
    return names, parts


def _is_data(path: str) -> bool:
    name = PurePath(path).name
    return name.endswith(".parquet") and not name.startswith(("_", "."))


def read_spread(source: Source, duplicates: str = "error") -> SpreadObservations:
    """Read all parts on the cluster, and number ids there."""
    if duplicates != "error":
        raise SettingError(
            f"duplicates must be 'error' where a cluster reads the ratings; got {duplicates!r}."
        )
    ray = workers.library()
    hands = max(HANDS, int(ray.cluster_resources().get("CPU", 1)))
    n_modes = len(source.ids)
    load = ray.remote(_load).options(num_returns=2 + n_modes * (hands + 1))
    loaded = [load.remote(part, k, source, hands) for k, part in enumerate(source.parts)]
    values = check_values(np.concatenate(_taken([one[0] for one in loaded])), source.value)
    if len(values) < 2:
        raise DataError(f"At least 2 observations are needed; got {len(values)}.")
    ids, codes = [], []
    for mode, name in enumerate(source.ids):
        at = 2 + mode * (hands + 1)
        own, numbers = _numbered([one[at : at + hands + 1] for one in loaded], name, hands)
        ids.append(own)
        codes.append(numbers)
    encode = ray.remote(_encode)
    kind, chunks, sizes = values.dtype, [], []
    for k, one in enumerate(loaded):
        chunks.append(encode.remote(kind, one[0], one[1], *(own[k] for own in codes)))
    sizes = _taken([ray.remote(_length).remote(one[0]) for one in loaded])
    seen = SpreadObservations(chunks, sizes, values, tuple(ids), source.time is not None)
    _check_cells(seen, hands)
    return seen


def _taken(refs: list[Any]) -> list[Any]:
    """Return what tasks have returned; raise what they raised."""
    ray = workers.library()
    try:
        return list(ray.get(refs))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error


def _load(part: Part, number: int, source: Source, hands: int) -> tuple[Any, ...]:
    """Read a part: values, times, and of every mode distinct ids by hand, and where they are."""
    table = part.read(source.names) if isinstance(part, FilePart) else part.select(source.names)
    values = table.column(source.value).to_numpy()
    time = None
    if source.time is not None:
        time = check_seconds(table.column(source.time), table.num_rows)
    found: list[Any] = [values, time]
    for name in source.ids:
        found += _dealt(table.column(name), number, name, hands)
    return tuple(found)


def _dealt(column: Any, number: int, name: str, hands: int) -> list[Any]:
    """Deal the distinct ids of a column, with the first row of each; where each row's id went."""
    arrow = require_pyarrow("Reading Parquet")
    kind = column.type.value_type if arrow.types.is_dictionary(column.type) else column.type
    if column.null_count:
        raise DataError(f"Column {name!r} has no id in {column.null_count} rows; drop them.")
    is_text = arrow.types.is_string(kind) or arrow.types.is_large_string(kind)
    if not (is_text or arrow.types.is_integer(kind)):
        raise DataError(f"Ids on a cluster must be whole numbers or text; {name!r} has {kind}.")
    both = column.combine_chunks().cast(kind).dictionary_encode()
    which = both.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    first = np.full(len(both.dictionary), len(which), dtype=np.int64)
    np.minimum.at(first, which, np.arange(len(which)))
    labels: Any = both.dictionary.to_pylist()
    if is_text:
        hand = np.array([zlib.crc32(one.encode()) % hands for one in labels], dtype=np.int64)
        labels = as_objects(labels)
    else:
        labels = np.array(labels, dtype=np.int64)
        hand = labels % hands
    order = np.argsort(hand, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    cuts = np.cumsum(np.bincount(hand, minlength=hands))[:-1]
    dealt = [(labels[own], number * FAR + first[own]) for own in np.split(order, cuts)]
    return [*dealt, place[which]]


def _numbered(dealt: list[list[Any]], name: str, hands: int) -> tuple[Ids, list[Any]]:
    """Give ids of a mode their numbers; return them, and references to those of every part."""
    ray = workers.library()
    merge = ray.remote(_merge).options(num_returns=2)
    merged = [merge.remote(*(part[hand] for part in dealt)) for hand in range(hands)]
    keys = _taken([key for _, key in merged])
    whole = all(is_whole for is_whole, _ in keys if is_whole is not None)
    order = np.argsort(np.concatenate([key for _, key in keys]), kind="stable")
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    ranks = np.split(rank, np.cumsum([len(key) for _, key in keys])[:-1])
    look = ray.remote(_look_up).options(num_returns=len(dealt))
    codes = []
    for hand, (labels, _) in enumerate(merged):
        found = look.remote(labels, ranks[hand], *(part[hand] for part in dealt))
        codes.append(found if len(dealt) > 1 else [found])
    join = ray.remote(_join)
    refs = [join.remote(part[hands], *(own[k] for own in codes)) for k, part in enumerate(dealt)]
    labels = np.concatenate(_taken([labels for labels, _ in merged]))[order]
    return Ids(labels.astype(np.int64) if whole else labels, name), refs


def _merge(*parts: tuple[Any, Ints]) -> tuple[Any, Any]:
    """Return distinct ids of all parts, and what they are ordered by."""
    filled = [part for part in parts if len(part[0])]
    if not filled:
        return np.empty(0, dtype=object), (None, np.empty(0, dtype=np.int64))
    is_whole = {labels.dtype == np.int64 for labels, _ in filled}
    if len(is_whole) > 1:
        raise DataError("Ids must be whole numbers in all parts, or text in all.")
    if is_whole.pop():
        labels = np.unique(np.concatenate([own for own, _ in filled]))
        return labels, (True, labels)
    first: dict[Any, int] = {}
    for own, rows in filled:
        for label, row in zip(own.tolist(), rows.tolist(), strict=True):
            first[label] = min(first.get(label, row), row)
    return as_objects(first), (False, np.fromiter(first.values(), np.int64, len(first)))


def _look_up(labels: Any, ranks: Any, *parts: tuple[Any, Ints]) -> Any:
    """Return the row numbers of the ids of every part."""
    ids = Ids(labels, "")
    found = [np.asarray(ranks)[ids.lookup(own)] if len(own) else ranks[:0] for own, _ in parts]
    return found[0] if len(found) == 1 else tuple(found)


def _join(place: Ints, *codes: Any) -> Any:
    """Return the row number of every row of a part."""
    return np.concatenate(codes)[place].astype(np.int32)


def _encode(kind: Any, values: Any, time: Any, *codes: Any) -> tuple[Any, ...]:
    return *codes, np.asarray(values).astype(kind), *([] if time is None else [time])


def _length(values: NDArray[Any]) -> int:
    return len(values)


def _check_cells(seen: SpreadObservations, hands: int) -> None:
    """Raise for a cell that is given more than once."""
    check = workers.library().remote(_repeated)
    refs = [check.remote(hand, hands, seen.shape, *seen.chunks) for hand in range(hands)]
    repeated = list(itertools.chain(*_taken(refs)))
    if repeated:
        cell = tuple(ids.labels[c] for ids, c in zip(seen.ids, repeated[0], strict=True))
        raise DataError(
            f"{len(repeated):,} cells are given more than once, e.g. {cell}; drop rows, or read "
            "the ratings on one machine with duplicates='last' or 'mean'."
        )


def _repeated(hand: int, hands: int, shape: tuple[int, ...], *chunks: Any) -> list[Any]:
    """Return cells of some rows of the first mode that are given more than once."""
    parts = []
    for chunk in chunks:
        own = chunk[0] % hands == hand
        parts.append(np.stack([codes[own] for codes in chunk[: len(shape)]]))
    cells = np.concatenate(parts, axis=1)
    cells = cells[:, np.lexsort(cells)]
    again = (cells[:, 1:] == cells[:, :-1]).all(axis=0)
    return [tuple(cell) for cell in cells[:, 1:][:, again].T.tolist()]
