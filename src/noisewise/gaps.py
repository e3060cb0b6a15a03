"""What is missing in a table of sensors: how much, the longest gaps, and when all was silent.

Tables of a report are dicts of columns, which ``pandas.DataFrame`` and ``polars.DataFrame`` take as
they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisewise.data import Observations
from noisewise.data.labelled import labelled
from noisewise.data.observations import Duplicates
from noisewise.data.tables_with_holes import LabelledArray, Roles
from noisewise.data.timestamps import Clock, Floats, Ints, are_dates
from noisewise.errors import brief

Table: TypeAlias = dict[str, NDArray[Any]]

SLACK = 1.5  # steps from one time to the next; where there are more, rows are lacking


@dataclass(frozen=True, eq=False)
class GapReport:
    """What a table lacks; times are dates of numpy, in UTC if they have a zone, or numbers.

    Examples
    --------
    >>> import numpy as np
    >>> report = gap_report(np.array([[1.0, 2.0], [np.nan, 3.0], [np.nan, 4.0]]))
    >>> round(report.share, 3), report.n_readings
    (0.333, 4)
    """

    n_times: int  # distinct ones
    n_series: int
    n_readings: int
    step: float  # the median from one time to the next, in seconds for dates
    lacking: int  # times between the first and the last that the step lets expect, without a row
    are_dates: bool
    series: Table  # one row each, the one with most missing first
    gaps: Table  # every gap of a series, the longest first
    blackouts: Table  # times at which nothing was read, of a location or at all; the longest first

    __repr__ = brief

    @property
    def share(self) -> float:
        """The share of readings that is missing, of every series at every time of the table."""
        cells = self.n_times * self.n_series
        return 1.0 - self.n_readings / cells if cells else 0.0


def gap_report(
    X: Any,
    *,
    time: Any = None,
    location: Any = None,
    sensor: Any = "auto",
    value: Any = None,
    duplicates: Duplicates = "error",
) -> GapReport:
    """Say what is missing in a table: of each series, the longest gaps, and blackouts.

    X and the other parameters are as for ``DeviationImputer``. A reading is missing where a cell
    has none, or where a long table has no row: every series is expected at every time of the table.

    ``series`` has ids, readings, missing, share, gaps (how many), longest (seconds, or units of
    time that is numbers, from the reading before a gap to the one after it), and the times of the
    first and last reading. ``gaps`` has ids, start and end (the first and the last time without a
    reading), missing, and lasts. ``blackouts`` has the times at which no series of a location was
    read, or none at all: there location is None, and times count for which the table has no row.

    Examples
    --------
    >>> heat = np.array([[20.0, 15.0], [np.nan, np.nan], [np.nan, 15.5], [21.0, 16.0]])
    >>> report = gap_report(heat)
    >>> report.share, report.gaps["missing"].tolist(), report.blackouts["start"].tolist()
    (0.375, [2, 1], [1])
    """
    roles = Roles(time, location, sensor, value, duplicates)
    return report_of(labelled(X, roles), duplicates)


def report_of(table: LabelledArray, duplicates: Duplicates = "error") -> GapReport:
    """Say what is missing in a table that was read."""
    times = np.sort(np.asarray(table.modes[-1].ids.labels, dtype=np.float64))
    dated = are_dates(table.clock)
    steps = np.diff(times)
    step = float(np.median(steps)) if len(steps) else 0.0
    jumps = steps > SLACK * step if step > 0 else np.zeros(len(steps), dtype=bool)
    lacking = int(np.round(steps[jumps] / step - 1.0).sum()) if step > 0 else 0
    seen, every = table.observed(duplicates), _every_series(table)
    gaps = _Gaps(times, dated)
    places = np.searchsorted(times, _time_labels(seen)) if len(seen) else np.empty(0, np.int64)
    which = _rows_of(every, seen)
    rows: list[dict[str, Any]] = []
    for number, ids in enumerate(every.decode()):
        own = np.unique(places[which == number])
        rows.append(gaps.of_series(dict(zip(table.names[:-1], ids, strict=True)), own))
    blackouts = gaps.blackouts(places, jumps)
    if len(table.names) > 2:
        where = 1 - table.sensor if table.sensor in (0, 1) else 0
        name, labels = table.names[where], every.ids[where].labels
        codes = every.codes[where][which] if len(which) else which
        for code in np.unique(every.codes[where]).tolist():
            blackouts += gaps.silence(np.unique(places[codes == code]), {name: labels[code]})
    return GapReport(
        len(times), len(every), len(seen), step, lacking, dated,
        _table(rows, "missing"), _table(gaps.found, "lasts"), _table(blackouts, "lasts"),
    )  # fmt: skip


class _Gaps:
    """Gaps between readings, by their places among all times."""

    def __init__(self, times: Floats, dated: bool) -> None:
        self.times, self.dated = times, dated
        self.found: list[dict[str, Any]] = []

    def of_series(self, ids: dict[str, Any], own: Ints) -> dict[str, Any]:
        """Find the gaps of a series that was read at some places; return its row."""
        gaps = self.silence(own, ids)
        self.found += gaps
        n, many = len(self.times), len(own)
        return ids | {
            "readings": many,
            "missing": n - many,
            "share": 1.0 - many / n,
            "gaps": len(gaps),
            "longest": max((gap["lasts"] for gap in gaps), default=0.0),
            "first": self._time(int(own[0])) if many else None,
            "last": self._time(int(own[-1])) if many else None,
        }

    def silence(self, own: Ints, ids: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the stretches between some places, the first and the last time included."""
        edges = np.concatenate([[-1], own, [len(self.times)]])
        return [
            ids | self._gap(int(edges[k]), int(edges[k + 1]))
            for k in np.flatnonzero(np.diff(edges) > 1).tolist()
        ]

    def blackouts(self, places: Ints, jumps: NDArray[np.bool_]) -> list[dict[str, Any]]:
        """Return when nothing was read at all, or the table has no rows."""
        own = np.unique(places)
        found = self.silence(own, {"location": None})
        next_to = own[:-1][np.diff(own) == 1]
        between = next_to[jumps[next_to]].tolist()
        return found + [{"location": None} | self._gap(k, k + 1) for k in between]

    def _gap(self, before: int, after: int) -> dict[str, Any]:
        last = len(self.times) - 1
        begin, end = self.times[max(before, 0)], self.times[min(after, last)]
        empty = after - before - 1
        start, stop = (before + 1, after - 1) if empty else (before, after)
        return {
            "start": self._time(start),
            "end": self._time(stop),
            "missing": empty,
            "lasts": float(end - begin),
        }

    def _time(self, place: int) -> Any:
        return as_time(self.times[place], self.dated)


