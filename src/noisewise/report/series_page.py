"""A page of series: what was filled, which sensors are noisy and in which way, and all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise.errors import SettingError
from noisewise.report.canvas import short
from noisewise.report.page import Picture, Section, Table, page
from noisewise.report.series import COVERAGE, LONGEST_NAME, Trace, filled_series, noise_parts

BARS = 15  # of the noisiest series
MOST_KINDS = 12  # types with a row of their own; more are summed up


@dataclass(frozen=True, eq=False)
class Sensor:
    """A series of the page: what was read and filled, and how noisy it is.

    Attributes
    ----------
    trace : Trace
        The series.
    kind : str
        Its type of sensor, whose unit it is in.
    noise, white, drift : float
        How noisy it is, and what that is made of, as from ``noisewise.noisy_series``: standard
        deviations above what is usual for its type. NaN if it was never read.
    white_std, drift_std : float
        The same in units of the readings.
    """

    trace: Trace
    kind: str
    noise: float
    white: float
    drift: float
    white_std: float
    drift_std: float


def series_page(
    title: str,
    sensors: Sequence[Sensor],
    *,
    lead: str = "",
    method: Sequence[str | Table] = (),
    most: int = 24,
    foot: str = "",
    progress: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> str:
    """Return a page with all series, the noisiest first.

    Parameters
    ----------
    title, lead, foot : str
        Heading of the page, a paragraph below it, and one at the end.
    sensors : sequence of Sensor
        All series, in any order.
    method : sequence of str and Table
        How gaps were filled.
    most : int
        Series to draw at most; the page says how many it leaves out.
    progress : callable
        Goes through the series that are drawn, and may show how far it is.

    Returns
    -------
    str
    """
    check_most(most)
    ranked = sorted(sensors, key=lambda one: (np.isnan(one.noise), -one.noise))
    drawn, left_out = ranked[:most], len(ranked) - most
    known = [one for one in ranked if not np.isnan(one.noise)][:BARS]
    bars = noise_parts(
        {
            "series": np.array([one.trace.name for one in known], dtype=object),
            "white": np.array([one.white for one in known]),
            "drift": np.array([one.drift for one in known]),
        }
    )
    limited = f" {left_out:,} less noisy series are left out." if left_out > 0 else ""
    pictures = []
    for one in progress(drawn):
        picture = filled_series(one.trace)
        pictures.append(Picture(picture.svg(), picture.alt, _in_words(one)))
    sections = [
        Section("What was filled", [_by_kind(ranked), *method]),
        Section(
            "Which sensors are noisy",
            [
                "A sensor can be bad in two ways. White noise: a reading is off, and the next one "
                "is off by something else. Drift: the sensor wanders away from what all have in "
                "common, and stays there for a while, as one does whose battery fails. Both are "
                "told by how far the sensor lies above the median of its type, in standard "
                "deviations: 0 is usual, above 3 it is not like the others.",
                Picture(bars.svg(), bars.alt),
                _noisiest(drawn, limited),
            ],
        ),
        Section(
            "Series, the noisiest first",
            [
                f"Dots are readings. Gaps are filled with the line; {100 * COVERAGE:g} % of the "
                f"readings that are missing should lie in the band.{limited}",
                *pictures,
            ],
        ),
    ]
    return page(title, sections, lead=lead, foot=foot)


def check_most(most: int) -> None:
    """Raise unless so many series can be drawn."""
    if most < 1:
        raise SettingError(f"A page must draw 1 series or more; got {most}.")


def _by_kind(sensors: Sequence[Sensor]) -> Table:
    kinds: dict[str, list[Trace]] = {}
    for one in sensors:
        kinds.setdefault(one.kind, []).append(one.trace)
    if len(kinds) > MOST_KINDS:
        kinds = {}
    if len(kinds) != 1:
        kinds["all"] = [one.trace for one in sensors]
    rows = [[short(kind, LONGEST_NAME), *_counts(traces)] for kind, traces in kinds.items()]
    return Table(["type of sensor", "series", "readings", "gaps filled", "share filled"], rows)


def _counts(traces: Sequence[Trace]) -> list[str]:
    filled = sum(int(trace.filled.sum()) for trace in traces)
    read = sum(int((~np.isnan(trace.value)).sum()) for trace in traces)
    share = filled / max(filled + read, 1)
    return [f"{len(traces):,}", f"{read:,}", f"{filled:,}", f"{100 * share:.1f} %"]


def _noisiest(sensors: Sequence[Sensor], limited: str) -> Table:
    rows = [
        [
            short(one.trace.name, LONGEST_NAME),
            *(_told(part, ".1f") for part in (one.noise, one.white, one.drift)),
            *(_told(part, ".3g") for part in (one.white_std, one.drift_std)),
        ]
        for one in sensors
    ]
    head = ["series", "noise", "white", "drift", "white, in its unit", "drift, in its unit"]
    words = "Noise is the root of the sum of the squares of white noise and drift, if above 0."
    return Table(head, rows, words + limited)


def _in_words(one: Sensor) -> str:
    read, gaps = int((~np.isnan(one.trace.value)).sum()), int(one.trace.filled.sum())
    words = f"{read:,} readings, {gaps:,} gaps filled."
    if np.isnan(one.noise):
        return words
    parts = f"white noise {one.white_std:.3g}, drift {one.drift_std:.3g}"
    return f"{words} Noise {one.noise:.1f}: {parts}."


def _told(number: float, form: str) -> str:
    return "\N{EN DASH}" if np.isnan(number) else format(number, form)
