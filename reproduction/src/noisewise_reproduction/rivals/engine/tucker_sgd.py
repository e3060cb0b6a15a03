"""A Tucker decomposition of the observed cells: a row per id and a core that joins them.

    mean = sum_abc G_abc A_ia B_jb C_kc          (for any number of modes)

learned by AdaGrad on squared errors with L2, one observation after another: every one changes the
core, so the order is fixed and there are no threads in training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from numba import njit
from scipy.sparse.linalg import svds

from noisewise.engine.arrays import Floats, Source
from noisewise.engine.sgd.layout import ADAGRAD_START
from noisewise.engine.training import CHUNK, EpochInfo, in_threads, one_blas_thread
from noisewise.errors import DivergedError
from noisewise.storage import Tensors

Places = npt.NDArray[np.int32]

SMALL = 512  # ids of a mode whose products with each other fit in a matrix
FARTHEST = 3.0  # entry of a row at the start: a singular vector may sit on a single row
SHRINK = 10  # observations per factor at which a row is halved at the start
RANDOM = 0.1  # std of entries that no singular vector gives

_ONE = np.uintp(1)


@dataclass(frozen=True)
class Params:
    """What the user chose: rank of each mode, step, penalty, seed of all random streams."""

    ranks: tuple[int, ...]
    learning_rate: float
    l2: float
    seed: int


@dataclass
class State:
    """What training changes and a checkpoint keeps.

    Attributes
    ----------
    rows, row_sums
        Rows of all modes one after another, as wide as the largest rank, and their AdaGrad sums.
        Each mode has one more row than ids, for an id never seen.
    core, core_sums
        The core, flat, the last mode's index running fastest.
    epoch
        Number of finished epochs.
    variance
        Mean squared residual of the last epoch.
    """

    rows: Floats
    row_sums: Floats
    core: Floats
    core_sums: Floats
    epoch: int = 0
    variance: float = 1.0

    @property
    def _arrays(self) -> dict[str, Floats]:
        names = ("rows", "row_sums", "core", "core_sums")
        return {name: getattr(self, name) for name in names}

    def copy(self) -> State:
        """Return a state of its own, to be kept while training goes on."""
        copies = {name: array.copy() for name, array in self._arrays.items()}
        return State(**copies, epoch=self.epoch, variance=self.variance)

    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return all(bool(np.isfinite(array).all()) for array in self._arrays.values())

    def pack(self) -> tuple[dict[str, Any], Tensors]:
        """Header and tensors of a checkpoint."""
        return {"epoch": self.epoch, "variance": self.variance}, dict(self._arrays)

    def restored(self, source: Source) -> State:
        """Return a state like this one with what ``pack`` gave; the file is not trusted."""
        copy = self.copy()
        for name, array in copy._arrays.items():
            array[:] = source.array(name, "float32", *array.shape)
        copy.epoch, copy.variance = source.whole("epoch"), source.real("variance", above=0.0)
        return copy


def places_of(codes: tuple[npt.NDArray[Any], ...], shape: tuple[int, ...]) -> Places:
    """Return, per mode, the place of the row of every observation."""
    pairs = zip(codes, first_places(shape), strict=True)
    return np.array([code + first for code, first in pairs], dtype=np.int32)


def first_places(shape: tuple[int, ...]) -> list[int]:
    """Return the place of each mode's first row."""
    return [sum(shape[:mode]) + mode for mode in range(len(shape))]


