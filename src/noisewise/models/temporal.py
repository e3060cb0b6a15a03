"""TemporalFactorizer: what sensors have in common and what each does on its own, drawn together.

    value = biases + sum_d U_id V_jd T_kd + x_s(t) + e,   e ~ N(0, noise of the series)

with an Ornstein-Uhlenbeck process x_s over real time for every series s. All unknowns are drawn
again and again from their posterior (Gibbs sampling), and predictions are averaged over the draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from noisewise.data import Ids, Observations, observe
from noisewise.data.observations import encode_in_time
from noisewise.data.timestamps import SeriesIndex, Units, checked_stamps, series_keys
from noisewise.engine.arrays import Array, Moments
from noisewise.engine.data import SeriesData, Spec
from noisewise.engine.gibbs.sampler import LaterHalf
from noisewise.engine.gibbs.series_sampler import Asked, SeriesPosterior, SeriesSampler
from noisewise.engine.gibbs.steps.temporal import Timescales
from noisewise.engine.training import Callback
from noisewise.models.base import Cells, at_one_moment
from noisewise.models.learner import Checkpoint, checkpoints_of, fixed_seed, joined, range_of
from noisewise.models.sampled import Run, Sampled, restored_series, series_schema
from noisewise.models.sensors import InTime, Typed, index_of, units_schema
from noisewise.schema import Entry, Found, Schema, record
from noisewise.settings import either, learned, number, one_of, setting, settings, whole

SHORTEST, LONGEST = 0.25, 4.0  # timescales: in usual steps of time, and in spans of all times

Table = dict[str, npt.NDArray[Any]]


@settings
class TemporalFactorizer(Sampled, InTime, Typed):
    """Bayesian factorization of sensors, each of which also drifts on its own; nothing to tune.

    What sensors share is a low-rank tensor; what a series does beyond that is an Ornstein-Uhlenbeck
    process over real time, however irregular, and white noise of a size of its own. In an outage,
    the others tell; between frequent readings, its own neighbours in time do.

    Examples
    --------
    >>> rows = [(place, hour, np.sin(hour / 4) + (place == "attic") * hour / 40)
    ...         for place in ("hall", "attic", "cellar") for hour in range(48)]
    >>> model = TemporalFactorizer(rank=1, sweeps=100, tolerance=None, random_state=0)
    >>> model = model.fit([row for row in rows if row[0] != "hall" or not 20 < row[1] < 28])
    >>> mean, std = model.predict([("hall", 24)], return_std=True)
    >>> bool(abs(mean[0] - np.sin(24 / 4)) < 0.3)
    True
    """

    rank: int = setting(
        whole(0),
        "Factors that sensors share. More are better as long as time allows.",
        default=32,
        kw_only=False,
    )
    noise: Literal["series", "lowrank"] = setting(
        one_of("series", "lowrank"),
        "The noise of a reading: a variance for every series, or a sum of products of factors of "
        "its ids and time.",
        default="series",
    )
    deviation_rank: int = setting(
        whole(1), 'Factors of the noise, for ``noise="lowrank"``.', default=2
    )
    sweeps: int = setting(whole(2), "How often to draw everything, at most.", default=500)
    burn_in: int = setting(
        whole(0),
        "Sweeps at the start that never count; of all others, the later half does.",
        default=20,
    )
    tolerance: float | None = setting(
        either(number(above=0.0), None),
        "Stop once the mean of a typical prediction is settled to this share of its std. None runs "
        "all.",
        default=0.06,
    )

    encoder_: SensorEncoder = learned("How ids become rows of the sampler, and values standard.")
    posterior_: SeriesPosterior = learned("The draws that were kept.")

    @property
    @at_one_moment
    def noise_by_series_(self) -> Table:
        """What was learned of every series, as columns of a table, with its ids.

        ``noise_std`` and ``drift_std``, in units of the values, tell how far single readings
        scatter and how far the series wanders on its own, as a sensor does that fails slowly;
        ``timescale`` is the time after which it has forgotten all but 1/e of that, in units of the
        ids of time (seconds for dates).
        """
        check_is_fitted(self)
        posterior, encoder = self.posterior_, self.encoder_
        series = posterior.series
        scale = self.std_scale_ * np.sqrt(encoder.units.variance[encoder.grouping.sensors])
        of_modes = zip(encoder.modes[:-1], posterior.codes[:-1, series.starts[:-1]], strict=True)
        timescale, amplitude = (
            np.median(posterior.draws[name], axis=0) for name in ("timescales", "amplitudes")
        )
        return {self.ids_[m].name: self.ids_[m].labels[codes] for m, codes in of_modes} | {
            "noise_std": scale * np.sqrt(posterior.noise_by_series(self._threads())),
            "drift_std": scale * np.sqrt(amplitude),
            "timescale": timescale.astype(np.float64),
            "observations": series.counts,
        }

    def _spec(self, seed: int) -> Spec:
        noise_rank = self.deviation_rank if self.noise == "lowrank" else 0
        return Spec(self.rank, noise_rank, "gaussian", implicit=False, time=False, seed=seed)

    def _observed(self, X: Any, y: Any) -> Observations:
        return observe(X, y, duplicates=self.duplicates)

    def _checkpoints(
        self, wanted: Checkpoint | None, seen: Observations, held_out: Observations | None
    ) -> dict[str, Checkpoint]:
        everything = seen if held_out is None else joined(seen, held_out)
        return checkpoints_of(self, wanted, self._stages, everything, len(seen))

    def _draw(
        self,
        seen: Observations,
        held_out: Observations | None,
        checkpoints: dict[str, Checkpoint],
        callbacks: Sequence[Callback],
    ) -> tuple[list[Run], str | None]:
        calibration = None
        if held_out is not None:  # a chain that has not seen them tells how far it is off
            calibration = clone(self).fit(seen).calibrate(held_out).calibration_
            seen = joined(seen, held_out)
        encoder = SensorEncoder.of(seen, self)
        data = encoder.series_data(seen)
        step = data.series.usual_step()
        span = float(np.ptp(data.series.time)) or step
        timescales = Timescales(SHORTEST * step, LONGEST * span)
        spec = self._spec(fixed_seed(self.random_state))
        sampler = SeriesSampler(spec, data, timescales, self._schedule, self._threads())
        run = self._run(sampler, checkpoints.get("fit"), callbacks)
        (chain,) = self._chains(seen, sampler, [run])
        self.posterior_, self.encoder_ = sampler.posterior(chain), encoder
        self.value_range_, self.calibration_ = range_of(self.value_range, seen), calibration
        error = sampler.mean_error(chain)
        if self.tolerance is None or error < self.tolerance:
            return [run], None
        told = f"the mean of a typical one may be off by {error:.2f} of its std"
        if error == math.inf:
            told = "so few do not tell how far off they are"
        return [run], (
            f"after {self.n_epochs_} sweeps: {told}, and tolerance is {self.tolerance}. Raise "
            f"sweeps (now {self.sweeps}), or tolerance."
        )

    @property
    def _schedule(self) -> LaterHalf:
        return LaterHalf(self.sweeps, self.burn_in, self.samples)

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        return self.encoder_.cells(X, self.ids_, self.posterior_, self._threads())

    def schema(self) -> Schema:
        """Declare what a file keeps: also the posterior, and the units of values."""
        yield from super().schema()
        grouping = index_of(self, self.ids_)
        shape = tuple(grouping.shape[mode] for mode in _time_last(grouping))
        yield from series_schema(self, shape)
        yield Entry("convergence", "convergence_", record)
        yield from units_schema("units.", "encoder_.units", grouping.n_sensors + 1)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        grouping, units = index_of(self, self.ids_), Units(**found.part("units"))
        bare = SensorEncoder(grouping, units, *checked_stamps(self.ids_[grouping.time]))
        self.posterior_ = restored_series(self, found, bare.shape, bare.times)
        self.encoder_ = bare.with_series(self.posterior_)


def _time_last(grouping: SeriesIndex) -> list[int]:
    """Return all modes, time last."""
    modes = range(len(grouping.shape))
    return [mode for mode in modes if mode != grouping.time] + [grouping.time]


@dataclass(frozen=True)
class SensorEncoder:
    """How ids become rows of the sampler, where time is the last mode, and values standard."""

    grouping: SeriesIndex  # which series there are, and of which sensor
    units: Units  # of every sensor
    stamps: Array  # of the ids of time
    are_dates: bool  # and not numbers

    @classmethod
    def of(cls, seen: Observations, model: Any) -> SensorEncoder:
        """Arrange observations by the settings of a model."""
        bare = index_of(model, seen.ids)
        keys = np.unique(series_keys(seen.codes, seen.shape, bare.time)[0])
        units = Units.of(seen.values, bare.sensors_of(seen.codes), bare.n_sensors)
        return cls(replace(bare, keys=keys), units, *checked_stamps(seen.ids[bare.time]))

    @property
    def modes(self) -> list[int]:
        """All modes, time last."""
        return _time_last(self.grouping)

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
        types = self.grouping.sensors_of(seen.codes)
        values = (seen.values - self.units.mean[types]) / np.sqrt(self.units.variance[types])
        return SeriesData.of(tuple(codes), values.astype(np.float32), self.shape, self.times)

    def cells(self, X: Any, ids: tuple[Ids, ...], posterior: SeriesPosterior, n_jobs: int) -> Cells:
        """Return what is known of cells; their times need not be known, only understood."""
        codes, when = encode_in_time(X, ids, self.grouping.time, self.stamps, self.are_dates)
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
        return Cells(Moments(*(part.astype(self.units.precision) for part in parts)), unseen)

    def with_series(self, posterior: SeriesPosterior) -> SensorEncoder:
        """Return the same, with the series that were observed."""
        codes = posterior.codes[:-1, posterior.series.starts[:-1]]
        keys = np.ravel_multi_index(tuple(codes.astype(np.int64)), self.shape[:-1])
        return replace(self, grouping=replace(self.grouping, keys=keys))
