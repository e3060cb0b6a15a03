"""The data: copies in one folder, under the names that their owners gave them, or as npz."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from noisewise.data import Ids, Observations, files
from noisewise.data.panel import TIME, Panel, named_panel
from noisewise.errors import DataError

Kind = Literal["ratings", "sensors"]
FILES: dict[str, tuple[Kind, tuple[str, ...]]] = {
    "ml1m": ("ratings", ("ml1m.npz", "ml-1m")),
    "ml10m": ("ratings", ("ml10m.npz", "ml-10M100K")),
    "netflix": ("ratings", ("netflix.npz",)),
    "london-paper-size": ("sensors", ("london_laqn_daily.npz", "london", "laqn")),
    "intel-2epoch": ("sensors", ("intel_lab_5days.npz", "intel", "data.txt")),
}


@dataclass(frozen=True)
class Source:
    """A dataset, and where it is.

    Attributes
    ----------
    name : str
        One of ``FILES``.
    path : Path
        A file or a folder.
    times : int or None
        For sensors: only so many times, those that follow each other with the most readings.
    """

    name: str
    path: Path
    times: int | None = None

    @property
    def kind(self) -> Kind:
        """Ratings or sensors."""
        return FILES[self.name][0]

    def load(self) -> Any:
        """Return Observations with their time, or Panel; read once in every process."""
        return _loaded(self)

    def ratings(self) -> Observations:
        """Return the ratings with their time."""
        seen: Observations = self.load()
        return seen

    def sensors(self) -> Panel:
        """Return the readings."""
        data: Panel = self.load()
        return data

    @property
    def observations(self) -> Observations:
        """Observations of either kind."""
        return self.ratings() if self.kind == "ratings" else self.sensors().observations


def find(folder: str | Path, times: int | None = None) -> dict[str, Source]:
    """Return the datasets that a folder holds, by name.

    Parameters
    ----------
    folder : path
        Where the copies are.
    times : int, optional
        Cut tensors of sensors to so many times.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"Expected a folder with copies of the data; got {folder}.")
    found = {}
    for name, (kind, names) in FILES.items():
        here = [folder / file for file in names if (folder / file).exists()]
        if here:
            found[name] = Source(name, here[0], times if kind == "sensors" else None)
    return found


def busiest(data: Panel, times: int) -> Panel:
    """Cut a tensor to the stretch of so many times that has the most readings."""
    seen = data.observations
    code, labels = seen.codes[TIME], seen.ids[TIME].labels
    if times >= len(labels):
        return data
    total = np.concatenate([[0], np.cumsum(np.bincount(code, minlength=len(labels)))])
    start = int(np.argmax(total[times:] - total[:-times]))
    part = seen.take((code >= start) & (code < start + times))
    ids = (*seen.ids[:TIME], Ids(labels[start : start + times], seen.ids[TIME].name))
    codes = (*part.codes[:TIME], (part.codes[TIME] - start).astype(np.int32))
    return Panel(Observations(codes, part.values, ids), data.coordinates, data.seconds, data.report)


@lru_cache(maxsize=len(FILES))
def _loaded(source: Source) -> Observations | Panel:
    if source.kind == "ratings":
        return files.read(source.path, time="timestamp")
    data = named_panel(source.name, source.path)
    return data if source.times is None else busiest(data, source.times)
