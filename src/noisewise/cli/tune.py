"""Settings looked for, on validation data."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise import registry
from noisewise.cli.checks import choice, to_write
from noisewise.cli.shared import (
    ALL_MODELS,
    RATING_MODELS,
    SENSOR_MODELS,
    Data,
    Dataset,
    Duplicated,
    Format,
    IdColumns,
    Json,
    Settings,
    Stopped,
    ValueColumn,
    parsed,
    read,
    readings,
    refuse,
    tell,
    time_of,
)
from noisewise.cli.tables import aligned
from noisewise.evaluation import ratings, sensors
from noisewise.evaluation.comparison import Result
from noisewise.evaluation.ranges import parse_range
from noisewise.evaluation.trials import (
    RATING_METRICS,
    SENSOR_METRICS,
    Task,
    rating_task,
    sensor_task,
)
from noisewise.evaluation.tune import DEFAULT, METHODS, Budget
from noisewise.evaluation.tune import tune as search
from noisewise.evaluation.tuned import error


def tune(
    data: Data,
    model: Annotated[
        list[str],
        choice(
            ALL_MODELS,
            help=f"Ratings: {', '.join(RATING_MODELS)}. Sensors: {', '.join(SENSOR_MODELS)}. May "
            "be given often: all get the same budget.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        to_write(help="Keep all trials in this JSON; go on from it if it is there."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Trials of each model.", show_default=str(DEFAULT.trials))
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Instead of --trials: minutes that each model gets.")
    ] = None,
    method: Annotated[str, choice(METHODS, help=f"One of {', '.join(METHODS)}.")] = "random",
    metric: Annotated[
        str | None,
        choice(
            tuple(dict.fromkeys(RATING_METRICS + SENSOR_METRICS)),
            help="What to rank by. Ratings: rmse (the default) or nll. Sensors: mse (the default), "
            "trimmed_mse, median_se or nll.",
            metavar="METRIC",
        ),
    ] = None,
    validation: Annotated[
        str | None,
        choice(
            (*ratings.PROTOCOLS, *sensors.PROTOCOLS),
            help="Ratings: random (random ones; the default), time (later ones) or user. Sensors: "
            "cells (single readings; the default) or blocks (outages).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Which split; and draws settings.")] = 0,
    settings: Settings = [],  # noqa: B006 - typer reads the default, nobody changes it
    ranges: Annotated[
        list[str],
        typer.Option(
            "--range", help="Where to look: l2=0.01:0.1:log, warmup=1:6 or rank=8,16; often."
        ),
    ] = [],  # noqa: B006
    dataset: Dataset = None,
    share: Annotated[
        float | None,
        typer.Option(
            help="Sensors: percentage of all cells that train; of blocks, the percentage that is "
            "left for test (20).",
            show_default="90 of what is observed",
        ),
    ] = None,
    outage: Annotated[
        float | None,
        typer.Option(
            help="Sensors, blocks: seconds that an outage lasts; known for a named dataset."
        ),
    ] = None,
    id: IdColumns = [],  # noqa: B006
    value: ValueColumn = None,
    time: Annotated[str | None, typer.Option(help="Ratings: the column with the time.")] = None,
    format: Format = None,
    duplicates: Duplicated = "error",
    jobs: Annotated[int, typer.Option(help="Threads; -1 uses all cores.")] = -1,
    report: Json = None,
) -> None:
    """Look for good settings of one model or of several, on validation data and never on test data.

    What is tried is kept after every trial; the same command takes it up again, and one with more
    trials goes on. `fit` and `evaluate` take the best with --settings.

    Example: `noisewise tune ratings.csv --model dmf --model biased-mf --trials 30 --out tuned.json`

    Example: `noisewise tune intel.npz --dataset intel-2epoch --model fast --validation blocks`
    """
    fixed = parsed(settings)
    budget = DEFAULT if trials is None and minutes is None else Budget(trials, minutes)
    task: Task
    only_sensors = any(name in SENSOR_MODELS and name not in RATING_MODELS for name in model)
    if dataset is not None or validation in sensors.PROTOCOLS or only_sensors:
        refuse("is for ratings; sensors have their time as the last id", time=time)
        kind = validation or "cells"
        if kind == "blocks" and outage is None and dataset is not None:
            outage = registry.tensor(dataset).outage
        task = sensor_task(
            readings(data, dataset, id, value, duplicates, format),
            protocol=kind,
            share=None if share is None else share / 100,
            outage=outage,
            seed=seed,
        )
    else:
        refuse("is for sensors: add --dataset, or --validation cells or blocks", share=share,
               outage=outage)  # fmt: skip
        kind = validation or "random"
        column = time or time_of(fixed) or ("timestamp" if kind == "time" else None)
        observations = read(data, id, value, duplicates, column, format)
        task = rating_task(observations, protocol=kind, seed=seed)
    try:
        result = search(
            task, model, budget=budget, method=method, metric=metric, seed=seed, fixed=fixed,
            ranges=dict(map(parse_range, ranges)), path=out, n_jobs=jobs,
        )  # fmt: skip
    except KeyboardInterrupt:
        if out is None or not out.exists():
            raise Stopped("Stopped; no trial was kept.") from None
        raise Stopped(
            f"Stopped; finished trials are in {out}, and the same command goes on from there."
        ) from None
    tell(_told(result, out), result, report)


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
