"""Rescaling: two directions in which levels, their means and their noise drag each other along.

Multiply all means and cut-points by a scale: the likelihood of levels changes as if all precisions
were multiplied by its square (``move_signal``). Multiply the noise too: then it does not change at
all, and only priors hold the scale (``move_all``). Gibbs steps crawl in both; a Metropolis step
along them goes where it should at once.

Rows, features and temporal effects are scaled together with the parameters of their priors, so that
their densities cancel against the volume that scaling takes. What is left is in ``_log_prior``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from noisewise.engine.gibbs.data import Data, Spec
from noisewise.engine.gibbs.steps import ordinal
from noisewise.engine.gibbs.steps.noise import SHAPE, Precisions
from noisewise.engine.gibbs.steps.ordinal import Levels
from noisewise.engine.gibbs.steps.prior import feature_part, freedom
from noisewise.engine.gibbs.steps.temporal import settings_prior
from noisewise.engine.gibbs.sweep import (
    ALL_FROM,
    CUT_WIDTH,
    RESCALING,
    Floats64,
    RatingDraw,
    Step,
    Workspace,
)

STEP = 0.01  # for differences of the log prior
LONGEST_JUMP = 100.0  # of a log scale: what lies beyond no chain needs, and no float holds

Look = Callable[[float], tuple[float, float, float]]  # value, slope and curvature at a log scale


class Rescaling(Step[RatingDraw]):
    """Move along the two directions in which everything drags everything else along."""

    joins = ALL_FROM

    def __init__(self, work: Workspace, levels: Levels) -> None:
        super().__init__(work)
        self.levels, self.precisions = levels, Precisions(work)

    def __call__(self, draw: RatingDraw) -> None:
        """Move, where the moves are accepted."""
        spec, data, work = self.spec, self.data, self.work
        mean = np.asarray(draw.fitted + draw.temporal_sum())

        def likelihood(log_scale: float) -> Floats64:
            return self.levels.scaled_likelihood(draw, mean, log_scale)

        move_signal(draw, spec, data, likelihood, work.rng(draw, RESCALING, 0))
        if spec.noise_rank:
            move_all(draw, spec, data, work.rng(draw, RESCALING, 1))
            self.precisions(draw)


def move_signal(
    draw: RatingDraw,
    spec: Spec,
    data: Data,
    likelihood: Callable[[float], Floats64],
    rng: np.random.Generator,
) -> None:
    """Scale means and cut-points; ``likelihood`` has value, slope and curvature of the levels'."""

    def look(log_scale: float) -> tuple[float, float, float]:
        prior = _differences(lambda at: _log_prior(draw, spec, data, at), log_scale)
        value, slope, curvature = np.add(likelihood(log_scale), prior).tolist()
        return value, slope, curvature

    jump = _newton_step(look, rng)
    if jump:
        _scale(draw, spec, data, jump)


def move_all(draw: RatingDraw, spec: Spec, data: Data, rng: np.random.Generator) -> None:
    """Scale means, cut-points, hidden values and the noise of the first mode's rows."""
    own = draw.noise[data.part(0)]
    inverse = float((1.0 / own.astype(np.float64)).sum())

    def log_density(at: float) -> float:
        noise = -2.0 * SHAPE * own.size * at - (SHAPE - 1.0) * inverse * math.exp(-2.0 * at)
        return noise + _log_prior(draw, spec, data, at)

    jump = _newton_step(lambda at: _differences(log_density, at), rng)
    if jump:
        _scale(draw, spec, data, jump)
        own *= np.float32(math.exp(2.0 * jump))
        draw.latent *= np.float32(math.exp(jump))


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
    if abs(jump) > LONGEST_JUMP:
        return 0.0
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


def _by(spec: Spec, data: Data, mode: int, factor: float) -> Floats64:
    """Return how a scale of the mean acts on a row: all biases, the factors of one mode only."""
    last = mode == data.n_modes - 1
    return np.append(np.full(spec.rank, factor if last else 1.0), factor)


def _log_prior(draw: RatingDraw, spec: Spec, data: Data, log_scale: float) -> float:
    """Log prior of what scaling changes, with the volume that it takes."""
    total = 0.0
    for mode in range(data.n_modes):
        by = _by(spec, data, mode, math.exp(log_scale))
        total -= freedom(spec.rank + 1, data.shape[mode]) * float(np.log(by).sum())
        total -= 0.5 * float((draw.scales[mode] * np.diag(draw.precisions[mode]) / by**2).sum())
    for number, settings in enumerate(draw.temporal_settings):
        total += settings_prior(number, settings + np.array([0.0, 2.0 * log_scale]))
    away = (draw.width_centre + log_scale - math.log(CUT_WIDTH)) / ordinal.CENTRE_SPREAD
    return total - 0.5 * float((away**2).sum())


def _scale(draw: RatingDraw, spec: Spec, data: Data, log_scale: float) -> None:
    factor = math.exp(log_scale)
    for mode in range(data.n_modes):
        part, by = data.part(mode), _by(spec, data, mode, factor)
        draw.factors[part, : spec.rank] *= by[:-1].astype(np.float32)
        draw.centres[mode] *= by
        draw.precisions[mode] /= np.outer(by, by)
        if spec.implicit:
            draw.effects[part] *= by.astype(np.float32)
            draw.features[feature_part(data, mode)] *= by.astype(np.float32)
    for array in (draw.biases, draw.fitted, draw.temporal):
        array *= np.float32(factor)
    draw.temporal_settings[:, 1] += 2.0 * log_scale
    draw.widths += log_scale
    draw.width_centre += log_scale
