"""London and Intel as the committed results have them: the same splits, units and scores.

A scenario is "protocol cells SHARE", where a share of all cells trains, or "protocol blocks", where
a fifth of the stretches is hidden; a mask is a split.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from imputation_cases import TENSORS

RESULTS = Path(__file__).parent.parent / "reproduction" / "results"
HIDDEN = 0.2  # share of stretches that are hidden
MODEL = "bayes-first"  # the figures that the aim was set by

Record = dict[str, Any]


def protocols(dataset: str) -> list[str]:
    """Return the scenarios of a tensor, from what is committed."""
    return [_scenario(result["protocol"]) for result in _committed(dataset)]


def committed_mse(dataset: str, scenario: str) -> dict[int, float]:
    """Return the committed errors by split."""
    for result in _committed(dataset):
        if _scenario(result["protocol"]) == scenario:
            return {row["seed"]: row["mse"] for row in result["splits"]}
    return {}


def protocol_record(data: Path, task: Record) -> Record:
    """Fit a model to one split, as ``noisewise evaluate`` does."""
    from noisewise import registry
    from noisewise.data.panel import SENSOR, named_panel
    from noisewise.evaluation.sensors import evaluate

    name, file = TENSORS[task["dataset"]]
    panel = named_panel(name, data / file)
    (protocol,) = (
        result["protocol"]
        for result in _committed(task["dataset"])
        if _scenario(result["protocol"]) == task["scenario"]
    )
    method, _, settings = task["method"].removeprefix("noisewise-").partition(":")
    fitted = []

    def build(seed: int) -> Any:
        fitted.append(
            registry.build(
                "sensors", method, json.loads(settings) if settings else {}, sensor=SENSOR,
                coordinates=panel.coordinates, random_state=seed, n_jobs=task["threads"],
            )
        )  # fmt: skip
        return fitted[-1]

    result = evaluate(
        panel, build, protocol=protocol["kind"], share=protocol["share"],
        outage=protocol["outage_seconds"], repeats=1, seed=task["mask"], verbose=False,
    )  # fmt: skip
    (row,) = result["splits"]
    reason = getattr(fitted[-1], "reason_", None)
    found = {key: value for key, value in row.items() if key != "seed"}
    return found | ({"reason": reason} if reason else {})


def _committed(dataset: str) -> list[Record]:
    found = json.loads((RESULTS / f"sensors-{dataset}-{MODEL}.json").read_text())
    return found if isinstance(found, list) else [found]


def _scenario(protocol: Record) -> str:
    return (
        "protocol blocks"
        if protocol["kind"] == "blocks"
        else f"protocol cells {protocol['share']:g}"
    )
