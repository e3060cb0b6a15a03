"""Joint-distribution tests (Geweke 2004) of the sampler for sensors; see test_geweke.py."""

import math
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np
import pytest
from test_geweke import FARTHEST, Array, clipped, log_mean, mean_square, normals

from noisewise.engine import data as engine_data
from noisewise.engine import training
from noisewise.engine.data import SeriesData, Spec
from noisewise.engine.gibbs.series_sampler import series_steps
from noisewise.engine.gibbs.steps import temporal
from noisewise.engine.gibbs.steps.temporal import AMPLITUDE_SHAPE, NOISE_SHAPE, Timescales
from noisewise.engine.gibbs.steps.variances import MEAN_WEIGHT, SHAPE
from noisewise.engine.gibbs.sweep import (
    SERIES_FROM,
    SeriesDraw,
    SeriesWorkspace,
    Sweep,
    first_series_draw,
)
from noisewise.engine.training import one_blas_thread

SWEEPS = 3  # from a draw of the prior: later ones start from what the first one left
TIMESCALES = Timescales(0.3, 30.0)
RATE, LEVEL = 1.0, 0.5  # of the priors of amplitudes and noise, so that both show
ARRAYS = [field.name for field in fields(SeriesDraw) if field.name != "epoch"]


class Case(NamedTuple):
    noise_rank: int = 0
    rank: int = 1
    shape: tuple[int, ...] = (
        3,
        2,
        30,
    )  # long enough to tell of timescales
    n: int = 110
    shortest: int = 32  # rows of time in a block
    draws: int = 1000

    @property
    def spec(self) -> Spec:
        return Spec(self.rank, self.noise_rank, "gaussian", implicit=False, time=False, seed=5)


CASES = {
    "noise of series": Case(draws=1500),
    "blocks side by side": Case(shortest=5),
    "two factors": Case(rank=2, shape=(3, 3, 9), n=45),
    "two modes": Case(shape=(4, 25), n=70),
    "four modes": Case(shape=(2, 2, 2, 12), n=48),
    "low-rank noise": Case(noise_rank=2, shape=(3, 3, 12), n=60),
}


@pytest.mark.parametrize("name", CASES)
def test_sweeps_leave_the_joint_distribution_alone(name, monkeypatch):
    case = CASES[name]
    monkeypatch.setattr(training, "TASKS", 1)  # fewer calls for the few rows here
    monkeypatch.setattr(engine_data, "SHORTEST", case.shortest)
    monkeypatch.setattr(temporal, "AMPLITUDE_RATE", RATE)
    monkeypatch.setattr(temporal, "NOISE_LEVEL", LEVEL)
    far = {key: z for key, z in z_scores(case).items() if not abs(z) < FARTHEST}
    assert not far


def z_scores(case: Case) -> dict[str, float]:
    """How far sweeps move the means of all summaries, and of their squares."""
    rng = np.random.default_rng(0)
    table = make_table(case, rng)
    start = prior_draws(case, table, rng)
    mean, variance = moments(start, table)
    start.fitted[:] = mean - start.paths
    data = rng.normal(mean, np.sqrt(variance)).astype(np.float32)
    end = swept(start, data, case, table)
    before, after = (summaries(draw, data, case, table) for draw in (start, end))
    tame, still_tame = (is_tame(draw) for draw in (start, end))
    found = {"tame": float((still_tame.mean() - tame.mean()) * math.sqrt(case.draws))}
    for key, old in before.items():
        centre, spread = old[tame].mean(), old[tame].std()
        for power in (1, 2):
            old_value, new_value = (
                ((np.where(chosen, value, centre) - centre) / spread) ** power
                for chosen, value in ((tame, old), (still_tame, after[key]))
            )
            moved = new_value - old_value
            found[f"{key} ^{power}"] = float(moved.mean() / moved.std() * math.sqrt(len(moved)))
    return found


def is_tame(draw: SeriesDraw) -> Array:
    """Which draws single precision can tell apart; see test_geweke.py."""
    rows = np.abs(draw.factors).max(axis=(1, 2)) + np.abs(draw.biases).max(axis=1)
    return (rows < 300.0) & (draw.amplitudes.max(axis=1) < 1e4)


def make_table(case: Case, rng: np.random.Generator) -> SeriesData:
    """Cells at irregular times; one row has none."""
    seen = (case.shape[0] - 1, *case.shape[1:])
    chosen = rng.choice(math.prod(seen), min(case.n, math.prod(seen)), replace=False)
    codes = tuple(code.astype(np.int32) for code in np.unravel_index(chosen, seen))
    stamps = np.cumsum(rng.exponential(1.0, case.shape[-1]))
    return SeriesData.of(codes, np.zeros(len(chosen), np.float32), case.shape, stamps)


