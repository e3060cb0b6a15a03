"""Holes like those that are to be filled, where there are readings: what models are judged on.

The table's own holes are moved along time by a random offset, and hide what lies under them: single
cells, outages and moments at which nobody read anything come as often as in this table. Holes at
the end of the table, as of a forecast, are at the end of a shorter table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.data import Observations
from noisewise.data.timestamps import checked_stamps, key_places, series_keys
from noisewise.engine.arrays import Array, Ints
from noisewise.models.nearness import MOST_OCTAVES, Timed, around, stratum

Like = Literal["table", "cells", "blocks", "blackout", "end"]
Mask = npt.NDArray[np.bool_]

NEAREST = 0.1  # share of all time that holes are moved by at least
MOST_CELLS = 200_000  # that models are judged on at a time, in a window of time
MOST_SERIES, FEWEST_TIMES = 128, 400  # of a window
SHARE = 0.1  # of readings that are hidden if the table has no holes to go by
LENGTH = 10  # steps that outages last then
MOST_HIDDEN = 0.35  # share of the readings of a window that are hidden at most
MOST_OF_SERIES = 0.5  # and of those of a series
FEWEST_HOLES = 3  # fewer say nothing of what is missing
MOST_OF_OWN = 0.35  # share of the series with holes that is hidden, at most, by copies of outages
ENOUGH, FEWER = 12, 6  # outages that a trial should have; if they are of some of the series
SOME = 0.5  # share of the series
MOST_GRID = 20_000_000  # cells of a table whose holes are counted
DENSE = 0.01  # share of cells that are read, where series are read at the same times
EDGE = 0.1  # share of holes that are at the ends, where these are more than chance
MOST_WEIGHT = 5.0  # of a hidden cell, or of one over it
SHORTER = 0.3  # share of time that is left out at most, to have holes at the ends of what is left


class Trial(NamedTuple):
    """A part of the readings to learn from, and another to predict."""

    train: Ints
    hidden: Ints


class Merged(NamedTuple):
    """Readings and holes together, by series and time."""

    which: Ints
    when: Array
    is_hole: Mask
    outage: Ints  # that a hole belongs to: series that were lost from one time to another


@dataclass(frozen=True)
class Readings:
    """Readings as series and times, and the cells that are missing among them."""

    seen: Timed
    holes: Timed  # between the first and the last reading of a series, unless hardly any are not
    leading: Array  # of every series: how long it has holes before its first reading,
    trailing: Array  # and after its last one
    step: float  # of time, mostly
    alike: Ints  # the ``stratum`` of every hole
    size: int  # readings and holes
    at_once: float  # readings and holes of a moment, on average
    window: int = MOST_CELLS  # cells that a trial has at most

    @classmethod
    def of(cls, seen: Observations, time: int, holes: Observations | None) -> Readings:
        """Arrange readings; without holes that are given, what is missing of the grid is one."""
        keys = series_keys(seen.codes, seen.shape, time)[0]
        series, which = np.unique(keys, return_inverse=True)
        when = checked_stamps(seen.ids[time])[0][seen.codes[time]]
        steps = np.diff(np.unique(when))
        step = float(np.median(steps)) if len(steps) else 1.0
        own = Timed(which.astype(np.int64), when)
        if holes is None:
            found = _missing(own, len(series), step)
        else:
            found = _as_timed(holes, seen, time, series)
        alike = stratum(own, found, len(series), step)
        size = len(own.when) + len(found.when)
        at_once = size / max(len(np.union1d(own.when, found.when)), 1)
        inner = _without_edges(own, found, len(series))
        return cls(own, *inner, step, alike, size, at_once)

    @property
    def n_series(self) -> int:
        """The number of series with readings."""
        return len(self.leading)

    def within(self, window: int) -> Readings:
        """Return the same for trials of so many cells at most."""
        return replace(self, window=window)

    @property
    def n_outages(self) -> int:
        """Holes, of which those of several series from one time to another are one."""
        return len(np.unique(self.merged.outage[self.merged.is_hole]))

    @cached_property
    def merged(self) -> Merged:
        """Readings and holes in order."""
        seen, holes = self.seen, self.holes
        which, when = np.append(seen.which, holes.which), np.append(seen.when, holes.when)
        order = np.lexsort([when, which])
        is_hole = order >= len(seen.which)
        which, when = which[order], when[order]
        times, place = np.unique(when, return_inverse=True)
        new = (which[1:] != which[:-1]) | ~is_hole[1:] | ~is_hole[:-1]
        starts = np.flatnonzero(np.append(True, new))
        ends = np.append(starts[1:], len(which)) - 1
        lost = is_hole[starts]
        key = np.where(lost, place[starts] * len(times) + place[ends] + 1, 0)
        outage = np.unique(key, return_inverse=True)[1]
        return Merged(which, when, is_hole, np.repeat(outage, ends + 1 - starts))


def likeness(readings: Readings, trials: list[Trial]) -> list[Array]:
    """Return how much hidden cells count, so that together they are like the holes.

    Holes that are moved meet others, and become longer or shorter by it; of a window, as many
    series are read at a time as it happens to have.
    """
    seen, found = readings.seen, []
    for train, hidden in trials:
        own = Timed(seen.which[train], seen.when[train])
        asked = Timed(seen.which[hidden], seen.when[hidden])
        n = len(np.unique(own.which))
        share = readings.n_series / max(n, 1)  # of series that are in the window
        found.append(stratum(own, asked, readings.n_series, readings.step, share))
    together = np.concatenate(found)
    if not len(readings.alike):
        return [np.ones(len(one)) for one in found]
    size = 3 * (MOST_OCTAVES + 1)
    wanted = np.bincount(readings.alike, minlength=size) / len(readings.alike)
    there = np.bincount(together, minlength=size) / len(together)
    weight = (wanted / np.maximum(there, 1e-9)).clip(1.0 / MOST_WEIGHT, MOST_WEIGHT)[together]
    parts = np.cumsum([len(one) for one in found])[:-1]
    return np.split(weight / weight.mean(), parts)


def _without_edges(seen: Timed, holes: Timed, n: int) -> tuple[Timed, Array, Array]:
    """Return holes between readings, and how long holes last before and after all readings."""
    begin, end = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(begin, seen.which, seen.when)
    np.maximum.at(end, seen.which, seen.when)
    ends = []
    inner = np.ones(len(holes.which), dtype=bool)
    for far, sign in ((begin, -1.0), (end, 1.0)):
        beyond = sign * (holes.when - far[holes.which])
        out = beyond > 0
        inner &= ~out
        longest = np.zeros(n)
        if out.sum() > EDGE * len(out):
            np.maximum.at(longest, holes.which[out], beyond[out])
        ends.append(longest)
    return Timed(holes.which[inner], holes.when[inner]), ends[0], ends[1]


def _as_timed(holes: Observations, seen: Observations, time: int, series: Ints) -> Timed:
    """Return cells of a table as series that were read, and times."""
    modes = zip(seen.ids, holes.ids, holes.codes, strict=True)
    codes = tuple(
        code if mode == time else own.lookup(asked.labels)[code]
        for mode, (own, asked, code) in enumerate(modes)
    )
    keys, known = series_keys(codes, seen.shape, time)
    which = key_places(series, keys, known)
    when = checked_stamps(holes.ids[time])[0][holes.codes[time]]
    return Timed(which[which >= 0], when[which >= 0])


def _missing(seen: Timed, n_series: int, step: float) -> Timed:
    """Return what is missing of the grid of series and times; none if there is no grid."""
    times, place = np.unique(seen.when, return_inverse=True)
    size = n_series * len(times)
    if size > MOST_GRID or len(seen.when) < DENSE * size:
        return _gaps(seen, step)
    grid = np.ones(size, dtype=bool)
    grid[seen.which * len(times) + place] = False
    cells = np.flatnonzero(grid)
    return Timed(cells // len(times), times[cells % len(times)])


def _gaps(seen: Timed, step: float) -> Timed:
    """Return the middle of gaps between readings of a series that are longer than usual."""
    order = np.lexsort([seen.when, seen.which])
    which, when = seen.which[order], seen.when[order]
    gap = np.diff(when)
    inside = which[1:] == which[:-1]
    usual = float(np.median(gap[inside])) if inside.any() else step
    long = np.flatnonzero(inside & (gap > 1.5 * usual))
    return Timed(which[long], when[long] + 0.5 * gap[long])


def trials(readings: Readings, like: Like, rng: np.random.Generator) -> Iterator[Trial]:
    """Yield parts of the readings to judge models by, one after another, without end."""
    told = len(readings.holes.which) >= FEWEST_HOLES
    told |= bool(readings.leading.any() or readings.trailing.any())
    turn = 0
    while True:
        if like == "table" and told:
            yield _moved(readings, rng)
        elif like == "table":  # of what people have: readings that got lost, and outages
            yield _made(readings, ("cells", "blocks")[turn % 2], rng)
        else:
            yield _made(readings, like, rng)
        turn += 1


def _moved(readings: Readings, rng: np.random.Generator) -> Trial:
    """Hide what lies under the table's holes when they are moved in time.

    Where outages are few, they come several times, by other offsets and partly in other series, so
    that not a single one tells which model is best.
    """
    seen, leading, trailing = readings.seen, readings.leading, readings.trailing
    under, unit = _under(readings, 0, rng)
    copies, stay = _copies(readings)
    for copy in range(copies):
        series = 0 if copy < stay else int(rng.integers(1, max(readings.n_series, 2)))
        more, number = _under(readings, series, rng)
        unit = np.where(more & ~under, unit.max() + 1 + number, unit)
        under = under | more
    start, end = _window(readings, under, rng)
    edge = (seen.when < start + leading[seen.which]) | (seen.when > end - trailing[seen.which])
    unit = np.where(edge, unit.max() + 1 + (2 * seen.when > start + end), unit)
    return _limited(readings, (start, end), under | edge, unit, rng)


def _made(readings: Readings, kind: str, rng: np.random.Generator) -> Trial:
    """Hide a share of the readings in a way that has a name."""
    seen, step = readings.seen, readings.step
    everything = np.ones(len(seen.which), dtype=bool)
    start, end = _window(readings, everything, rng)
    if kind == "end":
        start, end = start, end - rng.uniform(0.0, SHORTER) * (end - start)
        late = seen.when > end - SHARE * (end - start)
        return _limited(readings, (start, end), late, late.astype(np.int64), rng)
    length = min(LENGTH * step, 0.25 * (end - start) + step)
    stretch = ((seen.when - start + rng.uniform(0.0, length)) // length).astype(np.int64)
    unit = np.arange(len(seen.which)) if kind == "cells" else stretch - stretch.min()
    if kind == "blocks":
        unit = unit * readings.n_series + seen.which
    unit = np.unique(unit, return_inverse=True)[1]  # few, also where stamps are far apart
    rank = rng.permutation(int(unit.max()) + 1)[unit]
    inside = (seen.when >= start) & (seen.when <= end)
    hidden = rank <= np.quantile(rank[inside], SHARE)
    return _limited(readings, (start, end), hidden, unit, rng)


def _copies(readings: Readings) -> tuple[int, int]:
    """Return how often outages come again, so that a trial has several, and hides not too much.

    And how many of these copies stay in their series. Outages of some of the series come less
    often, and first in their own: what is lost of others at other times, as it is not in the table,
    would leave models less to learn from.
    """
    which, when, is_hole, _ = readings.merged
    share = max(float(is_hole.mean()), 1e-9)
    at_once = min(_most_times(readings) / len(np.unique(readings.seen.when)), 1.0)
    there = max(readings.n_outages * at_once, 1e-9)
    lost = is_hole.sum() / max(len(np.unique(when[is_hole])), 1)  # series at a time
    some = lost < SOME * readings.n_series
    most = int(np.clip(min((FEWER if some else ENOUGH) / there, SHARE / share), 1.0, ENOUGH)) - 1
    share_of_own = is_hole.sum() / max(np.isin(which, which[is_hole]).sum(), 1)
    own = int(MOST_OF_OWN / max(share_of_own, 1e-9)) - 1 if some else 1
    return most, own


def _under(readings: Readings, series: int, rng: np.random.Generator) -> tuple[Mask, Ints]:
    """Tell which readings are under holes that are moved, and under which outage.

    Holes move in time, and as many series on.
    """
    seen, n = readings.seen, readings.n_series
    of = (seen.which + series) % n
    which, when, is_hole, unit = readings.merged
    first, length = float(when.min()), float(np.ptp(when)) + readings.step
    offset = rng.uniform(NEAREST, 1.0 - NEAREST) * length
    asked = np.mod(seen.when - offset - first, length)
    asked += first
    left, right = around(Timed(which, when), Timed(of, asked), n)
    nearer = np.where(np.abs(when[left] - asked) < np.abs(when[right] - asked), left, right)
    return is_hole[nearer], unit[nearer]


def _window(readings: Readings, under: Mask, rng: np.random.Generator) -> tuple[float, float]:
    """Return a stretch of time with some of what is to be hidden; all if that is not too long."""
    seen = readings.seen
    times = np.unique(seen.when)
    most = _most_times(readings)
    if len(times) <= most:
        edges = (readings.leading, readings.trailing)
        lost = [int(rng.uniform(0.0, SHORTER) * edge.any() * len(times)) for edge in edges]
        return float(times[lost[0]]), float(times[-1 - lost[1]])
    centre = rng.choice(np.flatnonzero(under)) if under.any() else rng.integers(len(seen.when))
    at = int(np.searchsorted(times, seen.when[centre]))
    begin = int(np.clip(at - rng.integers(most), 0, len(times) - most))
    return float(times[begin]), float(times[begin + most - 1])


def _most_times(readings: Readings) -> int:
    """Return how many times a window has at most."""
    share = min(MOST_SERIES / readings.n_series, 1.0)  # of the series that a window has
    return max(int(readings.window / (readings.at_once * share)), FEWEST_TIMES)


def _limited(
    readings: Readings,
    window: tuple[float, float],
    hidden: Mask,
    unit: Ints,
    rng: np.random.Generator,
) -> Trial:
    """Return a window as readings to learn from and readings to predict, not too many of either."""
    seen = readings.seen
    inside = (seen.when >= window[0]) & (seen.when <= window[1])
    if readings.n_series > MOST_SERIES:
        inside &= _some_series(seen.which, inside & hidden, readings.n_series, rng)[seen.which]
    hidden = hidden & inside
    rank = rng.permutation(int(unit.max()) + 1)[unit]
    rows = np.flatnonzero(hidden)
    rows = rows[np.lexsort([seen.when[rows], rank[rows]])]
    # Outages one after the other, each from its beginning, as long as enough is left.
    own = seen.which[rows]
    by_series = np.argsort(own, kind="stable")
    nth = np.empty(len(rows), dtype=np.int64)
    starts = np.searchsorted(own[by_series], own[by_series])
    nth[by_series] = np.arange(len(rows)) - starts
    counts = np.bincount(seen.which[inside], minlength=readings.n_series)
    most = np.minimum((MOST_OF_SERIES * counts).astype(np.int64), counts - 2)
    rows = rows[nth < most[own]]
    rows = np.sort(rows[: int(MOST_HIDDEN * inside.sum())])
    train = inside.copy()
    train[rows] = False
    return Trial(np.flatnonzero(train), rows)


def _some_series(which: Ints, hidden: Mask, n: int, rng: np.random.Generator) -> Mask:
    """Choose series, those of which something is hidden first."""
    has = np.bincount(which[hidden], minlength=n) > 0
    order = np.lexsort([rng.random(n), ~has])
    if has.sum() > MOST_SERIES // 2:  # others tell of them
        order = rng.permutation(n)
    chosen = np.zeros(n, dtype=bool)
    chosen[order[:MOST_SERIES]] = True
    return chosen


def outages(readings: Readings, drawn: list[Trial]) -> Ints:
    """Return a number for cells hidden together: neighbours in time of a series, in a trial."""
    found, n = [], 0
    for trial in drawn:
        which, when = readings.seen.which[trial.hidden], readings.seen.when[trial.hidden]
        order = np.lexsort([when, which])
        new = (np.diff(which[order]) != 0) | (np.diff(when[order]) > 1.5 * readings.step)
        number = np.empty(len(order), dtype=np.int64)
        number[order] = np.cumsum(np.append(0, new))
        found.append(n + number)
        n += len(order)
    return np.unique(np.concatenate(found), return_inverse=True)[1]
