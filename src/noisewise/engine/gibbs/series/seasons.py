"""Seasons: cycles that the calendar suggests or the data show, and which of them to believe.

A cycle is believed if it explains what it was not found in: slot means of the odd cycles must
agree with those of the even ones. A week is believed if it explains more than cycles of a few days
that nobody lives by: what wanders slowly may agree with any of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise.engine.arrays import Array
from noisewise.engine.data import Series
from noisewise.engine.gibbs.series.draw import Season

CALENDAR = {"day": 86_400.0, "week": 604_800.0, "year": 365.2425 * 86_400.0}  # in seconds
WEEK, OTHERS = 7, (3, 5, 6, 8)  # days of a week, and of cycles that are none
CLEARLY = 2.0  # times what the best of those explains, that a week must
FEWEST_CYCLES, FEWEST_SLOTS, MOST_SLOTS = 3, 4, 336
BELIEVED = 0.03  # share of the variance that a cycle must explain, of what it was not found in
# Autocorrelation that a cycle must have to be looked at, how far it must rise above that of shorter
# lags, and the share of the highest that the shortest cycle has.
LEAST_PEAK, LEAST_RISE, NEARLY = 0.2, 0.1, 0.85
MOST_TIMES = 50_000  # rows of time that are searched
FEWEST_MULTIPLES, MOST_MULTIPLES = 4, 100  # of a cycle, that tell it to a part of a step
LEAST_WITH_PARTS = 24  # steps of a cycle whose slots would tell less if its end were off by a part
ROUNDED = 1e-9  # of the size of a series, that is no change
ASIDE = 0.25  # cycles that a top may be away from where it is looked for


def periods_in_seconds(seasons: Any) -> Any:
    """Return a list of seasons with those that the calendar knows as seconds; all else as it is."""
    if not isinstance(seasons, list | tuple):
        return seasons
    return [CALENDAR.get(one, one) if isinstance(one, str) else one for one in seasons]


def season(period: float, stamps: Array, step: float, rank: int) -> Season:
    """Lay a cycle over stamps; slots are as wide as a step, or wider if that were too many."""
    slots = int(np.clip(round(period / step), 2, MOST_SLOTS))
    origin = math.floor(float(stamps[0]) / period) * period
    cycles = int((float(stamps[-1]) - origin) // period) + 1
    return Season(float(period), origin, cycles, slots, rank)


def fits(period: float, stamps: Array, step: float) -> bool:
    """Whether stamps span enough cycles, and tell enough slots of one apart."""
    span = float(stamps[-1] - stamps[0])
    return span >= FEWEST_CYCLES * period and period >= FEWEST_SLOTS * step


def find_seasons(
    series: Series, stamps: Array, step: float, are_dates: bool, most: int
) -> tuple[Season, ...]:
    """Return the seasons that data show: of dates day, week and year, else what repeats itself."""
    weeks = {period: name == "week" for name, period in CALENDAR.items()}
    if not are_dates:
        weeks = with_weeks(repeats(series, stamps, step) if is_regular(stamps, step) else [], step)
    found: list[Season] = []
    values = series.values.astype(np.float64)
    for period, is_week in weeks.items():
        if not fits(period, stamps, step):
            continue
        one = season(period, stamps, step, most)
        share, profile = _believed(series, values, one)
        least = BELIEVED
        if is_week and share >= least:
            chance = _by_chance(series, values, period / WEEK, stamps, step)
            least = max(least, CLEARLY * chance)
        if share >= least:
            found.append(one)
            values = values - profile  # a week must tell more than its days do
    return tuple(found)


def with_weeks(periods: list[float], step: float) -> dict[float, bool]:
    """Return periods that were found, the weeks of which they may be days, or the days of weeks.

    Beside each stands whether it is a week that was not found itself.

    Examples
    --------
    >>> with_weeks([24.0], 1.0), with_weeks([168.0], 1.0)
    ({24.0: False, 168.0: True}, {24.0: False, 168.0: False})
    """
    told: dict[float, bool] = {}
    for period in periods:
        if round(period / step) % WEEK == 0:
            told |= {period / WEEK: False, period: False}
        else:
            told |= {period: False, WEEK * period: True}
    return told


def _by_chance(series: Series, values: Array, day: float, stamps: Array, step: float) -> float:
    """Share of the variance that a cycle of a few days explains which is no week."""
    others = [n * day for n in OTHERS if fits(n * day, stamps, step)]
    shares = [_believed(series, values, season(one, stamps, step, 1))[0] for one in others]
    return max([0.0, *shares])


def _believed(series: Series, values: Array, one: Season) -> tuple[float, Array]:
    """Share of the variance that a cycle explains beyond chance, and its slot means."""
    cycle, slot = one.places(series.time)
    place = series.which * one.n_slots + slot
    n = len(series) * one.n_slots
    sums, counts = np.zeros((2, n)), np.zeros((2, n))
    odd = cycle % 2
    for half in (0, 1):
        own = odd == half
        counts[half] = np.bincount(place[own], minlength=n)
        sums[half] = np.bincount(place[own], values[own], n)
    total = np.bincount(series.which, values, len(series)) / np.maximum(series.counts, 1)
    centre = np.repeat(total, one.n_slots)
    apart = sums / np.maximum(counts, 1) - centre
    both = (counts > 0).all(axis=0)
    weight = counts.sum(axis=0) * both
    variance = float(((values - total[series.which]) ** 2).sum())
    agree = float((weight * apart[0] * apart[1]).sum())
    mean = sums.sum(axis=0) / np.maximum(counts.sum(axis=0), 1) - centre
    return agree / max(variance, 1e-300), np.where(counts.sum(axis=0) > 0, mean, 0.0)[place]


def is_regular(stamps: Array, step: float) -> bool:
    """Whether stamps are a whole number of steps apart, but for a few."""
    away = (stamps - stamps[0]) / step
    return bool(np.mean(np.abs(away - np.rint(away)) < 0.05) > 0.95)


def repeats(series: Series, stamps: Array, step: float, cycles: int = FEWEST_CYCLES) -> list[float]:
    """Return the time after which series are most like themselves, if any; seen so many times."""
    n = min(round(float(stamps[-1] - stamps[0]) / step) + 1, MOST_TIMES)
    if n < cycles * FEWEST_SLOTS:
        return []
    grid, total, alive = stamps[0] + step * np.arange(n), np.zeros(n), 0
    for s in np.flatnonzero(series.counts):
        own = slice(series.starts[s], series.starts[s + 1])
        line = np.interp(grid, series.time[own], series.values[own])
        size = float(np.abs(line).max())
        line -= np.polyval(np.polyfit(np.arange(n), line, 1), np.arange(n))
        if np.abs(line).max() <= ROUNDED * size:  # a line, of which rounding is all that is left
            continue
        alive += 1
        power = np.abs(np.fft.rfft(line, 2 * n)) ** 2
        covariance = np.fft.irfft(power)[:n] / np.arange(n, 0, -1)
        total += covariance / max(covariance[0], 1e-300)
    total /= max(alive, 1)
    low, high = FEWEST_SLOTS, n // cycles
    inside = total[low - 1 : high + 2]
    peaks = low + np.flatnonzero((inside[1:-1] >= inside[:-2]) & (inside[1:-1] > inside[2:]))
    rise = total[peaks] - np.minimum.accumulate(total)[peaks]  # noise makes peaks that do not rise
    peaks = peaks[(total[peaks] > LEAST_PEAK) & (rise > LEAST_RISE)]
    if not len(peaks):
        return []
    best = total[peaks].max()  # of multiples of a cycle, the cycle itself
    first = int(peaks[total[peaks] > NEARLY * best][0])
    return [_sharpened(total[: n // 2], first) * step]


def _sharpened(alike: Array, lag: int) -> float:
    """Return a cycle as its top and its multiples tell it, from a lag on the way to the top."""
    cycle, times = float(lag), 0
    while times < MOST_MULTIPLES:
        near = np.arange(round((times + 1 - ASIDE) * cycle), round((times + 1 + ASIDE) * cycle) + 1)
        if near[-1] >= len(alike):
            break
        times += 1
        cycle = float(near[np.argmax(alike[near])]) / times
    whole = round(cycle)
    if times < FEWEST_MULTIPLES or abs(cycle - whole) <= 2.0 / times:
        return float(whole)
    return cycle if cycle >= LEAST_WITH_PARTS else float(lag)
