"""Joint-distribution tests (Geweke 2004): sweeps leave the distribution that they sample alone.

Everything unknown is drawn from its prior, and data given it. Then the unknowns are a draw from
their posterior, and remain one after any number of sweeps: a summary of unknowns and data has the
same mean before and after. This is done a thousand times over, independently, so that the standard
error of the difference is plain. A wrong shape, a forgotten Jacobian or a stale residual moves some
mean by many standard errors.
"""

import math
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np
import pytest
from scipy.sparse import random_array

from noisewise.engine import training
from noisewise.engine.data import Data, Spec
from noisewise.engine.design import Design, Designs, Place
from noisewise.engine.gibbs.sampler import rating_steps
from noisewise.engine.gibbs.steps import ordinal, temporal
from noisewise.engine.gibbs.steps.ordinal import SPREAD_RATE, SPREAD_SHAPE, Levels
from noisewise.engine.gibbs.steps.regression import feature_part, side_place
from noisewise.engine.gibbs.steps.temporal import SETTINGS_PRIOR
from noisewise.engine.gibbs.steps.variances import (
    MEAN_WEIGHT,
    SCALE_RATE,
    SCALE_SHAPE,
    SCALES_FROM,
    SHAPE,
    freedom,
)
from noisewise.engine.gibbs.sweep import (
    CUT_WIDTH,
    EFFECTS,
    RatingDraw,
    Sweep,
    Workspace,
    first_draw,
)
from noisewise.engine.training import one_blas_thread

SWEEPS = 2  # from a draw of the prior: the second starts from what the first one left
LEVELS, ANCHOR = 4, 2
FARTHEST = 4.5  # standard errors

Array = np.ndarray
ARRAYS = [field.name for field in fields(RatingDraw) if field.name != "epoch"]


class Case(NamedTuple):
    noise_rank: int
    likelihood: str = "gaussian"
    implicit: bool = False
    time: bool = False
    rank: int = 2
    shape: tuple[int, ...] = (6, 7)
    n: int = 24
    draws: int = 1000
    centre_spread: float = 1.0  # of the prior of the mean log width
    features: bool = False  # of both modes: two fields of one, one of the other
    weighted: bool = False  # whether the noise of some cells is divided by more than others

    @property
    def spec(self) -> Spec:
        return Spec(self.rank, self.noise_rank, self.likelihood, self.implicit, self.time, seed=5)


CASES = {
    "constant noise": Case(0),
    "noise of rank one": Case(1),
    "noise of rank two": Case(2),
    "three modes": Case(3, shape=(5, 4, 4), n=30),
    "implicit": Case(0, implicit=True),
    "time": Case(1, time=True, rank=1, shape=(4, 5), n=48),
    "features": Case(1, features=True),
    "features and implicit": Case(0, implicit=True, features=True),
    "levels": Case(0, "ordinal", centre_spread=0.2),
    "levels and noise": Case(2, "ordinal"),
    "everything": Case(2, "ordinal", implicit=True, time=True, rank=1, features=True),
    "weights, constant noise": Case(0, weighted=True),
    "weights and noise": Case(2, weighted=True),
    "weights of everything": Case(2, "ordinal", implicit=True, time=True, rank=1, weighted=True),
}


@pytest.mark.parametrize("name", CASES)
def test_sweeps_leave_the_joint_distribution_alone(name, monkeypatch):
    monkeypatch.setattr(training, "TASKS", 1)  # fewer calls for the few rows here
    monkeypatch.setattr(temporal, "EFFECT_VARIANCE", 1.0)  # so that effects show behind noise
    case = CASES[name]
    monkeypatch.setattr(ordinal, "CENTRE_SPREAD", case.centre_spread)
    far = {key: z for key, z in z_scores(case).items() if not abs(z) < FARTHEST}
    assert not far


