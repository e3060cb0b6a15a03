"""All commands in the order in which help lists them, and those of public datasets."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from noisewise import errors, registry
from noisewise.cli.evaluate import compare, evaluate
from noisewise.cli.impute import impute
from noisewise.cli.noise import noise
from noisewise.cli.options import Json, folder_to_write, grouped
from noisewise.cli.output import Stopped, aligned, in_options, say, tell
from noisewise.cli.ratings import demo, fit, predict, recommend
from noisewise.cli.tune import tune
from noisewise.data import fetch as fetching
from noisewise.errors import NoisewiseError, SettingError

INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C


def _stoppable(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command that Ctrl-C ends say what is left of its work, in a sentence."""

    @functools.wraps(command)
    def run(*given: Any, **named: Any) -> None:
        try:
            command(*given, **named)
        except KeyboardInterrupt as stop:
            words = str(stop) if isinstance(stop, Stopped) else "Stopped."
            say(f"noisewise: {words}")
            raise typer.Exit(INTERRUPTED) from None

    return run


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
        alone.command(cmd_name)(_stoppable(grouped(_command_of_package(cmd_name))))
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


app = typer.Typer(
    cls=_Commands,
    help="Noise-aware matrix factorization: a prediction, and how far off it may be.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for command in (demo, fit, predict, recommend, impute, noise, evaluate, compare, tune):
    app.command()(_stoppable(grouped(command)))
data = typer.Typer(
    help="Public datasets: what there is, on what terms, and how to get it.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(data, name="data")


def main() -> None:
    """Run the command line; an error is one sentence, not a traceback."""
    with warnings.catch_warnings():
        warnings.showwarning = _warned
        try:
            app(prog_name="noisewise")
        except (NoisewiseError, OSError) as error:
            say(f"noisewise: {in_options(str(error))}")
            raise SystemExit(2) from None


def _warned(message: Warning | str, *place: Any, **more: Any) -> None:
    """Show a warning as a sentence; where in the code it was given helps nobody here."""
    say(f"noisewise: {in_options(str(message))}")


@app.callback(invoke_without_command=True)
def _common(
    show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress",
            help="Show progress bars, or none. By default they are shown on a terminal.",
            show_default=False,
        ),
    ] = None,
) -> None:
    errors.show_progress = progress
    if show:
        print(version("noisewise"))
        raise typer.Exit


@data.command("list")
def listed(report: Json = None) -> None:
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
def fetch(
    name: Annotated[str, typer.Argument(help="As `noisewise data list` has it.")],
    to: Annotated[Path, folder_to_write(help="Folder to put it in.")] = Path("data"),
    accept_licence: Annotated[
        bool, typer.Option("--accept-licence", help="Agree to the licence that is shown.")
    ] = False,
    accept_unchecked: Annotated[
        bool, typer.Option("--accept-unchecked", help="Take files without a published checksum.")
    ] = False,
    site: Annotated[
        list[str], typer.Option(help="laqn: the code of a site; may be given often.")
    ] = [],  # noqa: B006 - typer reads the default, nobody changes it
    report: Json = None,
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
