"""Observations from npz files: arrays of positions, and beside them the ids these stand for.

Ratings
    ``user``, ``item`` and ``rating``. If they are there, ``user_id`` and ``item_id`` give the ids
    at those positions, and ``rating`` times ``rating_scale`` is the value.
Sensors
    ``loc``, ``sensor``, ``time`` and ``value``. If they are there, ``mote_id`` or ``site_code``
    give the locations and ``sensor_name`` the sensors. ``epoch0`` is added to the time; so are the
    days or hours from 1970 to ``time_origin``, if it is such as ``1993-01-01 (days)``.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from noisewise.errors import DataError
from noisewise.observations import Codes, Duplicates, Ids, Observations, assemble
from noisewise.observations.columns import choose_columns
from noisewise.observations.tables import check_seconds, check_values


class _Mode(NamedTuple):
    name: str
    positions: str
    ids: tuple[str, ...] = ()
    counts_steps: bool = False


class _Layout(NamedTuple):
    modes: tuple[_Mode, ...]
    value: str
    scale: str | None = None

    def fits(self, archive: NpzFile) -> bool:
        return {self.value, *(mode.positions for mode in self.modes)} <= set(archive.files)


_RATINGS = _Layout(
    (_Mode("user", "user", ("user_id",)), _Mode("item", "item", ("item_id",))),
    value="rating",
    scale="rating_scale",
)
_SENSORS = _Layout(
    (
        _Mode("location", "loc", ("mote_id", "site_code")),
        _Mode("sensor", "sensor", ("sensor_name",)),
        _Mode("time", "time", counts_steps=True),
    ),
    value="value",
)
_EPOCH_SECONDS = 30.0  # of the Intel lab
_UNITS = {"days": 86_400, "hours": 3_600}
_ORIGIN = re.compile(r"(\d{4}-\d{2}-\d{2}) \((days|hours)\)")


class Steps(NamedTuple):
    """The id of the first step of time, and how many seconds a step has."""

    first: int
    seconds: float


def steps_of_time(archive: NpzFile) -> Steps | None:
    """Return what time counts in an archive of sensors; None if it does not say."""
    if "epoch0" in archive.files:
        return Steps(int(_array(archive, "epoch0")), _EPOCH_SECONDS)
    if "time_origin" in archive.files:
        found = _ORIGIN.fullmatch(str(_array(archive, "time_origin")))
        if found:
            seconds = _UNITS[found[2]]
            days = int(np.datetime64(found[1], "D").astype(np.int64))
            return Steps(days * _UNITS["days"] // seconds, float(seconds))
    return None


@contextmanager
def open_npz(path: Path) -> Iterator[NpzFile]:
    """Open an archive; nothing in it can run."""
    with path.open("rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
        except (zipfile.BadZipFile, OSError) as error:
            raise DataError(f"The npz file is damaged; get a new copy. {error}") from error
        yield archive


def read_npz(
    path: Path,
    *,
    ids: Sequence[str | int] | None = None,
    value: str | int | None = None,
    time: str | int | None = None,
    duplicates: Duplicates = "error",
) -> Observations:
    """Read an npz file of one of the two layouts above, or any arrays that are named.

    Parameters
    ----------
    path : Path
        The file.
    ids, value, time : optional
        Names of arrays. Without `ids` and `value` the file must have one of the two layouts.
    duplicates : {"error", "last", "mean"}
        As for `noisewise.observations.observe`.

    Returns
    -------
    Observations
        In the order of the arrays.
    """
    with open_npz(path) as archive:
        layout = _layout_of(archive, ids, value)
        return _from_archive(archive, layout, time, duplicates)


def _layout_of(
    archive: NpzFile, ids: Sequence[str | int] | None, value: str | int | None
) -> _Layout:
    if ids is not None and value is not None:
        choice = choose_columns(archive.files, ids=ids, value=value)
        modes = tuple(_Mode(archive.files[k], archive.files[k]) for k in choice.ids)
        return _Layout(modes, archive.files[choice.value])
    for known in (_RATINGS, _SENSORS):
        if ids is None and value is None and known.fits(archive):
            return known
    raise DataError(
        f"Found the arrays {', '.join(archive.files)}, which are neither ratings (user, item, "
        "rating) nor sensors (loc, sensor, time, value); name both ids= and value=."
    )


def _from_archive(
    archive: NpzFile, layout: _Layout, time: str | int | None, duplicates: Duplicates
) -> Observations:
    coded = {mode.positions: _coded(archive, mode) for mode in layout.modes}
    values = _column(archive, layout.value)
    if layout.scale in archive.files:
        values = values * _array(archive, layout.scale)
    lengths = {name: len(codes) for name, (_, codes) in coded.items()} | {layout.value: len(values)}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(f"The arrays need one common length; got {found}.")
    return assemble(
        [codes for _, codes in coded.values()],
        check_values(values, layout.value),
        [ids for ids, _ in coded.values()],
        None if time is None else check_seconds(_column(archive, time), len(values)),
        duplicates=duplicates,
    )


def _coded(archive: NpzFile, mode: _Mode) -> tuple[Ids, Codes]:
    """Give each id that occurs in a mode its row number."""
    positions = _column(archive, mode.positions)
    key = next((key for key in mode.ids if key in archive.files), None)
    if key is None:
        steps = steps_of_time(archive) if mode.counts_steps else None
        if steps is not None:
            positions = positions.astype(np.int64) + steps.first
        return Ids.encode(positions, mode.name)
    labels = _column(archive, key)
    outside = positions[(positions < 0) | (positions >= len(labels))]
    if len(outside):
        raise DataError(f"{mode.positions} has position {outside[0]}; {key} has {len(labels)} ids.")
    present = np.unique(positions)
    ids, numbers = Ids.encode(labels[present], mode.name)
    number_at = np.zeros(len(labels), dtype=np.int32)
    number_at[present] = numbers
    return ids, number_at[positions]


def _column(archive: NpzFile, key: str | int) -> NDArray[Any]:
    array = _array(archive, key)
    if array.ndim != 1:
        raise DataError(f"Array {key!r} must have one dimension; got shape {array.shape}.")
    return array


def _array(archive: NpzFile, key: str | int | None) -> NDArray[Any]:
    if key not in archive.files:
        raise DataError(f"There is no array {key!r}; the arrays are {', '.join(archive.files)}.")
    try:
        return np.asarray(archive[key])
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        raise DataError(f"Array {key!r} cannot be read; get a new copy. {error}") from error
