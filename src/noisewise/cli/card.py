"""card: what a model is, how good it is, and what it must not be used for."""

from __future__ import annotations

from pathlib import Path

import typer

from noisewise import card as cards
from noisewise import storage
from noisewise.any_file import load_any
from noisewise.cli.options import Columns, check_file, option, say
from noisewise.errors import SettingError, printable


def card(
    model: Path = typer.Argument(..., help="A model that `fit` wrote, or an imputer."),
    data: Path | None = option("Values that it was not trained on, to measure it by."),
    *,
    columns: Columns,
    title: str | None = option("What it is called; by default, as its file is."),
    out: Path | None = option("File to write, .md or .html; else it is printed.", check=check_file),
) -> None:
    """Write a model card: data, settings, figures, calibration, and what it is not for.

    Example: `noisewise card movies.nw --data test.csv --out card.html`
    """
    if out is not None and out.suffix.lower() not in (".md", ".html"):
        raise SettingError(f"A card is written to .md or .html; got {out}.")
    fitted, name = load_any(model), title or model.stem
    held_out = None if data is None else columns.read(data)
    sections = cards.card(fitted, held_out, title=name)
    is_page = out is not None and out.suffix.lower() == ".html"
    text = (cards.html if is_page else cards.markdown)(sections, f"Model card of {name}")
    if out is None:
        print(printable(text, keep="\n"), end="")
    else:
        storage.write_bytes(out, text.encode())
        say(f"Wrote {out}.")
