"""Numbers with their intervals, and panels of lines: figures of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from noisewise.report.figures import BLUE, INK, ORANGE, Drawing, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.figure import FigureBase

# Looks of many lines: a colour and a mark each, so that they also differ in grey.
COLOURS = (ORANGE, BLUE, "#009e73", "#cc79a7", INK, "#e69f00", "#56b4e9", "#7a7a7a", "#8c564b")
MARKS = "osD^vPX*<"
LONGEST = 30  # characters of a name on an axis


class Dot(NamedTuple):
    """A number with its interval, and one to compare it with; None where there is none."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    mark: float | None = None


class Line(NamedTuple):
    """A line through points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def dots(title: str, rows: Sequence[Dot], *, unit: str, mark: str = "") -> Drawing:
    """Draw numbers with their intervals below each other, and beside them others as crosses.

    Parameters
    ----------
    title : str
        Stands above.
    rows : sequence of Dot
        From top to bottom.
    unit : str
        What the axis says.
    mark : str
        What the crosses are.
    """
    place = np.arange(len(rows))
    crossed = [(k, row.mark) for k, row in enumerate(rows) if row.mark is not None]

    def draw(figure: FigureBase) -> None:
        axes = figure.subplots()
        for k, row in enumerate(rows):
            if row.low is not None and row.high is not None:
                axes.plot([row.low, row.high], [k, k], color=BLUE, linewidth=2.4)
        axes.plot([row.value for row in rows], place, "o", color=BLUE, label="here")
        if crossed:
            across = [number for _, number in crossed]
            axes.plot(across, [k for k, _ in crossed], "x", color=ORANGE, mew=2.0, label=mark)
            figure.legend(loc="outside lower center", ncols=2)
        axes.set_yticks(place, [short(row.name, LONGEST) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.spines["left"].set_visible(False)
        axes.margins(x=0.06)
        axes.set(xlabel=unit, title=title)

    words = ", ".join(f"{row.name} {row.value:.4g}{_beside(row, mark)}" for row in rows)
    return Drawing(draw, f"{title}, {unit}: {words}.", 1.3 + 0.27 * len(rows))


def panels(
    titles: Sequence[str],
    lines: Sequence[Sequence[Line]],
    *,
    x: Sequence[str],
    y: str,
    set_up: Callable[[Axes, int], None] = lambda axes, k: None,
    marks: bool = True,
) -> Drawing:
    """Draw panels of lines below each other, with one legend; a name looks the same in all.

    Parameters
    ----------
    titles : sequence of str
        One per panel.
    lines : sequence of sequences of Line
        One sequence per panel.
    x : sequence of str
        What the axis below each panel says.
    y : str
        What the axis beside each panel says.
    set_up : callable
        Takes the axes of each panel, and its number, once all is drawn.
    marks : bool
        Whether to mark points.
    """
    names = list(dict.fromkeys(line.name for panel in lines for line in panel))
    looks = {
        name: (COLOURS[k % len(COLOURS)], MARKS[k % len(MARKS)]) for k, name in enumerate(names)
    }

    def draw(figure: FigureBase) -> None:
        every = figure.subplots(len(titles), 1, squeeze=False)[:, 0]
        for k, (axes, title, panel) in enumerate(zip(every, titles, lines, strict=True)):
            for line in panel:
                colour, mark = looks[line.name]
                style = {"marker": mark, "markersize": 5.0} if marks else {}
                axes.plot(line.x, line.y, color=colour, label=line.name, linewidth=1.5, **style)
            axes.set(title=title, xlabel=x[k], ylabel=y)
            set_up(axes, k)
        shown: dict[str, Any] = {}
        for axes in every:
            handles, labels = axes.get_legend_handles_labels()
            shown |= dict(zip(labels, handles, strict=True))
        figure.legend(
            list(shown.values()), list(shown), loc="outside lower center", ncols=3, fontsize=8.5,
            handlelength=1.6, columnspacing=1.0,
        )  # fmt: skip

    alt = " ".join(
        f"{title}, {y}: " + ", ".join(f"{line.name} {_ends(line)}" for line in panel) + "."
        for title, panel in zip(titles, lines, strict=True)
    )
    rows = -(-len(names) // 3)
    return Drawing(draw, alt, 2.7 * len(titles) + 0.3 + 0.2 * rows)


def logarithmic(axis: XAxis | YAxis) -> None:
    """Make an axis logarithmic, with plain numbers: formulas are not typeset here."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def _beside(row: Dot, mark: str) -> str:
    return "" if row.mark is None else f" ({mark} {row.mark:.4g})"


def _ends(line: Line) -> str:
    return f"{line.y[0]:.3g} to {line.y[-1]:.3g}"
