"""A drawing: how to draw one figure, alone or as a part of a larger one, and what it shows.

All figures share one look. Nothing touches pyplot, so no window opens and no figure stays behind.
Needs matplotlib (extra: plot).
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noisewise.errors import MissingExtraError, SettingError

if TYPE_CHECKING:
    from matplotlib.figure import Figure, FigureBase

INK = "#23272f"
BLUE = "#0072b2"  # two colours that all eyes tell apart; dashes and marks say the same in grey
ORANGE = "#d55e00"
LOOKS = ((ORANGE, "--"), (BLUE, "-"), (INK, ":"), ("#009e73", "-."))  # of lines, in their order

WIDTH = 4.4  # inches: the text of a figure no wider than this can be read on a phone
THEME = {INK: "currentColor", BLUE: f"var(--blue, {BLUE})", ORANGE: f"var(--orange, {ORANGE})"}

STYLE: dict[Any, Any] = {
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.titlelocation": "left",
    "axes.titlepad": 9.0,
    "axes.titlecolor": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "grid.color": INK,
    "grid.alpha": 0.13,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "lines.linewidth": 2.0,
    "text.color": INK,
    "text.parse_math": False,  # an id with two dollar signs is no formula
    "xtick.color": INK,
    "xtick.major.pad": 6.0,
    "xtick.major.size": 0.0,
    "ytick.color": INK,
    "ytick.major.size": 0.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "noisewise",
}


@dataclass(frozen=True)
class Drawing:
    """How to draw a figure, and what is to be seen in it."""

    draw: Callable[[FigureBase], None]  # on a matplotlib Figure or SubFigure
    alt: str  # what the figure shows, for those who do not see it
    height: float  # in inches
    width: float = WIDTH

    def figure(self, background: str = "white") -> Figure:
        """Return a matplotlib Figure."""
        require_matplotlib()
        from matplotlib.figure import Figure

        with _style():
            size = self.width, self.height
            figure = Figure(figsize=size, layout="constrained", facecolor=background)
            self.draw(figure)
        return figure

    def svg(self) -> str:
        """Return an ``<svg>`` element for a page, without links: its text is text.

        It takes the text colour of the page, and the page's ``--blue`` and ``--orange`` if set.
        """
        svg = render(self, "svg").decode()
        svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg[svg.index("<svg") :], flags=re.DOTALL)
        svg = re.sub(r'\s+xmlns(:xlink)?="[^"]*"', "", svg)
        svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # the same in every figure, and of no use
        for colour, variable in THEME.items():
            svg = svg.replace(f": {colour}", f": {variable}")
        return svg


def check_kind(kind: str) -> None:
    """Raise unless a figure can be written in a format."""
    if kind not in ("png", "svg"):
        raise SettingError(f"A figure is written as 'png' or 'svg'; got {kind!r}.")


def render(drawing: Drawing, kind: str) -> bytes:
    """Return the content of a file: a "png" on white, or an "svg" without a background."""
    check_kind(kind)
    figure = drawing.figure(background="white" if kind == "png" else "none")
    unsigned = {"Software": None} if kind == "png" else {"Date": None}  # the same bits every time
    content = io.BytesIO()
    with _style(), warnings.catch_warnings():
        if kind == "svg":  # the viewer draws the text, and has fonts for more scripts
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(content, format=kind, dpi=120, metadata=unsigned)
    return content.getvalue()


def side_by_side(title: str, drawings: Sequence[Drawing], columns: int = 3) -> Drawing:
    """Put drawings together in one below a title, row by row."""
    rows = [drawings[start : start + columns] for start in range(0, len(drawings), columns)]
    heights = [max(drawing.height for drawing in row) for row in rows]

    def draw(figure: FigureBase) -> None:
        figure.suptitle(title, fontsize=17, fontweight="bold", x=0.01, ha="left")
        parts = figure.subfigures(len(rows), columns, squeeze=False, height_ratios=heights)
        for part, drawing in zip(parts.ravel(), drawings, strict=False):
            drawing.draw(part)

    alt = " ".join([title, *(drawing.alt for drawing in drawings)])
    return Drawing(draw, alt, sum(heights) + 0.6, columns * WIDTH)


def short(text: str, longest: int) -> str:
    """Return a text as one line of no more than so many characters."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def require_matplotlib() -> None:
    """Raise a MissingExtraError unless figures can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("Drawing figures", "plot") from error


def _style() -> AbstractContextManager[None]:
    from matplotlib import style

    return style.context(["default", STYLE])  # whatever the settings of the user's own figures
