"""All commands, in the order in which help lists them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from noisewise import progress as bars
from noisewise import registry
from noisewise.cli import data
from noisewise.cli.evaluate import compare, evaluate
from noisewise.cli.impute import impute
from noisewise.cli.noise import noise
from noisewise.cli.ratings import demo, fit, predict, recommend
from noisewise.cli.shared import Stopped, say
from noisewise.cli.tune import tune
from noisewise.cli.wording import in_options
from noisewise.errors import NoisewiseError

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
        alone.command(cmd_name)(_stoppable(_command_of_package(cmd_name)))
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
    app.command()(_stoppable(command))
app.add_typer(data.app, name="data")


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
    bars.always = progress
    if show:
        print(version("noisewise"))
        raise typer.Exit
