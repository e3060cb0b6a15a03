"""Heteroscedastic noise: a low-rank variance of every observation, drawn given its residual.

    residual_n ~ N(0, s_n),   s_n = sum_k P_ik Q_jk       (one factor per mode)

A residual is the sum of K independent parts, part k ~ N(0, P_ik Q_jk). Given the parts, every P_ik
and Q_jk has an inverse Gamma distribution. Parts are drawn anew for every mode, and not kept.

Values may be free of noise. Then nothing keeps a variance from zero but ``FLOOR``: no observation
counts as more precise than that.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from noisewise.engine.gibbs.sweep import NOISE, Draw, Step, Workspace
from noisewise.engine.random import gamma, normal, stream

FLOOR = 1e-10  # of a variance, in standardised units: single precision tells no more apart
SHAPE = 4.0  # of the inverse Gamma priors; their mean is 1, or the level of the last mode
LEAST = 1e-20  # of a factor of the variance: the product of a few is still a number
_U = np.uintp


class Precisions(Step[Draw]):
    """Take the precision of every observation from the noise factors."""

    def _draw(self, draw: Draw) -> None:
        root = self.work.root
        if self.spec.noise_rank == 0:
            root[:] = 1.0 / math.sqrt(max(draw.level[0], FLOOR))
            return
        self.work.over_observations(
            lambda part: roots(self.data.places[:, part], draw.noise, root[part])
        )


class ConstantNoise(Step[Draw]):
    """Draw the variance that all observations share.

    Its prior has the density (1 + s)^-2: it is an inverse Gamma one of shape 1, whose rate has a
    Gamma(1, 1) prior and is drawn first. Any noise is as likely as any other below that of values.
    """

    def _draw(self, draw: Draw) -> None:
        residual, rng = self.work.residual, self.work.rng(draw, NOISE)
        square = float(np.einsum("i,i->", residual, residual, dtype=np.float64))
        rate = rng.gamma(2.0) / (1.0 + 1.0 / float(draw.level[0]))
        variance = (rate + 0.5 * square) / rng.gamma(1.0 + 0.5 * len(residual))
        draw.level[0] = max(float(variance), FLOOR)


class LowRankNoise(Step[Draw]):
    """Draw the factors of the variance, mode by mode, and the level, with a Gamma(1, 1) prior.

    Levels of an ordinal scale have no scale of their own: there the level of the noise is fixed.
    """

    def __init__(self, work: Workspace, joins: int) -> None:
        super().__init__(work)
        self.joins = joins

    def _draw(self, draw: Draw) -> None:
        data, work = self.data, self.work
        last = data.n_modes - 1
        for mode in range(data.n_modes):
            work.over(
                data.tasks[mode], draw_noise, data.starts[mode], data.others[mode], draw.noise,
                data.firsts[mode], work.visited(mode, work.residual),
                draw.level if mode == last else np.ones_like(draw.level),
                work.key(draw, NOISE, mode),
            )  # fmt: skip
        if not self.spec.ordinal:
            own, rng = draw.noise[data.part(last)].astype(np.float64), work.rng(draw, NOISE)
            rate = 1.0 + (SHAPE - 1.0) * (1.0 / own).sum(axis=0)
            draw.level[:] = rng.gamma(1.0 + SHAPE * len(own), 1.0 / rate)


@njit(nogil=True, error_model="numpy", cache=True)
def draw_noise(chosen, starts, others, noise, first, residual, level, key):
    """Draw the noise factors of the chosen rows of a mode; ``level`` is their prior mean.

    Others and residuals are in the order in which the mode visits observations, as in ``rows``.
    """
    K = noise.shape[1]
    sums, rest = np.empty(K), np.empty(K)
    for row in chosen:
        i = _U(row)
        place = _U(first) + i
        state = stream(key, i)
        sums[:] = 0.0
        spare, has_spare = 0.0, False
        for n in range(_U(starts[i]), _U(starts[i + _U(1)])):
            total = 0.0
            for k in range(K):
                product = np.float64(noise[_U(others[0, n]), k])
                for other in range(1, others.shape[0]):
                    product *= noise[_U(others[other, n]), k]
                rest[k] = product
                total += noise[place, k] * product
            left = np.float64(residual[n])
            for k in range(K - 1):
                own = noise[place, k] * rest[k]
                after = max(total - own, 0.0)
                state, z, spare, has_spare = normal(state, spare, has_spare)
                part = left * own / total + z * math.sqrt(own * after / total)
                sums[k] += part * part / rest[k]
                left -= part
                total = after
            sums[K - 1] += left * left / rest[K - 1]
        shape = SHAPE + 0.5 * (starts[i + _U(1)] - starts[i])
        for k in range(K):
            state, draw = gamma(state, shape)
            noise[place, k] = max(((SHAPE - 1.0) * level[k] + 0.5 * sums[k]) / draw, LEAST)


@njit(nogil=True, fastmath=True, error_model="numpy", inline="always")
def _variance(places, noise, n):
    total = np.float32(0.0)
    for k in range(_U(noise.shape[1])):
        product = noise[_U(places[0, n]), k]
        for mode in range(1, places.shape[0]):
            product *= noise[_U(places[mode, n]), k]
        total += product
    return max(total, np.float32(FLOOR))


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def roots(places, noise, out):
    """Fill in the root of the precision of observations, whose rows are at ``places``."""
    for n in range(_U(len(out))):
        out[n] = np.float32(1.0) / math.sqrt(_variance(places, noise, n))


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def variances(places, noise, out):
    """Fill in the sum over factors of products of noise."""
    for cell in range(places.shape[1]):
        out[_U(cell)] = _variance(places, noise, _U(cell))
