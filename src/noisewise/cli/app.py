"""All commands, in the order in which help lists them."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from noisewise.cli import data
from noisewise.cli.evaluate import compare, evaluate
from noisewise.cli.impute import impute
from noisewise.cli.noise import noise
from noisewise.cli.ratings import demo, fit, predict, recommend
from noisewise.cli.reproduce import report, reproduce
from noisewise.cli.tune import tune
from noisewise.errors import NoisewiseError

app = typer.Typer(
    help="Noise-aware matrix factorization: a prediction, and how far off it may be.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)
for command in (
    demo, fit, predict, recommend, impute, noise, evaluate, compare, tune, reproduce, report,
):  # fmt: skip
    app.command()(command)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the command line; an error is one sentence, not a traceback."""
    try:
        app()
    except (NoisewiseError, OSError) as error:
        print(f"noisewise: {error}", file=sys.stderr)
        raise SystemExit(2) from None


@app.callback(invoke_without_command=True)
def _version(
    show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show:
        print(version("noisewise"))
        raise typer.Exit
