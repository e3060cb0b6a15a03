"""Table 2: RMSE on ratings, random tenths."""

from __future__ import annotations

from typing import Any

from noisewise_reproduction.runs.plan import Plan
from noisewise_reproduction.runs.rating_runs import rating_cell
from noisewise_reproduction.runs.run import Cell
from noisewise_reproduction.runs.summaries import (
    Finished,
    paired,
    rows_of,
    scores,
    summarised,
)

TITLE = "Accuracy on ratings"
BY = ["dataset", "model"]


def cells(plan: Plan) -> list[Cell]:
    """Return one cell per dataset, model and split."""
    item = plan.item("ratings")
    return [
        rating_cell(source, plan.model(label), seed)
        for source in plan.there(item["names"])
        for label in item["models"]
        for seed in plan.seeds
    ]


def gather(plan: Plan, found: Finished) -> dict[str, Any]:
    """Return every score, means over splits, and tests of the RMSE in pairs."""
    rows = rows_of(found, scores)
    return {"rows": rows, **derived({"rows": rows}, plan.item("ratings"))}


def derived(found: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    """Return what follows from the rows alone."""
    rows = found["rows"]
    return {
        "summary": summarised(rows, BY),
        "tests": paired(rows, item["pairs"], ["dataset"], "rmse"),
    }
