"""Multiple imputation: how often the interval of a slope, pooled by Rubin's rules, holds the truth.

``python bench/multiple.py --json bench/results/multiple.json``: 200 simulated tables of three
sensors that follow each other, with memory in time; of two of them, three of ten readings are
lost. The first is regressed on the others. Intervals of 95 % come from 20 draws of
``DeviationImputer("bayes").sample``, from the table filled once by ``transform``, and from the
table without holes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from noisewise import DeviationImputer

SIMULATIONS, ROWS, DRAWS, LOST = 200, 150, 20, 0.3
SLOPES = np.array([1.0, -0.5])
SETTINGS = {"rank": 3, "sweeps": 100, "burn_in": 20, "tolerance": None}


def simulated(seed: int) -> tuple[Any, Any]:
    """Return a table, and the same with holes."""
    rng = np.random.default_rng([seed, 7])
    x = np.zeros((ROWS, 2))
    fresh = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.4], [0.4, 1.0]], ROWS)
    for row in range(1, ROWS):
        x[row] = 0.5 * x[row - 1] + np.sqrt(0.75) * fresh[row]
    y = x @ SLOPES + 0.8 * rng.normal(size=ROWS)
    whole = np.column_stack([y, x])
    holed = whole.copy()
    holed[rng.random(ROWS) < LOST, 0] = np.nan
    holed[rng.random(ROWS) < LOST, 1] = np.nan
    return whole, holed


def regression(table: Any) -> tuple[Any, Any, int]:
    """Return slopes, their variances and the degrees of freedom."""
    x = np.column_stack([np.ones(len(table)), table[:, 1:]])
    slopes, *_ = np.linalg.lstsq(x, table[:, 0], rcond=None)
    degrees = len(table) - x.shape[1]
    noise = ((table[:, 0] - x @ slopes) ** 2).sum() / degrees
    return slopes[1:], noise * np.linalg.inv(x.T @ x).diagonal()[1:], degrees


def pooled(tables: list[Any]) -> tuple[Any, Any]:
    """Return ends of intervals by Rubin's rules, with the degrees of Barnard and Rubin."""
    found = [regression(table) for table in tables]
    slopes, variances = (np.array(part) for part in list(zip(*found, strict=True))[:2])
    within, between = variances.mean(axis=0), slopes.var(axis=0, ddof=1)
    share = (1 + 1 / len(tables)) * between
    total = within + share
    degrees = (len(tables) - 1) * (total / share) ** 2
    known = found[0][2]
    observed = (known + 1) / (known + 3) * known * (1 - share / total)
    degrees = 1 / (1 / degrees + 1 / observed)
    half = stats.t.ppf(0.975, degrees) * np.sqrt(total)
    return slopes.mean(axis=0) - half, slopes.mean(axis=0) + half


def single(table: Any) -> tuple[Any, Any]:
    """Return ends of intervals of one table, as if nothing had been missing."""
    slopes, variances, degrees = regression(table)
    half = stats.t.ppf(0.975, degrees) * np.sqrt(variances)
    return slopes - half, slopes + half


def main() -> None:
    """Count how often intervals hold the slopes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    given = parser.parse_args()
    held: dict[str, list[Any]] = {"sample": [], "transform": [], "whole": []}
    widths: dict[str, list[Any]] = {name: [] for name in held}
    started = time.perf_counter()
    for seed in range(given.simulations):
        whole, holed = simulated(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            imputer = DeviationImputer(
                "bayes", settings=SETTINGS, random_state=seed, outliers="keep", scale=None
            ).fit(holed)
            ends = {
                "sample": pooled(imputer.sample(holed, DRAWS, random_state=seed)),
                "transform": single(imputer.transform(holed)),
                "whole": single(whole),
            }
        for name, (low, high) in ends.items():
            held[name].append((low < SLOPES) & (high > SLOPES))
            widths[name].append(high - low)
        record = {
            "command": "python bench/multiple.py",
            "date": datetime.now(UTC).date().isoformat(), "machine": platform.machine(),
            "cpus": os.cpu_count(), "simulations": seed + 1, "rows": ROWS, "draws": DRAWS,
            "lost": LOST, "settings": SETTINGS, "nominal": 0.95,
            "coverage": {name: float(np.mean(part)) for name, part in held.items()},
            "coverage_by_slope": {n: np.mean(part, axis=0).tolist() for n, part in held.items()},
            "width": {name: float(np.mean(part)) for name, part in widths.items()},
            "seconds": time.perf_counter() - started,
        }  # fmt: skip
        if seed % 10 == 9 or seed + 1 == given.simulations:
            given.json.write_text(json.dumps(record, indent=1) + "\n")
            print(seed + 1, record["coverage"], record["width"], flush=True)


if __name__ == "__main__":
    main()
