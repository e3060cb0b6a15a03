"""Claims of the paper that no table and no figure measures.

Zeros in the deviation factors, what an epoch costs, rounds of DRMF, and what becomes of deviations
where there is no noise, or the same noise everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from noisewise.evaluation import comparison
from noisewise_reproduction.runs import small_worlds
from noisewise_reproduction.runs.plan import Plan
from noisewise_reproduction.runs.rating_runs import fit_run, rating_run
from noisewise_reproduction.runs.run import Run
from noisewise_reproduction.runs.summaries import RATIO, Finished, Row, rows_of, summarised

TITLE = "Single claims"
# For each experiment: what is measured, which of the settings it takes, whether it takes time.
SMALL: dict[str, tuple[Callable[..., Any], str, bool]] = {
    "cost of observations": (small_worlds.cost_of_observations, "cost", True),
    "cost of rank": (small_worlds.cost_of_rank, "cost", True),
    "cost of modes": (small_worlds.cost_of_modes, "modes", True),
    "equal noise": (small_worlds.equal_noise, "equal", False),
    "clean data": (small_worlds.clean_data, "clean", False),
}
ERRORS = ("train_rmse", "validation_rmse")


def runs(plan: Plan) -> list[Run]:
    """Return runs of real data, one per model and split, and of made-up data, one per repeat."""
    artefact = plan.artefact("claims")
    found: list[Run] = []
    for source in plan.there(artefact["names"]):
        for seed in plan.seeds:
            found += [rating_run(source, plan.model(label), seed) for label in artefact["rounds"]]
            found += [fit_run(source, plan.model(label), seed) for label in artefact["sparse"]]
    for name, (measure, key, alone) in SMALL.items():
        given = artefact[key]
        for seed in range(given["repeats"]):
            about = {
                "task": "claim", "dataset": "drawn", "model": name, "seed": seed,
                "settings": {k: v for k, v in given.items() if k != "repeats"},
            }  # fmt: skip
            labels = {"experiment": name, "seed": seed}
            found.append(Run(about, labels, partial(measure, given, seed), alone))
    return found


def gather(plan: Plan, found: Finished) -> dict[str, Any]:
    """Return what every experiment found, with means over splits or repeats."""
    artefact = plan.artefact("claims")
    of = {
        task: [one for one in found if one[0].about["task"] == task]
        for task in ("fit", "rating", "claim")
    }
    sparse = [one for one in of["fit"] if one[0].labels["model"] in artefact["sparse"]]
    zeros = rows_of(sparse, lambda numbers: dict(numbers["zeros"]))
    rounds = rows_of(of["rating"], lambda numbers: {"rounds": numbers["rounds"]})
    small = {
        name: [record["numbers"] for run, record in of["claim"] if run.about["model"] == name]
        for name in SMALL
    }
    parts = {"zeros": {"rows": zeros}, "rounds": {"rows": rounds}}
    return {
        **derived(parts, artefact),
        "small": {name: {"repeats": many, **_over(many)} for name, many in small.items() if many},
        "settings_of_experiments": {key: artefact[key] for _, key, _ in SMALL.values()},
    }


def derived(found: dict[str, Any], artefact: dict[str, Any]) -> dict[str, Any]:
    """Return zeros and rounds with what follows from their rows alone."""
    zeros, rounds = found["zeros"]["rows"], found["rounds"]["rows"]
    return {
        "zeros": {"rows": zeros, "summary": summarised(zeros, ["dataset", "model"])},
        "rounds": {"rows": rounds, "summary": _rising(rounds)},
    }


def _rising(rows: list[Row]) -> list[Row]:
    """Return for each share of outliers in how many steps from round to round errors rose."""
    steps = []
    for row in rows:
        rose = {
            name: [after > before for before, after in pairwise(errors)]
            for name, errors in ((name, row["rounds"][name]) for name in ERRORS)
        }
        steps.append(
            {
                **{key: row[key] for key in ("dataset", "model", "seed")},
                **{f"{name}_rose": sum(flags) / max(len(flags), 1) for name, flags in rose.items()},
                "steps": len(rose[ERRORS[0]]),
                RATIO: row.get(RATIO, 0.0),
            }
        )
    return summarised(steps, ["dataset", "model"])


def _over(repeats: list[Row]) -> Row:
    """Return mean and interval of all numbers of an experiment over its repeats."""
    flat = [dict(_flat(one)) for one in repeats]
    found = {name: comparison.summarise([one[name] for one in flat]) for name in flat[0]}
    return {
        "mean": {name: one.mean for name, one in found.items()},
        "interval95": {name: [one.low, one.high] for name, one in found.items()},
    }


def _flat(numbers: Row, prefix: str = "") -> list[tuple[str, float]]:
    """Return single numbers with their names; lists are left out."""
    found = []
    for name, value in numbers.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}: ")
        elif isinstance(value, int | float):
            found.append((f"{prefix}{name}", float(value)))
    return found
