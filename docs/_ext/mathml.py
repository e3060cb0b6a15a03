"""Formulas as MathML, which browsers draw by themselves: no script, no font, no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def drawn(formula: str, **options: str) -> str:
    """Return a formula as MathML; in text, an underscore is written as TeX wants it."""
    return convert(formula, **options).replace("\\_", "_")


def inline(self: Any, node: nodes.math) -> None:
    """Write a formula inside a line."""
    self.body.append(drawn(node.astext()))
    raise nodes.SkipNode


def display(self: Any, node: nodes.math_block) -> None:
    """Write a formula on lines of its own, which scroll where they are too wide."""
    self.body.append(f'<div class="math-block">{drawn(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Make it known to Sphinx."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True}
