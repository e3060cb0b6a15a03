"""Figures of what a model has learned.

Every function draws one figure and returns it; ``on`` is a part of a larger figure to draw on
instead. ``as_svg`` and ``as_png`` turn a figure into what a page or a file holds. Nothing here
touches pyplot, so no window opens and no figure stays behind. Needs matplotlib (extra: plot).
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisewise.errors import DataError, MissingExtraError
from noisewise.metrics import calibration_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

INK = "#23272f"
BLUE = "#0072b2"  # two colours that all eyes tell apart, and dashes for those who print in grey
ORANGE = "#d55e00"
LOOKS = ((ORANGE, "--"), (BLUE, "-"), (INK, ":"), ("#009e73", "-."))
LONGEST_ID = 18  # characters of an id on an axis

STYLE = {
    "font.size": 10.0,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 9.0,
    "axes.titlecolor": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.7,
    "lines.linewidth": 2.0,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "text.color": INK,
    "text.parse_math": False,  # an id with two dollar signs is an id
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "auto",
    "svg.fonttype": "none",
    "svg.hashsalt": "noisewise",
}

P = ParamSpec("P")


class Forecast(NamedTuple):
    """What happened, and what a model had said: columns of one length."""

    truth: ArrayLike
    mean: ArrayLike
    std: ArrayLike


def _styled(draw: Callable[P, FigureBase]) -> Callable[P, FigureBase]:
    """Draw in the common style, and say which extra is missing if matplotlib is."""

    @wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> FigureBase:
        with _style():
            return draw(*args, **kwargs)

    return styled


@_styled
def learning_curves(
    curves: Mapping[str, Mapping[str, Sequence[Any]]], *, on: FigureBase | None = None
) -> FigureBase:
    """Draw error and NLL by epoch; a dot marks the best epoch on held-out data.

    Parameters
    ----------
    curves : dict
        For each name of a model its ``learning_curve_``. Held-out values are drawn where there
        are any, else those of training.
    on : Figure or SubFigure, optional
        Where to draw.

    Returns
    -------
    Figure or SubFigure
    """
    figure = _canvas(on, 5.0)
    top, bottom = figure.subplots(2, 1, sharex=True)
    held_out = all(curve["validation_rmse"][0] is not None for curve in curves.values())
    part, words = ("validation", "held-out") if held_out else ("train", "training")
    for axes, measure in ((top, "rmse"), (bottom, "nll")):
        for (name, curve), (colour, dashes) in zip(curves.items(), _looks(curves), strict=True):
            values = np.asarray(curve[f"{part}_{measure}"], dtype=float)
            axes.plot(curve["epoch"], values, dashes, color=colour, label=name)
            if held_out:
                best = int(values.argmin())
                axes.plot(curve["epoch"][best], values[best], "o", color=colour, markersize=5)
        axes.set_title(f"{measure.upper()} on {words} data")
        axes.margins(x=0.02, y=0.08)
    bottom.set_xlabel("epoch")
    bottom.xaxis.get_major_locator().set_params(integer=True)
    top.legend()
    return figure


@_styled
def noise_recovery(
    true_std: ArrayLike, learned_std: ArrayLike, *, on: FigureBase | None = None
) -> FigureBase:
    """Draw learned against true noise, with the diagonal where both agree.

    Parameters
    ----------
    true_std, learned_std : arrays
        One std per cell.
    on : Figure or SubFigure, optional
        Where to draw.

    Returns
    -------
    Figure or SubFigure
    """
    from matplotlib.colors import LinearSegmentedColormap

    true, learned = np.asarray(true_std, dtype=float), np.asarray(learned_std, dtype=float)
    if true.shape != learned.shape or true.ndim != 1 or len(true) < 2:
        raise DataError(
            "true_std and learned_std need one dimension, the same length and 2 rows or more; "
            f"got shapes {true.shape} and {learned.shape}."
        )
    figure = _canvas(on, 5.0)
    axes = figure.subplots()
    low = 0.0
    high = 1.05 * float(max(np.quantile(true, 0.999), np.quantile(learned, 0.999)))
    fade = LinearSegmentedColormap.from_list("fade", [(*_rgb(BLUE), 0.1), (*_rgb(BLUE), 1.0)])
    axes.hexbin(
        true, learned, gridsize=38, bins="log", mincnt=1, cmap=fade, linewidths=0,
        extent=(low, high, low, high),
    )  # fmt: skip
    axes.plot([low, high], [low, high], "--", color=INK, linewidth=1.2)
    axes.annotate(
        "learned = true", (0.62 * high, 0.62 * high), xytext=(-6, 5), textcoords="offset points",
        rotation=45, rotation_mode="anchor", ha="center", fontsize=9,
    )  # fmt: skip
    axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set(xlabel="true std of a cell", ylabel="learned std of the cell")
    axes.set_title(f"Learned against true noise: correlation {_correlation(true, learned):.3f}")
    return figure


@_styled
def calibration(
    forecasts: Mapping[str, Forecast], *, on: FigureBase | None = None
) -> FigureBase:
    """Draw how often the truth fell below each predicted quantile; honest stds give the diagonal.

    Parameters
    ----------
    forecasts : dict of Forecast
        For each name of a model the truth, and the mean and std it predicted.
    on : Figure or SubFigure, optional
        Where to draw.

    Returns
    -------
    Figure or SubFigure
    """
    figure = _canvas(on, 5.0)
    axes = figure.subplots()
    levels = np.linspace(0.0, 1.0, 101)
    axes.plot([0, 1], [0, 1], color=INK, linewidth=1.0, alpha=0.5, label="honest")
    for (name, forecast), (colour, dashes) in zip(
        forecasts.items(), _looks(forecasts), strict=True
    ):
        axes.plot(levels, calibration_curve(*forecast, levels), dashes, color=colour, label=name)
    ticks = np.linspace(0.0, 1.0, 6)
    words = [f"{100 * tick:.0f} %" for tick in ticks]
    axes.set_xticks(ticks, words)
    axes.set_yticks(ticks, words)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set(xlabel="predicted quantile", ylabel="share of values below it")
    axes.set_title("Calibration")
    axes.legend(loc="upper left")
    return figure


@_styled
def noisy_ids(
    table: Mapping[str, NDArray[Any]],
    *,
    true_std: ArrayLike | None = None,
    unit: str = "ratings",
    on: FigureBase | None = None,
) -> FigureBase:
    """Draw the noise of ids as bars, the noisiest on top, with how often each was observed.

    Parameters
    ----------
    table : dict of arrays
        As from ``noisewise.noisy_ids``: id, noise_std and observations.
    true_std : array, optional
        The true noise of these ids, drawn as marks.
    unit : str
        What an observation is called.
    on : Figure or SubFigure, optional
        Where to draw.

    Returns
    -------
    Figure or SubFigure
    """
    labels, counts = [_label(id) for id in table["id"]], table["observations"]
    figure = _canvas(on, 1.3 + 0.26 * len(labels))
    axes = figure.subplots()
    place = np.arange(len(labels))
    axes.barh(place, table["noise_std"], height=0.62, color=BLUE, label="learned")
    for y, count in enumerate(counts):
        axes.annotate(
            f"{count:,} {unit}", (0, y), xytext=(5, 0), textcoords="offset points",
            va="center", fontsize=8, color="white",
        )  # fmt: skip
    if true_std is not None:
        axes.plot(true_std, place, "D", color=ORANGE, markersize=5, label="true")
        figure.legend(loc="outside lower right", ncols=2)
    axes.set_yticks(place, labels)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("std of the noise")
    axes.set_title("The noisiest")
    return figure


@_styled
def interval_fan(
    truth: ArrayLike,
    mean: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    n: int = 160,
    on: FigureBase | None = None,
) -> FigureBase:
    """Draw intervals of cells from the narrowest to the widest, around their predictions.

    Parameters
    ----------
    truth, mean, low, high : arrays
        What happened, the prediction, and the ends of its interval.
    n : int
        How many cells to draw, evenly picked from all.
    on : Figure or SubFigure, optional
        Where to draw.

    Returns
    -------
    Figure or SubFigure
    """
    truth, mean, low, high = (np.asarray(column, float) for column in (truth, mean, low, high))
    by_width = np.argsort(high - low, kind="stable")
    chosen = by_width[np.linspace(0, len(by_width) - 1, min(n, len(by_width))).astype(int)]
    error, down, up = (column[chosen] - mean[chosen] for column in (truth, low, high))
    inside = (down <= error) & (error <= up)
    figure = _canvas(on, 3.9)
    axes = figure.subplots()
    place = np.linspace(0.0, 100.0, len(chosen))
    axes.fill_between(place, down, up, color=BLUE, alpha=0.18, linewidth=0, label="interval")
    axes.axhline(0.0, color=BLUE, linewidth=1.4, label="prediction")
    axes.plot(place[inside], error[inside], ".", color=INK, markersize=4, label="inside")
    axes.plot(place[~inside], error[~inside], "x", color=ORANGE, markersize=5, label="outside")
    axes.set_xticks([0, 50, 100], ["surest", "half of all cells", "least sure"])
    axes.margins(x=0.01)
    axes.set_ylabel("value minus prediction")
    axes.set_title(f"{inside.mean():.0%} of {len(chosen)} values lie in their interval")
    figure.legend(loc="outside lower center", ncols=4, columnspacing=1.2, handlelength=1.4)
    return figure


@_styled
def side_by_side(
    draw: Sequence[Callable[[FigureBase], object]], columns: int = 3
) -> FigureBase:
    """Draw several figures as parts of one, on white.

    Parameters
    ----------
    draw : sequence of callables
        Each is given its part of the figure, to pass as ``on``.
    columns : int
        Parts in a row.

    Returns
    -------
    Figure
    """
    from matplotlib.figure import Figure

    rows = -(-len(draw) // columns)
    figure = Figure(figsize=(5.4 * columns, 5.2 * rows), layout="constrained", facecolor="white")
    parts = figure.subfigures(rows, columns, squeeze=False, wspace=0.04, hspace=0.05).ravel()
    for part, one in zip(parts, draw, strict=False):
        one(part)
    return figure


def as_svg(figure: Figure) -> str:
    """Return a figure as an ``<svg>`` element to put into a page, without links or scripts.

    Text stays text, in the font of the page.
    """
    buffer = io.StringIO()
    with _style(), warnings.catch_warnings():
        # Text is drawn by the browser, which has fonts for all scripts.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return re.sub(r'\s+xmlns(:xlink)?="[^"]*"', "", text)


def as_png(figure: Figure) -> bytes:
    """Return a figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    with _style():
        figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    return buffer.getvalue()
