"""Files of npz and of Parquet (extra: parquet), checked before memory is taken for what they hold.

An npz file holds arrays of positions, and beside them the ids these stand for. Ratings are
``user``, ``item`` and ``rating``. If they are there, ``user_id`` and ``item_id`` give the ids at
those positions, and ``rating`` times ``rating_scale`` is the value.
"""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.data.ids import Codes, Ids, check_values
from noisewise.data.observations import Duplicates, Observations, assemble
from noisewise.data.reader import check_columns, check_unpacked, most_unpacked, require_pyarrow
from noisewise.data.tables import choose_columns
from noisewise.data.timestamps import check_seconds
from noisewise.errors import DataError, listed, shortened

_SUFFIX = ".npy"
_ENTRY = 8  # bytes that an entry of Parquet takes in memory, however small it is in the file
_HEADER = 2**14  # bytes; numpy itself refuses headers that are longer than 10,000
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# What zipfile and numpy raise for broken archives and headers. The latter are Python literals, so
# that brackets without end may exhaust the parser.
_FAULTS = (
    zipfile.BadZipFile, zlib.error, tokenize.TokenError, EOFError, OSError, RuntimeError,
    ValueError, TypeError, SyntaxError, LookupError, OverflowError, AttributeError, MemoryError,
)  # fmt: skip


class Archive:
    """An npz file that is open; ``files`` has the names of its arrays."""

    files: list[str]

    def __init__(self, packed: zipfile.ZipFile, most: int) -> None:
        self._packed = packed
        self._members = {info.filename.removesuffix(_SUFFIX): info for info in packed.infolist()}
        self._most, self._taken = most, 0
        self.files = list(self._members)

    def array(self, key: str | int | None) -> NDArray[Any]:
        """Read an array of numbers, text or dates; nothing in it can run."""
        if not isinstance(key, str) or key not in self._members:
            raise DataError(f"There is no array {key!r}; the arrays are {listed(self.files)}.")
        try:
            return self._read(self._members[key])
        except DataError as error:
            raise DataError(f"Array {key!r} cannot be read: {error}") from None
        except _FAULTS as error:
            raise DataError(
                f"Array {key!r} cannot be read; get a new copy. {shortened(error)}"
            ) from error

    def column(self, key: str | int) -> NDArray[Any]:
        """Read an array of one dimension."""
        array = self.array(key)
        if array.ndim != 1:
            raise DataError(f"Array {key!r} must have one dimension; got shape {array.shape}.")
        return array

    def single(self, key: str, kinds: str) -> Any:
        """Read an array of one entry."""
        array = self.array(key)
        if array.size != 1 or array.dtype.kind not in kinds:
            kind = "text" if kinds == "U" else "number"
            found = f"{array.dtype} of shape {array.shape}"
            raise DataError(f"{key} must be a single {kind}; got {found}.")
        return array.ravel()[0]

    def _read(self, info: zipfile.ZipInfo) -> NDArray[Any]:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError("its compression is not one that numpy uses; save it again.")
        with self._packed.open(info) as member:
            head = io.BytesIO(member.read(_HEADER))
            version = np.lib.format.read_magic(head)
            if version not in _HEADERS:
                raise DataError(f"its format {version} is not 1.0 or 2.0, which hold plain arrays.")
            shape, _, dtype = _HEADERS[version](head)
            if dtype.hasobject or dtype.kind not in "biufcSUmM":
                raise DataError(f"it must hold numbers, text or dates; got {dtype}.")
            entries = math.prod(shape)
            size = entries * dtype.itemsize
            self._taken += entries * max(dtype.itemsize, 1)
            if min(shape, default=0) < 0 or head.tell() + size != info.file_size:
                raise DataError(f"it has {info.file_size:,} bytes, not those of {shape} {dtype}.")
            check_unpacked(self._taken, self._most)
        with self._packed.open(info) as member:
            return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


@contextmanager
def open_npz(path: Path) -> Iterator[Archive]:
    """Open an archive; nothing in it can run."""
    with path.open("rb") as file:
        most = most_unpacked(path)
        try:
            archive = Archive(zipfile.ZipFile(file), most)
        except _FAULTS as error:
            raise _damaged("npz", error) from error
        yield archive


class Mode(NamedTuple):
    """The arrays of a mode: positions, and in the first one there is the ids these stand for."""

    name: str
    positions: str
    ids: tuple[str, ...] = ()
    convert: Callable[[NDArray[Any]], NDArray[Any]] | None = None  # positions to ids, without ids


class Layout(NamedTuple):
    """Which arrays of an archive are what."""

    modes: tuple[Mode, ...]
    value: str
    scale: str | None = None

    def fits(self, archive: Archive) -> bool:
        """Tell whether an archive has all that is needed."""
        return {self.value, *(mode.positions for mode in self.modes)} <= set(archive.files)

    def read(
        self,
        archive: Archive,
        time: str | int | None,
        duplicates: Duplicates,
        weight: str | int | None = None,
    ) -> Observations:
        """Put the observations of an archive together."""
        coded = {mode.positions: _coded(archive, mode) for mode in self.modes}
        values = archive.column(self.value)
        if self.scale in archive.files:
            if values.dtype.kind not in "biuf":
                raise DataError(f"Array {self.value!r} must hold numbers; got {values.dtype}.")
            with np.errstate(over="ignore", invalid="ignore"):  # which is refused later
                values = np.asarray(values * archive.single(self.scale, "iuf"))
        lengths = {name: len(codes) for name, (_, codes) in coded.items()}
        lengths[self.value] = len(values)
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise DataError(f"The arrays need one common length; got {found}.")
        ids, codes = zip(*coded.values(), strict=True)
        checked = check_values(values, self.value)
        seconds = None if time is None else check_seconds(archive.column(time), len(values))
        worth = None if weight is None else archive.column(weight)
        return assemble(codes, checked, ids, seconds, worth, duplicates=duplicates, at_least=1)


