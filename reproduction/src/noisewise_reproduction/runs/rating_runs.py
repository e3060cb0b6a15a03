"""Runs of ratings: a model on a split, judged on its test part; or timed, with its curve."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import numpy as np

from noisewise import registry
from noisewise.evaluation import ratings
from noisewise.evaluation.records import data_of
from noisewise.models.deviation import DeviationFactorizer
from noisewise.splits import rating_split
from noisewise_reproduction.runs.plan import Chosen
from noisewise_reproduction.runs.run import Numbers, Run, defaults_of, settings_of
from noisewise_reproduction.runs.sources import Source

CURVE = ("epoch", "train_rmse", "validation_rmse", "seconds")
WARM = 20_000  # ratings to compile with, before a fit is timed


def rating_run(source: Source, chosen: Chosen, seed: int, protocol: str = "paper") -> Run:
    """Return the run of a model on a split, judged as ``noisewise evaluate`` does.

    Its numbers are "scores", and for DRMF "rounds".
    """
    unknown = ratings.settings_under(protocol, source.ratings())
    return _run(
        "rating",
        source,
        chosen,
        seed,
        unknown,
        protocol,
        partial(judged, source, chosen.model, chosen.settings, protocol, seed),
    )


def fit_run(source: Source, chosen: Chosen, seed: int) -> Run:
    """Return the run of a model that is timed while it is fitted to a split.

    Its numbers are "seconds" (of the search for the number of epochs and the refit), "epochs",
    "seconds_per_epoch" (the median), the "curve", and of deviation factors the share of "zeros".
    """
    run = partial(timed, source, chosen.model, chosen.settings, seed)
    return _run("fit", source, chosen, seed, {}, "paper", run, alone=True)


def judged(
    source: Source, model: str, settings: dict[str, Any], protocol: str, seed: int, n_jobs: int
) -> Numbers:
    """Measure a rating run."""
    result = ratings.evaluate(
        source.ratings(), model, {**settings, "n_jobs": n_jobs}, splits=1, seed=seed,
        protocol=protocol,
    )  # fmt: skip
    (row,) = result["splits"]
    numbers = {"scores": _but_seed(row)}
    if "rounds" in result:
        numbers["rounds"] = _but_seed(result["rounds"][0])
    return numbers


def timed(source: Source, model: str, settings: dict[str, Any], seed: int, n_jobs: int) -> Numbers:
    """Measure a fit run."""
    seen = source.ratings()
    split = rating_split(len(seen), seed)
    train, held_out = seen.take(split.train), seen.take(split.validation)
    given = {**settings, "random_state": seed, "n_jobs": n_jobs}
    registry.build("ratings", model, {**given, "epochs": 2}).fit(train.take(slice(WARM)))
    fitted = registry.build("ratings", model, given).fit(train, validation=held_out)
    curve = {name: fitted.learning_curve_[name] for name in CURVE}
    numbers = {
        "seconds": fitted.seconds_,
        "epochs": fitted.n_epochs_,
        "seconds_per_epoch": statistics.median(curve["seconds"]),
        "curve": curve,
    }
    return numbers | ({"zeros": zeros(fitted)} if settings_of(fitted).get("deviation_rank") else {})


def zeros(fitted: DeviationFactorizer) -> dict[str, float]:
    """Share of deviation factors that are exactly zero, of ids that were trained on."""
    factors = fitted.factors_
    parts = [
        factors.state.deviation_factors(mode)[:-1][count > 0] == 0.0
        for mode, count in enumerate(factors.counts)
    ]
    both = np.concatenate([part.ravel() for part in parts])
    return {"P": float(parts[0].mean()), "Q": float(parts[1].mean()), "both": float(both.mean())}


def _run(
    task: str,
    source: Source,
    chosen: Chosen,
    seed: int,
    more: dict[str, Any],
    protocol: str,
    measure: Any,
    alone: bool = False,
) -> Run:
    model = registry.build("ratings", chosen.model, {**more, **chosen.settings})
    about = {
        "task": task,
        "dataset": source.name,
        "model": chosen.model,
        "settings": settings_of(model),
        "protocol": protocol,
        "data": data_of(source.observations),
        "seed": seed,
    }
    labels = {"dataset": source.name, "model": chosen.label, "seed": seed}
    return Run(about, labels, measure, alone, defaults_of(model))


def _but_seed(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "seed"}
