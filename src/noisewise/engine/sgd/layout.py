"""What the engine is told (Params) and what it carries on (State): packed rows.

A *row* is all the engine knows of one id (a user, an item, a sensor), side by side in memory so
that one observation touches one stream per mode::

    [ header | mean factors | deviation factors | their AdaGrad sums, if per coordinate ]

Every part is padded with zeros to whole cache lines, which are whole vectors too. The padding
stays zero by itself: the gradient of a mean factor is then zero, and a deviation factor is pushed
down and projected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from noisewise.engine.arrays import Arrays, Counts, Floats, Source, Values
from noisewise.errors import brief

LINE = 16  # floats in a cache line, and in a vector
BIAS, BIAS_SUM, MEAN_SUM, DEVIATION_SUM, SHARE = range(5)  # places in the header of a row
ADAGRAD_START = 1.0  # a small one makes the first steps, on the steepest gradients, far too long
CHUNK = 65_536  # rows drawn at a time
STANDSTILL = 1e30  # a sum so large that a step is nothing: a bias with it stays where it is


@dataclass(frozen=True)
class Params:
    """What the user chose, in units of standardised values (see ``DeviationFactorizer``)."""

    rank: int
    deviation_rank: int
    learning_rate: float
    deviation_learning_rate: float
    l2: float
    bias_l2: float
    deviation_l1: float
    penalty: Literal["rating", "row"]
    delta: float
    beta: float
    warmup: int
    adagrad: Literal["coordinate", "row"]
    seed: int
    biases: bool = True

    @property
    def layout(self) -> Layout:
        """Where each part of a row lies."""
        return Layout.of(self.rank, self.deviation_rank, 2 if self.adagrad == "coordinate" else 1)


class Layout(NamedTuple):
    """The columns of a packed row, padding included."""

    rank: int
    deviation_rank: int
    copies: int  # 2 with one AdaGrad sum per coordinate, else 1
    mean: int  # columns of mean factors
    deviation: int  # columns of deviation factors
    deviation_start: int  # first column of the deviation factors
    sums_start: int  # first column of the AdaGrad sums
    width: int  # floats in a row

    @classmethod
    def of(cls, rank: int, deviation_rank: int, copies: int) -> Layout:
        """Lay out a row."""
        mean, deviation = (-(-k // LINE) * LINE for k in (rank, deviation_rank))
        start, end = LINE + mean, LINE + mean + deviation
        width = LINE + copies * (mean + deviation)
        return cls(rank, deviation_rank, copies, mean, deviation, start, end, width)

    @property
    def parts(self) -> dict[str, slice]:
        """Columns by the names that files have for them."""
        start = self.deviation_start
        parts = {
            "bias": slice(BIAS, BIAS + 1),
            "mean": slice(LINE, LINE + self.rank),
            "deviation": slice(start, start + self.deviation_rank),
            "sums": slice(BIAS_SUM, DEVIATION_SUM + 1),
            "share": slice(SHARE, SHARE + 1),
        }
        if self.copies == 2:
            middle = self.sums_start + self.mean
            parts["mean_sums"] = slice(self.sums_start, middle)
            parts["deviation_sums"] = slice(middle, self.width)
        return parts


@dataclass
class State:
    """The arrays that training changes and a checkpoint keeps."""

    rows: tuple[Floats, ...]  # one packed matrix per mode, aligned to cache lines
    layout: Layout
    epoch: int = 0  # number of finished epochs
    variance: float = 1.0  # of residuals; of all observations until deviation factors are learned

    __repr__ = brief

    def biases(self, mode: int) -> Floats:
        """One bias per row, a view."""
        return self.rows[mode][:, BIAS]

    def mean_factors(self, mode: int) -> Floats:
        """Mean factors of every row, a view."""
        return self.rows[mode][:, self.layout.parts["mean"]]

    def deviation_factors(self, mode: int) -> Floats:
        """Deviation factors of every row, a view."""
        return self.rows[mode][:, self.layout.parts["deviation"]]

    def copy(self) -> Self:
        """Return a state of its own, to be kept while training goes on."""
        return replace(self, rows=tuple(aligned(rows) for rows in self.rows))

    def is_finite(self) -> bool:
        """Whether every number is finite (a sum over each matrix is enough to see it)."""
        return all(np.isfinite(rows.sum(dtype=np.float64)) for rows in self.rows)

    def pack(self) -> tuple[dict[str, Any], Arrays]:
        """Header and arrays of a checkpoint."""
        header = {"epoch": self.epoch, "variance": self.variance}
        return header, {f"rows{mode}": rows for mode, rows in enumerate(self.rows)}

    def restored(self, source: Source) -> Self:
        """Return a state like this one with what ``pack`` gave."""
        rows = (
            aligned(source.array(f"rows{mode}", "float32", *own.shape))
            for mode, own in enumerate(self.rows)
        )
        epoch, variance = source.whole("epoch"), source.real("variance", above=0.0)
        return replace(self, rows=tuple(rows), epoch=epoch, variance=variance)


def initial_state(params: Params, counts: tuple[Counts, ...]) -> State:
    """Draw the state to start from; ``counts`` has the number of observations of every row.

    Mean factors are normal: of two modes with variance ``0.01 / rank``, of more modes so that their
    product, summed over factors, has variance 0.01, as a product of many smaller ones would hardly
    leave zero. Deviation factors wait at zero until ``release_deviation``.
    """
    state = State(
        tuple(aligned_zeros(len(count), params.layout.width) for count in counts), params.layout
    )
    for mode, drawn, part in first_factors(params, tuple(map(len, counts))):
        state.mean_factors(mode)[part] = drawn
    for rows, count in zip(state.rows, counts, strict=True):
        set_header(rows, count, params)
    return state


def first_factors(params: Params, shape: tuple[int, ...]) -> Iterator[tuple[int, Values, slice]]:
    """Draw the mean factors to start from, some rows of a mode after the other."""
    rng = np.random.default_rng([params.seed, 0])
    scale = 0.1 / np.sqrt(max(params.rank, 1))
    if len(shape) > 2:
        scale **= 1.0 / len(shape)
    for mode, part in _parts(shape):
        yield mode, rng.normal(0.0, scale, (part.stop - part.start, params.rank)), part


def set_header(rows: Floats, count: Counts, params: Params) -> None:
    """Set where AdaGrad's sums start, and the share of the penalty that an observation bears."""
    rows[:, BIAS_SUM] = ADAGRAD_START if params.biases else STANDSTILL
    rows[:, [MEAN_SUM, DEVIATION_SUM]] = ADAGRAD_START
    rows[:, params.layout.sums_start :] = ADAGRAD_START
    rows[:, SHARE] = 1.0 / np.maximum(count, 1) if params.penalty == "row" else 1.0


