"""A table that was filled, taken apart into its series, with what is odd in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from noisewise.anomalies.find import anomalies_of
from noisewise.data import Observations
from noisewise.data.tables_with_holes import LabelledArray
from noisewise.data.timestamps import Floats, are_dates
from noisewise.gaps import Table
from noisewise.report.charts import Odd, Trace

Ids = tuple[Any, ...]
FEWEST = 2  # readings among which anything can be odd


def traces(
    cells: LabelledArray,
    parts: Sequence[Floats],
    odd: Mapping[Ids, tuple[Odd, ...]],
    noise: Mapping[Ids, Sequence[float]] | None = None,
) -> list[Trace]:
    """Take a table apart; ``parts`` are the filled table and the ends of intervals.

    What is odd, and the noise of a series as ``Trace`` has it, are by the ids of series.
    """
    whole = cells.cells(np.arange(cells.values.size))
    keys, which = np.unique(np.column_stack(whole.codes[:-1]), axis=0, return_inverse=True)
    when = whole.ids[-1].labels[whole.codes[-1]].astype(np.float64)
    order = np.lexsort([when, which.ravel()])
    starts = np.searchsorted(which.ravel()[order], np.arange(1, len(keys)))
    found = []
    for key, rows in zip(keys, np.split(order, starts), strict=True):
        ids = tuple(mode.ids.labels[k] for mode, k in zip(cells.modes, key, strict=False))
        value = cells.values.ravel()[rows]
        hole = np.isnan(value)
        mean, low, high = (np.where(hole, part.ravel()[rows], np.nan) for part in parts)
        known = (noise or {}).get(ids, (np.nan,) * 5)
        sensor = "readings" if cells.sensor is None else str(ids[cells.sensor])
        name = " ".join(map(str, ids))
        own: Any = (name, when[rows], value, mean, low, high, are_dates(cells.clock), sensor)
        more: Any = (*known, odd.get(ids, ()))
        found.append(Trace(*own, *more))
    return found


def odd_of_table(cells: LabelledArray, seen: Observations) -> dict[Ids, tuple[Odd, ...]]:
    """Return what is odd in the readings of a table, by the ids of series."""
    if len(seen) < FEWEST:
        return {}
    return odd_by_series(anomalies_of(seen, cells.clock), cells.names[:-1])


def odd_by_series(table: Table, names: Sequence[str]) -> dict[Ids, tuple[Odd, ...]]:
    """Return the rows of a table of what is odd, by the ids of series."""
    found: dict[Ids, tuple[Odd, ...]] = {}
    ends = [_numbers(table[name]) for name in ("start", "end")]
    ids = [table[name] for name in names]
    rows = zip(table["kind"], *ends, table["value"], table["words"], strict=True)
    for own, row in zip(zip(*ids, strict=True), rows, strict=True):
        found[own] = (*found.get(own, ()), Odd(*row))
    return found


def _numbers(column: Any) -> list[float]:
    """Return times as numbers, dates as seconds."""
    if column.dtype.kind == "M":
        column = column.astype("datetime64[us]").astype(np.int64) / 1e6
    return [float(entry) for entry in column]
