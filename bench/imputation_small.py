"""Small and odd tables whose truth is known: what people have who have little."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = Any
Rng = np.random.Generator

HOUR = 3600.0
SPIKES, ROWS, SIZE = 8, 500, 20.0  # readings of one sensor that are broken, of how many, in stds


def small(kind: str, seed: int) -> tuple[Floats, Floats, Any]:
    """Return readings as they come (spikes too), the truth, which is asked for, and stamps."""
    family = "spikes" if kind == "no-spikes" else kind  # the same table, but for the spikes
    rng = np.random.default_rng([seed, *family.encode()])
    stamps, truth = None, MAKERS[family](rng)
    if kind == "irregular":
        gaps = rng.exponential(HOUR, len(truth)) + 60.0
        seconds = np.cumsum(gaps).astype(np.int64)
        truth = _series(rng, len(truth), 4, seconds / HOUR)
        stamps = np.datetime64("2024-01-01") + seconds.astype("timedelta64[s]")
    hidden = _holes(rng, truth.shape, 0.6 if kind == "sparse" else 0.1)
    broken = np.zeros(truth.shape, dtype=bool)
    if family == "spikes":
        broken[rng.permutation(np.flatnonzero(~hidden[:, 0]))[:SPIKES], 0] = True
        hidden &= ~broken
    readings = np.where(hidden, np.nan, truth)
    if kind == "spikes":
        readings[broken] += SIZE * truth[:, 0].std()
    if kind == "one-location":  # locations x sensors x times
        readings, truth = (part.T[None] for part in (readings, truth))
    return readings, truth, stamps


def _series(rng: Rng, times: int, series: int, hours: Floats = None) -> Floats:
    """Correlated paths with a daily rhythm, a course of their own, and noise."""
    hours = np.arange(times, dtype=np.float64) if hours is None else hours
    gaps = np.diff(hours, prepend=hours[0] - 1.0)

    def path(length: float) -> Floats:
        phi, shocks = np.exp(-gaps / length), rng.normal(size=times)
        out = np.empty(times)
        last = 0.0
        for k in range(times):
            last = phi[k] * last + np.sqrt(1 - phi[k] ** 2) * shocks[k]
            out[k] = last
        return out

    day = np.sin(2 * np.pi * hours[:, None] / 24 + rng.uniform(0, 1, series))
    shared = path(rng.uniform(5, 40))[:, None] * rng.uniform(0.3, 1.5, series)
    own = np.column_stack([path(rng.uniform(2, 20)) for _ in range(series)])
    noise = rng.uniform(0.05, 0.5) * rng.normal(size=(times, series))
    values = shared + rng.uniform(0, 1.5) * day + rng.uniform(0.1, 1) * own + noise
    return values * rng.uniform(0.5, 20, series) + rng.uniform(-50, 50, series)


def _constant(rng: Rng) -> Floats:
    values = _series(rng, 200, 4)
    values[:, 1] = 7.0
    return values


def _step(rng: Rng) -> Floats:
    values = _series(rng, 300, 4)
    return values + 6 * values.std(axis=0) * (np.arange(300) >= rng.integers(100, 200))[:, None]


def _regimes(rng: Rng) -> Floats:
    """The second half has other levels, spreads and correlations."""
    return np.vstack([_series(rng, 150, 4), 3 * _series(rng, 150, 4)])


def _counts(rng: Rng) -> Floats:
    """Few events an hour, many at noon."""
    level = _series(rng, 400, 6)
    level = (level - level.mean(axis=0)) / level.std(axis=0)
    return rng.poisson(np.exp(0.3 + 0.9 * level)).astype(np.float64)


def _holes(rng: Rng, shape: tuple[int, int], share: float) -> Any:
    """Single cells and a stretch of every series; nothing is hidden at random elsewhere."""
    hidden = rng.random(shape) < share
    length = max(shape[0] // 20, 2)
    for which in range(shape[1]):
        start = rng.integers(1, shape[0] - length)
        hidden[start : start + length, which] = True
    return hidden


MAKERS: dict[str, Any] = {
    "one-series": lambda rng: _series(rng, 300, 1),
    "three-series": lambda rng: _series(rng, 50, 3),
    "constant": _constant,
    "step": _step,
    "regimes": _regimes,
    "one-location": lambda rng: _series(rng, 200, 3),
    "irregular": lambda rng: _series(rng, 300, 4),
    "sparse": lambda rng: _series(rng, 300, 6),
    "counts": _counts,
    "spikes": lambda rng: _series(rng, ROWS, 8),
}
SMALL = (*MAKERS, "no-spikes")
ODD = tuple(kind for kind in MAKERS if kind not in ("counts", "spikes"))  # judged by simple models
