"""StandardisedModel: a model of readings as z-scores on the scale that suits them.

Which scale that is, and whether outliers are errors, is decided on readings that are hidden as the
holes of the table are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from noisewise import outliers
from noisewise.data import Codes, Ids, Observations, encode_ids, observe
from noisewise.data.timestamps import Floats, Ints, as_integers, series_keys
from noisewise.drift import Drift
from noisewise.engine.gibbs.series.later import Place
from noisewise.models import base, contest
from noisewise.models.auto import AutoFactorizer
from noisewise.models.base import Factorizer
from noisewise.models.contest import Arena
from noisewise.models.holes import Like, Readings, trials
from noisewise.models.mixing import Mix
from noisewise.scaling import TRANSFORMS, Decided, Look, Scale, check_within, fit_scale, scatter
from noisewise.since import Past, Since, filters, sampler_of, stand_in_for, times_of, with_readings

TRIALS = 2  # that tell a scale
FEWEST = 30  # hidden cells that do


class Wishes(NamedTuple):
    """What a user said of the scale of readings."""

    transform: str | None = None  # "auto", a name, or None
    bounds: Any = None  # "auto", a pair, or None
    outliers: str = "keep"  # "auto", "keep" or "drop"
    like: Like = "table"  # what holes will be like


class Ahead(NamedTuple):
    """A forecast of all series, step by series."""

    mean: Floats
    std: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class StandardisedModel:
    """Readings, the scale of their sensors, and the model that was fitted to both.

    Models compute in float32: what they say of z-scores goes back to units in float64, so that a
    meter that counts in millions keeps its digits.
    """

    seen: Observations  # all readings, in float64; ids that have none are not among its ids
    sensor: int | None  # the mode that is the sensor; None if all readings have one unit
    decided: Decided
    scale: Scale
    model: Factorizer  # fitted to the readings as z-scores
    since: Since  # what was read after the fit
    now: Any  # the model, or what stands in for it, that knows what was read since
    stand_in: Factorizer | None  # of a model that cannot take readings in
    past: Past  # what the fit has seen

    @classmethod
    def fit(
        cls,
        seen: Observations,
        sensor: int | None,
        model: Any,
        wishes: Wishes,
        holes: Observations | None = None,
    ) -> StandardisedModel:
        """Fit a model to readings; one that chooses among others is told which holes to fill."""
        seen = _without_unseen(seen)
        dropped = wishes.outliers == "drop"
        if wishes.outliers == "auto":
            found = _outliers(seen)
            dropped = bool(found.any()) and outliers.are_errors(seen, holes, found)
        kept = learned_from(seen, Decided(dropped=dropped))
        decided = [Decided(wishes.transform, False, dropped)]
        if wishes.transform == "auto":
            decided = _eligible(kept, sensor, dropped)
        found = [(one, scale_of(seen, sensor, one, wishes.bounds)) for one in decided]
        scales = [_scaling(kept, sensor, one.transform, scale) for one, scale in found]
        at = 0
        if isinstance(model, AutoFactorizer):
            model.fit(_on(kept, scales[0]), holes=holes, scales=scales)
            at = [scaling.name for scaling in scales].index(model.scale_)
        else:
            at = _best_scale(kept, model, wishes.like, scales, holes) if len(scales) > 1 else 0
            model.fit(_on(kept, scales[at]))
        taken, scale = found[at]
        return cls.made(seen, sensor, taken, scale, model)

    @classmethod
    def made(
        cls, seen: Observations, sensor: int | None, decided: Decided, scale: Scale, model: Any
    ) -> StandardisedModel:
        """Put together what was fitted, as of when it was."""
        kept = learned_from(seen, decided)
        standard = _on(kept, _scaling(kept, sensor, None, scale))
        stand_in = stand_in_for(model, standard, sensor)
        since = Since.none(seen.n_modes)
        past = Past(seen, scale, sensor)
        return cls(seen, sensor, decided, scale, model, since, model, stand_in, past)

    def predict(self, cells: Observations) -> tuple[Floats, Floats]:
        """Mean and std of readings; NaN for sensors of which nothing was ever read."""
        known, sensors = self._sensors(cells)
        mean, std = np.full(len(cells), np.nan), np.full(len(cells), np.nan)
        for rows, model in self._answering(cells, known):
            told = _told(model, cells.take(rows))
            mean[rows], std[rows] = self.scale.own(*told[:2], sensors[rows], told[2])
        return mean, std

    def interval(self, cells: Observations, coverage: float) -> tuple[Floats, Floats]:
        """Return ends of intervals of readings; NaN for sensors of which nothing was ever read.

        They hold the mean, which on a scale of roots or logarithms is above the middle.
        """
        known, sensors = self._sensors(cells)
        ends = np.full((2, len(cells)), np.nan)
        for rows, model in self._answering(cells, known):
            z, spread, judged = _told(model, cells.take(rows))
            mean = self.scale.own(z, spread, sensors[rows], judged)[0]
            low, high = (
                self.scale.ends(end, sensors[rows]) for end in model.interval(z, spread, coverage)
            )
            ends[:, rows] = np.minimum(low, mean), np.maximum(high, mean)
        return ends[0], ends[1]

    def _answering(self, cells: Observations, known: Any) -> list[tuple[Any, Any]]:
        """Return who answers for which cells: after the fit, it may be what stands in."""
        if self.stand_in is None or self.now is self.model:
            return [(known, self.now)] if len(known) else []
        late = times_of(cells)[known] > self.past.end
        parts = ((known[~late], self.model), (known[late], self.now))
        return [(rows, model) for rows, model in parts if len(rows)]

    def _sensors(self, cells: Observations) -> tuple[Any, Ints]:
        """Return the cells of sensors that were read, and the sensor of each."""
        sensors = _sensor_codes(cells, self.seen, self.sensor)
        return np.flatnonzero(sensors >= 0), sensors

    def updated(self, new: Observations, bounds: Any) -> StandardisedModel:
        """Fit the model again if readings are new; they replace old ones of the same cells.

        What was decided stays: the scale, and the choice among models.
        """
        fresh = self._fresh(new)[0]
        if not len(fresh):
            return self
        seen = observe(self.everything, ids=self.seen.ids)
        new = observe(new.take(fresh), ids=seen.ids)
        old_keys, new_keys = _keys(seen, new.shape), _keys(new, new.shape)
        rest = seen.take(~np.isin(old_keys, new_keys))
        codes = tuple(np.append(a, b) for a, b in zip(rest.codes, new.codes, strict=True))
        values = np.append(rest.values, new.values)
        seen = _without_unseen(Observations(codes, values, new.ids))
        scale = scale_of(seen, self.sensor, self.decided, bounds)
        kept = learned_from(seen, self.decided)
        standard = _on(kept, _scaling(kept, self.sensor, None, scale))
        if isinstance(self.model, AutoFactorizer):
            model: Factorizer = self.model.refitted(standard)
        else:
            model = base.clone_with(self.model).fit(standard)
        return StandardisedModel.made(seen, self.sensor, self.decided, scale, model)

    @property
    def everything(self) -> Observations:
        """All readings: those of the fit, and those since."""
        if not len(self.since):
            return self.seen
        seen = self.seen
        old = Since(np.array(seen.codes[:-1]), times_of(seen), seen.values)
        return old.joined(self.since).observations(seen.ids)

    def _fresh(self, new: Observations) -> tuple[Any, Since]:
        """Return which readings say something else than what is known; and those of known ids."""
        if not len(new):
            return np.zeros(0, dtype=np.intp), Since.none(self.seen.n_modes)
        codes, when = encode_ids(new, self.seen.ids), times_of(new)
        same = self.past.read(codes) == new.values
        found = Since(np.array(codes[:-1]), when, np.asarray(new.values, dtype=np.float64))
        if len(self.since):
            since = self.since.find(found)
            same = np.where(np.isnan(since), same, since == new.values)
        known = (found.codes >= 0).all(axis=0)
        return np.flatnonzero(~same), found.take(np.flatnonzero(~same & known))

    def knowing(
        self, new: Observations, bounds: Any = None, places: Iterator[Place] | None = None
    ) -> StandardisedModel:
        """Return the same that knows new readings, too; nothing is trained.

        ``places`` are where these readings led filters, if they did before.
        """
        fresh = self._fresh(new)[1]
        if not len(fresh):
            return self
        check_within(bounds, fresh.values)
        z = self.past.standard(fresh).astype(np.float32)
        standard = fresh.observations(self.seen.ids, z)
        before = self.now if self.stand_in is None or len(self.since) else self.stand_in
        now = with_readings(before, standard, places)
        return replace(self, since=self.since.joined(fresh), now=now)

    def settled(self) -> StandardisedModel:
        """Return the same as a file has it: filters stand where the last readings led them."""
        for model in filters(self.now):  # which are twins that nobody else has
            model.later_ = model.later_.settled()
        return self

    def drift(self) -> tuple[Drift, list[Any]]:
        """Return what readings since the fit are like beside those of the fit; and who is who."""
        return self.past.drift(self.since)

    @property
    def last_time(self) -> float:
        """The time of the last reading."""
        return max(self.past.end, float(self.since.when.max(initial=-np.inf)))

    def ahead(self, steps: int, coverage: float) -> Ahead:
        """Forecast all series: mean, std and ends of intervals in units of the table."""
        seen = learned_from(self.seen, self.decided)
        forecaster = self.past.forecaster(seen, steps)
        z, spread = forecaster.ahead(self.past.grid(self.everything))
        lone = np.bincount(self.past.series(self.seen.codes[:-1])) < 2
        spread = np.where(lone, np.maximum(spread, 1.0), spread)  # nothing tells how they swing
        low, high = forecaster.ends(coverage)
        sensors = self.past.sensors

        def own(part: Any) -> Floats:
            return np.array([self.scale.ends(row, sensors) for row in part[:steps]])

        both = [self.scale.own(*row, sensors) for row in zip(z[:steps], spread, strict=False)]
        mean, std = (np.array(part) for part in zip(*both, strict=True))
        below, above = own(z + low[:, None] * spread), own(z + high[:, None] * spread)
        return Ahead(mean, std, np.minimum(below, mean), np.maximum(above, mean))

    def sample(self, cells: Observations, n: int, rng: np.random.Generator) -> Floats:
        """Return n joint draws of readings; NaN for sensors of which nothing was ever read.

        Means and stds are those of the model; how cells go together is as in draws of the sampler.
        """
        known, sensors = self._sensors(cells)
        found = np.full((n, len(cells)), np.nan)
        if not len(known):
            return found
        sampler: Any = sampler_of(self.now)
        if sampler is None:
            kept = learned_from(self.seen, self.decided)
            standard = _on(kept, _scaling(kept, self.sensor, None, self.scale))
            sampler = self.past.sampler(standard)
            if len(self.since):
                z = self.past.standard(self.since).astype(np.float32)
                sampler = sampler.with_readings(self.since.observations(self.seen.ids, z))
        away = sampler.joint_draws(cells.take(known), n, rng)
        for rows, model in self._answering(cells, known):
            z, spread = model.predict(cells.take(rows), return_std=True)
            at = np.searchsorted(known, rows)
            for draw in range(n):
                drawn = z + spread * away[draw, at]
                found[draw, rows] = self.scale.ends(drawn, sensors[rows])
        return found

    def begins_like(self, new: Observations, n_rows: int) -> bool:
        """Tell whether rows, numbered from 0, have the same readings up to a row."""
        old, new = (
            part.take(part.ids[-1].labels[part.codes[-1]] < n_rows)
            for part in (self.everything, new)
        )
        if len(old) != len(new) or not len(new):
            return len(old) == len(new)
        new = observe(new, ids=self.seen.ids)
        a, b = _keys(old, new.shape), _keys(new, new.shape)
        first, second = np.argsort(a), np.argsort(b)
        alike = np.array_equal(a[first], b[second])
        return alike and np.array_equal(old.values[first], new.values[second])


def scale_of(seen: Observations, sensor: int | None, decided: Decided, bounds: Any) -> Scale:
    """Return the scale of readings, as it was decided."""
    kept = learned_from(seen, decided)
    sensors, look = _sensors_of(kept, sensor)[0], _look_at(kept, sensor)
    return fit_scale(kept.values, sensors, look, decided.transform, bounds, chosen=decided.chosen)


def _look_at(seen: Observations, sensor: int | None) -> Look:
    """Look at the readings of sensors; at how they scatter only where that tells anything."""
    sensors, n = _sensors_of(seen, sensor)
    look = Look.at(seen.values, sensors, n)
    if not (look.are_whole & ~look.ends_at_zero).any():
        return look
    series = series_keys(seen.codes, seen.shape, seen.n_modes - 1)[0]
    order = np.lexsort([times_of(seen), series])
    return look.with_scatter(scatter(seen.values[order], sensors[order], series[order], n))


def learned_from(seen: Observations, decided: Decided) -> Observations:
    """Return the readings to learn from: without outliers, if these are errors."""
    if not decided.dropped:
        return seen
    found = _outliers(seen)
    return seen.take(~found) if found.any() else seen


def _outliers(seen: Observations) -> Any:
    keys = series_keys(seen.codes, seen.shape, seen.n_modes - 1)[0]
    series, which = np.unique(keys, return_inverse=True)
    return outliers.find_outliers(seen, which, times_of(seen), len(series))


def _scaling(
    seen: Observations, sensor: int | None, name: str | None, scale: Scale
) -> contest.Scaling:
    """Return readings as z-scores, and what takes z-scores of cells back to readings."""

    def restore(cells: Observations, mean: Any, std: Any) -> Any:
        sensors = _sensor_codes(cells, seen, sensor)
        return scale.ends(mean, sensors) if std is None else scale.own(mean, std, sensors)[0]

    z = scale.standard(seen.values, _sensors_of(seen, sensor)[0])
    return contest.Scaling(name, z.astype(np.float32), restore)


def _told(model: Any, cells: Observations) -> tuple[Any, Any, Any]:
    """Return mean and std of z-scores; and the std that a mean is taken with, if another."""
    if isinstance(model, AutoFactorizer):
        return model.predict_judged(cells)
    return *model.predict(cells, return_std=True), None


def _on(seen: Observations, scaling: contest.Scaling) -> Observations:
    return Observations(seen.codes, scaling.values, seen.ids)


def _eligible(seen: Observations, sensor: int | None, dropped: bool) -> list[Decided]:
    """Return the scales to try: readings as they are, and others if any look like counts."""
    sensors, n = _sensors_of(seen, sensor)
    can_be = Look.at(seen.values, sensors, n).can_be_counts.any()
    return [Decided(one, True, dropped) for one in (None, *(TRANSFORMS if can_be else ()))]


def _best_scale(
    seen: Observations,
    model: Any,
    like: Like,
    scales: list[contest.Scaling],
    holes: Observations | None,
) -> int:
    """Return the scale on which a model predicts hidden readings best."""
    readings = Readings.of(seen, seen.n_modes - 1, holes)
    drawn = trials(readings, like, np.random.default_rng(0))
    arena = Arena(seen, readings, contest.draw_trials(drawn)[:TRIALS], {"model": model}, like)
    if arena.n_hidden < FEWEST:
        return 0
    return scales.index(arena.best_scale(scales, Mix.only("model"))[0])


def _keys(seen: Observations, shape: tuple[int, ...]) -> Ints:
    """Return one number for each cell."""
    return series_keys(seen.codes, shape)[0]


def _sensors_of(seen: Observations, sensor: int | None) -> tuple[Ints, int]:
    """Return the sensor of each reading, and how many there are."""
    if sensor is None:
        return np.zeros(len(seen), dtype=np.int64), 1
    return seen.codes[sensor].astype(np.int64), len(seen.ids[sensor])


def _sensor_codes(cells: Observations, seen: Observations, sensor: int | None) -> Ints:
    """Return the sensor of cells among those of readings; -1 for one that was never read."""
    if sensor is None:
        return np.zeros(len(cells), dtype=np.int64)
    known = seen.ids[sensor].lookup(cells.ids[sensor].labels)
    return known[cells.codes[sensor]].astype(np.int64)


def _without_unseen(seen: Observations) -> Observations:
    """Return the same readings without the ids that have none; times in their order."""
    coded: list[tuple[Ids, Codes]] = []
    for own, seen_codes in zip(seen.ids[:-1], seen.codes[:-1], strict=True):
        present, code = np.unique(seen_codes, return_inverse=True)
        coded.append((Ids(own.labels[present], own.name), code.astype(np.int32)))
    coded.append(Ids.encode(as_integers(times_of(seen)), seen.ids[-1].name))
    codes = tuple(code for _, code in coded)
    return Observations(codes, seen.values, tuple(ids for ids, _ in coded))
