"""Figure 4: learning curves. The fits are those of table 3."""

from __future__ import annotations

from typing import Any

from noisewise_reproduction.runs.plan import Plan
from noisewise_reproduction.runs.rating_runs import fit_run
from noisewise_reproduction.runs.run import Run
from noisewise_reproduction.runs.summaries import Finished, rows_of

TITLE = "Learning curves"


def runs(plan: Plan) -> list[Run]:
    """Return one run per model, of the first split."""
    artefact = plan.artefact("curves")
    return [
        fit_run(source, plan.model(label), seed=0)
        for source in plan.there(artefact["names"])
        for label in artefact["models"]
    ]


def gather(plan: Plan, found: Finished) -> dict[str, Any]:
    """Return the curves: RMSE on the validation part by epoch, and the seconds of each epoch."""
    return {"rows": rows_of(found, lambda numbers: {"curve": numbers["curve"]})}
