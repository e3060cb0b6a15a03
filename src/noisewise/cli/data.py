"""Public datasets: what there is, and how to get it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from noisewise.cli.checks import folder_to_write
from noisewise.cli.shared import Json, tell
from noisewise.cli.tables import aligned
from noisewise.data import fetch as fetching
from noisewise.errors import SettingError

app = typer.Typer(
    help="Public datasets: what there is, on what terms, and how to get it.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.command("list")
def listed(report: Json = None) -> None:
    """List public datasets that noisewise reads as they come.

    Example: `noisewise data list`
    """
    known = fetching.sources().values()
    table = {
        "name": [source.name for source in known],
        "MB": [f"{source.megabytes:.0f}" if source.files else "by hand" for source in known],
        "checksum": ["published" if source.is_checked else "none" for source in known],
    }
    what = ["what", *(source.what for source in known)]
    lines = zip(aligned(table).splitlines(), what, strict=True)
    text = "\n".join(f"{start}  {end}" for start, end in lines)
    tell(text, [asdict(source) for source in known], report)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="As `noisewise data list` has it.")],
    to: Annotated[Path, folder_to_write(help="Folder to put it in.")] = Path("data"),
    accept_licence: Annotated[
        bool, typer.Option("--accept-licence", help="Agree to the licence that is shown.")
    ] = False,
    accept_unchecked: Annotated[
        bool, typer.Option("--accept-unchecked", help="Take files without a published checksum.")
    ] = False,
    site: Annotated[
        list[str], typer.Option(help="laqn: the code of a site; may be given often.")
    ] = [],  # noqa: B006 - typer reads the default, nobody changes it
    report: Json = None,
) -> None:
    """Download a public dataset, after its licence was agreed to, and check it.

    Example: `noisewise data fetch ml-1m --to data`
    """
    source = fetching.find(name)
    if site:
        source = source.at(site)
    accepted = {"licence": accept_licence, "unchecked": accept_unchecked}

    def agree(kind: Literal["licence", "unchecked"], sentence: str) -> bool:
        print(sentence, file=sys.stderr)
        if accepted[kind]:
            return True
        if not sys.stdin.isatty():
            raise SettingError(f"Nobody is there to agree; pass --accept-{kind} if you do.")
        return input("Type yes to go on: ").strip().lower() == "yes"

    found = fetching.fetch(source, to, agree=agree)
    lines = [f"{sha256}  {path}" for path, sha256 in found.items()]
    text = "\n".join(["sha256", *lines, f"Give noisewise {to / source.read}."])
    tell(text, {str(path): sha256 for path, sha256 in found.items()}, report)
