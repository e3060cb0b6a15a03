"""Readings of the London Air Quality Network: one CSV per site, as its download page gives them.

A file begins with ``Site,Species,ReadingDateTime,Value,Units,Provisional or Ratified`` and goes on
with lines like ``MY1,NO2,11/07/2002 00:00,96.1,ug m-3,R``. A reading that was not taken has no
value. Values stay as they are, faulty ones and mixed units too: the network changed the unit of
PM10 twice.

Ids of time are days since 1970, or hours since 1970 where a reading is not of midnight:
``np.datetime64(id, "D")`` or ``np.datetime64(id, "h")`` is the date.

The CSV do not say where a site is. Coordinates come from a CSV beside them with the columns
SiteCode, Latitude and Longitude, as in the network's list of monitoring sites.
"""

from __future__ import annotations

import csv
from array import array
from datetime import UTC, datetime
from functools import lru_cache
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noisewise.data.ids import Codes, Ids
from noisewise.data.panel import Coordinates, Panel, Repeats
from noisewise.data.reader import csv_rows, named_errors, text_lines, to_float
from noisewise.errors import DataError, shortened
from noisewise_reproduction.datasets.readings import finite_pair, first_line, from_degrees, gather

DAY, HOUR = 86_400.0, 3_600.0

_COLUMNS = ["site", "species", "readingdatetime", "value", "units", "provisional or ratified"]
_PLACES = ("sitecode", "latitude", "longitude")
_LARGEST = float(np.finfo(np.float32).max)


def find(path: Path) -> list[Path]:
    """Return the files of readings: this one, or those in this folder."""
    return [file for file in _tables(path) if _names(file) == _COLUMNS]


def recognise(path: Path) -> bool:
    """Tell whether a file or a folder holds such readings."""
    return bool(find(path))


def read(path: str | PathLike[str], *, repeats: Repeats = "first") -> Panel:
    r"""Read the readings of sites.

    Parameters
    ----------
    path : str or path
        The CSV of a site, maybe with ``.gz``, or a folder of them.
    repeats : {"first", "error", "last", "mean"}
        What to do about readings of one species at one site and time.

    Returns
    -------
    Panel
        Sites and species are numbered in alphabetical order. The report counts lines,
        broken_lines, missing_readings and repeated_readings.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "MY1.csv").write_text(
    ...         "Site,Species,ReadingDateTime,Value,Units,Provisional or Ratified\n"
    ...         "MY1,NO2,11/07/2002 00:00,96.1,ug m-3,R\n"
    ...         "MY1,NO2,12/07/2002 00:00,,ug m-3,R\n"
    ...         "MY1,CO,12/07/2002 00:00,1.4,mg m-3,R\n"
    ...     )
    ...     london = read(folder)
    >>> london.observations.decode()
    [('MY1', 'NO2', 11879), ('MY1', 'CO', 11880)]
    >>> print(np.datetime64(11879, "D"))
    2002-07-11
    """
    path = Path(path)
    files = find(path)
    if not files:
        raise DataError(
            f"{path}: expected CSV files that begin with "
            "'Site,Species,ReadingDateTime,Value,Units,Provisional or Ratified'; found none."
        )
    readings = _Readings()
    for file in files:
        with named_errors(file):
            readings.append(file)
    with named_errors(path):
        return readings.gather(_coordinates(path), repeats)


class _Readings:
    """The columns of all files, growing line by line."""

    def __init__(self) -> None:
        self.sites: dict[str, int] = {}
        self.species: dict[str, int] = {}
        self.site, self.kind = array("l"), array("l")
        self.hour, self.value = array("q"), array("d")
        self.lines = self.broken = self.missing = 0

    def append(self, file: Path) -> None:
        """Add the readings of a file."""
        rows = csv_rows(text_lines(file), strict=False)
        next(rows)
        for _, row in rows:
            if not row:
                continue
            self.lines += 1
            try:
                site, species, moment, text, _, _ = map(str.strip, row)
                hour = _hour(moment)
                value = to_float(text) if text else float("nan")
            except ValueError:
                self.broken += 1
                continue
            if not site or not species or abs(value) > _LARGEST:
                self.broken += 1
            elif np.isnan(value):
                self.missing += 1
            else:
                self.site.append(self.sites.setdefault(site, len(self.sites)))
                self.kind.append(self.species.setdefault(species, len(self.species)))
                self.hour.append(hour)
                self.value.append(value)

    def gather(self, coordinates: Coordinates | None, repeats: Repeats) -> Panel:
        """Put the readings together."""
        time, seconds = np.array(self.hour, dtype=np.int64), HOUR
        if not np.any(time % 24):
            time, seconds = time // 24, DAY
        seen, repeated = gather(
            _sorted(self.sites, self.site, "location"),
            _sorted(self.species, self.kind, "sensor"),
            time,
            np.array(self.value, dtype=np.float64),
            repeats,
        )
        report = {
            "lines": self.lines,
            "broken_lines": self.broken,
            "missing_readings": self.missing,
            "repeated_readings": repeated,
        }
        return Panel(seen, coordinates, seconds, report)


def _sorted(numbers: dict[str, int], column: array[int], name: str) -> tuple[Ids, Codes]:
    """Return labels numbered in alphabetical order, whatever the order of files and lines."""
    labels = sorted(numbers)
    rank: NDArray[np.int32] = np.empty(len(labels), dtype=np.int32)
    rank[[numbers[label] for label in labels]] = np.arange(len(labels))
    return Ids.encode(labels, name)[0], rank[np.array(column, dtype=np.intp)]


@lru_cache(maxsize=65_536)
def _hour(text: str) -> int:
    """Return hours since 1970 of a date with the day first, or of an ISO date."""
    if text[2:3] == "/":
        moment = datetime.strptime(text, "%d/%m/%Y %H:%M")
    else:
        moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    hour, rest = divmod(int(moment.timestamp()), 3600)
    if rest:
        raise ValueError(f"{text} is not a full hour")
    return hour


def _tables(path: Path) -> list[Path]:
    return sorted([*path.glob("*.csv"), *path.glob("*.csv.gz")]) if path.is_dir() else [path]


def _names(file: Path) -> list[str]:
    row = next(csv.reader([first_line(file)]), [])
    return [name.strip().removeprefix("@").lower() for name in row]


def _coordinates(path: Path) -> Coordinates | None:
    folder = path if path.is_dir() else path.parent
    lists = [file for file in _tables(folder) if set(_names(file)) >= set(_PLACES)]
    found: Coordinates = {}
    for file in lists:
        names = _names(file)
        rows = csv_rows(text_lines(file), strict=False)
        next(rows)
        for _, row in rows:
            entry = dict(zip(names, row, strict=False))
            site, *place = (entry.get(name, "").strip() for name in _PLACES)
            if not all(place):
                continue
            try:
                found[site] = from_degrees(*finite_pair(*place))
            except ValueError:
                raise DataError(
                    f"{file.name}: expected degrees for {shortened(site)}; got "
                    f"{' and '.join(repr(text[:60]) for text in place)}."
                ) from None
    return found or None
