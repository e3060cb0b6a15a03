"""The code of all pages: found, run from top to bottom, and its output written below it.

python docs/outputs.py [PAGE ...]      # write what the blocks of pages print into the pages

A block of Python or of commands (``bash``) may be followed by a block called ``output``: what it
prints, and, as in a notebook, the value of its last line. Blocks of a page share their names and
one folder, in which the made-up files of ``noisewise data sample`` are. A comment above a block
says why it is not run: ``<!-- not run: reason -->``.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from noisewise.cli import app
from noisewise.data.samples import write_samples

ROOT = Path(__file__).parents[1]
MADE = ("_build", "auto_examples", "api")
FENCE = re.compile(
    r"(?:<!-- not run: (?P<why>[^>]+) -->\n)?"
    r"^(?P<fence>```+)(?P<kind>\w*)\n(?P<text>.*?)^(?P=fence)$",
    re.S | re.M,
)


class Block(NamedTuple):
    """A piece of code, and where its output stands in the page."""

    kind: str
    text: str
    line: int
    why: str | None  # it is not run
    output: tuple[int, int] | None  # where the text of the output begins and ends


def pages() -> list[Path]:
    """Every page that people read."""
    inside = (ROOT / "docs").rglob("*.md")
    own = [page for page in inside if not set(MADE) & set(page.relative_to(ROOT).parts)]
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "reproduction/README.md")]
    return [page for page in top if page.exists()] + sorted(own)


def blocks(text: str) -> list[Block]:
    """Blocks of code of a page, with their outputs."""
    found = list(FENCE.finditer(text))
    return [
        Block(
            one["kind"], one["text"], text.count("\n", 0, one.start("text")), one["why"],
            following(text, one.end(), found[k + 1] if k + 1 < len(found) else None),
        )
        for k, one in enumerate(found)
        if one["kind"] != "output"
    ]  # fmt: skip


def following(text: str, end: int, after: re.Match[str] | None) -> tuple[int, int] | None:
    """Where the output that follows right after a block begins and ends."""
    if after is None or after["kind"] != "output" or text[end : after.start()].strip():
        return None
    return after.span("text")


def commands(text: str) -> Iterator[list[str]]:
    """Lines of a block that call noisewise, as words."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "noisewise":
            yield words[1:]


def run_python(text: str, where: str, line: int, names: dict[str, Any]) -> str:
    """Run a block, and return what it prints and, at its end, the value of its last line."""
    tree = ast.parse("\n" * line + text, where)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(tree, where, "exec"), names)
        value = None if last is None else eval(compile(last, where, "eval"), names)
        if value is not None:
            print(value if hasattr(value, "to_string") else repr(value))
    return said.getvalue()


def run_commands(text: str) -> str:
    """Run a block of commands in this process, and return what they print."""
    said = ""
    for words in commands(text):
        result = CliRunner().invoke(app, ["--no-progress", *words], catch_exceptions=False)
        assert result.exit_code == 0, f"noisewise {' '.join(words)}: {result.output}"
        said += result.stdout
    return said


def run(page: Path) -> Iterator[tuple[Block, str]]:
    """Run all blocks of a page in the current folder; yield each with what it says."""
    write_samples()
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page.read_text()):
        if block.why is None and block.kind == "python":
            yield block, run_python(block.text, str(page), block.line, names)
        elif block.why is None and block.kind == "bash" and any(commands(block.text)):
            yield block, run_commands(block.text)


def written(page: Path) -> str:
    """Return a page with its outputs as they are now."""
    text, shift = page.read_text(), 0
    for block, said in list(run(page)):
        if block.output is not None:
            start, end = (place + shift for place in block.output)
            said = "\n".join(line.rstrip() for line in said.strip("\n").splitlines()) + "\n"
            text = text[:start] + said + text[end:]
            shift += len(said) - (end - start)
    return text


def main() -> None:
    """Write outputs into all pages, or into those that are named."""
    chosen = [Path(name).resolve() for name in sys.argv[1:]] or pages()
    for page in chosen:
        with tempfile.TemporaryDirectory() as folder:
            before = Path.cwd()
            os.chdir(folder)
            try:
                text = written(page)
            finally:
                os.chdir(before)
        if text != page.read_text():
            page.write_text(text)
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
