"""What is odd in a table of sensors, as a table: single readings, and what lasts.

Tables are dicts of columns, which ``pandas.DataFrame`` and ``polars.DataFrame`` take as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from noisewise.anomalies.changes import Change, find_change, least_step
from noisewise.anomalies.dates import Path, first_after
from noisewise.anomalies.others import Near, Others, Relation
from noisewise.anomalies.spikes import find_spikes, resolution
from noisewise.anomalies.stuck import Stretch, long_runs, silences
from noisewise.anomalies.tracks import Grid, Mask, Tracks
from noisewise.data import Observations
from noisewise.data.labelled import labelled
from noisewise.data.observations import Duplicates
from noisewise.data.tables_with_holes import Roles
from noisewise.data.timestamps import Clock, Floats, are_dates
from noisewise.errors import DataError
from noisewise.gaps import Table, as_column, as_text, as_time
from noisewise.settings import number

KINDS = ("dead", "unit", "drift", "shift", "stuck", "spike")  # in this order in a table
AWAY = 5.0  # spreads that others let expect of a series while it was stuck
MORE = 2.0  # times farther than during any other long run of the series
CALM, VERY = 0.7, 3.3  # spreads that others move less in a calm; there, a run must be so odd
FEW = 5  # series: with fewer, the others are not to be trusted
LARGEST = 1e100  # reading, whose square is a number still
LATE = 10  # parts of a series: what wanders off in the last of them may come back
PROBABILITY = number(above=0.0, most=1.0)
FINE_BINS = 20_000  # of the grid on which the first reading after a change is looked for


def find_anomalies(
    X: Any,
    *,
    time: Any = None,
    location: Any = None,
    sensor: Any = "auto",
    value: Any = None,
    duplicates: Duplicates = "error",
    probability: float = 0.5,
) -> Table:
    """Find what is odd in a table of sensors: readings, and sensors that are off for a while.

    X and the parameters up to ``duplicates`` are as for ``DeviationImputer``. Nothing is fitted:
    it takes seconds. The kinds are:

    - ``spike``: a single reading far outside those before and after, unless others have it too or
      the series often steps as far; those off with this ``probability`` or more are listed;
    - ``stuck``: the same reading for far longer than is the habit of the series, or while others
      moved farther than ever;
    - ``unit``: the readings are as if in another unit from a time on, such as °F instead of °C;
    - ``shift``, ``drift``: since a time, a series is at another level than others let expect, or
      moves away from it more and more;
    - ``dead``: there are no readings until the end, or they hardly change any more.

    The table has kind, a column of ids for each mode but time, start, end, readings (how many),
    value (that of a spike or of what is stuck), size (how far readings are off, in their own
    units), probability (of spikes; NaN else), score (how far beyond what is usual; what lasts is
    told from 1 on, and spikes count scales of their series), and words. What lasts comes first, and
    in each kind what is most certain. Times that have a zone are told in UTC.

    Examples
    --------
    >>> hours = np.arange(400.0)
    >>> rng = np.random.default_rng(0)
    >>> heat = np.sin(hours / 8)[:, None] + rng.normal(20, 0.1, (400, 6))
    >>> heat[100, 2] = 90.0
    >>> heat[250:, 4] = 1.8 * heat[250:, 4] + 32
    >>> found = find_anomalies(heat, sensor=None)
    >>> list(zip(found["kind"], found["series"].tolist(), found["start"].tolist()))
    [('unit', 4, 250), ('spike', 2, 100)]
    """
    table = labelled(X, Roles(time, location, sensor, value, duplicates))
    seen = table.observed(duplicates)
    return anomalies_of(seen, table.clock, probability)


def anomalies_of(seen: Observations, clock: Clock, probability: float = 0.5) -> Table:
    """Find what is odd in readings, whose last mode is time in seconds or numbers."""
    PROBABILITY.require("probability", probability)
    if len(seen) < 2:
        raise DataError(f"X has {len(seen)} readings; at least 2 are needed.")
    largest = float(np.abs(seen.values).max())
    if largest > LARGEST:
        raise DataError(f"Readings must be at most {LARGEST:g} in size; got {largest:g}.")
    tracks = Tracks.of(seen)
    return _Finder(tracks, _Words(seen, tracks, clock)).found(probability)


class _Words(NamedTuple):
    """Makes rows of what was found: ids, dates, and a sentence."""

    seen: Observations
    tracks: Tracks
    clock: Clock

    def row(self, kind: str, series: int, first: int, last: int, **more: Any) -> dict[str, Any]:
        """Return a row of a stretch; its words get {who}, {start} and {end}."""
        ids = self.seen.decode(self.tracks.rows[[first]])[0][:-1]
        start, end = (self._time(self.tracks.time[place]) for place in (first, last))
        names = [own.name for own in self.seen.ids[:-1]]
        row = {"kind": kind} | dict(zip(names, ids, strict=True))
        row |= {"start": start, "end": end, "readings": last - first + 1, "value": np.nan}
        row |= {"size": np.nan, "probability": np.nan, "score": np.nan} | more
        said = {"start": self._told(start), "end": self._told(end)}
        return row | {"words": row["words"].format(who=" ".join(map(str, ids)), **said)}

    def _time(self, moment: float) -> Any:
        return as_time(moment, are_dates(self.clock))

    def _told(self, moment: Any) -> str:
        return as_text(moment, self.clock) if are_dates(self.clock) else str(moment)

    def spike(self, place: int, probability: float, expected: float, score: float) -> Any:
        read = float(self.tracks.value[place])
        words = f"{{who}} read {read:.6g} at {{start}}, where about {expected:.4g} was expected."
        return self.row(
            "spike", 0, place, place, value=read, size=read - expected, probability=probability,
            score=score, words=words,
        )  # fmt: skip

    def stuck(self, stretch: Stretch, many: int, until_end: bool) -> Any:
        read = float(self.tracks.value[stretch.first])
        when = "since {start}" if until_end else "from {start} to {end}"
        words = (
            f"{{who}} read {read:.6g} {many:,} times in a row {when}; it does not do so usually."
        )
        return self.row(
            "dead" if until_end else "stuck", stretch.series, stretch.first, stretch.last,
            value=read, score=stretch.score, words=words, readings=many,
        )  # fmt: skip

    def silent(self, stretch: Stretch) -> Any:
        end = self._time(self.tracks.time.max())
        words = f"{{who}} was last read at {{start}}; others were until {self._told(end)}."
        row = self.row(
            "dead", stretch.series, stretch.first, stretch.last, score=stretch.score, words=words
        )
        return row | {"end": end, "readings": 0}

    def changed(self, series: int, change: Change, first: int) -> Any:
        last = int(self.tracks.bounds[series + 1]) - 1
        alone = len(self.tracks) == 1
        others = "compared with before" if alone else "compared with the others"
        unlike = "." if alone else ", and others do."
        words = {
            "dead": "{who} hardly changes any more since {start}" + unlike,
            "unit": f"{{who}} seems to have changed its unit at {{start}}, {change.what}.",
            "shift": f"{{who}} reads {change.size:+.3g} since {{start}}, {others}.",
            "drift": f"{{who}} drifts since {{start}}, {others}: by {change.size:+.3g} until now.",
        }[change.kind]
        return self.row(
            change.kind, series, first, last, size=change.size, score=change.score, words=words
        )


class _Finder:
    """Looks for one kind after the other; what was found does not mislead what comes after."""

    def __init__(self, tracks: Tracks, words: _Words) -> None:
        self.tracks, self.words = tracks, words
        self.rows: list[dict[str, Any]] = []
        self.floor = [resolution(tracks.value[tracks.span(s)]) for s in range(len(tracks))]

    def found(self, probability: float) -> Table:
        """Return everything that is odd."""
        spikes = find_spikes(self.tracks, probability)
        self.rows += [self.words.spike(*one) for one in zip(*spikes, strict=True)]
        good = np.ones(len(self.tracks.value), dtype=bool)
        good[spikes.place] = False
        self._stuck(good)
        dead = {stretch.series for stretch in silences(self.tracks)}
        self.rows += [self.words.silent(stretch) for stretch in silences(self.tracks)]
        self._changed(Grid.of(self.tracks, good), good, dead)
        return _table(self.rows, [own.name for own in self.words.seen.ids[:-1]])

    def _stuck(self, good: Mask) -> None:
        """Find what is stuck, and leave it out of what is good."""
        runs = long_runs(self.tracks, good)
        if not runs:
            return
        grid = Grid.of(self.tracks, good)
        others = Others(grid.table)
        for run in runs:
            if not self._is_stuck(run, grid, others):
                continue
            last = int(self.tracks.bounds[run.series + 1]) - 1
            between = slice(run.first, run.last + 1)
            many = int(good[between].sum())
            until_end = not good[run.last + 1 : last + 1].any()
            self.rows.append(self.words.stuck(run, many, until_end))
            good[between] = False

    def _is_stuck(self, run: Stretch, grid: Grid, every: Others) -> bool:
        """Tell whether a run is odd beside what others let expect of its series meanwhile.

        It is if they are far away, or move farther than during any other long run. Where they stay
        as they are, it must be odder by itself.
        """
        own, near = grid.table[run.series], every.near(run.series)
        others = near.say(grid.table[near.series])
        bins = grid.bins(self.tracks.time[np.array([[run.first, run.last], *run.besides])])
        parts = [slice(first, last + 1) for first, last in bins.tolist()]
        outside = ~np.isnan(own) & ~np.isnan(others)
        outside[parts[0]] = False
        if outside.sum() < FEW or (~np.isnan(others[parts[0]])).sum() < FEW:
            return run.certain
        expected, std = Relation(others[outside], own[outside], self.floor[run.series])(others)
        moved, *besides = (_moved(expected[part], std[part]) for part in parts)
        if run.certain:
            return moved >= CALM or run.score >= VERY
        away = (np.abs(expected - self.tracks.value[run.first]) / std)[parts[0]]
        far = run.score >= 1.0 and np.nanquantile(away, 0.75) > AWAY
        return bool(far or moved > max(AWAY, MORE * max(besides, default=0.0)))

    def _changed(self, grid: Grid, good: Mask, dead: set[int]) -> None:
        """Find changes for good, the clearest first: others are compared without what changed."""
        few = len(self.tracks) < FEW
        others = Others(grid.table)
        asked = zip(others.references(), grid.table, self.floor, strict=True)
        first = [find_change(*one, few) for one in asked]
        likely = [s for s, change in enumerate(first) if change is not None]
        for series in sorted(likely, key=lambda s: -first[s].score):  # type: ignore[union-attr]
            near = others.near(series)
            reference, own = near.say(others.table[near.series]), grid.table[series]
            change = find_change(reference, own, self.floor[series], few)
            if change is None or (change.kind == "dead" and series in dead):
                continue
            place = self._first_after(series, change, near, grid, good)
            span = self.tracks.span(series)
            if change.kind == "drift" and span.stop - place < (span.stop - span.start) // LATE:
                continue
            self.rows.append(self.words.changed(series, change, place))
            others.forget(series, change.bin)
            good[place : span.stop] = False

    def _first_after(self, series: int, change: Change, near: Near, grid: Grid, good: Mask) -> int:
        """Return the place of the first reading after a change."""
        span = self.tracks.span(series)
        own = np.flatnonzero(good[span]) + span.start
        time, value = self.tracks.time[own], self.tracks.value[own]
        fine = Grid.of(self.tracks, good, FINE_BINS, near.series)
        said = near.say(fine.table)
        known = np.flatnonzero(~np.isnan(said))
        x = np.interp(fine.bins(time), known, said[known]) if len(known) else np.zeros(len(own))
        rough = int(np.searchsorted(grid.bins(time), change.bin))
        steps = (time - grid.start) / self.tracks.step
        path = Path(steps, value, x, least_step(self.floor[series], value))
        return int(own[first_after(path, change.kind, change.factor, change.offset, rough)])


def _moved(expected: Floats, std: Floats) -> float:
    """Return how far a series should have moved, in spreads."""
    there = ~np.isnan(expected)
    if there.sum() < FEW:
        return 0.0
    return float(np.ptp(np.quantile(expected[there], (0.05, 0.95))) / np.median(std[there]))


def _table(rows: list[dict[str, Any]], names: list[str]) -> Table:
    """Turn rows into columns: kinds in their order, what is most certain first."""
    columns = ["kind", *names, "start", "end", "readings", "value", "size", "probability"]
    columns += ["score", "words"]

    def rank(row: dict[str, Any]) -> tuple[int, float]:
        return KINDS.index(row["kind"]), -abs(row["score"])

    ordered = sorted(rows, key=rank)
    return {name: as_column([row[name] for row in ordered]) for name in columns}
