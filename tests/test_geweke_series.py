"""Joint-distribution tests (Geweke 2004) of the sampler for series; see test_geweke.py.

Unknowns are drawn from their prior, then data given them; sweeps given the data must leave the
joint distribution alone.
"""

import math
from typing import NamedTuple

import numpy as np
import pytest
from test_geweke import FARTHEST

from noisewise.engine.data import SeriesData
from noisewise.engine.gibbs.series import own_paths as own
from noisewise.engine.gibbs.series import time_factors
from noisewise.engine.gibbs.series.draw import (
    Season,
    SeriesDraw,
    SeriesSpec,
    SeriesWorkspace,
    first_draw,
    products,
)
from noisewise.engine.gibbs.series.sampler import series_steps
from noisewise.engine.gibbs.series.time_factors import Timescales
from noisewise.engine.gibbs.sweep import Sweep
from noisewise.engine.paths import transition
from noisewise.engine.training import one_blas_thread

SWEEPS = 4  # from a draw of the prior: later ones start from what the first one left
TIMESCALES = Timescales(0.3, 30.0)


class Case(NamedTuple):
    kind: int = 1
    rank: int = 1
    shape: tuple[int, ...] = (4, 20)
    n: int = 55
    tails: bool = False
    seasons: tuple[Season, ...] = ()
    draws: int = 600

    @property
    def spec(self) -> SeriesSpec:
        return SeriesSpec(
            self.rank, 0, "gaussian", implicit=False, time=False, seed=5,
            kind=self.kind, tails=self.tails, seasons=self.seasons,
        )  # fmt: skip


CASES = {
    "rough": Case(kind=0, draws=900),
    "smooth": Case(draws=900),
    "two factors": Case(rank=2, shape=(5, 12), n=45),
    "three modes": Case(shape=(3, 3, 12), n=60),
    "heavy tails": Case(kind=0, tails=True),
    "a season": Case(kind=0, seasons=(Season(4.0, 0.0, 6, 4, 1),)),
    "a season alone": Case(rank=0, tails=True, seasons=(Season(4.0, 0.0, 6, 4, 2),)),
}


@pytest.mark.parametrize("name", CASES)
def test_sweeps_leave_the_joint_distribution_alone(name):
    far = {key: z for key, z in z_scores(CASES[name]).items() if not abs(z) < FARTHEST}
    assert not far


def z_scores(case: Case) -> dict[str, float]:
    """How far sweeps move the means of all summaries, and of their squares."""
    rng = np.random.default_rng(0)
    work = SeriesWorkspace(case.spec, make_table(case, rng))
    sweep = Sweep(work, series_steps(work, TIMESCALES))
    before, after = [], []
    with one_blas_thread():
        for number in range(case.draws):
            draw = prior_draw(case, work, rng)
            draw.epoch = own.JOINS + 2 + SWEEPS * number  # no random number is used twice
            work.values[:] = data_given(draw, work, rng)
            before.append(summaries(draw, work))
            for _ in range(SWEEPS):
                sweep(draw)
            after.append(summaries(draw, work))
    found = {}
    for key in before[0]:
        old, new = (np.array([one[key] for one in many]) for many in (before, after))
        centre, spread = old.mean(), old.std()
        for power in (1, 2):
            moved = ((new - centre) / spread) ** power - ((old - centre) / spread) ** power
            found[f"{key} ^{power}"] = float(moved.mean() / moved.std() * math.sqrt(len(moved)))
    return found


def make_table(case: Case, rng: np.random.Generator) -> SeriesData:
    """Cells at irregular times."""
    chosen = rng.choice(math.prod(case.shape), case.n, replace=False)
    codes = tuple(code.astype(np.int32) for code in np.unravel_index(chosen, case.shape))
    stamps = np.sort(rng.uniform(0.0, case.shape[-1], case.shape[-1]))
    return SeriesData.of(codes, np.zeros(len(chosen), np.float32), case.shape, stamps)


def prior_draw(case: Case, work: SeriesWorkspace, rng: np.random.Generator) -> SeriesDraw:
    """Draw everything unknown from its prior."""
    draw, spec = first_draw(work), case.spec
    draw.precisions[:] = precisions(rng, draw.precisions.shape)
    draw.row_precisions[:] = precisions(rng, draw.row_precisions.shape)
    root = np.sqrt(draw.row_precisions if len(draw.rows) else draw.precisions[None])
    draw.centres[:] = rng.standard_normal(root.shape) / root / math.sqrt(own.CENTRE_WEIGHT)
    expected = draw.centres
    if len(draw.rows):
        for mode in range(work.data.n_modes - 1):
            part = draw.rows[work.data.part(mode)]
            part[:] = draw.centres[mode] + rng.standard_normal(part.shape) / root[mode]
        expected = products(draw.rows, work.rows_of_series)
    scatter = rng.standard_normal(draw.loadings.shape) / np.sqrt(draw.precisions)
    draw.loadings[:] = expected + scatter
    for name in ("factor_timescales", "timescales"):
        array = getattr(draw, name)
        array[:] = np.exp(rng.uniform(*np.log(TIMESCALES), array.shape))
    n = len(draw.amplitudes)
    while True:
        draw.amplitudes[:] = own.AMPLITUDE_RATE / rng.gamma(own.AMPLITUDE_SHAPE, size=n)
        if (draw.amplitudes < own.MOST_AMPLITUDE).all():
            break
    draw.variances[:] = own.NOISE_RATE / rng.gamma(own.NOISE_SHAPE, size=n)
    for k, timescale in enumerate(draw.factor_timescales):
        path = walk(spec.kind, work.gaps, timescale, 1.0, rng)
        draw.factors[:, k], draw.slopes[:, k] = path.T
    for s in range(n):
        draw.paths[s] = walk(spec.kind, work.gaps, draw.timescales[s], draw.amplitudes[s], rng)
    set_calendar(draw, work, rng)
    gammas = rng.gamma(own.SLOT_SHAPE, size=len(draw.slot_noise))
    draw.slot_noise[:] = (own.SLOT_SHAPE - 1.0) / gammas
    if case.tails:
        low, high = np.log([own.LEAST_FREEDOM, own.MOST_FREEDOM])
        draw.freedom[0] = math.exp(rng.uniform(low, high))
        half = 0.5 * draw.freedom[0]
        draw.weights[:] = rng.gamma(half, size=len(draw.weights)) / half
    return draw


