"""The paper, measured again: every table and figure, and a page with the verdicts."""

from __future__ import annotations

from pathlib import Path

import typer

from noisewise.cli.options import Stopped, check_file, check_folder, option
from noisewise_reproduction.page import evidence
from noisewise_reproduction.runs import command

ARTEFACTS = ", ".join(command.ARTEFACTS)


def reproduce(
    data: Path = option("Folder with copies of the data.", default=..., envvar="NOISEWISE_DATA"),
    what: list[str] | None = typer.Argument(
        None, help=f"Artefacts: {ARTEFACTS}; or all.", show_default="all"
    ),
    out: Path = option(
        "Folder for results, figures and runs.", default=Path("reproduced"), check=check_folder
    ),
    splits: int | None = option("How many splits.", show_default="5, or 1 with --quick"),
    jobs: int = option("Processes; with 1, models use all cores.", default=1),
    quick: bool = option(
        "One split, small models, short series: minutes.", "--quick", default=False
    ),
    adopt: Path | None = option("Folder with results of `evaluate` to take over."),
    gather: bool = option(
        "Measure nothing; put together what is finished.", "--gather", default=False
    ),
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
    results: Path = typer.Argument(..., help="The folder that `reproduce` wrote."),
    out: Path = option("The page to write.", default=Path("evidence.html"), check=check_file),
) -> None:
    """Write one page of what `reproduce` found: numbers, verdicts, tests, figures, settings.

    Example: `noisewise report reproduced --out evidence.html`
    """
    print(f"Look at {evidence.report(results, out)}.")
