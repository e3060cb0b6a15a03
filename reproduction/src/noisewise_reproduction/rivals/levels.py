"""What a Boltzmann machine has learned: chances of every level, and the moments of cells.

Epistemic variance is told from counts alone, as for factorizations: what differs between users in
the mean of an item is not known of a new user, and ever better known after n observations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from noisewise.engine.arrays import Codes, Counts, Floats, Moments
from noisewise.engine.sgd.strata import LEAST_VARIANCE
from noisewise.engine.training import one_blas_thread
from noisewise.errors import brief
from noisewise.schema import ANY, COUNTS, NOT_NEGATIVE, RISING, Found, Schema, Tensor

CHUNK_FLOATS = 2_000_000  # gathered or built at a time
SAMPLE = 256  # rows over which the spread of means is measured


@dataclass(frozen=True)
class Levels:
    """Hidden units of the examples, weights and biases of the visible units.

    The last row of each stands for an id never seen: the average of the known ones.

    Attributes
    ----------
    values
        The levels, sorted.
    hidden
        Probability of every hidden unit of every example.
    weights, bias
        Per visible unit and level.
    counts
        Observations of every example, and of every visible unit.
    spread
        For every example, the variance of its means over visible units; for those, over examples.
    shrink
        Share of it that is still epistemic, for every example and every visible unit.
    """

    values: Floats
    hidden: Floats
    weights: Floats
    bias: Floats
    counts: tuple[Counts, Counts]
    spread: tuple[Floats, Floats]
    shrink: tuple[Floats, Floats]

    __repr__ = brief

    @classmethod
    def finalize(
        cls,
        values: Floats,
        hidden: Floats,
        weights: Floats,
        bias: Floats,
        counts: tuple[Counts, Counts],
    ) -> Levels:
        """Add what an id never seen gets, and measure how much the ids differ."""
        nothing: Floats = np.empty(0, dtype=np.float32)
        levels = cls(
            values, _with_average(hidden, counts[0]), _with_average(weights, counts[1]),
            _with_average(bias, counts[1]), counts, (nothing, nothing), (nothing, nothing),
        )  # fmt: skip
        with one_blas_thread():  # the same bits on any machine's threads
            spread, noise = levels._spread()
        first, second = (
            (1.0 / (1.0 + np.append(count, 0) * other.mean() / noise)).astype(np.float32)
            for count, other in zip(counts, reversed(spread), strict=True)
        )
        return replace(levels, spread=spread, shrink=(first, second))

    def known_codes(self, codes: tuple[Codes, Codes]) -> tuple[Codes, Codes]:
        """Send ids never trained on (-1, or without observations) to the last row."""
        first, second = (
            np.where((code >= 0) & (count[code] > 0), code, len(count)).astype(np.int32)
            for code, count in zip(codes, self.counts, strict=True)
        )
        return first, second

    def chances(self, codes: tuple[Codes, Codes]) -> Floats:
        """Probability of every level in cells; codes as from ``known_codes``."""
        chances = np.empty((len(codes[0]), len(self.values)), dtype=np.float32)
        for part in _chunks(len(chances), self.weights[0].size):
            i, j = (code[part] for code in codes)
            product = np.einsum("nf,nkf->nk", self.hidden[i], self.weights[j])
            chances[part] = softmax(product + self.bias[j], axis=1)
        return chances

    def moments(self, codes: tuple[Codes, Codes]) -> Moments:
        """Moments of cells; codes as from ``known_codes``."""
        mean, variance = self._mean_and_variance(self.chances(codes))
        noise = np.maximum(variance, np.float32(LEAST_VARIANCE))  # where there is but one level
        i, j = codes
        epistemic = self.shrink[0][i] * self.spread[1][j] + self.shrink[1][j] * self.spread[0][i]
        return Moments(mean, noise, epistemic)

    @classmethod
    def schema(cls, shape: tuple[int, int], hidden: int) -> Schema:
        """Declare what a file keeps of ``distribution_``; averages are made again."""
        values = yield Tensor("levels", "float32", (ANY,), "distribution_.values", RISING)
        n, m = shape
        of_rows = {"hidden": (n, hidden), "weights": (m, len(values), hidden)}
        for name, size in (of_rows | {"bias": (m, len(values))}).items():
            yield Tensor(name, "float32", size, partial(_without_average, name))
        for side, length in enumerate(shape):
            of, size = f"distribution_.{{}}.{side}", (length + 1,)
            yield Tensor(f"counts{side}", "int64", (length,), of.format("counts"), COUNTS)
            for name in ("spread", "shrink"):
                yield Tensor(f"{name}{side}", "float32", size, of.format(name), NOT_NEGATIVE)

    @classmethod
    def of(cls, found: Found) -> Levels:
        """Make it of what a file has."""
        counts, spread, shrink = (
            (found[f"{name}0"], found[f"{name}1"]) for name in ("counts", "spread", "shrink")
        )
        return cls(
            found["levels"],
            _with_average(found["hidden"], counts[0]),
            _with_average(found["weights"], counts[1]),
            _with_average(found["bias"], counts[1]),
            counts,
            spread,
            shrink,
        )

    def _mean_and_variance(self, chances: Floats) -> tuple[Floats, Floats]:
        mean = (chances * self.values).sum(axis=-1)
        variance = (chances * (self.values - mean[..., None]) ** 2).sum(axis=-1)
        return mean, variance

    def _spread(self) -> tuple[tuple[Floats, Floats], float]:
        """Variance of the means of every row over a sample of the other side, and typical noise."""
        some = [_sample(count) for count in self.counts]
        of_example, of_visible = (np.empty(len(c) + 1, dtype=np.float32) for c in self.counts)
        noise = []
        for part in _chunks(len(of_example), len(some[1]) * len(self.values)):
            mean, _ = self._table(self.hidden[part], some[1])
            of_example[part] = mean.var(axis=1)
        for part in _chunks(len(of_visible), len(some[0]) * len(self.values)):
            mean, variance = self._table(self.hidden[some[0]], part)
            of_visible[part] = mean.var(axis=0)
            noise.append(variance.mean())
        for spread, count in zip((of_example, of_visible), self.counts, strict=True):
            spread[-1] = spread[:-1][count > 0].mean()
        return (of_example, of_visible), max(float(np.mean(noise)), LEAST_VARIANCE)

    def _table(self, hidden: Floats, visible: Any) -> tuple[Floats, Floats]:
        weights = self.weights[visible]
        product = hidden @ weights.reshape(-1, weights.shape[-1]).T
        product = product.reshape(len(hidden), *weights.shape[:2]) + self.bias[visible]
        return self._mean_and_variance(softmax(product, axis=2))


def _without_average(name: str, model: Any) -> Floats:
    rows: Floats = getattr(model.distribution_, name)[:-1]
    return rows


def _with_average(rows: Floats, count: Counts) -> Floats:
    average = rows[count > 0].mean(axis=0, keepdims=True, dtype=np.float64)
    return np.append(rows, average.astype(np.float32), axis=0)


def _sample(count: Counts) -> npt.NDArray[np.intp]:
    """Pick some rows that have observations, evenly spaced."""
    rows = np.flatnonzero(count)
    return rows[np.linspace(0, len(rows) - 1, min(SAMPLE, len(rows))).astype(np.intp)]


def _chunks(n: int, width: int) -> Iterator[slice]:
    size = max(1, CHUNK_FLOATS // width)
    for start in range(0, n, size):
        yield slice(start, start + size)