def z_scores(case: Case) -> dict[str, float]:
    """How far sweeps move the means of all summaries, and of their squares."""
    rng = np.random.default_rng(0)
    cells = observed_cells(case, rng)
    start = prior_draws(case, cells, rng)
    data = draw_data(start, case, cells, rng)
    end = swept(start, data, case, cells)
    before, after = (summaries(draw, data, case, cells) for draw in (start, end))
    tame, still_tame = (is_tame(draw) for draw in (start, end))
    found = {}
    for key, old in before.items():
        centre, spread = old[tame].mean(), old[tame].std()
        for power in (1, 2):
            old_value, new_value = (
                ((np.where(chosen, value, centre) - centre) / spread) ** power
                for chosen, value in ((tame, old), (still_tame, after[key]))
            )
            moved = new_value - old_value
            assert moved.std() > 0, f"{key} never moves"
            found[f"{key} ^{power}"] = float(moved.mean() / moved.std() * math.sqrt(len(moved)))
    return found


def is_tame(draw: RatingDraw) -> Array:
    """Which draws single precision can tell apart; that is a summary like any other.

    The prior is wide: in one of a thousand draws, rows are so long that noise of size 1 drowns in
    the rounding of their products.
    """
    return (np.abs(draw.factors).max(axis=(1, 2)) < 1e3) & (np.abs(draw.biases).max(axis=1) < 1e3)


def observed_cells(case: Case, rng: np.random.Generator) -> Data:
    """Cells at random times, some of them at the same time; one row has none.

    Cells are different unless there are too few; sets need them to be.
    """
    seen = (case.shape[0] - 1, *case.shape[1:])
    many = math.prod(seen)
    chosen = rng.choice(many, case.n, replace=case.n > many)
    codes = tuple(code.astype(np.int32) for code in np.unravel_index(chosen, seen))
    time = rng.integers(case.n, size=case.n) if case.time else None
    cells = Data.arrange(codes, np.zeros(case.n, dtype=np.float32), case.shape, time)[0]
    if case.weighted:
        weight = np.sqrt(rng.uniform(0.2, 5.0, case.n)).astype(np.float32)
        cells = replace(cells, weight=weight)
    if not case.features:
        return cells
    tables = [random_array((n, 4), density=0.6, rng=rng, format="csr") for n in case.shape]
    bounds = [np.array([0, 3, 4]), np.array([0, 4])]
    return replace(cells, designs=Designs(tuple(map(Design, tables, bounds))))


def prior_draws(case: Case, cells: Data, rng: np.random.Generator) -> RatingDraw:
    """Draw everything unknown from its prior, many times; draws are the first axis."""
    many, D, last = case.draws, case.rank + 1, cells.n_modes - 1
    one = first_draw(case.spec, cells, LEVELS)
    draw = replace(one, **{name: np.stack([getattr(one, name)] * many) for name in ARRAYS})
    draw.proposals[:, 0], draw.proposals[:, 1:] = 1.5, 1.0
    draw.strengths[:] = rng.gamma(1.0, size=draw.strengths.shape)
    if case.likelihood == "gaussian":
        level = rng.gamma(1.0, size=draw.level.shape)
        rate = rng.gamma(1.0, size=draw.level.shape)
        draw.level[:] = level if case.noise_rank else rate / level
    for mode in range(cells.n_modes):
        part, rows = cells.part(mode), cells.shape[mode]
        two = rng.gamma(SCALE_SHAPE, size=(many, 2)) / SCALE_RATE
        draw.scales[:, mode] = np.repeat(two, [case.rank, 1], axis=1)
        root = np.tril(rng.standard_normal((many, D, D)), -1)
        free = freedom(D, rows) - np.arange(D)
        root[:, range(D), range(D)] = np.sqrt(rng.chisquare(free, (many, D)))
        root /= np.sqrt(draw.scales[:, mode, :, None])
        draw.precisions[:, mode] = root @ root.mT
        inverse = np.linalg.inv(root)
        draw.centres[:, mode] = normals(rng, 1, inverse)[:, 0] / math.sqrt(MEAN_WEIGHT)
        own = normals(rng, rows, inverse) + draw.centres[:, mode, None]
        for regressors, place in regressions(case, cells, mode):
            weights = normals(rng, regressors.shape[1], inverse)
            weights /= np.sqrt(strengths_of(draw, cells, place, mode))[:, :, None]
            draw.features[:, place.features] = weights
            draw.effects[:, part] += regressors @ weights
            own += regressors @ weights
        draw.factors[:, part, : case.rank], draw.biases[:, part] = own[..., :-1], own[..., -1]
        if case.noise_rank:
            level = draw.level[:, None] if mode == last else 1.0
            gammas = rng.gamma(SHAPE, size=(many, rows, case.noise_rank))
            draw.noise[:, part] = (SHAPE - 1.0) * level / gammas
    if case.time:
        draw_prior_effects(draw, cells, rng)
    middle = math.log(CUT_WIDTH)
    draw.width_centre[:] = rng.normal(middle, case.centre_spread, draw.width_centre.shape)
    gammas = rng.gamma(SPREAD_SHAPE, size=draw.width_spread.shape)
    draw.width_spread[:] = np.sqrt(SPREAD_RATE / gammas)
    middle, spread = draw.width_centre[:, None], draw.width_spread[:, None]
    draw.widths[:] = rng.normal(middle, spread, draw.widths.shape)
    return draw


