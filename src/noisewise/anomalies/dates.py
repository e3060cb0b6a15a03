"""When a change began, to the reading.

What is left of a series when what others let expect is taken away wanders: each of its readings
tells something of the next. A change is dated by what is new in each reading, with the tails of
Student's t: of all readings, the one from which on the change explains most is its first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisewise.anomalies.others import Relation
from noisewise.anomalies.tracks import NORMAL, middle, spread
from noisewise.data.timestamps import Floats

DEGREES = 4.0  # of freedom, of Student's t
ROUNDS = 3  # in which what a series was before and when it changed are found by turns
MOST = 0.99  # of what is left is there at the next step still, at most
CLIP = 4.0  # spreads that what is left counts at most, for that
FARTHEST = 1e100  # spreads, of which the square is a number still
EDGE = 20  # parts of a series: no change is looked for in the first and the last


class Path(NamedTuple):
    """The readings of a series, their times in steps, and what others said at these."""

    at: Floats
    y: Floats
    x: Floats  # 0 throughout where nobody says anything
    floor: float  # the least that two readings can differ by


class _Wander(NamedTuple):
    """How what is left goes on from one reading to the next."""

    kept: Floats  # share of the last that is there still
    new: Floats  # spread of what is new

    @classmethod
    def of(cls, left: Floats, at: Floats, many: int) -> _Wander:
        """Learn it from the first so many readings, by those that follow each other closely."""
        own, when = left[:many], at[:many]
        own = np.clip((own - np.median(own)) / (spread(own) or 1.0), -CLIP, CLIP)
        apart = np.diff(when)
        next_one = apart <= np.median(apart)
        both, before = (own[1:] * own[:-1])[next_one].sum(), (own[:-1][next_one] ** 2).sum()
        kept = min(max(both / before, 0.0), MOST) if before else 0.0
        kept = kept ** (np.diff(at) / float(np.median(apart)))
        return cls(kept, np.sqrt(np.maximum(1.0 - kept**2, 1e-6)))

    def white(self, column: Floats) -> Floats:
        """Return what is new in a column, from its second number on."""
        return (column[1:] - self.kept * column[:-1]) / self.new


def first_after(path: Path, kind: str, factor: float, offset: float, rough: int) -> int:
    """Return which reading is the first after a change, of which the place is roughly known.

    Factor and offset are what became of readings that would have been 1 and 0.
    """
    for _ in range(ROUNDS):
        if kind == "drift":
            place = _kink(path, rough)
        elif kind == "dead":
            place = _flat(path, offset, rough)
        else:
            place = _jump(path, factor, offset, rough)
        if place == rough:
            break
        rough = place
    return rough


def _fit(z: Floats) -> Floats:
    """Return the log likelihood of numbers, up to a constant."""
    off = np.clip(z, -FARTHEST, FARTHEST)
    return np.asarray(-0.5 * (DEGREES + 1.0) * np.log1p(off**2 / DEGREES))


def _jump(path: Path, factor: float, offset: float, rough: int) -> int:
    """Date another unit or another level, by where readings are and not by how lively they are."""
    at, y, x, floor = path
    natural = np.concatenate([y[:rough], (y[rough:] - offset) / factor])
    expected, std = Relation(x, natural, floor)(x)
    left = (natural - expected) / std
    wander = _Wander.of(left, at, len(y))
    std = std * np.sqrt(factor) * (spread(wander.white(left)) or 1.0)  # of both units alike
    a, b = (y - expected) / std, (y - factor * expected - offset) / std
    across = (b[1:] - wander.kept * factor * a[:-1]) / wander.new
    until, over, since = (_fit(one) for one in (wander.white(a), across, wander.white(b)))
    until = np.append(0.0, np.cumsum(until))[:-1]  # of all readings before the last one before
    total = until + over + np.append(np.cumsum(since[::-1])[::-1], 0.0)[1:]
    edge = max(len(total) // EDGE, 1)
    return edge + 1 + int(total[edge : len(total) - 1].argmax())


def _flat(path: Path, level: float, rough: int) -> int:
    """Date the first reading of those that hardly change any more."""
    at, y, x, floor = path
    expected, std = Relation(x[:rough], y[:rough], floor)(x)
    left = (y - expected) / std
    wander = _Wander.of(left, at, rough)
    new = wander.white(left)
    scale = (spread(new[: rough - 1]) or 1.0) * wander.new * std[1:]
    narrow = max(spread(y[rough:]), 0.1 * floor)
    before = _fit(new * wander.new * std[1:] / scale) - np.log(scale)
    after = _fit((y[1:] - level) / narrow) - np.log(narrow)
    gain = np.cumsum((after - before)[::-1])[::-1]
    edge = max(len(gain) // EDGE, 1)
    return edge + 1 + int(gain[edge : len(gain) - 1].argmax())


def _kink(path: Path, rough: int) -> int:
    """Date the beginning of a drift: a level, and a ramp from some reading on."""
    at, y, x, floor = path
    expected, std = Relation(x[:rough], y[:rough], floor)(x)
    wander = _Wander.of((y - expected) / std, at, rough)
    off = y - expected
    rest, level, slope = (wander.white(one / std) for one in (off, np.ones(len(at)), at))
    first = np.arange(len(at) // EDGE, len(at) - len(at) // EDGE - 1)
    begin, weight = at[first], np.ones(len(rest))

    def later(part: Floats) -> Floats:
        """Return the sum of what comes after each begin."""
        return np.cumsum(part[::-1])[::-1][first]

    for _ in range(ROUNDS):  # readings that are far off count less
        w2, w1, w0 = (later(weight * one) for one in (slope**2, slope * level, level**2))
        r1, r0 = later(weight * slope * rest), later(weight * level * rest)
        all0, all_r = (weight * level**2).sum(), (weight * level * rest).sum()
        common = w1 - begin * w0
        squares = w2 - 2.0 * begin * w1 + begin**2 * w0 - common**2 / all0
        products = r1 - begin * r0 - common * all_r / all0
        gain = np.divide(products**2, squares, out=np.zeros(len(first)), where=squares > 0.0)
        best = int(gain.argmax())
        by_step = products[best] / squares[best] if gain[best] else 0.0
        ramp = np.where(np.arange(len(rest)) >= first[best], slope - begin[best] * level, 0.0)
        left = rest - by_step * ramp - (all_r - by_step * common[best]) / all0 * level
        scale = NORMAL * middle(np.abs(left)) or 1.0
        weight = (DEGREES + 1.0) / (DEGREES + (left / scale) ** 2)
    return int(first[best])
