"""What robust models share: units that outliers do not set, Biased MF epoch by epoch, files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.data import Observations
from noisewise.engine.arrays import Counts, Floats
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.layout import Params, State, initial_state
from noisewise.engine.training import Validate, mean_in_units, standardised, variance_in_units
from noisewise.models.iterative import judged
from noisewise.models.learner import count_rows, mean_and_std

NORMAL = 1.4826  # std of a normal distribution over its median absolute deviation
FARTHEST = 5.0  # stds from the median, as far as a value has a say in location and scale
BETA = 0.25  # as Biased MF has it in DeviationFactorizer, so that settings mean the same
ADVICE = "Try a smaller learning_rate (now {0.learning_rate}), or a larger l2 (now {0.l2})."


class Units(NamedTuple):
    """Where values lie and how far they spread: ``value = location + scale * standardised``."""

    location: float
    scale: float

    @classmethod
    def of(cls, values: Floats) -> Units:
        """Mean and std of values, with those far out brought near.

        Examples
        --------
        >>> ratings = np.array([1, 2, 3, 4, 5] * 20, dtype=np.float32)
        >>> [round(x, 4) for x in Units.of(ratings)]
        [3.0, 1.4142]
        >>> Units.of(np.append(ratings, np.float32(1e6))).scale < 2.0
        True
        """
        middle = float(np.median(values))
        away = np.abs(values.astype(np.float64) - middle)
        std = NORMAL * float(np.median(away)) or float(away.mean())
        near = np.clip(values.astype(np.float64), middle - FARTHEST * std, middle + FARTHEST * std)
        return cls(*mean_and_std(near))

    def standardised(self, values: Floats) -> Floats:
        """Return values in these units."""
        return standardised(values, self.location, self.scale)


def robust_std(errors: Floats) -> float:
    """Return the std of the bulk of errors: their median absolute deviation, times 1.4826."""
    return NORMAL * float(np.median(np.abs(errors - np.median(errors))))


def biased_mf(rank: int, learning_rate: float, l2: float, bias_l2: float, seed: int) -> Params:
    """Tell the engine to learn biases and mean factors, and one variance for all cells."""
    return Params(
        rank=rank, deviation_rank=0, learning_rate=learning_rate, deviation_learning_rate=1.0,
        l2=l2, bias_l2=bias_l2, deviation_l1=0.0, penalty="rating", delta=1e-6, beta=BETA,
        warmup=0, adagrad="coordinate", seed=seed,
    )  # fmt: skip


@dataclass(frozen=True)
class Task:
    """Biased MF of standardised observations, laid out as the engine visits them."""

    params: Params
    blocks: strata.Blocks
    counts: tuple[Counts, ...]
    units: Units
    n_jobs: int

    @classmethod
    def of(cls, params: Params, data: Observations, n_jobs: int) -> Task:
        """Lay out observations."""
        units = Units.of(data.values)
        values = units.standardised(data.values)
        blocks = strata.arrange(data.codes, values, data.shape, params.layout.width)
        return cls(params, blocks, count_rows(data), units, n_jobs)

    def start(self) -> State:
        """Draw the state to start from."""
        return initial_state(self.params, self.blocks.placed(self.counts))

    def predicted(self, state: State) -> Floats:
        """Return standardised predictions, in the order of the blocks."""
        return strata.predict(state, self.blocks.codes, self.params, self.n_jobs)[0]

    def errors(self, state: State) -> Floats:
        """Return standardised values minus predictions, in the order of the blocks."""
        return self.blocks.values - self.predicted(state)

    def without(self, left_out: npt.NDArray[np.bool_]) -> strata.Blocks:
        """Return the blocks without some of their observations; rows stay where they are."""
        kept = ~left_out
        return replace(
            self.blocks,
            codes=tuple(codes[kept] for codes in self.blocks.codes),
            values=self.blocks.values[kept],
            starts=np.append(0, np.cumsum(kept))[self.blocks.starts],
        )

    def validate(
        self, held_out: Observations | None, value_range: tuple[float, float] | None
    ) -> Validate[State] | None:
        """Return a function that judges a state by held-out observations, if there are any."""
        if held_out is None:
            return None
        cells = tuple(
            order[codes] for order, codes in zip(self.blocks.order, held_out.codes, strict=True)
        )

        def judge(state: State) -> tuple[float, float]:
            mean, variance = strata.predict(state, cells, self.params, self.n_jobs)
            mean = mean_in_units(mean, *self.units)
            return judged(
                held_out.values, mean, variance_in_units(variance, *self.units), value_range
            )

        return judge

    def finalize(self, state: State) -> Factors:
        """Return what a state has learned, by id."""
        return Factors.finalize(self.params, state, self.counts, *self.units, self.blocks.order)