def as_time(moment: float, dated: bool) -> Any:
    """Return a time as tables show it: a date, or a number."""
    if dated:
        return np.datetime64(round(moment * 1e6), "us")
    return int(moment) if moment == np.floor(moment) else float(moment)


def as_text(moment: Any, clock: Clock) -> str:
    """Write a date without what is zero at its end; with Z, if it has a zone, as it is in UTC.

    Examples
    --------
    >>> as_text(np.datetime64("2024-01-31T05:00:00"), "dates with a zone")
    '2024-01-31T05:00Z'
    """
    text = str(np.datetime64(moment, "us")).removesuffix(".000000").removesuffix(":00")
    return text + ("Z" if clock == "dates with a zone" else "")


def _every_series(table: LabelledArray) -> Observations:
    """Return a cell of every series of a table, read or not."""
    whole = table.cells(np.arange(table.values.size))
    codes = np.unique(np.stack(whole.codes[:-1]), axis=1)
    zeros: Any = np.zeros(codes.shape[1], dtype=np.float64)
    return Observations(tuple(code.astype(np.int32) for code in codes), zeros, whole.ids[:-1])


def _rows_of(every: Observations, seen: Observations) -> Ints:
    """Return the number of the series of each reading."""
    if not len(seen):
        return np.empty(0, dtype=np.int64)
    both = np.concatenate([np.stack(every.codes), np.stack(seen.codes[:-1])], axis=1)
    _, number = np.unique(both, axis=1, return_inverse=True)
    return np.asarray(number).ravel()[len(every) :]


def _time_labels(seen: Observations) -> Floats:
    return np.asarray(seen.ids[-1].labels[seen.codes[-1]], dtype=np.float64)


def _table(rows: list[dict[str, Any]], by: str) -> Table:
    """Turn rows into columns, those with the largest number first."""
    names = dict.fromkeys(name for row in rows for name in row)
    order = sorted(range(len(rows)), key=lambda k: -rows[k][by])
    return {name: as_column([rows[k].get(name) for k in order]) for name in names}


def as_column(entries: list[Any]) -> NDArray[Any]:
    """Return entries as a column: of objects if they are names, of numbers or dates else."""
    if any(isinstance(entry, str | tuple) or entry is None for entry in entries):
        column = np.empty(len(entries), dtype=object)
        column[:] = entries
        return column
    return np.array(entries)
