"""What commands share: options, settings as text, tables, reports."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise import datasets, storage
from noisewise.datasets import sensors
from noisewise.datasets.sensor_data import SensorData
from noisewise.errors import SettingError
from noisewise.experiments.ratings import as_json
from noisewise.experiments.sensors import as_sensors
from noisewise.experiments.tuned import best_settings
from noisewise.observations import Observations

Data = Annotated[
    Path,
    typer.Argument(
        help="CSV, TSV, Parquet, npz; MovieLens or Netflix as they come.", show_default=False
    ),
]
Settings = Annotated[
    list[str], typer.Option("--set", help="A setting, e.g. rank=64; may be given often.")
]
Tuned = Annotated[
    Path | None,
    typer.Option(
        "--settings", help="What `tune` found: model, unless named, and settings, unless --set."
    ),
]
IdColumns = Annotated[
    list[str], typer.Option("--id", help="An id column; give one per mode, in order.")
]
ValueColumn = Annotated[str | None, typer.Option("--value", help="The column with the values.")]
Duplicated = Annotated[str, typer.Option(help="A cell given more than once: error, last or mean.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the report as JSON; - prints it.")]
Dataset = Annotated[
    str | None,
    typer.Option(
        help="Sensors: cut DATA to a tensor that has results: london-paper-size or intel-2epoch."
    ),
]


def read(
    path: Path, ids: Sequence[str], value: str | None, duplicates: str, time: str | None = None
) -> Observations:
    """Read observations from a file, columns as options name them."""
    return datasets.read(
        path,
        ids=list(ids) or None,
        value=value,
        time=time,
        duplicates=duplicates,  # type: ignore[arg-type]
    )


def readings(
    path: Path, dataset: str | None, ids: Sequence[str], value: str | None, duplicates: str
) -> SensorData:
    """Read sensors: a named dataset, files that their owners publish, or any table of three ids."""
    if dataset is not None:
        return sensors.named(dataset, path)
    if not ids and value is None and (path.suffix == ".npz" or sensors.is_sensors(path)):
        return sensors.read(path)
    return as_sensors(read(path, ids, value, duplicates))


def refuse(why: str, **options: Any) -> None:
    """Raise for the first option that is given where it would do nothing."""
    for name, given in options.items():
        if given not in (None, []):
            raise SettingError(f"--{name} {why}; got {given}.")


def time_of(settings: dict[str, Any]) -> str | None:
    """Return the column of times that a model asks for."""
    time = settings.get("time")
    return time if isinstance(time, str) else None


def parsed(settings: Iterable[str]) -> dict[str, Any]:
    """Read settings such as rank=64: numbers, true, false, null, pairs as [1, 5], or words."""
    found = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise SettingError(f"--set takes NAME=VALUE, e.g. rank=64; got {setting!r}.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        found[name.strip()] = tuple(value) if isinstance(value, list) else value
    return found


def chosen(
    settings: Iterable[str], tuned: Path | None, model: str | None, kind: str
) -> tuple[str | None, dict[str, Any]]:
    """Return model and settings: those of --set, above those of a file of tuning."""
    found: dict[str, Any] = {}
    if tuned is not None:
        model, found = best_settings(tuned, model, kind)
    return model, {**found, **parsed(settings)}


def tell(text: str, report: Any, path: Path | None) -> None:
    """Print the text, or write the report where --json says; - prints the report instead."""
    if path is None or str(path) != "-":
        print(text)
    document = as_json(report)
    if path is not None and str(path) == "-":
        print(document, end="")
    elif path is not None:
        storage.write_bytes(path, document.encode())


def records(table: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return columns as rows."""
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def as_csv(table: dict[str, list[Any]]) -> str:
    """Return columns as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return text.getvalue()


def aligned(table: dict[str, list[Any]]) -> str:
    """Columns of text, numbers with four digits and to the right."""
    columns = []
    for name, entries in table.items():
        texts = [f"{e:.4f}" if isinstance(e, float) else str(e) for e in entries]
        width = max(map(len, [name, *texts]))
        columns.append([text.rjust(width) for text in [name, *texts]])
    return "\n".join("  ".join(row) for row in zip(*columns, strict=True))
