"""Tensors of sensors: location x sensor x time, from npz files and as installed packages read them.

``read`` takes any of the formats; ``named`` makes a tensor that a package has results on from the
user's own copy of its data.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from noisewise import registry
from noisewise.data.npz import Archive, open_npz, read_npz, steps_of_time
from noisewise.data.reader import named_errors
from noisewise.data.sensor_data import (
    Coordinates,
    Repeats,
    SensorData,
    check_repeats,
    from_degrees,
)
from noisewise.errors import DataError

__all__ = ["SensorData", "is_sensors", "named", "read"]


def read(path: str | PathLike[str], *, repeats: Repeats = "first") -> SensorData:
    """Read readings of sensors.

    Parameters
    ----------
    path : str or path
        An npz file of sensors as `noisewise.data.npz` describes it, or a file or folder that an
        installed package knows.
    repeats : {"first", "error", "last", "mean"}
        What to do about a cell that was read more than once. An npz file should have none, so there
        "first" raises like "error".

    Returns
    -------
    SensorData
        Observations, coordinates of locations, the length of a step of time, and what was left
        out.
    """
    check_repeats(repeats)
    path = Path(path)
    if path.suffix == ".npz":
        with named_errors(path):
            return _read_npz(path, repeats)
    found = registry.recognised("sensors", path)
    if found is None:
        known = " or ".join(["an npz file of sensors", *registry.formats("sensors")])
        raise DataError(f"{path}: expected {known}.")
    data: SensorData = found(path, repeats=repeats)
    return data


def is_sensors(path: Path) -> bool:
    """Tell whether a text file or a folder holds readings that ``read`` knows."""
    return registry.recognised("sensors", path) is not None


def named(name: str, path: str | PathLike[str], *, exact: bool = True) -> SensorData:
    """Make a tensor that results are reported on from a copy of its data.

    Parameters
    ----------
    name : str
        One of ``registry.tensors()``.
    path : str or path
        The data, as for ``read``.
    exact : bool
        Raise unless as many cells are observed as the tensor is known to have. Set it to False for
        a copy that its owners have since corrected.

    Returns
    -------
    SensorData
        Every id of the shape is there, observed or not; rows are sorted by location, sensor, time.
    """
    known = registry.tensor(name)
    data: SensorData = registry.make_tensor(name, Path(path))
    if exact and len(data.observations) != known.observed:
        raise DataError(
            f"{path}: {name} has {known.observed:,} observed cells, but this copy gives "
            f"{len(data.observations):,}; get another one, or pass exact=False to take it as it is."
        )
    return data


def _read_npz(path: Path, repeats: Repeats) -> SensorData:
    # An archive in index form has each cell once, unless somebody made it wrong.
    seen = read_npz(path, duplicates="error" if repeats == "first" else repeats)
    if seen.names != ("location", "sensor", "time"):
        raise DataError(f"Expected sensors; got observations of {', '.join(seen.names)}.")
    with open_npz(path) as archive:
        steps = steps_of_time(archive)
        if steps is None:
            raise DataError(
                "How long is a step of time? The file needs an array time_origin such as "
                "'1993-01-01 (days)', or epoch0."
            )
        return SensorData(seen, _places(archive), steps.seconds)


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
