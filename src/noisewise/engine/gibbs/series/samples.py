"""Readings that were never made, drawn together: one table of cells from each kept draw.

Given a draw, factors at moments that it lacks and the paths of series at all cells are drawn along
time, forwards filter and backwards sampler, and noise for every cell. So cells of one gap go
together as readings do, and so do series that share factors.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from noisewise.engine import paths
from noisewise.engine.arrays import Array, Ints
from noisewise.engine.gibbs.series.posterior import Asked, SeriesPosterior, factors_at
from noisewise.engine.random import stream

EXACT = 1e9  # the precision of what a draw says of its factors


def draw_cells(
    posterior: SeriesPosterior, asked: Asked, draw: int, rng: np.random.Generator
) -> Array:
    """Return readings of cells as one kept draw would have them, in standardised units."""
    state = {name: array[draw].astype(np.float64) for name, array in posterior.draws.items()}
    times, place = np.unique(asked.when, return_inverse=True)
    factors = _factors(posterior, state, times, rng)[place.ravel()]
    loading, width = posterior.loadings(state, asked, factors)
    mean = np.einsum("nd,nd->n", loading[:, :-1], factors) + loading[:, -1]
    noise = posterior.noise_of(state, asked, draw)
    own = _own_paths(posterior, state, asked, draw, rng)
    scatter = np.sqrt(width + noise) * rng.standard_normal(len(mean))
    return np.asarray(mean + own + scatter)


def _factors(
    posterior: SeriesPosterior, state: dict[str, Array], times: Array, rng: np.random.Generator
) -> Array:
    """Return all factors at some times: as drawn, and drawn along time where they were not."""
    spec, stamps = posterior.spec, posterior.stamps
    mean, variance = factors_at(times, stamps, state, spec)
    once = rng.standard_normal(spec.width)  # strengths of cycles that were not seen
    found = mean + np.sqrt(variance) * once
    every = np.union1d(stamps, times)
    if len(every) == len(stamps) or not spec.rank:
        return np.asarray(found)
    at, known = np.searchsorted(every, times), np.searchsorted(every, stamps)
    gaps = np.diff(every, prepend=every[0] - 1.0)
    for k in range(spec.rank):
        precision, pull = np.zeros(len(every)), np.zeros(len(every))
        precision[known], pull[known] = EXACT, EXACT * state["factors"][:, k]
        out, means = np.empty((2, len(every), 2))
        paths.draw_path(
            0, len(every), gaps, precision, pull, spec.kind, state["factor_timescales"][k], 1.0,
            _stream(rng), means, np.empty((len(every), 3)), out,
        )  # fmt: skip
        found[:, k] = out[at, 0]
    return np.asarray(found)


def _stream(rng: np.random.Generator) -> np.uint64:
    return np.uint64(stream(rng.integers(2**63, dtype=np.uint64), np.uint64(0)))


def _own_paths(
    posterior: SeriesPosterior,
    state: dict[str, Array],
    asked: Asked,
    draw: int,
    rng: np.random.Generator,
) -> Array:
    """Return the paths of series at cells, drawn given all readings of each."""
    weights = np.ones(len(posterior.values))
    if posterior.spec.tails or posterior.spec.seasons:
        weights = posterior.weights(draw, state["slot_noise"])
    series, found = posterior.series, np.zeros(len(asked.which))
    loadings, rows = state["loadings"], posterior.codes[-1]
    order = np.lexsort([asked.when, asked.which])
    bounds = np.searchsorted(asked.which[order], np.arange(-1, len(series) + 1))
    new = order[: bounds[1]]  # of series never observed: as wide as those of their sensor
    found[new] = np.sqrt(posterior.typical(state["amplitudes"], asked)[new]) * (
        rng.standard_normal(len(new))
    )
    for s in np.unique(asked.which[order[bounds[1] :]]):
        cells, own = order[bounds[s + 1] : bounds[s + 2]], slice(*series.starts[s : s + 2])
        told = state["factors"][rows[own]] @ loadings[s, :-1] + loadings[s, -1]
        w = weights[own] / state["variances"][s]
        pull = w * (posterior.values[own] - told)
        found[cells] = _path(
            series.time[own], w, pull, asked.when[cells], posterior.spec.kind,
            float(state["timescales"][s]), float(state["amplitudes"][s]), _stream(rng),
        )  # fmt: skip
    return found


def _path(
    time: Array, w: Array, pull: Array, when: Array, kind: int, timescale: float, amplitude: float,
    state: np.uint64,
) -> Array:  # fmt: skip
    """Draw a path at some times, given what is seen of it at others."""
    every = np.union1d(time, when)
    known: Ints = np.searchsorted(every, time)
    precision, pulls = np.zeros((2, len(every)))
    np.add.at(precision, known, w)
    np.add.at(pulls, known, pull)
    gaps = np.diff(every, prepend=every[0] - 1.0)
    out, means = np.empty((2, len(every), 2))
    _drawn(gaps, precision, pulls, kind, timescale, amplitude, state, means, out)
    return np.asarray(out[np.searchsorted(every, when), 0])


@njit(nogil=True, error_model="numpy", cache=True)
def _drawn(gaps, precision, pull, kind, timescale, amplitude, state, means, out):
    spreads = np.empty((len(gaps), 3))
    paths.draw_path(
        0, len(gaps), gaps, precision, pull, kind, timescale, amplitude, state, means, spreads, out
    )
