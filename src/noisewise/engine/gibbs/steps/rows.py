"""Rows given everything else: a weighted regression each, solved and drawn exactly.

    value_n - (effects of time) = x_n . U_i + u_i + biases of the other modes + noise_n

where ``x_n`` is the product of the other modes' rows. With the prior N(m_i, Lam^-1) on [U_i, u_i],
the posterior has precision ``A = Lam + sum w_n [x_n, 1][x_n, 1]'``. Products are summed by BLAS, in
float32 unless some w_n is very large, factorised and solved in float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from noisewise.engine.gibbs.sweep import ROWS, RatingDraw, Step
from noisewise.engine.random import normal_pair, stream

CHUNK = 512  # observations gathered at a time: they stay in the second cache
EXACT_FROM = 100.0  # root of a precision from which float32 is not enough for sums of products
NO_EFFECTS = np.empty((0, 0), dtype=np.float32)
_U = np.uintp


class Target(Step[RatingDraw]):
    """Take temporal effects from the values: rows are to explain the rest."""

    def _draw(self, draw: RatingDraw) -> None:
        values = draw.latent if self.spec.ordinal else self.data.values
        self.work.target = np.asarray(values - draw.temporal_sum())


class Rows(Step[Any]):
    """Draw the rows of a mode; after the last mode, set the residual."""

    def _draw(self, draw: Any) -> None:
        data, mode, work = self.data, self.mode, self.work
        regressed = self.spec.implicit or data.designs
        effects = draw.effects[data.part(mode)] if regressed else NO_EFFECTS
        last = mode == data.n_modes - 1
        exact = work.largest_root() > EXACT_FROM
        sums = np.empty(0, dtype=np.float64 if exact else np.float32)
        root, target = (work.visited(mode, array) for array in (work.root, work.target))
        work.over(
            data.tasks[mode], draw_rows, data.starts[mode], data.index[mode], data.others[mode],
            draw.factors, draw.biases, data.firsts[mode], root, target, draw.centres[mode],
            effects, draw.precisions[mode], self.spec.rank, work.key(draw, ROWS, mode), sums,
            draw.fitted if last else draw.fitted[:0],
        )  # fmt: skip
        if last:
            work.residual = work.target - draw.fitted


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def draw_rows(
    chosen, starts, index, others, factors, biases, first, root, target, centre, effects,
    precision, rank, key, sums, fitted,
):  # fmt: skip
    """Draw the chosen rows of a mode, which are in ``factors`` from ``first`` on.

    Row i is visited from ``starts[i]`` to ``starts[i + 1]``, observation ``index[k]`` at visit k;
    ``others``, ``root`` of the precision and ``target`` come in the order of visits. ``effects``
    are added to ``centre``, and ``fitted`` is filled in, if not empty. Products are summed in the
    type of ``sums``.
    """
    D, width = _U(rank), factors.shape[1]
    D1 = D + _U(1)
    A = np.empty((rank + 1, (rank + 8) // 8 * 8))
    gram = np.empty((width, width), dtype=sums.dtype)
    S = np.empty((CHUNK, width), dtype=sums.dtype)
    pull, edge = np.empty(width, dtype=sums.dtype), np.empty(width, dtype=sums.dtype)
    own, one = np.empty(width, dtype=sums.dtype), np.ones(1, dtype=sums.dtype)[0]
    h, out, mean = np.empty(rank + 1), np.empty(rank + 2), np.empty(rank + 1)
    for row in chosen:
        i = _U(row)
        for a in range(D1):
            mean[a] = centre[a] + (effects[i, a] if len(effects) else 0.0)
        for a in range(D1):
            total = 0.0
            for b in range(D1):
                A[a, b] = precision[a, b]
                total += precision[a, b] * mean[b]
            h[a] = total
            for b in range(D1, _U(A.shape[1])):
                A[a, b] = 0.0
        for start in range(starts[i], starts[i + _U(1)], CHUNK):
            m = min(CHUNK, starts[i + _U(1)] - start)
            weight, shift = 0.0, 0.0
            pull[:], edge[:] = 0.0, 0.0
            for k in range(m):
                n, s = _U(start + k), _U(k)
                r = one * root[n]  # of the type of sums, which must agree to the last digit
                bias = gather(S, s, n, others, factors, biases, r)
                y = r * (target[n] - bias)
                weight += r * r
                shift += r * y
                for d in range(_U(width)):
                    pull[d] += y * S[s, d]
                    edge[d] += r * S[s, d]
            add_products(A, h, S[:m], gram, pull, edge, weight, shift)
        state = stream(key, i)
        factorise(A, D1)
        draw(A, h, D1, state, out)
        place = _U(first) + i
        for d in range(D):
            factors[place, d] = out[d]
        biases[place] = out[D]
        if len(fitted):
            for d in range(_U(width)):
                own[d] = factors[place, d]
            for k in range(starts[i], starts[i + _U(1)]):
                total = biases[place] + gather(S, _U(0), _U(k), others, factors, biases, one)
                for d in range(_U(width)):
                    total += own[d] * S[_U(0), d]
                fitted[_U(index[k])] = total


@njit(nogil=True, fastmath=True, error_model="numpy", inline="always")
def gather(S, s, n, others, factors, biases, root):
    """Put ``root * x_n`` into a row of S; return the sum of the other modes' biases."""
    j = _U(others[0, n])
    bias = biases[j]
    for d in range(_U(factors.shape[1])):
        S[s, d] = root * factors[j, d]
    for o in range(1, others.shape[0]):
        j = _U(others[o, n])
        bias += biases[j]
        for d in range(_U(factors.shape[1])):
            S[s, d] *= factors[j, d]
    return bias


