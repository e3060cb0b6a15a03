"""Models measured: on ratings by several protocols, on sensors by single readings and outages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise import registry
from noisewise.cli.checks import choice
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
    Tuned,
    ValueColumn,
    chosen,
    read,
    readings,
    refuse,
    say,
    tell,
    time_of,
)
from noisewise.cli.tables import aligned
from noisewise.data import Observations
from noisewise.data.panel import Panel
from noisewise.documents import is_number
from noisewise.errors import DataError, SettingError
from noisewise.evaluation import comparison, ratings, records, sensors
from noisewise.evaluation.comparison import Result
from noisewise.evaluation.records import Record, read_results


def evaluate(
    data: Data,
    model: Annotated[
        str | None,
        choice(
            ALL_MODELS,
            help=f"Ratings: {', '.join(RATING_MODELS)}; dmf, unless another is named. "
            f"Sensors: {', '.join(SENSOR_MODELS)}; auto, unless another is named.",
        ),
    ] = None,
    settings: Settings = [],  # noqa: B006 - typer reads the default, nobody changes it
    tuned: Tuned = None,
    splits: Annotated[int, typer.Option("--splits", "--repeats", help="How many splits.")] = 5,
    seed: Annotated[int, typer.Option(help="The first split's seed.")] = 0,
    protocol: Annotated[
        str | None,
        choice(
            (*ratings.PROTOCOLS, *sensors.PROTOCOLS),
            help="Ratings: random (random tenths; the default), paper (the same, but unknown ids "
            "get the rating 3), time (later ratings) or user. Sensors: cells (single readings; the "
            "default) or blocks (outages).",
        ),
    ] = None,
    dataset: Dataset = None,
    share: Annotated[
        str | None,
        typer.Option(
            help="Sensors: percentage of all cells that train, or several, as 5,10,15,20; of "
            "blocks, the percentage that is hidden (20)."
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
    against: Annotated[
        Path | None, typer.Option(help="A result of the same splits to test against, in pairs.")
    ] = None,
    report: Json = None,
) -> None:
    """Measure a model, as `fit` makes it, on ratings or readings that it has not seen.

    The file of --json is written after every split. If it is there already, splits that it has are
    kept: a run that was stopped, by Ctrl-C or otherwise, is taken up again. Results of several
    shares or protocols are kept in it as a list.

    Example: `noisewise evaluate ml1m.npz --model biased-mf --protocol paper --json biased-mf.json`

    Example: `noisewise evaluate intel.npz --dataset intel-2epoch --model bayes --protocol blocks`
    """
    if dataset is not None or protocol in sensors.PROTOCOLS:
        refuse("is for ratings; sensors have their time as the last id", time=time)
        if dataset is not None:
            refuse("is not for a named dataset, whose columns are known", id=id, value=value)
        readout = readings(data, dataset, id, value, duplicates, format)
        kind = protocol or "cells"
        named, own = chosen(settings, tuned, model, "sensors")
        name = named or "auto"
        record = _record(name, readout.observations, report)
        with _kept_in(record):
            _measure_sensors(
                readout, name, own, kind, _shares(share, kind),
                _outage(kind, outage, dataset), splits, seed, record,
            )  # fmt: skip
        tell(*_sensors_told(record, against), report)
        return
    refuse("is for sensors: add --dataset, or --protocol cells or blocks", share=share,
           outage=outage)  # fmt: skip
    if protocol == "time" and time is None:
        time = "timestamp"
    named, own = chosen(settings, tuned, model, "ratings")
    observations = read(data, id, value, duplicates, time or time_of(own), format)
    name, kind = named or "dmf", protocol or "random"
    record = _record(name, observations, report)
    with _kept_in(record):
        result = ratings.evaluate(
            observations,
            name,
            own,
            splits=splits,
            seed=seed,
            protocol=kind,
            verbose=own.get("verbose"),
            earlier=record.under(kind),
            after_split=record.keep,
        )
    keys = ("rmse", "nll", "log_loss", "spearman", "auc", "coverage90", "epochs", "seconds")
    text = aligned(_by_split(result, [key for key in keys if key in result["mean"]]))
    if against is not None:
        other = _under(kind, read_results(against))
        test = comparison.compare(result, other).paired
        result["against"] = {"model": other["model"], "metric": "rmse", **test._asdict()}
        text += (
            f"\nrmse minus that of {other['model']}: {test.difference:+.4f} "
            f"(95 % {test.low:+.4f} to {test.high:+.4f}), lower on {test.wins} of {test.n}, "
            f"paired t p = {test.t_pvalue:.2g}"
        )
    record.keep(result)
    tell(text, record.content, report)


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
    tell(aligned({key: [row[key] for row in rows] for key in rows[0]}), rows, report)


def _record(model: str, observations: Observations, report: Path | None) -> Record:
    """Results of a model so far, in the file of --json if there is one."""
    about = {"model": model, "data": records.data_of(observations)}
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
    raise DataError("Results can only be compared over the same data and the same splits.")


def _measure_sensors(
    data: Panel,
    model: str,
    settings: dict[str, Any],
    kind: str,
    shares: list[float],
    outage: float | None,
    repeats: int,
    seed: int,
    record: Record,
) -> None:
    def build(number: int) -> Any:
        return registry.build(
            "sensors", model, settings, coordinates=data.coordinates, random_state=number, n_jobs=-1
        )

    for share in shares:
        result = sensors.evaluate(
            data,
            build,
            protocol=kind,
            share=share,
            outage=outage,
            repeats=repeats,
            seed=seed,
            name=model,
            earlier=record.under(sensors.protocol_of(kind, share, outage)),
            after_split=record.keep,
            verbose=settings.get("verbose"),
        )
        record.keep(result)


def _sensors_told(record: Record, against: Path | None) -> tuple[str, Any]:
    """Return what to print and what to write of results on sensors."""
    keys = ("mse", "median_se", "nll", "coverage90", "seconds")
    parts = []
    for result in record.results:
        table = _by_split(result, keys)
        label = [_label(result["protocol"])] * len(table["seed"])
        parts.append(aligned({"protocol": label, **table}))
    if against is not None:
        rows = _compared(record.results, read_results(against), None)
        parts.append(aligned({key: [row[key] for row in rows] for key in rows[0]}))
    return "\n\n".join(parts), record.content


def _compared(
    first: list[Result], second: list[Result], metric: str | None
) -> list[dict[str, Any]]:
    """Compare results under each protocol that both have."""
    pairs = [(a, b) for a in first for b in second if a["protocol"] == b["protocol"]]
    if not pairs:
        raise DataError("Results can only be compared over the same data and the same splits.")
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


def _shares(text: str | None, kind: str) -> list[float]:
    """Read percentages such as 5,10,15."""
    if text is None and kind == "blocks":
        return [sensors.OUTAGE_SHARE]
    try:
        return [float(part) / 100 for part in (text or "").split(",")]
    except ValueError:
        raise SettingError(
            f"--share takes percentages, one or more, such as 15 or 5,10,15,20; got {text!r}."
        ) from None


def _outage(kind: str, outage: float | None, dataset: str | None) -> float | None:
    if kind == "blocks" and outage is None:
        if dataset is None:
            raise SettingError("--protocol blocks needs --outage, in seconds, such as 7200.")
        return registry.tensor(dataset).outage
    return outage
