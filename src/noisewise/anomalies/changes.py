"""Changes that last: another unit, a shift, a drift, and a sensor that no longer measures.

A series is compared with what others let expect of it, bin by bin. What it was like before a change
is a `Relation`; what comes after is explained by the same relation in other units, or by a step, or
by a ramp, or by nothing: that decides what is told.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.ndimage import median_filter

from noisewise.anomalies.others import Relation
from noisewise.anomalies.tracks import NORMAL, middle, spread
from noisewise.data.timestamps import Floats, Ints

FEWEST = 60  # bins of a series
SMOOTH = 5  # bins that each bin is the median of
EDGE = 20  # parts of a series: no change is looked for in the first and the last
STARTS = (0.2, 1 / 3, 0.5, 0.75)  # where a change is first looked for
UNIT_STARTS = (0.2, 1 / 3, 0.5, 0.65, 0.8)
MOST_UNITS = 3  # that are looked at from there
ROUNDS = 3  # in which its place is found

GAIN = 1.0  # nats by which another unit explains a bin better, on average
TOTAL = 200.0  # and all bins together
WHOLE = 0.5  # nats, by bin too: by which the whole series is explained better if it is turned back
AGREED = 0.9  # share of stretches that say the same
JUMP = 8  # bins, or more, before and after a change of unit, which happens at once
INEXACT = 0.5  # share of a conversion that may be unexplained
ALIVE = 0.2  # times that others must have moved before as much as after
SHIFT = 8.0  # times the usual change from one stretch to the next
SHIFT_SIZE = 1.0  # spreads of a series
SHIFT_WINDOW = 25  # parts of a series: the stretches that are compared
DRIFT = 10.0  # times what a series wanders anyway
DRIFT_GAIN, DRIFT_LEAST = 10.0, 4.0  # or: times that less is unexplained; and that it wanders
FLAT = 0.1  # of its usual spread: a series that moves less until the end is dead
FLAT_TAIL = 0.05  # share of its bins that must be flat

CONVERSIONS: dict[str, tuple[float, float]] = {
    "from °C to °F": (1.8, 32.0),
    "from °F to °C": (1 / 1.8, -32 / 1.8),
    "from °C to K": (1.0, 273.15),
    "from K to °C": (1.0, -273.15),
    "from °F to K": (1 / 1.8, 459.67 / 1.8),
    "from K to °F": (1.8, -459.67),
    **{f"to a unit {factor:g} times smaller": (factor, 0.0) for factor in (3.6, 10, 100, 1000)},
    **{f"to a unit {factor:g} times larger": (1 / factor, 0.0) for factor in (3.6, 10, 100, 1000)},
    "from inches to mm": (25.4, 0.0),
    "from mm to inches": (1 / 25.4, 0.0),
    "from inHg to hPa": (33.8639, 0.0),
    "from hPa to inHg": (1 / 33.8639, 0.0),
}


class Seen(NamedTuple):
    """A series where it was read: what others say, what it read, and the bins of both."""

    x: Floats  # 0 throughout where nobody says anything
    y: Floats
    at: Ints
    floor: float  # the least that two readings can differ by


class Change(NamedTuple):
    """A change of a series for good, from a bin on."""

    kind: str  # unit, shift, drift or dead
    bin: int
    size: float  # in units of the series: of a unit, how far it takes the usual reading
    score: float
    what: str = ""  # which unit
    factor: float = 1.0  # what became of readings that would have been 1 and 0
    offset: float = 0.0


def find_change(reference: Floats, table: Floats, floor: float, few: bool) -> Change | None:
    """Find the one change of a series that explains most, if there is one.

    Where there are few others, one of these may have changed instead: then its own past must say
    so, too. ``floor`` is the least that two readings can differ by.
    """
    known = ~np.isnan(table)
    has_reference = bool((known & ~np.isnan(reference)).sum() >= FEWEST)
    if has_reference:
        known &= ~np.isnan(reference)
    at = np.flatnonzero(known)
    if len(at) < FEWEST:
        return None
    y = median_filter(table[at], SMOOTH, mode="nearest")
    x = median_filter(reference[at], SMOOTH, mode="nearest") if has_reference else np.zeros(len(at))
    seen = Seen(x, y, at, least_step(floor, y))
    for find in (_dead, _unit, _drift, _shift):
        change = find(seen)
        if change is not None and not (few and _is_of_others(y, change)):
            return change._replace(bin=int(at[change.bin]))
    return None


def least_step(floor: float, y: Floats) -> float:
    """Return the least that two readings can differ by, above zero."""
    return max(floor, 1e-6 * float(np.abs(y).max()), 1e-300)


def _is_of_others(y: Floats, change: Change) -> bool:
    """Tell whether a series itself shows little of a change: then others have changed."""
    if change.kind not in ("shift", "drift"):
        return False
    last = y[change.bin :] if change.kind == "shift" else y[-max(len(y) // 10, 5) :]
    own = float(np.median(last) - np.median(y[: change.bin]))
    return own * change.size <= 0.0 or abs(own) < 0.5 * abs(change.size)


def _fit(y: Floats, expected: Floats, std: Floats) -> Floats:
    """Return the log likelihood of every bin, with the tails of Student's t of 4 degrees."""
    with np.errstate(over="ignore"):  # as far off as can be
        off = ((y - expected) / std) ** 2
    return np.asarray(-np.log(std) - 2.5 * np.log1p(off / 4.0))


