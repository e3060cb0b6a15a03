"""What is missing in a file: how much of each series, the longest gaps, and blackouts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import typer

from noisewise.cli import options
from noisewise.cli.options import Layout, aligned, option, records, tell
from noisewise.data.gapped import read_gapped
from noisewise.data.labelled import labelled
from noisewise.data.tables_with_holes import Roles
from noisewise.data.timestamps import Clock, are_dates
from noisewise.gaps import GapReport, Table, as_text, report_of

_UNITS = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}


def gaps(
    file: Path = typer.Argument(..., help="A file with gaps, as `impute` reads it."),
    *,
    layout: Layout,
    duplicates: str = options.DUPLICATES,
    n: int = option("How many of each.", "-n", default=20),
    report: Path | None = options.JSON,
) -> None:
    """Show what a file of sensors lacks: how much of each series, the longest gaps, and blackouts.

    Every series is expected at every time of the file. A blackout is a stretch in which nothing was
    read of a location, or of anything; rows that are not there at all count for it. Times that
    have a zone are told in UTC.

    Example: `noisewise gaps readings.csv`

    Example: `noisewise gaps air.csv --missing -999 -n 5 --json -`
    """
    gapped = read_gapped(file, **asdict(layout))
    roles = Roles(**gapped.options, duplicates=cast(Any, duplicates))
    cells = labelled(gapped.table, roles)
    found = report_of(cells, roles.duplicates)
    tables = {
        name: _plain(getattr(found, name), n, cells.clock)
        for name in ("series", "gaps", "blackouts")
    }
    text = [_summary(found)]
    for name, table in tables.items():
        shown = {key: _short(key, column, found.are_dates) for key, column in table.items()}
        if any(shown.values()):
            text.append(f"{name}\n{aligned(shown)}")
    whole = {
        "file": str(file), "times": found.n_times, "series_count": found.n_series,
        "readings": found.n_readings, "share_missing": found.share, "step": found.step,
        "times_lacking": found.lacking, "left_alone": gapped.left,
    }  # fmt: skip
    tell("\n\n".join(text), whole | {key: records(t) for key, t in tables.items()}, report)


def _summary(found: GapReport) -> str:
    step = lasting(found.step) if found.are_dates else f"{found.step:g}"
    cells = found.n_times * found.n_series
    lacking = f" {found.lacking:,} more times have no row." if found.lacking else ""
    return (
        f"{found.n_series:,} series at {found.n_times:,} times, mostly {step} apart: "
        f"{cells - found.n_readings:,} of {cells:,} readings are missing "
        f"({100 * found.share:.1f} %).{lacking}"
    )


def _plain(table: Table, n: int, clock: Clock) -> dict[str, list[Any]]:
    """Return the first rows of a table as JSON can hold them."""
    plain = {name: column[:n].tolist() for name, column in table.items()}
    for name in ("first", "last", "start", "end"):
        if are_dates(clock) and name in plain:
            entries = table[name][:n]
            plain[name] = [None if one is None else as_text(one, clock) for one in entries]
    return plain


def _short(name: str, column: list[Any], dated: bool) -> list[Any]:
    if dated and name in ("longest", "lasts"):
        return [lasting(entry) for entry in column]
    return ["" if entry is None else entry for entry in column]


def lasting(seconds: float) -> str:
    """Write a length of time in its two largest units.

    Examples
    --------
    >>> lasting(3600), lasting(90061), lasting(0.25)
    ('1 h', '1 d 1 h', '0.25 s')
    """
    if seconds < 1:
        return f"{seconds:g} s"
    rest, words = round(seconds), []
    for unit, size in _UNITS.items():
        many, rest = divmod(rest, size)
        if many:
            words.append(f"{many} {unit}")
    return " ".join(words[:2])
