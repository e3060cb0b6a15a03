"""Table 1: how large the datasets are, and how much of them is observed."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from noisewise.evaluation.records import data_of
from noisewise_reproduction.runs.plan import Plan
from noisewise_reproduction.runs.run import Numbers, Run
from noisewise_reproduction.runs.sources import Source
from noisewise_reproduction.runs.summaries import Finished, rows_of

TITLE = "Datasets"


def runs(plan: Plan) -> list[Run]:
    """Return one run per dataset that there is; counts need no splits."""
    found = plan.there(plan.artefact("datasets")["names"])
    return [
        Run(
            {
                "task": "count",
                "dataset": source.name,
                "model": "none",
                "data": data_of(source.observations),
                "seed": 0,
            },
            {"dataset": source.name, "kind": source.kind},
            partial(counted, source),
        )
        for source in found
    ]


def counted(source: Source, n_jobs: int) -> Numbers:
    """Measure a run: shape, observations and sparsity; it takes no threads."""
    seen = source.observations
    return {
        "modes": list(seen.names),
        "shape": list(seen.shape),
        "observations": len(seen),
        "sparsity": 1.0 - len(seen) / math.prod(seen.shape),
    }


def gather(plan: Plan, found: Finished) -> dict[str, Any]:
    """Return the table."""
    return {"rows": rows_of(found, dict)}