def precisions(rng: np.random.Generator, shape: tuple[int, ...]):
    return rng.gamma(own.PRECISION_SHAPE, 1.0 / own.PRECISION_RATE, shape)


def set_calendar(draw: SeriesDraw, work: SeriesWorkspace, rng: np.random.Generator) -> None:
    """Draw strengths and profiles from their prior."""
    for number, (column, season, cycles, slots) in enumerate(work.spec.calendar()):
        settings = draw.calendar_settings[number]
        for place, (mean, std) in enumerate(
            (time_factors.STRENGTH_TIMESCALE, time_factors.STRENGTH_VARIANCE)
        ):
            settings[place] = math.exp(rng.normal(mean, std))
        low, high = time_factors.PROFILE_STEPS
        settings[2] = math.exp(rng.uniform(math.log(low), math.log(high * season.n_slots)))
        gaps = np.ones(season.n_cycles)
        draw.strengths[cycles] = 1.0 + walk(0, gaps, settings[0], settings[1], rng)[:, 0]
        draw.profiles[slots] = walk(0, np.ones(season.n_slots), settings[2], 1.0, rng)[:, 0]
        cycle, slot = season.places(work.data.stamps)
        strength, profile = draw.strengths[cycles][cycle], draw.profiles[slots][slot]
        draw.factors[:, column] = strength * profile


def walk(kind: int, gaps, timescale: float, amplitude: float, rng: np.random.Generator):
    """Draw a path from its prior."""
    states = np.empty((len(gaps), 2))
    state = rng.standard_normal(2)
    for n, gap in enumerate(gaps):
        if n:
            f00, f01, f10, f11, q00, q01, q11 = transition(kind, gap, timescale)
            root = np.linalg.cholesky(np.array([[q00, q01], [q01, q11]]))
            state = np.array([[f00, f01], [f10, f11]]) @ state + root @ rng.standard_normal(2)
        states[n] = state
    return math.sqrt(amplitude) * states


def data_given(draw: SeriesDraw, work: SeriesWorkspace, rng: np.random.Generator):
    """Draw data, given everything unknown."""
    variance = draw.variances[work.which]
    if len(draw.weights):
        variance = variance / draw.weights
    if len(draw.slot_noise):
        variance = variance * draw.slot_noise[work.slots]
    return rng.normal(explained(draw, work), np.sqrt(variance))


def explained(draw: SeriesDraw, work: SeriesWorkspace):
    loading = draw.loadings[work.which]
    mean = (loading[:, :-1] * draw.factors[work.times]).sum(axis=1) + loading[:, -1]
    return mean + draw.paths[work.which, work.times, 0]


def summaries(draw: SeriesDraw, work: SeriesWorkspace) -> dict[str, float]:
    """Numbers whose means must not move."""
    left = work.values - explained(draw, work)
    scaled = draw.paths / np.sqrt(draw.amplitudes)[:, None, None]
    found = {
        "loadings": log_size(draw.loadings[:, :-1]),
        "biases": log_size(draw.loadings[:, -1]),
        "centres": log_size(draw.centres),
        "precisions": np.log(draw.precisions).mean(),
        "factors": log_size(draw.factors),
        "timescales": np.log(draw.timescales).mean(),
        "amplitudes": np.log(draw.amplitudes).mean(),
        "variances": np.log(draw.variances).mean(),
        "residuals": log_size(left),
        "paths": np.square(scaled[:, :, 0]).mean(),
        "neighbours": (scaled[:, 1:, 0] * scaled[:, :-1, 0]).mean(),
    }
    if len(draw.rows):
        found["rows"] = log_size(draw.rows)
        found["precisions of rows"] = np.log(draw.row_precisions).mean()
    if work.spec.kind:
        found["slopes"] = np.square(scaled[:, :, 1]).mean()
    if work.spec.rank:
        f = draw.factors[:, : work.spec.rank]
        found["timescales of factors"] = np.log(draw.factor_timescales).mean()
        found["path of factors"] = np.square(f).mean()
        found["neighbours of factors"] = (f[1:] * f[:-1]).mean()
        found["common"] = np.tanh((draw.loadings[:, :1].T @ scaled[:, :, 0] @ f[:, 0]).item() / 20)
    if work.spec.kind and work.spec.rank:
        found["slopes of factors"] = np.square(draw.slopes).mean()
    if len(draw.weights):
        found["freedom"] = math.log(draw.freedom[0])
        found["weights"] = np.log(draw.weights).mean()
    if len(draw.profiles):
        found["strengths"] = np.tanh(draw.strengths).mean()
        found["noise of slots"] = np.log(draw.slot_noise).mean()
        found["profiles"] = np.square(draw.profiles).mean()
        for place, name in enumerate(("cycles", "spread", "slots")):
            found[name] = np.log(draw.calendar_settings[:, place]).mean()
    return {name: float(value) for name, value in found.items()}


def log_size(array) -> float:
    return float(np.log(np.square(array).mean() + 1e-12))
