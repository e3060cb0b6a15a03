"""The common look of all figures, and what a page or a file holds of them.

Nothing here touches pyplot, so no window opens and no figure stays behind. Needs matplotlib
(extra: plot).
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from noisewise.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure, FigureBase

INK = "#23272f"
BLUE = "#0072b2"  # two colours that all eyes tell apart; dashes and marks tell the same in grey
ORANGE = "#d55e00"
LOOKS = ((ORANGE, "--"), (BLUE, "-"), (INK, ":"), ("#009e73", "-."))  # of lines, in their order

WIDTH = 5.0  # inches: text of a figure this wide can be read on a phone
THEME = {INK: "currentColor", BLUE: f"var(--blue, {BLUE})", ORANGE: f"var(--orange, {ORANGE})"}

STYLE: dict[str, Any] = {
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
    "xtick.major.size": 0.0,
    "ytick.color": INK,
    "ytick.major.size": 0.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "noisewise",
}

P = ParamSpec("P")
Drawing = Callable[Concatenate["FigureBase", P], None]


def require_matplotlib() -> None:
    """Raise a MissingExtraError unless figures can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("Drawing figures", "plot") from error


def figure_of(height: float) -> Callable[[Drawing[P]], Callable[P, FigureBase]]:
    """Turn a function that draws on a figure into one that makes the figure.
    """
