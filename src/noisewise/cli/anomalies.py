"""What is odd in a file of sensors: single readings, and what lasts, with dates."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import typer

from noisewise.anomalies.find import KINDS, anomalies_of
from noisewise.cli import options
from noisewise.cli.noise import Readings
from noisewise.cli.options import aligned, check_file, option, records, tell, write_table
from noisewise.data.timestamps import Clock
from noisewise.gaps import as_text

_COUNTED = {
    "dead": "dead", "unit": "in another unit", "drift": "drifting", "shift": "shifted",
    "stuck": "stuck", "spike": "spikes",
}  # fmt: skip


def anomalies(
    file: Path = typer.Argument(
        ..., help="Readings of sensors, as `impute` and `noise` read them."
    ),
    *,
    readings: Readings,
    probability: float = option("Spikes: how likely they must be off.", default=0.5),
    n: int = option("How many to show.", "-n", default=20),
    out: Path | None = option(
        "Also write all of them as a table: .csv, .tsv or .parquet.", check=check_file
    ),
    report: Path | None = options.JSON,
) -> None:
    """Show what is odd: spikes, sensors that are stuck, dead or drift, and changes of unit.

    What lasts comes first. Nothing is fitted: a series is compared with its own habits, and with
    the other series that move as it does. Times that have a zone are told in UTC.

    Example: `noisewise anomalies readings.csv`

    Example: `noisewise anomalies air.csv --missing -999 --out odd.csv`
    """
    if out is not None:
        options.table_ending(out)
    seen, clock = readings.timed(file)
    found = anomalies_of(seen, clock, probability)
    plain = {name: _plain(column, clock) for name, column in found.items()}
    counts = Counter(plain["kind"])
    words = _COUNTED | ({"spike": "spike"} if counts["spike"] == 1 else {})
    told = [f"{counts[kind]:,} {words[kind]}" for kind in KINDS if counts[kind]]
    text = f"{', '.join(told) or 'Nothing is odd'} in {len(seen):,} readings."
    if told:
        shown = {name: plain[name][:n] for name in ("kind", "start")}
        shown["score"] = [f"{score:.1f}" for score in plain["score"][:n]]
        sentences = ["", *plain["words"][:n]]
        lines = zip(aligned(shown).splitlines(), sentences, strict=True)
        text += "\n\n" + "\n".join("  ".join(line).rstrip() for line in lines)
    if out is not None:
        write_table(out, plain)
    tell(text, {"file": str(file), "readings": len(seen), "found": records(plain)}, report)


def _plain(column: Any, clock: Clock) -> list[Any]:
    """Return a column as JSON and CSV can hold it; what is not known is None."""
    if column.dtype.kind == "M":
        return [as_text(entry, clock) for entry in column]
    entries = column.tolist()
    return [None if isinstance(e, float) and np.isnan(e) else e for e in entries]
