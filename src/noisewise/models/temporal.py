"""TemporalFactorizer: what sensors have in common and what each does on its own, drawn together.

    value = biases + sum_k U_ik V_jk f_k(t) + calendar factors + x_s(t) + e

with a path f_k over real time for every factor, and a path x_s and noise e for every series s. All
unknowns are drawn again and again from their posterior (Gibbs sampling), and predictions are
averaged over the draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from noisewise.data import Ids, Observations, observe
from noisewise.data.observations import encode_in_time
from noisewise.data.timestamps import SeriesIndex, Units, checked_stamps, series_keys
from noisewise.engine.arrays import Array, Moments
from noisewise.engine.data import SeriesData
from noisewise.engine.gibbs.schedule import LaterHalf
from noisewise.engine.gibbs.series.draw import Season, SeriesSpec
from noisewise.engine.gibbs.series.later import Later, Place
from noisewise.engine.gibbs.series.online import Timed
from noisewise.engine.gibbs.series.posterior import Asked, SeriesPosterior
from noisewise.engine.gibbs.series.sampler import SeriesSampler, affordable
from noisewise.engine.gibbs.series.samples import draw_cells
from noisewise.engine.gibbs.series.seasons import CALENDAR, find_seasons, fits, season
from noisewise.engine.gibbs.series.time_factors import Timescales
from noisewise.engine.paths import KINDS
from noisewise.engine.training import Callback
from noisewise.errors import SettingError
from noisewise.models.base import Cells, at_one_moment
from noisewise.models.learner import (
    Checkpoint,
    Given,
    checkpoints_of,
    fixed_seed,
    joined,
    range_of,
    refuse_weight,
)
from noisewise.models.sampled import Run, Sampled
from noisewise.models.sensors import InTime, Typed, index_of, units_schema, widened
from noisewise.models.series_file import restored_series, series_schema
from noisewise.schema import Entry, Found, Schema, record
from noisewise.settings import Rule, either, learned, number, one_of, setting, settings, whole
from noisewise.storage import Damaged

SHORTEST, LONGEST, MOST_STEPS = 0.3, 2.0, 4_000.0  # timescales: in steps, in spans, in steps
MERGED = 1 / 16  # times closer than this share of a step are one
BURSTS = 1 / 4  # of the mean time between stamps, that a step has at least

Table = dict[str, npt.NDArray[Any]]

_PERIOD = either(number(above=0.0), *CALENDAR)
_SEASONS = Rule(
    'None, "auto", or a list of periods: numbers in units of time, "day", "week" or "year"',
    lambda v: (
        v is None or v == "auto" or (isinstance(v, tuple | list) and all(map(_PERIOD.holds, v)))
    ),
)


@settings
class TemporalFactorizer(Sampled, InTime, Typed):
    """Bayesian factorization of sensors, with paths over time; nothing to tune.

    What sensors share is a low-rank tensor whose factors of time are paths: they go on through
    moments at which nobody measured anything, and ahead of the last. Calendar factors know what a
    day is. What a series does beyond that is a path of its own over real time, however irregular,
    and noise of a size of its own. In an outage, the others tell; between frequent readings, its
    own neighbours in time do.

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
        "Factors that sensors share, at most: those that are not needed fade away.",
        default=32,
        kw_only=False,
    )
    kernel: Literal["ou", "matern32"] = setting(
        one_of(*KINDS),
        'How paths go on: roughly, as a random walk does ("ou", an Ornstein-Uhlenbeck process), or '
        'smoothly ("matern32", a Matern process of order 3/2).',
        default="ou",
    )
    seasons: Any = setting(
        _SEASONS,
        "Cycles that the calendar knows: periods in units of the times (seconds for dates), or "
        '"day", "week" and "year" for dates. "auto" takes those that the data show.',
        default=None,
    )
    season_rank: int = setting(
        whole(1), "Shapes of the cycles of a season, at most: its calendar factors.", default=8
    )
    tails: Literal["normal", "heavy"] = setting(
        one_of("normal", "heavy"),
        "The noise of single readings: normal, or with heavy tails (a Student t), so that spikes "
        "pull less.",
        default="normal",
    )
    sweeps: int = setting(whole(2), "How often to draw everything, at most.", default=200)
    burn_in: int = setting(
        whole(0), "Sweeps at the start that never count; of others the later half does.", default=20
    )
    samples: int = setting(whole(1), "Draws to keep for predictions, at most.", default=40)
    tolerance: float | None = setting(
        either(number(above=0.0), None),
        "Stop once the mean of a typical prediction is settled to this share of its std. None runs "
        "all.",
        default=0.06,
    )

    seasons_: tuple[Season, ...] = learned("The cycles that were taken into account.")
    encoder_: SensorEncoder = learned("How ids become rows of the sampler, and values standard.")
    posterior_: SeriesPosterior = learned("The draws that were kept.")
    later_: Later = learned("What was read after the fit, of a twin that ``with_readings`` made.")

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
            "noise_std": scale * np.sqrt(posterior.noise_by_series()),
            "drift_std": scale * np.sqrt(amplitude),
            "timescale": timescale.astype(np.float64),
            "observations": series.counts,
        }

    def _spec(self, seed: int, n_series: int, seasons: tuple[Season, ...]) -> SeriesSpec:
        return SeriesSpec(
            min(self.rank, n_series), 0, "gaussian", implicit=False, time=False, seed=seed,
            kind=KINDS[self.kernel], tails=self.tails == "heavy", seasons=seasons,
        )  # fmt: skip

    def _seasons(self, data: SeriesData, step: float, are_dates: bool) -> tuple[Season, ...]:
        """Return the cycles to take into account."""
        stamps, most = data.stamps, min(len(data.series), self.season_rank)
        if self.seasons is None:
            return ()
        if self.seasons == "auto":
            return find_seasons(data.series, stamps, step, are_dates, most)
        named = [one for one in self.seasons if isinstance(one, str)]
        if named and not are_dates:
            raise SettingError(
                f"seasons={self.seasons!r} names {named[0]!r}, but the times are numbers: give "
                "periods in their units."
            )
        periods = [float(CALENDAR.get(one, one)) for one in self.seasons]
        for period in periods:
            if not fits(period, stamps, step):
                raise SettingError(
                    f"A season of {period:g} needs times that span three of it, with four steps "
                    f"in each; they span {float(np.ptp(stamps)):g} in steps of {step:g}."
                )
        return tuple(season(period, stamps, step, most) for period in periods)

    def _observed(self, given: Given) -> Observations:
        seen = observe(given.X, given.y, duplicates=self.duplicates)
        refuse_weight(self, seen)
        return seen

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
        step = usual_step(data.stamps)
        span = float(np.ptp(data.stamps)) or step
        timescales = Timescales(SHORTEST * step, min(LONGEST * span, MOST_STEPS * step))
        self.seasons_ = self._seasons(data, step, encoder.are_dates)
        spec = self._spec(fixed_seed(self.random_state), len(data.series), self.seasons_)
        schedule = replace(self._schedule, keep=affordable(spec, data, self.samples))
        sampler = SeriesSampler(spec, data, timescales, schedule, self._threads())
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
        known = getattr(self, "later_", self.posterior_)
        return self.encoder_.cells(X, self.ids_, known, self._threads())

    def with_readings(self, new: Observations, place: Place | None = None) -> Self:
        """Return a twin that knows more readings of its series; nothing is trained.

        Kept draws go on as Kalman filters; ``place`` is where these readings led them before.
        """
        again = widened(self, new.values)
        cells = self.encoder_.timed(new, self.ids_)
        later = getattr(self, "later_", None) or Later.of(self.posterior_)
        if place is None:
            again.later_ = later.given(cells, self._threads())
        else:
            if not later.leads_to(cells, place):
                raise Damaged("its filters are not where its readings lead")
            again.later_ = later.at_place(cells, place)
        return cast(Self, again)

    def joint_draws(self, X: Any, n: int, rng: np.random.Generator) -> Array:
        """Return n joint draws of cells over their std: how far each is from the mean.

        Readings since the fit count for the paths of their own series.
        """
        later = getattr(self, "later_", None)
        posterior = self.posterior_ if later is None else later.with_all()
        asked = self.encoder_.asked(X, self.ids_, posterior)
        mean, noise, epistemic = posterior.moments(asked, self._threads())
        which = np.linspace(0, len(posterior), n, endpoint=False).astype(int)
        if n > len(posterior):
            which = np.arange(n) % len(posterior)
        drawn = [draw_cells(posterior, asked, int(draw), rng) for draw in which]
        return np.asarray((np.array(drawn) - mean) / np.sqrt(noise + epistemic))

    def schema(self) -> Schema:
        """Declare what a file keeps: also the posterior, and the units of values."""
        yield from super().schema()
        grouping = index_of(self, self.ids_)
        shape = tuple(grouping.shape[mode] for mode in _time_last(grouping))
        yield from series_schema(self, shape, len(SensorEncoder.bare(self).times))
        yield Entry("convergence", "convergence_", record)
        yield from units_schema("units.", "encoder_.units", grouping.n_sensors + 1)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        bare = replace(SensorEncoder.bare(self), units=Units(**found.part("units")))
        self.posterior_ = restored_series(self, found, bare.shape, bare.times)
        self.seasons_ = self.posterior_.spec.seasons
        self.encoder_ = bare.with_series(self.posterior_)