def initial_state(
    params: Params, codes: tuple[npt.NDArray[Any], ...], values: Floats, shape: tuple[int, ...]
) -> State:
    """Start from the leading singular vectors of the unfoldings, where what is missing is zero.

    No unfolding is ever dense. Rows of few observations are shrunk, as singular vectors fit them
    too well. The core is the mean product of values and rows over observed cells, scaled to fit.
    """
    rng = np.random.default_rng([params.seed, 0])
    width = max(params.ranks)
    rows = np.zeros((sum(shape) + len(shape), width), dtype=np.float32)
    for mode, first in enumerate(first_places(shape)):
        n, rank = shape[mode], params.ranks[mode]
        vectors = leading_vectors(_unfolded(codes, values, shape, mode), rank, rng)
        counts = np.bincount(codes[mode], minlength=n)
        trust = counts / (counts + SHRINK * rank)
        own = np.clip(np.sqrt(n) * vectors, -FARTHEST, FARTHEST)
        rows[first : first + n, :rank] = trust[:, None] * own
    places, ranks = places_of(codes, shape), _ranks(params)
    core = np.zeros(int(np.prod(params.ranks)), dtype=np.float32)
    _project(places, values, rows, ranks, core)
    fitted = predict(rows, core, params.ranks, places).astype(np.float64)
    size = float(fitted @ fitted)
    core *= np.float32(np.clip(fitted @ values / size, 0.0, 1.0) if size > 0 else 1.0)
    core += rng.normal(0.0, 0.01, len(core)).astype(np.float32)  # zero would be a saddle
    sums = [np.full_like(array, ADAGRAD_START) for array in (rows, core)]
    return State(rows, sums[0], core, sums[1])


