"""Models measured on ratings and on sensors, results compared, and settings looked for."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from noisewise import registry
from noisewise.cli import options, spread
from noisewise.cli.features import FeatureOptions
from noisewise.cli.judging import ListOptions, compared, label
from noisewise.cli.options import Stopped, aligned, check_file, chosen, option, refuse, say
from noisewise.data import Observations
from noisewise.data.panel import Panel
from noisewise.engine.workers import Cluster
from noisewise.errors import SettingError
from noisewise.evaluation import comparison, ratings, sensors, tuning
from noisewise.evaluation.comparison import Result
from noisewise.evaluation.ranking import METRICS as LIST_SCORES
from noisewise.evaluation.ranking import PER_USER, Ranking, higher_is_better
from noisewise.evaluation.records import Record, data_of, read_results
from noisewise.evaluation.trials import Task, parse_range

RATING_SCORES = ("rmse", "nll", "log_loss", "spearman", "auc", "coverage90", "epochs", "seconds")
SENSOR_SCORES = ("mse", "median_se", "nll", "coverage90", "seconds")
METRICS = tuple(dict.fromkeys(ratings.METRICS + PER_USER + sensors.METRICS))
PROTOCOLS = (*ratings.PROTOCOLS, *sensors.PROTOCOLS)


@dataclass(frozen=True, kw_only=True)
class TensorOptions:
    """Which tensor of sensors, and how long its outages last."""

    dataset: str | None = options.DATASET
    outage: float | None = option(
        "Sensors, blocks: seconds that an outage lasts; known for a named dataset."
    )

    def outage_under(self, protocol: str) -> float | None:
        """Return how long an outage lasts, if a protocol has any: as given, or as is usual."""
        if protocol != "blocks" or self.outage is not None or self.dataset is None:
            return self.outage
        usual: float = registry.tensor(self.dataset).declared.outage
        return usual


@dataclass(frozen=True, kw_only=True)
class SplitOptions(TensorOptions):
    """Which splits a model is measured on, and against which result it is tested."""

    splits: int = option("How many splits.", "--splits", "--repeats", default=5)
    seed: int = option("The first split's seed.", default=0)
    protocol: str | None = option(
        "Ratings: random (random tenths; the default), paper (the same, but unknown ids "
        "get the rating 3), time (later ratings), user or last (every user's last rating). "
        "Sensors: cells (single readings; the default) or blocks (outages).",
        choices=PROTOCOLS,
    )
    share: str | None = option(
        "Sensors: percentage of all cells that train, or several, as 5,10,15,20; of "
        "blocks, the percentage that is hidden (20)."
    )
    against: Path | None = option("A result of the same splits to test against, in pairs.")

    def shares(self, protocol: str) -> list[float]:
        """Read percentages such as 5,10,15."""
        if self.share is None and protocol == "blocks":
            return [sensors.OUTAGE_SHARE]
        try:
            return [float(part) / 100 for part in (self.share or "").split(",")]
        except ValueError:
            raise SettingError(
                "--share takes percentages, one or more, such as 15 or 5,10,15,20; got "
                f"{self.share!r}."
            ) from None


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How settings are looked for, where, and for how long."""

    trials: int | None = option("Trials of each model.", show_default=str(tuning.DEFAULT.trials))
    minutes: float | None = option("Instead of --trials: minutes that each model gets.")
    method: str = option(
        f"One of {', '.join(tuning.METHODS)}.", default="random", choices=tuning.METHODS
    )
    metric: str | None = option(
        "What to rank by. Ratings: rmse (the default), nll, or of lists ndcg, recall, mrr or hit. "
        "Sensors: mse (the default), trimmed_mse, median_se or nll.",
        choices=METRICS,
        metavar="METRIC",
    )
    seed: int = option("Which split; and draws settings.", default=0)
    settings: list[str] = options.SETTINGS
    ranges: list[str] = option(
        "Where to look: l2=0.01:0.1:log, warmup=1:6 or rank=8,16; often.", "--range", default=[]
    )


