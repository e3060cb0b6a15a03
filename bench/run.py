"""Time noisewise and its peers: ``python bench/run.py [--quick] [--rounds N] [--json FILE]``.

Every measurement is a process of its own. A round goes over all systems before the next begins, so
that a slow minute of the machine hits all alike.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

from data import SHAPES, Shape, ratings, store
from systems import SYSTEMS, System
from table import as_text, promises, summary

HERE = Path(__file__).parent
EPOCHS = {"ml-1m": {32: 20, 100: 10}, "ml-10m": {32: 3, 100: 2}}  # timed, by rank
LARGE_EVERY = 3  # rounds
GROUPS = list(product(SHAPES, (32, 100), (1, 2)))  # shape, rank, threads
QUICK_GROUPS = [("ml-1m", 32, 1), ("ml-10m", 32, 2)]
QUICK_SHRINK = {"ml-1m": 10, "ml-10m": 30}
QUICK_EPOCHS = 50
SECONDS = {"small": 45, "ml-1m": 45, "ml-10m": 180}  # after which a process is taken to hang
TRIES = 5  # one fit of libmf in a hundred or so waits for itself for ever
PACKAGES = (
    "noisewise", "cornac", "libmf", "implicit", "scikit-surprise", "numpy", "scipy", "numba",
    "scikit-learn",
)  # fmt: skip

Task = dict[str, Any]


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Help)
    parser.add_argument("--quick", action="store_true", help="a smoke test on tiny ratings")
    parser.add_argument("--rounds", type=int, default=5, help="repeats; ml-10m gets a third")
    parser.add_argument("--json", type=Path, help="file to write")
    chosen = parser.parse_args()
    if chosen.rounds < 1:
        parser.error(f"--rounds must be 1 or more; got {chosen.rounds}.")
    if chosen.json is not None:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)

    rounds = 1 if chosen.quick else chosen.rounds
    shapes = {n: s.shrunk(QUICK_SHRINK[n]) if chosen.quick else s for n, s in SHAPES.items()}
    began = time.monotonic()
    report = _header(shapes, chosen.quick, rounds)
    measurements: list[Task] = []
    with tempfile.TemporaryDirectory(prefix="noisewise-bench-") as name:
        folder = Path(name)
        for shape, size in ({"small": SHAPES["ml-1m"].shrunk(20)} | shapes).items():
            store(folder / shape, ratings(size, seed=0))
        for task in _plan(QUICK_GROUPS if chosen.quick else GROUPS, rounds, chosen.quick):
            result = _measured(task, folder)
            measurements.append(task | result)
            _say(f"{time.monotonic() - began:5.0f} s  {_line(task, result)}")
    rows = summary(measurements)
    figures = promises(rows, measurements)
    if chosen.quick:
        figures = [figure._replace(bound=None) for figure in figures]
    report |= {
        "minutes": round((time.monotonic() - began) / 60, 1),
        "load_average_after": os.getloadavg(),
        "table": rows,
        "figures": [figure._asdict() | {"kept": figure.kept} for figure in figures],
        "measurements": measurements,
    }
    print(as_text(rows, figures))
    if chosen.quick:
        print("\nA quick run is a smoke test: the ratings are tiny and these figures mean nothing.")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(report, indent=1) + "\n")


def _plan(groups: list[tuple[str, int, int]], rounds: int, quick: bool) -> Iterator[Task]:
    """Yield tasks in the order to run them."""
    if not quick:  # a rehearsal: every system runs once, and what numba compiles is kept
        for system in SYSTEMS:
            yield _train(system, "ml-1m", 32, 1, 2, -1) | {"task": "rehearse"}
    for round_ in range(rounds):
        for shape, rank, threads in groups:
            present = [n for n in SYSTEMS if _takes_part(SYSTEMS[n], shape, threads, round_)]
            for system in present[:: -1 if round_ % 2 else 1]:
                epochs = QUICK_EPOCHS if quick else EPOCHS[shape][rank]
                yield _train(system, shape, rank, threads, epochs, round_)
        yield {"task": "start", "round": round_}
        yield {"task": "start from cache", "round": round_}
        if round_ % LARGE_EVERY == 0:
            yield {"task": "serve", "round": round_, "shape": "ml-10m", "rank": 100}


def _takes_part(system: System, shape: str, threads: int, round_: int) -> bool:
    if system.one_thread and threads > 1:
        return False
    if shape == "ml-10m":
        return round_ == 0 if system.slow_to_load else round_ % LARGE_EVERY == 0
    return True


def _train(system: str, shape: str, rank: int, threads: int, epochs: int, round_: int) -> Task:
    """Return the task to train a system; a slow one runs fewer epochs."""
    epochs = max(1, round(epochs * SYSTEMS[system].pace))
    where = {"shape": shape, "rank": rank, "threads": threads, "epochs": epochs}
    return {"task": "train", "round": round_, "system": system} | where


def _measured(task: Task, folder: Path) -> Task:
    """Run one task in a process of its own."""
    kind = task["task"].split()[0].replace("rehearse", "train")
    arguments = {k: v for k, v in task.items() if k not in ("task", "round", "shape")}
    arguments |= {"task": kind, "folder": str(folder / task.get("shape", "small"))}
    cache = folder / (f"compiled-{task['round']}" if kind == "start" else "compiled")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    if kind == "train":  # threads are the system's own; those of BLAS would come on top
        environment |= {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    out = folder / "out.json"
    command = [sys.executable, str(HERE / "measure.py"), json.dumps(arguments), str(out)]
    limit = SECONDS[task.get("shape", "small")]
    for hung in range(TRIES):
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            _say(f"{task} hung for {limit} s and was stopped")
            continue
        if done.returncode:
            raise SystemExit(f"{task} failed with status {done.returncode}:\n{done.stderr}")
        result: Task = json.loads(out.read_text())
        return result | {"hung_before": hung}
    raise SystemExit(f"{task} hung {TRIES} times.")


def _header(shapes: dict[str, Shape], quick: bool, rounds: int) -> Task:
    cpu = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": cpu[0] if cpu else platform.processor(),
            "cores": os.cpu_count(),
            "memory_gb": round(memory / 1e9, 1),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "versions": {name: version(name) for name in PACKAGES},
        "load_average_before": os.getloadavg(),
        "settings": {
            "quick": quick,
            "rounds": rounds,
            "epochs": QUICK_EPOCHS if quick else EPOCHS,
            "shapes": {name: shape._asdict() for name, shape in shapes.items()},
            "order_of_ratings": "random, as a split into training and test part leaves them",
        },
        "update": "one rating in one epoch",
        "systems": {
            name: {
                "model": s.model,
                "epoch": s.epoch,
                "timing": s.timing,
                "share_of_epochs": s.pace,
            }
            for name, s in SYSTEMS.items()
        },
    }


def _line(task: Task, result: Task) -> str:
    about = ", ".join(f"{k} {v}" for k, v in task.items() if k not in ("task", "epochs"))
    if "updates_per_second" in result:
        figures = f"{result['updates_per_second'] / 1e6:.2f} M/s, {result['peak_mb']:.0f} MB"
    else:
        figures = ", ".join(f"{k} {v:.4g}" for k, v in result.items() if k != "hung_before")
    return f"{task['task']}: {about}: {figures}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    pass


if __name__ == "__main__":
    main()
