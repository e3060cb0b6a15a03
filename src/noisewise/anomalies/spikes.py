"""Single readings that are off: far outside what was read before and after.

A reading is compared with the medians of the three before it and the three after it: it is odd if
it lies outside both, by more than its series ever does. How far a series does is told by the middle
of its own distances, as the scale and the tails of Student's t; bursts make it wider for a while.
In the same way it is odd if it lies outside both, and far outside all that its series ever reads.
What is no farther away than the series often steps, to stay there, is not odd.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.ndimage import uniform_filter1d

from noisewise.anomalies.tracks import Mask, Tracks, spread
from noisewise.data.timestamps import Floats, Ints

SIDE = 3  # readings before, and after
FEWEST = 20  # readings of a series
FEW = 10  # distances that tell how far a series goes
PRIOR = 5e-3  # of a reading that it is off
TAILS = (2.0, 6.0)  # degrees of freedom, at least and at most
WIDE = 10.0  # spreads of a series: how far off readings are that are off, as a rule
MEAN = 0.8  # of normal distances, in standard deviations
WILD = 3  # farthest readings that may be wild, and are no burst
BURST = 51  # readings that tell how lively a series is at a time
SHARED = 0.1  # of all series: what so many have at a time is an event, and no error
STIRRED = 4.0  # scales that a series is away if it takes part in an event

SUDDEN = 3.0  # times larger than what readings before, and after, differ by
FARTHER = 1.25  # times a usual step, that a reading is away that is off
STEPS, FEWEST_STEPS = 0.01, 10  # share of a series that is amid sudden steps if these are usual

LOCAL, WHOLE = (0.5, 0.9), (0.9, 0.97)  # quantiles of distances that tell scale and tails

_DEGREES = np.linspace(*TAILS, 101)
_RATIOS = {
    pair: np.divide(*(stats.t.ppf(0.5 + 0.5 * one, _DEGREES) for one in reversed(pair)))
    for pair in (LOCAL, WHOLE)
}


class Spikes(NamedTuple):
    """Readings that may be off, by their places among all."""

    place: Ints
    probability: Floats
    expected: Floats  # what lies between the readings before and after
    score: Floats  # distances in scales of the series


def find_spikes(tracks: Tracks, least: float) -> Spikes:
    """Find readings that are off with a probability of ``least`` or more."""
    n = len(tracks.value)
    probability, expected, score = np.zeros(n), np.full(n, np.nan), np.zeros(n)
    for series in range(len(tracks)):
        own = tracks.span(series)
        if own.stop - own.start >= FEWEST:
            probability[own], expected[own], score[own] = _judged(tracks.value[own])
    found = np.flatnonzero(probability >= least)
    found = found[~_shared(tracks, score, found)]
    return Spikes(found, probability[found], expected[found], score[found])


def _judged(value: Floats) -> tuple[Floats, Floats, Floats]:
    """Tell for every reading of a series how likely it is off, what was expected, and how far."""
    low, high = _hull(value)
    away = np.maximum(np.maximum(low - value, value - high), 0.0)
    scale, degrees = _habit(value, away)
    centre = np.abs(value - np.median(value))
    whole, ends = _tails(centre, WHOLE)
    wide = WIDE * max(spread(value), whole)
    if scale == 0.0 or wide == 0.0:
        return np.zeros(len(value)), 0.5 * (low + high), np.zeros(len(value))
    calm = np.minimum(away, max(3.0 * scale, _most(away)))
    mean = MEAN * scale * max(float((away > 0.0).mean()), 1.0 / len(away))
    burst = np.maximum(uniform_filter1d(calm, min(BURST, len(value))) / mean, 1.0)
    usual = _density(away, scale * burst, degrees)
    if ends > TAILS[0]:  # else nothing is too far out
        usual = np.minimum(usual, _density(centre, whole, ends))
    odd = 2.0 * stats.cauchy.pdf(away / wide) / wide
    probability = PRIOR * odd / (PRIOR * odd + (1.0 - PRIOR) * usual)
    return (
        np.where(away > _usual_step(value, high - low), probability, 0.0),
        0.5 * (low + high),
        np.copysign(away, value - low) / (scale * burst),
    )


def _usual_step(value: Floats, steps: Floats) -> float:
    """Return how far a series often steps at once, to stay there: no reading so far away is odd."""
    ends = np.pad(value, SIDE, mode="reflect")
    apart = np.ptp(np.lib.stride_tricks.sliding_window_view(ends, SIDE), axis=1)
    within = np.maximum(apart[: len(value)], apart[SIDE + 1 :])
    sudden = np.sort(np.where(SUDDEN * within < steps, steps, 0.0))
    return FARTHER * float(sudden[-max(FEWEST_STEPS, int(STEPS * len(value)))])


def _most(away: Floats) -> float:
    """Return what nearly all distances are below, of those that there are.

    Where they are few, the farthest do not count: some wild readings are no burst, and would make
    all others around them look odd.
    """
    some = np.sort(away[away > 0.0])
    return float(min(np.quantile(some, 0.95), some[-1 - WILD :][0])) if len(some) else 0.0


def _density(away: Floats, scale: Floats | float, degrees: float) -> Floats:
    return np.asarray(2.0 * stats.t.pdf(away / scale, degrees) / scale)


def _tails(away: Floats, quantiles: tuple[float, float]) -> tuple[float, float]:
    """Return scale and degrees of freedom of distances, by two of their quantiles."""
    inner, outer = np.quantile(away, quantiles)
    if inner == 0.0:
        return 0.0, TAILS[0]
    degrees = float(np.interp(-outer / inner, -_RATIOS[quantiles], _DEGREES))
    return float(inner / stats.t.ppf(0.5 + 0.5 * quantiles[0], degrees)), degrees


def _hull(value: Floats) -> tuple[Floats, Floats]:
    """Return the lower and the higher of the medians of the readings before and after each."""
    ends = np.pad(value, SIDE, mode="reflect")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(ends, SIDE), axis=1)
    before, after = middle[: len(value)], middle[SIDE + 1 :]
    return np.minimum(before, after), np.maximum(before, after)


def _habit(value: Floats, away: Floats) -> tuple[float, float]:
    """Return scale and degrees of freedom of the distances of a series."""
    step = resolution(value)
    some = away[away > 0.0]
    if len(some) < FEW:
        return max(step, spread(np.diff(value))), TAILS[0]
    scale, degrees = _tails(some, LOCAL)
    return max(scale, step), degrees


def resolution(value: Floats) -> float:
    """Return the step between values that a sensor can tell apart."""
    steps = np.diff(np.unique(value))
    return float(np.quantile(steps, 0.05)) if len(steps) else 0.0


def _shared(tracks: Tracks, score: Floats, found: Ints) -> Mask:
    """Tell which readings are of an event that other series have at the same time."""
    shared = np.zeros(len(found), dtype=bool)
    if not len(found) or len(tracks) < 2:
        return shared
    times, place = np.unique(tracks.time, return_inverse=True)
    read = np.bincount(place, minlength=len(times))
    for sign in (1.0, -1.0):
        stirred = np.bincount(place, sign * score > STIRRED, len(times))
        mine = sign * score[found] > 0.0
        others = stirred[place[found]] - 1.0
        shared |= mine & (others >= np.maximum(1.0, SHARED * read[place[found]]))
    return shared
