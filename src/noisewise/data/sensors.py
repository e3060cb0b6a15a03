"""Tensors of sensors: location x sensor x time, from the files their owners publish.

``read`` takes any of the formats; ``named`` makes from the user's own copy a tensor that results
are reported on:

=====================  ====================  ==========  ========================================
name                   shape                 observed    what
=====================  ====================  ==========  ========================================
``london-paper-size``  15 x 19 x 7,479 days  476,614     15 sites of the London Air Quality
                                                         Network, 2002-07-11 to 2022-12-31
``intel-2epoch``       52 x 4 x 7,200 bins   1,236,999   Intel Berkeley lab, 2004-03-04 to 08; the
                                                         first reading in every two epochs
=====================  ====================  ==========  ========================================

The London one has the size and the density of the tensor in the paper, which names neither sites
nor days.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.data import intel, laqn
from noisewise.data.archive import Archive, open_npz
from noisewise.data.ids import Ids
from noisewise.data.npz import read_npz, steps_of_time
from noisewise.data.observations import Observations
from noisewise.data.reader import named_errors
from noisewise.data.sensor_data import (
    LOCATION,
    TIME,
    Coordinates,
    Repeats,
    SensorData,
    check_repeats,
    from_degrees,
)
from noisewise.errors import DataError

__all__ = ["SensorData", "is_sensors", "named", "read"]

_SITES = [
    "BX1", "BX2", "CE2", "GN6", "GR4", "GR7", "HK6", "HP1", "KT4", "MY1", "RB7", "RG1", "SK6",
    "TH2", "ZR2",
]  # fmt: skip
_SPECIES = [
    "BENZ", "BP", "CO", "FINE", "NO", "NO2", "NOX", "O3", "PM1", "PM10", "PM2.5", "RAIN", "RHUM",
    "SO2", "SOLR", "TMP", "TSP", "WDIR", "WSPD",
]  # fmt: skip
_LAST_DAY, _N_DAYS = int(np.datetime64("2022-12-31", "D").astype(np.int64)), 7_479
_FIRST_EPOCH, _N_EPOCHS = 14_284, 14_400  # 2004-03-04 00:00, and five days
_DATES = "2004-03-03", "2004-03-09"  # a day more at both ends: clocks and epochs differ a little
_SILENT = (5, 15)  # motes without a reading in these days


def read(path: str | PathLike[str], *, repeats: Repeats = "first") -> SensorData:
    """Read readings of sensors.

    Parameters
    ----------
    path : str or path
        ``data.txt`` of the Intel lab or its folder, a CSV of the London network or a folder of
        them, or an npz file of sensors as `noisewise.data.npz` describes it.
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
    if intel.find(path) is not None:
        return intel.read(path, repeats=repeats)
    if laqn.find(path):
        return laqn.read(path, repeats=repeats)
    raise DataError(
        f"{path}: expected data.txt of the Intel lab, CSV files of the London Air Quality Network, "
        "a folder with either, or an npz file of sensors."
    )


def is_sensors(path: Path) -> bool:
    """Tell whether a text file or a folder holds readings that ``read`` knows."""
    return intel.find(path) is not None or bool(laqn.find(path))


def named(name: str, path: str | PathLike[str], *, exact: bool = True) -> SensorData:
    """Make one of the tensors above from a copy of its data.

    Parameters
    ----------
    name : {"london-paper-size", "intel-2epoch"}
        Which tensor.
    path : str or path
        The data, as for ``read``.
    exact : bool
        Raise unless as many cells are observed as in the table above. Set it to False for a copy
        that its owners have since corrected.

    Returns
    -------
    SensorData
        Every id of the shape is there, observed or not; rows are sorted by location, sensor, time.
    """
    if name not in NAMED:
        raise DataError(f"name must be one of {', '.join(NAMED)}; got {name!r}.")
    kind = NAMED[name]
    data = kind.make(Path(path))
    if exact and len(data.observations) != kind.observed:
        raise DataError(
            f"{path}: {name} has {kind.observed:,} observed cells, but this copy gives "
            f"{len(data.observations):,}; get another one, or pass exact=False to take it as it is."
        )
    return data


def _london(path: Path) -> SensorData:
    data = read(path)
    if data.seconds != laqn.DAY:
        raise DataError(f"{path}: expected daily values; got one every {data.seconds:g} s.")
    days = np.arange(_LAST_DAY - _N_DAYS + 1, _LAST_DAY + 1)
    ids = (_ids(_SITES, "location"), _ids(_SPECIES, "sensor"), Ids(days, "time"))
    seen = data.observations
    time = seen.ids[TIME].labels[seen.codes[TIME]]
    return _within(path, data, _cut(seen, ids, time), data.seconds)


def _intel(path: Path) -> SensorData:
    file = intel.find(path)
    data = read(path) if file is None else intel.read(file, days=_DATES)
    if data.seconds != intel.SECONDS:
        raise DataError(f"{path}: expected epochs of the lab; got steps of {data.seconds:g} s.")
    motes = np.setdiff1d(np.arange(1, intel.N_MOTES + 1), _SILENT)
    bins = np.arange(_FIRST_EPOCH // 2, (_FIRST_EPOCH + _N_EPOCHS) // 2)
    ids = (Ids(motes, "location"), _ids(intel.SENSORS, "sensor"), Ids(bins, "time"))
    seen = data.observations
    epochs = seen.ids[TIME].labels[seen.codes[TIME]]
    in_time = np.argsort(epochs, kind="stable")
    cut = _cut(seen.take(in_time), ids, epochs[in_time] // 2)
    return _within(path, data, cut, 2 * data.seconds)


class _Named(NamedTuple):
    make: Callable[[Path], SensorData]
    observed: int


NAMED = {
    "london-paper-size": _Named(_london, 476_614),
    "intel-2epoch": _Named(_intel, 1_236_999),
}


def _ids(labels: Sequence[str], name: str) -> Ids:
    return Ids.encode(list(labels), name)[0]


def _cut(seen: Observations, ids: tuple[Ids, ...], time: NDArray[np.int64]) -> Observations:
    """Keep what has one of these ids in every mode, and of each cell the first; sort by cell."""
    modes = zip(ids[:TIME], seen.ids[:TIME], seen.codes[:TIME], strict=True)
    codes = [new.lookup(old.labels)[at] for new, old, at in modes] + [ids[TIME].lookup(time)]
    known = np.flatnonzero(np.all([column >= 0 for column in codes], axis=0))
    cell = np.ravel_multi_index([column[known] for column in codes], [len(mode) for mode in ids])
    first = known[np.unique(cell, return_index=True)[1]]
    return Observations(tuple(column[first] for column in codes), seen.values[first], ids)


def _within(path: Path, data: SensorData, seen: Observations, seconds: float) -> SensorData:
    if not len(seen):
        raise DataError(f"{path}: none of its readings is of the locations and days of this name.")
    places = data.coordinates
    if places is not None:
        kept = set(seen.ids[LOCATION].labels.tolist())
        places = {place: xy for place, xy in places.items() if place in kept}
    return SensorData(seen, places, seconds, data.report)


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
