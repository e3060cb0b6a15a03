"""One draw of everything unknown of series, where it starts from, and what its steps share.

    y_s(t) = b_s + sum_k L_sk f_k(t) + sum_c L_sc d_c(cycle) h_c(slot) + x_s(t) + e_s(t)

Loadings ``L_s`` and biases ``b_s`` scatter around what series have in common: around a centre, and
if a series is of two modes or more (location, sensor), around the product of their rows.
Factors ``f_k`` are paths of variance 1 with timescales of their own (see `engine.paths`); calendar
factors have a profile h over the slots of a cycle (the hours of a day) and a strength d that
changes from cycle to cycle; ``x_s`` is the path of the series alone. The noise e has a variance of
the series, times one of the slot where there is a season, and may have heavy tails.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Array, Ints
from noisewise.engine.data import SeriesData, Spec
from noisewise.engine.gibbs.sweep import START, State, Step, Streams, generator
from noisewise.engine.training import chunks

TIMES = 2_048  # rows of time in a task
FIRST_STEPS = 24.0, 12.0  # timescales at the start, in steps of time: of factors, of series
FIRST_VARIANCE = 0.05  # of paths and noise at the start, in units of the values
FIRST_STRENGTH = 5.0, 0.3  # timescale in cycles and variance of strengths at the start
FIRST_FREEDOM = 8.0  # of heavy tails
ROUNDS = 20  # in which holes are filled for the start
SHRINK = 0.9  # share of a filled hole that comes from what series have in common, at the start


class Season(NamedTuple):
    """A cycle of the calendar: which cycle and which slot every row of time is in."""

    period: float  # in units of time
    origin: float  # when cycle 0 begins
    n_cycles: int
    n_slots: int
    rank: int  # calendar factors

    def places(self, time: Array) -> tuple[Ints, Ints]:
        """Return cycle and slot of times; cycles may lie outside those that were seen."""
        phase = (time - self.origin) / self.period
        cycle = np.floor(phase)
        slot = np.minimum(((phase - cycle) * self.n_slots).astype(np.int64), self.n_slots - 1)
        return cycle.astype(np.int64), slot


@dataclass(frozen=True)
class SeriesSpec(Spec):
    """What the user chose for series."""

    kind: int = 1  # of all paths: see ``engine.paths.KINDS``
    tails: bool = False  # whether noise has heavy tails
    seasons: tuple[Season, ...] = ()

    @property
    def calendar_rank(self) -> int:
        """Calendar factors of all seasons."""
        return sum(season.rank for season in self.seasons)

    @property
    def width(self) -> int:
        """All factors."""
        return self.rank + self.calendar_rank

    def calendar(self) -> list[tuple[int, Season, slice, slice]]:
        """Every calendar factor: its column, season, and places among strengths and profiles."""
        found: list[tuple[int, Season, slice, slice]] = []
        cycles, slots = 0, 0
        for season in self.seasons:
            for _ in range(season.rank):
                both = slice(cycles, cycles + season.n_cycles), slice(slots, slots + season.n_slots)
                found.append((self.rank + len(found), season, *both))
                cycles, slots = both[0].stop, both[1].stop
        return found


@dataclass
class SeriesDraw(State):
    """All unknowns of series, in standardised units."""

    positive: ClassVar[tuple[str, ...]] = (
        "precisions", "row_precisions", "factor_timescales", "calendar_settings", "timescales",
        "amplitudes", "variances", "slot_noise", "weights", "freedom",
    )  # fmt: skip

    loadings: Array  # of every series, the bias last
    precisions: Array  # with which they scatter around the product of their rows
    rows: Array  # of all modes but time, one after another, the bias last
    centres: Array  # per mode, mean and precision of its rows; of a single mode, of the loadings
    row_precisions: Array
    factors: Array  # a row per time
    slopes: Array  # of those that are paths
    factor_timescales: Array
    strengths: Array  # of calendar factors, one after another, a number per cycle
    profiles: Array  # a number per slot
    calendar_settings: Array  # timescale and variance of strengths, timescale of the profile
    paths: Array  # of every series, at all times: value and slope
    timescales: Array  # of every series
    amplitudes: Array
    variances: Array  # of the noise
    slot_noise: Array  # by how much noise is more, or less, in every slot of the first season
    weights: Array  # of every observation: heavy tails divide its noise by them
    freedom: Array  # degrees of freedom of the tails


class SeriesWorkspace(Streams):
    """Data and model of a sweep, and arrays that its steps hand on."""

    data: SeriesData
    values: Array
    which: Ints
    gaps: Array
    at_time: Ints
    slots: Ints
    precision: Array
    root: Array
    residual: Array
    grams: Array
    pulls: Array
    chunks: list[tuple[int, int]]

    spec: SeriesSpec

    def __init__(self, spec: SeriesSpec, data: SeriesData, n_jobs: int = 1) -> None:
        super().__init__(spec, n_jobs)
        self.data = data
        n, width = len(data), spec.width + 1
        self.values = data.values.astype(np.float64)
        self.times = data.places[-1] - np.int32(data.firsts[-1])  # row of time of observations
        self.which = data.series.which
        self.gaps = np.diff(data.stamps, prepend=data.stamps[0] - 1.0)
        self.by_time = data.index[-1]  # observations in the order of time
        self.at_time = self.which[self.by_time]  # their series
        self.slots = np.zeros(0, dtype=np.int64)  # of observations, in the first season
        if spec.seasons:
            self.slots = spec.seasons[0].places(data.stamps)[1][self.times]
        self.precision = np.ones(n)  # of every observation
        self.root, self.residual = np.ones((2, n))
        self.grams = np.empty((len(data.series), width, width))
        self.pulls = np.empty((len(data.series), width))
        self.chunks = [(c.start, min(c.stop, self.n_times)) for c in chunks(self.n_times, TIMES)]

    @property
    def n_times(self) -> int:
        """Rows of time."""
        return len(self.data.stamps)

    @cached_property
    def rows_of_series(self) -> npt.NDArray[np.int64]:
        """Per mode but time, the place of every series' row."""
        return self.data.places[:-1, self.data.series.starts[:-1]].astype(np.int64)


