"""Series with gaps: figures of what was read, filled in and noisy, and a page of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.calibration import normal_half_width
from noisewise.errors import DataError, SettingError, progress
from noisewise.report.figures import BLUE, INK, ORANGE, Drawing, short
from noisewise.report.page import Picture, Section, Table, page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

COLUMNS = 240  # of a picture: more would not be seen, and make the page large
COVERAGE = 0.9
LONGEST_NAME = 40  # characters of a title
LONGEST_LABEL = 24  # and of a label on an axis
DAY = 86_400.0
BARS = 15  # of the noisiest series
MOST_SENSORS = 12  # sensors with a row of their own; more are summed up
TWO_WAYS = (
    "A sensor can be bad in two ways. White noise: a reading is off, and the next one is off by "
    "something else. Drift: the sensor wanders away from what all have in common, and stays there "
    "for a while, as one does whose battery fails. Both are told by how far the sensor lies above "
    "the median of all that measure the same, in standard deviations: 0 is usual, above 3 it is "
    "not like the others."
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trace:
    """One series: when it should have been read, what was, and what was put into its gaps."""

    name: str
    time: Floats  # in order: numbers, or seconds since 1970 if `dates`
    value: Floats  # NaN in gaps
    mean: Floats  # what was filled in, and its std; NaN where there was a reading
    std: Floats
    dates: bool = False
    sensor: str = "readings"  # what it measures, and so the unit that it is in
    noise: float = np.nan  # by ``noisewise.noisy_series``; NaN if it was never read
    white: float = np.nan
    drift: float = np.nan
    white_std: float = np.nan  # in units of the readings, as is the next
    drift_std: float = np.nan

    @property
    def filled(self) -> NDArray[np.bool_]:
        """Which of its cells were gaps."""
        return ~np.isnan(self.mean)

    @property
    def counts(self) -> tuple[int, int]:
        """How many readings it has, and how many gaps were filled."""
        return int((~np.isnan(self.value)).sum()), int(self.filled.sum())


class Steps(NamedTuple):
    """A series in columns of a picture: what was read and filled between edges, NaN if nothing."""

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
    read = summed(trace.value, np.fmin), summed(trace.value, np.fmax)
    band = summed(trace.mean - reach, np.fmin), summed(trace.mean + reach, np.fmax)
    return Steps(edges, *read, mean, *band)


def filled_series(trace: Trace, *, coverage: float = COVERAGE) -> Drawing:
    """Draw one series: readings, and in its gaps what was filled in with the band that holds it."""
    steps = in_columns(trace, coverage=coverage)
    gaps = trace.counts[1]

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


def noise_parts(table: Mapping[str, Any]) -> Drawing:
    """Draw white and drift of ``noisewise.noisy_series``, and names of series, as pairs of bars."""
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


def series_page(
    title: str,
    series: Sequence[Trace],
    *,
    lead: str = "",
    method: Sequence[str | Table] = (),
    most: int = 24,
    foot: str = "",
) -> str:
    """Return a page of series, the noisiest first; ``method`` says how gaps were filled.

    At most so many series are drawn, and the page says how many it leaves out.
    """
    check_most(most)
    ranked = sorted(series, key=lambda one: (np.isnan(one.noise), -one.noise))
    drawn, left_out = ranked[:most], len(ranked) - most
    limited = f" {left_out:,} less noisy series are left out." if left_out > 0 else ""
    pictures = []
    for one in progress(drawn, desc="draw", unit="series"):
        picture = filled_series(one)
        pictures.append(Picture(picture.svg(), picture.alt, _in_words(one)))
    known = [one for one in ranked if not np.isnan(one.noise)][:BARS]
    parts = {part: [getattr(one, part) for one in known] for part in ("white", "drift")}
    bars = noise_parts({"series": [one.name for one in known], **parts})
    readings = (
        f"Dots are readings. Gaps are filled with the line; {100 * COVERAGE:g} % of the readings "
        f"that are missing should lie in the band.{limited}"
    )
    picture_of_bars = Picture(bars.svg(), bars.alt)
    sections = [
        Section("What was filled", [_by_sensor(ranked), *method]),
        Section("Which sensors are noisy", [TWO_WAYS, picture_of_bars, _noisiest(drawn, limited)]),
        Section("Series, the noisiest first", [readings, *pictures]),
    ]
    return page(title, sections, lead=lead, foot=foot)


def check_most(most: int) -> None:
    """Raise unless so many series can be drawn."""
    if most < 1:
        raise SettingError(f"A page must draw 1 series or more; got {most}.")


def _by_date(axes: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)


def _by_sensor(series: Sequence[Trace]) -> Table:
    sensors: dict[str, list[tuple[int, int]]] = {}
    for one in series:
        sensors.setdefault(one.sensor, []).append(one.counts)
    if len(sensors) > MOST_SENSORS:
        sensors = {}
    if len(sensors) != 1:
        sensors["all"] = [one.counts for one in series]
    rows = []
    for sensor, counts in sensors.items():
        read, filled = map(sum, zip(*counts, strict=True))
        numbers = f"{len(counts):,}", f"{read:,}", f"{filled:,}"
        share = filled / max(filled + read, 1)
        rows.append([short(sensor, LONGEST_NAME), *numbers, f"{100 * share:.1f} %"])
    return Table(["sensor", "series", "readings", "gaps filled", "share filled"], rows)


def _noisiest(series: Sequence[Trace], limited: str) -> Table:
    rows = [
        [
            short(one.name, LONGEST_NAME),
            *(_told(part, ".1f") for part in (one.noise, one.white, one.drift)),
            *(_told(part, ".3g") for part in (one.white_std, one.drift_std)),
        ]
        for one in series
    ]
    head = ["series", "noise", "white", "drift", "white, in its unit", "drift, in its unit"]
    words = "Noise is the root of the sum of the squares of white noise and drift, if above 0."
    return Table(head, rows, words + limited)


def _in_words(one: Trace) -> str:
    read, gaps = one.counts
    words = f"{read:,} readings, {gaps:,} gaps filled."
    if np.isnan(one.noise):
        return words
    parts = f"white noise {one.white_std:.3g}, drift {one.drift_std:.3g}"
    return f"{words} Noise {one.noise:.1f}: {parts}."


def _told(number: float, form: str) -> str:
    return "\N{EN DASH}" if np.isnan(number) else format(number, form)
