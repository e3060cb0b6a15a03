"""StandardisedModel: a model of readings as z-scores of their sensor, and the readings themselves.

Models compute in float32, and some take all values to be of one unit. So readings come to them as
z-scores of their sensor, and what they say goes back to units in float64: a meter that counts in
millions keeps its digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from noisewise.data import Codes, Ids, Observations, observe
from noisewise.data.timestamps import Floats, Ints, Units, as_integers, key_places, series_keys
from noisewise.models.auto import AutoFactorizer
from noisewise.models.base import Factorizer, clone_with
from noisewise.models.model_file import IdsOfModes, Part
from noisewise.schema import (
    ANY,
    Entry,
    Rule,
    Schema,
    Source,
    Tensor,
    below,
    integer,
    packed,
    unpacked,
)
from noisewise.storage import Damaged, Tensors


@dataclass(frozen=True, eq=False)
class StandardisedModel:
    """Readings, the units of their sensors, and the model that was fitted to both."""

    seen: Observations  # all readings, in float64; ids that have none are not among its ids
    sensor: int | None  # the mode that is the sensor; None if all readings have one unit
    units: Units  # mean and variance of each sensor
    model: Factorizer  # fitted to the readings as z-scores

    @classmethod
    def fit(cls, seen: Observations, sensor: int | None, model: Factorizer) -> StandardisedModel:
        """Fit a model to readings."""
        seen = _without_unseen(seen)
        units, sensors = _units(seen, sensor)
        scores = (seen.values - units.mean[sensors]) / np.sqrt(units.variance[sensors])
        model.fit(Observations(seen.codes, scores.astype(np.float32), seen.ids))
        return cls(seen, sensor, units, model)

    def predict(self, cells: Observations) -> tuple[Floats, Floats]:
        """Mean and std of readings; NaN for sensors of which nothing was ever read."""
        mean, std = np.full(len(cells), np.nan), np.full(len(cells), np.nan)
        sensors = np.zeros(len(cells), dtype=np.int32)
        if self.sensor is not None:
            asked = cells.ids[self.sensor].labels
            sensors = self.seen.ids[self.sensor].lookup(asked)[cells.codes[self.sensor]]
        known = np.flatnonzero(sensors >= 0)
        if len(known):
            scores, spread = self.model.predict(cells.take(known), return_std=True)
            scale = np.sqrt(self.units.variance[sensors[known]])
            mean[known] = self.units.mean[sensors[known]] + scale * scores
            std[known] = scale * spread
        return mean, std

    def updated(self, new: Observations) -> StandardisedModel:
        """Learn from new readings too, which replace old ones of the same cells.

        If they tell nothing new, nothing is learned; else the same model is fitted from scratch.
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
        everything = Observations(codes, np.append(rest.values, new.values), new.ids)
        if not isinstance(self.model, AutoFactorizer):
            return StandardisedModel.fit(everything, self.sensor, clone_with(self.model))
        again = StandardisedModel.fit(everything, self.sensor, clone_with(self.model.model_))
        again.model.calibration_ = self.model.calibration_  # as the chosen one was judged
        return again

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

    def pack(self) -> tuple[dict[str, Any], Tensors]:
        """Return what a file must keep."""
        return packed(_schema(), self)

    @classmethod
    def unpack(cls, source: Source) -> StandardisedModel:
        """Undo ``pack``, trusting nothing."""
        found = unpacked(_schema(), source)
        ids, sensor = found["ids"], found["sensor"]
        codes = tuple(found[f"mode{mode}.codes"] for mode in range(len(ids)))
        seen = Observations(codes, found["values"], ids)
        if found["model"].ids_ != ids:
            raise Damaged("its model is not of its readings")
        return cls(seen, sensor, _units(seen, sensor)[0], found["model"])


def _schema() -> Schema:
    """Declare what a file keeps of a model and of its readings."""
    yield Part("model", "model")
    ids = yield IdsOfModes("ids", "seen.ids")
    if len(ids) < 2:
        raise Damaged(f"it has {len(ids)} modes")
    yield Entry("sensor", "sensor", integer(most=len(ids) - 2), optional=True)
    values = yield Tensor("values", "float64", (ANY,), "seen.values")
    for mode, own in enumerate(ids):
        rule = Rule("does not match its ids", partial(_are_all, len(own)))
        yield Tensor(f"mode{mode}.codes", "int32", (len(values),), f"seen.codes.{mode}", rule)


def _are_all(n: int, codes: Ints) -> bool:
    return bool(below(n).holds(codes)) and len(np.unique(codes)) == n


def _keys(seen: Observations, shape: tuple[int, ...]) -> Ints:
    """Return one number for each cell."""
    return series_keys(seen.codes, shape)[0]


def _units(seen: Observations, sensor: int | None) -> tuple[Units, Any]:
    """Mean and variance of each sensor, and the sensor of each reading.

    A single reading says nothing of the variance of its sensor, and those of others are in other
    units: it may be off by its own size.
    """
    if sensor is None:
        sensors, many = np.zeros(len(seen), dtype=np.int64), 1
    else:
        sensors, many = seen.codes[sensor].astype(np.int64), len(seen.ids[sensor])
    mean, variance = Units.of(seen.values, sensors, many)
    lone = np.flatnonzero(np.bincount(sensors, minlength=many) == 1)
    variance[lone] = np.where(mean[lone] == 0.0, 1.0, mean[lone] ** 2)
    return Units(mean, variance), sensors


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
