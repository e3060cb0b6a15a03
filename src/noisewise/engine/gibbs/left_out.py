"""Observations as they would be predicted had they not been seen: sums over sweeps, and the rest.

What all others say of a mean f is taken to be normal, N(m, v), and so is the log of the noise. With
the slope g of the log-likelihood of an observation, (value - f) / noise, draws that have seen it
have E[g] = (E[f] - m) / v and 1 + Cov[f, g] = Var[f] / v. Of levels the value is the hidden one,
which is drawn. The noise has seen the observation too: its draws count by one over its likelihood.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from noisewise.engine.arrays import Array
from noisewise.engine.data import Scale

FEWEST_SWEEPS = 20
MOST_LEVERAGE = 0.8  # share of a prediction that its own observation may have, to leave it out
POINTS = np.linspace(-3.0, 3.0, 13)  # stds of the log of the noise, at which it is weighed
LEAST_CHANCE = 1e-12  # of the level that was seen
LEAST_STD = 1e-6  # of a mean, where values have the std 1
ROOT = np.sqrt(2.0 * np.pi)  # of the normal density
COMMON = 6  # sums: f and its square, g, f times g, the log of the noise and its square


class Look(NamedTuple):
    """What a sweep knows of observations: f, the root of their precision, and their value."""

    mean: Array
    root: Array
    value: Array  # of levels, the hidden one

    def times(self, unit: float) -> Look:
        """Return the same in other units."""
        return Look(self.mean * unit, self.root / unit, self.value * unit)

    def sums(self) -> list[Array]:
        """Return what a sweep adds to the sums of every observation."""
        noise = self.root**-2.0
        slope, log = (self.value - self.mean) / noise, np.log(noise)
        return [self.mean, self.mean**2, slope, self.mean * slope, log, log**2]


class LeftOut(NamedTuple):
    """Values of observations, and what all others say of them, in units of the values."""

    truth: Array
    mean: Array
    std: Array
    share: float  # of their variance that is not noise
    chances: Array | None = None  # of every level


def rows(n_levels: int) -> int:
    """Return how many sums there are: of levels, cut-points too; the last one counts sweeps."""
    return COMMON + max(n_levels - 1, 0) + 1


def cuts_of(widths: Any, anchor: int) -> Array:
    """Return cut-points between levels, from logs of widths; number ``anchor`` of them is 0."""
    ends = np.cumsum(np.pad(np.exp(widths), ((0, 0), (1, 0))), axis=1)
    found: Array = ends - ends[:, [anchor - 1]]
    return found


def found(sums: Array, values: Any, scale: Scale) -> LeftOut | None:
    """Return what sums over sweeps come to; None where there were too few.

    ``values`` are as the model has them: standardised, or numbers of levels.
    """
    if not sums.size or sums[-1, 0] < FEWEST_SWEEPS:
        return None
    f, square, g, product, log, log_square = (sums[:-1] / sums[-1])[:COMMON]
    seen = values.astype(np.float64)
    left = np.maximum(1.0 + product - f * g, 1.0 - MOST_LEVERAGE)
    variance = np.maximum(square - f**2, 0.0) / left
    mean, spread = f - variance * g, np.sqrt(np.maximum(log_square - log**2, 0.0))
    noises = np.exp(log + spread * POINTS[:, None])
    if not len(scale.levels):
        total = noises + variance
        weight = _weights(-0.5 * (np.log(total) + (seen - mean) ** 2 / total))
        noise = (weight * noises).sum(axis=0)
        clipped = _clipped(mean, np.sqrt(variance), scale.low, scale.high)
        value, centre = (scale.location + scale.scale * part for part in (seen, clipped))
        std = scale.scale * np.sqrt(noise + variance)
        return LeftOut(value, centre, std, _share(variance, noise))
    cuts, own = (sums[COMMON:-1] / sums[-1]).T, seen.astype(np.int64)
    masses = [_masses(cuts, mean, noise + variance) for noise in noises]
    likely = np.array([mass[np.arange(len(own)), own] for mass in masses])
    weight = _weights(np.log(np.maximum(likely, LEAST_CHANCE)))
    chances = sum(w[:, None] * mass for w, mass in zip(weight, masses, strict=True))
    levels = scale.levels.astype(np.float64)
    centre = chances @ levels
    std = np.sqrt(np.maximum(chances @ levels**2 - centre**2, 0.0))
    return LeftOut(
        levels[own], centre, std, _share(variance, (weight * noises).sum(axis=0)), chances
    )


def _weights(log_likelihood: Array) -> Array:
    """Return how much each point of the noise counts once an observation is left out."""
    log = -0.5 * POINTS[:, None] ** 2 - log_likelihood
    weight = np.exp(log - log.max(axis=0))
    found: Array = weight / weight.sum(axis=0)
    return found


def _clipped(mean: Array, std: Array, low: float, high: float) -> Array:
    """Return the mean of normal numbers that are clipped, as predictions are in every draw."""
    std, found = np.maximum(std, LEAST_STD), mean
    for end, sign in ((low, 1.0), (high, -1.0)):
        if np.isfinite(end):  # what is beyond it, on average
            beyond = sign * (end - mean) / std
            found = found + sign * std * (beyond * ndtr(beyond) + np.exp(-0.5 * beyond**2) / ROOT)
    return found


def _masses(cuts: Array, mean: Array, variance: Array) -> Array:
    """Return the probability of every level."""
    below = ndtr((cuts - mean[:, None]) / np.sqrt(variance)[:, None])
    ends = np.zeros((len(mean), 1)), np.ones((len(mean), 1))
    return np.diff(np.concatenate([ends[0], below, ends[1]], axis=1), axis=1)


def _share(variance: Array, noise: Array) -> float:
    return float(np.mean(variance / (variance + noise)))
