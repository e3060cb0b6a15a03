"""Time lists for everybody: ``python bench/lists.py ml100k.npz [--json FILE]``.

Every model is fitted to all ratings; ``recommend_all(10)``, with stds, is then asked for several
times on two threads, as a dict and into Parquet, and the fastest is reported, and whether lists are
those of ``recommend``, one by one, for a few users.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from noisewise import BayesianFactorizer, DeviationFactorizer
from noisewise.data.files import read
from noisewise.evaluation.records import where_and_when

WAYS: dict[str, dict[str, Any]] = {
    "seconds": {}, "cpu": {}, "parquet": {}, "items": {"mode": 1}, "risk": {"risk": 1.0},
}  # fmt: skip
KINDS: dict[str, Any] = {"dmf": DeviationFactorizer, "bayes": BayesianFactorizer}


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="ratings, in a file noisewise reads")
    parser.add_argument("--models", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--sweeps", type=int, help="of the Bayesian model: lists take as long")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="where to fit; lists are made on the CPU")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    seen, found = read(chosen.data), {}
    for name in chosen.models:
        settings: dict[str, Any] = {"random_state": 0, "n_jobs": 2, "verbose": False}
        settings["device"] = chosen.device
        if name == "bayes" and chosen.sweeps:
            settings |= {"sweeps": chosen.sweeps, "burn_in": chosen.sweeps // 4}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few sweeps do not settle
            model = KINDS[name](**settings).fit(seen).set_params(device="cpu")
        draws = len(model.factors_) if name == "bayes" else 1
        found[name] = {"settings": settings, "draws": draws} | timed(model, chosen)
        print(name, found[name], flush=True)
        if chosen.json is not None:
            about = {"data": chosen.data.name, "shape": seen.shape, "lists": found}
            chosen.json.write_text(json.dumps(where_and_when() | about, indent=1) + "\n")


def timed(model: Any, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the fastest of several rounds, and whether lists are those of one at a time."""
    with tempfile.TemporaryDirectory() as folder:
        ways = {way: dict(WAYS[way]) for way in chosen.ways}
        if "parquet" in ways:
            ways["parquet"]["out"] = Path(folder) / "top.parquet"
        best = {way: float("inf") for way in ways}
        for _ in range(chosen.rounds):
            for way, more in ways.items():
                clock = time.process_time if way == "cpu" else time.perf_counter
                started = clock()
                model.recommend_all(10, **more)
                best[way] = min(best[way], clock() - started)
    users = model.ids_[0].labels[:20].tolist()
    many = model.recommend_many(users, 10)
    same = all(model.recommend(user, 10) == own for user, own in zip(users, many, strict=True))
    about = {"same_one_by_one": same, "load_average": os.getloadavg()[0]}
    return best | about | {"cores": len(os.sched_getaffinity(0))}


if __name__ == "__main__":
    main()
