"""Tables with holes whose truth is known: AQI-36, ImputeBench, London, Intel, and unseen ones.

Needs numpy alone, so that any peer's environment can make them; London and Intel are read by
noisewise. Masks depend on the shape of a table, the scenario and a number, on nothing else.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from imputation_small import SMALL, small
from imputation_unseen import UNSEEN, unseen, unseen_holes

Floats = Any
Bools = Any

TABLES = ("airq", "chlorine", "gas_drift", "electricity", "bafu", "temperature", "meteo")
TENSORS = {  # name: tensor of the reproduction, its file, seconds of an outage
    "london": ("london-paper-size", "london_laqn_daily.npz"),
    "intel": ("intel-2epoch", "intel_lab_5days.npz"),
}
SIX = ("cells", "blocks", "one", "disjoint", "overlap", "blackout")
ROWS = {"rows1": 1, "rows6": 6}
SCENARIOS = (*SIX, *ROWS)
BLACKOUTS = (10, 30, 100)  # rows, by the number of the mask
LOST = 0.05  # share of rows that are lost in "rows1" and "rows6"


class Case(NamedTuple):
    """A table with holes, and what was in those that are asked for.

    Time is the last axis of a tensor, and the first of a table.
    """

    values: Floats  # NaN in holes
    truth: Floats
    asked: Bools  # holes that are scored
    scale: Floats  # units of errors, of every series; broadcasts against values
    stamps: Any = None  # datetime64 of every row, where the data have them

    @property
    def time(self) -> int:
        """The axis of time."""
        return 0 if self.values.ndim == 2 else self.values.ndim - 1


def case(data: Path, dataset: str, scenario: str, mask: int) -> Case:
    """Make the table of a dataset with the holes of a scenario."""
    if dataset == "aqi36":
        return aqi36(data)
    if dataset in SMALL:
        return _small(dataset, mask)
    if dataset in UNSEEN:
        return _unseen(dataset, scenario, mask)
    if dataset in TENSORS:
        truth, scale = tensor(data, dataset)
        lost = lost_rows(truth.shape[-1], ROWS[scenario], mask)
        asked = lost & ~np.isnan(truth)
        return Case(np.where(lost, np.nan, truth), truth, asked, scale)
    with np.load(data / "imputebench.npz") as tables:
        truth = tables[dataset].astype(np.float64)
    hidden = holes(truth.shape, scenario, mask)
    return Case(np.where(hidden, np.nan, truth), truth, hidden, np.ones(truth.shape[1]))


def aqi36(data: Path) -> Case:
    """PM2.5 of 36 stations with the mask that published models are measured with."""
    with np.load(data / "aqi36.npz") as found:
        values, truth = (found[name].astype(np.float64) for name in ("value", "truth"))
        stamps = found["time"].astype("datetime64[s]")
        return Case(values, truth, found["is_test"], np.ones(values.shape[1]), stamps)


def _small(kind: str, seed: int) -> Case:
    """A small table; errors are in stds of a series."""
    readings, truth, stamps = small(kind, seed)
    spread = truth.std(axis=0 if truth.ndim == 2 else -1, keepdims=True)
    scale = np.where(spread > 0, spread, 1.0)
    return Case(readings, truth, np.isnan(readings), scale, stamps)


def _unseen(name: str, scenario: str, mask: int) -> Case:
    """A table of another package; errors are in stds of a series."""
    truth = unseen(name)
    hidden = unseen_holes(truth.shape, scenario, mask)
    asked = hidden & ~np.isnan(truth)
    return Case(np.where(hidden, np.nan, truth), truth, asked, np.nanstd(truth, axis=0))


@lru_cache(maxsize=1)
def tensor(data: Path, dataset: str) -> tuple[Floats, Floats]:
    """Return locations x sensors x times with NaN, and the std of every sensor."""
    from noisewise.data.panel import SENSOR, named_panel
    from noisewise.evaluation.sensors import sensor_units

    name, file = TENSORS[dataset]
    panel = named_panel(name, data / file)
    seen = panel.observations
    step = np.rint(seen.ids[-1].labels.astype(np.float64)).astype(np.int64)
    truth = np.full((*seen.shape[: SENSOR + 1], int(np.ptp(step)) + 1), np.nan)
    truth[(*seen.codes[:-1], (step - step.min())[seen.codes[-1]])] = seen.values
    return truth, sensor_units(panel)[1][:, None]


def holes(shape: tuple[int, int], scenario: str, mask: int) -> Bools:
    """Return which cells of times x series are hidden, as ImputeBench hides them."""
    times, series = shape
    if scenario in ROWS:
        return np.repeat(lost_rows(times, ROWS[scenario], mask)[:, None], series, axis=1)
    rng = np.random.default_rng([mask, SIX.index(scenario), times, series])
    hidden = np.zeros(shape, dtype=bool)
    if scenario == "cells":  # a fifth, each by itself
        return rng.random(shape) < 0.2
    if scenario == "blocks":  # stretches of ten steps, a tenth of the table
        for _ in range(int(0.1 * times * series / 10)):
            which, start = rng.integers(series), rng.integers(times - 10)
            hidden[start : start + 10, which] = True
    elif scenario == "one":  # a tenth of one series at once
        which, length = rng.integers(series), times // 10
        edge = int(0.05 * times)
        start = rng.integers(edge, times - length - edge)
        hidden[start : start + length, which] = True
    elif scenario in ("disjoint", "overlap"):  # all series, one after the other
        length = max(times // series, 1)
        until = {"disjoint": 1, "overlap": 2}[scenario]
        for k, which in enumerate(rng.permutation(series)):
            hidden[k * length : (k + until) * length, which] = True
    else:  # all series at once
        length = BLACKOUTS[mask % len(BLACKOUTS)]
        start = rng.integers(times // 10, times - length - times // 10)
        hidden[start : start + length] = True
    return hidden


def lost_rows(times: int, length: int, mask: int) -> Bools:
    """Return the rows at which nobody measured: a twentieth, in stretches that do not touch."""
    rng = np.random.default_rng([mask, len(SIX), times, length])
    edges = np.linspace(1, times - 1, max(int(LOST * times / length), 1) + 1).astype(int)
    lost = np.zeros(times, dtype=bool)
    for low, high in pairwise(edges):
        start = rng.integers(low, high - length)
        lost[start : start + length] = True
    return lost
