"""Table 2: RMSE on ratings, random tenths."""

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

TITLE = "Accuracy on ratings"
BY = ["dataset", "model"]


def runs(plan: Plan) -> list[Run]:
    """Return one run per dataset, model and split."""
    artefact = plan.artefact("ratings")
    return [
        rating_run(source, plan.model(label), seed)
        for source in plan.there(artefact["names"])
        for label in artefact["models"]
        for seed in plan.seeds
    ]


def gather(plan: Plan, found: Finished) -> dict[str, Any]:
    """Return every score, means over splits, and tests of the RMSE in pairs."""
    rows = rows_of(found, scores)
    return {"rows": rows, **derived({"rows": rows}, plan.artefact("ratings"))}


def derived(found: dict[str, Any], artefact: dict[str, Any]) -> dict[str, Any]:
    """Return what follows from the rows alone."""
    rows = found["rows"]
    return {
        "summary": summarised(rows, BY),
        "tests": paired(rows, artefact["pairs"], ["dataset"], "rmse"),
    }
