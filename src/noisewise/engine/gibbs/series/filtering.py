"""The Kalman filter of a draw of series, and its way back; loops over one joint state.

A path has one number of the state, or two if it is smooth: a value and a slope. First come those of
factors, then those of series, and at the end one strength of every calendar factor.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from noisewise.engine import paths


@njit(nogil=True, error_model="numpy", cache=True)
def end_paths(
    starts, time, values, times, end, loadings, factors, kind, timescales, amplitudes, variances,
    weights, first, means, covariances,
):  # fmt: skip
    """Fill in the states of the paths of all series at the end, given their observations."""
    width, most = factors.shape[1], 0
    for s in range(len(timescales)):
        most = max(most, starts[s + 1] - starts[s])
    w, pull, gaps = np.empty(most), np.empty(most), np.empty(most)
    filtered, spreads = np.empty((most, 2)), np.empty((most, 3))
    heavy = len(weights) == len(values)
    for s in range(len(timescales)):
        n = starts[s + 1] - starts[s]
        for k in range(n):
            i = starts[s] + k
            total = loadings[s, width]
            for d in range(width):
                total += loadings[s, d] * factors[times[i], d]
            w[k] = (weights[i] if heavy else 1.0) / variances[s]
            pull[k] = w[k] * (values[i] - total)
            gaps[k] = time[i] - time[i - 1] if k else 1.0
        paths.filter_path(
            0, n, gaps, w, pull, kind, timescales[s], amplitudes[s], filtered, spreads
        )
        F = paths.transition(kind, end - time[starts[s] + n - 1], timescales[s])
        m0, m1 = filtered[n - 1, 0], filtered[n - 1, 1]
        at = first + (1 + kind) * s
        p00, p01, p11 = paths.ahead(F, spreads[n - 1, 0], spreads[n - 1, 1], spreads[n - 1, 2])
        means[at] = F[0] * m0 + F[1] * m1
        covariances[at, at] = amplitudes[s] * p00
        if kind:
            means[at + 1] = F[2] * m0 + F[3] * m1
            covariances[at, at + 1] = covariances[at + 1, at] = amplitudes[s] * p01
            covariances[at + 1, at + 1] = amplitudes[s] * p11


@njit(nogil=True, error_model="numpy", cache=True)
def go_on(kind, gap, cycles, timescales, amplitudes, settings, own, other, fresh):
    """Fill in how a state goes on: what each number takes of itself and of its pair.

    ``fresh`` has what is added to variances, and to the covariance with the pair.
    """
    n = len(timescales)
    first = n * (1 + kind)
    for p in range(n):
        f00, f01, f10, f11, q00, q01, q11 = paths.transition(kind, gap, timescales[p])
        if kind == 0:
            own[p], other[p], fresh[p, 0], fresh[p, 1] = f00, 0.0, q00 * amplitudes[p], 0.0
        else:
            a, b = 2 * p, 2 * p + 1
            own[a], other[a], own[b], other[b] = f00, f01, f11, f10
            fresh[a, 0], fresh[b, 0] = q00 * amplitudes[p], q11 * amplitudes[p]
            fresh[a, 1] = fresh[b, 1] = q01 * amplitudes[p]
    for k in range(len(cycles)):
        phi = np.exp(-cycles[k] / settings[k, 0])
        at = first + k
        own[at], other[at] = phi, 0.0
        fresh[at, 0], fresh[at, 1] = settings[k, 1] * (1.0 - phi * phi), 0.0


@njit(nogil=True, error_model="numpy", cache=True)
def row_of(s, kind, rank, shapes, loadings, places, weights):
    """Fill in what makes a reading of a series out of the state: places, and their weights."""
    wide, n = 1 + kind, len(loadings)
    for k in range(rank):
        places[k], weights[k] = wide * k, loadings[s, k]
    places[rank], weights[rank] = wide * (rank + s), 1.0
    for k in range(len(shapes)):
        places[rank + 1 + k] = wide * (rank + n) + k
        weights[rank + 1 + k] = loadings[s, rank + k] * shapes[k]


@njit(nogil=True, error_model="numpy", cache=True)
def turn(P, own, other, paired, transposed, half):
    """Replace P by F P F', or by F' P F, of a transition F of single numbers and of pairs."""
    size = len(own)
    for j in range(size):
        twin = j + 1 - 2 * (j % 2) if j < paired else j
        side = other[twin] if transposed else other[j]
        for i in range(size):
            half[j, i] = own[j] * P[j, i]
            if twin != j:
                half[j, i] += side * P[twin, i]
    for i in range(size):
        twin = i + 1 - 2 * (i % 2) if i < paired else i
        side = other[twin] if transposed else other[i]
        for j in range(size):
            P[j, i] = own[i] * half[j, i]
            if twin != i:
                P[j, i] += side * half[j, twin]


@njit(nogil=True, error_model="numpy", cache=True)
def forwards(
    model, loud, variances, read_from, read, values, asked_from, asked, m, P, gains, errors, totals,
    told, mean, spread,
):  # fmt: skip
    """Filter: carry a state on from moment to moment, and correct it by readings.

    Of what is asked for, mean, variance and covariance with the state are as before the readings of
    the same moment, which are among those of the way back.
    """
    kind, rank, gaps, cycles, shapes, timescales, amplitudes, settings, loadings = model
    size, last = len(m), loadings.shape[1] - 1
    paired = 2 * len(timescales) if kind else 0
    own, other, fresh = np.empty(size), np.empty(size), np.empty((size, 2))
    half, old = np.empty((size, size)), np.empty(size)
    places = np.empty(rank + 1 + shapes.shape[1], np.int64)
    weights = np.empty(len(places))
    for t in range(len(gaps)):
        if gaps[t] > 0.0:
            go_on(kind, gaps[t], cycles[t], timescales, amplitudes, settings, own, other, fresh)
            old[:] = m
            for i in range(size):
                m[i] = own[i] * old[i]
                if i < paired:
                    m[i] += other[i] * old[i + 1 - 2 * (i % 2)]
            for i in range(len(timescales) * (1 + kind), size):
                m[i] += 1.0 - own[i]  # strengths are around 1
            turn(P, own, other, paired, False, half)
            for i in range(size):
                P[i, i] += fresh[i, 0]
                if i < paired:
                    P[i, i + 1 - 2 * (i % 2)] += fresh[i, 1]
        for a in range(asked_from[t], asked_from[t + 1]):
            row_of(asked[a], kind, rank, shapes[t], loadings, places, weights)
            mean[a], spread[a] = loadings[asked[a], last], 0.0
            told[a] = 0.0
            for k in range(len(places)):
                mean[a] += weights[k] * m[places[k]]
                told[a] += weights[k] * P[places[k]]
            for k in range(len(places)):
                spread[a] += weights[k] * told[a, places[k]]
        for r in range(read_from[t], read_from[t + 1]):
            s = read[r]
            row_of(s, kind, rank, shapes[t], loadings, places, weights)
            expected, total, gain = loadings[s, last], variances[s] * loud[t], gains[r]
            gain[:] = 0.0
            for k in range(len(places)):
                expected += weights[k] * m[places[k]]
                gain += weights[k] * P[places[k]]
            for k in range(len(places)):
                total += weights[k] * gain[places[k]]
            errors[r], totals[r] = values[r] - expected, total
            e = errors[r] / total
            for i in range(size):
                m[i] += gain[i] * e
                share = gain[i] / total
                for j in range(size):
                    P[i, j] -= share * gain[j]


@njit(nogil=True, error_model="numpy", cache=True)
def backwards(
    model, read_from, read, asked_from, gains, errors, totals, told, mean, spread
):  # fmt: skip
    """Smooth: tell what is asked of earlier moments what later readings say."""
    kind, rank, gaps, cycles, shapes, timescales, amplitudes, settings, loadings = model
    size = gains.shape[1]
    paired = 2 * len(timescales) if kind else 0
    own, other, fresh = np.empty(size), np.empty(size), np.empty((size, 2))
    half, old, pulled = np.empty((size, size)), np.empty(size), np.empty(size)
    places = np.empty(rank + 1 + shapes.shape[1], np.int64)
    weights = np.empty(len(places))
    pull, Q = np.zeros(size), np.zeros((size, size))
    for t in range(len(gaps) - 1, -1, -1):
        for r in range(read_from[t + 1] - 1, read_from[t] - 1, -1):
            row_of(read[r], kind, rank, shapes[t], loadings, places, weights)
            gain, total = gains[r], totals[r]
            towards, square = errors[r], 0.0
            for i in range(size):
                towards += gain[i] * pull[i]
                pulled[i] = 0.0
                for j in range(size):
                    pulled[i] += Q[i, j] * gain[j]
                square += gain[i] * pulled[i]
            for k in range(len(places)):
                share = weights[k] / total
                pull[places[k]] -= share * towards
                for i in range(size):
                    Q[places[k], i] -= share * pulled[i]
                    Q[i, places[k]] -= share * pulled[i]
                for j in range(len(places)):
                    Q[places[k], places[j]] += share * weights[j] * (1.0 + square / total)
        for a in range(asked_from[t], asked_from[t + 1]):
            for i in range(size):
                mean[a] -= told[a, i] * pull[i]
                for j in range(size):
                    spread[a] -= told[a, i] * Q[i, j] * told[a, j]
        if gaps[t] > 0.0:
            go_on(kind, gaps[t], cycles[t], timescales, amplitudes, settings, own, other, fresh)
            old[:] = pull
            for i in range(size):
                pull[i] = own[i] * old[i]
                if i < paired:
                    twin = i + 1 - 2 * (i % 2)
                    pull[i] += other[twin] * old[twin]
            turn(Q, own, other, paired, True, half)
