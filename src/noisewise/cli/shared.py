"""What commands share: options, settings as text, reports."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise import registry, storage
from noisewise.cli.checks import choice, to_write
from noisewise.data import Observations, files
from noisewise.data.files import FORMATS
from noisewise.data.panel import Panel
from noisewise.errors import SettingError, printable
from noisewise.evaluation.records import as_json
from noisewise.evaluation.tuned import best_settings

RATING_MODELS, SENSOR_MODELS = registry.models("ratings"), registry.models("sensors")
ALL_MODELS = tuple(dict.fromkeys((*RATING_MODELS, *SENSOR_MODELS)))
TENSORS = tuple(registry.tensors())

Data = Annotated[
    Path,
    typer.Argument(help="CSV, TSV, Parquet, npz; MovieLens as it comes.", show_default=False),
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
Duplicated = Annotated[
    str,
    choice(
        ("error", "last", "mean"),
        help="A cell given more than once: an error, its last value, or the mean.",
    ),
]
Format = Annotated[
    str | None,
    choice(
        tuple(dict.fromkeys(FORMATS.values())),
        "--format",
        help="What DATA is, where its name does not say: "
        f"{', '.join(dict.fromkeys(FORMATS.values()))}.",
    ),
]
Json = Annotated[
    Path | None, to_write("--json", help="Write the report as JSON to this file; - prints it.")
]
Dataset = Annotated[
    str | None,
    choice(
        TENSORS,
        help="Sensors: cut DATA to a tensor that has results: "
        f"{' or '.join(TENSORS) or 'no installed package has one'}.",
    ),
]

TimeColumn = Annotated[
    str | None, typer.Option("--time", help="The column of times; of NetCDF, the dimension.")
]
LocationColumn = Annotated[
    str | None, typer.Option("--location", help="Long: the column that says where.")
]
SensorColumn = Annotated[
    str | None,
    typer.Option(
        "--sensor", help="Long: the column with the type of sensor; of NetCDF, the dimension."
    ),
]
ReadingColumn = Annotated[
    str | None,
    typer.Option(
        "--value", help="The column of readings, which makes a table long; of NetCDF, a variable."
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        "--separator",
        help="Wide: what is between location and sensor in names, as / in hall/heat.",
    ),
]

WORDS = {"none": None, "null": None, "true": True, "false": False}  # of settings


class Stopped(KeyboardInterrupt):
    """Ctrl-C has ended a command; the message says what is left of its work."""


def read(
    path: Path,
    ids: Sequence[str],
    value: str | None,
    duplicates: str,
    time: str | None = None,
    format: str | None = None,
) -> Observations:
    """Read observations from a file, columns as options name them."""
    return files.read(
        path,
        ids=list(ids) or None,
        value=value,
        time=time,
        duplicates=duplicates,  # type: ignore[arg-type]
        format=format,  # type: ignore[arg-type]
    )


def readings(
    path: Path,
    dataset: str | None,
    ids: Sequence[str],
    value: str | None,
    duplicates: str,
    format: str | None = None,
) -> Panel:
    """Read sensors: a named dataset, files that their owners publish, or any table of three ids."""
    if dataset is not None:
        return files.named_panel(dataset, path)
    if not ids and value is None and (path.suffix == ".npz" or files.is_panel(path)):
        return files.read_panel(path)
    return Panel.of(read(path, ids, value, duplicates, format=format))


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
    """Read settings such as rank=64: numbers, true, None, pairs as [1, 5], or words.

    Examples
    --------
    >>> parsed(["rank=64", "patience=None", "refit=false", "value_range=(1, 5)", "penalty=row"])
    {'rank': 64, 'patience': None, 'refit': False, 'value_range': (1, 5), 'penalty': 'row'}
    """
    found = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise SettingError(f"--set takes NAME=VALUE, e.g. rank=64; got {setting!r}.")
        found[name.strip()] = _value(text.strip())
    return found


def _value(text: str) -> Any:
    """Read a value as JSON has it, or as Python does; all else is a word."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    is_pair = text.startswith("(") and text.endswith(")")
    try:
        value = json.loads(f"[{text[1:-1]}]" if is_pair else text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


def chosen(
    settings: Iterable[str], tuned: Path | None, model: str | None, kind: str
) -> tuple[str | None, dict[str, Any]]:
    """Return model and settings: those of --set, above those of a file of tuning."""
    found: dict[str, Any] = {}
    if tuned is not None:
        model, found = best_settings(tuned, model, kind)
    return model, {**found, **parsed(settings)}


def say(line: str) -> None:
    """Print a line about what is being done."""
    print(printable(line), file=sys.stderr)


def tell(text: str, report: Any, path: Path | None, *, is_data: bool = False) -> None:
    """Print the text, or write the report where --json says; - prints the report instead.

    Text that is data goes into a file or a pipe as it is.
    """
    if path is None or str(path) != "-":
        as_it_is = is_data and not sys.stdout.isatty()
        print(text if as_it_is else printable(text, keep="\n"))
    document = as_json(report)
    if path is not None and str(path) == "-":
        print(document, end="")
    elif path is not None:
        storage.write_bytes(path, document.encode())
