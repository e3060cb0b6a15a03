"""Ratings of Netflix's shape and popularity whose truth is known, made on the GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

USERS, ITEMS, RATINGS = 480_189, 17_770, 100_000_000
MOST_POPULAR = 0.0023  # share of all ratings
FACTORS, TEST = 8, 2_000_000
SKEWED = 0.038


class World(NamedTuple):
    """Ratings as numpy has them, and cells whose mean is known."""

    codes: tuple[np.ndarray, np.ndarray]
    values: np.ndarray
    test: tuple[np.ndarray, np.ndarray]
    truth: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return USERS, ITEMS


def make(cupy: Any, n: int = RATINGS, top: float | None = None, seed: int = 0) -> World:
    """Draw users lognormal (sigma 1.3), items lognormal (sigma 1.9) and capped; values low-rank.

    ``top`` gives the most popular item this share of all ratings instead.
    """
    rng = np.random.default_rng(seed)
    users = rng.lognormal(0, 1.3, USERS)
    items = rng.lognormal(0, 1.9, ITEMS)
    items = np.minimum(items / items.sum(), MOST_POPULAR)
    items /= items.sum()
    if top is not None:
        items *= (1 - top) / (1 - items.max())
        items[items.argmax()] = top
    gpu = cupy.random.default_rng(seed)
    counts = rng.multinomial(n, users / users.sum())
    user = cupy.asarray(np.repeat(np.arange(USERS, dtype=np.int32), counts))
    ends = cupy.asarray(np.cumsum(items))
    item = cupy.searchsorted(ends, gpu.random(n)).clip(0, ITEMS - 1).astype(np.int32)
    order = cupy.argsort(gpu.random(n))  # as a file has them: in no order
    user, item = user[order], item[order]
    rows = [0.35 * gpu.standard_normal((USERS, FACTORS), dtype=np.float32)]
    rows.append(0.8 * gpu.standard_normal((ITEMS, FACTORS), dtype=np.float32))
    biases = [0.3 * gpu.standard_normal(USERS, dtype=np.float32)]
    biases.append(0.4 * gpu.standard_normal(ITEMS, dtype=np.float32))
    std = 0.4 + 0.8 * gpu.random(USERS, dtype=np.float32)

    def mean(i: Any, j: Any) -> Any:
        out = cupy.empty(len(i), dtype=np.float32)
        for start in range(0, len(i), 10_000_000):
            part = slice(start, start + 10_000_000)
            a, b = i[part], j[part]
            out[part] = (rows[0][a] * rows[1][b]).sum(axis=1) + biases[0][a] + biases[1][b]
        return 3.6 + out

    values = mean(user, item) + std[user] * gpu.standard_normal(n, dtype=np.float32)
    test = tuple(code[(gpu.random(TEST) * n).astype(np.int64)] for code in (user, item))
    truth = mean(*test)
    return World(
        (user.get(), item.get()), values.get(), tuple(code.get() for code in test), truth.get()
    )