_RATINGS = Layout(
    (Mode("user", "user", ("user_id",)), Mode("item", "item", ("item_id",))),
    value="rating",
    scale="rating_scale",
)


def read_npz(
    path: Path,
    *,
    ids: Sequence[str | int] | None,
    value: Any,
    time: Any,
    weight: Any = None,
    duplicates: Duplicates,
) -> Observations:
    """Read an npz file of ratings as above, or arrays named by ids, value, time and weight."""
    with open_npz(path) as archive:
        if ids is not None and value is not None:
            choice = choose_columns(archive.files, ids=ids, value=value)
            modes = tuple(Mode(archive.files[k], archive.files[k]) for k in choice.ids)
            own = Layout(modes, archive.files[choice.value])
            return own.read(archive, time, duplicates, weight)
        if ids is None and value is None and _RATINGS.fits(archive):
            return _RATINGS.read(archive, time, duplicates, weight)
        raise DataError(
            f"Found the arrays {listed(archive.files)}, which are not ratings (user, item, "
            "rating); name both ids= and value=."
        )


def _coded(archive: Archive, mode: Mode) -> tuple[Ids, Codes]:
    """Give each id that occurs in a mode its row number."""
    key = next((key for key in mode.ids if key in archive.files), None)
    if key is None:
        positions = archive.column(mode.positions)
        return Ids.encode(mode.convert(positions) if mode.convert else positions, mode.name)
    positions, labels = archive.column(mode.positions), archive.column(key)
    check_integers(positions, mode.positions)
    outside = positions[(positions < 0) | (positions >= len(labels))]
    if len(outside):
        raise DataError(f"{mode.positions} has position {outside[0]}; {key} has {len(labels)} ids.")
    present = np.unique(positions)
    ids, numbers = Ids.encode(labels[present], mode.name)
    number_at = np.zeros(len(labels), dtype=np.int32)
    number_at[present] = numbers
    return ids, number_at[positions]


def check_integers(positions: NDArray[Any], name: str) -> None:
    """Raise unless an array of positions holds integers."""
    if positions.dtype.kind not in "iu":
        raise DataError(f"Array {name!r} must hold integers; got {positions.dtype}.")


def read_parquet(
    path: Path, choose: Callable[[list[str]], list[str]], purpose: str = "Reading Parquet"
) -> Any:
    """Read the columns that ``choose`` takes of all names as a table of pyarrow, fully checked."""
    arrow = require_pyarrow(purpose)
    # Arrow checks what it reads, but says so by builtin exceptions, too.
    faults = (arrow.ArrowException, OSError, ValueError, OverflowError, LookupError, TypeError)
    try:
        with arrow.parquet.ParquetFile(path) as file:
            schema, size = file.schema_arrow, file.metadata
            names = list(schema.names)
    except faults as error:
        raise _damaged("Parquet", error) from error
    check_columns(len(names))
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise DataError(f"No two columns may be called alike; got {listed(repeated)} twice.")
    chosen, most = choose(names), most_unpacked(path)
    try:
        check_unpacked(_claimed(size, chosen), most)
        kinds = arrow.string(), arrow.binary()
        text = [name for name in chosen if schema.field(name).type in kinds]
        # Text that repeats stays short in a dictionary; how long it would be is known beforehand.
        with arrow.parquet.ParquetFile(path, read_dictionary=text) as file:
            table = file.read(columns=chosen).select(chosen)
        table.validate(full=True)
        check_unpacked(_decoded(arrow, table), most)
        plain = arrow.schema([schema.field(name) for name in chosen], schema.metadata)
        table = table.cast(plain)
        for column in table.columns:
            if arrow.types.is_temporal(column.type):
                column.unique().to_pylist()  # raises for dates that are none
    except DataError:
        raise
    except faults as error:
        raise _damaged("Parquet", error) from error
    return table


def _claimed(size: Any, chosen: list[str]) -> int:
    """Return how many bytes some columns take by the number of rows that the file claims."""
    # What it says of single columns is not asked for: pyarrow ends the process if it is damaged.
    groups = [int(size.row_group(g).num_rows) for g in range(size.num_row_groups)]
    return _ENTRY * len(chosen) * max(sum(map(abs, groups)), abs(int(size.num_rows)))


def _decoded(arrow: Any, table: Any) -> int:
    """Return how many bytes a table takes with its dictionaries written out."""
    total = table.nbytes
    for column in table.columns:
        if arrow.types.is_dictionary(column.type):
            for part in column.chunks:
                lengths = arrow.compute.binary_length(part.dictionary).cast(arrow.int64())
                total += arrow.compute.sum(lengths.take(part.indices)).as_py() or 0
    return int(total)


def _damaged(kind: str, error: BaseException) -> DataError:
    return DataError(f"The {kind} file is damaged; get a new copy. {shortened(error)}")
