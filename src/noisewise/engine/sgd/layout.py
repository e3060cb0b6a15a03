"""What the engine is told (Params) and what it carries on (State): packed rows.

A *row* is all the engine knows of one id (a user, an item, a sensor), side by side in memory so
that one observation touches one stream per mode::

    [ header | mean factors | deviation factors | their AdaGrad sums, if per coordinate ]

Every part is padded with zeros to whole cache lines, which are whole vectors too. The padding
stays zero by itself: the gradient of a mean factor is then zero, and a deviation factor is pushed
down and projected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from noisewise.engine.arrays import Arrays, Counts, Floats, Source
from noisewise.errors import brief

LINE = 16  # floats in a cache line, and in a vector
BIAS, BIAS_SUM, MEAN_SUM, DEVIATION_SUM, SHARE = range(5)  # places in the header of a row


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
        mean, deviation = (_padded(k, LINE) for k in (self.rank, self.deviation_rank))
        return Layout(mean, deviation, 2 if self.adagrad == "coordinate" else 1)


class Layout(NamedTuple):
    """The columns of a packed row."""

    mean: int  # padded number of mean factors
    deviation: int  # padded number of deviation factors
    copies: int  # 2 with one AdaGrad sum per coordinate, else 1

    @property
    def width(self) -> int:
        """Floats in a row."""
        return LINE + self.copies * (self.mean + self.deviation)

    @property
    def deviation_start(self) -> int:
        """First column of the deviation factors."""
        return LINE + self.mean

    @property
    def sums_start(self) -> int:
        """First column of the AdaGrad sums."""
        return LINE + self.mean + self.deviation


@dataclass
class State:
    """The arrays that training changes and a checkpoint keeps.

    Attributes
    ----------
    rows
        One packed matrix per mode, float32, aligned to cache lines.
    epoch
        Number of finished epochs.
    variance
        Mean squared residual of the last epoch, in standardised units: the variance of every
        observation as long as deviation factors are not learned.
    """

    rows: tuple[Floats, ...]
    layout: Layout
    epoch: int = 0
    variance: float = 1.0

    __repr__ = brief

    def biases(self, mode: int) -> Floats:
        """One bias per row, a view."""
        return self.rows[mode][:, BIAS]

    def mean_factors(self, mode: int, rank: int) -> Floats:
        """Mean factors of every row, a view."""
        return self.rows[mode][:, LINE : LINE + rank]

    def deviation_factors(self, mode: int, rank: int) -> Floats:
        """Deviation factors of every row, a view."""
        start = self.layout.deviation_start
        return self.rows[mode][:, start : start + rank]

    def copy(self) -> State:
        """Return a state of its own, to be kept while training goes on."""
        rows = tuple(_copied(r) for r in self.rows)
        return State(rows, self.layout, self.epoch, self.variance)

    def is_finite(self) -> bool:
        """Whether every number is finite (a sum over each matrix is enough to see it)."""
        return all(np.isfinite(rows.sum(dtype=np.float64)) for rows in self.rows)

    def pack(self) -> tuple[dict[str, Any], Arrays]:
        """Header and arrays of a checkpoint."""
        header = {"epoch": self.epoch, "variance": self.variance}
        return header, {f"rows{mode}": rows for mode, rows in enumerate(self.rows)}

    def restored(self, source: Source) -> State:
        """Return a state like this one with what ``pack`` gave."""
        copy = self.copy()
        for mode, rows in enumerate(copy.rows):
            rows[:] = source.array(f"rows{mode}", "float32", *rows.shape)
        copy.epoch = source.whole("epoch")
        copy.variance = source.real("variance", above=0.0)
        return copy


def initial_state(params: Params, counts: tuple[Counts, ...]) -> State:
    """Draw the state to start from; ``counts`` has the number of observations of every row.

    Mean factors are normal: of two modes with variance ``0.01 / rank``, of more modes so that their
    product, summed over factors, has variance 0.01, as a product of many smaller ones would hardly
    leave zero. Deviation factors wait at zero until ``release_deviation``.
    """
    layout = params.layout
    rng = np.random.default_rng([params.seed, 0])
    scale = 0.1 / np.sqrt(max(params.rank, 1))
    if len(counts) > 2:
        scale **= 1.0 / len(counts)
    rows = tuple(_new_rows(params, layout, count, scale, rng) for count in counts)
    return State(rows, layout)


def release_deviation(state: State, params: Params) -> None:
    """Start the deviation factors so that the mean variance is that of the residuals.

    Zero would be a stationary point, and all alike would stay alike; a wider start than this takes
    epochs to forget.
    """
    if params.deviation_rank == 0:
        return
    rng = np.random.default_rng([params.seed, 1])
    target = max(state.variance - params.delta, 0.1 * state.variance)
    middle = (target / params.deviation_rank) ** (1.0 / len(state.rows))
    for mode in range(len(state.rows)):
        factors = state.deviation_factors(mode, params.deviation_rank)
        factors[:] = rng.uniform(0.8 * middle, 1.2 * middle, factors.shape)


def _new_rows(
    params: Params,
    layout: Layout,
    count: Counts,
    scale: float,
    rng: np.random.Generator,
) -> Floats:
    rows = aligned_zeros(len(count), layout.width)
    rows[:, LINE : LINE + params.rank] = rng.normal(0.0, scale, (len(count), params.rank))
    rows[:, [BIAS_SUM, MEAN_SUM, DEVIATION_SUM]] = ADAGRAD_START
    if not params.biases:
        rows[:, BIAS_SUM] = STANDSTILL
    rows[:, layout.sums_start :] = ADAGRAD_START
    rows[:, SHARE] = 1.0 / np.maximum(count, 1) if params.penalty == "row" else 1.0
    return rows


ADAGRAD_START = 1.0  # a small one makes the first steps, on the steepest gradients, far too long
STANDSTILL = 1e30  # a sum so large that a step is nothing: a bias with it stays where it is


def aligned_zeros(n: int, width: int) -> Floats:
    """Return an (n, width) matrix of zeros whose rows start on cache lines."""
    buffer = np.zeros(n * width + LINE, dtype=np.float32)
    start = (-buffer.ctypes.data // 4) % LINE
    return buffer[start : start + n * width].reshape(n, width)


def _copied(rows: Floats) -> Floats:
    copy = aligned_zeros(*rows.shape)
    copy[:] = rows
    return copy


def _padded(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple
