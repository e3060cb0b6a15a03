"""Two directions in which levels, their means and their noise drag each other along.

Multiply all means and cut-points by a scale: the likelihood of levels changes as if all precisions
were multiplied by its square (``move_signal``). Multiply the noise too: then it does not change at
all, and only priors hold the scale (``move_all``). Gibbs steps crawl in both; a Metropolis step
along them goes where it should at once.

Rows, features and paths are scaled together with the parameters of their priors, so that their
densities cancel against the volume that scaling takes. What is left is in ``_log_prior``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from noisewise.engine.gibbs.data import Floats64, Model, Problem
from noisewise.engine.gibbs.draw import CUT_WIDTH, PATH_VARIANCE, PATHS, Draw
from noisewise.engine.gibbs.steps.noise import SHAPE
from noisewise.engine.gibbs.steps.normal_wishart import freedom

PATH_PRIOR = np.array([1.0, 1.5])  # std of logit phi, and of the log of the variance
CENTRE_SPREAD = 1.0  # of the prior of the mean log width
STEP = 0.01  # for differences of the log prior

Look = Callable[[float], tuple[float, float, float]]  # value, slope and curvature at a log scale


def move_signal(
    draw: Draw,
    model: Model,
    problem: Problem,
    likelihood: Callable[[float], Floats64],
    rng: np.random.Generator,
) -> None:
    """Scale means and cut-points; ``likelihood`` has value, slope and curvature of the levels'."""

    def look(log_scale: float) -> tuple[float, float, float]:
        prior = _differences(lambda at: _log_prior(draw, model, problem, at), log_scale)
        value, slope, curvature = np.add(likelihood(log_scale), prior).tolist()
        return value, slope, curvature

    jump = _newton_step(look, rng)
    if jump:
        _scale(draw, model, problem, jump)


def move_all(draw: Draw, model: Model, problem: Problem, rng: np.random.Generator) -> None:
    """Scale means, cut-points, hidden values and the noise of the first mode's rows."""
    own = draw.noise[problem.part(0)]
    inverse = float((1.0 / own.astype(np.float64)).sum())

    def log_density(at: float) -> float:
        noise = -2.0 * SHAPE * own.size * at - (SHAPE - 1.0) * inverse * math.exp(-2.0 * at)
        return noise + _log_prior(draw, model, problem, at)

    jump = _newton_step(lambda at: _differences(log_density, at), rng)
    if jump:
        _scale(draw, model, problem, jump)
        own *= np.float32(math.exp(2.0 * jump))
        draw.latent *= np.float32(math.exp(jump))


def path_prior(number: int, settings: Floats64) -> float:
    """Log density of a path's settings, up to a constant."""
    phi = PATHS[number][1]
    away = settings - np.array([math.log(phi / (1.0 - phi)), math.log(PATH_VARIANCE)])
    return -0.5 * float(((away / PATH_PRIOR) ** 2).sum())


def feature_part(problem: Problem, mode: int) -> slice:
    """Return where the features of a mode's sets lie: they are the rows of the other mode."""
    start = 0 if mode == 0 else problem.shape[1]
    return slice(start, start + problem.shape[1 - mode])


def _newton_step(look: Look, rng: np.random.Generator) -> float:
    """Propose a jump near the mode and accept or refuse it; 0 is refused.

    Where the density has no shape that numbers can hold, nothing is proposed.
    """

    def proposal(slope: float, curvature: float) -> tuple[float, float]:
        variance = -1.0 / min(curvature, -1.0)
        return variance * slope, variance

    value, *shape = look(0.0)
    centre, variance = proposal(*shape)
    if not (math.isfinite(centre) and variance > 0.0):
        return 0.0
    jump = centre + math.sqrt(variance) * float(rng.standard_normal())
    new_value, *new_shape = look(jump)
    new_centre, new_variance = proposal(*new_shape)
    if not (math.isfinite(new_centre) and new_variance > 0.0):
        return 0.0
    there = -0.5 * ((jump - centre) ** 2 / variance + math.log(variance))
    back = -0.5 * ((-jump - new_centre) ** 2 / new_variance + math.log(new_variance))
    return jump if math.log(rng.uniform()) < new_value - value + back - there else 0.0


def _differences(function: Callable[[float], float], at: float) -> tuple[float, float, float]:
    low, middle, high = (function(at + step) for step in (-STEP, 0.0, STEP))
    return middle, (high - low) / (2.0 * STEP), (high - 2.0 * middle + low) / STEP**2


def _by(model: Model, problem: Problem, mode: int, factor: float) -> Floats64:
    """Return how a scale of the mean acts on a row: all biases, the factors of one mode only."""
    last = mode == problem.n_modes - 1
    return np.append(np.full(model.rank, factor if last else 1.0), factor)


def _log_prior(draw: Draw, model: Model, problem: Problem, log_scale: float) -> float:
    """Log prior of what scaling changes, with the volume that it takes."""
    total = 0.0
    for mode in range(problem.n_modes):
        by = _by(model, problem, mode, math.exp(log_scale))
        total -= freedom(model.rank + 1, problem.shape[mode]) * float(np.log(by).sum())
        total -= 0.5 * float((draw.scales[mode] * np.diag(draw.precisions[mode]) / by**2).sum())
    for number, settings in enumerate(draw.path_settings):
        total += path_prior(number, settings + np.array([0.0, 2.0 * log_scale]))
    away = (draw.width_centre + log_scale - math.log(CUT_WIDTH)) / CENTRE_SPREAD
    return total - 0.5 * float((away**2).sum())


def _scale(draw: Draw, model: Model, problem: Problem, log_scale: float) -> None:
    factor = math.exp(log_scale)
    for mode in range(problem.n_modes):
        part, by = problem.part(mode), _by(model, problem, mode, factor)
        draw.factors[part, : model.rank] *= by[:-1].astype(np.float32)
        draw.centres[mode] *= by
        draw.precisions[mode] /= np.outer(by, by)
        if model.sets:
            draw.effects[part] *= by.astype(np.float32)
            draw.features[feature_part(problem, mode)] *= by.astype(np.float32)
    for array in (draw.biases, draw.fitted, draw.paths):
        array *= np.float32(factor)
    draw.path_settings[:, 1] += 2.0 * log_scale
    draw.widths += log_scale
    draw.width_centre += log_scale
