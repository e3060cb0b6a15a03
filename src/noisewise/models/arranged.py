"""Observations arranged for a chain of ratings: standardised, in order, with features of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from noisewise.data import Observations
from noisewise.data.features import SideTable
from noisewise.engine import workers
from noisewise.engine.arrays import Codes, Counts, Floats
from noisewise.engine.data import Data, Scale, Spec, Timeline
from noisewise.engine.design import Design, Designs
from noisewise.engine.devices import Device
from noisewise.engine.gibbs import gpu
from noisewise.engine.gibbs.gpu_sampler import GpuSampler
from noisewise.engine.gibbs.sampler import RatingSampler
from noisewise.engine.gibbs.schedule import Schedule
from noisewise.engine.training import standardised, usual_weight
from noisewise.errors import DataError, SettingError
from noisewise.models import learner, on_cluster

MOST_LEVELS = 50  # more distinct values are no levels

Features = Mapping[int, SideTable]  # by mode


def prepare(
    spec: Spec,
    observations: Observations,
    validation: Observations | None,
    value_range: tuple[float, float] | None,
    schedule: Schedule,
    n_jobs: int,
    device: Device | None = None,
    features: Features | None = None,
) -> RatingSampler:
    """Arrange observations for a chain, and the held-out ones to watch."""
    standardise = _levels if spec.ordinal else _numbers
    scale, values = standardise(observations.values, value_range)
    features, counts, team = features or {}, learner.count_rows(observations), workers.current()
    held_out = _held_out(spec, validation, counts, features)
    if team is not None:
        if features:
            raise SettingError("A cluster takes no features: leave them out, or fit without it.")
        learner.refuse_on_cluster(observations)
        return on_cluster.sampler(team, spec, observations, scale, schedule, held_out)
    time = observations.time if spec.time else None
    parts = observations.codes, values, observations.shape, time
    if device is not None:
        gpu.check(device, spec, observations.shape, len(values), features=bool(features))
    data, order = Data.arrange(*parts) if device is None else gpu.arrange(device, *parts)
    if observations.weight is not None:
        unit = 1.0 if spec.ordinal else usual_weight(observations.weight)  # whose noise is fixed
        data = replace(data, weight=np.sqrt(observations.weight[order]), unit=unit)
    timeline = None if time is None else Timeline.of(data, time[order])
    if features:
        data = replace(data, designs=_designs(observations, features))
    given = spec, data, scale, counts, timeline, schedule, held_out, n_jobs
    sampler = RatingSampler(*given) if device is None else GpuSampler(device, *given)
    sampler.cold = matrices(features, len(counts))
    return sampler


def _held_out(
    spec: Spec, validation: Observations | None, counts: tuple[Counts, ...], features: Features
) -> Any:
    """Return codes, times and values of observations to watch; None without any."""
    if validation is None:
        return None
    codes = []
    for mode, (code, count) in enumerate(zip(validation.codes, counts, strict=True)):
        known = np.where(count[code] > 0, code, len(count))  # else the row after the last
        labels = validation.ids[mode].labels[code]
        codes.append(places_of(known, len(count), features.get(mode), labels))
    return tuple(codes), validation.time if spec.time else None, validation.values


def places_of(codes: Any, n: int, table: SideTable | None, labels: Any) -> Codes:
    """Return codes of n rows, where ids never seen that have features come after all others."""
    found: Codes = np.array(codes, dtype=np.int32)
    unseen = np.flatnonzero(found == n)
    if table is not None and len(unseen):
        places = table.places(labels[unseen])
        found[unseen] = np.where(places >= 0, n + 1 + places, n)
    return found


def matrices(features: Features, n_modes: int) -> tuple[Any, ...]:
    """Return the features of all ids of every mode; empty if there are none at all."""
    if not features:
        return ()
    return tuple(features[m].matrix if m in features else None for m in range(n_modes))


def _designs(observations: Observations, features: Features) -> Designs:
    return Designs(
        tuple(
            Design(features[m].rows(ids.labels), features[m].bounds) if m in features else None
            for m, ids in enumerate(observations.ids)
        )
    )


def _numbers(values: Floats, value_range: tuple[float, float] | None) -> tuple[Scale, Floats]:
    """Centre values and divide them by their std."""
    location, spread = learner.mean_and_std(values)
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
    learner.check_levels(values)
    below = np.cumsum(np.bincount(numbers)) / len(values)
    anchor = 1 + int(np.abs(below[:-1] - 0.5).argmin())
    scale = Scale(0.0, 1.0, -math.inf, math.inf, levels.astype(np.float32), anchor)
    return scale, numbers.astype(np.float32)
