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
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from noisewise import registry, storage
from noisewise.cli.output import check_ending
from noisewise.data import Observations, files
from noisewise.data.files import FORMATS
from noisewise.data.panel import Panel, is_panel, named_panel, read_panel
from noisewise.errors import SettingError
from noisewise.evaluation.tuning import best_settings
from noisewise.report.figures import check_kind

FEW = 4  # choices that help shows in place of a word for them
RATING_MODELS, SENSOR_MODELS = registry.models("ratings"), registry.models("sensors")
ALL_MODELS = tuple(dict.fromkeys((*RATING_MODELS, *SENSOR_MODELS)))
TENSORS = tuple(registry.tensors())
WORDS = {"none": None, "null": None, "true": True, "false": False}  # of settings


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that is given its groups of options one by one, as typer wants them."""
    hints = get_type_hints(command, include_extras=True)
    options: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if is_dataclass(hint):
            groups[parameter.name] = hint
            own = get_type_hints(hint, include_extras=True)
            options += [_option(one.name, own[one.name], _default(one)) for one in fields(hint)]
        else:
            options.append(_option(parameter.name, hint, parameter.default))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{one.name: given.pop(one.name) for one in fields(group)})
        command(**given)

    run.__annotations__ = {option.name: option.annotation for option in options}
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return run


def _option(name: str, hint: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=hint)


def _default(one: Field[Any]) -> Any:
    if one.default_factory is not MISSING:
        return one.default_factory()
    return inspect.Parameter.empty if one.default is MISSING else one.default


def choice(known: Collection[str], *names: str, help: str, **more: Any) -> Any:
    """Return an option, as ``typer.Option`` does, that takes known words, and completes them."""

    def checked(option: typer.CallbackParam, value: Any) -> Any:
        for word in value if isinstance(value, list) else [value]:
            if word is not None and word not in known:
                raise SettingError(
                    f"{option.opts[0]} must be one of {', '.join(known)}; got {word!r}."
                )
        return value

    def completed(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    if len(known) <= FEW:
        more.setdefault("metavar", f"[{'|'.join(known)}]")
    return typer.Option(*names, help=help, callback=checked, autocompletion=completed, **more)


def to_write(*names: str, help: str, **more: Any) -> Any:
    """Return an option that names a file to write; that it can be written is checked first."""
    return typer.Option(*names, help=help, callback=writable, **more)


def table_to_write(help: str) -> Any:
    """Return an option that names a table to write, in the format that its ending says."""

    def checked(path: Path | None) -> Path | None:
        if path is not None:
            check_ending(path)
        return writable(path)

    return typer.Option(help=help, callback=checked)


def picture_to_write(help: str) -> Any:
    """Return an option that names a picture to write."""

    def checked(path: Path | None) -> Path | None:
        if path is not None:
            check_kind(path.suffix[1:])
        return writable(path)

    return typer.Option(help=help, callback=checked)


def folder_to_write(help: str) -> Any:
    """Return an option that names a folder, to be made where there is none."""

    def checked(path: Path | None) -> Path | None:
        if path is not None:
            found = path.absolute()
            while not found.exists():
                found = found.parent
            if not found.is_dir():
                raise SettingError(f"{path} cannot be written: {found} is not a folder.")
            if not os.access(found, os.W_OK | os.X_OK):
                raise SettingError(f"{path} cannot be written: you may not write to {found}.")
        return path

    return typer.Option(help=help, callback=checked)


def writable(path: Path | None) -> Path | None:
    """Return a path, or raise if no file can be written there; - stands for the terminal."""
    if path is not None and str(path) != "-":
        storage.check_writable(path)
    return path


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


@dataclass(frozen=True, kw_only=True)
class Columns:
    """How a table of observations is read: its columns, its format, and its duplicates."""

    id: IdColumns = field(default_factory=list)
    value: Annotated[str | None, typer.Option(help="The column with the values.")] = None
    format: Format = None
    duplicates: Duplicated = "error"

    def read(self, path: Path, time: str | None = None) -> Observations:
        """Read observations from a file."""
        return files.read(
            path,
            ids=list(self.id) or None,
            value=self.value,
            time=time,
            duplicates=self.duplicates,  # type: ignore[arg-type]
            format=self.format,  # type: ignore[arg-type]
        )

    def readings(self, path: Path, dataset: str | None) -> Panel:
        """Read sensors: a named dataset, files as published, or any table of three ids."""
        if dataset is not None:
            return named_panel(dataset, path)
        named = self.id or self.value is not None
        if not named and (path.suffix == ".npz" or is_panel(path)):
            return read_panel(path)
        return Panel.of(self.read(path))


@dataclass(frozen=True, kw_only=True)
class TimedColumns(Columns):
    """The same, of ratings that may have a time."""

    time: Annotated[str | None, typer.Option(help="Ratings: the column with the time.")] = None


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where a table with gaps has its times, locations, sensors and readings; None finds out."""

    time: Annotated[
        str | None, typer.Option(help="The column of times; of NetCDF, the dimension.")
    ] = None
    location: Annotated[str | None, typer.Option(help="Long: the column that says where.")] = None
    sensor: Annotated[
        str | None,
        typer.Option(help="Long: the column with the sensor; of NetCDF, the dimension."),
    ] = None
    value: Annotated[
        str | None,
        typer.Option(
            help="The column of readings, which makes a table long; of NetCDF, a variable."
        ),
    ] = None
    separator: Annotated[
        str | None,
        typer.Option(help="Wide: what is between location and sensor in names, as / in hall/heat."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TensorOptions:
    """Which tensor of sensors, and how long its outages last."""

    dataset: Dataset = None
    outage: Annotated[
        float | None,
        typer.Option(
            help="Sensors, blocks: seconds that an outage lasts; known for a named dataset."
        ),
    ] = None

    def outage_under(self, protocol: str) -> float | None:
        """Return how long an outage lasts, if a protocol has any: as given, or as is usual."""
        if protocol != "blocks" or self.outage is not None or self.dataset is None:
            return self.outage
        return registry.tensor(self.dataset).outage


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
