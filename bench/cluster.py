"""A cluster of two workers on this machine beside the engine's two threads, in one run.

    python bench/cluster.py --out bench/results/cluster.json [--ratings 10000000] [--skip-spark]

Epochs of DMF (rank 100, deviation rank 8) and Bayesian sweeps (rank 32) of both take turns, so that
the load of the machine is the same for both; ratios are of medians. ``--memory N`` also writes N
ratings with text for ids as a folder of Parquet, fits them by the command line with
``--cluster local``, and notes the most memory that the command itself had. Spark's ALS (pyspark,
``local[2]``, rank 32) gets the same ratings, if pyspark is installed: seconds an iteration, as a
long fit less a short one, and the RMSE on what it was trained on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from data import SHAPES, Ratings, Shape, ratings

PARAMS = {
    "rank": 100, "deviation_rank": 8, "learning_rate": 0.055, "deviation_learning_rate": 0.015,
    "l2": 0.05, "bias_l2": 0.02, "deviation_l1": 0.0006, "penalty": "rating", "delta": 0.24,
    "beta": 0.25, "warmup": 0, "adagrad": "coordinate", "seed": 0,
}  # fmt: skip
SPEC = {
    "rank": 32, "noise_rank": 2, "likelihood": "gaussian", "implicit": True, "time": False,
    "seed": 0,
}  # fmt: skip
SPARK_RANK, SPARK_SHORT, SPARK_LONG = 32, 2, 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ratings", type=int, default=SHAPES["ml-10m"].ratings)
    parser.add_argument("--turns", type=int, default=7, help="epochs and sweeps of each")
    parser.add_argument("--memory", type=int, default=0, help="ratings of the fit by command")
    parser.add_argument("--skip-spark", action="store_true")
    chosen = parser.parse_args()
    shape = sized(chosen.ratings)
    drawn = ratings(shape, seed=0)
    found: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(),
        "ratings": shape.ratings, "users": shape.users, "items": shape.items,
        "load_before": os.getloadavg(),
    }  # fmt: skip
    found |= timed_engines(drawn, shape, chosen.turns)
    if chosen.memory:
        found["driver"] = driver_memory(chosen.memory)
    if not chosen.skip_spark:
        found["spark_als"] = spark(drawn)
    found["load_after"] = os.getloadavg()
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def sized(n: int) -> Shape:
    """Return the shape of MovieLens 10M, as dense, with so many ratings."""
    whole = SHAPES["ml-10m"]
    side = (n / whole.ratings) ** 0.5
    users, items = (max(20, round(side * size)) for size in (whole.users, whole.items))
    return Shape(users, items, n, whole.user_skew, whole.item_skew)


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {"cpu": names[0] if names else platform.processor(), "cores": os.cpu_count(),
            "python": platform.python_version()}  # fmt: skip


def timed_engines(drawn: Ratings, shape: Shape, turns: int) -> dict[str, Any]:
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
        found = {
            "epoch": in_turns(*epochs(team, codes, values, counts, chunks), turns),
            "sweep": in_turns(*sweeps(team, codes, values, counts, chunks), turns),
        }
        team.stop()
    return found


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


def driver_memory(n: int) -> dict[str, Any]:
    """Fit ratings with text for ids by the command line; return the most memory it had."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    shape = sized(n)
    drawn = ratings(shape, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        for k, rows in enumerate(np.array_split(np.arange(n), 20)):
            users, items = drawn.cells[rows].T
            table = pa.table({
                "user": pa.array([f"user-{u:012d}" for u in users.tolist()]),
                "item": pa.array([f"item-{i:012d}" for i in items.tolist()]),
                "rating": drawn.values[rows],
            })  # fmt: skip
            parquet.write_table(table, f"{folder}/part-{k:03d}.parquet")
        del drawn
        out = f"{folder}/model.nw"
        command = ["fit", folder, "--out", out, "--model", "dmf", "--cluster", "local"]
        command += ["--workers", "2", "--set", "epochs=2", "--set", "patience=None"]
        code = (
            "import resource, sys; from noisewise.cli import main\n"
            "try: main()\n"
            "finally: print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        started = time.perf_counter()
        run = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
        peaks = [line for line in run.stdout.splitlines() if line.startswith("peak")]
        if run.returncode or not peaks:
            raise SystemExit(f"The command failed: {run.stdout}{run.stderr}")
        return {"ratings": n, "users": shape.users, "items": shape.items,
                "peak_mb": int(peaks[0].split()[1]) / 1024, "model_mb": os.path.getsize(out) / 1e6,
                "seconds": time.perf_counter() - started}  # fmt: skip


def spark(drawn: Ratings) -> dict[str, Any] | None:
    """Time Spark's ALS on the same ratings."""
    try:
        from pyspark.ml.evaluation import RegressionEvaluator
        from pyspark.ml.recommendation import ALS
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    import pyarrow as pa
    import pyarrow.parquet as parquet

    with tempfile.TemporaryDirectory() as folder:
        users, items = drawn.cells.T
        table = pa.table({"user": users, "item": items, "rating": drawn.values})
        parquet.write_table(table, f"{folder}/ratings.parquet")
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.memory", "8g")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .getOrCreate()
        )
        frame = session.read.parquet(f"{folder}/ratings.parquet").repartition(4).cache()
        frame.count()
        seconds = {}
        for iterations in (1, SPARK_SHORT, SPARK_LONG):  # the first warms the machine up
            als = ALS(rank=SPARK_RANK, maxIter=iterations, regParam=0.05, userCol="user",
                      itemCol="item", ratingCol="rating", seed=0)  # fmt: skip
            started = time.perf_counter()
            model = als.fit(frame)
            seconds[iterations] = time.perf_counter() - started
        judge = RegressionEvaluator(labelCol="rating", predictionCol="prediction")
        rmse = judge.evaluate(model.transform(frame))
        version = session.version
        session.stop()
    per_iteration = (seconds[SPARK_LONG] - seconds[SPARK_SHORT]) / (SPARK_LONG - SPARK_SHORT)
    return {"version": version, "rank": SPARK_RANK, "seconds_per_iteration": per_iteration,
            "train_rmse": rmse, "iterations": SPARK_LONG}  # fmt: skip


if __name__ == "__main__":
    main()
