"""How near cells are to readings: in time, to those of their own series; and how many others are.

Cells that are alike in both are about as hard to fill.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisewise.engine.arrays import Array, Ints

MOST_OCTAVES = 40  # halves of distances that are told apart
FEW = 0.3  # share of the series that are few


class Timed(NamedTuple):
    """Cells as series and times."""

    which: Ints
    when: Array


def reach(seen: Timed, asked: Timed, n: int) -> Array:
    """Return how far from cells readings of their series are, before and after together.

    It is half the harmonic mean of both distances; beyond the ends, the distance to the end.

    Examples
    --------
    >>> seen = Timed(np.array([0, 0, 1]), np.array([1.0, 5.0, 9.0]))
    >>> reach(seen, Timed(np.array([0, 1, 0]), np.array([2.0, 2.0, 9.0])), 2).tolist()
    [0.75, 7.0, 4.0]
    """
    if not len(asked.when):
        return np.zeros(0)
    order = np.lexsort([seen.when, seen.which])
    left, right = around(Timed(seen.which[order], seen.when[order]), asked, n)
    before, after = (np.abs(seen.when[order][at] - asked.when) for at in (left, right))
    total = before + after
    inside = before * after / np.where(total > 0, total, 1.0)
    return np.where(left == right, before, inside)


def around(entries: Timed, asked: Timed, n: int) -> tuple[Ints, Ints]:
    """Return which entries of their series, in order of series and time, cells are between.

    Beyond the ends of a series both are the same.
    """
    which, when = entries
    first = min(float(when.min()), float(asked.when.min()))
    length = max(float(when.max()), float(asked.when.max())) - first + 1e-9
    # A number for series and time that rises with both; a series stays within its own.
    in_order = which + 0.5 * (when - first) / length
    place = np.searchsorted(in_order, asked.which + 0.5 * (asked.when - first) / length)
    bounds = np.searchsorted(which, np.arange(n + 1))
    low, high = bounds[asked.which], bounds[asked.which + 1] - 1
    return np.clip(place - 1, low, high), np.clip(place, low, high)


def stratum(seen: Timed, asked: Timed, n: int, step: float, share: float = 1.0) -> Ints:
    """Return a number for cells that are alike: in ``reach``, and in how many others are read then.

    Reaches are told apart by half octaves, from that of half a step on; others by whether they are
    none, few or many; ``share`` is n over the series that could be.
    """
    octave = 2.0 * np.log2(np.clip(2.0 * reach(seen, asked, n) / step, 1.0, None))
    times, counts = np.unique(seen.when, return_counts=True)
    at = np.searchsorted(times, asked.when).clip(max=len(times) - 1)
    others = np.where(times[at] == asked.when, counts[at], 0) * share / n
    company = (others > 0).astype(np.int64) + (others > FEW)
    return np.minimum(np.rint(octave), MOST_OCTAVES).astype(np.int64) * 3 + company