def prior_draws(case: Case, table: SeriesData, rng: np.random.Generator) -> SeriesDraw:
    """SeriesDraw everything unknown from its prior, many times; draws are the first axis."""
    many, D, cells = case.draws, case.rank + 1, table
    one = first_series_draw(case.spec, table, *TIMESCALES)
    draw = replace(one, **{name: np.stack([getattr(one, name)] * many) for name in ARRAYS})
    if case.noise_rank:
        draw.level[:] = rng.gamma(1.0, size=draw.level.shape)
    for mode in range(cells.n_modes):
        part, rows = cells.part(mode), cells.shape[mode]
        root = np.tril(rng.standard_normal((many, D, D)), -1)
        root[:, range(D), range(D)] = np.sqrt(rng.chisquare(D - np.arange(D), (many, D)))
        draw.precisions[:, mode] = root @ root.mT
        inverse = np.linalg.inv(root)
        draw.centres[:, mode] = normals(rng, 1, inverse)[:, 0] / math.sqrt(MEAN_WEIGHT)
        own = normals(rng, rows, inverse) + draw.centres[:, mode, None]
        draw.factors[:, part, : case.rank], draw.biases[:, part] = own[..., :-1], own[..., -1]
        if case.noise_rank:
            level = draw.level[:, None] if mode == cells.n_modes - 1 else 1.0
            gammas = rng.gamma(SHAPE, size=(many, rows, case.noise_rank))
            draw.noise[:, part] = (SHAPE - 1.0) * level / gammas
    gammas = rng.gamma(NOISE_SHAPE, size=draw.variances.shape)
    draw.variances[:] = (NOISE_SHAPE - 1.0) * LEVEL / gammas
    draw.amplitudes[:] = RATE / rng.gamma(AMPLITUDE_SHAPE, size=draw.amplitudes.shape)
    draw.timescales[:] = np.exp(rng.uniform(*np.log(TIMESCALES), draw.timescales.shape))
    phi, fresh = transitions(draw, table)
    steps = np.sqrt(fresh * draw.amplitudes[:, table.series.which]) * rng.standard_normal(phi.shape)
    for n in range(len(cells)):
        before = draw.paths[:, n - 1] if n else 0.0
        draw.paths[:, n] = phi[:, n] * before + steps[:, n]
    return draw


def swept(start: SeriesDraw, data: Array, case: Case, table: SeriesData) -> SeriesDraw:
    """Sweep over each of the draws, given its data."""
    end = replace(start, **{name: getattr(start, name).copy() for name in ARRAYS})
    work = SeriesWorkspace(case.spec, table)
    sweep = Sweep(work, series_steps(work, TIMESCALES))
    with one_blas_thread():
        for number in range(case.draws):
            table.values[:] = data[number]
            epoch = SERIES_FROM + 1 + SWEEPS * number  # no random number is used twice
            draw = SeriesDraw(epoch, **{name: getattr(end, name)[number] for name in ARRAYS})
            for _ in range(SWEEPS):
                if np.isfinite(draw.biases.sum()):  # see is_tame
                    sweep(draw)
    return end


def summaries(draw: SeriesDraw, data: Array, case: Case, table: SeriesData) -> dict[str, Array]:
    """Summaries of unknowns and data; many of them have a known distribution, given the rest."""
    seen: dict[str, Array] = {}
    cells = table
    for mode in range(cells.n_modes):
        part, precision = cells.part(mode), draw.precisions[:, mode]
        rows = [draw.factors[:, part, : case.rank], draw.biases[:, part, None]]
        own = np.concatenate(rows, axis=2).astype(np.float64)
        seen[f"factors {mode}"] = log_mean(own[..., :-1] ** 2)
        seen[f"biases {mode}"] = log_mean(own[..., -1] ** 2)
        seen[f"precision {mode}"] = np.linalg.slogdet(precision)[1]
        seen[f"centre {mode}"] = mean_square(draw.centres[:, [mode]], precision)
        seen[f"rows {mode}"] = mean_square(own - draw.centres[:, [mode]], precision)
        if case.noise_rank:
            level = draw.level[:, None] if mode == cells.n_modes - 1 else 1.0
            seen[f"noise {mode}"] = np.log(draw.noise[:, part]).mean(axis=(1, 2))
            seen[f"noise by its level {mode}"] = (level / draw.noise[:, part]).mean(axis=(1, 2))
    if case.noise_rank == 0:
        seen["variances"] = np.log(draw.variances).mean(axis=1)
        seen["inverse variances"] = (1.0 / draw.variances).mean(axis=1)
    else:
        seen["level"] = np.log(draw.level).mean(axis=1)
    seen["timescales"] = np.log(draw.timescales).mean(axis=1)
    seen["timescale of the first"] = np.log(draw.timescales[:, 0])
    seen["amplitudes"] = np.log(draw.amplitudes).mean(axis=1)
    seen["timescales and amplitudes"] = (np.log(draw.timescales) * np.log(draw.amplitudes)).mean(
        axis=1
    )
    phi, fresh = transitions(draw, table)
    before = np.roll(draw.paths, 1, axis=1)
    spread = fresh * draw.amplitudes[:, table.series.which]
    seen["steps"] = clipped((draw.paths - phi * before) ** 2 / spread)
    seen["starts"] = clipped(draw.paths[:, table.series.starts[:-1]] ** 2 / draw.amplitudes)
    seen["paths"] = log_mean(draw.paths**2)
    mean, variance = moments(draw, table)
    seen["mean"] = log_mean(mean**2)
    seen["residuals"] = clipped((data - mean) ** 2 / variance)
    seen["mean and data"] = np.tanh(data * mean).mean(axis=1)
    seen["paths and data"] = np.tanh(data * draw.paths).mean(axis=1)
    return seen


def moments(draw: SeriesDraw, table: SeriesData) -> tuple[Array, Array]:
    """Mean and variance of every observation."""
    places = table.places
    products = draw.factors[:, places].astype(np.float64).prod(axis=1).sum(axis=2)
    mean = products + draw.biases[:, places].sum(axis=1) + draw.paths
    if draw.noise.shape[2] == 0:
        return mean, draw.variances[:, table.series.which]
    return mean, draw.noise[:, places].astype(np.float64).prod(axis=1).sum(axis=2)


def transitions(draw: SeriesDraw, table: SeriesData) -> tuple[Array, Array]:
    """How much of a state_space is left at the next observation, and how much is fresh."""
    steps = table.series.gaps / draw.timescales[:, table.series.which]
    return np.exp(-steps), -np.expm1(-2.0 * steps)
