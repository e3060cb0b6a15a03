"""One self-contained page of HTML: no script, nothing to load, readable on a phone and on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import groupby

from noisewise.errors import printable

HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
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
    title: str, sections: Sequence[Section], *, lead: str = "", foot: str = "", style: str = ""
) -> str:
    """Return a whole page as text, to be written as UTF-8.

    Pictures that follow one another stand side by side where there is room. ``lead`` and ``foot``
    are a paragraph below the heading and one at the end; ``style`` is CSS of this page alone.
    """
    style = files("noisewise.report").joinpath("page.css").read_text("utf-8") + style
    parts = [HEAD.format(title=_safe(title), style=style), "<body>\n<main>\n"]
    parts += [f"<header>\n<h1>{_safe(title)}</h1>\n", _paragraph(lead, ' class="lead"')]
    parts += ["</header>\n"]
    for section in sections:
        parts += [f"<section>\n<h2>{_safe(section.title)}</h2>\n", *_blocks(section.blocks)]
        parts += ["</section>\n"]
    parts += [f"<footer>{_paragraph(foot)}</footer>\n" if foot else ""]
    return "".join([*parts, "</main>\n</body>\n</html>\n"])


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
        return _paragraph(block)
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
        numbers = "".join(f"<td>{_safe(cell)}</td>" for cell in cells)
        body.append(f'<tr><th scope="row">{_safe(name)}</th>{numbers}</tr>\n')
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="table">\n<table{kind}>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(body)}</tbody>\n</table>\n</div>"
    )
