"""Temporal effects (moods, fashions): AR(1) over a row's observations in the order of time.

    x_t = phi x_(t-1) + N(0, v (1 - phi^2)),   stationary variance v,   one step per observation

observed through residuals with their own precision. An effect is drawn by a Kalman filter forwards
and a sampler backwards; phi and v are judged with the effect integrated out, as a million steps of
a given effect would pin them.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise.engine.arrays import Floats
from noisewise.engine.gibbs.data import Data
from noisewise.engine.gibbs.sweep import (
    ALL_FROM,
    EFFECT_VARIANCE,
    EFFECTS,
    TEMPORAL,
    TEMPORAL_SETTINGS,
    Floats64,
    RatingDraw,
    Step,
    Workspace,
)
from noisewise.engine.state_space import ar1_log_likelihood, draw_ar1

SETTINGS_FROM = 8  # sweep from which phi and variance are drawn
SETTINGS_PRIOR = np.array([1.0, 1.5])  # std of logit phi, and of the log of the variance


class TemporalEffect(Step[RatingDraw]):
    """Draw one of the temporal effects: phi and variance, then its values at observations."""

    joins = ALL_FROM

    def __init__(self, work: Workspace, number: int) -> None:
        super().__init__(work, EFFECTS[number][0])
        self.number = number

    def __call__(self, draw: RatingDraw) -> None:
        """Draw it; what it takes up is taken from the residual."""
        data, work, mode = self.data, self.work, self.mode
        if draw.epoch >= SETTINGS_FROM:
            self._draw_settings(draw)
        phi, variance = _phi_and_variance(draw.temporal_settings[[self.number]])
        work.over(
            data.tasks[mode], draw_ar1, data.starts[mode], data.index[mode], work.residual,
            draw.temporal[self.number], work.root, phi[0], variance[0],
            work.key(draw, TEMPORAL, self.number),
        )  # fmt: skip

    def _draw_settings(self, draw: RatingDraw) -> None:
        """Move phi and variance by one Metropolis step."""
        data, work, mode, number = self.data, self.work, self.mode, self.number
        rng = work.rng(draw, TEMPORAL_SETTINGS, number)
        old = draw.temporal_settings[number]
        new = old + draw.proposals[1 + number] * rng.standard_normal(2)
        phi, variance = _phi_and_variance(np.array([old, new]))
        scores = np.zeros((data.shape[mode], 2))
        work.over(
            data.tasks[mode], ar1_log_likelihood, data.starts[mode], data.index[mode],
            work.residual, draw.temporal[number], work.root, phi, variance, scores,
        )  # fmt: skip
        before, after = scores.sum(axis=0)
        ratio = after - before + settings_prior(number, new) - settings_prior(number, old)
        accepted = math.log(rng.uniform()) < ratio
        if accepted:
            draw.temporal_settings[number] = new
        work.tune(draw, 1 + number, float(accepted))


def _phi_and_variance(settings: Floats64) -> tuple[Floats64, Floats64]:
    return 1.0 / (1.0 + np.exp(-settings[:, 0])), np.exp(settings[:, 1])


def settings_prior(number: int, settings: Floats64) -> float:
    """Log density of phi and variance of an effect, up to a constant."""
    phi = EFFECTS[number][1]
    away = settings - np.array([math.log(phi / (1.0 - phi)), math.log(EFFECT_VARIANCE)])
    return -0.5 * float(((away / SETTINGS_PRIOR) ** 2).sum())


def gaps(draw: RatingDraw, data: Data, mode: int) -> Floats:
    """Return the effect of time expected between neighbours of a row's sequence, and at its ends.

    Row i with n observations has n + 1 gaps; they start at ``starts[i] + i``.
    """
    starts, index = data.starts[mode], data.index[mode]
    rows = np.repeat(np.arange(data.shape[mode]), np.diff(starts))
    after = np.arange(len(index)) + rows  # the gap before each observation; the next one is after
    total = np.zeros(len(index) + data.shape[mode], dtype=np.float32)
    for number, (own, _) in enumerate(EFFECTS):
        if own != mode:
            continue
        phi, effect = _phi(draw.temporal_settings[number, 0]), draw.temporal[number][index]
        both = np.zeros_like(total)
        both[after] += effect
        both[after + 1] += effect
        weight = np.full(len(total), np.sqrt(phi) / (1.0 + phi), dtype=np.float32)
        ends = starts + np.arange(len(starts))
        weight[ends[:-1]] = weight[ends[1:] - 1] = np.sqrt(phi)
        total += weight * both
    return total


def gap_variance(settings: Floats, mode: int) -> float:
    """Variance of the effect of time in a gap between neighbours, given the effect at both."""
    return sum(
        float(np.exp(settings[k, 1])) * (1.0 - _phi(settings[k, 0])) / (1.0 + _phi(settings[k, 0]))
        for k, (own, _) in enumerate(EFFECTS)
        if own == mode
    )


def effect_variance(settings: Floats, mode: int) -> float:
    """Variance of the effect of time where nothing is known of it."""
    return sum(float(np.exp(settings[k, 1])) for k, (own, _) in enumerate(EFFECTS) if own == mode)


def _phi(logit: float) -> float:
    return float(1.0 / (1.0 + np.exp(-logit)))
