"""Many small factorizations, each for its own neighbourhood, blended into one prediction.

A neighbourhood has an anchor, and a weight for every row of either mode; the weight of a cell is
the product of the two. With what global biases leave of the values, local model t and the blend are

    f_t(i, j) = a_ti + b_tj + A_ti . B_tj                f(i, j) = sum_t w_t f_t / sum_t w_t

Each minimises its own weighted error, or all together the error of the blend. Threads take whole
models in the first case, blocks that share no row in the second: the number of threads changes no
bit of either.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit

from noisewise import schema
from noisewise.engine import arrays
from noisewise.engine.arrays import Codes, Floats
from noisewise.engine.sgd.strata import CHUNK, LEAST_VARIANCE, arrange
from noisewise.engine.training import EpochInfo, in_threads
from noisewise.errors import brief
from noisewise.schema import Entry, Found, Source, Tensor, integer, real
from noisewise.storage import Tensors

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
_compiled: Callable[[Kernel], Kernel] = njit(
    fastmath=True, error_model="numpy", nogil=True, cache=True
)
START_STD = 0.17  # of the first factors: large, so that models differ, and their blend gains
Weights = tuple[Floats, Floats]  # of every row of each mode in every neighbourhood


@dataclass
class LocalState:
    """The arrays that training changes and a checkpoint keeps.

    Attributes
    ----------
    rows
        Per mode, of shape (models, rows, 1 + rank): bias and factors.
    epoch
        Number of finished epochs.
    variance
        Mean squared error of the last epoch.
    """

    rows: tuple[Floats, Floats]
    epoch: int = 0
    variance: float = 1.0

    __repr__ = brief

    @classmethod
    def start(cls, models: int, shape: tuple[int, ...], rank: int, seed: int) -> LocalState:
        """Draw the state to start from: no biases, random factors."""
        rng = np.random.default_rng([seed, 6])
        rows = []
        for n in shape:
            part = rng.standard_normal((models, n, 1 + rank), dtype=np.float32)
            part *= np.float32(START_STD)
            part[:, :, 0] = 0.0
            rows.append(part)
        return cls((rows[0], rows[1]))

    def copy(self) -> LocalState:
        """Return a state of its own, to be kept while training goes on."""
        first, second = (part.copy() for part in self.rows)
        return LocalState((first, second), self.epoch, self.variance)

    def is_finite(self) -> bool:
        """Whether every number is finite (a sum is enough to see it)."""
        return all(np.isfinite(part.sum(dtype=np.float64)) for part in self.rows)

    def pack(self) -> tuple[dict[str, Any], Tensors]:
        """Header and tensors of a checkpoint."""
        return schema.packed(local_schema(*self._sizes, "", ""), self)

    def restored(self, source: arrays.Source) -> LocalState:
        """Return a state like this one with what ``pack`` gave; the file is not trusted."""
        part = Source(source.header, source.tensors)
        return LocalState.of(schema.unpacked(local_schema(*self._sizes, "", ""), part), "")

    @classmethod
    def of(cls, found: Found, prefix: str) -> LocalState:
        """Make it of what a file has."""
        rows = found["local0"], found["local1"]
        return cls(rows, found[f"{prefix}epoch"], found[f"{prefix}variance"])

    @property
    def _sizes(self) -> tuple[int, tuple[int, ...], int]:
        models, _, width = self.rows[0].shape
        return models, tuple(part.shape[1] for part in self.rows), width - 1


def local_schema(
    models: int, shape: tuple[int, ...], rank: int, prefix: str, of: str
) -> schema.Schema:
    """Declare what a file, or a checkpoint, keeps of local models."""
    yield Entry(f"{prefix}epoch", f"{of}epoch", integer())
    yield Entry(f"{prefix}variance", f"{of}variance", real(above=0.0))
    for mode, n in enumerate(shape):
        yield Tensor(f"local{mode}", "float32", (models, n, 1 + rank), f"{of}rows.{mode}")


@dataclass(frozen=True)
class Cells:
    """Observations in strata of blocks that share no row (see ``cpu``), by the codes of the ids."""

    codes: tuple[Codes, Codes]
    values: Floats
    starts: npt.NDArray[np.int64]
    side: int

    @classmethod
    def arrange(
        cls, codes: tuple[Codes, ...], values: Floats, shape: tuple[int, ...], width: int
    ) -> Cells:
        """Deal observations into strata; ``width`` is the number of floats of a row."""
        blocks = arrange(codes, values, shape, width)
        first, second = (
            np.argsort(order).astype(np.int32)[code]
            for order, code in zip(blocks.order, blocks.codes, strict=True)
        )
        return cls((first, second), blocks.values, blocks.starts, blocks.side)


def epoch_of_each(
    state: LocalState, cells: Cells, weights: Weights, rate: float, l2: float, n_jobs: int
) -> EpochInfo:
    """Visit every observation once in every neighbourhood, for models that learn on their own."""
    models = len(weights[0])
    sums = np.zeros((models, 2))

    def work(t: int) -> None:
        visit_model(
            *cells.codes, cells.values, weights[0][t], weights[1][t], state.rows[0][t],
            state.rows[1][t], np.float32(rate), np.float32(l2), sums[t],
        )  # fmt: skip

    in_threads(work, range(models), n_jobs)
    squared, weight = sums.sum(axis=0).tolist()
    return _reported(state, squared / max(weight, 1e-30))


def epoch_of_blend(
    state: LocalState,
    cells: Cells,
    weights: Weights,
    rate: float,
    l2: float,
    seed: int,
    n_jobs: int,
) -> EpochInfo:
    """Visit every observation once, for models that learn from the error of their blend."""
    sums = np.zeros((cells.side**2, 2))

    def work(block: int) -> None:
        visit_blend(
            cells.starts[block], cells.starts[block + 1], *cells.codes, cells.values, *weights,
            *state.rows, np.float32(rate), np.float32(l2), sums[block],
        )  # fmt: skip

    strata = np.random.default_rng([seed, 7, state.epoch]).permutation(cells.side).tolist()
    for stratum in strata:
        in_threads(work, range(stratum * cells.side, (stratum + 1) * cells.side), n_jobs)
    squared, n = sums.sum(axis=0).tolist()
    return _reported(state, squared / max(n, 1.0))


class Blended(NamedTuple):
    """What the local models make of cells."""

    mean: Floats
    between: Floats  # the variance between the models that are blended
    reached: npt.NDArray[np.bool_]  # by a neighbourhood; the others are 0


def blend(state: LocalState, weights: Weights, codes: tuple[Codes, ...], n_jobs: int) -> Blended:
    """Blend the local models in cells."""
    mean, between = np.zeros((2, len(codes[0])), dtype=np.float32)
    reached = np.zeros(len(mean), dtype=np.bool_)

    def work(start: int) -> None:
        part = slice(start, start + CHUNK)
        predict_blend(
            codes[0][part], codes[1][part], *weights, *state.rows, mean[part], between[part],
            reached[part],
        )  # fmt: skip

    in_threads(work, range(0, len(mean), CHUNK), n_jobs)
    return Blended(mean, between, reached)


def _reported(state: LocalState, squared: float) -> EpochInfo:
    state.epoch += 1
    state.variance = max(squared, LEAST_VARIANCE)
    nll = 0.5 * (math.log(2.0 * math.pi * state.variance) + 1.0)
    return EpochInfo(state.epoch, math.sqrt(squared), nll)


@_compiled
def visit_model(
    row: Codes, column: Codes, value: Floats, x: Floats, y: Floats, A: Floats, B: Floats,
    rate: np.float32, l2: np.float32, sums: npt.NDArray[np.float64],
) -> None:  # fmt: skip
    """Gradient steps of one model, over the cells of its neighbourhood."""
    D = np.uintp(A.shape[1])
    bias, one = np.uintp(0), np.float32(1.0)
    squared, weight = 0.0, 0.0
    for n in range(len(row)):
        i, j = np.uintp(row[n]), np.uintp(column[n])
        w = x[i] * y[j]
        if w <= 0.0:
            continue
        f = A[i, bias] + B[j, bias]
        for d in range(np.uintp(1), D):
            f += A[i, d] * B[j, d]
        e = value[n] - f
        squared += w * e * e
        weight += w
        g, keep = rate * w * e, one - rate * w * l2
        A[i, bias] = keep * A[i, bias] + g
        B[j, bias] = keep * B[j, bias] + g
        for d in range(np.uintp(1), D):
            a, b = A[i, d], B[j, d]
            A[i, d] = keep * a + g * b
            B[j, d] = keep * b + g * a
    sums[0], sums[1] = squared, weight


@_compiled
def visit_blend(
    start: int, stop: int, row: Codes, column: Codes, value: Floats, X: Floats, Y: Floats,
    A: Floats, B: Floats, rate: np.float32, l2: np.float32, sums: npt.NDArray[np.float64],
) -> None:  # fmt: skip
    """Gradient steps of all models, over the cells of one block."""
    T, D = np.uintp(A.shape[0]), np.uintp(A.shape[2])
    bias, one = np.uintp(0), np.float32(1.0)
    squared, visited = 0.0, 0.0
    for n in range(start, stop):
        i, j = np.uintp(row[n]), np.uintp(column[n])
        total, mean = np.float32(0.0), np.float32(0.0)
        for t in range(T):
            w = X[t, i] * Y[t, j]
            if w > 0.0:
                f = A[t, i, bias] + B[t, j, bias]
                for d in range(np.uintp(1), D):
                    f += A[t, i, d] * B[t, j, d]
                total += w
                mean += w * f
        if total <= 0.0:
            continue
        e = value[n] - mean / total
        squared += e * e
        visited += 1.0
        for t in range(T):
            w = X[t, i] * Y[t, j] / total
            if w > 0.0:
                g, keep = rate * w * e, one - rate * w * l2
                A[t, i, bias] = keep * A[t, i, bias] + g
                B[t, j, bias] = keep * B[t, j, bias] + g
                for d in range(np.uintp(1), D):
                    a, b = A[t, i, d], B[t, j, d]
                    A[t, i, d] = keep * a + g * b
                    B[t, j, d] = keep * b + g * a
    sums[0], sums[1] = squared, visited


@_compiled
def predict_blend(
    row: Codes, column: Codes, X: Floats, Y: Floats, A: Floats, B: Floats,
    mean: Floats, between: Floats, reached: npt.NDArray[np.bool_],
) -> None:  # fmt: skip
    """Fill in what is blended, its weighted variance, and where there was anything to blend."""
    T, D = np.uintp(A.shape[0]), np.uintp(A.shape[2])
    for n in range(len(row)):
        i, j = np.uintp(row[n]), np.uintp(column[n])
        total, first, second = 0.0, 0.0, 0.0
        for t in range(T):
            w = X[t, i] * Y[t, j]
            if w > 0.0:
                f = A[t, i, np.uintp(0)] + B[t, j, np.uintp(0)]
                for d in range(np.uintp(1), D):
                    f += A[t, i, d] * B[t, j, d]
                total += w
                first += w * f
                second += w * f * f
        if total > 0.0:
            middle = first / total
            mean[n] = middle
            between[n] = max(second / total - middle * middle, 0.0)
            reached[n] = True
