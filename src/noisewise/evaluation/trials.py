"""One trial: train with some settings on one part of the data, and judge them by another.

Both parts are those of a split that `noisewise evaluate` runs; its test part is never looked at.
"""

from __future__ import annotations

import dataclasses
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise import metrics, registry
from noisewise.data import Observations
from noisewise.data.panel import Panel
from noisewise.errors import DivergedError
from noisewise.evaluation import ratings, sensors
from noisewise.evaluation.ranges import Settings
from noisewise.models.base import Factorizer
from noisewise.models.trained import Trained

Trial = dict[str, Any]
RATING_METRICS = ("rmse", "nll")  # the first is the default
SENSOR_METRICS = ("mse", "trimmed_mse", "median_se", "nll")
FIT_SHARE = 0.9  # of what was observed that is not test, where nobody says


@dataclass(frozen=True, eq=False)
class Task:
    """What settings are judged on.

    Attributes
    ----------
    kind : {"ratings", "sensors"}
        Which models it is for.
    train, validation : Observations
        What a trial trains on, and what judges it.
    about : dict
        Data and split, as a file of tuning has them.
    metrics : tuple of str
        What a trial reports and can be ranked by, the usual one first; lower is better.
    build : callable
        Makes a model from its name, settings, a seed and a number of threads.
    score : callable
        Errors of a fitted model on the validation part.
    """

    kind: registry.Kind
    train: Observations
    validation: Observations
    about: dict[str, Any]
    metrics: tuple[str, ...]
    build: Callable[[str, Settings, int, int], Factorizer]
    score: Callable[[Factorizer], dict[str, float]]


def rating_task(observations: Observations, *, protocol: str = "random", seed: int = 0) -> Task:
    """Judge models of ratings on the validation part of a split.

    Parameters
    ----------
    observations : Observations
        All ratings; the protocol "time" needs them with their time.
    protocol : {"random", "paper", "time", "user"}
        As for `noisewise.evaluation.ratings.evaluate`.
    seed : int
        Which split.
    """
    split = ratings.split_of(observations, seed, protocol)
    held_out = observations.take(split.validation)
    under = ratings.settings_under(protocol, observations)

    def build(name: str, settings: Settings, random_state: int, n_jobs: int) -> Factorizer:
        own = {**under, "random_state": random_state, "n_jobs": n_jobs}
        model: Factorizer = registry.build("ratings", name, {**own, **settings})
        return model

    def score(model: Factorizer) -> dict[str, float]:
        mean, std = model.predict(held_out, return_std=True)
        truth = held_out.values
        return {"rmse": metrics.rmse(truth, mean), "nll": metrics.nll(truth, mean, std)}

    return Task(
        "ratings", observations.take(split.train), held_out,
        _about("ratings", observations, {"kind": protocol}, seed), RATING_METRICS, build, score,
    )  # fmt: skip


def sensor_task(
    data: Panel,
    *,
    protocol: str = "cells",
    share: float | None = None,
    outage: float | None = None,
    seed: int = 0,
) -> Task:
    """Judge models of sensors on held-out cells, or on stretches of time of single series.

    Parameters
    ----------
    data : Panel
        All readings, and where they were taken.
    protocol : {"cells", "blocks"}
        As for `noisewise.evaluation.sensors.evaluate`.
    share : float, optional
        As there. By default nine tenths of the readings are not test, for "blocks" eight.
    outage : float, optional
        For "blocks": how many seconds a stretch lasts.
    seed : int
        Which split.
    """
    seen = data.observations
    if share is None:
        cells = FIT_SHARE * len(seen) / np.prod(seen.shape, dtype=np.float64)
        share = sensors.OUTAGE_SHARE if protocol == "blocks" else float(cells)
    chosen = sensors.protocol_of(protocol, share, outage)
    sensors.check_protocol(protocol, outage)
    split = sensors.split_of(data, share, outage, seed)
    train, held_out = seen.take(split.train), seen.take(split.validation)
    units = sensors.Units.of(dataclasses.replace(data, observations=train))

    def build(name: str, settings: Settings, random_state: int, n_jobs: int) -> Factorizer:
        model: Factorizer = registry.build(
            "sensors", name, settings, time=-1, sensor=1, coordinates=data.coordinates,
            random_state=random_state, n_jobs=n_jobs,
        )  # fmt: skip
        return model

    def score(model: Factorizer) -> dict[str, float]:
        scores = sensors.score(model, held_out, units)
        return {name: scores[name] for name in SENSOR_METRICS}

    about = _about("sensors", seen, chosen, seed)
    return Task("sensors", train, held_out, about, SENSOR_METRICS, build, score)


def run_trial(task: Task, model: str, settings: Settings, seed: int, n_jobs: int = -1) -> Trial:
    """Train with settings, and report what validation says.

    What is trained in epochs stops on the validation part; all else is not shown it.

    Returns
    -------
    dict
        The settings, every metric of the task, epochs if there are any, and seconds. Where training
        diverged, there is a sentence under "diverged" in place of the metrics.
    """
    fitted: Any = task.build(model, settings, seed, n_jobs)
    started = time.perf_counter()
    scores: dict[str, Any]
    try:
        _fit(fitted, task)
        scores = task.score(fitted)
        if hasattr(fitted, "n_epochs_"):
            scores["epochs"] = int(fitted.n_epochs_)
    except DivergedError as error:
        scores = {"diverged": str(error)}
    return {"settings": settings, **scores, "seconds": time.perf_counter() - started}


def _fit(model: Any, task: Task) -> None:
    if isinstance(model, Trained) and model.patience is not None:
        model.set_params(refit=False).fit(task.train, validation=task.validation)
    else:
        model.fit(task.train)


def _about(kind: str, seen: Observations, protocol: dict[str, Any], seed: int) -> dict[str, Any]:
    crc = 0
    for column in (*seen.codes, seen.values):
        crc = zlib.crc32(np.ascontiguousarray(column).data, crc)
    data = {"observations": len(seen), "shape": list(seen.shape), "checksum": f"{crc:08x}"}
    return {"kind": kind, "data": data, "protocol": protocol, "split": seed}
