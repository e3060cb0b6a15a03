"""Readings of sensors as arrays of an npz file.

They are ``loc``, ``sensor``, ``time`` and ``value``. If they are there, ``mote_id`` or
``site_code`` give the locations and ``sensor_name`` the sensors at those positions. ``epoch0`` is
added to the time; so are the days or hours from 1970 to ``time_origin``, if it is such as
``1993-01-01 (days)``.
"""

from __future__ import annotations

import re
import zipfile
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.data.binary import Archive, Layout, Mode, check_integers, open_npz
from noisewise.data.observations import Duplicates, Observations, check_repeats
from noisewise.data.panel import Coordinates, Panel, Repeats
from noisewise.data.reader import named_errors
from noisewise.data.timestamps import to_seconds
from noisewise.errors import DataError
from noisewise_reproduction.datasets.intel import SECONDS
from noisewise_reproduction.datasets.readings import from_degrees

_FARTHEST = 2**53  # steps of time
_UNITS = {"days": 86_400, "hours": 3_600}
_ORIGIN = re.compile(r"(\d{4}-\d{2}-\d{2}) \((days|hours)\)")


class _Steps(NamedTuple):
    """The id of the first step of time, and how many seconds a step has."""

    first: int
    seconds: float


def recognise(path: Path) -> bool:
    """Tell whether a file is such an archive."""
    if not (path.is_file() and zipfile.is_zipfile(path)):
        return False
    try:
        with open_npz(path) as archive:
            return _layout(None).fits(archive)
    except DataError:
        return False  # whoever reads it for good will say what is wrong


def read_observations(
    path: Path, *, time: str | int | None = None, duplicates: Duplicates = "error"
) -> Observations:
    """Read the readings alone; an archive need not say how long a step of time is."""
    with named_errors(path), open_npz(path) as archive:
        return _layout(_steps(archive)).read(archive, time, duplicates)


def read(path: str | PathLike[str], *, repeats: Repeats = "first") -> Panel:
    """Read an archive. It should have no cell twice, so that "first" raises like "error"."""
    path = Path(path)
    duplicates: Duplicates = "error" if repeats == "first" else repeats
    check_repeats(duplicates)
    with named_errors(path), open_npz(path) as archive:
        steps = _steps(archive)
        seen = _layout(steps).read(archive, None, duplicates)
        if steps is None:
            raise DataError(
                "How long is a step of time? The file needs an array time_origin such as "
                "'1993-01-01 (days)', or epoch0."
            )
        return Panel(seen, _places(archive), steps.seconds)


def _layout(steps: _Steps | None) -> Layout:
    modes = (
        Mode("location", "loc", ("mote_id", "site_code")),
        Mode("sensor", "sensor", ("sensor_name",)),
        Mode("time", "time", convert=None if steps is None else partial(_later, steps.first)),
    )
    return Layout(modes, value="value")


def _later(first: int, steps: NDArray[Any]) -> NDArray[np.int64]:
    """Count steps of time from another one; both are small enough to be exact as floats."""
    check_integers(steps, "time")
    far = (steps > _FARTHEST) | (steps < -_FARTHEST)
    if far.any() or abs(first) > _FARTHEST:
        found = steps[far][0] if far.any() else first
        raise DataError(f"time has step {found}, which is more than 2**53 from the first one.")
    return steps.astype(np.int64) + first


def _steps(archive: Archive) -> _Steps | None:
    """Return what time counts; None if the archive does not say."""
    if "epoch0" in archive.files:
        return _Steps(int(archive.single("epoch0", "iu")), SECONDS)
    if "time_origin" not in archive.files:
        return None
    found = _ORIGIN.fullmatch(str(archive.single("time_origin", "U")))
    if found is None:
        return None
    seconds = _UNITS[found[2]]
    try:
        origin = int(to_seconds(found[1]))
    except ValueError as error:
        raise DataError(f"time_origin has no such day: {error}.") from None
    return _Steps(origin // seconds, float(seconds))


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
