"""Time and memory of filling large tables with the defaults, and whether threads change a bit.

    python bench/imputation_speed.py [--method auto] [--threads 2] [--json FILE]

Tables are synthetic: hourly readings with a common course, a daily rhythm, a path of every series
and noise. A tenth of the cells is missing one by one, and as much in stretches of single series.
Every measurement is a process of its own; what numba compiles is rehearsed before it is timed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from table import Promise

SIZES = ((2_000, 50), (10_000, 100), (100_000, 100))
SECONDS = {(2_000, 50): 25.0, (10_000, 100): 150.0}
PER_CELL = 1.3  # cost of a cell of the largest table over that of the one before
MEGABYTES = 3_000.0

Row = dict[str, Any]


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--method", default="auto", help="of DeviationImputer (default: auto)")
    add("--threads", type=int, default=2, help="threads (default: 2)")
    add("--sizes", type=int, default=len(SIZES), help="only the smallest so many")
    add("--json", type=Path, help="file to write")
    add("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measured(**json.loads(chosen.one))))
        return
    if not 1 <= chosen.sizes <= len(SIZES):
        parser.error(f"--sizes must be from 1 to {len(SIZES)}; got {chosen.sizes}.")
    rows = []
    tasks = [(size, chosen.threads) for size in SIZES[: chosen.sizes]]
    for (times, series), threads in [*tasks, (SIZES[0], 1)]:
        task = {"times": times, "series": series, "threads": threads, "method": chosen.method}
        command = [sys.executable, __file__, "--one", json.dumps(task)]
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        rows.append(task | json.loads(found.splitlines()[-1]))
        print({k: v for k, v in rows[-1].items() if k != "reason"}, file=sys.stderr, flush=True)
    figures = promises(rows)
    for one in figures:
        sign = ">=" if one.at_least else "<="
        verdict = "kept" if one.kept else "MISSED"
        print(f"{one.figure:58}{one.value:10.2f}   {sign} {one.bound:g}  {verdict}")
    if chosen.json is not None:
        from noisewise.evaluation.records import where_and_when

        told = [one._asdict() | {"kept": one.kept} for one in figures]
        report = where_and_when() | {"figures": told, "measurements": rows}
        chosen.json.write_text(json.dumps(report, indent=1) + "\n")


def measured(times: int, series: int, threads: int, method: str) -> Row:
    """Fill one table, and tell what it took."""
    from imputation_worker import peak_mb, reset_peak

    from noisewise import DeviationImputer

    DeviationImputer(method, random_state=0, n_jobs=threads).fit_transform(table(400, 4))
    values = table(times, series)
    reset_peak()
    started, cpu = time.perf_counter(), time.process_time()
    imputer = DeviationImputer(method, random_state=0, n_jobs=threads).fit(values)
    fitted = time.perf_counter() - started
    filled, std = imputer.transform(values, return_std=True)
    seconds = time.perf_counter() - started
    return {
        "seconds": round(seconds, 2),
        "fit_seconds": round(fitted, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "microseconds_per_cell": round(1e6 * seconds / values.size, 2),
        "peak_mb": round(peak_mb()),
        "digest": hashlib.sha256(filled.tobytes() + std.tobytes()).hexdigest()[:16],
        "choice": imputer.chosen_,
        "reason": getattr(imputer.model_, "reason_", None),
        "load_average": os.getloadavg()[0],
    }


def table(times: int, series: int) -> Any:
    """Hourly readings with holes."""
    import numpy as np
    from scipy.signal import lfilter

    rng = np.random.default_rng([times, series])
    hours = np.arange(times)

    def paths(many: int, length: float) -> Any:
        phi = np.exp(-1 / length)
        steps = rng.normal(size=(times, many)) * np.sqrt(1 - phi**2)
        return lfilter([1.0], [1.0, -phi], steps, axis=0)

    day = np.sin(2 * np.pi * (hours[:, None] / 24 + rng.random(series)))
    common = paths(4, 50.0) @ rng.normal(size=(4, series)) / 2
    values = 20 + common + day * rng.uniform(0.3, 1, series) + 0.5 * paths(series, 10.0)
    values += 0.2 * rng.normal(size=values.shape)
    values[rng.random(values.shape) < 0.1] = np.nan
    for _ in range(times * series // 240):
        start, which = rng.integers(times - 24), rng.integers(series)
        values[start : start + 24, which] = np.nan
    return values


def promises(rows: list[Row]) -> list[Promise]:
    """Return the figures that are promised, as far as they were measured."""
    timed = {(row["times"], row["series"]): row for row in rows[:-1]}
    found = [
        Promise(f"{times:,} x {series}: seconds", timed[times, series]["seconds"], bound)
        for (times, series), bound in SECONDS.items()
        if (times, series) in timed
    ]
    if len(timed) == len(SIZES):
        smaller, largest = (timed[size] for size in SIZES[1:])
        cost = largest["microseconds_per_cell"] / smaller["microseconds_per_cell"]
        found += [
            Promise("100,000 x 100: cost of a cell over that in 10,000 x 100", cost, PER_CELL),
            Promise("100,000 x 100: peak memory, MB", largest["peak_mb"], MEGABYTES),
        ]
    same = rows[0]["digest"] == rows[-1]["digest"]
    return [*found, Promise("same bits with one thread (1 is yes)", float(same), 1.0, True)]


if __name__ == "__main__":
    main()
