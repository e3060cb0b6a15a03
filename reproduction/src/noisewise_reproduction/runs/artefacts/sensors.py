"""Figure 3: MSE on sensors over the share of cells that trains; and on outages."""

from __future__ import annotations

from typing import Any

from noisewise.evaluation.comparison import compared
from noisewise.evaluation.sensors import OUTAGE_SHARE
from noisewise_reproduction.declared import OUTAGES, SHARES
from noisewise_reproduction.runs.plan import Plan
from noisewise_reproduction.runs.run import Run
from noisewise_reproduction.runs.sensor_runs import sensor_run
from noisewise_reproduction.runs.sources import Source
from noisewise_reproduction.runs.summaries import (
    RATIO,
    Finished,
    Row,
    corrected,
    rows_of,
    scores,
    summarised,
)

TITLE = "Sensors"
WHERE = ("dataset", "protocol", "share")


def runs(plan: Plan) -> list[Run]:
    """Return one run per dataset, share, model and split; outages come after all shares."""
    artefact = plan.artefact("sensors")
    return [
        sensor_run(source, plan.model(label, "sensors"), seed, share, outage)
        for source in plan.there(artefact["names"])
        for share, outage in _settings(source, artefact)
        for label in artefact["models"]
        for seed in plan.seeds[: _splits(source, outage, artefact["few"])]
    ]


def _splits(source: Source, outage: float | None, few: dict[str, int]) -> int | None:
    """Return how many splits there are at most; None for all."""
    return few.get(source.name) if outage is None else few.get("outages")


def _settings(source: Source, artefact: dict[str, Any]) -> list[tuple[float, float | None]]:
    shares = artefact.get("shares", SHARES)[source.name]
    return [*((share, None) for share in shares), (OUTAGE_SHARE, OUTAGES[source.name])]


def gather(plan: Plan, found: Finished) -> dict[str, Any]:
    """Return every score, means over splits, and tests of DTF against the models of the paper."""
    rows = rows_of(found, scores)
    return {"rows": rows, **derived({"rows": rows}, plan.artefact("sensors"))}


def derived(found: dict[str, Any], artefact: dict[str, Any]) -> dict[str, Any]:
    """Return what follows from the rows alone."""
    return {
        "summary": summarised(found["rows"], [*WHERE, "model"]),
        "tests": _tests(found["rows"], artefact["against"], artefact["rivals"]),
    }


def _tests(rows: list[Row], one: str, rivals: list[str]) -> list[Row]:
    """Test one model against others on the same splits, as the paper does and in pairs."""
    tests: list[Row] = []
    places = list(dict.fromkeys(tuple(row[key] for key in WHERE) for row in rows))
    for place in places:
        inside = [row for row in rows if tuple(row[key] for key in WHERE) == place]
        for rival in rivals:
            a, b = (
                {row["seed"]: row["mse"] for row in inside if row["model"] == name}
                for name in (one, rival)
            )
            seeds = sorted(a.keys() & b.keys())
            if seeds:
                ratio = inside[0].get(RATIO, 0.0)
                test = compared([a[seed] for seed in seeds], [b[seed] for seed in seeds], ratio)
                what = {**dict(zip(WHERE, place, strict=True)), "a": one, "b": rival}
                numbers = {"unpaired_pvalue": test.unpaired_pvalue, **test.paired._asdict()}
                tests.append({**what, "metric": "mse", **numbers})
    return corrected(tests, "unpaired_pvalue", "t_pvalue", "wilcoxon_pvalue")
