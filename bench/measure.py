"""One measurement in a process of its own: ``python bench/measure.py TASK OUT``.

TASK is JSON with the name of a function here and its arguments; what it returns goes to the file
OUT. Imports are inside the functions: they are part of what is measured.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any


def train(
    system: str, folder: str, rank: int, threads: int, epochs: int
) -> dict[str, float | None]:
    """Seconds per epoch, and the peak of memory beside what imports and ratings take."""
    from data import load
    from systems import SYSTEMS

    ratings = load(Path(folder))
    trained = SYSTEMS[system].prepare(rank, threads)
    baseline = _megabytes("VmRSS")
    outcome = trained(ratings, epochs)
    return {
        "seconds_per_epoch": outcome.seconds_per_epoch,
        "updates_per_second": len(ratings.values) / outcome.seconds_per_epoch,
        "train_rmse": outcome.rmse,
        "baseline_mb": baseline,
        "peak_mb": _megabytes("VmHWM"),
    }


def start(folder: str) -> dict[str, float]:
    """Import, a first fit and a second: the difference is compilation, or reading its cache."""
    import_s = _timed(lambda: import_module("noisewise"))
    from data import load

    from noisewise import DeviationFactorizer

    ratings = load(Path(folder))
    first, second = (
        _timed(lambda: DeviationFactorizer(random_state=0).fit(*ratings)) for _ in range(2)
    )
    return {"import_s": import_s, "first_fit_s": first, "second_fit_s": second}


def serve(folder: str, rank: int) -> dict[str, float]:
    """Fold in a user with an average number of ratings; recommend 10 items to 1,000 users."""
    import numpy as np
    from data import load

    from noisewise import DeviationFactorizer

    ratings = load(Path(folder))
    model = DeviationFactorizer(
        rank, deviation_rank=rank, epochs=2, patience=None, warmup=0, random_state=0
    ).fit(*ratings)
    counts = np.bincount(ratings.cells[:, 0])
    own = ratings.cells[:, 0] == np.abs(counts - counts.mean()).argmin()
    items, values = ratings.cells[own, 1], ratings.values[own]
    users = np.random.default_rng(0).permutation(len(counts))[:1_000].tolist()
    fold_in = [_timed(lambda: model.fold_in(items, values)) for _ in range(21)]
    recommend = [_timed(lambda: model.recommend_many(users, 10)) for _ in range(4)]
    return {
        "ratings_folded_in": len(values),
        "fold_in_first_s": fold_in[0],
        "fold_in_s": statistics.median(fold_in[1:]),
        "users_served": len(users),
        "recommend_first_s": recommend[0],
        "recommend_s": statistics.median(recommend[1:]),
    }


def _timed(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _megabytes(field: str) -> float:
    """Read a field of this process' status; unlike ru_maxrss, VmHWM knows nothing of the parent."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024 / 1e6


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    tasks: dict[str, Any] = {"train": train, "start": start, "serve": serve}
    report = tasks[task.pop("task")](**task)
    Path(sys.argv[2]).write_text(json.dumps(report))
