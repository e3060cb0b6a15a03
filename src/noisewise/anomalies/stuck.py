"""Sensors that repeat themselves for longer than is their habit, and sensors that fell silent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisewise.anomalies.tracks import Mask, Tracks
from noisewise.data.timestamps import Floats, Ints

FEWEST = 10  # readings of a stretch that can be stuck
RARE, RARER = 20, 200  # one run of so many is as long: two points of the tail of lengths
LONGER = 2.0  # times the longest run that the tail lets expect
ALIKE = 4  # runs of a series at most, one of which can be odd by its length alone
MOST = 20  # longest runs of a series that are looked at
LONG = 1.5  # times the longest silence before: a series that is silent until the end is dead
SILENT_STEPS = 20  # of the table, at least
SILENT_SHARE = 0.02  # of the time of the table, at least


class Stretch(NamedTuple):
    """A stretch of a series, by the places of its first and last reading among all."""

    series: int
    first: int
    last: int
    score: float  # its length over the longest that was to be expected
    certain: bool  # whether it is odd whatever others did meanwhile: neither a habit, nor at an end


def long_runs(tracks: Tracks, good: Mask) -> list[Stretch]:
    """Return the stretches of equal readings that are longer than usual for their series."""
    found = []
    for series in range(len(tracks)):
        own = np.flatnonzero(good[tracks.span(series)]) + tracks.bounds[series]
        if len(own) < 2 * FEWEST:
            continue
        value = tracks.value[own]
        begins, lengths = _runs(value)
        if len(lengths) < 3:
            continue  # it hardly ever changed: that is how it is
        longest = _longest(lengths)
        for run in np.argsort(-lengths, kind="stable")[:MOST].tolist():
            if lengths[run] < max(FEWEST, longest):
                break
            ends = own[begins[run]], own[begins[run] + lengths[run] - 1]
            score = float(lengths[run] / longest)
            is_rare = (2 * lengths >= lengths[run]).sum() <= ALIKE
            inside = value.min() < value[begins[run]] < value.max()
            certain = bool(score >= LONGER and is_rare and inside)
            found.append(Stretch(series, int(ends[0]), int(ends[1]), score, certain))
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
            found.append(Stretch(series, last, last, silent / before, True))
    return found


def _runs(value: Floats) -> tuple[Ints, Ints]:
    """Return where runs of equal values begin, and how long they are."""
    begins = np.flatnonzero(np.diff(value, prepend=np.nan) != 0.0)
    return begins, np.diff(np.append(begins, len(value)))


def _longest(lengths: Ints) -> float:
    """Return the longest run that the tail of lengths lets expect.

    The longest few do not count, as they may be those that are stuck. The tail falls exponentially,
    and slower where the sensor is slow at night.
    """
    ordered = np.sort(lengths)[::-1]
    n = len(ordered)
    rare, rarer = (int(ordered[min(max(n // share, 2), n - 1)]) for share in (RARE, RARER))
    slope = max((rarer - rare) / np.log(RARER / RARE), 0.2 * rarer)
    return float(rarer + slope * np.log(min(RARER, n)))