def draw_prior_effects(draw: RatingDraw, cells: Data, rng: np.random.Generator) -> None:
    for number, (mode, centre) in enumerate(EFFECTS):
        middle = [math.log(centre / (1.0 - centre)), math.log(temporal.EFFECT_VARIANCE)]
        draw.temporal_settings[:, number] = rng.normal(
            middle, SETTINGS_PRIOR, (len(draw.temporal), 2)
        )
        phi, variance = phi_and_variance(draw, number)
        for sequence in np.split(cells.index[mode], cells.starts[mode][1:-1]):
            value = np.sqrt(variance) * rng.standard_normal(len(phi))
            for n in sequence:
                draw.temporal[:, number, n] = value
                steps = np.sqrt(variance * (1.0 - phi**2)) * rng.standard_normal(len(phi))
                value = phi * value + steps


def draw_data(draw: RatingDraw, case: Case, cells: Data, rng: np.random.Generator) -> Array:
    """Draw values, or levels by way of hidden values, given everything unknown."""
    mean, variance = moments(draw, cells)
    draw.fitted[:] = mean - draw.temporal.sum(axis=1)
    values = rng.normal(mean, np.sqrt(variance)).astype(np.float32)
    if case.likelihood == "gaussian":
        return values
    draw.latent[:] = values
    cuts = cut_points(draw)[:, cells.places[0], 1:-1]
    return (values[:, :, None] > cuts).sum(axis=2).astype(np.int32)


def swept(start: RatingDraw, data: Array, case: Case, cells: Data) -> RatingDraw:
    """Sweep over each of the draws, given its data."""
    end = replace(start, **{name: getattr(start, name).copy() for name in ARRAYS})
    work = Workspace(case.spec, cells)
    steps = rating_steps(work, ANCHOR)
    sweep = Sweep(work, steps)
    given = next((step.levels for step in steps if isinstance(step, Levels)), cells.values)
    with one_blas_thread():
        for number in range(case.draws):
            given[:] = data[number]
            epoch = SCALES_FROM + SWEEPS * number  # no random number is used twice
            draw = RatingDraw(epoch, **{name: getattr(end, name)[number] for name in ARRAYS})
            for _ in range(SWEEPS):
                if np.isfinite(draw.biases.sum()):  # see is_tame
                    sweep(draw)
    return end


