"""Time Gibbs samplers: ``python bench/bayes.py [--quick] [--data FILE] [--json FILE]``.

1. A sweep at rank 32, ratings only, of noisewise, myFM and smurff on two threads (myFM has one).
2. A sweep of noisewise with all it has: levels, noise, sets and times, at rank 64.
3. A sweep of noisewise at rank 32 from 1 to 10 million ratings: how cost grows.

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
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from data import SHAPES, Ratings, Shape, ratings, store
from samplers import SAMPLERS
from table import Promise

from noisewise.data.files import read
from noisewise.evaluation.records import where_and_when

HERE = Path(__file__).parent
THREADS = 2
LIKE = "ml-1m-like"  # synthetic ratings
COMPARED = ("myFM", "noisewise constant", "smurff", "noisewise lowrank", "smurff univariate")
GROWING = ("noisewise constant", "noisewise default")
MILLIONS = (1, 2, 5, 10)
SWEEPS = {"compare": 20, "full": 12, "grow": 6}
RANK = {"compare": 32, "full": 64, "grow": 32}
QUICK_SHRINK, QUICK_SWEEPS = 10, 8
HANGS = 900  # seconds
PACKAGES = ("myfm", "smurff", "scipy")
MYFM_AIM, SMURFF_AIM, FULL_AIM, EXPONENT_AIM = 8.0, 1.5, 0.8, 1.05

Task = dict[str, Any]


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test on tiny ratings")
    parser.add_argument("--rounds", type=int, default=3, help="repeats (default: 3)")
    parser.add_argument("--data", type=Path, help="real ratings too, in a file noisewise reads")
    parser.add_argument("--time", default="timestamp", help="its column (default: timestamp)")
    parser.add_argument("--json", type=Path, help="file to write")
    chosen = parser.parse_args()
    if chosen.rounds < 1:
        parser.error(f"--rounds must be 1 or more; got {chosen.rounds}.")

    rounds = 1 if chosen.quick else chosen.rounds
    began, load_before = time.monotonic(), os.getloadavg()
    shapes = {LIKE: SHAPES["ml-1m"]} | {f"{n} M": _between(n) for n in MILLIONS}
    if chosen.quick:
        shapes = {name: shape.shrunk(QUICK_SHRINK) for name, shape in shapes.items()}
    measurements = []
    with tempfile.TemporaryDirectory(prefix="noisewise-bench-") as name:
        folder = Path(name)
        for shape, size in shapes.items():
            drawn = ratings(size, seed=0)
            _store(folder / shape, drawn, _times(drawn, seed=0))
        compared = [LIKE]
        if chosen.data:
            compared.append(chosen.data.stem)
            _store(folder / chosen.data.stem, *_real(chosen.data, chosen.time))
        for task in _plan(compared, rounds, chosen.quick):
            measurements.append(task | _measured(task, folder))
            _say(f"{time.monotonic() - began:5.0f} s  {_line(measurements[-1])}")
    rows = _summary(measurements)
    figures = _figures(measurements)
    if chosen.quick:
        figures = [figure._replace(bound=None) for figure in figures]
    print(_as_text(rows, figures))
    if chosen.quick:
        print("\nA quick run is a smoke test: the ratings are tiny and these figures mean nothing.")
    if chosen.json is not None:
        place = where_and_when()
        place["machine"]["packages"] |= {package: version(package) for package in PACKAGES}
        report = place | {
            "settings": {
                "quick": chosen.quick,
                "rounds": rounds,
                "threads": THREADS,
                "sweeps": QUICK_SWEEPS if chosen.quick else SWEEPS,
                "synthetic": {name: shape._asdict() for name, shape in shapes.items()},
                "data": chosen.data and chosen.data.name,
                "samplers": {n: {"model": s.model, "pace": s.pace} for n, s in SAMPLERS.items()},
            },
            "minutes": round((time.monotonic() - began) / 60, 1),
            "load_average": {"before": load_before, "after": os.getloadavg()},
            "table": rows,
            "figures": [figure._asdict() | {"kept": figure.kept} for figure in figures],
            "measurements": measurements,
        }
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(report, indent=1) + "\n")


def _plan(compared: list[str], rounds: int, quick: bool) -> Iterator[Task]:
    """Yield tasks in the order to run them; every second round goes backwards."""
    tasks = [_task("compare", data, sampler) for data in compared for sampler in COMPARED]
    tasks += [_task("full", data, "noisewise full") for data in compared]
    tasks += [_task("grow", f"{n} M", sampler) for n in MILLIONS for sampler in GROWING]
    for round_ in range(rounds):
        for task in tasks[:: -1 if round_ % 2 else 1]:
            sweeps = QUICK_SWEEPS if quick else SWEEPS[task["kind"]]
            share = SAMPLERS[task["sampler"]].pace
            yield task | {"round": round_, "sweeps": max(2, round(sweeps * share))}


def _task(kind: str, data: str, sampler: str) -> Task:
    return {"kind": kind, "data": data, "sampler": sampler, "rank": RANK[kind]}


def _measured(task: Task, folder: Path) -> Task:
    """Run one task in a process of its own."""
    arguments = {key: task[key] for key in ("sampler", "rank", "sweeps")}
    arguments |= {"threads": THREADS, "folder": str(folder / task["data"])}
    # Threads are the sampler's own; those of BLAS would come on top.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment |= {"OMP_NUM_THREADS": str(THREADS)}
    out = folder / "out.json"
    command = [sys.executable, str(HERE / "samplers.py"), json.dumps(arguments), str(out)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=HANGS, check=False
    )
    if done.returncode:
        raise SystemExit(f"{task} failed with status {done.returncode}:\n{done.stderr}")
    result: Task = json.loads(out.read_text())
    return result


def _between(millions: int) -> Shape:
    """Return a shape of so many ratings between MovieLens 1M and 10M; all sizes grow evenly."""
    small, large = (np.array(SHAPES[name], dtype=float) for name in ("ml-1m", "ml-10m"))
    way = np.log(millions * 1e6 / small[2]) / np.log(large[2] / small[2])
    users, items, _, *skews = small * (large / small) ** way
    return Shape(round(users), round(items), millions * 1_000_000, *map(float, skews))


def _times(drawn: Ratings, seed: int) -> Any:
    """Draw when ratings were given: a user comes on one day of a thousand, and now and then again.

    As in MovieLens, most ratings of a user are of one sitting.
    """
    rng = np.random.default_rng(seed)
    user = drawn.cells[:, 0]
    first = rng.integers(0, 1_000, user.max() + 1)[user]
    later = np.where(rng.random(len(user)) < 0.8, 0.0, rng.exponential(100.0, len(user)))
    return ((first + later) * 86_400).astype(np.int64) + rng.integers(0, 3_600, len(user))


def _real(path: Path, column: str) -> tuple[Ratings, Any]:
    observations = read(path, time=column)
    order = np.random.default_rng(0).permutation(len(observations))
    found = observations.take(order)
    return Ratings(np.column_stack(found.codes).astype(np.int32), found.values), found.time


def _store(folder: Path, drawn: Ratings, when: Any) -> None:
    store(folder, drawn)
    np.save(folder / "time.npy", when, allow_pickle=False)


def _summary(measurements: list[Task]) -> list[Task]:
    """One row per kind, data and sampler: the median over rounds."""
    rows: dict[tuple[str, str, str], list[Task]] = {}
    for run in measurements:
        rows.setdefault((run["kind"], run["data"], run["sampler"]), []).append(run)
    return [
        dict(zip(("kind", "data", "sampler"), key, strict=True))
        | {
            "rank": runs[0]["rank"],
            "ratings": runs[0]["ratings"],
            "seconds_per_sweep": median(run["seconds_per_sweep"] for run in runs),
            "fastest_s": min(run["fastest_s"] for run in runs),
            "train_rmse": median(run["train_rmse"] for run in runs),
        }
        for key, runs in sorted(rows.items(), key=lambda entry: _place(entry[0]))
    ]


def _place(key: tuple[str, str, str]) -> tuple[int, str, int]:
    kind, data, sampler = key
    millions = f"{int(data.split()[0]):03}" if kind == "grow" else data
    return list(RANK).index(kind), millions, list(SAMPLERS).index(sampler)


def _figures(measurements: list[Task]) -> list[Promise]:
    """Return what is aimed at. A ratio is taken within a round, before the median."""
    seconds = {
        (run["kind"], run["data"], run["sampler"], run["round"]): run["seconds_per_sweep"]
        for run in measurements
    }
    rounds = range(max(run["round"] for run in measurements) + 1)
    found = []
    for data in dict.fromkeys(run["data"] for run in measurements if run["kind"] == "compare"):
        for ours in ("noisewise constant", "noisewise lowrank"):
            judged = ours == "noisewise constant"
            for peer, aim in (("myFM", MYFM_AIM), ("smurff", SMURFF_AIM)):
                of_rounds = [
                    seconds["compare", data, peer, r] / seconds["compare", data, ours, r]
                    for r in rounds
                ]
                figure = f"{data}, rank {RANK['compare']}: sweeps of {ours} to one of {peer}"
                bound = aim if judged else None
                found.append(Promise(figure, median(of_rounds), bound, at_least=True))
        full = median(seconds["full", data, "noisewise full", r] for r in rounds)
        figure = f"{data}, rank {RANK['full']}: a sweep of noisewise full, s"
        found.append(Promise(figure, full, FULL_AIM))
    for sampler in GROWING:
        cost = [median(seconds["grow", f"{n} M", sampler, r] for r in rounds) for n in MILLIONS]
        exponent = np.polyfit(np.log(MILLIONS), np.log(cost), 1)[0]
        figure = f"{MILLIONS[0]} to {MILLIONS[-1]} M ratings: {sampler}, exponent of cost"
        found.append(Promise(figure, float(exponent), EXPONENT_AIM))
    return found


def _as_text(rows: list[Task], figures: list[Promise]) -> str:
    lines = []
    for kind, data in dict.fromkeys((row["kind"], row["data"]) for row in rows):
        title = f"{data}, rank {RANK[kind]}, {THREADS} threads"
        lines += ["", f"{title:32}{'s a sweep':>10}{'fastest':>10}{'M ratings/s':>13}{'rmse':>8}"]
        for row in rows:
            if (row["kind"], row["data"]) == (kind, data):
                speed = row["ratings"] / row["seconds_per_sweep"] / 1e6
                lines.append(
                    f"{row['sampler']:32}{row['seconds_per_sweep']:10.3f}{row['fastest_s']:10.3f}"
                    f"{speed:13.2f}{row['train_rmse']:8.3f}"
                )
    lines += ["", f"{'figure':66}{'value':>9}{'aim':>10}"]
    for figure in figures:
        sign = ">=" if figure.at_least else "<="
        aim = "-" if figure.bound is None else f"{sign} {figure.bound:g}"
        verdict = {True: "  kept", False: "  MISSED", None: ""}[figure.kept]
        lines.append(f"{figure.figure:66}{figure.value:9.2f}{aim:>10}{verdict}")
    return "\n".join(lines)


def _line(run: Task) -> str:
    about = f"{run['kind']}, {run['data']}, {run['sampler']}, round {run['round']}"
    return f"{about}: {run['seconds_per_sweep']:.3f} s a sweep, rmse {run['train_rmse']:.3f}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
