"""From observations of sensors to what the sampler is told: times in order, standard values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise import storage
from noisewise.data import Ids, Observations
from noisewise.data.panel import Grouping, Units, encode_in_time, sensor_modes, series_keys
from noisewise.data.timestamps import checked_stamps
from noisewise.engine.arrays import Codes, Moments
from noisewise.engine.gibbs.data import SeriesData
from noisewise.engine.gibbs.series_posterior import Asked, SeriesPosterior
from noisewise.engine.gibbs.steps.ou import Timescales
from noisewise.engine.series import Array
from noisewise.errors import ModelFileError
from noisewise.models.smoother import usual_step

SHORTEST, LONGEST = 0.25, 4.0  # timescales: in usual steps of time, and in spans of all times


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

    grouping: Grouping
    units: Units
    stamps: Array
    are_dates: bool

    @classmethod
    def of(cls, seen: Observations, time: int | str, sensor: int | str | None) -> SensorEncoder:
        """Arrange observations."""
        mode, kind = sensor_modes(time, sensor, seen.ids)
        keys = np.unique(series_keys(seen.codes, seen.shape, mode)[0])
        grouping = Grouping(mode, kind, seen.shape, keys)
        units = Units.of(seen.values, grouping.type_of(seen.codes), grouping.n_types)
        return cls(grouping, units, *checked_stamps(seen.ids[mode]))

    @property
    def modes(self) -> list[int]:
        """All modes, time last."""
        time = self.grouping.time
        return [mode for mode in range(len(self.grouping.shape)) if mode != time] + [time]

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows of every mode, time last."""
        return tuple(self.grouping.shape[mode] for mode in self.modes)

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
        types = self.grouping.type_of(seen.codes)
        values = (seen.values - self.units.mean[types]) / np.sqrt(self.units.variance[types])
        return SeriesData.of(tuple(codes), values.astype(np.float32), self.shape, self.times)

    def timescales(self, data: SeriesData) -> Timescales:
        """Return between which timescales a series may forget."""
        step = usual_step(data.series)
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
        types = self.grouping.type_of(codes)
        asked = Asked(rows, self.grouping.series(codes), when, types, self.grouping.types)
        standard, noise, epistemic = posterior.moments(asked, n_jobs)
        variance = self.units.variance[types]
        mean = self.units.mean[types] + np.sqrt(variance) * standard
        unseen = np.isnan(when) | (rows[:-1] == np.array(self.shape[:-1])[:, None]).any(axis=0)
        parts = (mean, variance * noise, variance * epistemic)
        return Moments(*(part.astype(self.units.precision) for part in parts)), unseen

    def pack(self) -> storage.Tensors:
        """Tensors of a file."""
        return {"units.mean": self.units.mean, "units.variance": self.units.variance}

    @classmethod
    def unpack(
        cls,
        path: str | Path,
        tensors: storage.Tensors,
        ids: tuple[Ids, ...],
        time: int | str,
        sensor: int | str | None,
    ) -> SensorEncoder:
        """Undo ``pack``, trusting nothing; what is still lacking is ``with_series``."""
        modes, shape = sensor_modes(time, sensor, ids), tuple(map(len, ids))
        grouping = Grouping(*modes, shape, np.empty(0, dtype=np.int64))
        mean, variance = (
            storage.take(path, tensors, f"units.{name}", "float64", grouping.n_types + 1)
            for name in ("mean", "variance")
        )
        if variance.min() <= 0:
            raise ModelFileError(f"{path} is damaged: it has a variance that is none.")
        return cls(grouping, Units(mean, variance), *checked_stamps(ids[modes[0]]))

    def with_series(self, posterior: SeriesPosterior) -> SensorEncoder:
        """Return the same, with the series that were observed."""
        codes = posterior.codes[:-1, posterior.series.starts[:-1]]
        keys = np.ravel_multi_index(tuple(codes.astype(np.int64)), self.shape[:-1])
        return replace(self, grouping=replace(self.grouping, keys=keys))
