"""Table 3: how long models train, and for how many epochs."""

from __future__ import annotations

from typing import Any

from noisewise_reproduction.runs.plan import Plan
from noisewise_reproduction.runs.rating_runs import fit_run
from noisewise_reproduction.runs.run import Run
from noisewise_reproduction.runs.summaries import Finished, Row, rows_of, summarised

TITLE = "Time to train"
MEASURES = ("seconds", "epochs", "seconds_per_epoch")


def runs(plan: Plan) -> list[Run]:
    """Return one run per model and split, models in turns, so that a slow minute hits all."""
    artefact = plan.artefact("time")
    return [
        fit_run(source, plan.model(label), seed)
        for source in plan.there(artefact["names"])
        for seed in plan.seeds
        for label in artefact["models"]
        if seed < artefact["few"].get(label, plan.splits)
    ]


def gather(plan: Plan, found: Finished) -> dict[str, Any]:
    """Return seconds and epochs of every fit, also as ratios to Biased MF on the same split."""
    rows = rows_of(found, lambda numbers: {name: numbers[name] for name in MEASURES})
    base = plan.artefact("time")["base"]
    bases = {(row["dataset"], row["seed"]): row for row in rows if row["model"] == base}
    for row in rows:
        row |= _ratios(row, bases.get((row["dataset"], row["seed"])))
    return {"base": base, "rows": rows, **derived({"rows": rows}, plan.artefact("time"))}


def derived(found: dict[str, Any], artefact: dict[str, Any]) -> dict[str, Any]:
    """Return what follows from the rows alone."""
    return {"summary": summarised(found["rows"], ["dataset", "model"])}


def _ratios(row: Row, base: Row | None) -> Row:
    if base is None:
        return {}
    return {f"{name}_ratio": row[name] / base[name] for name in MEASURES}
