"""Charts of series that a browser draws: what a page has of them, in few bytes.

A reading is a whole number of two bytes between the lowest and the highest of its series, the
bounds of an interval are one byte each. Series that are too long for the page are thinned: of every
stretch its lowest and its highest reading stay, and one gap.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.errors import DataError, printable
from noisewise.report.page import Markup, Script, resource

BUDGET = 7_400_000  # bytes of all series together
PER_POINT = 2.9  # bytes of a reading, with its share of what else there is
PER_TIME = 2.7  # bytes of its time, where regular series are thinned
PER_GAP = 2.7  # and of the ends of an interval
LEVELS = 65_534  # of a reading; 0 is for nothing
MOST_ODD = 300  # marks in a chart

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BAR = Markup(
    """<div id="charts" hidden>
<div class="bar" role="toolbar" aria-label="charts">
<label><span>Order</span> <select id="order"><option value="gap">longest gap first</option>
<option value="odd">oddest first</option><option value="noise">noisiest first</option>
<option value="name">by name</option></select></label>
<label><span>Find</span> <input id="search" type="search" placeholder="part of a name"></label>
<span class="zoom"><button id="earlier" aria-label="earlier">&larr;</button>
<button id="farther" aria-label="zoom out">&minus;</button>
<button id="nearer" aria-label="zoom in">+</button>
<button id="later" aria-label="later">&rarr;</button>
<button id="whole">whole</button></span>
<output id="shown"></output>
</div>
<p class="key"><span><i></i>read</span>
<span><i class="was-filled"></i>filled, with its interval</span>
<span><i class="is-odd"></i>odd</span></p>
<div id="series-list"></div>
<p id="none" hidden>No series has such a name.</p>
</div>
<noscript><p>The charts need JavaScript, which this browser does not run.</p></noscript>
"""
)


class Odd(NamedTuple):
    """What is odd in a series, from a time to another."""

    kind: str
    start: float
    end: float
    value: float  # of a spike
    words: str


@dataclass(frozen=True, eq=False)
class Trace:
    """One series: when it should have been read, what was, and what was put into its gaps."""

    name: str
    time: Floats  # in order: numbers, or seconds since 1970 if `dates`
    value: Floats  # NaN in gaps
    mean: Floats  # what was filled in, and the ends of its intervals; NaN where there is a reading
    low: Floats
    high: Floats
    dates: bool = False
    sensor: str = "readings"  # what it measures, and so the unit that it is in
    noise: float = np.nan  # by ``noisewise.noisy_series``; NaN if it was never read
    white: float = np.nan
    drift: float = np.nan
    white_std: float = np.nan  # in units of the readings, as is the next
    drift_std: float = np.nan
    odd: tuple[Odd, ...] = ()

    def __post_init__(self) -> None:
        parts = (self.time, self.value, self.mean, self.low, self.high)
        if not len(self.time) or len({len(part) for part in parts}) > 1:
            raise DataError(
                f"Series {self.name!r} needs one value, mean, low and high for each of its times."
            )

    @property
    def filled(self) -> NDArray[np.bool_]:
        """Which of its cells were gaps."""
        return ~np.isnan(self.mean)

    @property
    def counts(self) -> tuple[int, int]:
        """How many readings it has, and how many gaps were filled."""
        return int((~np.isnan(self.value)).sum()), int(self.filled.sum())

    def gaps(self) -> tuple[Ints, Ints]:
        """Return the first and the last cell of every stretch without a reading."""
        missing = np.concatenate([[False], np.isnan(self.value), [False]]).astype(np.int8)
        edges = np.diff(missing)
        return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1

    def lasts(self, first: Ints, last: Ints) -> Floats:
        """Return how long gaps last: from the reading before to the one after."""
        ends = np.minimum(last + 1, len(self.time) - 1)
        return self.time[ends] - self.time[np.maximum(first - 1, 0)]


def script_of(series: Sequence[Trace], words: Sequence[str], coverage: float) -> Script:
    """Return the script that draws series, with all that it needs to know of them."""
    grids: dict[bytes, int] = {}
    times: list[dict[str, Any]] = []
    entries = []
    filled = sum(one.counts[1] for one in series)
    share = filled / max(sum(len(one.time) for one in series), 1)
    longest = max(len(one.time) for one in series)
    room, per = BUDGET / len(series), PER_POINT + PER_GAP * share
    points = longest if longest * per <= room else int(room / (per + PER_TIME))
    for number, (one, said) in enumerate(zip(series, words, strict=True)):
        keep = kept(one, points)
        time = one.time[keep]
        grid = grids.setdefault(time.tobytes(), len(grids))
        if grid == len(times):
            times.append(_times(time, one.time))
        first, last = one.gaps()
        entries.append(
            {
                "i": number,
                "n": printable(one.name),
                "w": printable(said),
                "t": grid,
                "g": float(one.lasts(first, last).max(initial=0.0)),
                "z": -1.0 if np.isnan(one.noise) else one.noise,
                "o": [_odd(odd, time) for odd in one.odd[:MOST_ODD]],
                **_coded(one, keep),
            }
        )
    ends = [float(f(one.time[k] for one in series)) for f, k in ((min, 0), (max, -1))]
    if ends[0] == ends[1]:
        ends = [ends[0] - 1.0, ends[1] + 1.0]
    data = {
        "span": ends, "dates": bool(series[0].dates), "coverage": round(100 * coverage, 2),
        "times": times, "series": entries,
    }  # fmt: skip
    return Script(resource("series.js"), "series-data", data)


def kept(trace: Trace, points: int) -> Ints:
    """Return the cells of a series that a page can hold: all, or the extremes of stretches."""
    n = len(trace.time)
    if n <= points:
        return np.arange(n)
    cuts = np.linspace(0, n, max(points // 3, 1) + 1).astype(np.int64)[:-1]
    stretch = np.searchsorted(cuts, np.arange(n), side="right") - 1
    places = [np.searchsorted(trace.time, [odd.start for odd in trace.odd]).astype(np.int64)]
    for part in (trace.value, -trace.value):
        order = np.lexsort([part, stretch])
        order = order[~np.isnan(part[order])]
        places.append(order[np.unique(stretch[order], return_index=True)[1]])
    holes = np.flatnonzero(trace.filled)
    places.append(holes[np.unique(stretch[holes], return_index=True)[1]])
    return np.unique(np.concatenate([*places, [0, n - 1]]).clip(0, n - 1))


def _coded(trace: Trace, keep: Ints) -> dict[str, Any]:
    """Return readings and intervals as bytes in base64."""
    filled = trace.filled[keep]
    value = np.where(filled, trace.mean[keep], trace.value[keep])
    known = ~np.isnan(value)
    low, high = (float(f(value[known])) if known.any() else 0.0 for f in (np.min, np.max))
    size = high - low or 1.0
    code = np.zeros(len(value), dtype="<u2")
    code[known] = 1 + np.rint((value[known] - low) / size * LEVELS)
    holes = filled & known
    reach = (value - trace.low[keep])[holes], (trace.high[keep] - value)[holes]
    below, above = (
        np.rint(255 * np.sqrt(np.clip(part / size, 0.0, 1.0))).astype(np.uint8) for part in reach
    )
    return {
        "lo": low, "hi": low + size, "v": _text(code), "b": _text(below), "a": _text(above),
        "f": _text(np.packbits(holes, bitorder="little")),
    }  # fmt: skip


def _odd(odd: Odd, time: Floats) -> dict[str, Any]:
    place = min(int(np.searchsorted(time, odd.start)), len(time) - 1)
    value = None if np.isnan(odd.value) else odd.value
    entry = {"k": odd.kind, "s": odd.start, "e": odd.end, "p": place, "v": value}
    return entry | {"w": printable(odd.words)}


def _times(time: Floats, whole: Floats) -> dict[str, Any]:
    """Return times as a start and steps, if the whole series is regular; else all of them."""
    steps = np.diff(whole)
    if len(time) > 1 and np.ptp(steps) <= 1e-9 * np.abs(steps).max():
        step = float(steps.mean())
        skips = np.diff(np.rint((time - time[0]) / step), prepend=0.0)
        found = {"start": float(time[0]), "step": step, "n": len(time)}
        if skips[1:].max() == 1:
            return found
        if skips.max() < 2**16:
            return found | {"skips": _text(skips.astype("<u2"))}
    return {"raw": _text(time.astype("<f8"))}


def _text(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()
