"""How wide intervals of forecasts must be: by series, step, and how far off they were of late.

A series has its usual error at every step. How large errors are now, beside that, is a mixture of
how large they were of late: those of the series and of all series, at one step and at this one,
over short and long memories. What is left are scores whose quantiles are the ends of intervals.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import nnls

from noisewise.engine.arrays import Array
from noisewise.errors import brief
from noisewise.simple_forecasts import FARTHEST, moving

FEWEST = 40  # errors that tell anything
KEPT = 250  # last origins whose errors are kept
EVEN = 40.0  # errors that the usual one of all series is worth
OWN = (4.0, 16.0, 64.0)  # origins that errors of a series at the next step are remembered for
ALL = (4.0, 16.0)  # those of all series
SAME = (8.0, 32.0)  # those of a series at the step that is asked for
MOST = 8.0  # times the usual error, that one counts at most
LEAST = 0.05  # of the usual error, that is expected at least
ALMOST = 1e-9  # of all squares: that each of those is larger, as some may say the same
ROUNDS = 3  # of weights by what was expected before
CARE = 0.15  # over the root of origins: how much less a tail holds than it did


@dataclass(frozen=True, eq=False)
class Widths:
    """What is known of the errors of forecasts; arrays are by step, then by series."""

    usual: Array  # mean absolute error
    weights: Array  # of what tells how large errors are now
    unit: Array  # std of scores, by step
    scores: list[Array]  # errors over what was expected, in stds, sorted
    shares: list[Array]  # of the scores up to each
    care: float
    recent: Array  # absolute errors over usual ones: origin by step by series; NaN if not known

    __repr__ = brief

    @classmethod
    def of(cls, left: Array, count: Array, usual: Array) -> Widths:
        """Learn from errors at origins one after the other: origin by step by series."""
        origins, steps, _ = left.shape
        size = np.minimum(np.abs(left) / usual, FARTHEST)
        known = ~np.isnan(size)
        total = np.nansum(size, axis=(0, 2)) / np.maximum(known.sum(axis=(0, 2)), 1)
        total = np.where(known.any(axis=(0, 2)), np.maximum(total, 1e-12), 1.0)[:, None]
        own = usual * (np.nansum(size, axis=0) + EVEN * total) / (known.sum(axis=0) + EVEN)
        recent = np.minimum(np.abs(left) / own, MOST)
        weights, unit, scores, shares = [], np.ones(steps), [], []
        for h in range(steps):
            told = _told(recent, h)[:, :-1]
            weights.append(_weights(told, recent[:, h]))
            expected = np.maximum(np.tensordot(weights[h], told, 1), LEAST)
            score = left[:, h] / (own[h] * expected)
            heavy = np.broadcast_to(count[:, None], score.shape)[known[:, h]]
            unit[h], one, share = _scores(score[known[:, h]], heavy)
            scores.append(one)
            shares.append(share)
        care = CARE / np.sqrt(max(origins, 1))
        return cls(own, np.array(weights), unit, scores, shares, float(care), recent[-KEPT:])

    def later(self, left: Array, rows: int) -> Widths:
        """Return the same after more rows, whose errors count where none are known yet."""
        most = len(self.recent) + self.recent.shape[1]
        empty = np.full((min(rows, most), *self.recent.shape[1:]), np.nan)
        known = np.concatenate([self.recent, empty])[-most:]
        new = np.full(known.shape, np.nan)
        many = min(len(left), len(known))
        new[len(known) - many :] = np.minimum(np.abs(left) / self.usual, MOST)[len(left) - many :]
        return replace(self, recent=np.where(np.isnan(known), new, known))

    def now(self) -> Array:
        """Return the std of forecasts from the last row."""
        told = [_told(self.recent, h)[:, -1] for h in range(len(self.usual))]
        expected = np.einsum("hf,hfs->hs", self.weights, np.array(told))
        return np.asarray(self.unit[:, None] * self.usual * np.maximum(expected, LEAST))

    def ends(self, coverage: float) -> Array:
        """Return the ends of intervals in stds: low and high, by step."""
        tail = 0.5 - 0.5 * coverage
        tail = max(tail - self.care, 0.5 * tail)
        both = zip(self.shares, self.scores, strict=True)
        return np.array([np.interp([tail, 1.0 - tail], *one) for one in both]).T


def _told(recent: Array, step: int) -> Array:
    """Return what tells how large errors are at each origin, and after the last: 1 is usual.

    An origin knows errors of what came until then: at a step, those of that many origins before.
    """
    known = np.nan_to_num(recent, nan=1.0)
    first, same = known[:, 0], known[:, step]
    many = np.maximum((~np.isnan(recent[:, 0])).sum(axis=1, keepdims=True), 1)
    every = np.where(np.isnan(recent[:, 0]), 0.0, recent[:, 0]).sum(axis=1, keepdims=True) / many
    every = np.where(np.isnan(recent[:, 0]).all(axis=1, keepdims=True), 1.0, every)
    every = np.broadcast_to(every, first.shape)
    asked = [(first, m, 1) for m in OWN] + [(every, m, 1) for m in ALL]
    asked += [(same, m, step + 1) for m in SAME]
    found = [np.ones((len(recent) + 1, recent.shape[2]))]
    for values, memory, lag in asked:
        level = moving(values, memory, 1.0)
        before = np.ones((min(lag, len(level) + 1), level.shape[1]))
        found.append(np.concatenate([before, level])[: len(level) + 1])
    return np.array(found)


def _weights(told: Array, size: Array) -> Array:
    """Return the weights, none below 0, that tell the size of errors best beside what they tell."""
    known = ~np.isnan(size)
    usual: Array = np.eye(len(told))[0]
    if known.sum() < FEWEST:
        return usual
    x, y = told[:, known], size[known]
    weights = usual
    for _ in range(ROUNDS):
        heavy = 1.0 / np.maximum(weights @ x, LEAST)
        both = np.vstack([x, y]) * heavy
        gram = both @ both.T
        root = np.linalg.cholesky(gram + ALMOST * np.trace(gram) * np.eye(len(gram))).T
        weights = np.asarray(nnls(root[:, :-1], root[:, -1])[0], dtype=np.float64)
    return weights if weights.any() else usual


def _scores(score: Array, heavy: Array) -> tuple[float, Array, Array]:
    """Return the std of scores, and these in stds, sorted, with shares; normal where few are."""
    near = np.clip(score, -5.0 * FARTHEST, 5.0 * FARTHEST)
    unit = float(np.sqrt((heavy * near**2).sum() / heavy.sum())) if len(score) else 1.0
    unit = unit if unit > 0 else 1.0
    score = score / unit
    if len(score) < FEWEST:
        mean = heavy.mean() if len(heavy) else 1.0
        score = np.append(score, np.linspace(-2.5, 2.5, FEWEST))
        heavy = np.append(heavy, np.full(FEWEST, mean))
    order = np.argsort(score, kind="stable")
    total: Any = np.cumsum(heavy[order])
    return unit, score[order], (total - 0.5 * heavy[order]) / total[-1]
