"""Models measured: on ratings by several protocols, on sensors by single readings and outages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise import registry
from noisewise.cli.options import (
    ALL_MODELS,
    RATING_MODELS,
    SENSOR_MODELS,
    Data,
    Json,
    Settings,
    TensorOptions,
    TimedColumns,
    Tuned,
    choice,
    chosen,
    refuse,
    time_of,
)
from noisewise.cli.output import Stopped, aligned, say, tell
from noisewise.data import Observations
from noisewise.errors import DataError, SettingError
from noisewise.evaluation import comparison, ratings, sensors
from noisewise.evaluation.comparison import Result
from noisewise.evaluation.records import Record, data_of, is_number, read_results

RATING_SCORES = ("rmse", "nll", "log_loss", "spearman", "auc", "coverage90", "epochs", "seconds")
SENSOR_SCORES = ("mse", "median_se", "nll", "coverage90", "seconds")
NOT_ALIKE = "Results can only be compared over the same data and the same splits."

ModelName = Annotated[
    str | None,
    choice(
        ALL_MODELS,
        "--model",
        help=f"Ratings: {', '.join(RATING_MODELS)}; dmf, unless another is named. "
        f"Sensors: {', '.join(SENSOR_MODELS)}; auto, unless another is named.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class SplitOptions(TensorOptions):
    """Which splits a model is measured on, and against which result it is tested."""

    splits: Annotated[int, typer.Option("--splits", "--repeats", help="How many splits.")] = 5
    seed: Annotated[int, typer.Option(help="The first split's seed.")] = 0
    protocol: Annotated[
        str | None,
        choice(
            (*ratings.PROTOCOLS, *sensors.PROTOCOLS),
            help="Ratings: random (random tenths; the default), paper (the same, but unknown ids "
            "get the rating 3), time (later ratings) or user. Sensors: cells (single readings; the "
            "default) or blocks (outages).",
        ),
    ] = None
    share: Annotated[
        str | None,
        typer.Option(
            help="Sensors: percentage of all cells that train, or several, as 5,10,15,20; of "
            "blocks, the percentage that is hidden (20)."
        ),
    ] = None
    against: Annotated[
        Path | None, typer.Option(help="A result of the same splits to test against, in pairs.")
    ] = None

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


def evaluate(
    data: Data,
    model: ModelName = None,
    settings: Settings = [],  # noqa: B006 - typer reads the default, nobody changes it
    tuned: Tuned = None,
    *,
    over: SplitOptions,
    columns: TimedColumns,
    report: Json = None,
) -> None:
    """Measure a model, as `fit` makes it, on ratings or readings that it has not seen.

    The file of --json is written after every split. If it is there already, splits that it has are
    kept: a run that was stopped, by Ctrl-C or otherwise, is taken up again. Results of several
    shares or protocols are kept in it as a list.

    Example: `noisewise evaluate ml1m.npz --model biased-mf --protocol paper --json biased-mf.json`

    Example: `noisewise evaluate intel.npz --dataset intel-2epoch --model bayes --protocol blocks`
    """
    if over.dataset is not None or over.protocol in sensors.PROTOCOLS:
        refuse("is for ratings; sensors have their time as the last id", time=columns.time)
        if over.dataset is not None:
            refuse("is not for a named dataset, whose columns are known", id=columns.id,
                   value=columns.value)  # fmt: skip
        named, own = chosen(settings, tuned, model, "sensors")
        _on_sensors(data, named or "auto", own, over, columns, report)
        return
    refuse("is for sensors: add --dataset, or --protocol cells or blocks", share=over.share,
           outage=over.outage)  # fmt: skip
    named, own = chosen(settings, tuned, model, "ratings")
    _on_ratings(data, named or "dmf", own, over, columns, report)


def compare(
    first: Annotated[Path, typer.Argument(help="A result that `evaluate` wrote.")],
    second: Annotated[Path, typer.Argument(help="Another one, of the same splits.")],
    metric: Annotated[str | None, typer.Option(help="Which error; mse or rmse by default.")] = None,
    report: Json = None,
) -> None:
    """Test whether two models differ on the same splits: in pairs, and the way the paper does.

    The paper takes both models' errors as independent samples (Student's t of two samples). As
    splits are the same, pairs tell more: their t-test, and Wilcoxon's signed ranks.

    Example: `noisewise compare dtf.json ptf.json --metric nll`
    """
    rows = _compared(read_results(first), read_results(second), metric)
    tell(_in_columns(rows), rows, report)


def _on_ratings(
    data: Path,
    model: str,
    settings: dict[str, Any],
    over: SplitOptions,
    columns: TimedColumns,
    report: Path | None,
) -> None:
    protocol = over.protocol or "random"
    time = columns.time or ("timestamp" if protocol == "time" else time_of(settings))
    observations = columns.read(data, time)
    record = _record(model, observations, report)
    with _kept_in(record):
        result = ratings.evaluate(
            observations, model, settings, splits=over.splits, seed=over.seed, protocol=protocol,
            verbose=settings.get("verbose"), earlier=record.under(protocol),
            after_split=record.keep,
        )  # fmt: skip
    text = aligned(_by_split(result, [key for key in RATING_SCORES if key in result["mean"]]))
    if over.against is not None:
        other = _under(protocol, read_results(over.against))
        test = comparison.compare(result, other).paired
        result["against"] = {"model": other["model"], "metric": "rmse", **test._asdict()}
        text += (
            f"\nrmse minus that of {other['model']}: {test.difference:+.4f} "
            f"(95 % {test.low:+.4f} to {test.high:+.4f}), lower on {test.wins} of {test.n}, "
            f"paired t p = {test.t_pvalue:.2g}"
        )
    record.keep(result)
    tell(text, record.content, report)


def _on_sensors(
    data: Path,
    model: str,
    settings: dict[str, Any],
    over: SplitOptions,
    columns: TimedColumns,
    report: Path | None,
) -> None:
    readings = columns.readings(data, over.dataset)
    protocol = over.protocol or "cells"
    shares, outage = over.shares(protocol), over.outage_under(protocol)
    if protocol == "blocks" and outage is None:
        raise SettingError("--protocol blocks needs --outage, in seconds, such as 7200.")

    def build(seed: int) -> Any:
        return registry.build(
            "sensors", model, settings, coordinates=readings.coordinates, random_state=seed,
            n_jobs=-1,
        )  # fmt: skip

    record = _record(model, readings.observations, report)
    with _kept_in(record):
        for share in shares:
            result = sensors.evaluate(
                readings, build, protocol=protocol, share=share, outage=outage, name=model,
                repeats=over.splits, seed=over.seed, verbose=settings.get("verbose"),
                earlier=record.under(sensors.protocol_of(protocol, share, outage)),
                after_split=record.keep,
            )  # fmt: skip
            record.keep(result)
    tables = []
    for result in record.results:
        table = _by_split(result, SENSOR_SCORES)
        label = [_label(result["protocol"])] * len(table["seed"])
        tables.append(aligned({"protocol": label, **table}))
    if over.against is not None:
        tables.append(_in_columns(_compared(record.results, read_results(over.against))))
    tell("\n\n".join(tables), record.content, report)


def _record(model: str, observations: Observations, report: Path | None) -> Record:
    """Results of a model so far, in the file of --json if there is one."""
    about = {"model": model, "data": data_of(observations)}
    record = Record(about, None if str(report) == "-" else report)
    many = sum(len(result["splits"]) for result in record.results)
    if many:
        say(f"{record.path} has {many} splits, which are not run again; remove it to start anew.")
    return record


@contextmanager
def _kept_in(record: Record) -> Iterator[None]:
    """Say at Ctrl-C where the splits are that were finished."""
    try:
        yield
    except KeyboardInterrupt:
        many = sum(len(result["splits"]) for result in record.results)
        if record.path is None or not many:
            raise Stopped("Stopped; no result was kept.") from None
        raise Stopped(
            f"Stopped; {many} finished splits are in {record.path}, and the same command goes on "
            "from there."
        ) from None


def _under(protocol: str, results: list[Result]) -> Result:
    for result in results:
        if result["protocol"] == protocol:
            return result
    raise DataError(NOT_ALIKE)


def _in_columns(rows: list[dict[str, Any]]) -> str:
    return aligned({key: [row[key] for row in rows] for key in rows[0]})


def _compared(
    first: list[Result], second: list[Result], metric: str | None = None
) -> list[dict[str, Any]]:
    """Compare results under each protocol that both have."""
    pairs = [(a, b) for a in first for b in second if a["protocol"] == b["protocol"]]
    if not pairs:
        raise DataError(NOT_ALIKE)
    rows = []
    for a, b in pairs:
        chosen = metric or comparison.usual_metric(a)
        test = comparison.compare(a, b, chosen)
        if any(not is_number(one.get("mean", {}).get(chosen)) for one in (a, b)):
            raise DataError(f"Both results need the mean of {chosen!r}, as a number.")
        rows.append(
            {
                "protocol": _label(a["protocol"]),
                "metric": chosen,
                a["model"]: a["mean"][chosen],
                b["model"] if b["model"] != a["model"] else f"{b['model']} (2)": b["mean"][chosen],
                "difference": test.paired.difference,
                "low": test.paired.low,
                "high": test.paired.high,
                "lower on": f"{test.paired.wins} of {test.paired.n}",
                "paired p": test.paired.t_pvalue,
                "Wilcoxon p": test.paired.wilcoxon_pvalue,
                "unpaired p": test.unpaired_pvalue,
            }
        )
    return rows


def _by_split(result: Result, keys: Iterable[str]) -> dict[str, list[Any]]:
    """Return a table with a row for every split, and one for their mean."""
    table: dict[str, list[Any]] = {"seed": [row["seed"] for row in result["splits"]] + ["mean"]}
    for key in keys:
        table[key] = [row[key] for row in result["splits"]] + [result["mean"][key]]
    return table


def _label(protocol: Any) -> str:
    if not isinstance(protocol, dict):
        return str(protocol)
    return f"{protocol['kind']} {100 * protocol['share']:g} %"
