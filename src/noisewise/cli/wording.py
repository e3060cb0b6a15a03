"""What the library says of its parameters, said of the options of the command line."""

from __future__ import annotations

import re

# Parameters of functions that are options here; all others are settings of models.
OPTIONS = {
    "ids": "--id",
    **{
        name: f"--{name}"
        for name in (
            "value", "time", "format", "duplicates", "location", "sensor", "separator", "complete",
            "method", "trials", "minutes",
        )
    },
}  # fmt: skip
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


def in_options(message: str) -> str:
    """Return a message that speaks of options instead of parameters of Python.

    Examples
    --------
    >>> in_options("Say so with ids= and value=, such as ids=['user', 'item'], value='rating'.")
    'Say so with --id and --value, such as --id user --id item --value rating.'
    >>> in_options("pass duplicates='last' or duplicates='mean'.")
    'pass --duplicates last or --duplicates mean.'
    """
    for words, option in WHOLE.items():
        message = message.replace(words, option)
    return _PARAMETER.sub(_as_option, message)


def _as_option(found: re.Match[str]) -> str:
    option, text = OPTIONS[found.group(1)], found.group(2)
    comma = "," if found.group().endswith(",") else ""
    if text is None:
        return option + comma
    entries = [entry.strip("'\"") for entry in _ENTRY.findall(text)]
    rest = "" if comma and _another_follows(found) else comma
    return " ".join(f"{option} {entry}" for entry in entries) + rest


def _another_follows(found: re.Match[str]) -> bool:
    """Tell whether the next word is another parameter with a value, as in a call."""
    return bool(_PARAMETER.match(found.string, found.end() + 1))
