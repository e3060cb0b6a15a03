"""Loops over cells to predict: their mean, their variance, the mass of their levels."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from noisewise.engine.gibbs.steps.noise import FLOOR
from noisewise.engine.gibbs.steps.ordinal import cut_points
from noisewise.engine.normal import tails

_U = np.uintp


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


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def variances(places, noise, out):
    """Fill in the sum over factors of products of noise."""
    for cell in range(places.shape[1]):
        n = _U(cell)
        total = np.float32(0.0)
        for k in range(_U(noise.shape[1])):
            product = noise[_U(places[0, n]), k]
            for mode in range(1, places.shape[0]):
                product *= noise[_U(places[mode, n]), k]
            total += product
        out[n] = max(total, np.float32(FLOOR))


@njit(nogil=True, error_model="numpy", cache=True)
def masses(rows, widths, anchor, mean, variance, out):
    """Fill in the probability of every level of cells; ``rows`` says whose cut-points count."""
    cuts = np.empty(widths.shape[1] + 3)
    last = -1
    for cell in range(len(rows)):
        n = _U(cell)
        if rows[n] != last:
            last = rows[n]
            cut_points(widths[_U(last)].astype(np.float64), anchor, cuts)
        root = 1.0 / math.sqrt(variance[n])
        for k in range(out.shape[1]):
            a, b, _ = tails(root * (cuts[k] - mean[n]), root * (cuts[k + 1] - mean[n]))
            out[n, _U(k)] = b - a