def summaries(draw: RatingDraw, data: Array, case: Case, cells: Data) -> dict[str, Array]:
    """Summaries of unknowns and data; many of them have a known distribution, given the rest."""
    seen: dict[str, Array] = {}
    for mode in range(cells.n_modes):
        part, precision = cells.part(mode), draw.precisions[:, mode]
        rows = np.concatenate([draw.factors[:, part], draw.biases[:, part, None]], axis=2)
        rows = np.delete(rows, range(case.rank, draw.factors.shape[2]), axis=2).astype(np.float64)
        seen[f"factors {mode}"] = log_mean(rows[..., :-1] ** 2)
        seen[f"biases {mode}"] = log_mean(rows[..., -1] ** 2)
        seen[f"precision {mode}"] = np.linalg.slogdet(precision)[1]
        seen[f"precision of biases {mode}"] = np.log(precision[:, -1, -1])
        seen[f"scale of factors {mode}"] = np.log(draw.scales[:, mode, 0])
        seen[f"scale of biases {mode}"] = np.log(draw.scales[:, mode, -1])
        seen[f"centre {mode}"] = mean_square(draw.centres[:, [mode]], precision)
        away = rows - draw.centres[:, [mode]]
        for number, (regressors, place) in enumerate(regressions(case, cells, mode)):
            features = draw.features[:, place.features]
            away -= regressors @ features
            strength = strengths_of(draw, cells, place, mode)
            name = f"{number} {mode}"
            seen[f"strength {name}"] = np.log(draw.strengths[:, place.fields]).mean(axis=1)
            seen[f"size of features {name}"] = log_mean(features**2)
            scaled = features * np.sqrt(strength)[:, :, None]
            seen[f"features {name}"] = mean_square(scaled, precision)
            seen[f"features and rows {name}"] = np.tanh(
                np.einsum("nid,nid->n", regressors @ features, rows)
            )
        seen[f"rows {mode}"] = mean_square(away, precision)
        if case.noise_rank:
            level = draw.level[:, None] if mode == cells.n_modes - 1 else 1.0
            seen[f"noise {mode}"] = np.log(draw.noise[:, part]).mean(axis=(1, 2))
            seen[f"noise by its level {mode}"] = (level / draw.noise[:, part]).mean(axis=(1, 2))
    mean, variance = moments(draw, cells)
    seen["mean"] = log_mean(mean**2)
    if case.noise_rank:
        seen["variance"] = np.log(variance).mean(axis=1)
    if case.likelihood == "gaussian":
        seen["level"] = np.log(draw.level).mean(axis=1)
    hidden = data if case.likelihood == "gaussian" else draw.latent
    seen["residuals"] = clipped((hidden - mean) ** 2 / variance)
    seen["mean and data"] = np.tanh(hidden * mean).mean(axis=1)
    if case.time:
        seen |= summaries_of_effects(draw, cells)
    if case.likelihood == "ordinal":
        seen |= summaries_of_levels(draw, data, cells)
    return seen


def summaries_of_effects(draw: RatingDraw, cells: Data) -> dict[str, Array]:
    seen = {}
    for number, (mode, _) in enumerate(EFFECTS):
        phi, variance = phi_and_variance(draw, number)
        starts = cells.starts[mode]
        effect = draw.temporal[:, number, cells.index[mode]] / np.sqrt(variance)[:, None]
        steps = (effect[:, 1:] - phi[:, None] * effect[:, :-1]) / np.sqrt(1.0 - phi**2)[:, None]
        first = np.unique(starts[:-1][np.diff(starts) > 0])
        seen[f"phi {number}"], seen[f"effect variance {number}"] = draw.temporal_settings[
            :, number
        ].T
        seen[f"starts of effects {number}"] = clipped(effect[:, first] ** 2)
        seen[f"steps of effects {number}"] = clipped(np.delete(steps, first[1:] - 1, axis=1) ** 2)
        seen[f"effect {number}"] = log_mean(draw.temporal[:, number] ** 2)
    return seen


