"""One self-contained page of HTML: nothing to load, readable on a phone and on paper.

A page has no script, or one of noisewise; a policy in its head lets no other run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import Any

from noisewise.errors import printable

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>
{style}</style>
</head>
"""


@dataclass(frozen=True)
class Picture:
    """A figure of the page, with a caption below it."""

    svg: str  # as ``Drawing.svg`` gives it: the one thing that is not escaped
    alt: str  # what it shows, for those who do not see it
    caption: str = ""


class Link(str):
    """A cell of a table that leads to a place of the page, and says which time to show there."""

    place: str
    start: float
    end: float

    def __new__(cls, text: str, place: str, start: float, end: float) -> Link:
        """Make a text that knows the id of an element, and a stretch of time."""
        link = super().__new__(cls, text)
        link.place, link.start, link.end = place, start, end
        return link


class Markup(str):
    """A block of HTML by noisewise itself, with nothing of a user in it: it is not escaped."""


@dataclass(frozen=True)
class Script:
    """A script of noisewise, and the data that it finds in an element of the page, as JSON."""

    text: str
    id: str
    data: Any

    def elements(self) -> str:
        """Return the elements of data and script, to stand at the end of the page."""
        data = json.dumps(self.data, allow_nan=False, separators=(",", ":"))
        for sign in "<>&":  # so that no text in them can end the element
            data = data.replace(sign, f"\\u{ord(sign):04x}")
        kind = f'type="application/json" id="{_safe(self.id)}"'
        return f"<script {kind}>{data}</script>\n<script>{self.text}</script>\n"

    @property
    def policy(self) -> str:
        """What lets this script run, and no other."""
        digest = base64.b64encode(hashlib.sha256(self.text.encode()).digest()).decode()
        return f"{POLICY}; script-src 'sha256-{digest}'"


@dataclass(frozen=True)
class Table:
    """A table of the page: the first column names the rows, all others are numbers or words."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]  # cells as they are to be read
    caption: str = ""
    words: bool = False  # whether cells are sentences: these wrap, and begin on the left


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it: paragraphs, tables, pictures."""

    title: str
    blocks: Sequence[str | Table | Picture]


def page(
    title: str,
    sections: Sequence[Section],
    *,
    lead: str = "",
    foot: str = "",
    style: str = "",
    script: Script | None = None,
) -> str:
    """Return a whole page as text, to be written as UTF-8.

    Pictures that follow one another stand side by side where there is room. ``lead`` and ``foot``
    are a paragraph below the heading and one at the end; ``style`` is CSS of this page alone.
    """
    style = resource("page.css") + style
    policy = POLICY if script is None else script.policy
    head = HEAD.format(title=_safe(title), style=style, policy=policy)
    parts = [head, "<body>\n<main>\n"]
    parts += [f"<header>\n<h1>{_safe(title)}</h1>\n", _paragraph(lead, ' class="lead"')]
    parts += ["</header>\n"]
    for section in sections:
        parts += [f"<section>\n<h2>{_safe(section.title)}</h2>\n", *_blocks(section.blocks)]
        parts += ["</section>\n"]
    parts += [f"<footer>{_paragraph(foot)}</footer>\n" if foot else ""]
    parts += ["</main>\n", "" if script is None else script.elements()]
    return "".join([*parts, "</body>\n</html>\n"])


def resource(name: str) -> str:
    """Return a file that stands beside this one: CSS, or a script."""
    return files("noisewise.report").joinpath(name).read_text("utf-8")


def _safe(text: str) -> str:
    """Return text as HTML has it, with nothing in it that a reader would not see."""
    return escape(printable(text, keep="\n"))


def _blocks(blocks: Sequence[str | Table | Picture]) -> list[str]:
    parts: list[str] = []
    for kind, group in groupby(blocks, type):
        found = [_block(block) for block in group]
        parts += ['<div class="pictures">\n', *found, "</div>\n"] if kind is Picture else found
    return parts


def _block(block: str | Table | Picture) -> str:
    if isinstance(block, str):
        return str(block) if isinstance(block, Markup) else _paragraph(block)
    if isinstance(block, Picture):
        inside = block.svg.replace("<svg", f'<svg role="img" aria-label="{_safe(block.alt)}"', 1)
    else:
        inside = _table(block)
    caption = f"<figcaption>{_safe(block.caption)}</figcaption>\n" if block.caption else ""
    return f"<figure>\n{inside}\n{caption}</figure>\n"


def _paragraph(text: str, attributes: str = "") -> str:
    return f"<p{attributes}>{_safe(text)}</p>\n" if text else ""


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_safe(name)}</th>' for name in table.columns)
    kind = ' class="words"' if table.words else ""
    body = []
    for name, *cells in table.rows:
        numbers = "".join(f"<td>{_cell(cell)}</td>" for cell in cells)
        body.append(f'<tr><th scope="row">{_cell(name)}</th>{numbers}</tr>\n')
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="table">\n<table{kind}>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(body)}</tbody>\n</table>\n</div>"
    )


def _cell(cell: str) -> str:
    if not isinstance(cell, Link):
        return _safe(cell)
    ends = f'data-from="{cell.start!r}" data-to="{cell.end!r}"'
    return f'<a href="#{_safe(cell.place)}" {ends}>{_safe(cell)}</a>'
