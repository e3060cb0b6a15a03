"""Series with gaps, to look at: what was read, what was filled in, and how noisy each sensor is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.calibration import normal_half_width
from noisewise.errors import DataError
from noisewise.report.canvas import BLUE, INK, ORANGE, Drawing, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

COLUMNS = 240  # of a picture: more would not be seen, and make the page large
COVERAGE = 0.9
LONGEST_NAME = 40  # characters of a title
LONGEST_LABEL = 24  # and of a label on an axis
DAY = 86_400.0

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trace:
    """One series: when it should have been read, what was, and what was put into its gaps.

    Attributes
    ----------
    name : str
        What the series is called.
    time : ndarray
        In order: numbers, or seconds since 1970 if `dates`.
    value : ndarray
        What was read, NaN in gaps.
    mean, std : ndarray
        What was filled in, and its std; NaN where there was a reading.
    dates : bool
        Whether times are dates.
    """

    name: str
    time: Floats
    value: Floats
    mean: Floats
    std: Floats
    dates: bool = False

    @property
    def filled(self) -> NDArray[np.bool_]:
        """Which of its cells were gaps."""
        return ~np.isnan(self.mean)


class Steps(NamedTuple):
    """A series in columns of a picture: edges, and per column what was read and what was filled.

    NaN where a column has nothing of a kind.
    """

    edges: Floats
    lowest: Floats
    highest: Floats
    mean: Floats
    low: Floats
    high: Floats


def in_columns(trace: Trace, columns: int = COLUMNS, coverage: float = COVERAGE) -> Steps:
    """Sum up a series column by column, no more of them than are asked for.

    Readings are summed up by the lowest and the highest, so that no outlier gets lost; what was
    filled in by its mean, and the lowest and the highest end of its intervals.

    Examples
    --------
    >>> gap = np.array([np.nan, 3.0, np.nan, np.nan])
    >>> read = np.array([1.0, np.nan, 5.0, 9.0])
    >>> steps = in_columns(Trace("hall", np.arange(4.0), read, gap, gap / 3), columns=2)
    >>> steps.lowest.tolist(), steps.highest.tolist(), steps.mean.tolist()
    ([1.0, 5.0], [1.0, 9.0], [3.0, nan])
    """
    time = trace.time
    if not len(time) or len({len(part) for part in (time, trace.value, trace.mean, trace.std)}) > 1:
        raise DataError(
            f"Series {trace.name!r} needs one value, mean and std for each of its times."
        )
    n = min(columns, len(time))
    span = float(time[-1] - time[0]) or 1.0
    half = 0.5 * span / max(n - 1, 1)  # so that columns of a regular series hold one time each
    edges = np.linspace(time[0] - half, time[-1] + half, n + 1)
    column = np.clip(np.searchsorted(edges, time, side="right") - 1, 0, n - 1)
    present, starts = np.unique(column, return_index=True)
    reach = normal_half_width(coverage) * trace.std

    def summed(parts: Floats, by: np.ufunc) -> Floats:
        out = np.full(n, np.nan)
        out[present] = by.reduceat(parts, starts)
        return out

    many = summed(trace.filled.astype(float), np.add)
    total = summed(np.where(trace.filled, trace.mean, 0.0), np.add)
    mean = np.divide(total, many, out=np.full(n, np.nan), where=many > 0)
    return Steps(
        edges,
        summed(trace.value, np.fmin),
        summed(trace.value, np.fmax),
        mean,
        summed(trace.mean - reach, np.fmin),
        summed(trace.mean + reach, np.fmax),
    )


def filled_series(trace: Trace, *, coverage: float = COVERAGE) -> Drawing:
    """Draw one series: readings, and in its gaps what was filled in with the band that holds it.

    Parameters
    ----------
    trace : Trace
        The series.
    coverage : float
        Share of values that the band should hold.
    """
    steps = in_columns(trace, coverage=coverage)
    gaps = int(trace.filled.sum())

    def draw(figure: FigureBase) -> None:
        axes = figure.subplots()
        edges = steps.edges / DAY if trace.dates else steps.edges
        middle = 0.5 * (edges[1:] + edges[:-1])
        if gaps:
            axes.stairs(
                steps.high, edges, baseline=steps.low, fill=True, color=BLUE, alpha=0.25,
                linewidth=0, label=f"holds {100 * coverage:g} %",
            )  # fmt: skip
            axes.stairs(steps.mean, edges, baseline=None, color=BLUE, linewidth=1.4, label="filled")
        several = steps.highest > steps.lowest
        ends = steps.lowest[several], steps.highest[several]
        axes.vlines(middle[several], *ends, color=INK, linewidth=0.9)
        centre = 0.5 * (steps.lowest + steps.highest)
        axes.plot(middle, centre, ".", color=INK, markersize=2.4, label="read")
        axes.set_title(short(trace.name, LONGEST_NAME))
        axes.margins(x=0.01, y=0.06)
        if trace.dates:
            _by_date(axes)
        figure.legend(
            loc="outside lower center", ncols=3, fontsize=8.5, handlelength=1.4, reverse=True
        )

    share = f"{len(trace.time) - gaps:,} of {len(trace.time):,} were read, {gaps:,} filled in"
    return Drawing(draw, f"{trace.name}: {share}.", 2.5)


def noise_parts(table: Mapping[str, NDArray[Any]]) -> Drawing:
    """Draw white noise and drift of series as pairs of bars, the noisiest on top.

    Parameters
    ----------
    table : dict of arrays
        series (names), white and drift, as from ``noisewise.noisy_series``.
    """
    names = [short(str(name), LONGEST_LABEL) for name in table["series"]]
    if not names:
        raise DataError("The table of noisy series needs a row or more; got 0.")
    place = np.arange(len(names))
    white, drift = (np.maximum(table[part], 0.0) for part in ("white", "drift"))

    def draw(figure: FigureBase) -> None:
        axes = figure.subplots()
        axes.barh(place - 0.18, white, height=0.34, color=BLUE, label="white noise")
        axes.barh(place + 0.18, drift, height=0.34, color=ORANGE, label="drift")
        axes.set_yticks(place, names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set(xlabel="standard deviations above the usual", title=f"The {len(names)} noisiest")
        figure.legend(loc="outside lower center", ncols=2)

    rows = zip(names, white, drift, strict=True)
    words = ", ".join(f"{name} {one:.1f} and {other:.1f}" for name, one, other in rows)
    return Drawing(draw, f"White noise and drift of the noisiest: {words}.", 1.3 + 0.3 * len(names))


def _by_date(axes: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)
