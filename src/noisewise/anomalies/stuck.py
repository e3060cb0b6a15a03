"""Sensors that repeat themselves for longer than is their habit, and sensors that fell silent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from noisewise.anomalies.tracks import Mask, Tracks
from noisewise.data.timestamps import Floats, Ints

FEWEST = 7  # readings of a stretch that can be stuck
FEWEST_ALL = 20  # readings of a series
PARTS = 8  # of the range of a series: near its floor, it may repeat itself more
LAGS = 5  # from one reading to the next: 1, 2, 4, 8 steps, and longer
BELIEF = 20.0  # readings that what is known of others counts as
RARE, RARER = 20, 200  # one run of so many is as odd: two points of the tail
LONGER = 1.65  # times the oddest run that the tail lets expect
ALIKE = 4  # runs of a series at most, one of which can be odd by itself alone
LONGEST = 20  # other runs of a series, in which its others may have moved as much
ALONE = 4.0  # times longer a run must be if its length alone speaks against it
LONG = 1.5  # times the longest silence before: a series that is silent until the end is dead
SILENT_STEPS = 20  # of the table, at least
SILENT_SHARE = 0.02  # of the time of the table, at least


class Stretch(NamedTuple):
    """A stretch of a series, by the places of its first and last reading among all."""

    series: int
    first: int
    last: int
    score: float  # how far beyond the longest or oddest that was to be expected
    certain: bool  # whether it is odd even if others moved little: neither a habit, nor at an end
    besides: list[list[int]]  # first and last of the longest other runs of the series


def long_runs(tracks: Tracks, good: Mask) -> list[Stretch]:
    """Return the stretches of equal readings that are longer than usual for their series.

    Runs are judged by their lengths, and by the sum over their readings of how rarely this series
    repeats itself, at such a level and after such a time; or by far greater length alone.
    """
    found = []
    step = tracks.step
    for series in range(len(tracks)):
        own = np.flatnonzero(good[tracks.span(series)]) + tracks.bounds[series]
        if len(own) < FEWEST_ALL:
            continue
        value = tracks.value[own]
        begins, lengths = _runs(value)
        if len(lengths) < 3:
            continue  # it hardly ever changed: that is how it is
        odd = _surprise(tracks.time[own] / step, value, lengths)
        inside = (value[begins] > value.min()) & (value[begins] < value.max())
        longer, odder = _beyond(lengths, inside), _beyond(odd, inside)
        score = np.maximum(np.sqrt(longer * odder) * (odder >= 1.0), longer / ALONE)
        lasts = np.column_stack([own[begins], own[begins + lengths - 1]])
        longest = np.argsort(-lengths, kind="stable")[: LONGEST + 1].tolist()
        for run in np.flatnonzero((longer >= 1.0) & (lengths >= FEWEST)).tolist():
            besides = [lasts[k].tolist() for k in longest if k != run]
            is_rare = (2 * lengths[inside] >= lengths[run]).sum() <= ALIKE
            certain = bool(score[run] >= LONGER and is_rare and inside[run])
            first, last = lasts[run].tolist()
            found.append(Stretch(series, first, last, float(score[run]), certain, besides))
    return found


def silences(tracks: Tracks) -> list[Stretch]:
    """Return the series that are silent until the end, by their last reading."""
    end, start, step = tracks.time.max(), tracks.time.min(), tracks.step
    least = max(SILENT_STEPS * step, SILENT_SHARE * (end - start))
    found = []
    for series in range(len(tracks)):
        time = tracks.time[tracks.span(series)]
        if len(time) < FEWEST:
            continue
        silent, before = float(end - time[-1]), float(np.diff(time).max())
        if silent >= max(least, LONG * before):
            last = int(tracks.bounds[series + 1]) - 1
            found.append(Stretch(series, last, last, silent / before, True, []))
    return found


def _runs(value: Floats) -> tuple[Ints, Ints]:
    """Return where runs of equal values begin, and how long they are."""
    begins = np.flatnonzero(np.diff(value, prepend=np.nan) != 0.0)
    return begins, np.diff(np.append(begins, len(value)))


def _surprise(steps: Floats, value: Floats, lengths: Ints) -> Floats:
    """Return how surprising runs are, in nats: how rarely the series repeats itself elsewhere.

    That is by how often it does at such levels, after so many steps, without the run itself: a long
    one would be its own habit.
    """
    same, ordered = np.diff(value) == 0.0, np.sort(value)
    rank = np.searchsorted(ordered, value, "left") + np.searchsorted(ordered, value, "right")
    exact = np.unique(value, return_inverse=True)[1][:-1]
    part = np.minimum(rank[:-1] * PARTS // (2 * len(value)), PARTS - 1)
    lag = np.clip(np.rint(np.log2(np.maximum(np.diff(steps), 1.0))), 0, LAGS - 1).astype(np.int64)

    def by_lag(row: Ints, weights: Any, rows: int) -> Floats:
        return np.asarray(
            np.bincount(row * LAGS + lag, weights, rows * LAGS).reshape(rows, LAGS), float
        )

    own = by_lag(np.repeat(np.arange(len(lengths)), lengths)[:-1], same, len(lengths))
    at = np.minimum(np.cumsum(lengths) - lengths, len(part) - 1)  # where every run begins
    repeated = own.sum(axis=1)
    share = (same.sum() - repeated + 0.5) / (len(same) - repeated + 1.0)
    share = np.repeat(share[:, None], LAGS, axis=1)
    for level in (part, exact):
        many = int(level.max()) + 1
        equal, total = (by_lag(level, one, many)[level[at]] - own for one in (same, None))
        pooled, of = equal.sum(axis=1, keepdims=True), total.sum(axis=1, keepdims=True)
        share = (pooled + BELIEF * share) / (of + BELIEF)
        share = (equal + BELIEF * share) / (total + BELIEF)
    return np.asarray(-(own * np.log(share)).sum(axis=1))


def _beyond(sizes: Any, inside: Mask) -> Floats:
    """Return sizes of runs over the largest to be expected; apart for those inside the range."""
    return np.asarray(sizes / np.where(inside, _oddest(sizes[inside]), _oddest(sizes)))


def _oddest(odd: Floats) -> float:
    """Return the oddest run that the tail lets expect.

    The oddest few do not count, as they may be those that are stuck. The tail falls exponentially,
    and slower where the sensor is slow at night.
    """
    ordered = np.sort(odd)[::-1]
    n = len(ordered)
    if not n:
        return np.inf
    rare, rarer = (float(ordered[min(max(n // share, 2), n - 1)]) for share in (RARE, RARER))
    slope = max((rarer - rare) / np.log(RARER / RARE) if rare else 0.0, 0.2 * rarer)
    return max(rarer + slope * float(np.log(min(RARER, n))), 1.0)
