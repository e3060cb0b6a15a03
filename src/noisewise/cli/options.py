"""Options that commands share: what they take, how it is checked, and what is read with it.

A command takes its options as parameters. One whose type is a dataclass stands for a group of them,
a field for each (``grouped``).
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import typer

from noisewise import registry, storage
from noisewise.cli.output import Stopped, say
from noisewise.data import Observations, files
from noisewise.data.panel import Panel, named_panel, read_panel
from noisewise.errors import SettingError
from noisewise.evaluation.tuning import best_settings

INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C
FEW = 4  # choices that help shows in place of a word for them
RATING_MODELS, SENSOR_MODELS = registry.models("ratings"), registry.models("sensors")
ALL_MODELS = tuple(dict.fromkeys((*RATING_MODELS, *SENSOR_MODELS)))
RATING_NAMES, SENSOR_NAMES = ", ".join(RATING_MODELS), ", ".join(SENSOR_MODELS)
TENSORS = tuple(registry.tensors())
FORMATS = tuple(dict.fromkeys(files.FORMATS.values()))
WORDS = {"none": None, "null": None, "true": True, "false": False}  # of settings


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that is given its groups of options one by one, as typer wants them.

    If Ctrl-C ends it, it says what is left of its work, in a sentence.
    """
    hints, signature = get_type_hints(command, include_extras=True), inspect.signature
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    options: list[inspect.Parameter] = []
    for name, parameter in signature(command).parameters.items():
        own = get_type_hints(groups[name], include_extras=True) if name in groups else hints
        members = signature(groups[name]).parameters.values() if name in groups else [parameter]
        kind = inspect.Parameter.KEYWORD_ONLY
        options += [one.replace(kind=kind, annotation=own[one.name]) for one in members]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{one: given.pop(one) for one in signature(group).parameters})
        try:
            command(**given)
        except KeyboardInterrupt as stop:
            say(f"noisewise: {stop if isinstance(stop, Stopped) else 'Stopped.'}")
            raise typer.Exit(INTERRUPTED) from None

    run.__annotations__ = {option.name: option.annotation for option in options}
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return run


def option(
    help: str,
    *names: str,
    default: Any = None,
    choices: Collection[str] | None = None,
    check: Callable[[Any], None] | None = None,
    **more: Any,
) -> Any:
    """Return an option, as ``typer.Option`` does; with ``...`` as its default it is required.

    It takes one of the choices, and completes them; a check raises for values that it cannot take.
    """

    def checked(own: typer.CallbackParam, value: Any) -> Any:
        for one in value if isinstance(value, list) else [value]:
            if choices is not None and one is not None and one not in choices:
                raise SettingError(
                    f"{own.opts[0]} must be one of {', '.join(choices)}; got {one!r}."
                )
        if check is not None and value is not None:
            check(value)
        return value

    def completed(incomplete: str) -> list[str]:
        return [word for word in choices or () if word.startswith(incomplete)]

    if choices is not None or check is not None:
        more["callback"] = checked
    if choices is not None:
        more["autocompletion"] = completed
        if len(choices) <= FEW:
            more.setdefault("metavar", f"[{'|'.join(choices)}]")
    return typer.Option(default, *names, help=help, **more)


def check_file(path: Path) -> None:
    """Raise if no file can be written to a path; - stands for the terminal."""
    if str(path) != "-":
        storage.check_writable(path)


def check_folder(path: Path) -> None:
    """Raise if a path is no folder to write to, and none can be made there."""
    found = path.absolute()
    while not found.exists():
        found = found.parent
    if not found.is_dir():
        raise SettingError(f"{path} cannot be written: {found} is not a folder.")
    if not os.access(found, os.W_OK | os.X_OK):
        raise SettingError(f"{path} cannot be written: you may not write to {found}.")


DATA = typer.Argument(..., help="CSV, TSV, Parquet, npz; MovieLens as it comes.")
JSON = option("Write the report as JSON to this file; - prints it.", "--json", check=check_file)
SEED = option("The same seed gives the same bits.", default=0)
SETTINGS = option("A setting, e.g. rank=64; may be given often.", "--set", default=[])
TUNED = option("What `tune` found: model, unless named, and settings, unless --set.", "--settings")
IDS = option("An id column; give one per mode, in order.", "--id", default=[])
FORMAT = option(
    f"What DATA is, where its name does not say: {', '.join(FORMATS)}.", choices=FORMATS
)
DUPLICATES = option(
    "A cell given more than once: an error, its last value, or the mean.",
    default="error",
    choices=("error", "last", "mean"),
)
DATASET = option(
    "Sensors: cut DATA to a tensor that has results: "
    f"{' or '.join(TENSORS) or 'no installed package has one'}.",
    choices=TENSORS,
)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """How a table of observations is read: its columns, its format, and its duplicates."""

    id: list[str] = IDS
    value: str | None = option("The column with the values.")
    format: str | None = FORMAT
    duplicates: str = DUPLICATES

    def read(self, path: Path, time: str | None = None) -> Observations:
        """Read observations from a file."""
        given = {**asdict(self), "time": time}
        return files.read(path, ids=given.pop("id") or None, **given)

    def readings(self, path: Path, dataset: str | None) -> Panel:
        """Read sensors: a named dataset, files as published, or any table of three ids."""
        if dataset is not None:
            return named_panel(dataset, path)
        named = self.id or self.value is not None
        if not named and (path.suffix == ".npz" or registry.recognised("sensors", path)):
            return read_panel(path)
        return Panel.of(self.read(path))


@dataclass(frozen=True, kw_only=True)
class TimedColumns(Columns):
    """The same, of ratings that may have a time."""

    time: str | None = option("Ratings: the column with the time.")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where a table with gaps has its times, locations, sensors and readings; None finds out."""

    time: str | None = option("The column of times; of NetCDF, the dimension.")
    location: str | None = option("Long: the column that says where.")
    sensor: str | None = option("Long: the column with the sensor; of NetCDF, the dimension.")
    value: str | None = option(
        "The column of readings, which makes a table long; of NetCDF, a variable."
    )
    separator: str | None = option(
        "Wide: what is between location and sensor in names, as / in hall/heat."
    )


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
    kind: str, model: str | None, default: str, settings: Iterable[str], tuned: Path | None
) -> tuple[str, dict[str, Any]]:
    """Return model and settings: those of --set, above those of a file of tuning."""
    found: dict[str, Any] = {}
    if tuned is not None:
        model, found = best_settings(tuned, model, kind)
    return model or default, {**found, **parsed(settings)}