@njit(nogil=True, error_model="numpy", cache=True)
def add_products(A, h, X, gram, pull, edge, weight, shift):
    """Add observations with the regressors X, and the bias's: its products are ``edge``."""
    D = _U(len(h)) - _U(1)
    np.dot(X.T, X, gram)
    for a in range(D):
        for b in range(a, D):
            A[a, b] += gram[a, b]
        A[a, D] += edge[a]
        h[a] += pull[a]
    A[D, D] += weight
    h[D] += shift


@njit(nogil=True, fastmath=True, error_model="numpy", inline="always")
def factorise(A, n):
    """Overwrite the upper half of A, whose rows are padded, by R with R'R = A; beats LAPACK."""
    width = _U(A.shape[1])
    for k in range(_U(0), n, _U(2)):
        scale = 1.0 / math.sqrt(A[k, k])
        for b in range(k, width):
            A[k, b] *= scale
        l = k + _U(1)  # noqa: E741
        if l == n:
            return
        f = A[k, l]
        for b in range(l, width):
            A[l, b] -= f * A[k, b]
        scale = 1.0 / math.sqrt(A[l, l])
        for b in range(l, width):
            A[l, b] *= scale
        for i in range(l + _U(1), n):
            f, g = A[k, i], A[l, i]
            for b in range(i // _U(8) * _U(8), width):
                A[i, b] -= f * A[k, b] + g * A[l, b]


@njit(nogil=True, fastmath=True, error_model="numpy", inline="always")
def draw(R, h, n, state, out):
    """Draw from N(A^-1 h, A^-1), where R'R = A; h is used up."""
    for k in range(_U(0), n, _U(2)):
        state, out[k], out[k + _U(1)] = normal_pair(state)
    for k in range(n):
        h[k] /= R[k, k]
        for b in range(k + _U(1), n):
            h[b] -= h[k] * R[k, b]
    for back in range(n):
        k = n - _U(1) - back
        total = h[k] + out[k]
        for b in range(k + _U(1), n):
            total -= R[k, b] * out[b]
        out[k] = total / R[k, k]


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def means(places, factors, biases, out):
    """Fill in the sum of biases and products of factors; rows are at ``places`` of each mode."""
    for cell in range(places.shape[1]):
        n = _U(cell)
        i, j = _U(places[0, n]), _U(places[1, n])
        total = biases[i] + biases[j]
        if places.shape[0] == 2:
            for d in range(_U(factors.shape[1])):
                total += factors[i, d] * factors[j, d]
        else:
            for mode in range(2, places.shape[0]):
                total += biases[_U(places[mode, n])]
            for d in range(_U(factors.shape[1])):
                product = factors[i, d] * factors[j, d]
                for mode in range(2, places.shape[0]):
                    product *= factors[_U(places[mode, n]), d]
                total += product
        out[n] = total
