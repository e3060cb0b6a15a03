"""One self-contained page of HTML: no script, nothing to load, readable on a phone and on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from noisewise.errors import printable

STYLE = """
:root { color-scheme: light dark; --ink: #23272f; --quiet: #5d6572; --paper: #fbfaf8;
  --card: #ffffff; --line: #e3e0da; --blue: #0072b2; --orange: #d55e00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ee; --quiet: #a2aab6; --paper: #14171c;
  --card: #1b1f26; --line: #2f353f; --blue: #56b4e9; --orange: #f0883e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1.0625rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: clamp(1.7rem, 1.2rem + 2vw, 2.5rem); line-height: 1.15; margin: 0 0 .5rem;
  letter-spacing: -.02em; text-wrap: balance; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 3rem 0 .25rem; letter-spacing: -.01em; }
p { margin: .5rem 0; max-width: 44rem; text-wrap: pretty; }
.lead { font-size: 1.15rem; color: var(--quiet); }
.pictures { display: grid; gap: 1.25rem; margin: 1.25rem 0; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 1.25rem 0; padding: 1rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .75rem; break-inside: avoid; }
.pictures figure { margin: 0; }
figure svg { display: block; width: 100%; max-width: 32rem; height: auto; margin: 0 auto; }
figure svg text { font-family: inherit !important; }
figcaption { margin-top: .75rem; font-size: .92rem; line-height: 1.5; color: var(--quiet); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, th { padding: .55rem 0 .55rem 1.25rem; text-align: right; }
th:first-child { padding-left: 0; text-align: left; }
td, tbody th { white-space: nowrap; }
thead th { font-size: .85rem; font-weight: 600; color: var(--quiet); vertical-align: bottom; }
tbody tr { border-top: 1px solid var(--line); }
tbody th { font-weight: 600; }
.words td, .words th { text-align: left; vertical-align: top; white-space: normal;
  min-width: 7rem; }
footer { margin-top: 3rem; font-size: .85rem; color: var(--quiet); }
@media (max-width: 36rem) { main { padding: 1.5rem .9rem 3rem; } figure { padding: .7rem; }
  body { font-size: 1rem; } table { font-size: .875rem; } thead th { font-size: .75rem; }
  td, th { padding-left: .4rem; } }
@media print { :root { --paper: #fff; --card: #fff; --ink: #000; --quiet: #444; --line: #ccc;
  --blue: #0072b2; --orange: #d55e00; } body { font-size: 10pt; } main { padding: 0; }
  h2 { break-after: avoid; } }
"""

HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
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

    Examples
    --------
    >>> table = Table(["model", "RMSE"], [["<b>mine</b>", "0.82"]])
    >>> "&lt;b&gt;mine&lt;/b&gt;" in page("Results", [Section("All", [table])])
    True
    """
    parts = [HEAD.format(title=_safe(title), style=STYLE + style), "<body>\n<main>\n"]
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
    inside = _svg(block) if isinstance(block, Picture) else _table(block)
    caption = f"<figcaption>{_safe(block.caption)}</figcaption>\n" if block.caption else ""
    return f"<figure>\n{inside}\n{caption}</figure>\n"


def _paragraph(text: str, attributes: str = "") -> str:
    return f"<p{attributes}>{_safe(text)}</p>\n" if text else ""


def _svg(picture: Picture) -> str:
    return picture.svg.replace("<svg", f'<svg role="img" aria-label="{_safe(picture.alt)}"', 1)


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
