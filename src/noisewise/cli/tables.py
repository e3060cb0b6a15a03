"""Tables as people and files have them: dicts of columns, aligned, as text, as Parquet."""

from __future__ import annotations

import csv
import gzip
import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from noisewise import storage
from noisewise.errors import MissingExtraError, SettingError, printable

Table = dict[str, list[Any]]

DELIMITERS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
PARQUET = ".parquet"


def check_ending(path: Path) -> None:
    """Raise unless the name of a file says in which format a table is to be written."""
    if _ending(path) is None:
        known = ", ".join((*DELIMITERS, PARQUET))
        raise SettingError(f"The name of a table ends in {known}; got {path}.")
    if _ending(path) == PARQUET and find_spec("pyarrow") is None:
        raise MissingExtraError("Writing Parquet", "parquet")


def write_table(path: Path, table: Table) -> None:
    """Write a table in the format that the name of the file says, wholly or not at all."""
    check_ending(path)
    ending = _ending(path)
    if ending == PARQUET:
        content = _as_parquet(table)
    else:
        content = as_text(table, DELIMITERS[str(ending)]).encode()
        content = gzip.compress(content, mtime=0) if str(ending).endswith(".gz") else content
    storage.write_bytes(path, content)


def as_text(table: Table, delimiter: str = ",") -> str:
    """Return columns as the text of a CSV or TSV file."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return text.getvalue()


def aligned(table: Table) -> str:
    """Columns of text that a terminal can show, numbers with four digits and to the right."""
    columns = []
    for name, entries in table.items():
        texts = [f"{e:.4f}" if isinstance(e, float) else printable(e) for e in entries]
        texts.insert(0, printable(name))
        width = max(map(len, texts))
        columns.append([text.rjust(width) for text in texts])
    return "\n".join("  ".join(row) for row in zip(*columns, strict=True))


def records(table: Table) -> list[dict[str, Any]]:
    """Return columns as rows."""
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def _ending(path: Path) -> str | None:
    name = path.name.lower()
    return next((ending for ending in (*DELIMITERS, PARQUET) if name.endswith(ending)), None)


def _as_parquet(table: Table) -> bytes:
    import pyarrow
    import pyarrow.parquet

    columns = {name: _alike(entries) for name, entries in table.items()}
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), content)
    return content.getvalue()


def _alike(entries: list[Any]) -> list[Any]:
    """Return a column of one type: of ids of several, their text."""
    return entries if len({type(entry) for entry in entries}) <= 1 else list(map(str, entries))
