"""Profiles over a day, a week, a year, or a period that is found: what repeats in every series.

A profile has slots, the parts of a period, and for each series the mean of its readings in each,
drawn to 0 where there are few. Periods come one after the other, each of what those before leave,
and only those that tell what a reading left out would have been.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from noisewise.engine.arrays import Array, Ints
from noisewise.engine.data import Series
from noisewise.engine.gibbs.series.seasons import repeats, with_weeks

CALENDAR = (86_400.0, 604_800.0, 31_556_952.0)  # a day, a week and a year in seconds
FEWEST_SLOTS, MOST_SLOTS = 3, 400  # of a period
CYCLES = 2  # of a period that must have been seen
PRIOR = 1.0  # readings that the mean of 0 of a slot is worth
GAIN = 0.99  # of the squared error that a period may leave at most


class Profile(NamedTuple):
    """What repeats with one period."""

    period: float
    means: Array  # of every series in every slot

    def at(self, which: Ints, when: Array) -> Array:
        """Return what is to be expected of series at some times."""
        return np.asarray(self.means[which, slots(when, self.period, self.means.shape[1])])


def slots(when: Array, period: float, n: int) -> Ints:
    """Return the slot of times, of n in a period; a slot begins at time 0.

    Examples
    --------
    >>> slots(np.array([0.0, 5.9, 6.0, 24.0, -1.0]), 24.0, 4).tolist()
    [0, 0, 1, 0, 3]
    """
    share = np.mod(when, period) / period
    return np.asarray(np.minimum((share * n + 1e-9).astype(np.int64), n - 1))


def fit_profiles(series: Series, seasons: Any) -> list[Profile]:
    """Return profiles of some periods, or of those that are found ("auto"), where they help."""
    step, span = series.usual_step(), float(np.ptp(series.time))
    periods = found_periods(series) if seasons == "auto" else sorted(map(float, seasons or ()))
    if not periods:
        return []
    which, counts = series.which, np.maximum(series.counts, 1)
    means = np.bincount(which, series.values, len(series)) / counts
    left = series.values - means[which]
    unit = np.bincount(which, left**2, len(series)) / counts
    least = max(1e-12 * float(unit.max(initial=0.0)), float(np.finfo(float).tiny) * 1e6)
    weight = 1.0 / np.maximum(unit, least)[which]
    kept: list[Profile] = []
    for period in periods:
        n = min(round(period / step), MOST_SLOTS)
        if n < FEWEST_SLOTS or span < CYCLES * period:
            continue
        place = which * n + slots(series.time, period, n)
        count = np.bincount(place, minlength=len(series) * n)
        total = np.bincount(place, left, len(series) * n)
        without = (total[place] - left) / (count[place] - 1 + PRIOR)
        if (weight * (left - without) ** 2).sum() > GAIN * (weight * left**2).sum():
            continue
        profile = Profile(period, (total / (count + PRIOR)).reshape(len(series), n))
        left = left - profile.at(which, series.time)
        kept.append(profile)
    return kept


def expected(profiles: list[Profile], which: Ints, when: Array) -> Array:
    """Return the sum of profiles of series at some times."""
    return sum((profile.at(which, when) for profile in profiles), np.zeros(len(when)))


def without_profiles(series: Series, profiles: list[Profile]) -> Series:
    """Return series less what repeats in them."""
    left = series.values - expected(profiles, series.which, series.time)
    return Series(series.starts, series.time, left)


def found_periods(series: Series) -> list[float]:
    """Return periods that series may have, the shortest first: of the calendar, and a found one."""
    stamps, step = np.unique(series.time), series.usual_step()
    found = [*with_weeks(repeats(series, stamps, step, CYCLES), step)]
    near = [any(abs(p / q - 1) < 0.02 for q in CALENDAR) for p in found]  # which tells it better
    return sorted([*CALENDAR, *(p for p, known in zip(found, near, strict=True) if not known)])
