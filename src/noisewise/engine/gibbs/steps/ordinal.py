"""Ordinal likelihood: a rating is the interval between cut-points that a hidden value falls into.

    level_n = k   iff   c_i,k < z_n <= c_i,k+1,     z_n ~ N(f_n, 1 / w_n)

Every user has cut-points of their own. One of them is 0, as the location is the user's bias; the
others lie apart by ``exp(t_i)``. They are judged with z integrated out, then z is drawn.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from noisewise.engine.gibbs.sweep import (
    ALL_FROM,
    CUT_WIDTH,
    LEVELS,
    Floats64,
    RatingDraw,
    Step,
    Workspace,
)
from noisewise.engine.random import TINY, density, normal_pair, quantile, stream, tails, uniform

FAR = 1e30  # where the lowest and the highest level end
CENTRE_SPREAD = 1.0  # of the prior of the mean log width
SPREAD_SHAPE, SPREAD_RATE = 3.0, 0.2  # inverse Gamma prior of the variance of log widths
_U = np.uintp


class Levels(Step[RatingDraw]):
    """Draw cut-points, of which ``anchor`` is 0, their prior, and hidden values of levels."""

    def __init__(self, work: Workspace, anchor: int) -> None:
        super().__init__(work)
        self.anchor, self.levels = anchor, self.data.values.astype(np.int32)

    def __call__(self, draw: RatingDraw) -> None:
        """Draw them; cut-points stay as they are until all steps have joined in."""
        work = self.work
        accepted = np.zeros(self.data.shape[0], dtype=np.bool_)
        mean = np.asarray(draw.fitted + draw.temporal_sum())
        step = float(draw.proposals[0]) if draw.epoch >= ALL_FROM else 0.0
        work.over(
            self.data.tasks[0], draw_levels, self.data.starts[0], self.levels, mean, work.root,
            draw.widths, draw.width_centre, draw.width_spread, self.anchor, step,
            work.key(draw, LEVELS), draw.latent, accepted,
        )  # fmt: skip
        if draw.epoch >= ALL_FROM and draw.widths.size:
            work.tune(draw, 0, float(accepted.mean()))
            self._draw_prior(draw)

    def scaled_likelihood(self, draw: RatingDraw, mean: Any, log_scale: float) -> Floats64:
        """Log-likelihood, slope and curvature by the log of a scale on means and cut-points."""
        sums = np.zeros((self.data.shape[0], 3))
        self.work.over(
            self.data.tasks[0], scale_likelihood, self.data.starts[0], self.levels, mean,
            self.work.root, draw.widths, self.anchor, log_scale, sums,
        )  # fmt: skip
        return np.asarray(sums.sum(axis=0))

    def _draw_prior(self, draw: RatingDraw) -> None:
        """Draw mean and variance of the logs of widths."""
        rng, n = self.work.rng(draw, LEVELS), len(draw.widths)
        precision = n / draw.width_spread**2 + 1.0 / CENTRE_SPREAD**2
        pull = draw.widths.sum(axis=0) / draw.width_spread**2
        pull += math.log(CUT_WIDTH) / CENTRE_SPREAD**2
        many = len(draw.width_centre)
        draw.width_centre[:] = pull / precision + rng.standard_normal(many) / np.sqrt(precision)
        square = ((draw.widths - draw.width_centre) ** 2).sum(axis=0)
        gamma = rng.gamma(SPREAD_SHAPE + 0.5 * n, size=many)
        draw.width_spread[:] = np.sqrt((SPREAD_RATE + 0.5 * square) / gamma)


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

    ``widths`` are the logs t_i with the prior N(centre, spread^2). Observations of user i are
    ``starts[i]:starts[i + 1]``, in this order.
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
