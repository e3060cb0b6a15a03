"""Beyond the paper: how honest the deviations are, beside controls that know nothing of cells.

Four controls put another std to the predictions of one model: the same for all; one that follows
from how often a user and an item were seen; the learned ones, dealt to other cells; and, as a model
of its own, the variance of a user times that of an item. What the first two need is learned on the
validation part, by a model that was not trained on it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise import metrics, registry
from noisewise.data import Observations
from noisewise.evaluation import ratings
from noisewise.evaluation.comparison import split_ratio
from noisewise.evaluation.records import data_of
from noisewise.splits import rating_split
from noisewise_reproduction.rivals.linear import DeviationRegressor
from noisewise_reproduction.runs.plan import Chosen, Plan
from noisewise_reproduction.runs.rating_runs import rating_run
from noisewise_reproduction.runs.run import Numbers, Run, settings_of
from noisewise_reproduction.runs.sources import Source
from noisewise_reproduction.runs.summaries import (
    RATIO,
    Finished,
    Row,
    paired,
    rows_of,
    scores,
    summarised,
)

TITLE = "Honest deviations"
CONTROLS = ("learned", "constant", "counts", "shuffled")
UNKNOWN = {"unknown": ratings.PAPER_UNKNOWN}

Floats = NDArray[np.float64]


def runs(plan: Plan) -> list[Run]:
    """Return one run per model and split, and one for the controls of each split."""
    artefact = plan.artefact("noise")
    found = plan.there(artefact["names"])
    return [
        rating_run(source, plan.model(label), seed)
        for source in found
        for label in artefact["models"]
        for seed in plan.seeds
    ] + [
        _control_run(source, plan.model(artefact["mean"]), seed)
        for source in found
        for seed in plan.seeds
    ]


def gather(plan: Plan, found: Finished) -> dict[str, Any]:
    """Return every score, means over splits, and tests of the NLL in pairs."""
    rows = rows_of([one for one in found if one[0].about["task"] == "rating"], scores)
    for run, record in found:
        if run.about["task"] == "controls":
            rows += _control_rows(run, record["numbers"])
    artefact = plan.artefact("noise")
    return {"mean_of": artefact["mean"], "rows": rows, **derived({"rows": rows}, artefact)}


def derived(found: dict[str, Any], artefact: dict[str, Any]) -> dict[str, Any]:
    """Return what follows from the rows alone."""
    rows = found["rows"]
    return {
        "summary": summarised(rows, ["dataset", "model"]),
        "tests": paired(rows, artefact["pairs"], ["dataset"], "nll"),
    }


def _control_rows(run: Run, numbers: Numbers) -> list[Row]:
    ratio = split_ratio("paper", run.about["data"])
    return [{**run.labels, "model": name, **numbers[name], RATIO: ratio} for name in CONTROLS]


def _control_run(source: Source, chosen: Chosen, seed: int) -> Run:
    about = {
        "task": "controls",
        "dataset": source.name,
        "model": chosen.model,
        "settings": settings_of(
            registry.build("ratings", chosen.model, {**UNKNOWN, **chosen.settings})
        ),
        "data": data_of(source.observations),
        "seed": seed,
    }
    labels = {"dataset": source.name, "model": chosen.label, "seed": seed}
    return Run(about, labels, partial(controlled, source, chosen.model, chosen.settings, seed))


def controlled(
    source: Source, model: str, settings: dict[str, Any], seed: int, n_jobs: int
) -> Numbers:
    """Measure a run: every metric of the same mean with the learned std and with each control."""
    seen = source.ratings()
    split = rating_split(len(seen), seed)
    train, held_out = seen.take(split.train), seen.take(split.validation)
    test, fit = seen.take(split.test), seen.take(split.fit)
    given = {**UNKNOWN, **settings, "random_state": seed, "n_jobs": n_jobs}
    before = registry.build("ratings", model, {**given, "refit": False}).fit(
        train, validation=held_out
    )
    errors = held_out.values - before.predict(held_out)
    mean, std = (
        registry.build("ratings", model, given)
        .fit(train, validation=held_out)
        .predict(test, return_std=True)
    )
    by_counts = DeviationRegressor("linear").fit(rarity(train, held_out), errors)
    stds: dict[str, Any] = {
        "learned": std,
        "constant": np.full(len(test), np.sqrt(np.mean(errors**2))),
        "counts": by_counts.predict(rarity(fit, test), return_std=True)[1],
        "shuffled": np.random.default_rng(seed).permutation(std),
    }
    levels = np.unique(seen.values)
    return {name: _scores(test.values, mean, stds[name], levels) for name in CONTROLS}


def rarity(train: Observations, cells: Observations) -> Floats:
    """Return for each cell one over the number of training ratings of its user, and of its item.

    An id that was not trained on counts as seen once.
    """
    columns = []
    for mode, size in enumerate(train.shape):
        count = np.bincount(train.codes[mode], minlength=size)
        columns.append(1.0 / np.maximum(count[cells.codes[mode]], 1))
    return np.column_stack(columns)


def _scores(truth: Any, mean: Any, std: Any, levels: Any) -> dict[str, float]:
    found = metrics.evaluate(truth, mean, std)
    return found | {"log_loss": metrics.rating_log_loss(truth, mean, std, levels)}
