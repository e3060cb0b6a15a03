"""A cluster of two workers on this machine beside the engine's two threads, in one run.

    python bench/cluster.py --out bench/results/cluster.json [--ratings 10000000] [--spark PYTHON]

Epochs of DMF (rank 100, deviation rank 8) and Bayesian sweeps (rank 32) of both take turns, so that
the load of the machine is the same for both; ratios are of medians. Epochs are also timed with
workers that share no memory, as those of two machines. Spark's ALS (pyspark, ``local[2]``, rank 32)
gets the same ratings from ``bench/cluster_spark.py``, which ``--spark`` runs with a Python of its
own; the RMSE of a tenth of them that it does not see stands beside that of both models of the same
rank, fitted by two workers to the rest. Parts that are not run stay as they are in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cluster_nodes import about
from cluster_spark import held_out
from data import SHAPES, Ratings, Shape, ratings, sized

PARAMS = {
    "rank": 100, "deviation_rank": 8, "learning_rate": 0.055, "deviation_learning_rate": 0.015,
    "l2": 0.05, "bias_l2": 0.02, "deviation_l1": 0.0006, "penalty": "rating", "delta": 0.24,
    "beta": 0.25, "warmup": 0, "adagrad": "coordinate", "seed": 0,
}  # fmt: skip
SPEC = {
    "rank": 32, "noise_rank": 2, "likelihood": "gaussian", "implicit": True, "time": False,
    "seed": 0,
}  # fmt: skip


MODELS = {
    "dmf": {"rank": 32, "random_state": 0},
    "bayes": {"rank": 32, "sweeps": 40, "burn_in": 15, "random_state": 0},
}
PARTS = ["epoch", "epoch_apart", "sweep", "held_out"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ratings", type=int, default=SHAPES["ml-10m"].ratings)
    parser.add_argument("--turns", type=int, default=7, help="epochs and sweeps of each")
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--spark", help="a Python that has pyspark")
    chosen = parser.parse_args()
    shape = sized(chosen.ratings)
    found: dict[str, Any] = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    found |= {"ratings": shape.ratings, "users": shape.users, "items": shape.items}

    def keep(name: str, part: dict[str, Any]) -> None:
        found[name] = part | {"machine": about(), "load_after": os.getloadavg()}
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")
        print(name, part, flush=True)

    timed = [part for part in chosen.parts if part != "held_out"]
    if timed:
        timed_engines(ratings(shape, seed=0), shape, chosen.turns, timed, keep)
    if chosen.spark:
        words = [chosen.spark, str(Path(__file__).with_name("cluster_spark.py"))]
        run = subprocess.run([*words, str(shape.ratings)], stdout=subprocess.PIPE, check=True)
        keep("spark_als", json.loads(run.stdout))
    if "held_out" in chosen.parts:
        for name, settings in MODELS.items():
            keep(f"held_out_{name}", held_out_by(name, settings, ratings(shape, seed=0)))


def held_out_by(name: str, settings: dict[str, Any], drawn: Ratings) -> dict[str, Any]:
    """Fit a model by two workers to all ratings but those that Spark does not see either."""
    from noisewise import metrics, observe, registry
    from noisewise.engine.workers import Cluster

    unseen = held_out(len(drawn.values))
    model = registry.build("ratings", name, settings)
    seen = observe(drawn.cells[~unseen], drawn.values[~unseen])
    started = time.perf_counter()
    model.fit(seen, cluster=Cluster("local", workers=2, threads=1))
    seconds = time.perf_counter() - started
    rmse = metrics.rmse(drawn.values[unseen], model.predict(drawn.cells[unseen]))
    return {"settings": settings, "rmse": rmse, "seconds": seconds, "epochs": model.n_epochs_}


def timed_engines(
    drawn: Ratings, shape: Shape, turns: int, parts: list[str], keep: Callable[..., None]
) -> None:
    """Time epochs and sweeps of both engines, in turns."""
    from noisewise.data import Ids, Observations
    from noisewise.engine.training import one_blas_thread
    from noisewise.engine.workers import Cluster, Team, connected
    from noisewise.spread import SpreadObservations

    codes = tuple(np.ascontiguousarray(column) for column in drawn.cells.T)
    values = ((drawn.values - drawn.values.mean()) / drawn.values.std()).astype(np.float32)
    ids = tuple(Ids(np.arange(n), "id") for n in (shape.users, shape.items))
    counts = tuple(np.bincount(c, minlength=len(i)) for c, i in zip(codes, ids, strict=True))
    place = Cluster("local", workers=2, threads=1)
    with connected(place), one_blas_thread():
        chunks = SpreadObservations.of(Observations(codes, values, ids)).chunks
        team = Team(place)
        team.start()
        given = codes, values, counts, chunks
        for part in parts:
            timed = sweeps if part == "sweep" else epochs
            workers = apart(team) if part == "epoch_apart" else team
            keep(part, in_turns(*timed(workers, *given), turns))
        team.stop()


def apart(team: Any) -> Any:
    """Return the same workers as if each had a machine of its own."""
    from noisewise.engine.workers import Team

    other = Team(team.cluster)
    other.hosts, other.threads = team.hosts, team.threads
    other.machines = [str(k) for k in range(len(team))]
    return other


def in_turns(here: Callable[[], Any], there: Callable[[], Any], turns: int) -> dict[str, Any]:
    """Time two things in turns; the first time of each, which compiles, does not count."""
    same = here() == there()
    seconds: dict[str, list[float]] = {"threads": [], "workers": []}
    for turn in range(turns):
        order = ("threads", here), ("workers", there)
        for name, work in order if turn % 2 else reversed(order):
            started = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(all_of) for name, all_of in seconds.items()}
    ratio = medians["workers"] / medians["threads"]
    return {"seconds": medians, "ratio": ratio, "same_report": same, "all_seconds": seconds}


def epochs(team: Any, codes: Any, values: Any, counts: Any, chunks: Any) -> Any:
    from noisewise.engine.sgd import strata
    from noisewise.engine.sgd.cluster import Spread
    from noisewise.engine.sgd.layout import Params, initial_state

    params = Params(**PARAMS)  # type: ignore[arg-type]
    shape = tuple(map(len, counts))
    blocks = strata.arrange(codes, values, shape, params.layout.width)
    state = initial_state(params, blocks.placed(counts))
    spread = Spread(team, params, counts, chunks, [], np.asarray)
    ours = spread.start()
    return lambda: strata.epoch(state, blocks, params, 2), lambda: spread.epoch(ours)


def sweeps(team: Any, codes: Any, values: Any, counts: Any, chunks: Any) -> Any:
    from noisewise.engine.data import Data, Scale, Spec
    from noisewise.engine.gibbs.cluster import SpreadSampler
    from noisewise.engine.gibbs.sampler import RatingSampler, Schedule

    spec, schedule = Spec(**SPEC), Schedule(100, 50, 10)  # type: ignore[arg-type]
    scale = Scale(0.0, 1.0, -np.inf, np.inf, np.empty(0, dtype=np.float32), 1)
    data, _ = Data.arrange(codes, values, tuple(map(len, counts)))
    one = RatingSampler(spec, data, scale, counts, None, schedule, None, 2)
    spread = SpreadSampler(team, chunks, np.asarray, spec, scale, counts, schedule, None)
    chains = one.start(), spread.start()
    for _ in range(6):  # all steps have joined in by then
        one.step(chains[0])
        spread.step(chains[1])
    return lambda: one.step(chains[0]), lambda: spread.step(chains[1])


if __name__ == "__main__":
    main()
