"""The paper, measured again: every table and figure, and a page with the verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noisewise.cli.options import folder_to_write, to_write
from noisewise.cli.output import Stopped
from noisewise_reproduction.page import evidence
from noisewise_reproduction.runs import command


def reproduce(
    data: Annotated[Path, typer.Option(help="Folder with copies of the data.")],
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"Artefacts: {', '.join(command.ARTEFACTS)}; or all.", show_default="all"
        ),
    ] = None,
    out: Annotated[Path, folder_to_write(help="Folder for results, figures and runs.")] = Path(
        "reproduced"
    ),
    splits: Annotated[
        int | None, typer.Option(help="How many splits.", show_default="5, or 1 with --quick")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes; with 1, models use all cores.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="One split, small models, short series: minutes.")
    ] = False,
    adopt: Annotated[
        Path | None, typer.Option(help="Folder with results of `evaluate` to take over.")
    ] = None,
    gather: Annotated[
        bool, typer.Option("--gather", help="Measure nothing; put together what is finished.")
    ] = False,
) -> None:
    """Measure every table and figure of the paper, and more; a run that was stopped goes on.

    Example: `noisewise reproduce all --data data --out reproduced --jobs 2`

    Example: `noisewise reproduce ratings time --data data --quick`
    """
    try:
        command.reproduce(
            what or [command.ALL], data=data, out=out, splits=splits, jobs=jobs, quick=quick,
            adopted=adopt, measure=not gather, say=print,
        )  # fmt: skip
    except KeyboardInterrupt:
        raise Stopped(
            f"Stopped; finished runs are in {out}, and the same command goes on from there."
        ) from None
    print(f"noisewise report {out} makes a page of it.")


def report(
    results: Annotated[Path, typer.Argument(help="The folder that `reproduce` wrote.")],
    out: Annotated[Path, to_write(help="The page to write.")] = Path("evidence.html"),
) -> None:
    """Write one page of what `reproduce` found: numbers, verdicts, tests, figures, settings.

    Example: `noisewise report reproduced --out evidence.html`
    """
    print(f"Look at {evidence.report(results, out)}.")
