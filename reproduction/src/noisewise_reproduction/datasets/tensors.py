"""Tensors of sensors that results are reported on, made from the user's own copy of the data.

=====================  ====================  ==========  ========================================
name                   shape                 observed    what
=====================  ====================  ==========  ========================================
``london-paper-size``  15 x 19 x 7,479 days  476,614     15 sites of the London Air Quality
                                                         Network, 2002-07-11 to 2022-12-31
``intel-2epoch``       52 x 4 x 7,200 bins   1,236,999   Intel Berkeley lab, 2004-03-04 to 08; the
                                                         first reading in every two epochs
=====================  ====================  ==========  ========================================

The London one has the size and the density of the tensor in the paper, which names neither sites
nor days. ``noisewise.data.named_panel`` makes either by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noisewise.data.ids import Ids
from noisewise.data.observations import Observations
from noisewise.data.panel import LOCATION, TIME, Panel, read_panel
from noisewise.errors import DataError
from noisewise_reproduction.datasets import intel, laqn

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


def london(path: Path) -> Panel:
    """Make ``london-paper-size``."""
    data = read_panel(path)
    if data.seconds != laqn.DAY:
        raise DataError(f"{path}: expected daily values; got one every {data.seconds:g} s.")
    days = np.arange(_LAST_DAY - _N_DAYS + 1, _LAST_DAY + 1)
    ids = (_ids(_SITES, "location"), _ids(_SPECIES, "sensor"), Ids(days, "time"))
    seen = data.observations
    time = seen.ids[TIME].labels[seen.codes[TIME]]
    return _within(path, data, _cut(seen, ids, time), data.seconds)


def intel_lab(path: Path) -> Panel:
    """Make ``intel-2epoch``."""
    file = intel.find(path)
    data = read_panel(path) if file is None else intel.read(file, days=_DATES)
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


def _within(path: Path, data: Panel, seen: Observations, seconds: float) -> Panel:
    if not len(seen):
        raise DataError(f"{path}: none of its readings is of the locations and days of this name.")
    places = data.coordinates
    if places is not None:
        kept = set(seen.ids[LOCATION].labels.tolist())
        places = {place: xy for place, xy in places.items() if place in kept}
    return Panel(seen, places, seconds, data.report)