def usual_step(times: Array) -> float:
    """Return the time that mostly lies between one stamp and the next, bursts or not."""
    steps = np.diff(np.unique(times))
    return float(max(np.median(steps), BURSTS * steps.mean())) if len(steps) else 1.0


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

    @classmethod
    def bare(cls, model: Any) -> SensorEncoder:
        """Return what the ids of a model alone tell."""
        grouping = index_of(model, model.ids_)
        nothing = Units(np.zeros(0), np.ones(0))
        return cls(grouping, nothing, *checked_stamps(model.ids_[grouping.time]))

    @property
    def modes(self) -> list[int]:
        """All modes, time last."""
        return _time_last(self.grouping)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows of every mode, time last."""
        return (*(self.grouping.shape[mode] for mode in self.modes[:-1]), len(self.times))

    @cached_property
    def times(self) -> Array:
        """The times of the sampler's rows of time, in order; those very close are one."""
        times = np.unique(self.stamps)
        near = MERGED * usual_step(times)
        if len(times) < 2 or np.diff(times).min() >= near:
            return times
        kept = [float(times[0])]
        for time in times.tolist():
            if time - kept[-1] >= near:
                kept.append(time)
        return np.array(kept)

    def series_data(self, seen: Observations) -> SeriesData:
        """Return the observations as the sampler wants them."""
        place = np.searchsorted(self.times, self.stamps, side="right") - 1
        codes = [seen.codes[mode] for mode in self.modes]
        codes[-1] = place[codes[-1]].astype(np.int32)
        types = self.grouping.sensors_of(seen.codes)
        values = (seen.values - self.units.mean[types]) / np.sqrt(self.units.variance[types])
        return SeriesData.of(tuple(codes), values.astype(np.float32), self.shape, self.times)

    def timed(self, new: Observations, ids: tuple[Ids, ...]) -> Timed:
        """Return readings of series that were observed, as filters take them in."""
        codes, when = encode_in_time(new, ids, self.grouping.time, self.stamps, self.are_dates)
        which, types = self.grouping.series(codes), self.grouping.sensors_of(codes)
        values = (new.values - self.units.mean[types]) / np.sqrt(self.units.variance[types])
        known = (which >= 0) & ~np.isnan(when)
        return Timed.of(when[known], which[known], values[known])

    def asked(self, X: Any, ids: tuple[Ids, ...], posterior: SeriesPosterior) -> Asked:
        """Return cells as draws are asked for them."""
        codes, when = encode_in_time(X, ids, self.grouping.time, self.stamps, self.are_dates)
        own = [codes[mode] for mode in self.modes[:-1]]
        rows = np.array([posterior.known_codes(m, code) for m, code in enumerate(own)])
        types = self.grouping.sensors_of(codes)
        return Asked(rows, self.grouping.series(codes), when, types, self.grouping.sensors)

    def cells(
        self, X: Any, ids: tuple[Ids, ...], known: SeriesPosterior | Later, n_jobs: int
    ) -> Cells:
        """Return what is known of cells; their times need not be known, only understood."""
        posterior = known.posterior if isinstance(known, Later) else known
        asked = self.asked(X, ids, posterior)
        rows, when, types = asked.codes, asked.when, asked.sensor
        standard, noise, epistemic = known.moments(asked, n_jobs)
        variance = self.units.variance[types]
        mean = self.units.mean[types] + np.sqrt(variance) * standard
        unseen = np.isnan(when) | (rows == np.array(self.shape[:-1])[:, None]).any(axis=0)
        parts = (mean, variance * noise, variance * epistemic)
        return Cells(Moments(*(part.astype(self.units.precision) for part in parts)), unseen)

    def with_series(self, posterior: SeriesPosterior) -> SensorEncoder:
        """Return the same, with the series that were observed."""
        codes = posterior.codes[:-1, posterior.series.starts[:-1]]
        keys = np.ravel_multi_index(tuple(codes.astype(np.int64)), self.shape[:-1])
        return replace(self, grouping=replace(self.grouping, keys=keys))
