"""The rows that come after a file of readings, with intervals."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import typer

from noisewise.cli import options
from noisewise.cli.options import Layout, check_file, option, say, tell
from noisewise.data.gapped import kind_of, read_gapped
from noisewise.data.sources import write_parquet, write_text
from noisewise.errors import SettingError
from noisewise.imputer import DeviationImputer
from noisewise.imputer_ahead import Forecast


def forecast(
    file: Path = typer.Argument(..., help="A file of readings, as `impute` reads it; no NetCDF."),
    steps: int = option("How many rows, at the usual distance of FILE.", default=6),
    out: Path = option(
        "The next rows, as CSV, TSV or Parquet, with the columns of FILE and beside each reading "
        "NAME_std, NAME_low and NAME_high.",
        default=...,
        check=check_file,
    ),
    coverage: float = option("How often an interval holds what will be read.", default=0.9),
    *,
    layout: Layout,
    duplicates: str = options.DUPLICATES,
    report: Path | None = options.JSON,
) -> None:
    """Forecast what sensors will read next, with intervals.

    The last reading, the mean of the part of the day or year, and regressions on readings before
    are mixed as it was best from earlier origins in FILE; the errors there make the intervals.

    Example: `noisewise forecast readings.csv --steps 6 --out next.csv`
    """
    if kind_of(file) == "netcdf" or kind_of(out) == "netcdf":
        raise SettingError("forecast reads and writes text and Parquet; save NetCDF as CSV first.")
    if not out.resolve().parent.is_dir():
        raise SettingError(f"There is no folder {out.resolve().parent} to write to.")
    say(f"Reading {file}")
    gapped = read_gapped(file, **asdict(layout))
    imputer = DeviationImputer("ou", **gapped.options, duplicates=cast(Any, duplicates))
    say(f"Forecasting {steps} steps from origins in {file}, and from its end")
    told = imputer.fit(gapped.table).forecast(steps, coverage=coverage)
    columns = _columns(told, gapped.options)
    if kind_of(out) == "parquet":
        write_parquet(out, told.mean.from_pydict(columns))
    else:
        plain = {name: [_text(entry) for entry in column] for name, column in columns.items()}
        write_text(out, plain, "\t" if out.suffix.lower() == ".tsv" else ",")
    found = {"file": str(file), "written": str(out), "steps": steps, "coverage": coverage}
    rows = len(next(iter(columns.values())))
    tell(f"{rows:,} rows of the next {steps} steps are in {out}.", found | {"rows": rows}, report)


def _columns(told: Forecast, given: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the columns of a forecast, those of readings with std and ends of intervals."""
    about = [name for name in given.values() if isinstance(name, str)]
    readings = [given["value"]] if given.get("value") else told.mean.column_names
    found: dict[str, list[Any]] = {}
    for name in told.mean.column_names:
        found[name] = told.mean.column(name).to_pylist()
        if name in readings and (name == given.get("value") or name not in about):
            for part in ("std", "low", "high"):
                found[f"{name}_{part}"] = getattr(told, part).column(name).to_pylist()
    return found


def _text(entry: Any) -> Any:
    return "" if entry is None or entry != entry else entry
