"""All commands in the order in which help lists them, and those of public datasets."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import typer
from typer.core import TyperGroup

from noisewise import errors, registry
from noisewise.cli import options
from noisewise.cli.anomalies import anomalies
from noisewise.cli.card import card
from noisewise.cli.evaluate import compare, evaluate, tune
from noisewise.cli.export import export
from noisewise.cli.forecast import forecast
from noisewise.cli.gaps import gaps
from noisewise.cli.impute import impute
from noisewise.cli.noise import noise
from noisewise.cli.options import aligned, check_folder, grouped, in_options, option, say, tell
from noisewise.cli.ratings import demo, fit, predict, recommend
from noisewise.cli.serve import serve
from noisewise.cli.update import update
from noisewise.cli.why import why
from noisewise.data import fetch as fetching
from noisewise.data.samples import write_samples
from noisewise.errors import NoisewiseError, SettingError


class _Commands(TyperGroup):
    """The commands below, and behind them those of installed packages, which load when needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(name for name in registry.commands() if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in registry.commands():
            return own
        alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        alone.command(cmd_name)(grouped(_command_of_package(cmd_name)))
        return typer.main.get_command(alone)


def _command_of_package(name: str) -> Callable[..., None]:
    """Return a command of a package, or one that says what is wrong with the package."""
    try:
        return registry.command(name)
    except NoisewiseError as error:
        fault = error

        def broken() -> None:
            raise fault

        broken.__doc__ = f"Cannot be used: {fault}"
        return broken


app: typer.Typer = typer.Typer(
    cls=_Commands,
    help="Noise-aware matrix factorization: a prediction, and how far off it may be.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
of_ratings = (demo, fit, update, predict, recommend, why)
of_sensors = (impute, forecast, gaps, noise, anomalies)
for command in (*of_ratings, *of_sensors, serve, export, card, evaluate, compare, tune):
    app.command()(grouped(command))
data: typer.Typer = typer.Typer(
    help="Public datasets: what there is, on what terms, and how to get it.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(data, name="data")


def main() -> None:
    """Run the command line; an error is one sentence, not a traceback."""

    def tell_of(message: object, *place: Any, **more: Any) -> None:
        say(f"noisewise: {in_options(str(message))}")

    with warnings.catch_warnings():
        warnings.showwarning = tell_of  # where in the code it was given helps nobody here
        try:
            app(prog_name="noisewise")
        except (NoisewiseError, OSError) as error:
            tell_of(_sentence(error))
            raise SystemExit(2) from None


def _sentence(error: Exception) -> str:
    """Return what went wrong, and with which file."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    return str(error)


@app.callback(invoke_without_command=True)
def _common(
    show: bool = option("Print the version.", "--version", default=False),
    progress: bool | None = option(
        "Show progress bars, or none. By default they are shown on a terminal.",
        "--progress/--no-progress",
        show_default=False,
    ),
) -> None:
    errors.show_progress = progress
    if show:
        print(version("noisewise"))
        raise typer.Exit


@data.command("list")
def listed(report: Path | None = options.JSON) -> None:
    """List public datasets that noisewise reads as they come.

    Example: `noisewise data list`
    """
    known = fetching.sources().values()
    table = {
        "name": [source.name for source in known],
        "MB": [f"{source.megabytes:.0f}" if source.files else "by hand" for source in known],
        "checksum": ["published" if source.is_checked else "none" for source in known],
    }
    what = ["what", *(source.what for source in known)]
    lines = zip(aligned(table).splitlines(), what, strict=True)
    text = "\n".join(f"{start}  {end}" for start, end in lines)
    tell(text, [asdict(source) for source in known], report)


@data.command()
def sample(
    to: Path = option("Folder to put them in.", default=Path(), check=check_folder),
    report: Path | None = options.JSON,
) -> None:
    """Write small files of made-up ratings and readings, to try things with.

    Example: `noisewise data sample --to sample`
    """
    to.mkdir(parents=True, exist_ok=True)
    paths = [str(path) for path in write_samples(to)]
    tell("\n".join(paths), paths, report)


@data.command()
def fetch(
    name: str = typer.Argument(..., help="As `noisewise data list` has it."),
    to: Path = option("Folder to put it in.", default=Path("data"), check=check_folder),
    accept_licence: bool = option(
        "Agree to the licence that is shown.", "--accept-licence", default=False
    ),
    accept_unchecked: bool = option(
        "Take files without a published checksum.", "--accept-unchecked", default=False
    ),
    site: list[str] = option("laqn: the code of a site; may be given often.", default=[]),
    report: Path | None = options.JSON,
) -> None:
    """Download a public dataset, after its licence was agreed to, and check it.

    Example: `noisewise data fetch ml-1m --to data`
    """
    source = fetching.find(name)
    if site:
        source = source.at(site)
    accepted = {"licence": accept_licence, "unchecked": accept_unchecked}

    def agree(kind: Literal["licence", "unchecked"], sentence: str) -> bool:
        print(sentence, file=sys.stderr)
        if accepted[kind]:
            return True
        if not sys.stdin.isatty():
            raise SettingError(f"Nobody is there to agree; pass --accept-{kind} if you do.")
        return input("Type yes to go on: ").strip().lower() == "yes"

    found = fetching.fetch(source, to, agree=agree)
    lines = [f"{sha256}  {path}" for path, sha256 in found.items()]
    text = "\n".join(["sha256", *lines, f"Give noisewise {to / source.read}."])
    tell(text, {str(path): sha256 for path, sha256 in found.items()}, report)