def leading_vectors(matrix: Any, rank: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Return the left singular vectors of the largest singular values of a sparse matrix.

    Columns that it has no singular vector for are random and small.
    """
    n = matrix.shape[0]
    vectors: npt.NDArray[Any] = RANDOM / np.sqrt(n) * rng.normal(size=(n, rank))
    many = min(rank, min(matrix.shape) - 1)
    if not matrix.count_nonzero():
        return vectors
    with one_blas_thread():
        if n <= SMALL:
            square = (matrix @ matrix.T).toarray()
            if not np.isfinite(square).all():
                raise DivergedError("These values are too large to be squared: scale them down.")
            vectors = np.linalg.eigh(square)[1][:, : -rank - 1 : -1]
        elif many >= 1:
            start = rng.normal(size=min(matrix.shape))
            found = svds(matrix, k=many, v0=start, return_singular_vectors="u")[0]
            vectors[:, :many] = found[:, ::-1]
    return vectors


def epoch(state: State, places: Places, values: Floats, params: Params) -> EpochInfo:
    """Visit every observation once, in a random order that the seed and the epoch decide."""
    order = np.random.default_rng([params.seed, 1, state.epoch]).permutation(len(values))
    error = _epoch(
        order.astype(np.int32), places, values, state.rows, state.row_sums, state.core,
        state.core_sums, _ranks(params), np.float32(params.learning_rate), np.float32(params.l2),
    )  # fmt: skip
    state.epoch += 1
    state.variance = error / len(values)
    nll = 0.5 * (np.log(2 * np.pi * max(state.variance, 1e-12)) + 1.0)
    return EpochInfo(state.epoch, float(np.sqrt(state.variance)), float(nll))


def predict(
    rows: Floats, core: Floats, ranks: tuple[int, ...], places: Places, n_jobs: int = 1
) -> Floats:
    """Return the mean of cells; threads change no bit."""
    out = np.empty(places.shape[1], dtype=np.float32)
    sizes = np.array(ranks, dtype=np.int64)

    def work(start: int) -> None:
        part = slice(start, start + CHUNK)
        _predict(np.ascontiguousarray(places[:, part]), rows, core, sizes, out[part])

    in_threads(work, range(0, len(out), CHUNK), n_jobs)
    return out


def _ranks(params: Params) -> npt.NDArray[np.int64]:
    return np.array(params.ranks, dtype=np.int64)


def _unfolded(
    codes: tuple[npt.NDArray[Any], ...], values: Floats, shape: tuple[int, ...], mode: int
) -> Any:
    """Return the tensor as a sparse matrix with a row per id of a mode."""
    columns = np.zeros(len(values), dtype=np.int64)
    for other, (code, n) in enumerate(zip(codes, shape, strict=True)):
        if other != mode:  # numbered anew each time, so that no product of sizes is too large
            columns = np.unique(columns * n + code, return_inverse=True)[1]
    size = shape[mode], int(columns.max()) + 1
    entries = values.astype(np.float64), (codes[mode], columns)
    return scipy.sparse.csr_matrix(entries, shape=size)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    options = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": True}
    compiled: Callable[..., Any] = njit(**options)(function)
    return compiled


@_compiled
def _multiply(outer: Any, size: Any, row: Any, rank: Any) -> None:
    """Replace ``outer[:size]`` by its outer product with a row, backwards, so that none is lost."""
    for back in range(size):
        i = size - 1 - back
        x = outer[np.uintp(i)]
        for a in range(rank):
            outer[np.uintp(i * rank + a)] = x * row[np.uintp(a)]


@_compiled
def _project(places: Any, values: Any, rows: Any, ranks: Any, core: Any) -> None:
    """Add up the mean product of values and rows."""
    outer = np.empty_like(core)
    total = np.zeros(len(core))
    for n in range(len(values)):
        outer[0], size = values[n], 1
        for m in range(len(ranks)):
            _multiply(outer, size, rows[places[m, n]], ranks[m])
            size *= ranks[m]
        for i in range(np.uintp(len(core))):
            total[i] += outer[i]
    core[:] = total / len(values)


@_compiled
def _predict(places: Any, rows: Any, core: Any, ranks: Any, out: Any) -> None:
    partial = np.empty_like(core)
    for n in range(len(out)):
        partial[:] = core
        size = len(core)
        for back in range(len(ranks)):
            m = len(ranks) - 1 - back
            row, rank = rows[places[m, n]], ranks[m]
            size //= rank
            for i in range(size):
                total = np.float32(0.0)
                for a in range(rank):
                    total += partial[np.uintp(i * rank + a)] * row[np.uintp(a)]
                partial[np.uintp(i)] = total
        out[n] = partial[0]


@_compiled
def _epoch(
    order: Any, places: Any, values: Any, rows: Any, row_sums: Any, core: Any, core_sums: Any,
    ranks: Any, rate: Any, l2: Any,
) -> Any:  # fmt: skip
    """Step along ``-e dmean + l2 x`` for the rows of an observation and the core, one by one.

    ``left`` holds products of rows of the first modes; ``right``, behind one another, the core
    contracted with rows of the last ones. A row's gradient is the product of both around it.
    """
    n_modes = len(ranks)
    sizes = np.ones(n_modes + 1, dtype=np.int64)
    starts = np.zeros(n_modes + 2, dtype=np.int64)
    for m in range(n_modes):
        sizes[m + 1] = sizes[m] * ranks[m]
    for m in range(n_modes + 1):
        starts[m + 1] = starts[m] + sizes[m]
    left, right = np.empty(starts[-1], dtype=np.float32), np.empty(starts[-1], dtype=np.float32)
    left[0] = 1.0
    gradient = np.empty(rows.shape[1], dtype=np.float32)
    error = 0.0
    for k in range(len(order)):
        n = order[k]
        right[starts[n_modes] :] = core
        for m in range(n_modes):
            row, rank = rows[places[m, n]], ranks[m]
            here, after = starts[m], starts[m + 1]
            for i in range(sizes[m]):
                x = left[np.uintp(here + i)]
                for a in range(rank):
                    left[np.uintp(after + i * rank + a)] = x * row[np.uintp(a)]
        for back in range(n_modes):
            m = n_modes - 1 - back
            row, rank = rows[places[m, n]], ranks[m]
            here, after = starts[m], starts[m + 1]
            for i in range(sizes[m]):
                total = np.float32(0.0)
                for a in range(rank):
                    total += right[np.uintp(after + i * rank + a)] * row[np.uintp(a)]
                right[np.uintp(here + i)] = total
        e = values[n] - right[0]
        error += np.float64(e) * e
        for m in range(n_modes):
            place, rank = places[m, n], ranks[m]
            here, after = starts[m], starts[m + 1]
            gradient[:rank] = 0.0
            for i in range(sizes[m]):
                x = left[np.uintp(here + i)]
                for a in range(rank):
                    gradient[np.uintp(a)] += x * right[np.uintp(after + i * rank + a)]
            row, total_row = rows[place], row_sums[place]
            for a in range(rank):
                u = np.uintp(a)
                g = l2 * row[u] - e * gradient[u]
                total_row[u] += g * g
                row[u] -= rate * g / np.sqrt(total_row[u])
        last = starts[n_modes]
        for i in range(len(core)):
            u = np.uintp(i)
            g = l2 * core[u] - e * left[np.uintp(last + i)]
            core_sums[u] += g * g
            core[u] -= rate * g / np.sqrt(core_sums[u])
    return error
