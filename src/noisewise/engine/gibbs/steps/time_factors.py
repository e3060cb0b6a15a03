"""Factors of time, drawn together with the paths of all series at that time.

Where noise is small, a row of time and the paths of all series at that time pin each other. So the
row is drawn with these paths integrated out, given those before and after; and then they are drawn
too. Threads draw blocks of time side by side.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from noisewise.engine.gibbs.draw import SeriesDraw
from noisewise.engine.gibbs.steps.rows import CHUNK, add_products, draw, factorise, gather
from noisewise.engine.gibbs.sweep import PATHS, ROWS, SeriesStep
from noisewise.engine.random import normal_pair, stream
from noisewise.engine.state_space import between_neighbours
from noisewise.engine.threads import in_threads

_U = np.uintp
_ONE = np.uintp(1)


class TimeFactors(SeriesStep):
    """Draw the rows of time, and the paths at their observations."""

    def __call__(self, draw: SeriesDraw) -> None:
        """Draw them, and set the residual."""
        data, work, mode = self.data, self.work, self.data.n_modes - 1
        keys = work.key(draw, ROWS, mode), work.key(draw, PATHS, mode)

        def draw_them(chosen: Any) -> None:
            draw_time_factors(
                chosen, data.starts[mode], data.index[mode], data.others[mode],
                draw.factors, draw.biases, data.firsts[mode], data.bound, work.noise, work.phi,
                work.innovations, data.values, draw.centres[mode], draw.precisions[mode],
                self.spec.rank, *keys, draw.paths, draw.fitted,
            )  # fmt: skip

        in_threads(draw_them, data.blocks, work.n_jobs)
        work.residual = data.values - draw.fitted - draw.paths


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def draw_time_factors(
    chosen, starts, index, others, factors, biases, first, bound, noise, phi, innovations, values,
    centre, precision, rank, key, paths_key, paths, fitted,
):  # fmt: skip
    """Draw the chosen rows of time, one after the other, and the paths at their observations.

    Parameters
    ----------
    chosen : int32[:]
        Rows of the last mode.
    starts, index, others, factors, biases, first, centre, precision
        As for ``noisewise.engine.gibbs.steps.rows.draw_rows``.
    bound : bool[:]
        Observations at which paths stay as they are.
    noise, values : float32[:]
        Variance and value of every observation.
    phi, innovations : float32[:]
        As from ``set_gains``; one more at the end, where phi is zero.
    paths, fitted : float32[:]
        Both are changed, for the chosen rows only.
    """
    D, width = _U(rank), factors.shape[1]
    A, h, out = np.empty((rank + 1, (rank + 8) // 8 * 8)), np.empty(rank + 1), np.empty(rank + 2)
    S = np.empty((CHUNK, width), dtype=np.float32)
    gram = np.empty((width, width), dtype=np.float32)
    pull, edge = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    most = 0
    for row in chosen:
        most = max(most, starts[_U(row) + _ONE] - starts[_U(row)])
    means, spreads = np.empty(most), np.empty(most)
    for row in chosen:
        i = _U(row)
        _start(A, h, centre, precision)
        for start in range(starts[i], starts[i + _ONE], CHUNK):
            m = min(CHUNK, starts[i + _ONE] - start)
            weight, shift = 0.0, 0.0
            pull[:], edge[:] = 0.0, 0.0
            for k in range(m):
                visit, s, at = _U(start + k), _U(k), _U(start - starts[i] + k)
                n = _U(index[visit])
                mean, spread = between_neighbours(n, bound, phi, innovations, paths)
                means[at], spreads[at] = mean, spread
                root = np.float32(1.0 / math.sqrt(spread + noise[n]))
                bias = gather(S, s, visit, others, factors, biases, root)
                y = np.float32(root * (values[n] - bias - mean))
                weight += root * root
                shift += root * y
                for d in range(_U(width)):
                    pull[d] += y * S[s, d]
                    edge[d] += root * S[s, d]
            add_products(A, h, S[:m], gram, pull, edge, weight, shift)
        factorise(A, D + _ONE)
        draw(A, h, D + _ONE, stream(key, i), out)
        _keep(factors, biases, _U(first) + i, out, D)
        state = stream(paths_key, i)
        for k in range(starts[i + _ONE] - starts[i]):
            visit, at = _U(starts[i] + k), _U(k)
            n = _U(index[visit])
            fitted[n] = _fit(S, visit, others, factors, biases, _U(first) + i)
            share = spreads[at] / (spreads[at] + noise[n])
            state, z, _ = normal_pair(state)
            left = values[n] - fitted[n] - means[at]
            paths[n] = means[at] + share * left + math.sqrt(share * noise[n]) * z


@njit(nogil=True, error_model="numpy", cache=True)
def _start(A, h, centre, precision):
    """Start the precision A and the pull h of a row from its prior; A is padded with zeros."""
    n = _U(len(h))
    A[:] = 0.0
    for a in range(n):
        h[a] = 0.0
        for b in range(n):
            A[a, b] = precision[a, b]
            h[a] += precision[a, b] * centre[b]


@njit(nogil=True, error_model="numpy", inline="always")
def _keep(factors, biases, place, drawn, D):
    """Write what was drawn, the bias last."""
    for d in range(D):
        factors[place, d] = drawn[d]
    biases[place] = drawn[D]


@njit(nogil=True, fastmath=True, error_model="numpy", inline="always")
def _fit(S, visit, others, factors, biases, place):
    """Return what rows make of an observation; the first row of S is used up."""
    total = biases[place] + gather(S, _U(0), visit, others, factors, biases, np.float32(1.0))
    for d in range(_U(factors.shape[1])):
        total += factors[place, d] * S[_U(0), d]
    return total