def summaries_of_levels(draw: RatingDraw, data: Array, cells: Data) -> dict[str, Array]:
    mean, variance = moments(draw, cells)
    cuts = cut_points(draw)[:, cells.places[0]]
    ends = [np.take_along_axis(cuts, data[:, :, None] + k, axis=2)[..., 0] for k in (0, 1)]
    low, high = ((end - mean) / np.sqrt(variance) for end in ends)
    away = (draw.widths - draw.width_centre[:, None]) / draw.width_spread[:, None]
    return {
        "widths": draw.widths.mean(axis=(1, 2)),
        "centre of widths": draw.width_centre.mean(axis=1),
        "spread of widths": np.log(draw.width_spread).mean(axis=1),
        "widths by their spread": clipped((away**2).mean(axis=2)),
        "lower ends": np.tanh(low).mean(axis=1),
        "upper ends": np.tanh(high).mean(axis=1),
        "mean and levels": np.tanh(mean * (data - 1.5)).mean(axis=1),
    }


def moments(draw: RatingDraw, cells: Data) -> tuple[Array, Array]:
    """Mean and variance of every observation."""
    products = draw.factors[:, cells.places].astype(np.float64).prod(axis=1).sum(axis=2)
    mean = products + draw.biases[:, cells.places].sum(axis=1) + draw.temporal.sum(axis=1)
    variance = draw.noise[:, cells.places].astype(np.float64).prod(axis=1).sum(axis=2)
    if draw.noise.shape[2] == 0:
        variance = np.broadcast_to(draw.level, mean.shape)
    return mean, variance if cells.weight is None else variance / cells.weight**2


def cut_points(draw: RatingDraw) -> Array:
    """Ends of the levels of every user; the one at the anchor is 0."""
    apart = np.cumsum(np.exp(draw.widths), axis=2)
    inner = np.concatenate([np.zeros_like(apart[..., :1]), apart], axis=2)
    inner -= inner[..., [ANCHOR - 1]]
    end = np.full_like(inner[..., :1], np.inf)
    return np.concatenate([-end, inner, end], axis=2)


def incidence(cells: Data, mode: int) -> Array:
    """What every feature counts for every row of a mode."""
    seen = np.zeros((cells.shape[mode], cells.shape[1 - mode]))
    own, other = (cells.places[m] - cells.firsts[m] for m in (mode, 1 - mode))
    seen[own, other] = 1.0
    return seen / np.sqrt(np.maximum(seen.sum(axis=1, keepdims=True), 1.0))


def regressions(case: Case, cells: Data, mode: int) -> list[tuple[Array, Place]]:
    """What rows of a mode are regressed on, and where weights and strengths are in a draw."""
    found = []
    if case.implicit:
        place = Place(feature_part(cells, mode), slice(mode, mode + 1))
        found.append((incidence(cells, mode), place))
    if case.features:
        place = side_place(case.spec, cells, mode)
        found.append((cells.designs[mode].matrix.toarray(), place))
    return found


def strengths_of(draw: RatingDraw, cells: Data, place: Place, mode: int) -> Array:
    """Return the strength of every feature."""
    own, many = draw.strengths[:, place.fields], place.features.stop - place.features.start
    if place.fields == slice(mode, mode + 1) and many == cells.shape[1 - mode]:
        return np.repeat(own, many, axis=1)
    return np.repeat(own, np.diff(cells.designs[mode].bounds), axis=1)


def phi_and_variance(draw: RatingDraw, number: int) -> tuple[Array, Array]:
    logit, log_variance = draw.temporal_settings[:, number].T
    return 1.0 / (1.0 + np.exp(-logit)), np.exp(log_variance)


def normals(rng: np.random.Generator, rows: int, inverse: Array) -> Array:
    """Rows of precision ``root root'``, given the inverse of the root."""
    return rng.standard_normal((len(inverse), rows, inverse.shape[1])) @ inverse


def mean_square(rows: Array, precision: Array) -> Array:
    """Mean squared length of rows, measured by their precision."""
    return clipped(np.einsum("nid,nde,nie->ni", rows, precision, rows))


def clipped(values: Array) -> Array:
    """Means over all but the first axis; a single outlier does not rule them."""
    return np.minimum(values, 30.0).mean(axis=1)


def log_mean(values: Array) -> Array:
    return np.log(values.reshape(len(values), -1).mean(axis=1, dtype=np.float64) + 1e-6)
