"""Series with gaps: figures of what was read, filled in and noisy, and a page of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.anomalies.find import KINDS
from noisewise.errors import DataError, SettingError
from noisewise.report.charts import BAR, Trace, script_of
from noisewise.report.figures import BLUE, INK, ORANGE, Drawing, short
from noisewise.report.page import Link, Section, Table, page, resource

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

COLUMNS = 240  # of a picture: more would not be seen, and make the page large
COVERAGE = 0.9
LONGEST_NAME = 40  # characters of a title
LONGEST_LABEL = 24  # and of a label on an axis
DAY = 86_400.0
MOST_SERIES = 200  # on a page
MOST_ROWS = 30  # of a table
LONGEST_GAPS = 10
MOST_SENSORS = 12  # sensors with a row of their own; more are summed up
TWO_WAYS = (
    "A sensor can be bad in two ways. White noise: a reading is off, and the next one is off by "
    "something else. Drift: the sensor wanders away from what all have in common, and stays there "
    "for a while, as one does whose battery fails. Both are told by how far the sensor lies above "
    "the median of all that measure the same, in standard deviations: 0 is usual, above 3 it is "
    "not like the others."
)

Floats = NDArray[np.float64]


class Steps(NamedTuple):
    """A series in columns of a picture: what was read and filled between edges, NaN if nothing."""

    edges: Floats
    lowest: Floats
    highest: Floats
    mean: Floats
    low: Floats
    high: Floats


def in_columns(trace: Trace, columns: int = COLUMNS) -> Steps:
    """Sum up a series column by column, no more of them than are asked for.

    Readings are summed up by the lowest and the highest, so that no outlier gets lost; what was
    filled in by its mean, and the lowest and the highest end of its intervals.
    """
    time = trace.time
    n = min(columns, len(time))
    span = float(time[-1] - time[0]) or 1.0
    half = 0.5 * span / max(n - 1, 1)  # so that columns of a regular series hold one time each
    edges = np.linspace(time[0] - half, time[-1] + half, n + 1)
    column = np.clip(np.searchsorted(edges, time, side="right") - 1, 0, n - 1)
    present, starts = np.unique(column, return_index=True)

    def summed(parts: Floats, by: np.ufunc) -> Floats:
        out = np.full(n, np.nan)
        out[present] = by.reduceat(parts, starts)
        return out

    many = summed(trace.filled.astype(float), np.add)
    total = summed(np.where(trace.filled, trace.mean, 0.0), np.add)
    mean = np.divide(total, many, out=np.full(n, np.nan), where=many > 0)
    read = summed(trace.value, np.fmin), summed(trace.value, np.fmax)
    return Steps(edges, *read, mean, summed(trace.low, np.fmin), summed(trace.high, np.fmax))


def draw_series(axes: Axes, trace: Trace, *, coverage: float = COVERAGE) -> None:
    """Draw readings, what was filled in with the band that holds it, and what is odd."""
    steps = in_columns(trace)
    unit = DAY if trace.dates else 1.0
    edges = steps.edges / unit
    middle = 0.5 * (edges[1:] + edges[:-1])
    if trace.counts[1]:
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
    spikes = [odd for odd in trace.odd if odd.kind == "spike"]
    if spikes:
        places = [odd.start / unit for odd in spikes], [odd.value for odd in spikes]
        axes.plot(*places, "o", color=ORANGE, fillstyle="none", markersize=7, label="spike")
    for odd in trace.odd:
        if odd.kind != "spike":
            axes.axvspan(odd.start / unit, odd.end / unit, color=ORANGE, alpha=0.15, label=odd.kind)
    # Whoever asks an imputer may let formulas be drawn: two dollar signs in a name are none.
    axes.set_title(short(trace.name, LONGEST_NAME), parse_math=False)
    axes.margins(x=0.01, y=0.06)
    if trace.dates:
        _by_date(axes)


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
    most: int = MOST_SERIES,
    coverage: float = COVERAGE,
    foot: str = "",
) -> str:
    """Return a page of series, the longest gaps first; ``method`` says how gaps were filled.

    At most so many series are drawn, and the page says how many it leaves out.
    """
    check_most(most)
    ranked = sorted(series, key=lambda one: -_longest(one))
    drawn, left_out = ranked[:most], len(ranked) - most
    limited = f" {left_out:,} series with shorter gaps are left out." if left_out > 0 else ""
    words = (
        "All charts show the same time. Drag to zoom, or pinch; double-click to see the whole "
        f"again. In gaps, the line is what was filled in; {100 * coverage:g} % of the readings "
        f"that are missing should lie in the band.{limited}"
    )
    noisy = sorted(ranked, key=lambda one: (np.isnan(one.noise), -one.noise))
    sections = [
        Section("What was filled", [_by_sensor(ranked, coverage)]),
        Section("What is odd", _oddities(drawn)),
        Section("The longest gaps", [_gaps(drawn)]),
        Section("Series", [words, BAR]),
        *([Section("How it was chosen", method)] if method else []),
        Section("Which sensors are noisy", [TWO_WAYS, _noisiest(noisy[:most])]),
    ]
    script = script_of(drawn, [_in_words(one) for one in drawn], coverage)
    return page(title, sections, lead=lead, foot=foot, style=resource("series.css"), script=script)


def _longest(one: Trace) -> float:
    return float(one.lasts(*one.gaps()).max(initial=0.0))


def _oddities(drawn: Sequence[Trace]) -> list[str | Table]:
    """List what is odd in the series that are drawn, what lasts first."""
    found = [(number, odd) for number, one in enumerate(drawn) for odd in one.odd]
    if not found:
        return ["Nothing is odd: no spikes, no sensor that is stuck, dead or drifts."]
    found.sort(key=lambda pair: (KINDS.index(pair[1].kind), pair[0], pair[1].start))
    counts = Counter(odd.kind for _, odd in found)
    shown = [pair for pair in found if pair[1].kind != "spike"][:MOST_ROWS]
    shown += [pair for pair in found if pair[1].kind == "spike"][: max(MOST_ROWS - len(shown), 5)]
    rows: list[list[str]] = [
        [Link(short(drawn[number].name, LONGEST_NAME), f"series-{number}", odd.start, odd.end),
         odd.kind, odd.words]
        for number, odd in shown
    ]  # fmt: skip
    told = ", ".join(f"{counts[kind]:,} {kind}" for kind in KINDS if counts[kind])
    more = (
        f" {len(found) - len(shown):,} more are marked in the charts."
        if found[len(shown) :]
        else ""
    )
    return [f"Found: {told}.{more}", Table(["series", "kind", "what"], rows, words=True)]


def _gaps(drawn: Sequence[Trace]) -> str | Table:
    """List the longest gaps of all series."""
    found = []
    for number, one in enumerate(drawn):
        first, last = one.gaps()
        for begin, end, lasts in zip(first, last, one.lasts(first, last), strict=True):
            found.append((float(lasts), number, int(begin), int(end)))
    rows: list[list[str]] = []
    for lasts, number, begin, end in sorted(found, reverse=True)[:LONGEST_GAPS]:
        one = drawn[number]
        start, stop = float(one.time[begin]), float(one.time[end])
        link = Link(short(one.name, LONGEST_NAME), f"series-{number}", start, stop)
        told = [_moment(start, one.dates), _moment(stop, one.dates)]
        length = f"{lasts / DAY:,.2f} d" if one.dates else f"{lasts:,g}"
        rows.append([link, *told, f"{end - begin + 1:,}", length])
    head = ["series", "from", "to", "readings missing", "from reading to reading"]
    return Table(head, rows) if rows else "There are no gaps."


def _moment(time: float, dated: bool) -> str:
    if not dated:
        return f"{time:g}"
    text = str(np.datetime64(round(time), "s"))
    return text.replace("T", " ").removesuffix(":00")


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


def _by_sensor(series: Sequence[Trace], coverage: float) -> Table:
    sensors: dict[str, list[Trace]] = {}
    for one in series:
        sensors.setdefault(one.sensor, []).append(one)
    if len(sensors) > MOST_SENSORS:
        sensors = {}
    if len(sensors) != 1:
        sensors["all"] = list(series)
    rows = []
    for sensor, own in sensors.items():
        read, filled = map(sum, zip(*(one.counts for one in own), strict=True))
        numbers = f"{len(own):,}", f"{read:,}", f"{filled:,}"
        share = filled / max(filled + read, 1)
        rows.append([short(sensor, LONGEST_NAME), *numbers, f"{100 * share:.1f} %", _sure(own)])
    words = (
        f"How sure: half of an interval that holds {100 * coverage:g} %, in the middle of all "
        "gaps, over how far the readings of the series swing (a standard deviation). Near 0 a "
        "value is known, at 1.6 it is a guess."
    )
    return Table(["sensor", "series", "readings", "gaps filled", "share", "how sure"], rows, words)


def _sure(series: Sequence[Trace]) -> str:
    """Tell how wide intervals are beside the swing of their series, in the middle."""
    found = []
    for one in series:
        swing = float(np.nanstd(one.value)) if one.counts[0] else 0.0
        if swing > 0.0 and one.counts[1]:
            found.append(0.5 * (one.high - one.low)[one.filled] / swing)
    return f"± {np.nanmedian(np.concatenate(found)):.2f}" if found else _told(np.nan, "")


def _noisiest(series: Sequence[Trace]) -> Table:
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
    return Table(head, rows[:MOST_ROWS], words)


def _in_words(one: Trace) -> str:
    read, gaps = one.counts
    words = f"{read:,} readings, {gaps:,} gaps filled."
    if not np.isnan(one.noise):
        parts = f"white noise {one.white_std:.3g}, drift {one.drift_std:.3g}"
        words += f" Noise {one.noise:.1f}: {parts}."
    counts = Counter(odd.kind for odd in one.odd)
    odd = ", ".join(f"{counts[kind]:,} {kind}" for kind in KINDS if counts[kind])
    return f"{words} Odd: {odd}." if odd else words


def _told(number: float, form: str) -> str:
    return "\N{EN DASH}" if np.isnan(number) else format(number, form)
