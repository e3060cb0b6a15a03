"""Figure 4: learning curves. The fits are those of table 3."""

from __future__ import annotations

from typing import Any

from noisewise.experiments.reproduce.cells import Cell
from noisewise.experiments.reproduce.plan import Plan
from noisewise.experiments.reproduce.rating_cells import fit_cell
from noisewise.experiments.reproduce.summaries import Finished, rows_of

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
