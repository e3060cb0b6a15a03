"""Temporal effects of ratings (moods, fashions): AR(1) over a row's observations in time.

    x_t = phi x_(t-1) + N(0, v (1 - phi^2)),   stationary variance v,   one step per observation

Effects would pin their settings. So these are moved by a Metropolis step over logarithms, by the
likelihood of the residuals alone, which the Kalman filter has.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise.engine import state_space
from noisewise.engine.arrays import Array, Floats, Values
from noisewise.engine.data import Data
from noisewise.engine.gibbs import sweep
from noisewise.engine.gibbs.sweep import EFFECT_VARIANCE

SETTINGS_FROM = 8  # sweep from which phi and variance are drawn
SETTINGS_PRIOR = np.array([1.0, 1.5])  # std of logit phi, and of the log of the variance


class TemporalEffect(sweep.Step[sweep.RatingDraw]):
    """Draw a temporal effect: phi and variance, then its values, taken from the residual."""

    joins = sweep.ALL_FROM

    def __init__(self, work: sweep.Workspace, number: int) -> None:
        super().__init__(work, sweep.EFFECTS[number][0])
        self.number = number

    def _draw(self, draw: sweep.RatingDraw) -> None:
        if draw.epoch >= SETTINGS_FROM:
            self._draw_settings(draw)
        phi, variance = phi_and_variance(draw.temporal_settings[[self.number]])
        self._draw_effect(
            draw, phi[0], variance[0], self.work.key(draw, sweep.TEMPORAL, self.number)
        )

    def _draw_settings(self, draw: sweep.RatingDraw) -> None:
        """Move phi and variance by one Metropolis step."""
        work, number = self.work, self.number
        rng = work.rng(draw, sweep.TEMPORAL_SETTINGS, number)
        old = draw.temporal_settings[number]
        new = old + draw.proposals[1 + number] * rng.standard_normal(2)
        before, after = self._scores(draw, *phi_and_variance(np.array([old, new])))
        ratio = after - before + settings_prior(number, new) - settings_prior(number, old)
        accepted = math.log(rng.uniform()) < ratio
        if accepted:
            draw.temporal_settings[number] = new
        work.tune(draw, 1 + number, float(accepted))

    def _draw_effect(
        self, draw: sweep.RatingDraw, phi: float, variance: float, key: np.uint64
    ) -> None:
        """Draw the values at observations."""
        data, work, mode = self.data, self.work, self.mode
        work.over(
            data.tasks[mode], state_space.draw_ar1, data.starts[mode], data.index[mode],
            work.residual, draw.temporal[self.number], work.root, phi, variance, key,
        )  # fmt: skip

    def _scores(self, draw: sweep.RatingDraw, phi: Values, variance: Values) -> Values:
        """Log-likelihood of the residuals for each pair of phi and variance."""
        return np.asarray(self._row_scores(draw, phi, variance).sum(axis=0))

    def _row_scores(self, draw: sweep.RatingDraw, phi: Values, variance: Values) -> Values:
        """Return the same for every row."""
        data, work, mode = self.data, self.work, self.mode
        scores = np.zeros((data.shape[mode], 2))
        work.over(
            data.tasks[mode], state_space.ar1_log_likelihood, data.starts[mode], data.index[mode],
            work.residual, draw.temporal[self.number], work.root, phi, variance, scores,
        )  # fmt: skip
        return scores


def phi_and_variance(settings: Values) -> tuple[Values, Values]:
    """Return phi and stationary variance of settings: a logit, and a logarithm."""
    return 1.0 / (1.0 + np.exp(-settings[:, 0])), np.exp(settings[:, 1])


def settings_prior(number: int, settings: Array) -> float:
    """Log density of phi and variance of an effect, up to a constant."""
    phi = sweep.EFFECTS[number][1]
    away = settings - np.array([math.log(phi / (1.0 - phi)), math.log(EFFECT_VARIANCE)])
    return -0.5 * float(((away / SETTINGS_PRIOR) ** 2).sum())


def gaps(draw: sweep.RatingDraw, data: Data, mode: int) -> Floats:
    """Return the effect of time expected in every gap of a row's sequence (see ``Timeline``)."""
    starts, index = data.starts[mode], data.index[mode]
    rows = np.repeat(np.arange(data.shape[mode]), np.diff(starts))
    after = np.arange(len(index)) + rows  # the gap before each observation; the next one is after
    total = np.zeros(len(index) + data.shape[mode], dtype=np.float32)
    phis, _ = phi_and_variance(draw.temporal_settings)
    for (own, _), phi, effect in zip(sweep.EFFECTS, phis, draw.temporal, strict=True):
        if own != mode:
            continue
        both = np.zeros_like(total)
        both[after] += effect[index]
        both[after + 1] += effect[index]
        weight = np.full(len(total), np.sqrt(phi) / (1.0 + phi), dtype=np.float32)
        ends = starts + np.arange(len(starts))
        weight[ends[:-1]] = weight[ends[1:] - 1] = np.sqrt(phi)
        total += weight * both
    return total


def effect_variances(settings: Floats, mode: int) -> tuple[float, float]:
    """Variance of the effect of time where nothing is known of it, and given both neighbours."""
    both = zip(sweep.EFFECTS, *(part.tolist() for part in phi_and_variance(settings)), strict=True)
    own = [(phi, variance) for (own_mode, _), phi, variance in both if own_mode == mode]
    return sum(v for _, v in own), sum(v * (1.0 - phi) / (1.0 + phi) for phi, v in own)