@dataclass(frozen=True, kw_only=True)
class ValidationOptions(TensorOptions):
    """What settings are judged by."""

    validation: str | None = option(
        "Ratings: random (random ones; the default), time (later ones), user or last (every "
        "user's last but one). Sensors: cells (single readings; the default) or blocks (outages).",
        choices=PROTOCOLS,
    )
    share: float | None = option(
        "Sensors: percentage of all cells that train; of blocks, the percentage that is "
        "left for test (20).",
        show_default="90 of what is observed",
    )

    def task(
        self,
        data: Path,
        models: list[str],
        columns: options.TimedColumns,
        how: SearchOptions,
        lists: ListOptions,
        features: FeatureOptions,
    ) -> Task:
        """Read what settings are judged on: sensors where anything says so, else ratings."""
        only_sensors = any(
            one in options.SENSOR_MODELS and one not in options.RATING_MODELS for one in models
        )
        if only_sensors or self.dataset is not None or self.validation in sensors.PROTOCOLS:
            refuse("is for ratings; sensors have their time as the last id", time=columns.time)
            lists.refuse()
            features.refuse()
            protocol = self.validation or "cells"
            return sensors.sensor_task(
                columns.readings(data, self.dataset), protocol=protocol, seed=how.seed,
                share=None if self.share is None else self.share / 100,
                outage=self.outage_under(protocol),
            )  # fmt: skip
        refuse("is for sensors: add --dataset, or --validation cells or blocks", share=self.share,
               outage=self.outage)  # fmt: skip
        protocol = self.validation or "random"
        usual = "timestamp" if protocol in ratings.TIMED else None
        time = columns.time or options.time_of(options.parsed(how.settings)) or usual
        seen = lists.filtered(columns.read(data, time))
        beside: Any = {"ranking": lists.ranking(wanted=how.metric in PER_USER)}
        beside["features"] = features.tables(seen.ids, data)
        return ratings.rating_task(seen, protocol=protocol, seed=how.seed, **beside)


def evaluate(
    data: Path = options.DATA,
    model: str | None = option(
        f"Ratings: {options.RATING_NAMES}; dmf, unless another is named. "
        f"Sensors: {options.SENSOR_NAMES}; auto, unless another is named.",
        choices=options.ALL_MODELS,
    ),
    settings: list[str] = options.SETTINGS,
    tuned: Path | None = options.TUNED,
    *,
    over: SplitOptions,
    lists: ListOptions,
    columns: options.TimedColumns,
    features: FeatureOptions,
    device: str | None = options.DEVICE,
    workers: spread.ClusterOptions,
    report: Path | None = options.JSON,
) -> None:
    """Measure a model, as `fit` makes it, on ratings or readings that it has not seen.

    The file of --json is written after every split. If it is there already, splits that it has are
    kept: a run that was stopped, by Ctrl-C or otherwise, is taken up again. Results of several
    shares or protocols are kept in it as a list.

    Example: `noisewise evaluate ml1m.npz --model biased-mf --protocol paper --json biased-mf.json`

    Example: `noisewise evaluate ml100k.npz --model item-knn --protocol last --top 10 --splits 1`

    Example: `noisewise evaluate intel.npz --dataset intel-2epoch --model bayes --protocol blocks`

    Example: `noisewise evaluate ratings/ --model dmf --cluster auto --splits 3 --json dmf.json`
    """
    with ExitStack() as stack:
        if over.dataset is not None or over.protocol in sensors.PROTOCOLS:
            refuse("is for ratings; sensors have their time as the last id", time=columns.time)
            for of_ratings in (lists, features, workers):
                of_ratings.refuse()
            if over.dataset is not None:
                refuse("is not for a named dataset, whose columns are known", id=columns.id,
                       value=columns.value)  # fmt: skip
            name, own = chosen("sensors", model, "auto", settings, tuned, device)
            readings = columns.readings(data, over.dataset)
            record = _record(name, readings.observations, report)
            measured = partial(_on_sensors, readings)
        else:
            refuse("is for sensors: add --dataset, or --protocol cells or blocks",
                   share=over.share, outage=over.outage)  # fmt: skip
            name, own = chosen("ratings", model, "dmf", settings, tuned, device)
            usual = "timestamp" if over.protocol in ratings.TIMED else options.time_of(own)
            place = stack.enter_context(workers.measuring(registry.build("ratings", name, own)))
            reading = spread.reading(place, data, columns, columns.time or usual)
            observations = lists.filtered(stack.enter_context(reading))
            record = _record(name, observations, report)
            tables = features.tables(observations.ids, data)
            measured = partial(_on_ratings, observations, lists.ranking(), tables, place)
        try:
            text = measured(name, own, over, record)
        except KeyboardInterrupt:
            raise _stopped("result", f"{_count(record)} finished splits", record.path) from None
    options.tell(text, record.content, report)


