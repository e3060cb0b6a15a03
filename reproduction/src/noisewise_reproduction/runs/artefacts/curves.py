"""Figure 4: learning curves. The fits are those of table 3."""

from __future__ import annotations

from typing import Any

from noisewise_reproduction.runs.plan import Plan
from noisewise_reproduction.runs.rating_runs import fit_cell
from noisewise_reproduction.runs.run import Cell
from noisewise_reproduction.runs.summaries import Finished, rows_of

TITLE = "Learning curves"


def cells(plan: Plan) -> list[Cell]:
    """Return one cell per model, of the first split."""
    item = plan.item("curves")
    return [
        fit_cell(source, plan.model(label), seed=0)
        for source in plan.there(item["names"])
        for label in item["models"]
    ]


def gather(plan: Plan, found: Finished) -> dict[str, Any]:
    """Return the curves: RMSE on the validation part by epoch, and the seconds of each epoch."""
    return {"rows": rows_of(found, lambda numbers: {"curve": numbers["curve"]})}
