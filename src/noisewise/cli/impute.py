"""Gaps of a file filled, and a page of its series."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noisewise.cli.checks import choice, to_write
from noisewise.cli.shared import (
    Duplicated,
    Json,
    LocationColumn,
    ReadingColumn,
    SensorColumn,
    Separator,
    Settings,
    TimeColumn,
    parsed,
    say,
    tell,
)
from noisewise.filling import fill_file
from noisewise.imputer import methods

METHODS = methods()


def impute(
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV or TSV (also .gz), Parquet or NetCDF, with gaps.", show_default=False
        ),
    ],
    out: Annotated[
        Path,
        to_write(
            help="The filled file, in the format and layout of FILE. Long: beside the values stand "
            "VALUE_std and VALUE_imputed (1 where a gap was filled). Wide: stds are in a second "
            "file of the same layout, OUT with .std before its suffix. NetCDF: beside every "
            "variable stand NAME_std and NAME_imputed."
        ),
    ],
    method: Annotated[str, choice(METHODS, help=f"One of {', '.join(METHODS)}.")] = "auto",
    time: TimeColumn = None,
    location: LocationColumn = None,
    sensor: SensorColumn = None,
    value: ReadingColumn = None,
    separator: Separator = None,
    complete: Annotated[
        bool,
        typer.Option(
            "--complete",
            help="Long: also add the rows that a series lacks between its first and its last.",
        ),
    ] = False,
    duplicates: Duplicated = "error",
    page: Annotated[
        Path | None,
        to_write(help="Also draw a page of all series, the noisiest first (HTML)."),
    ] = None,
    most: Annotated[int, typer.Option(help="Series to draw on the page.")] = 24,
    settings: Settings = [],  # noqa: B006 - typer reads the default, nobody changes it
    seed: Annotated[int, typer.Option(help="The same seed gives the same bits.")] = 0,
    report: Json = None,
) -> None:
    """Fill the gaps of a file of sensors, with a std for every value that is filled in.

    A long table has a row for each reading, and columns such as time, location, sensor and value; a
    wide one has a row for each time and a column for each series. Columns that are not named are
    found by their usual names. Readings stay as they are. A gap is an empty field, NaN, NA or null.

    Example: `noisewise impute readings.csv --out filled.csv --page page.html`

    Example: `noisewise impute air.csv --time day --location site --sensor species --value level
    --out filled.csv --method bayes`
    """
    result = fill_file(
        file,
        out,
        method=method,
        settings=parsed(settings),
        duplicates=duplicates,  # type: ignore[arg-type]
        page=page,
        most=most,
        seed=seed,
        say=say,
        time=time,
        location=location,
        sensor=sensor,
        value=value,
        separator=separator,
        complete=complete,
    )
    left = f", {result['left']:,} could not be filled" if result["left"] else ""
    text = (
        f"{result['filled']:,} gaps were filled by {result['chosen']!r}{left}, "
        f"{result['seconds']:.1f} s\nThe result is in {' and '.join(result['written'])}."
    )
    text += f"\nLook at {page}." if page is not None else ""
    tell(text, result, report)