def products(rows: Array, places: npt.NDArray[np.int64]) -> Array:
    """Products of rows, and sums of their biases; a row of places per mode."""
    found: Array = rows[places[0]].copy()
    for place in places[1:]:
        found[:, :-1] *= rows[place, :-1]
        found[:, -1] += rows[place, -1]
    return found


class SeriesStep(Step[SeriesDraw]):
    """A conditional of series."""

    work: SeriesWorkspace
    spec: SeriesSpec
    data: SeriesData


def first_draw(work: SeriesWorkspace) -> SeriesDraw:
    """Start from what series have in common once holes are filled, and paths that stand still."""
    spec, data = work.spec, work.data
    n, width, T = len(data.series), spec.width, work.n_times
    step = float(np.median(np.diff(data.stamps))) if T > 1 else 1.0
    modes, calendar = data.n_modes - 1, spec.calendar()
    many = sum(data.shape[:-1]) if modes > 1 else 0
    settings = [[*FIRST_STRENGTH, max(season.n_slots / 8, 1.0)] for _, season, *_ in calendar]
    rng = generator(spec.seed, START, spec.chain)
    draw = SeriesDraw(
        0,
        loadings=0.1 * rng.standard_normal((n, width + 1)),
        precisions=np.ones(width + 1),
        rows=0.1 * rng.standard_normal((many, width + 1)),
        centres=np.zeros((modes, width + 1)),
        row_precisions=np.ones((modes if modes > 1 else 0, width + 1)),
        factors=0.1 * rng.standard_normal((T, width)),
        slopes=np.zeros((T, spec.rank)),
        factor_timescales=np.full(spec.rank, FIRST_STEPS[0] * step),
        strengths=np.ones(calendar[-1][2].stop if calendar else 0),
        profiles=rng.standard_normal(calendar[-1][3].stop if calendar else 0),
        calendar_settings=np.array(settings).reshape(-1, 3),
        paths=np.zeros((n, T, 2)),
        timescales=np.full(n, FIRST_STEPS[1] * step),
        amplitudes=np.full(n, FIRST_VARIANCE),
        variances=np.full(n, FIRST_VARIANCE),
        slot_noise=np.ones(spec.seasons[0].n_slots if spec.seasons else 0),
        weights=np.ones(len(data) if spec.tails else 0),
        freedom=np.full(1, FIRST_FREEDOM),
    )
    _start_in_common(draw, work)
    return draw


def _start_in_common(draw: SeriesDraw, work: SeriesWorkspace) -> None:
    """Fill holes by lines, then again and again by what series have in common, and take that."""
    data, spec = work.data, work.spec
    rank = min(spec.rank, len(data.series))
    series, table = data.series, np.empty((len(data.series), work.n_times))
    for s in range(len(series)):
        own = slice(series.starts[s], series.starts[s + 1])
        table[s] = np.interp(data.stamps, series.time[own], series.values[own])
    holes = np.ones(table.shape, dtype=bool)
    holes[work.which, work.times] = False
    biases = table.mean(axis=1)
    table -= biases[:, None]
    _start_calendar(draw, work, table)
    for _ in range(ROUNDS):
        values, vectors = np.linalg.eigh(table @ table.T / work.n_times)
        top = vectors[:, ::-1][:, :rank]
        common = top @ (top.T @ table)
        table[holes] += SHRINK * (common[holes] - table[holes])
    size = np.sqrt(np.maximum(values[::-1][:rank], 1e-12))
    draw.loadings[:, :rank] = top * size
    draw.loadings[:, -1] = biases
    draw.factors[:, :rank] = (top.T @ table).T / size


def _start_calendar(draw: SeriesDraw, work: SeriesWorkspace, table: Array) -> None:
    """Start calendar factors from the slot means of all series, and take them from the table."""
    number = 0
    for season in work.spec.seasons:
        slot = season.places(work.data.stamps)[1]
        counts = np.maximum(np.bincount(slot, minlength=season.n_slots), 1)
        means = np.array([np.bincount(slot, row, season.n_slots) for row in table]) / counts
        left, size, right = np.linalg.svd(means, full_matrices=False)
        for k in range(season.rank):
            column, _, _, slots = work.spec.calendar()[number]
            number += 1
            if k >= len(size):
                continue
            draw.profiles[slots] = right[k] * np.sqrt(season.n_slots)
            draw.factors[:, column] = draw.profiles[slots][slot]
            draw.loadings[:, column] = left[:, k] * size[k] / np.sqrt(season.n_slots)
            table -= np.outer(draw.loadings[:, column], draw.factors[:, column])
