"""StandardisedModel: a model of readings as z-scores on the scale that suits them.

Which scale that is, and whether outliers are errors, is decided on readings that are hidden as the
holes of the table are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from noisewise import outliers
from noisewise.data import Codes, Ids, Observations, observe
from noisewise.data.timestamps import Floats, Ints, as_integers, key_places, series_keys
from noisewise.models import base, contest
from noisewise.models.auto import AutoFactorizer
from noisewise.models.base import Factorizer
from noisewise.models.contest import Arena
from noisewise.models.holes import Like, Readings, trials
from noisewise.scaling import TRANSFORMS, Decided, Look, Scale, fit_scale

TRIALS = 2  # that tell a scale
FEWEST = 30  # hidden cells that do


class Wishes(NamedTuple):
    """What a user said of the scale of readings."""

    transform: str | None = None  # "auto", a name, or None
    bounds: Any = None  # "auto", a pair, or None
    outliers: str = "keep"  # "auto", "keep" or "drop"
    like: Like = "table"  # what holes will be like


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
        return cls(seen, sensor, taken, scale, model)

    def predict(self, cells: Observations) -> tuple[Floats, Floats]:
        """Mean and std of readings; NaN for sensors of which nothing was ever read."""
        known, sensors = self._sensors(cells)
        mean, std = np.full(len(cells), np.nan), np.full(len(cells), np.nan)
        if len(known):
            z, spread = self.model.predict(cells.take(known), return_std=True)
            mean[known], std[known] = self.scale.own(z, spread, sensors[known])
        return mean, std

    def interval(self, cells: Observations, coverage: float) -> tuple[Floats, Floats]:
        """Return ends of intervals of readings; NaN for sensors of which nothing was ever read."""
        known, sensors = self._sensors(cells)
        ends = np.full((2, len(cells)), np.nan)
        if len(known):
            told = self.model.predict_interval(cells.take(known), coverage)
            ends[:, known] = [self.scale.ends(end, sensors[known]) for end in told]
        return ends[0], ends[1]

    def _sensors(self, cells: Observations) -> tuple[Any, Ints]:
        """Return the cells of sensors that were read, and the sensor of each."""
        sensors = _sensor_codes(cells, self.seen, self.sensor)
        return np.flatnonzero(sensors >= 0), sensors

    def updated(self, new: Observations, bounds: Any) -> StandardisedModel:
        """Fit the model again if readings are new; they replace old ones of the same cells.

        What was decided stays: the scale, and the choice among models.
        """
        if not len(new):
            return self
        new = observe(new, ids=self.seen.ids)
        old_keys, new_keys = _keys(self.seen, new.shape), _keys(new, new.shape)
        order = np.argsort(old_keys)
        at = key_places(old_keys[order], new_keys, np.ones(len(new), dtype=bool))
        if ((at >= 0) & (self.seen.values[order[at]] == new.values)).all():
            return self
        rest = self.seen.take(~np.isin(old_keys, new_keys))
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
        return StandardisedModel(seen, self.sensor, self.decided, scale, model)

    def begins_like(self, new: Observations, n_rows: int) -> bool:
        """Tell whether rows, numbered from 0, have the same readings up to a row."""
        old, new = (
            part.take(part.ids[-1].labels[part.codes[-1]] < n_rows) for part in (self.seen, new)
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
    sensors, n = _sensors_of(kept, sensor)
    return fit_scale(kept.values, sensors, n, decided.transform, bounds, chosen=decided.chosen)


def learned_from(seen: Observations, decided: Decided) -> Observations:
    """Return the readings to learn from: without outliers, if these are errors."""
    if not decided.dropped:
        return seen
    found = _outliers(seen)
    return seen.take(~found) if found.any() else seen


def _outliers(seen: Observations) -> Any:
    keys = series_keys(seen.codes, seen.shape, seen.n_modes - 1)[0]
    series, which = np.unique(keys, return_inverse=True)
    when = seen.ids[-1].labels[seen.codes[-1]].astype(np.float64)
    return outliers.find_outliers(seen, which, when, len(series))


def _scaling(
    seen: Observations, sensor: int | None, name: str | None, scale: Scale
) -> contest.Scaling:
    """Return readings as z-scores, and what takes z-scores of cells back to readings."""

    def restore(cells: Observations, mean: Any, std: Any) -> Any:
        sensors = _sensor_codes(cells, seen, sensor)
        return scale.ends(mean, sensors) if std is None else scale.own(mean, std, sensors)[0]

    z = scale.standard(seen.values, _sensors_of(seen, sensor)[0])
    return contest.Scaling(name, z.astype(np.float32), restore)


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
    return scales.index(arena.best_scale(scales, ["model"])[0])


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
    times = seen.ids[-1].labels[seen.codes[-1]].astype(np.float64)
    coded.append(Ids.encode(as_integers(times), seen.ids[-1].name))
    codes = tuple(code for _, code in coded)
    return Observations(codes, seen.values, tuple(ids for ids, _ in coded))
