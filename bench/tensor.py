"""Time tensors: ``python bench/tensor.py [--quick] [--rounds N] [--london FILE] [--json FILE]``.

1. Numbers per second that the kernels of three modes and of two touch, on the same readings: as a
   tensor of location, sensor and time, and as a matrix of series and time. They are drawn with the
   shape of the London tensor, or are those of the London file.
2. Peak memory of fitting 5 million observed cells of a tensor of 1,000 x 100,000 x 10, held-out
   cells and a second training on everything included; a dense copy would take 4 GB.

An observation touches, in each of its modes, one row: ``rank + deviation_rank`` factors, and as
many sums with AdaGrad per coordinate. All of them are read and written. Padding is not counted,
biases are not counted. So an observation of three modes counts half as much again as one of two.
Every measurement is a process of its own, and a round goes over all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from data import Ratings, load, store
from measure import _megabytes
from table import Promise

from noisewise import DeviationFactorizer
from noisewise.data.panel import named_panel
from noisewise.evaluation.records import where_and_when
from noisewise.splits import share_split

LONDON = (15, 19, 7_479)
SERIES = 90  # pairs of location and sensor that exist
SHARE = 0.2  # of all cells, for training
SPARSE, OBSERVED = (1_000, 100_000, 10), 5_000_000
RANK, DEVIATION_RANK, THREADS, EPOCHS = 32, 8, 2, 30
SPARSE_EPOCHS = 2
RATIO_AIM, MEMORY_AIM = 0.7, 600.0  # MB
HANGS = 600  # seconds

Task = dict[str, Any]


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test on few readings")
    parser.add_argument("--rounds", type=int, default=5, help="repeats (default: 5)")
    parser.add_argument("--london", type=Path, help="the London data, as noisewise reads it")
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)  # what the processes run
    chosen = parser.parse_args()
    if chosen.measure:
        task, out = chosen.measure
        Path(out).write_text(json.dumps(measured(**json.loads(task))))
        return
    if chosen.rounds < 1:
        parser.error(f"--rounds must be 1 or more; got {chosen.rounds}.")
    began, load_before = time.monotonic(), os.getloadavg()
    shrink = 20 if chosen.quick else 1
    with tempfile.TemporaryDirectory(prefix="noisewise-bench-") as name:
        folder = Path(name)
        readings = london(chosen.london) if chosen.london else drawn_readings(shrink, seed=0)
        store(folder / "tensor", readings)
        store(folder / "matrix", as_matrix(readings))
        store(folder / "sparse", sparse_cells(OBSERVED // shrink, seed=0))
        rounds = 1 if chosen.quick else chosen.rounds
        measurements = [run(task, folder) for task in plan(rounds)]
    rows, figures = summary(measurements), promises(measurements)
    if chosen.quick:
        figures = [figure._replace(bound=None) for figure in figures]
    print(as_text(rows, figures))
    if chosen.quick:
        print(
            "\nA quick run is a smoke test: there are few readings and these figures mean nothing."
        )
    if chosen.json is not None:
        report = where_and_when() | {
            "settings": {
                "quick": chosen.quick, "rounds": rounds, "epochs": EPOCHS, "rank": RANK,
                "deviation_rank": DEVIATION_RANK, "threads": THREADS, "sparse_shape": SPARSE,
                "readings": "London" if chosen.london else "drawn, of London's shape",
            },
            "minutes": round((time.monotonic() - began) / 60, 1),
            "load_average": {"before": load_before, "after": os.getloadavg()},
            "table": rows,
            "figures": [figure._asdict() | {"kept": figure.kept} for figure in figures],
            "measurements": measurements,
        }  # fmt: skip
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(report, indent=1) + "\n")


def measured(data: str, adagrad: Any, epochs: int, folder: str) -> Task:
    """Fit, and time the epochs after the first; only the sparse tensor has cells held out."""
    readings = load(Path(folder) / data)
    model = DeviationFactorizer(
        RANK, deviation_rank=DEVIATION_RANK, adagrad=adagrad, epochs=1 + epochs, warmup=0, l2=0.002,
        patience=1 + epochs if data == "sparse" else None, n_jobs=THREADS, random_state=0,
    )  # fmt: skip
    baseline = _megabytes("VmRSS")
    model.fit(*readings)
    curve = model.learning_curve_
    observations, modes = readings.cells.shape
    touched = modes * (RANK + DEVIATION_RANK) * (2 if adagrad == "coordinate" else 1)
    seconds = median(curve["seconds"][1:])
    return {
        "observations": observations,
        "numbers_per_observation": touched,
        "seconds_per_epoch": seconds,
        "numbers_per_second": touched * observations / seconds,
        "train_rmse": curve["train_rmse"][-1],
        "baseline_mb": baseline,
        "peak_mb": _megabytes("VmHWM"),
    }


def plan(rounds: int) -> list[Task]:
    """Return tasks in the order to run them; every second round goes backwards."""
    pairs = [(data, adagrad) for adagrad in ("coordinate", "row") for data in ("matrix", "tensor")]
    tasks: list[Task] = []
    for round_ in range(-1, rounds):  # one round to rehearse: what numba compiles is kept
        for data, adagrad in pairs[:: -1 if round_ % 2 else 1]:
            epochs = 2 if round_ < 0 else EPOCHS
            tasks.append({"data": data, "adagrad": adagrad, "epochs": epochs, "round": round_})
    sparse = {"data": "sparse", "adagrad": "coordinate", "epochs": SPARSE_EPOCHS, "round": 0}
    return [*tasks, sparse]


def run(task: Task, folder: Path) -> Task:
    """Run one task in a process of its own."""
    arguments = {k: v for k, v in task.items() if k != "round"} | {"folder": str(folder)}
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment["NUMBA_CACHE_DIR"] = str(folder / "compiled")
    out = folder / "out.json"
    command = [sys.executable, __file__, "--measure", json.dumps(arguments), str(out)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=HANGS, check=False
    )
    if done.returncode:
        raise SystemExit(f"{task} failed with status {done.returncode}:\n{done.stderr}")
    result: Task = task | json.loads(out.read_text())
    speed = result["numbers_per_second"] / 1e9
    print(f"{task}: {speed:.2f} G numbers/s, {result['peak_mb']:.0f} MB", file=sys.stderr)
    return result


def drawn_readings(shrink: int, seed: int) -> Ratings:
    """Draw readings of series that each run for a while, in random order."""
    rng = np.random.default_rng(seed)
    locations, sensors, times = LONDON
    n = int(SHARE * locations * sensors * times) // shrink
    runs = [
        series * times + np.arange(rng.integers(times // 2), times)
        for series in rng.permutation(locations * sensors)[:SERIES]
    ]
    cells = rng.permutation(np.concatenate(runs))[:n]
    return _with_values(cells, LONDON, rng)


def london(path: Path) -> Ratings:
    """Return what is for training in split 0 of the London tensor, in units of each sensor."""
    seen = named_panel("london-paper-size", path).observations
    train = seen.take(share_split(seen.shape, seen.codes, SHARE, 0).fit)
    kind = train.codes[1]
    count = np.bincount(kind)
    mean = np.bincount(kind, train.values) / count
    std = np.sqrt(np.bincount(kind, (train.values - mean[kind]) ** 2) / count)
    values = (train.values - mean[kind]) / std[kind]
    return Ratings(np.column_stack(train.codes), values.astype(np.float32))


def as_matrix(readings: Ratings) -> Ratings:
    """Return the same readings by series and time."""
    location, sensor, when = readings.cells.T
    return Ratings(np.column_stack([location * (sensor.max() + 1) + sensor, when]), readings.values)


def sparse_cells(n: int, seed: int) -> Ratings:
    """Draw n different cells of a tensor that is nearly empty."""
    rng = np.random.default_rng(seed)
    cells = np.unique(rng.integers(0, np.prod(SPARSE), n + n // 100))
    return _with_values(rng.permutation(cells)[:n], SPARSE, rng)


def _with_values(
    cells: npt.NDArray[np.int64], shape: tuple[int, ...], rng: np.random.Generator
) -> Ratings:
    codes = np.unravel_index(cells, shape)
    signal = np.prod(
        [rng.normal(size=n)[code] for n, code in zip(shape, codes, strict=True)], axis=0
    )
    values = signal + 0.3 * rng.normal(size=len(cells))
    return Ratings(np.column_stack(codes).astype(np.int32), values.astype(np.float32))


def summary(measurements: list[Task]) -> list[Task]:
    """One row per data and optimiser: medians over rounds."""
    rows: dict[tuple[str, str], list[Task]] = {}
    for one in measurements:
        if one["round"] >= 0:
            rows.setdefault((one["adagrad"], one["data"]), []).append(one)
    return [
        {
            "data": data,
            "adagrad": adagrad,
            "rounds": len(runs),
            "observations": runs[0]["observations"],
            "seconds_per_epoch": median(run["seconds_per_epoch"] for run in runs),
            "numbers_per_second": median(run["numbers_per_second"] for run in runs),
            "peak_mb": max(run["peak_mb"] for run in runs),
            "above_baseline_mb": max(run["peak_mb"] - run["baseline_mb"] for run in runs),
            "train_rmse": median(run["train_rmse"] for run in runs),
        }
        for (adagrad, data), runs in rows.items()
    ]


def promises(measurements: list[Task]) -> list[Promise]:
    """Return what is aimed at. A ratio is taken within a round, before the median."""
    speed = {
        (run["adagrad"], run["data"], run["round"]): run["numbers_per_second"]
        for run in measurements
    }
    rounds = range(max(run["round"] for run in measurements) + 1)
    found = []
    for adagrad in ("coordinate", "row"):
        ratios = [speed[adagrad, "tensor", r] / speed[adagrad, "matrix", r] for r in rounds]
        figure = f"numbers per second, three modes over two, adagrad={adagrad!r}"
        found.append(Promise(figure, median(ratios), RATIO_AIM, at_least=True))
    (sparse,) = (run for run in measurements if run["data"] == "sparse")
    above = sparse["peak_mb"] - sparse["baseline_mb"]
    return [*found, Promise("sparse tensor: MB beside imports and readings", above, MEMORY_AIM)]


def as_text(rows: list[Task], figures: list[Promise]) -> str:
    """Return the table, and the figures below."""
    title = f"rank {RANK} + {DEVIATION_RANK}, {THREADS} threads"
    lines = [f"{title:26}{'M obs/s':>10}{'G numbers/s':>13}{'peak MB':>9}{'above':>7}{'rmse':>8}"]
    for row in rows:
        speed = row["observations"] / row["seconds_per_epoch"] / 1e6
        lines.append(
            f"{row['data'] + ', ' + row['adagrad']:26}{speed:10.2f}"
            f"{row['numbers_per_second'] / 1e9:13.2f}{row['peak_mb']:9.0f}"
            f"{row['above_baseline_mb']:7.0f}{row['train_rmse']:8.3f}"
        )
    lines += ["", f"{'figure':66}{'value':>9}{'aim':>10}"]
    for figure in figures:
        sign = ">=" if figure.at_least else "<="
        aim = "-" if figure.bound is None else f"{sign} {figure.bound:g}"
        verdict = {True: "  kept", False: "  MISSED", None: ""}[figure.kept]
        lines.append(f"{figure.figure:66}{figure.value:9.2f}{aim:>10}{verdict}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
