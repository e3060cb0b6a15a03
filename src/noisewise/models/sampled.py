"""What sampled models share: observations as samplers want them, and what draws are worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise.data import Ids, Observations
from noisewise.data.observations import encode_in_time
from noisewise.data.timestamps import SeriesIndex, Units, checked_stamps, sensor_modes, series_keys
from noisewise.engine.arrays import Codes, Counts, Floats, Moments
from noisewise.engine.gibbs.data import Data, Scale, SeriesData, Spec, Timeline
from noisewise.engine.gibbs.sampler import Chain, RatingSampler, Schedule
from noisewise.engine.gibbs.series_sampler import Asked, SeriesPosterior, SeriesSampler
from noisewise.engine.gibbs.steps.temporal import Timescales
from noisewise.engine.series import Array
from noisewise.engine.threads import one_blas_thread
from noisewise.engine.training import Callback, EpochInfo, Training, standardised, train
from noisewise.errors import DataError, SettingError, training_bar
from noisewise.models.checkpoints import Checkpoint
from noisewise.models.iterative import check_levels, count_rows

MOST_LEVELS = 50  # more distinct values are no levels
SHORTEST, LONGEST = 0.25, 4.0  # timescales: in usual steps of time, and in spans of all times
FEWEST_DRAWS = 2  # one alone would say that nothing is unknown


def prepare(
    spec: Spec,
    observations: Observations,
    validation: Observations | None,
    value_range: tuple[float, float] | None,
    schedule: Schedule,
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


def check_schedule(model: Any) -> None:
    """Raise if all sweeps that a sampled model is to run would be forgotten."""
    if model.burn_in >= model.sweeps:
        raise SettingError(
            f"sweeps must be more than burn_in; got {model.sweeps} and {model.burn_in}."
        )


def run_chain(
    model: Any,
    sampler: RatingSampler | SeriesSampler,
    checkpoint: Checkpoint | None,
    callbacks: Sequence[Callback],
    *,
    label: str = "sample",
    fewest: int = 0,
) -> Training[Chain[Any]]:
    """Run one chain of a model, until predictions are known to its tolerance.

    Parameters
    ----------
    model
        With the settings ``sweeps``, ``tolerance`` and ``verbose``.
    sampler
        What to run.
    checkpoint, callbacks
        As for ``train``.
    label
        Stands before the bar.
    fewest
        Draws that must have been kept before the chain may end early.
    """
    source: Any = sampler

    def converged(info: EpochInfo, state: Chain[Any]) -> bool:
        if model.tolerance is None or state.n_kept < fewest:
            return False
        return bool(source.mean_error(state) < model.tolerance)

    with one_blas_thread():
        return train(
            source.start(),
            source.step,
            epochs=model.sweeps,
            validate=source.validate if getattr(source, "query", None) is not None else None,
            keep_best=False,
            callbacks=(converged, *callbacks),
            checkpoint=checkpoint,
            bar=training_bar(label, unit="sweep", verbose=model.verbose),
            advice="Values far from all others may be errors: look at them.",
        )


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


def modes_time_last(grouping: SeriesIndex) -> list[int]:
    """Return all modes, time last."""
    modes = range(len(grouping.shape))
    return [mode for mode in modes if mode != grouping.time] + [grouping.time]


def time_last(grouping: SeriesIndex) -> tuple[int, ...]:
    """Return the rows of every mode, time last."""
    return tuple(grouping.shape[mode] for mode in modes_time_last(grouping))


@dataclass(frozen=True)
class SensorEncoder:
    """How ids become rows of the sampler, where time is the last mode, and values become standard.

    Attributes
    ----------
    grouping
        Which series there are, and of which type.
    units
        Mean and variance of every type.
    stamps, are_dates
        The times of the ids of time, and whether they are dates.
    """

    grouping: SeriesIndex
    units: Units
    stamps: Array
    are_dates: bool

    @classmethod
    def of(cls, seen: Observations, time: int | str, sensor: int | str | None) -> SensorEncoder:
        """Arrange observations."""
        mode, kind = sensor_modes(time, sensor, seen.ids)
        keys = np.unique(series_keys(seen.codes, seen.shape, mode)[0])
        grouping = SeriesIndex(mode, kind, seen.shape, keys)
        units = Units.of(seen.values, grouping.sensors_of(seen.codes), grouping.n_sensors)
        return cls(grouping, units, *checked_stamps(seen.ids[mode]))

    @property
    def modes(self) -> list[int]:
        """All modes, time last."""
        return modes_time_last(self.grouping)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows of every mode, time last."""
        return time_last(self.grouping)

    @cached_property
    def times(self) -> Array:
        """The times of the sampler's rows of time, in order."""
        return np.sort(self.stamps)

    def series_data(self, seen: Observations) -> SeriesData:
        """Return the observations as the sampler wants them."""
        place = np.empty(len(self.stamps), dtype=np.int32)
        place[np.argsort(self.stamps, kind="stable")] = np.arange(len(place), dtype=np.int32)
        codes = [seen.codes[mode] for mode in self.modes]
        codes[-1] = place[codes[-1]]
        types = self.grouping.sensors_of(seen.codes)
        values = (seen.values - self.units.mean[types]) / np.sqrt(self.units.variance[types])
        return SeriesData.of(tuple(codes), values.astype(np.float32), self.shape, self.times)

    def timescales(self, data: SeriesData) -> Timescales:
        """Return between which timescales a series may forget."""
        step = data.series.usual_step()
        span = float(np.ptp(data.series.time)) or step
        return Timescales(SHORTEST * step, LONGEST * span)

    def encoded(self, X: Any, ids: tuple[Ids, ...]) -> tuple[tuple[Codes, ...], Array]:
        """Row numbers and times of cells; a time need not be known, only understood."""
        return encode_in_time(X, ids, self.grouping.time, self.stamps, self.are_dates)

    def predicted(
        self, posterior: SeriesPosterior, codes: tuple[Codes, ...], when: Array, n_jobs: int
    ) -> tuple[Moments, npt.NDArray[np.bool_]]:
        """Moments of cells in units of the values, and which have an id that was never observed."""
        place = np.searchsorted(self.times, when).clip(max=len(self.times) - 1)
        row = np.where(self.times[place] == when, place, -1).astype(np.int32)
        own = [*(codes[mode] for mode in self.modes[:-1]), row]
        rows = np.array([posterior.known_codes(m, code) for m, code in enumerate(own)])
        types = self.grouping.sensors_of(codes)
        asked = Asked(rows, self.grouping.series(codes), when, types, self.grouping.sensors)
        standard, noise, epistemic = posterior.moments(asked, n_jobs)
        variance = self.units.variance[types]
        mean = self.units.mean[types] + np.sqrt(variance) * standard
        unseen = np.isnan(when) | (rows[:-1] == np.array(self.shape[:-1])[:, None]).any(axis=0)
        parts = (mean, variance * noise, variance * epistemic)
        return Moments(*(part.astype(self.units.precision) for part in parts)), unseen

    def with_series(self, posterior: SeriesPosterior) -> SensorEncoder:
        """Return the same, with the series that were observed."""
        codes = posterior.codes[:-1, posterior.series.starts[:-1]]
        keys = np.ravel_multi_index(tuple(codes.astype(np.int64)), self.shape[:-1])
        return replace(self, grouping=replace(self.grouping, keys=keys))
