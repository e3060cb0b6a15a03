"""Blocks of a table of rows with columns: what one draw adds to every cell."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from noisewise.engine.arrays import Floats
from noisewise.engine.gibbs.steps.variances import FLOOR
from noisewise.engine.training import chunks

TILE = 512  # columns at a time, whose products stay in the cache
LARGEST = float(np.finfo(np.float32).max)  # compiled code does not know of infinity
_U = np.uintp


class Block:
    """Sums over draws for cells of rows with columns: of the mean, and if full, of its spread."""

    total: Floats
    first: Floats
    centre: Floats
    square: Floats
    noise: Floats
    product: Floats
    ends: tuple[np.float32, np.float32]
    n: int
    full: bool

    def __init__(self, rows: int, columns: int, low: float, high: float, *, full: bool) -> None:
        self.total = np.zeros((rows, columns), dtype=np.float32)
        spread = np.zeros((4, *(self.total.shape if full else (0, 0))), dtype=np.float32)
        self.first, self.centre, self.square, self.noise = spread
        self.product = np.empty((rows, min(TILE, columns)), dtype=np.float32)
        self.ends = np.float32(max(low, -LARGEST)), np.float32(min(high, LARGEST))
        self.n, self.full = 0, full

    def add(self, a: Any, b: Any, constant: float) -> None:
        """Add a draw: rows and columns, and their noise where it is constant."""
        for part in chunks(len(b.biases), TILE):
            out = self.product[:, : len(b.biases[part])]
            np.matmul(a.factors, b.factors[part].T, out=out)
            given = out, a.biases, b.biases[part], *self.ends
            if not self.full:
                add_means(*given, self.total[:, part])
                continue
            if self.n == 0:
                self.first[:, part] = out + (a.biases[:, None] + b.biases[part])
            sums = self.total, self.first, self.centre, self.square, self.noise
            add_moments(
                *given, a.noise, np.ascontiguousarray(b.noise[part].T), np.float32(constant),
                np.float32(FLOOR), *(array[:, part] for array in sums),
            )  # fmt: skip
        self.n += 1

    def averages(self) -> tuple[Floats, Floats, Floats]:
        """Mean, noise and epistemic variance; the last two are empty unless it is full."""
        n = np.float32(self.n)
        epistemic = np.maximum(self.square / n - (self.centre / n) ** 2, np.float32(0.0))
        return self.total / n, self.noise / n, epistemic


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def add_means(product, own, other, low, high, total):
    """Add means, clipped: products of factors, and the biases of both."""
    for row in range(_U(product.shape[0])):
        bias = own[row]
        for column in range(_U(product.shape[1])):
            mean = product[row, column] + (bias + other[column])
            total[row, column] += min(max(mean, low), high)


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def add_moments(
    product, own, other, low, high, own_noise, other_noise, constant, floor, total, first, centre,
    square, noise,
):  # fmt: skip
    """Add means too, as they are and squared, apart from those of the first draw, and noise.

    Squares of the means themselves would drown small variances. Noise is low-rank, or ``constant``.
    """
    variance = np.empty(product.shape[1], dtype=np.float32)
    for row in range(_U(product.shape[0])):
        bias = own[row]
        variance[:] = constant if own_noise.shape[1] == 0 else np.float32(0.0)
        for k in range(_U(own_noise.shape[1])):
            factor = own_noise[row, k]
            for column in range(_U(product.shape[1])):
                variance[column] += factor * other_noise[k, column]
        for column in range(_U(product.shape[1])):
            mean = product[row, column] + (bias + other[column])
            total[row, column] += min(max(mean, low), high)
            noise[row, column] += max(variance[column], floor)
            apart = mean - first[row, column]
            centre[row, column] += apart
            square[row, column] += apart * apart
