"""Ordinal likelihood: a rating is the interval between cut-points that a hidden value falls into.

    level_n = k   iff   c_i,k < z_n <= c_i,k+1,     z_n ~ N(f_n, 1 / w_n)

Every user has cut-points of their own. One of them is 0, as the location is the user's bias; the
others lie apart by ``exp(t_i)``. They are judged with z integrated out, then z is drawn.

Gibbs steps crawl in two directions, along which a Metropolis step goes where it should at once.
Multiply all means and cut-points by a scale: the likelihood of levels changes as if all precisions
were multiplied by its square (``move_signal``). Multiply the noise too: only priors hold the scale
(``move_all``). Rows, features and temporal effects are scaled together with the parameters of their
priors: their densities cancel against the volume that scaling takes, but for ``_log_prior``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from noisewise.engine.arrays import Array
from noisewise.engine.data import Data, Spec
from noisewise.engine.gibbs import sweep
from noisewise.engine.gibbs.steps.regression import scaled_weights
from noisewise.engine.gibbs.steps.temporal import settings_prior
from noisewise.engine.gibbs.steps.variances import SHAPE, Precisions, freedom
from noisewise.engine.random import TINY, density, normal_pair, quantile, stream, tails, uniform

FAR = 1e30  # where the lowest and the highest level end
CENTRE_SPREAD = 1.0  # of the prior of the mean log width
SPREAD_SHAPE, SPREAD_RATE = 3.0, 0.2  # inverse Gamma prior of the variance of log widths
STEP = 0.01  # for differences of the log prior
LONGEST_JUMP = 100.0  # of a log scale: what lies beyond no chain needs, and no float holds
_U = np.uintp

Look = Callable[[float], Any]  # value, slope and curvature at a log scale


class Levels(sweep.Step[sweep.RatingDraw]):
    """Draw cut-points, of which ``anchor`` is 0, their prior, and hidden values of levels."""

    anchor: int
    levels: Any

    def __init__(self, work: sweep.Workspace, anchor: int) -> None:
        super().__init__(work)
        self.anchor, self.levels = anchor, self.data.values.astype(np.int32)

    def _draw(self, draw: sweep.RatingDraw) -> None:
        work, step = self.work, float(draw.proposals[0]) if draw.epoch >= sweep.ALL_FROM else 0.0
        accepted = self._draw_hidden(draw, step, work.key(draw, sweep.LEVELS))
        if draw.epoch >= sweep.ALL_FROM and draw.widths.size:
            work.tune(draw, 0, accepted)
            self._draw_prior(draw, draw.widths)

    def _draw_hidden(self, draw: sweep.RatingDraw, step: float, key: np.uint64) -> float:
        """Move cut-points, then draw hidden values; return the share of moves accepted."""
        return float(self._moved(draw, step, key).mean())

    def _moved(self, draw: sweep.RatingDraw, step: float, key: np.uint64) -> Any:
        """Do the same; return for every row whether its move was accepted."""
        accepted = np.zeros(self.data.shape[0], dtype=np.bool_)
        self.work.over(
            self.data.tasks[0], draw_levels, self.data.starts[0], self.levels, draw.mean(),
            self.work.root, draw.widths, draw.width_centre, draw.width_spread, self.anchor, step,
            key, draw.latent, accepted,
        )  # fmt: skip
        return accepted

    def scaled_likelihood(self, draw: sweep.RatingDraw, mean: Any, log_scale: float) -> Array:
        """Log-likelihood, slope and curvature by the log of a scale on means and cut-points."""
        return np.asarray(self._likelihoods(draw, mean, log_scale).sum(axis=0))

    def _likelihoods(self, draw: sweep.RatingDraw, mean: Any, log_scale: float) -> Array:
        """Return the same for every row."""
        sums = np.zeros((self.data.shape[0], 3))
        self.work.over(
            self.data.tasks[0], scale_likelihood, self.data.starts[0], self.levels, mean,
            self.work.root, draw.widths, self.anchor, log_scale, sums,
        )  # fmt: skip
        return sums

    def _draw_prior(self, draw: sweep.RatingDraw, widths: Array) -> None:
        """Draw mean and variance of the logs of widths."""
        rng, n = self.work.rng(draw, sweep.LEVELS), len(widths)
        precision = n / draw.width_spread**2 + 1.0 / CENTRE_SPREAD**2
        pull = widths.sum(axis=0) / draw.width_spread**2
        pull += math.log(sweep.CUT_WIDTH) / CENTRE_SPREAD**2
        many = len(draw.width_centre)
        draw.width_centre[:] = pull / precision + rng.standard_normal(many) / np.sqrt(precision)
        square = ((widths - draw.width_centre) ** 2).sum(axis=0)
        gamma = rng.gamma(SPREAD_SHAPE + 0.5 * n, size=many)
        draw.width_spread[:] = np.sqrt((SPREAD_RATE + 0.5 * square) / gamma)


class Rescaling(sweep.Step[sweep.RatingDraw]):
    """Move along the two directions in which everything drags everything else along."""

    levels: Levels
    precisions: Precisions

    joins = sweep.ALL_FROM

    def __init__(self, work: sweep.Workspace, levels: Levels) -> None:
        super().__init__(work)
        self.levels, self.precisions = levels, Precisions(work)

    def _draw(self, draw: sweep.RatingDraw) -> None:
        spec, data, work = self.spec, self.data, self.work
        likelihood = partial(self.levels.scaled_likelihood, draw, draw.mean())
        move_signal(draw, spec, data, likelihood, work.rng(draw, sweep.RESCALING, 0))
        if spec.noise_rank:
            move_all(draw, spec, data, work.rng(draw, sweep.RESCALING, 1))
            self.precisions(draw)


def move_signal(
    draw: sweep.RatingDraw, spec: Spec, data: Data, likelihood: Look, rng: np.random.Generator
) -> float:
    """Scale means and cut-points, given the likelihood of levels; return the log of the scale."""

    def look(log_scale: float) -> Any:
        prior = _differences(lambda at: _log_prior(draw, spec, data, at), log_scale)
        return np.add(likelihood(log_scale), prior).tolist()

    jump = _newton_step(look, rng)
    if jump:
        _scale(draw, spec, data, jump)
    return jump


def move_all(draw: sweep.RatingDraw, spec: Spec, data: Data, rng: np.random.Generator) -> float:
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
    return jump


def _newton_step(look: Look, rng: np.random.Generator) -> float:
    """Propose a jump near the mode; return 0 if it is refused, or beyond what numbers can hold."""

    def proposal(at: float) -> tuple[float, float, float]:
        value, slope, curvature = look(at)
        variance = -1.0 / min(curvature, -1.0)
        return value, variance * slope, variance

    value, centre, variance = proposal(0.0)
    if not (math.isfinite(centre) and variance > 0.0):
        return 0.0
    jump = centre + math.sqrt(variance) * float(rng.standard_normal())
    if abs(jump) > LONGEST_JUMP:
        return 0.0
    new_value, new_centre, new_variance = proposal(jump)
    if not (math.isfinite(new_centre) and new_variance > 0.0):
        return 0.0
    there = -0.5 * ((jump - centre) ** 2 / variance + math.log(variance))
    back = -0.5 * ((-jump - new_centre) ** 2 / new_variance + math.log(new_variance))
    return jump if math.log(rng.uniform()) < new_value - value + back - there else 0.0


def _differences(function: Callable[[float], float], at: float) -> tuple[float, float, float]:
    low, middle, high = (function(at + step) for step in (-STEP, 0.0, STEP))
    return middle, (high - low) / (2.0 * STEP), (high - 2.0 * middle + low) / STEP**2


def _by(spec: Spec, data: Data, mode: int, factor: float) -> Array:
    """Return how a scale of the mean acts on a row: all biases, the factors of one mode only."""
    last = mode == data.n_modes - 1
    return np.append(np.full(spec.rank, factor if last else 1.0), factor)


def _log_prior(draw: sweep.RatingDraw, spec: Spec, data: Data, log_scale: float) -> float:
    """Log prior of what scaling changes, with the volume that it takes."""
    total = 0.0
    for mode in range(data.n_modes):
        by = _by(spec, data, mode, math.exp(log_scale))
        total -= freedom(spec.rank + 1, data.shape[mode]) * float(np.log(by).sum())
        total -= 0.5 * float((draw.scales[mode] * np.diag(draw.precisions[mode]) / by**2).sum())
    for number, settings in enumerate(draw.temporal_settings):
        total += settings_prior(number, settings + np.array([0.0, 2.0 * log_scale]))
    away = (draw.width_centre + log_scale - math.log(sweep.CUT_WIDTH)) / CENTRE_SPREAD
    return total - 0.5 * float((away**2).sum())


def _scale(draw: sweep.RatingDraw, spec: Spec, data: Data, log_scale: float) -> None:
    factor = math.exp(log_scale)
    for mode in range(data.n_modes):
        part, by = data.part(mode), _by(spec, data, mode, factor)
        own, bias = np.float32(factor if mode == data.n_modes - 1 else 1.0), np.float32(factor)
        draw.factors[part, : spec.rank] *= own
        draw.centres[mode] *= by
        draw.precisions[mode] /= np.outer(by, by)
        for rows in scaled_weights(draw, spec, data, mode):
            rows[:, : spec.rank] *= own
            rows[:, spec.rank] *= bias
    for array in (draw.biases, draw.fitted, draw.temporal):
        array *= np.float32(factor)
    draw.temporal_settings[:, 1] += 2.0 * log_scale
    draw.widths += log_scale
    draw.width_centre += log_scale


@njit(nogil=True, cache=True)
def cut_points(t, anchor, out):
    """Fill in the ends of all levels from the logs of their widths; cut-point ``anchor`` is 0."""
    last = len(t) + 2  # the place of the upper end of the highest level
    out[0], out[last], out[anchor] = -FAR, FAR, 0.0
    for k in range(anchor - 1, 0, -1):
        out[k] = out[k + 1] - math.exp(t[k - 1])
    for k in range(anchor + 1, last):
        out[k] = out[k - 1] + math.exp(t[k - 2])


@njit(nogil=True, error_model="numpy", cache=True)
def draw_levels(
    chosen, starts, level, mean, root, widths, centre, spread, anchor, step, key, latent, accepted
):  # fmt: skip
    """Move the cut-points of the chosen users by one Metropolis step, then draw hidden values.

    ``widths`` are logs with the prior N(centre, spread^2); user i has ``starts[i]:starts[i + 1]``.
    """
    many = widths.shape[1]
    cuts, new_cuts, moved = np.empty(many + 3), np.empty(many + 3), np.empty(many)
    longest = 0
    for row in chosen:
        longest = max(longest, starts[_U(row) + _U(1)] - starts[_U(row)])
    ends, new_ends = np.empty((longest, 3)), np.empty((longest, 3))
    for row in chosen:
        i = _U(row)
        state = stream(key, i)
        first, count = starts[i], starts[i + _U(1)] - starts[i]
        ratio = 0.0
        for k in range(many):
            state, z, _ = normal_pair(state)
            s = spread[k]
            moved[k] = widths[i, k] + step * z / math.sqrt(1.0 / (s * s) + 0.25 * count)
            before, after = (widths[i, k] - centre[k]) / s, (moved[k] - centre[k]) / s
            ratio += 0.5 * (before * before - after * after)
        cut_points(widths[i], anchor, cuts)
        cut_points(moved, anchor, new_cuts)
        likelihood, product = 0.0, 1.0
        for o in range(count):
            n, k = _U(first + o), level[_U(first + o)]
            a, b, side = tails(root[n] * (cuts[k] - mean[n]), root[n] * (cuts[k + 1] - mean[n]))
            ends[_U(o), 0], ends[_U(o), 1], ends[_U(o), 2] = a, b, side
            c, d, other = tails(
                root[n] * (new_cuts[k] - mean[n]), root[n] * (new_cuts[k + 1] - mean[n])
            )
            new_ends[_U(o), 0], new_ends[_U(o), 1], new_ends[_U(o), 2] = c, d, other
            product *= max(d - c, TINY) / max(b - a, TINY)
            if not 1e-200 < product < 1e200:  # one logarithm for many
                likelihood += math.log(max(product, TINY))
                product = 1.0
        ratio += likelihood + math.log(product)
        state, u = uniform(state)
        accepted[i] = math.log(u) < ratio
        chosen_ends = new_ends if accepted[i] else ends
        if accepted[i]:
            widths[i, :] = moved
        for o in range(count):
            n = _U(first + o)
            a, b, side = chosen_ends[_U(o), 0], chosen_ends[_U(o), 1], chosen_ends[_U(o), 2]
            state, u = uniform(state)
            p = min(max(a + u * (b - a), TINY), 1.0 - 1e-16)
            latent[n] = mean[n] + side * quantile(p) / root[n]


@njit(nogil=True, error_model="numpy", cache=True)
def scale_likelihood(chosen, starts, level, mean, root, widths, anchor, log_scale, out):
    """Fill in log-likelihood, slope and curvature by the log of a scale on means and cut-points."""
    cuts = np.empty(widths.shape[1] + 3)
    scale = math.exp(log_scale)
    for row in chosen:
        i = _U(row)
        cut_points(widths[i], anchor, cuts)
        total, slope, curvature = 0.0, 0.0, 0.0
        for o in range(starts[i], starts[i + _U(1)]):
            n, k = _U(o), level[_U(o)]
            low = scale * root[n] * (cuts[k] - mean[n])
            high = scale * root[n] * (cuts[k + 1] - mean[n])
            a, b, _ = tails(low, high)
            mass = max(b - a, TINY)
            first, second = 0.0, 0.0
            if high < FAR * 1e-6:
                first += high * density(high)
                second += high * density(high) * (1.0 - high * high)
            if low > -FAR * 1e-6:
                first -= low * density(low)
                second -= low * density(low) * (1.0 - low * low)
            first /= mass
            total += math.log(mass)
            slope += first
            curvature += second / mass - first * first
        out[i, 0], out[i, 1], out[i, 2] = total, slope, curvature


@njit(nogil=True, error_model="numpy", cache=True)
def masses(rows, widths, anchor, mean, variance, out):
    """Fill in the probability of every level of cells; ``rows`` says whose cut-points count."""
    cuts = np.empty(widths.shape[1] + 3)
    last = -1
    for cell in range(len(rows)):
        n = _U(cell)
        if rows[n] != last:
            last = rows[n]
            cut_points(widths[_U(last)].astype(np.float64), anchor, cuts)
        root = 1.0 / math.sqrt(variance[n])
        for k in range(out.shape[1]):
            a, b, _ = tails(root * (cuts[k] - mean[n]), root * (cuts[k + 1] - mean[n]))
            out[n, _U(k)] = b - a
