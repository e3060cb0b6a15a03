"""From observations to a posterior: standardise, arrange, say what to sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from noisewise.data import Observations
from noisewise.engine.arrays import Codes, Counts, Floats, standardised
from noisewise.engine.gibbs.chain import Chain, EvenSchedule
from noisewise.engine.gibbs.data import Data, Timeline
from noisewise.engine.gibbs.sampler import RatingSampler
from noisewise.engine.gibbs.spec import Scale, Spec
from noisewise.engine.training import Training
from noisewise.errors import DataError, SettingError
from noisewise.models.fitting import check_levels, count_rows

MOST_LEVELS = 50  # more distinct values are no levels
FEWEST_DRAWS = 2  # one alone would say that nothing is unknown


def prepare(
    spec: Spec,
    observations: Observations,
    validation: Observations | None,
    value_range: tuple[float, float] | None,
    schedule: EvenSchedule,
    n_jobs: int,
) -> RatingSampler:
    """Arrange observations for a chain, and the held-out ones to watch."""
    standardise = _levels if spec.ordinal else _numbers
    scale, values = standardise(observations.values, value_range)
    time = observations.time if spec.time else None
    data, order = Data.arrange(observations.codes, values, observations.shape, time)
    timeline = None if time is None else Timeline.of(data, time[order])
    counts = count_rows(observations)
    held_out = None
    if validation is not None:
        pairs = zip(validation.codes, counts, strict=True)
        codes = tuple(_known(code, count) for code, count in pairs)
        held_out = codes, validation.time if spec.time else None, validation.values
    return RatingSampler(spec, data, scale, counts, timeline, schedule, held_out, n_jobs)


def check_draws(runs: Sequence[Training[Chain[Any]]], burn_in: int) -> None:
    """Raise if chains were cut short before there was a posterior to predict from."""
    last = runs[-1]
    enough = sum(run.state.n_kept for run in runs) >= FEWEST_DRAWS
    if enough or not (last.interrupted or last.stopped):
        return
    told = f"after sweep {last.state.epoch}, with burn_in={burn_in}: that leaves no posterior"
    if last.interrupted:
        raise KeyboardInterrupt(f"Sampling was interrupted {told}, and the model is as it was.")
    raise SettingError(f"A callback ended sampling {told}; let it run on.")


def draws_worth(runs: Sequence[Training[Chain[Any]]], sweeps: int, samples: int) -> str:
    """Say what draws are worth whose sampling was interrupted."""
    run, draws = (sum(getattr(r.state, n) for r in runs) for n in ("epoch", "n_kept"))
    return (
        f"Sampling was interrupted after sweep {run} of {sweeps}: the model predicts from {draws} "
        f"draws, and would have had {samples}."
    )


def is_scale(values: Floats) -> bool:
    """Whether both ends of the values were given more than once."""
    return all(int((values == end).sum()) > 1 for end in (values.min(), values.max()))


def _numbers(values: Floats, value_range: tuple[float, float] | None) -> tuple[Scale, Floats]:
    """Centre values and divide them by their std."""
    location = float(values.mean(dtype=np.float64))
    alike = values.min() == values.max()
    spread = 1.0 if alike else float(values.std(dtype=np.float64))
    low, high = value_range or (-math.inf, math.inf)
    scale = Scale(
        location, spread, (low - location) / spread, (high - location) / spread,
        np.empty(0, dtype=np.float32), 1,
    )  # fmt: skip
    return scale, standardised(values, location, spread)


def _levels(values: Floats, value_range: Any) -> tuple[Scale, Floats]:
    """Replace values by numbers of levels; the cut-point nearest to the median will be 0."""
    levels, numbers = np.unique(values, return_inverse=True)
    if not 2 <= len(levels) <= MOST_LEVELS:
        raise DataError(
            f'likelihood="ordinal" needs 2 to {MOST_LEVELS} distinct values; got {len(levels)}. '
            'Use likelihood="gaussian".'
        )
    check_levels(values)
    below = np.cumsum(np.bincount(numbers)) / len(values)
    anchor = 1 + int(np.abs(below[:-1] - 0.5).argmin())
    scale = Scale(0.0, 1.0, -math.inf, math.inf, levels.astype(np.float32), anchor)
    return scale, numbers.astype(np.float32)


def _known(codes: Codes, count: Counts) -> Codes:
    """Send rows without an observation to the row after the last."""
    return np.where(count[codes] > 0, codes, len(count)).astype(np.int32)
