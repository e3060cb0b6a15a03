"""Figures of what a model has learned: each function takes numbers and gives one ``Drawing``.

``render`` turns a drawing into a file, ``Drawing.svg`` into a part of a page. All figures share one
look. Nothing touches pyplot, so no window opens and no figure stays behind. Needs matplotlib
(extra: plot).
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisewise.errors import DataError, MissingExtraError, SettingError
from noisewise.metrics import calibration_curve, miscalibration_area
from noisewise.metrics import coverage as covered

if TYPE_CHECKING:
    from matplotlib.figure import Figure, FigureBase

INK = "#23272f"
BLUE = "#0072b2"  # two colours that all eyes tell apart; dashes and marks say the same in grey
ORANGE = "#d55e00"
LOOKS = ((ORANGE, "--"), (BLUE, "-"), (INK, ":"), ("#009e73", "-."))  # of lines, in their order

WIDTH = 4.4  # inches: the text of a figure no wider than this can be read on a phone
THEME = {INK: "currentColor", BLUE: f"var(--blue, {BLUE})", ORANGE: f"var(--orange, {ORANGE})"}
LONGEST_ID = 18  # characters of an id on an axis

STYLE: dict[Any, Any] = {
    "font.size": 10.0, "text.color": INK, "lines.linewidth": 2.0,
    "axes.titlesize": 11.0, "axes.titlelocation": "left", "axes.titlepad": 9.0,
    "axes.titlecolor": INK, "axes.labelcolor": INK, "axes.edgecolor": INK,
    "axes.facecolor": "none", "axes.linewidth": 0.7, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.color": INK, "grid.alpha": 0.13, "grid.linewidth": 0.7,
    "figure.facecolor": "none", "legend.frameon": False, "legend.handlelength": 2.4,
    "text.parse_math": False,  # an id with two dollar signs is no formula
    "xtick.color": INK, "xtick.major.pad": 6.0, "xtick.major.size": 0.0,
    "ytick.color": INK, "ytick.major.size": 0.0,
    "svg.fonttype": "none", "svg.hashsalt": "noisewise",
}  # fmt: skip


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

        size = self.width, self.height
        with _style():
            figure = Figure(figsize=size, layout="constrained", facecolor=background)
            self.draw(figure)
        return figure

    def svg(self) -> str:
        """Return an ``<svg>`` element in the colours of a page, without links: its text is text."""
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


def learning_curves(curves: Mapping[str, Mapping[str, Sequence[Any]]]) -> Drawing:
    """Draw error and NLL by epoch, of held-out data if all have some; dots mark lowest points."""
    looks = _looks(curves)
    held_out = all(curve["validation_rmse"][0] is not None for curve in curves.values())
    part, words = ("validation", "held-out") if held_out else ("train", "training")

    def values(name: str, measure: str) -> NDArray[np.float64]:
        return np.asarray(curves[name][f"{part}_{measure}"], dtype=float)

    def draw(figure: FigureBase) -> None:
        top, bottom = figure.subplots(2, 1, sharex=True)
        for axes, measure in ((top, "rmse"), (bottom, "nll")):
            for name, (colour, dashes) in looks.items():
                epochs, column = curves[name]["epoch"], values(name, measure)
                axes.plot(epochs, column, dashes, color=colour, label=name)
                if held_out:
                    best = int(column.argmin())
                    axes.plot(epochs[best], column[best], "o", color=colour, markersize=5.5)
            axes.set_title(f"{measure.upper()} on {words} data")
            axes.margins(x=0.02, y=0.08)
        top.legend()
        bottom.set_xlabel("epoch")

    ends = ", ".join(
        f"{name} RMSE {values(name, 'rmse').min():.3f} and NLL {values(name, 'nll').min():.3f}"
        for name in curves
    )
    return Drawing(draw, f"RMSE and NLL on {words} data by epoch. Lowest points: {ends}.", 4.4)


def noise_recovery(true_std: ArrayLike, learned_std: ArrayLike) -> Drawing:
    """Draw learned against true noise of cells, with the diagonal where both agree."""
    true, learned = _same_length(true_std=true_std, learned_std=learned_std)
    spread = np.ptp(true) > 0 and np.ptp(learned) > 0
    words = f"correlation {np.corrcoef(true, learned)[0, 1]:.3f}" if spread else "one std for all"
    high = 1.05 * float(max(np.quantile(true, 0.999), np.quantile(learned, 0.999)))

    def draw(figure: FigureBase) -> None:
        from matplotlib.colors import LinearSegmentedColormap, to_rgb

        fade = [(*to_rgb(BLUE), alpha) for alpha in (0.1, 1.0)]
        axes = figure.subplots()
        axes.hexbin(
            true, learned, gridsize=38, extent=(0, high, 0, high), mincnt=1, bins="log",
            cmap=LinearSegmentedColormap.from_list("fade", fade), linewidths=0,
        )  # fmt: skip
        axes.plot([0, high], [0, high], "--", color=INK, linewidth=1.2)
        axes.annotate(
            "learned = true", (0.86 * high, 0.86 * high), (-4, 4), textcoords="offset points",
            rotation=45, rotation_mode="anchor", ha="center",
        )  # fmt: skip
        axes.set(
            xlim=(0, high), ylim=(0, high), aspect="equal", anchor="NW",
            xlabel="true std of a cell", ylabel="learned std",
            title=f"Noise of cells: {words}",
        )  # fmt: skip

    return Drawing(draw, f"Learned against true std of {len(true):,} cells: {words}.", 4.4)


def calibration(forecasts: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike]]) -> Drawing:
    """Draw how often the truth fell below quantiles, by truth, mean and std: honest if as often."""
    looks = _looks(forecasts)
    levels = np.linspace(0.0, 1.0, 101)
    curves = {name: calibration_curve(*columns, levels) for name, columns in forecasts.items()}

    def draw(figure: FigureBase) -> None:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=INK, linewidth=1.0, alpha=0.5, label="honest")
        for name, (colour, dashes) in looks.items():
            axes.plot(levels, curves[name], dashes, color=colour, label=name)
        ticks = np.linspace(0.0, 1.0, 6)
        words = [f"{100 * tick:.0f} %" for tick in ticks]
        axes.set_xticks(ticks, words)
        axes.set_yticks(ticks, words)
        axes.set(
            xlim=(0, 1), ylim=(0, 1), aspect="equal", anchor="NW", xlabel="predicted quantile",
            ylabel="share of values below it", title="Calibration of the std",
        )  # fmt: skip
        axes.legend(loc="upper left")

    areas = ", ".join(f"{name} {miscalibration_area(*f):.3f}" for name, f in forecasts.items())
    return Drawing(draw, f"Calibration curves. Area between curve and diagonal: {areas}.", 4.4)


def coverage_by_noise(
    truth: ArrayLike,
    noise: ArrayLike,
    intervals: Mapping[str, tuple[ArrayLike, ArrayLike]],
    coverage: float,
    *,
    groups: int = 8,
) -> Drawing:
    """Draw how often intervals hold the truth where there is little noise, and where there is much.

    Cells are in groups of one size, by noise. Intervals, low and high, should hold ``coverage``.
    """
    looks = _looks(intervals)
    truth, noise = _same_length(truth=truth, noise=noise)
    cells = np.array_split(np.argsort(noise, kind="stable"), min(groups, len(noise)))
    level = [f"{noise[group].mean():.2f}" for group in cells]
    shares: dict[str, list[float]] = {}
    for name, (low, high) in intervals.items():
        columns = _same_length(truth=truth, low=low, high=high)
        shares[name] = [covered(*(column[group] for column in columns)) for group in cells]

    def draw(figure: FigureBase) -> None:
        from matplotlib.ticker import PercentFormatter

        axes = figure.subplots()
        place = np.arange(len(cells))
        promise = f"as promised: {100 * coverage:g} %"
        axes.axhline(coverage, color=INK, linewidth=1.0, alpha=0.5, label=promise)
        for name, (colour, dashes) in looks.items():
            axes.plot(place, shares[name], dashes, marker="o", color=colour, label=name)
        axes.set_xticks(place, level)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, 0, " %"))
        lowest = min(map(min, shares.values()))
        axes.set(ylim=(min(0.5, lowest - 0.05), 1.02), ylabel="share of values in their interval")
        axes.set(xlabel="mean noise std of a group of cells", title="Coverage, by noise")
        axes.grid(visible=False, axis="x")
        axes.legend(loc="lower left")

    pairs = ", ".join(f"{name} {s[0]:.0%} and {s[-1]:.0%}" for name, s in shares.items())
    alt = f"Coverage of {coverage:.0%} intervals in the quietest and the noisiest cells: {pairs}."
    return Drawing(draw, alt, 4.4)


def noisy_ids(
    table: Mapping[str, NDArray[Any]], *, true_std: ArrayLike | None = None, unit: str = "ratings"
) -> Drawing:
    """Draw a table of ``noisewise.noisy_ids`` as bars; the true noise, if known, as marks."""
    labels = [short(str(label), LONGEST_ID) for label in table["id"]]
    if not labels:
        raise DataError("The table of noisy ids needs a row or more; got 0.")
    place = np.arange(len(labels))
    counts = [f"{count:,}" for count in table["observations"]]
    counts[0] = f"{counts[0]} {unit}"

    def draw(figure: FigureBase) -> None:
        axes = figure.subplots()
        axes.barh(place, table["noise_std"], height=0.64, color=BLUE, label="learned")
        if true_std is not None:
            axes.plot(true_std, place, "D", color=ORANGE, markersize=5.5, label="true")
            figure.legend(loc="outside lower center", ncols=2, reverse=True)
        right = axes.secondary_yaxis("right")
        right.set_yticks(place, counts)
        right.spines["right"].set_visible(False)
        axes.set_yticks(place, labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set(xlabel="std of the noise", title=f"The {len(labels)} noisiest")

    pairs = zip(labels, table["noise_std"], strict=True)
    alt = ", ".join(f"{label} {std:.2f}" for label, std in pairs)
    return Drawing(draw, f"Noise std of the noisiest: {alt}.", 1.1 + 0.22 * len(labels))


def interval_fan(
    truth: ArrayLike, mean: ArrayLike, low: ArrayLike, high: ArrayLike, *, n: int = 160
) -> Drawing:
    """Draw intervals around predictions, from the narrowest to the widest, `n` picked evenly."""
    truth, mean, low, high = _same_length(truth=truth, mean=mean, low=low, high=high)
    by_width = np.argsort(high - low, kind="stable")
    chosen = by_width[np.linspace(0, len(by_width) - 1, min(n, len(by_width))).astype(int)]
    error, down, up = (column[chosen] - mean[chosen] for column in (truth, low, high))
    inside = (down <= error) & (error <= up)
    share = f"{inside.sum()} of {len(chosen)} values lie in their interval"

    def draw(figure: FigureBase) -> None:
        axes = figure.subplots()
        place = np.linspace(0.0, 1.0, len(chosen))
        axes.fill_between(place, down, up, color=BLUE, alpha=0.2, linewidth=0, label="interval")
        axes.axhline(0.0, color=BLUE, linewidth=1.4, label="prediction")
        axes.plot(place[inside], error[inside], ".", color=INK, markersize=4.5, label="inside")
        axes.plot(place[~inside], error[~inside], "x", color=ORANGE, markersize=5, label="outside")
        axes.set_xticks([0, 0.5, 1], ["surest", "cells by width", "least sure"])
        first, _, last = axes.get_xticklabels()
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")
        axes.set(ylabel="value minus prediction", title=share, xlim=(-0.01, 1.01))
        axes.grid(visible=False, axis="x")
        figure.legend(loc="outside lower center", ncols=4, columnspacing=1.2, handlelength=1.4)

    widths = f"{(up - down).min():.2f} to {(up - down).max():.2f}"
    return Drawing(draw, f"Intervals of {len(chosen)} cells, {widths} wide; {share}.", 4.1)


def _style() -> AbstractContextManager[None]:
    from matplotlib import style

    return style.context(["default", STYLE])  # whatever the settings of the user's own figures


def _looks(named: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    if not 1 <= len(named) <= len(LOOKS):
        raise DataError(f"A figure holds 1 to {len(LOOKS)} models; got {len(named)}.")
    return dict(zip(named, LOOKS, strict=False))


def _same_length(**given: ArrayLike) -> list[NDArray[np.float64]]:
    columns = [np.asarray(column, dtype=float) for column in given.values()]
    shapes = [column.shape for column in columns]
    if len(set(shapes)) > 1 or columns[0].ndim != 1 or len(columns[0]) < 2:
        raise DataError(
            f"{', '.join(given)} need one dimension, one length and 2 rows or more; got shapes "
            f"{', '.join(map(str, shapes))}."
        )
    return columns
