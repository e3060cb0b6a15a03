"""Settings looked for, on validation data."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise.cli.options import (
    ALL_MODELS,
    RATING_MODELS,
    SENSOR_MODELS,
    Data,
    Json,
    Settings,
    TensorOptions,
    TimedColumns,
    choice,
    parsed,
    refuse,
    time_of,
    to_write,
)
from noisewise.cli.output import Stopped, aligned, tell
from noisewise.evaluation import ratings, sensors
from noisewise.evaluation.comparison import Result
from noisewise.evaluation.trials import Task, parse_range
from noisewise.evaluation.tuning import DEFAULT, METHODS, Budget, error
from noisewise.evaluation.tuning import tune as search

Models = Annotated[
    list[str],
    choice(
        ALL_MODELS,
        "--model",
        help=f"Ratings: {', '.join(RATING_MODELS)}. Sensors: {', '.join(SENSOR_MODELS)}. May be "
        "given often: all get the same budget.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None, to_write(help="Keep all trials in this JSON; go on from it if it is there.")
]


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How settings are looked for, where, and for how long."""

    trials: Annotated[
        int | None, typer.Option(help="Trials of each model.", show_default=str(DEFAULT.trials))
    ] = None
    minutes: Annotated[
        float | None, typer.Option(help="Instead of --trials: minutes that each model gets.")
    ] = None
    method: Annotated[str, choice(METHODS, help=f"One of {', '.join(METHODS)}.")] = "random"
    metric: Annotated[
        str | None,
        choice(
            tuple(dict.fromkeys(ratings.METRICS + sensors.METRICS)),
            help="What to rank by. Ratings: rmse (the default) or nll. Sensors: mse (the default), "
            "trimmed_mse, median_se or nll.",
            metavar="METRIC",
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="Which split; and draws settings.")] = 0
    settings: Settings = field(default_factory=list)
    ranges: Annotated[
        list[str],
        typer.Option(
            "--range", help="Where to look: l2=0.01:0.1:log, warmup=1:6 or rank=8,16; often."
        ),
    ] = field(default_factory=list)

    @property
    def budget(self) -> Budget:
        """What each model gets."""
        if self.trials is None and self.minutes is None:
            return DEFAULT
        return Budget(self.trials, self.minutes)


@dataclass(frozen=True, kw_only=True)
class ValidationOptions(TensorOptions):
    """What settings are judged by."""

    validation: Annotated[
        str | None,
        choice(
            (*ratings.PROTOCOLS, *sensors.PROTOCOLS),
            help="Ratings: random (random ones; the default), time (later ones) or user. Sensors: "
            "cells (single readings; the default) or blocks (outages).",
        ),
    ] = None
    share: Annotated[
        float | None,
        typer.Option(
            help="Sensors: percentage of all cells that train; of blocks, the percentage that is "
            "left for test (20).",
            show_default="90 of what is observed",
        ),
    ] = None


def tune(
    data: Data,
    model: Models,
    out: Out = None,
    *,
    how: SearchOptions,
    judged: ValidationOptions,
    columns: TimedColumns,
    jobs: Annotated[int, typer.Option(help="Threads; -1 uses all cores.")] = -1,
    report: Json = None,
) -> None:
    """Look for good settings of one model or of several, on validation data and never on test data.

    What is tried is kept after every trial; the same command takes it up again, and one with more
    trials goes on. `fit` and `evaluate` take the best with --settings.

    Example: `noisewise tune ratings.csv --model dmf --model biased-mf --trials 30 --out tuned.json`

    Example: `noisewise tune intel.npz --dataset intel-2epoch --model fast --validation blocks`
    """
    fixed, budget = parsed(how.settings), how.budget
    task = _task(data, model, fixed, how.seed, judged, columns)
    try:
        result = search(
            task, model, budget=budget, method=how.method, metric=how.metric, seed=how.seed,
            fixed=fixed, ranges=dict(map(parse_range, how.ranges)), path=out, n_jobs=jobs,
        )  # fmt: skip
    except KeyboardInterrupt:
        if out is None or not out.exists():
            raise Stopped("Stopped; no trial was kept.") from None
        raise Stopped(
            f"Stopped; finished trials are in {out}, and the same command goes on from there."
        ) from None
    tell(_told(result, out), result, report)


def _task(
    data: Path,
    models: list[str],
    fixed: dict[str, Any],
    seed: int,
    judged: ValidationOptions,
    columns: TimedColumns,
) -> Task:
    """Read what settings are judged on: sensors where anything says so, else ratings."""
    only_sensors = any(name in SENSOR_MODELS and name not in RATING_MODELS for name in models)
    if judged.dataset is not None or judged.validation in sensors.PROTOCOLS or only_sensors:
        refuse("is for ratings; sensors have their time as the last id", time=columns.time)
        protocol = judged.validation or "cells"
        outage = judged.outage_under(protocol)
        share = None if judged.share is None else judged.share / 100
        return sensors.sensor_task(
            columns.readings(data, judged.dataset), protocol=protocol, share=share, outage=outage,
            seed=seed,
        )  # fmt: skip
    refuse("is for sensors: add --dataset, or --validation cells or blocks", share=judged.share,
           outage=judged.outage)  # fmt: skip
    protocol = judged.validation or "random"
    time = columns.time or time_of(fixed) or ("timestamp" if protocol == "time" else None)
    return ratings.rating_task(columns.read(data, time), protocol=protocol, seed=seed)


def _told(result: Result, out: Path | None) -> str:
    metric = result["metric"]
    table: dict[str, list[Any]] = {"model": list(result["models"])}
    entries = result["models"].values()
    table["trials"] = [len(entry["trials"]) for entry in entries]
    table["diverged"] = [sum("diverged" in one for one in entry["trials"]) for entry in entries]
    table[f"best {metric}"] = [error(entry["best"], metric) for entry in entries]
    table["seconds"] = [round(entry["seconds"], 1) for entry in entries]
    best = result["best"]
    if best is None:
        return f"{aligned(table)}\nNo trial came to an end: name smaller steps with --range."
    settings = " ".join(f"--set {name}={_short(value)}" for name, value in best["settings"].items())
    kept = "" if out is None else f"\nfit and evaluate take it with --settings {out}"
    return f"{aligned(table)}\n{best['model']} {settings}{kept}"


def _short(value: Any) -> str:
    """Return a setting as --set takes it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return shlex.quote(value if isinstance(value, str) else json.dumps(value))
