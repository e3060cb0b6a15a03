"""Readings of the Intel Berkeley Research Lab, as ``data.txt`` and ``mote_locs.txt`` have them.

=================  =====================================================================
file               a line
=================  =====================================================================
``data.txt``       date time epoch moteid temperature humidity light voltage
``mote_locs.txt``  moteid x y, in metres
=================  =====================================================================

Fields stand one blank apart, so that a reading which is missing leaves two blanks. Other lines are
cut short, and some motes have numbers that no mote has: both are left out and counted.

Ids of time are the epochs of the file, which all motes share. An epoch is 30 s by the dates in the
file (five days have 14,400 of them), though the page of the lab says 31. Counters of some motes
start again after weeks; `days` keeps to a part of the file where they do not.
"""

from __future__ import annotations

import re
from array import array
from os import PathLike
from pathlib import Path

import numpy as np

from noisewise.data.ids import Ids
from noisewise.data.panel import Coordinates, Panel, Repeats
from noisewise.data.reader import named_errors, text_lines, to_float
from noisewise.errors import DataError
from noisewise_reproduction.datasets.readings import finite_pair, first_line, gather, to_int

SENSORS = ("temperature", "humidity", "light", "voltage")
SECONDS = 30.0
N_MOTES = 54

_FILES = ("data.txt", "data.txt.gz")
_WIDTH = 4 + len(SENSORS)
_START = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? \d+( |$)")
_LARGEST = float(np.finfo(np.float32).max)


def find(path: Path) -> Path | None:
    """Return the file of readings: this one, or the one in this folder; None if it is neither."""
    files = [path / name for name in _FILES] if path.is_dir() else [path]
    return next((f for f in files if f.is_file() and _START.match(first_line(f))), None)


def recognise(path: Path) -> bool:
    """Tell whether a file or a folder holds such readings."""
    return find(path) is not None


def read(
    path: str | PathLike[str],
    *,
    days: tuple[str, str] | None = None,
    repeats: Repeats = "first",
) -> Panel:
    r"""Read the readings of the lab.

    Parameters
    ----------
    path : str or path
        ``data.txt``, maybe with ``.gz``, or the folder that holds it. Coordinates are those of a
        ``mote_locs.txt`` beside it.
    days : pair of str, optional
        The first and the last day to read, such as ``("2004-03-04", "2004-03-08")``.
    repeats : {"first", "error", "last", "mean"}
        What to do about readings of one mote in one epoch.

    Returns
    -------
    Panel
        Its report counts lines, broken_lines, unknown_motes, missing_readings and
        repeated_readings.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "data.txt").write_text(
    ...         "2004-02-28 00:59:16.02785 3 1 19.9884 37.0933 45.08 2.69964\n"
    ...         "2004-02-28 01:03:16.33393 11 1 19.3024 38.4629  2.68742\n"
    ...         "2004-02-28 01:06:16.013453 17\n"
    ...     )
    ...     lab = read(folder)
    >>> lab.observations
    Observations(7 of 1 location x 4 sensor x 2 time)
    >>> lab.report["broken_lines"], lab.report["missing_readings"]
    (1, 1)
    """
    path = Path(path)
    file = find(path)
    if file is None:
        raise DataError(
            f"{path}: expected a data.txt with lines like '2004-02-28 00:59:16.02785 3 1 19.9884 "
            "37.0933 45.08 2.69964'; give that file or its folder."
        )
    with named_errors(file):
        return _read(file, days, repeats)


def _read(file: Path, days: tuple[str, str] | None, repeats: Repeats) -> Panel:
    motes, epochs, numbers = array("q"), array("q"), array("d")
    lines = broken = unknown = 0
    for line in text_lines(file):
        if days is not None and not days[0] <= line[:10] <= days[1]:
            continue
        lines += 1
        fields = line.rstrip("\r\n").split(" ")
        if len(fields) != _WIDTH:
            fields = line.split()  # other blanks between them, but none missing
        try:
            epoch, mote = to_int(fields[2]), to_int(fields[3])
            readings = [_reading(text) for text in fields[4:]]
        except (ValueError, IndexError):
            broken += 1
            continue
        if len(fields) != _WIDTH:
            broken += 1
        elif not 1 <= mote <= N_MOTES:
            unknown += 1
        else:
            motes.append(mote)
            epochs.append(epoch)
            numbers.extend(readings)
    table = np.array(numbers, dtype=np.float64).reshape(-1, len(SENSORS))
    row, sensor = np.nonzero(~np.isnan(table))
    seen, repeated = gather(
        Ids.encode(np.array(motes, dtype=np.int64)[row], "location"),
        (Ids.encode(list(SENSORS), "sensor")[0], sensor.astype(np.int32)),
        np.array(epochs, dtype=np.int64)[row],
        table[row, sensor],
        repeats,
    )
    report = {
        "lines": lines,
        "broken_lines": broken,
        "unknown_motes": unknown,
        "missing_readings": table.size - len(row),
        "repeated_readings": repeated,
    }
    return Panel(seen, _coordinates(file.parent / "mote_locs.txt"), SECONDS, report)


def _reading(text: str) -> float:
    """Return a number, NaN where there is none; raise for what is not a reading."""
    number = to_float(text) if text else float("nan")
    if abs(number) > _LARGEST:
        raise ValueError(f"{text} is beyond what float32 can hold")
    return number


def _coordinates(file: Path) -> Coordinates | None:
    if not file.is_file():
        return None
    found: Coordinates = {}
    for number, line in enumerate(text_lines(file), 1):
        fields = line.split()
        if not fields:
            continue
        try:
            mote, x, y = fields
            found[to_int(mote)] = finite_pair(x, y)
        except ValueError:
            raise DataError(
                f"{file.name}, line {number}: expected moteid x y, such as '1 21.5 23'; got "
                f"{line.strip()[:60]!r}."
            ) from None
    return found