def _unit(seen: Seen) -> Change | None:
    """Look for another unit from a bin on: of those that may be, the likeliest that holds."""
    for begin, name in _conversions(seen):
        change = _checked(seen, begin, name)
        if change is not None:
            return change
    return None


def _conversions(seen: Seen) -> list[tuple[int, str]]:
    """Return other units, and from which bin on, the likeliest for the whole series first."""
    x, y, _, floor = seen
    n = len(y)
    edge = max(n // EDGE, 10)
    found = set()
    for start in UNIT_STARTS:
        begin = max(int(start * n), edge)
        names = _some_conversions(seen, begin, edge)
        for name in names:
            place = begin
            for _ in range(ROUNDS):
                later = _converted_from(seen, place, name, edge)
                if later == place:
                    break
                place = later
            if n // 6 <= place <= n - n // 10:
                found.add((place, name))

    def likelihood(one: tuple[int, str]) -> float:
        """Return that of all bins, turned back to what they were before."""
        begin, (factor, offset) = one[0], CONVERSIONS[one[1]]
        natural = np.concatenate([y[:begin], (y[begin:] - offset) / factor])
        fit = _fit(natural, *Relation(x, natural, floor)(x))
        return float(fit.sum() - (n - begin) * np.log(factor))

    as_it_is = float(_fit(y, *Relation(x, y, floor)(x)).sum())
    gains = {one: likelihood(one) - as_it_is for one in found}
    good = [one for one, gain in gains.items() if gain >= max(WHOLE * (n - one[0]), TOTAL)]
    return sorted(good, key=lambda one: (-gains[one], one))


def _some_conversions(seen: Seen, begin: int, edge: int) -> list[str]:
    """Return the conversions that explain most from a bin on, of those that explain the end."""
    x, y, _, floor = seen
    expected, std = Relation(x[:begin], y[:begin], floor)(x[begin:])
    before, tried = _fit(y[begin:], expected, std), []
    for name, (factor, offset) in CONVERSIONS.items():
        wide = np.maximum(factor * std, floor)
        gain = _fit(y[begin:], factor * expected + offset, wide) - before
        if gain[-edge:].sum() > 0.0:
            tried.append((float(np.cumsum(gain[::-1]).max()), name))
    return [name for _, name in sorted(tried, reverse=True)[:MOST_UNITS]]


def _converted_from(seen: Seen, begin: int, name: str, edge: int) -> int:
    """Return the bin from which on a conversion explains most, by what was before some bin."""
    x, y, _, floor = seen
    factor, offset = CONVERSIONS[name]
    expected, std = Relation(x[:begin], y[:begin], floor)(x)
    wide = np.maximum(factor * std, floor)
    gain = _fit(y, factor * expected + offset, wide) - _fit(y, expected, std)
    sums = np.cumsum(gain[::-1])[::-1]
    return edge + int(sums[edge : len(y) - edge].argmax())


def _checked(seen: Seen, begin: int, name: str) -> Change | None:
    """Return a change of unit if all speaks for it: most stretches, the jump, and its own past."""
    x, y, _, floor = seen
    n, (factor, offset) = len(y), CONVERSIONS[name]
    edge = max(n // EDGE, 10)
    expected, std = Relation(x[:begin], y[:begin], floor)(x)
    converted = factor * expected + offset
    gain = _fit(y, converted, np.maximum(factor * std, floor)) - _fit(y, expected, std)
    total = float(gain[begin:].sum())
    if total < max(GAIN * (n - begin), TOTAL):
        return None
    if not (_agree(gain[begin:], edge) and _agree(-gain[:begin], edge)):
        return None
    if not _jumps(y - expected, converted - expected, std, begin):
        return None
    moved = spread(x[begin:])
    if (moved and spread(x[:begin]) < ALIVE * moved) or not _is_exact(
        expected[begin:], y[begin:], factor, offset
    ):
        return None
    own, wide = np.full(n, np.median(y[:begin])), np.full(n, max(spread(y[:begin]), floor))
    alone = _fit(y, factor * own + offset, np.maximum(factor * wide, floor)) - _fit(y, own, wide)
    if alone[begin:].mean() <= 0.0:
        return None
    size = float(np.median((factor - 1.0) * expected + offset))
    return Change("unit", begin, size, total / (n - begin) / GAIN, name, factor, offset)


def _agree(gain: Floats, length: int) -> bool:
    """Tell whether nearly all stretches of some length gain."""
    means = [part.mean() for part in np.array_split(gain, max(1, len(gain) // length))]
    return float(np.mean(np.array(means) > 0.0)) >= AGREED


def _jumps(off: Floats, converted: Floats, std: Floats, begin: int) -> bool:
    """Tell whether a series changes at once, as far as a conversion takes it."""
    width = max(JUMP, len(off) // 60)
    after, before = slice(begin, begin + width), slice(max(begin - width, 0), begin)
    wanted = float(np.median(converted[after]))
    if abs(wanted) < 2.0 * float(np.median(std[after])):
        return True  # the units hardly differ there
    return float(np.median(off[after]) - np.median(off[before])) / wanted >= 0.5


def _is_exact(expected: Floats, y: Floats, factor: float, offset: float) -> bool:
    """Tell whether a conversion explains readings where little, some and much was expected."""
    order = np.argsort(expected, kind="stable")
    converted = factor * expected + offset
    for part in np.array_split(order, 3):
        left = abs(float(np.median(y[part] - converted[part])))
        if left > INEXACT * abs(float(np.median(converted[part] - expected[part]))):
            return False
    return True


def _drift(seen: Seen) -> Change | None:
    """Look for a ramp that begins at some bin and goes on until the end."""
    x, y, at, floor = seen
    n = len(y)
    best: Change | None = None
    for start in STARTS[1:]:
        begin = int(start * n)
        for _ in range(ROUNDS):
            expected, std = Relation(x[: max(begin, n // 8)], y[: max(begin, n // 8)], floor)(x)
            ramp = _ramp(y - expected, std, at)
            if ramp.begin == begin:
                break
            begin = ramp.begin
        size = ramp.slope * float(at[-1] - at[begin])
        score = abs(size) / float(np.median(std)) / ramp.wander
        score = max(score / DRIFT, min(ramp.gain / DRIFT_GAIN, score / DRIFT_LEAST))
        if ramp.gain >= 2.0 and score >= 1.0 and (best is None or score > best.score):
            best = Change("drift", begin, size, score)
    return best


class _Ramp(NamedTuple):
    begin: int
    slope: float  # by bin
    gain: float  # times that the unexplained is less with it; 0 if a step does better
    wander: float  # how far what is left goes anyway


def _ramp(off: Floats, std: Floats, at: Ints) -> _Ramp:
    """Fit a level and a ramp from some bin on, bins weighted by their precision."""
    n = len(off)
    first, weight = np.arange(n // EDGE, n - n // 10), (std.min() / std) ** 2
    begins = at[first]
    off = off - (weight * off).sum() / weight.sum()

    def later(part: Floats) -> Floats:
        """Return the sum of what comes after each begin."""
        return np.cumsum(part[::-1])[::-1][first + 1]

    w0, w1, w2 = (later(weight * at**k) for k in range(3))
    products = later(weight * off * at) - begins * later(weight * off)
    squares = w2 - 2.0 * begins * w1 + begins**2 * w0 - (w1 - begins * w0) ** 2 / weight.sum()
    slopes = products / squares
    whole = float((weight * off**2).sum())
    left = whole - slopes**2 * squares
    best = int(left.argmin())
    ramp = np.maximum(at - begins[best], 0)
    rest = off - slopes[best] * ramp
    rest = (rest - (weight * rest).sum() / weight.sum()) / std
    stepped = whole - (later(weight * off) ** 2 / (w0 - w0**2 / weight.sum())).max()
    gain = whole / left[best] if left[best] < stepped else 0.0
    return _Ramp(int(first[best]), float(slopes[best]), gain, wandering(rest))


def wandering(rest: Floats) -> float:
    """Return how far a series goes within some time, of the time in which it goes farthest."""
    lags = 2 ** np.arange(int(np.log2(max(len(rest) // 4, 2))) + 1)
    away = [middle(np.abs(rest[lag:] - rest[:-lag])) for lag in lags]
    return float(max(NORMAL * max(away) / np.sqrt(2.0), 1e-12))


def _shift(seen: Seen) -> Change | None:
    """Look for a bin from which on the series is another function of the others."""
    x, y, _, floor = seen
    n = len(y)
    window = max(n // SHIFT_WINDOW, 15)
    if n < 6 * window:
        return None
    middle = np.arange(window, n - window + 1)
    differ = _differ(x, y, middle, window)
    best = int(differ.argmax())
    away = np.abs(middle - middle[best]) > 1.5 * window
    usual = max(float(np.quantile(differ[away], 0.9)), floor)
    begin = int(middle[best])
    score = differ[best] / usual
    before, after = y[:begin], y[begin:]
    if score < SHIFT or min(begin, n - begin) < n // 6:
        return None
    expected, std = Relation(x[:begin], before, floor)(x)
    lasts = float(np.median((after - expected[begin:]) / std[begin:]))
    size = float(np.median(after - expected[begin:]))
    if abs(size) < SHIFT_SIZE * max(spread(before), floor) or abs(lasts) < 3.0:
        return None
    return Change("shift", begin, size, float(score / SHIFT), offset=size)


def _differ(x: Floats, y: Floats, middle: Ints, window: int) -> Floats:
    """Return how far the lines apart are that fit y to x right before and right after a bin."""
    variance = float(x.var()) or 1.0
    usual = float(((x - x.mean()) * (y - y.mean())).mean() / variance)

    def fitted(start: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        means = [
            (sums[start + window] - sums[start]) / window
            for sums in (np.append(0.0, np.cumsum(part)) for part in (x, y, x * x, x * y))
        ]
        mx, my, mxx, mxy = means
        slope = (mxy - mx * my + 0.1 * variance * usual) / (mxx - mx**2 + 0.1 * variance)
        return my - slope * mx, slope, mx, mxx

    (a, b, mx, mxx), (c, d, nx, nxx) = fitted(middle - window), fitted(middle)
    level, slope = c - a, d - b
    squared = level**2 + level * slope * (mx + nx) + slope**2 * 0.5 * (mxx + nxx)
    return np.sqrt(np.maximum(squared, 0.0))


def _dead(seen: Seen) -> Change | None:
    """Look for a bin from which on the series hardly moves, though the others do."""
    x, y, _, floor = seen
    n = len(y)
    tail = y[-max(int(FLAT_TAIL * n), 10) :]
    level, narrow = float(np.median(tail)), float(np.ptp(tail))
    away = np.flatnonzero(np.abs(y - level) > 2.0 * narrow + floor)
    begin = int(away[-1]) + 1 if len(away) else 0
    lasts = n - begin
    if begin < max(n // EDGE, 10) or lasts < max(FLAT_TAIL * n, 10):
        return None
    usual = spread(y[:begin])
    if narrow + floor > 4.0 * FLAT * usual or _was_as_flat(y[:begin], lasts, narrow + floor):
        return None
    expected, std = Relation(x[:begin], y[:begin], floor)(x[begin:])
    moved = float(np.ptp(expected) / np.median(std)) if np.ptp(x) else np.inf
    if moved < 3.0:
        return None
    return Change("dead", begin, narrow, usual / (narrow + floor), factor=0.0, offset=level)


def _was_as_flat(y: Floats, lasts: int, narrow: float) -> bool:
    """Tell whether a series moved as little before, for half as long."""
    window = min(max(lasts // 2, 5), len(y))
    views = np.lib.stride_tricks.sliding_window_view(y, window)[:: max(1, window // 8)]
    return bool((np.ptp(views, axis=1) <= 2.0 * narrow).any())
