"""What commands share: options that they take, how these are checked, and what they say.

A command takes its options as parameters. One whose type is a dataclass stands for a group of them,
a field for each (``grouped``).
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import typer

from noisewise import registry, storage
from noisewise.data import Observations, files
from noisewise.data.dates import ORDERS
from noisewise.data.panel import Panel, named_panel, read_panel
from noisewise.data.reader import require_pyarrow
from noisewise.data.sources import write_parquet, write_text
from noisewise.errors import SettingError, printable
from noisewise.evaluation.records import as_json
from noisewise.evaluation.tuning import best_settings
from noisewise.settings import check

Table = dict[str, list[Any]]

DELIMITERS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
PARQUET = ".parquet"
# Parameters of functions that are options here; all others are settings of models.
_ALIKE = (
    "value", "time", "weight", "format", "duplicates", "location", "sensor", "separator",
    "complete", "method", "trials", "minutes", "missing", "decimal", "delimiter", "header",
    "encoding", "ignore",
)  # fmt: skip
OPTIONS = {"ids": "--id", "date_order": "--date-order", **{name: f"--{name}" for name in _ALIKE}}
WHOLE = {
    "exclude_seen=False": "--seen",
    "predict_set needs": "--sets needs",
    "keep_seen=True": "--set keep_seen=true",
    "call calibrate(X, y) with values that were not trained on, or fit with patience set": (
        "fit with --set patience=3 to have some held out"
    ),
    "pass coordinates={id: (x, y)}": "give data that say so",
    "Name the mode that is time with time=.": "Give the column of times as the last --id.",
    ", or pass exact=False to take it as it is": "",
}
_PARAMETER = re.compile(
    rf"\b({'|'.join(OPTIONS)})=(\[[^\]]*\]|'[^']*'|\"[^\"]*\"|-?\d[\d.]*|None\b)?,?"
)
_ENTRY = re.compile(r"'[^']*'|\"[^\"]*\"|[^\s,\[\]]+")
INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C
FEW = 4  # choices that help shows in place of a word for them
RATING_MODELS, SENSOR_MODELS = registry.models("ratings"), registry.models("sensors")
ALL_MODELS = tuple(dict.fromkeys((*RATING_MODELS, *SENSOR_MODELS)))
RATING_NAMES, SENSOR_NAMES = ", ".join(RATING_MODELS), ", ".join(SENSOR_MODELS)
TENSORS = tuple(registry.tensors())
FORMATS = tuple(dict.fromkeys(files.FORMATS.values()))
WORDS: dict[str, bool | None] = {"none": None, "null": None, "true": True, "false": False}


class Stopped(KeyboardInterrupt):
    """Ctrl-C has ended a command; the message says what is left of its work."""


def say(line: str) -> None:
    """Print a line about what is being done."""
    print(printable(line), file=sys.stderr)


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


def keep(path: Path, *written: str | Path | None) -> None:
    """Raise if what is written would replace a file that is read."""
    for one in written:
        out = None if one is None else Path(one)
        if out is not None and out.exists() and path.exists() and out.samefile(path):
            raise SettingError(f"{path} is kept as it is: write to another file than {out}.")


def check_folder(path: Path) -> None:
    """Raise if a path is no folder to write to, and none can be made there."""
    found = path.absolute()
    while not found.exists():
        found = found.parent
    if not found.is_dir():
        raise SettingError(f"{path} cannot be written: {found} is not a folder.")
    if not os.access(found, os.W_OK | os.X_OK):
        raise SettingError(f"{path} cannot be written: you may not write to {found}.")


def _check_delimiter(text: str) -> None:
    if len(text) != 1 or text in '"\r\n':
        raise SettingError(f"--delimiter must be one character, and no quote; got {text!r}.")


DATA = typer.Argument(..., help="CSV, TSV, Parquet, npz; MovieLens as it comes.")
JSON = option("Write the report as JSON to this file; - prints it.", "--json", check=check_file)
SEED = option("The same seed gives the same bits.", default=0)
DEVICE = option(
    "Where to compute: cpu, auto (a GPU if there is one), cuda, or a GPU by its number, as cuda:1."
)
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
    weight: str | None = option(
        "Ratings: the column with weights; the variance of a rating's noise is divided by its own."
    )
    format: str | None = FORMAT
    duplicates: str = DUPLICATES

    def read(self, path: Path, time: str | None = None) -> Observations:
        """Read observations from a file."""
        given = {**asdict(self), "time": time}
        return files.read(path, ids=given.pop("id") or None, **given)

    def readings(self, path: Path, dataset: str | None) -> Panel:
        """Read sensors: a named dataset, files as published, or any table of three ids."""
        refuse("is for ratings", weight=self.weight)
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
    location: list[str] = option(
        "The column that says where; several, if only together they do.", default=[]
    )
    sensor: str | None = option("Long: the column with the sensor; of NetCDF, the dimension.")
    value: str | None = option(
        "The column of readings, which makes a table long; of NetCDF, a variable."
    )
    separator: str | None = option(
        "Wide: what is between location and sensor in names, as / in hall/heat."
    )
    missing: list[str] = option(
        "Text: what stands for a missing reading, e.g. -999; may be given often. Empty fields, NA, "
        "NaN, dashes and the like always do.",
        default=[],
    )
    decimal: str | None = option("Text: the decimal mark.", choices=(".", ","))
    date_order: str | None = option(
        "Text: the order of day, month and year in dates such as 01/03/2013.", choices=ORDERS
    )
    delimiter: str | None = option("Text: what stands between fields.", check=_check_delimiter)
    header: int | None = option("Text: the line with the names, counted from 1; 0 for none.")
    encoding: str | None = option("Text: its encoding, e.g. cp1252.")
    ignore: list[str] = option("A column to leave alone; may be given often.", default=[])


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
    kind: str,
    model: str | None,
    default: str,
    settings: Iterable[str],
    tuned: Path | None,
    device: str | None = None,
) -> tuple[str, dict[str, Any]]:
    """Return model and settings: those of --set and --device, above those of a file of tuning."""
    found: dict[str, Any] = {}
    if tuned is not None:
        model, found = best_settings(tuned, model, kind)
    where = {} if device is None else {"device": device}
    return model or default, {**found, **where, **parsed(settings)}


def on_device(model: Any, device: str | None) -> Any:
    """Let a model that was loaded predict on a device."""
    if device is None:
        return model
    if "device" not in model.get_params():
        raise SettingError(f"--device is not for a {type(model).__name__}, which uses no GPU.")
    model.set_params(device=device)
    check(model)
    return model


def tell(text: str, report: Any, path: Path | None, *, is_data: bool = False) -> None:
    """Print the text, and write the report where --json says; - prints the report instead."""
    if str(path) == "-":
        print(as_json(report), end="")
        return
    as_it_is = is_data and not sys.stdout.isatty()  # into a file or a pipe
    print(text if as_it_is else printable(text, keep="\n"))
    if path is not None:
        storage.write_bytes(path, as_json(report).encode())


def in_options(message: str) -> str:
    """Return a message that speaks of options instead of parameters of Python.

    Examples
    --------
    >>> in_options("Say so with ids= and value=, such as ids=['user', 'item'], value='rating'.")
    'Say so with --id and --value, such as --id user --id item --value rating.'
    """
    for words, option in WHOLE.items():
        message = message.replace(words, option)
    return _PARAMETER.sub(_as_option, message)


def table_ending(path: Path) -> str:
    """Return how the name of a file ends: the format that a table can be written in."""
    for ending in (*DELIMITERS, PARQUET):
        if path.name.lower().endswith(ending):
            if ending == PARQUET:
                require_pyarrow("Writing Parquet")
            return ending
    known = ", ".join((*DELIMITERS, PARQUET))
    raise SettingError(f"The name of a table ends in {known}; got {path}.")


def write_table(path: Path, table: Table) -> None:
    """Write a table in the format that its name says; ids of several types are text in Parquet."""
    ending = table_ending(path)
    if ending != PARQUET:
        return write_text(path, table, DELIMITERS[ending])
    several = {name: len(set(map(type, entries))) > 1 for name, entries in table.items()}
    columns = {name: list(map(str, e)) if several[name] else e for name, e in table.items()}
    return write_parquet(path, require_pyarrow("Writing Parquet").table(columns))


def aligned(table: Table) -> str:
    """Columns of text that a terminal can show, numbers with four digits and to the right."""
    columns = []
    for column in ([name, *entries] for name, entries in table.items()):
        texts = [f"{e:.4f}" if isinstance(e, float) else printable(e) for e in column]
        width = max(map(len, texts))
        columns.append([text.rjust(width) for text in texts])
    return "\n".join("  ".join(row) for row in zip(*columns, strict=True))


def records(table: Table) -> list[dict[str, Any]]:
    """Return columns as rows."""
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def _as_option(found: re.Match[str]) -> str:
    option, text = OPTIONS[found.group(1)], found.group(2)
    comma = "," if found.group().endswith(",") else ""
    if text is None:
        return option + comma
    entries = [shlex.quote(entry.strip("'\"")) for entry in _ENTRY.findall(text)]
    another_follows = _PARAMETER.match(found.string, found.end() + 1)  # as in a call
    rest = "" if another_follows else comma
    return " ".join(f"{option} {entry}" for entry in entries) + rest
