"""What commands say: tables, messages in the words of options, reports in files."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from noisewise import storage
from noisewise.data.gapped import write_parquet, write_text
from noisewise.data.reader import require_pyarrow
from noisewise.errors import SettingError, printable
from noisewise.evaluation.records import as_json

Table = dict[str, list[Any]]

DELIMITERS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
PARQUET = ".parquet"
# Parameters of functions that are options here; all others are settings of models.
_ALIKE = (
    "value", "time", "format", "duplicates", "location", "sensor", "separator", "complete",
    "method", "trials", "minutes",
)  # fmt: skip
OPTIONS = {"ids": "--id", **{name: f"--{name}" for name in _ALIKE}}
WHOLE = {
    "exclude_seen=False": "--seen",
    "keep_seen=True": "--set keep_seen=true",
    "call calibrate(X, y) with values that were not trained on, or fit with patience set": (
        "fit with --set patience=3 to have some held out"
    ),
    "pass coordinates={id: (x, y)}": "give data that say so",
    "Name the mode that is time with time=.": "Give the column of times as the last --id.",
    ", or pass exact=False to take it as it is": "",
}
_PARAMETER = re.compile(
    rf"\b({'|'.join(OPTIONS)})=(\[[^\]]*\]|'[^']*'|\"[^\"]*\"|-?\d[\d.]*|None\b)?,?"
)
_ENTRY = re.compile(r"'[^']*'|\"[^\"]*\"|[^\s,\[\]]+")


class Stopped(KeyboardInterrupt):
    """Ctrl-C has ended a command; the message says what is left of its work."""


def say(line: str) -> None:
    """Print a line about what is being done."""
    print(printable(line), file=sys.stderr)


def tell(text: str, report: Any, path: Path | None, *, is_data: bool = False) -> None:
    """Print the text, and write the report where --json says; - prints the report instead."""
    if str(path) == "-":
        print(as_json(report), end="")
        return
    as_it_is = is_data and not sys.stdout.isatty()  # into a file or a pipe
    print(text if as_it_is else printable(text, keep="\n"))
    if path is not None:
        storage.write_bytes(path, as_json(report).encode())


def in_options(message: str) -> str:
    """Return a message that speaks of options instead of parameters of Python.

    Examples
    --------
    >>> in_options("Say so with ids= and value=, such as ids=['user', 'item'], value='rating'.")
    'Say so with --id and --value, such as --id user --id item --value rating.'
    """
    for words, option in WHOLE.items():
        message = message.replace(words, option)
    return _PARAMETER.sub(_as_option, message)


def table_ending(path: Path) -> str:
    """Return how the name of a file ends: the format that a table can be written in."""
    for ending in (*DELIMITERS, PARQUET):
        if path.name.lower().endswith(ending):
            if ending == PARQUET:
                require_pyarrow("Writing Parquet")
            return ending
    known = ", ".join((*DELIMITERS, PARQUET))
    raise SettingError(f"The name of a table ends in {known}; got {path}.")


def write_table(path: Path, table: Table) -> None:
    """Write a table in the format that its name says; ids of several types are text in Parquet."""
    ending = table_ending(path)
    if ending != PARQUET:
        return write_text(path, table, DELIMITERS[ending])
    several = {name: len(set(map(type, entries))) > 1 for name, entries in table.items()}
    columns = {name: list(map(str, e)) if several[name] else e for name, e in table.items()}
    return write_parquet(path, require_pyarrow("Writing Parquet").table(columns))


def aligned(table: Table) -> str:
    """Columns of text that a terminal can show, numbers with four digits and to the right."""
    columns = []
    for column in ([name, *entries] for name, entries in table.items()):
        texts = [f"{e:.4f}" if isinstance(e, float) else printable(e) for e in column]
        width = max(map(len, texts))
        columns.append([text.rjust(width) for text in texts])
    return "\n".join("  ".join(row) for row in zip(*columns, strict=True))


def records(table: Table) -> list[dict[str, Any]]:
    """Return columns as rows."""
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def _as_option(found: re.Match[str]) -> str:
    option, text = OPTIONS[found.group(1)], found.group(2)
    comma = "," if found.group().endswith(",") else ""
    if text is None:
        return option + comma
    entries = [entry.strip("'\"") for entry in _ENTRY.findall(text)]
    another_follows = _PARAMETER.match(found.string, found.end() + 1)  # as in a call
    rest = "" if another_follows else comma
    return " ".join(f"{option} {entry}" for entry in entries) + rest