def release_deviation(state: State, params: Params) -> None:
    """Start the deviation factors so that the mean variance is that of the residuals.

    Zero would be a stationary point, and all alike would stay alike.
    """
    shape = tuple(map(len, state.rows))
    for mode, drawn, part in first_deviation(params, shape, state.variance):
        state.deviation_factors(mode)[part] = drawn


def first_deviation(
    params: Params, shape: tuple[int, ...], variance: float
) -> Iterator[tuple[int, Values, slice]]:
    """Draw the deviation factors to start from, some rows of a mode after the other."""
    if params.deviation_rank == 0:
        return
    rng = np.random.default_rng([params.seed, 1])
    target = max(variance - params.delta, 0.1 * variance)
    middle = (target / params.deviation_rank) ** (1.0 / len(shape))
    for mode, part in _parts(shape):
        size = part.stop - part.start, params.deviation_rank
        yield mode, rng.uniform(0.8 * middle, 1.2 * middle, size), part


def _parts(shape: tuple[int, ...]) -> Iterator[tuple[int, slice]]:
    """Return rows of every mode in turn, so many at a time."""
    for mode, n in enumerate(shape):
        for start in range(0, n, CHUNK):
            yield mode, slice(start, min(start + CHUNK, n))


def aligned_zeros(n: int, width: int) -> Floats:
    """Return an (n, width) matrix of zeros whose rows start on cache lines."""
    buffer = np.zeros(n * width + LINE, dtype=np.float32)
    start = (-buffer.ctypes.data // 4) % LINE
    return buffer[start : start + n * width].reshape(n, width)


def aligned(rows: Floats) -> Floats:
    """Return a copy whose rows start on cache lines."""
    copy = aligned_zeros(*rows.shape)
    copy[:] = rows
    return copy
