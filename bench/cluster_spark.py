"""Spark's ALS on synthetic ratings of the shape of MovieLens 10M: seconds an iteration, and RMSE.

    VENV-WITH-PYSPARK/bin/python bench/cluster_spark.py 10000054

``local[2]``, rank 32, with a tenth of the ratings held out. Seconds are those of a long fit less
those of a short one; what it prints is JSON, and ``bench/cluster.py --spark`` takes it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import numpy as np
from data import ratings, sized

RANK, SHORT, LONG = 32, 2, 10
PENALTY = 0.05  # times the number of ratings that a row has


def main() -> None:
    print(json.dumps(measured(int(sys.argv[1]))))


def held_out(n: int) -> Any:
    """Return which of n ratings are not trained on."""
    return np.random.default_rng(1).random(n) < 0.1


def measured(n: int) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as parquet
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.recommendation import ALS
    from pyspark.sql import SparkSession

    drawn = ratings(sized(n), seed=0)
    unseen = held_out(len(drawn.values))
    with tempfile.TemporaryDirectory() as folder:
        for name, some in (("train", ~unseen), ("test", unseen)):
            users, items = drawn.cells[some].T
            table = pa.table({"user": users, "item": items, "rating": drawn.values[some]})
            parquet.write_table(table, f"{folder}/{name}.parquet")
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.memory", "8g")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .getOrCreate()
        )
        train, test = (
            session.read.parquet(f"{folder}/{name}.parquet") for name in ("train", "test")
        )
        train = train.repartition(4).cache()
        train.count()
        seconds = {}
        for iterations in (1, SHORT, LONG):  # the first warms the machine up
            als = ALS(
                rank=RANK, maxIter=iterations, regParam=PENALTY, userCol="user", itemCol="item",
                ratingCol="rating", seed=0, coldStartStrategy="drop",
            )  # fmt: skip
            started = time.perf_counter()
            model = als.fit(train)
            seconds[iterations] = time.perf_counter() - started
        judge = RegressionEvaluator(labelCol="rating", predictionCol="prediction")
        rmse = judge.evaluate(model.transform(test))
        version = session.version
        session.stop()
    return {
        "version": version, "rank": RANK, "iterations": LONG, "held_out_rmse": rmse,
        "seconds_per_iteration": (seconds[LONG] - seconds[SHORT]) / (LONG - SHORT),
        "seconds": seconds,
    }  # fmt: skip


if __name__ == "__main__":
    main()
