"""Beyond the paper: train on each user's past, test on their later ratings."""

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

TITLE = "Later ratings"


def cells(plan: Plan) -> list[Cell]:
    """Return one cell per model and seed; the split is always the same, the model's start not."""
    item = plan.item("future")
    return [
        rating_cell(source, plan.model(label), seed, protocol="time")
        for source in plan.there(item["names"])
        for label in item["models"]
        for seed in plan.seeds[: item["starts"]]
    ]


def gather(plan: Plan, found: Finished) -> dict[str, Any]:
    """Return every score, means over starts, and tests of the RMSE in pairs."""
    rows = rows_of(found, scores)
    return {"rows": rows, **derived({"rows": rows}, plan.item("future"))}


def derived(found: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    """Return what follows from the rows alone."""
    rows = found["rows"]
    return {
        "summary": summarised(rows, ["dataset", "model"]),
        "tests": paired(rows, item["pairs"], ["dataset"], "rmse"),
    }
