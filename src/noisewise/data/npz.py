"""Observations from npz files: arrays of positions, and beside them the ids these stand for.

Ratings
    ``user``, ``item`` and ``rating``. If they are there, ``user_id`` and ``item_id`` give the ids
    at those positions, and ``rating`` times ``rating_scale`` is the value.
Sensors
    ``loc``, ``sensor``, ``time`` and ``value``. If they are there, ``mote_id`` or ``site_code``
    give the locations and ``sensor_name`` the sensors. ``epoch0`` is added to the time; so are the
    days or hours from 1970 to ``time_origin``, if it is such as ``1993-01-01 (days)``.

Each array is checked by what it says of itself before memory is taken for it.
"""

from __future__ import annotations

import io
import math
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisewise import registry
from noisewise.data.columns import choose_columns
from noisewise.data.ids import Codes, Ids
from noisewise.data.observations import Duplicates, Observations, assemble, check_duplicates
from noisewise.data.panel import Coordinates, Panel
from noisewise.data.reader import check_unpacked, most_unpacked, named_errors
from noisewise.data.tables import check_values
from noisewise.data.timestamps import check_seconds, to_seconds
from noisewise.errors import DataError, listed, shortened

Repeats: TypeAlias = Duplicates | Literal["first"]

_EARTH = 6_371_000.0  # metres
_CHARING_CROSS = 51.5074, -0.1278  # where distances in London are measured from
_SUFFIX = ".npy"
_HEADER = 2**14  # bytes; numpy itself refuses headers that are longer than 10,000
_PIECE = 2**20  # bytes to unpack at a time
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

    def _read(self, info: zipfile.ZipInfo) -> NDArray[Any]:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError("its compression is not one that numpy uses; save it again.")
        with self._packed.open(info) as member:
            head = io.BytesIO(member.read(_HEADER))
            version = np.lib.format.read_magic(head)
            if version not in _HEADERS:
                raise DataError(f"its format {version} is not 1.0 or 2.0, which hold plain arrays.")
            shape, fortran, dtype = _HEADERS[version](head)
            if dtype.hasobject or dtype.kind not in "biufcSUmM":
                raise DataError(f"it must hold numbers, text or dates; got {dtype}.")
            entries = math.prod(shape)
            size = entries * dtype.itemsize
            self._taken += entries * max(dtype.itemsize, 1)
            if min(shape, default=0) < 0 or head.tell() + size != info.file_size:
                raise DataError(f"it has {info.file_size:,} bytes, not those of {shape} {dtype}.")
            check_unpacked(self._taken, self._most)
            content = np.empty(size, dtype=np.uint8)
            filled, piece = 0, head.read()
            while piece:
                content[filled : filled + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
                filled += len(piece)
                piece = member.read(_PIECE)
            if filled < size:
                raise EOFError("it is cut off")
        if not size:
            return np.zeros(shape, dtype)
        return content.view(dtype).reshape(shape, order="F" if fortran else "C")


@contextmanager
def open_npz(path: Path) -> Iterator[Archive]:
    """Open an archive; nothing in it can run."""
    with path.open("rb") as file:
        most = most_unpacked(path)
        try:
            archive = Archive(zipfile.ZipFile(file), most)
        except _FAULTS as error:
            raise DataError(
                f"The npz file is damaged; get a new copy. {shortened(error)}"
            ) from error
        yield archive


class _Mode(NamedTuple):
    name: str
    positions: str
    ids: tuple[str, ...] = ()
    counts_steps: bool = False


class _Arrays(NamedTuple):
    modes: tuple[_Mode, ...]
    value: str
    scale: str | None = None

    def fits(self, archive: Archive) -> bool:
        return {self.value, *(mode.positions for mode in self.modes)} <= set(archive.files)


_RATINGS = _Arrays(
    (_Mode("user", "user", ("user_id",)), _Mode("item", "item", ("item_id",))),
    value="rating",
    scale="rating_scale",
)
_SENSORS = _Arrays(
    (
        _Mode("location", "loc", ("mote_id", "site_code")),
        _Mode("sensor", "sensor", ("sensor_name",)),
        _Mode("time", "time", counts_steps=True),
    ),
    value="value",
)
_EPOCH_SECONDS = 30.0  # of the Intel lab
_UNITS = {"days": 86_400, "hours": 3_600}
_FARTHEST = 2**53  # steps of time
_ORIGIN = re.compile(r"(\d{4}-\d{2}-\d{2}) \((days|hours)\)")


class Steps(NamedTuple):
    """The id of the first step of time, and how many seconds a step has."""

    first: int
    seconds: float


def steps_of_time(archive: Archive) -> Steps | None:
    """Return what time counts in an archive of sensors; None if it does not say."""
    if "epoch0" in archive.files:
        return Steps(int(_single(archive, "epoch0", "iu")), _EPOCH_SECONDS)
    if "time_origin" in archive.files:
        found = _ORIGIN.fullmatch(str(_single(archive, "time_origin", "U")))
        if found:
            seconds = _UNITS[found[2]]
            try:
                origin = int(to_seconds(found[1]))
            except ValueError as error:
                raise DataError(f"time_origin has no such day: {error}.") from None
            return Steps(origin // seconds, float(seconds))
    return None


def _single(archive: Archive, key: str, kinds: str) -> Any:
    """Read an array of one entry."""
    array = archive.array(key)
    if array.size != 1 or array.dtype.kind not in kinds:
        kind = "text" if kinds == "U" else "number"
        raise DataError(f"{key} must be a single {kind}; got {array.dtype} of shape {array.shape}.")
    return array.ravel()[0]


def read_npz(
    path: Path,
    *,
    ids: Sequence[str | int] | None = None,
    value: str | int | None = None,
    time: str | int | None = None,
    duplicates: Duplicates = "error",
) -> Observations:
    """Read an npz file of one of the two layouts above, or arrays named by ids, value and time."""
    with open_npz(path) as archive:
        layout = _layout_of(archive, ids, value)
        return _from_archive(archive, layout, time, duplicates)


def _layout_of(
    archive: Archive, ids: Sequence[str | int] | None, value: str | int | None
) -> _Arrays:
    if ids is not None and value is not None:
        choice = choose_columns(archive.files, ids=ids, value=value)
        modes = tuple(_Mode(archive.files[k], archive.files[k]) for k in choice.ids)
        return _Arrays(modes, archive.files[choice.value])
    for known in (_RATINGS, _SENSORS):
        if ids is None and value is None and known.fits(archive):
            return known
    raise DataError(
        f"Found the arrays {listed(archive.files)}, which are neither ratings (user, item, "
        "rating) nor sensors (loc, sensor, time, value); name both ids= and value=."
    )


def _from_archive(
    archive: Archive, layout: _Arrays, time: str | int | None, duplicates: Duplicates
) -> Observations:
    coded = {mode.positions: _coded(archive, mode) for mode in layout.modes}
    values = archive.column(layout.value)
    if layout.scale in archive.files:
        values = _scaled(values, layout, _single(archive, layout.scale, "iuf"))
    lengths = {name: len(codes) for name, (_, codes) in coded.items()} | {layout.value: len(values)}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(f"The arrays need one common length; got {found}.")
    return assemble(
        [codes for _, codes in coded.values()],
        check_values(values, layout.value),
        [ids for ids, _ in coded.values()],
        None if time is None else check_seconds(archive.column(time), len(values)),
        duplicates=duplicates,
    )


def _coded(archive: Archive, mode: _Mode) -> tuple[Ids, Codes]:
    """Give each id that occurs in a mode its row number."""
    positions = archive.column(mode.positions)
    key = next((key for key in mode.ids if key in archive.files), None)
    if key is None:
        steps = steps_of_time(archive) if mode.counts_steps else None
        if steps is not None:
            positions = _later(positions, steps.first, mode.positions)
        return Ids.encode(positions, mode.name)
    labels = archive.column(key)
    _check_integers(positions, mode.positions)
    outside = positions[(positions < 0) | (positions >= len(labels))]
    if len(outside):
        raise DataError(f"{mode.positions} has position {outside[0]}; {key} has {len(labels)} ids.")
    present = np.unique(positions)
    ids, numbers = Ids.encode(labels[present], mode.name)
    number_at = np.zeros(len(labels), dtype=np.int32)
    number_at[present] = numbers
    return ids, number_at[positions]


def _later(steps: NDArray[Any], first: int, name: str) -> NDArray[np.int64]:
    """Count steps of time from another one; both are small enough to be exact as floats."""
    _check_integers(steps, name)
    far = (steps > _FARTHEST) | (steps < -_FARTHEST)
    if far.any() or abs(first) > _FARTHEST:
        found = steps[far][0] if far.any() else first
        raise DataError(f"{name} has step {found}, which is more than 2**53 from the first one.")
    return steps.astype(np.int64) + first


def _check_integers(positions: NDArray[Any], name: str) -> None:
    if positions.dtype.kind not in "iu":
        raise DataError(f"Array {name!r} must hold integers; got {positions.dtype}.")


def _scaled(values: NDArray[Any], layout: _Arrays, scale: Any) -> NDArray[Any]:
    if values.dtype.kind not in "biuf":
        raise DataError(f"Array {layout.value!r} must hold numbers; got {values.dtype}.")
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused later
        return np.asarray(values * scale)


def read_panel(path: str | PathLike[str], *, repeats: Repeats = "first") -> Panel:
    """Read readings of sensors: an npz file of them, or what an installed package knows.

    ``repeats`` says what to do about a cell that was read more than once. An npz file should have
    none, so there "first" raises like "error".
    """
    if repeats != "first":
        check_duplicates(repeats)
    path = Path(path)
    if path.suffix == ".npz":
        with named_errors(path):
            return _npz_panel(path, "error" if repeats == "first" else repeats)
    found = registry.recognised("sensors", path)
    if found is None:
        known = " or ".join(["an npz file of sensors", *registry.formats("sensors")])
        raise DataError(f"{path}: expected {known}.")
    panel: Panel = found(path, repeats=repeats)
    return panel


def is_panel(path: Path) -> bool:
    """Tell whether a text file or a folder holds readings that an installed package knows."""
    return registry.recognised("sensors", path) is not None


def named_panel(name: str, path: str | PathLike[str], *, exact: bool = True) -> Panel:
    """Make one of ``registry.tensors()``, which results are reported on, from a copy of its data.

    Every id of its shape is there, observed or not; rows are sorted by location, sensor and time.
    If ``exact``, a copy must have as many observed cells as the tensor is known to have.
    """
    known = registry.tensor(name)
    panel: Panel = registry.make_tensor(name, Path(path))
    if exact and len(panel.observations) != known.observed:
        raise DataError(
            f"{path}: {name} has {known.observed:,} observed cells, but this copy gives "
            f"{len(panel.observations):,}; get another one, or pass exact=False to take it as it "
            "is."
        )
    return panel


def _npz_panel(path: Path, duplicates: Duplicates) -> Panel:
    """Read an npz file of sensors."""
    seen = read_npz(path, duplicates=duplicates)
    if seen.names != ("location", "sensor", "time"):
        raise DataError(f"Expected sensors; got observations of {', '.join(seen.names)}.")
    with open_npz(path) as archive:
        steps = steps_of_time(archive)
        if steps is None:
            raise DataError(
                "How long is a step of time? The file needs an array time_origin such as "
                "'1993-01-01 (days)', or epoch0."
            )
        return Panel(seen, _places(archive), steps.seconds)


def _places(archive: Archive) -> Coordinates | None:
    key = next((key for key in ("coords_xy_m", "coords_latlon") if key in archive.files), None)
    label = next((label for label in ("mote_id", "site_code") if label in archive.files), None)
    if key is None or label is None:
        return None
    labels, places = archive.column(label), archive.array(key)
    if places.shape != (len(labels), 2) or places.dtype.kind not in "iuf":
        raise DataError(
            f"{key} needs two numbers for each of {len(labels)} {label}; got {places.dtype} of "
            f"shape {places.shape}."
        )
    rows = zip(labels.tolist(), places.tolist(), strict=True)
    known = {place: pair for place, pair in rows if np.isfinite(pair).all()}
    if key == "coords_latlon":
        return {place: from_degrees(*pair) for place, pair in known.items()}
    return {place: (x, y) for place, (x, y) in known.items()}


def from_degrees(latitude: float, longitude: float) -> tuple[float, float]:
    """Turn degrees into metres east and north of Charing Cross, right to a metre in ten kilometres.

    Examples
    --------
    >>> x, y = from_degrees(51.5226, -0.1546)  # Marylebone Road
    >>> round(x), round(y)
    (-1855, 1690)
    """
    if not (abs(latitude) <= 90 and abs(longitude) <= 360):
        raise DataError(f"A place has a latitude and a longitude; got {latitude}, {longitude}.")
    north, east = np.radians(np.subtract((latitude, longitude), _CHARING_CROSS))
    parallel = _EARTH * np.cos(np.radians(_CHARING_CROSS[0]))
    return float(parallel * east), float(_EARTH * north)