def compare(
    first: Path = typer.Argument(..., help="A result that `evaluate` wrote."),
    second: Path = typer.Argument(..., help="Another one, of the same splits."),
    metric: str | None = option("Which error; mse or rmse by default."),
    report: Path | None = options.JSON,
) -> None:
    """Test whether two models differ on the same splits: in pairs, and the way the paper does.

    The paper takes both models' errors as independent samples (Student's t of two samples). As
    splits are the same, pairs tell more: their t-test, and Wilcoxon's signed ranks.

    Lists of the protocol `last` are compared user by user.

    Example: `noisewise compare dtf.json ptf.json --metric nll`
    """
    rows = compared(read_results(first), read_results(second), metric)
    options.tell(_in_columns(rows), rows, report)


def tune(
    data: Path = options.DATA,
    model: list[str] = option(
        f"Ratings: {options.RATING_NAMES}. Sensors: {options.SENSOR_NAMES}. May be "
        "given often: all get the same budget.",
        default=...,
        choices=options.ALL_MODELS,
    ),
    out: Path | None = option(
        "Keep all trials in this JSON; go on from it if it is there.", check=check_file
    ),
    *,
    how: SearchOptions,
    judged: ValidationOptions,
    lists: ListOptions,
    columns: options.TimedColumns,
    features: FeatureOptions,
    jobs: int = option("Threads; -1 uses all cores.", default=-1),
    device: str | None = options.DEVICE,
    report: Path | None = options.JSON,
) -> None:
    """Look for good settings of one model or of several, on validation data and never on test data.

    What is tried is kept after every trial; the same command takes it up again, and one with more
    trials goes on. `fit` and `evaluate` take the best with --settings.

    Example: `noisewise tune ratings.csv --model dmf --model biased-mf --trials 30 --out tuned.json`

    Example: `noisewise tune intel.npz --dataset intel-2epoch --model fast --validation blocks`
    """
    trials = tuning.DEFAULT.trials if how.minutes is None and how.trials is None else how.trials
    fixed, budget = options.parsed(how.settings), tuning.Budget(trials, how.minutes)
    task = judged.task(data, model, columns, how, lists, features)
    if device is not None:  # no file of trials keeps it
        task = replace(task, settings={**task.settings, "device": device})
    metric = how.metric
    if metric in PER_USER:  # named with the length of lists
        metric = next(name for name in task.metrics if name.startswith(metric))
    try:
        result = tuning.tune(
            task, model, budget=budget, method=how.method, metric=metric, seed=how.seed,
            fixed=fixed, ranges=dict(map(parse_range, how.ranges)), path=out, n_jobs=jobs,
        )  # fmt: skip
    except KeyboardInterrupt:
        raise _stopped("trial", "finished trials", out) from None
    options.tell(_told(result, out), result, report)


