"""Figure 2: linear regression, and one that is told the deviations or learns them."""

from __future__ import annotations

from functools import partial
from typing import Any

from noisewise_reproduction.runs import regression
from noisewise_reproduction.runs.plan import Plan
from noisewise_reproduction.runs.run import Numbers, Run
from noisewise_reproduction.runs.summaries import Finished

TITLE = "Deviations in plain regression"


def runs(plan: Plan) -> list[Run]:
    """Return the one run: all draws of points, in every world."""
    seeds = plan.artefact("regression")["seeds"]
    about = {
        "task": "regression", "dataset": "drawn", "model": "dlr", "seed": 0, "seeds": seeds,
        "variance": regression.VARIANCE,
        "points": [regression.FIGURE_POINTS, regression.POINTS],
    }  # fmt: skip
    return [Run(about, {"model": "dlr", "seed": 0}, partial(compared, seeds))]


def compared(seeds: int, n_jobs: int) -> Numbers:
    """Measure the run: errors in every world, and the points and lines of the figure."""
    points = regression.draw_points(seed=0)
    lines = regression.fits(points, told=True)
    return {
        "worlds": regression.compare(seeds),
        "figure": {
            "x": points.x.tolist(),
            "y": points.y.tolist(),
            "truth": points.truth.tolist(),
            "lines": {name: line.tolist() for name, line in lines.items()},
        },
    }


def gather(plan: Plan, found: Finished) -> dict[str, Any]:
    """Return how far both lines are off in every world, and what the figure shows."""
    (record,) = (record for _, record in found)
    return {"seeds": plan.artefact("regression")["seeds"], **record["numbers"]}
