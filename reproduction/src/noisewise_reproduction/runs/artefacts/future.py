"""Beyond the paper: train on each user's past, test on their later ratings."""

from __future__ import annotations

from typing import Any

from noisewise_reproduction.runs.plan import Plan
from noisewise_reproduction.runs.rating_runs import rating_run
from noisewise_reproduction.runs.run import Run
from noisewise_reproduction.runs.summaries import (
    Finished,
    paired,
    rows_of,
    scores,
    summarised,
)

TITLE = "Later ratings"


def runs(plan: Plan) -> list[Run]:
    """Return one run per model and seed; the split is always the same, the model's start not."""
    artefact = plan.artefact("future")
    return [
        rating_run(source, plan.model(label), seed, protocol="time")
        for source in plan.there(artefact["names"])
        for label in artefact["models"]
        for seed in plan.seeds[: artefact["starts"]]
    ]


def gather(plan: Plan, found: Finished) -> dict[str, Any]:
    """Return every score, means over starts, and tests of the RMSE in pairs."""
    rows = rows_of(found, scores)
    return {"rows": rows, **derived({"rows": rows}, plan.artefact("future"))}


def derived(found: dict[str, Any], artefact: dict[str, Any]) -> dict[str, Any]:
    """Return what follows from the rows alone."""
    rows = found["rows"]
    return {
        "summary": summarised(rows, ["dataset", "model"]),
        "tests": paired(rows, artefact["pairs"], ["dataset"], "rmse"),
    }