def _on_ratings(
    seen: Observations,
    ranking: Ranking | None,
    features: dict[int, Any] | None,
    cluster: Cluster | None,
    model: str,
    settings: dict[str, Any],
    over: SplitOptions,
    record: Record,
) -> str:
    """Measure a model on ratings; return what is told of it."""
    protocol = over.protocol or "random"
    result = ratings.evaluate(
        seen, model, settings, splits=over.splits, seed=over.seed, protocol=protocol,
        ranking=ranking, features=features, cluster=cluster, verbose=settings.get("verbose"),
        earlier=record.under(protocol), after_split=record.keep,
    )  # fmt: skip
    keys = [] if ranking is None else [f"{name}{ranking.top}" for name in LIST_SCORES]
    keys = [*RATING_SCORES[:-2], *keys, *RATING_SCORES[-2:]]
    text = aligned(_by_split(result, [key for key in keys if key in result["mean"]]))
    if over.against is not None:
        others = read_results(over.against)
        other = next((one for one in others if one["protocol"] == protocol), others[0])
        test = comparison.compare(result, other).paired
        result["against"] = {"model": other["model"], "metric": "rmse", **test._asdict()}
        text += (
            f"\nrmse minus that of {other['model']}: {test.difference:+.4f} "
            f"(95 % {test.low:+.4f} to {test.high:+.4f}), lower on {test.wins} of {test.n}, "
            f"paired t p = {test.t_pvalue:.2g}"
        )
    record.keep(result)
    return text


def _on_sensors(
    readings: Panel, model: str, settings: dict[str, Any], over: SplitOptions, record: Record
) -> str:
    """Measure a model on readings of sensors; return what is told of it."""
    protocol = over.protocol or "cells"
    shares, outage = over.shares(protocol), over.outage_under(protocol)
    if protocol == "blocks" and outage is None:
        raise SettingError("--protocol blocks needs --outage, in seconds, such as 7200.")
    coordinates = readings.coordinates
    build = partial(registry.build, "sensors", model, settings, coordinates=coordinates, n_jobs=-1)
    for share in shares:
        result = sensors.evaluate(
            readings, lambda seed: build(random_state=seed), protocol=protocol, share=share,
            outage=outage, name=model, repeats=over.splits, seed=over.seed,
            verbose=settings.get("verbose"),
            earlier=record.under(sensors.protocol_of(protocol, share, outage)),
            after_split=record.keep,
        )  # fmt: skip
        record.keep(result)
    tables = []
    for result in record.results:
        table = _by_split(result, SENSOR_SCORES)
        under = [label(result["protocol"])] * len(table["seed"])
        tables.append(aligned({"protocol": under, **table}))
    if over.against is not None:
        tables.append(_in_columns(compared(record.results, read_results(over.against))))
    return "\n\n".join(tables)


def _record(model: str, observations: Observations, report: Path | None) -> Record:
    """Results of a model so far, in the file of --json if there is one."""
    about = {"model": model, "data": data_of(observations)}
    record = Record(about, None if str(report) == "-" else report)
    if many := _count(record):
        say(f"{record.path} has {many} splits, which are not run again; remove it to start anew.")
    return record


def _count(record: Record) -> int:
    return sum(len(result["splits"]) for result in record.results)


def _stopped(what: str, finished: str, path: Path | None) -> Stopped:
    """Say where that is which was finished when Ctrl-C was pressed."""
    if path is None or not path.exists():
        return Stopped(f"Stopped; no {what} was kept.")
    return Stopped(f"Stopped; {finished} are in {path}, and the same command goes on from there.")


def _in_columns(rows: list[dict[str, Any]]) -> str:
    return aligned({key: [row[key] for row in rows] for key in rows[0]})


def _by_split(result: Result, keys: Iterable[str]) -> dict[str, list[Any]]:
    """Return a table with a row for every split, and one for their mean."""
    rows, mean = result["splits"], {**result["mean"], "seed": "mean"}
    return {key: [row[key] for row in (*rows, mean)] for key in ("seed", *keys)}


def _told(result: Result, out: Path | None) -> str:
    metric, best, entries = result["metric"], result["best"], result["models"].values()
    sign = -1 if higher_is_better(metric) else 1
    table: dict[str, list[Any]] = {
        "model": list(result["models"]),
        "trials": [len(entry["trials"]) for entry in entries],
        "diverged": [sum("diverged" in one for one in entry["trials"]) for entry in entries],
        f"best {metric}": [sign * tuning.error(entry["best"], metric) for entry in entries],
        "seconds": [round(entry["seconds"], 1) for entry in entries],
    }
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
