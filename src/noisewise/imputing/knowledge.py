"""Knowledge: readings, the units of their types, and the model that learned from them.

Models compute in float32, and some take all values to be of one unit. So readings come to them as
z-scores of their type, and what they say goes back to units in float64: a meter that counts in
millions keeps its digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import storage
from noisewise.data import Codes, Ids, Observations, observe
from noisewise.data.holes import Floats
from noisewise.data.panel import Units, key_places, series_keys
from noisewise.data.times import as_integers
from noisewise.engine.series import Ints
from noisewise.errors import ModelFileError
from noisewise.filed_ids import pack_ids, unpack_ids
from noisewise.models.auto import AutoFactorizer
from noisewise.models.base import Factorizer
from noisewise.models.nested import adjusted, pack, unpack


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What is known of a table.

    Attributes
    ----------
    seen
        All readings, in float64; ids that have none are not among its ids.
    group
        The mode that is the type; None if all are of one type.
    units
        Mean and variance of each type.
    model
        Fitted to the readings as z-scores.
    """

    seen: Observations
    group: int | None
    units: Units
    model: Factorizer

    @classmethod
    def learn(cls, seen: Observations, group: int | None, model: Factorizer) -> Knowledge:
        """Fit a model to readings."""
        seen = _without_unseen(seen)
        units, types = _units(seen, group)
        scores = (seen.values - units.mean[types]) / np.sqrt(units.variance[types])
        model.fit(Observations(seen.codes, scores.astype(np.float32), seen.ids))
        return cls(seen, group, units, model)

    def predict(self, cells: Observations) -> tuple[Floats, Floats]:
        """Mean and std of readings; NaN for types of which nothing was ever read."""
        mean, std = np.full(len(cells), np.nan), np.full(len(cells), np.nan)
        types = np.zeros(len(cells), dtype=np.int32)
        if self.group is not None:
            asked = cells.ids[self.group].labels
            types = self.seen.ids[self.group].lookup(asked)[cells.codes[self.group]]
        known = np.flatnonzero(types >= 0)
        if len(known):
            scores, spread = self.model.predict(cells.take(known), return_std=True)
            scale = np.sqrt(self.units.variance[types[known]])
            mean[known] = self.units.mean[types[known]] + scale * scores
            std[known] = scale * spread
        return mean, std

    def updated(self, new: Observations) -> Knowledge:
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
            return Knowledge.learn(everything, self.group, adjusted(self.model))
        again = Knowledge.learn(everything, self.group, adjusted(self.model.model_))
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

    def pack(self) -> tuple[dict[str, Any], storage.Tensors]:
        """Return what a file must keep."""
        header, tensors = pack(self.model, "model")
        packed = [pack_ids(ids, f"mode{m}") for m, ids in enumerate(self.seen.ids)]
        tensors["values"] = self.seen.values
        for mode, (_, id_tensors) in enumerate(packed):
            tensors |= id_tensors | {f"mode{mode}.codes": self.seen.codes[mode]}
        header |= {"ids": [entry for entry, _ in packed], "group": self.group}
        return header, tensors

    @classmethod
    def unpack(
        cls, path: str | Path, header: dict[str, Any], tensors: storage.Tensors
    ) -> Knowledge:
        """Undo ``pack``, trusting nothing."""
        values: Any = storage.take(path, tensors, "values", "float64", storage.ANY)
        ids, codes = [], []
        for mode, entry in enumerate(header["ids"]):
            own = unpack_ids(path, entry, tensors, f"mode{mode}")
            code = storage.take(path, tensors, f"mode{mode}.codes", "int32", len(values))
            storage.check_codes(path, f"mode{mode}.codes", code, len(own))
            if len(np.unique(code)) < len(own):
                raise ModelFileError(f"{path} is damaged: its readings do not match its ids.")
            ids.append(own)
            codes.append(code)
        group = header["group"]
        if len(ids) < 2 or group not in (None, *range(len(ids) - 1)):
            raise ModelFileError(f"{path} is damaged: it has {len(ids)} modes and type {group!r}.")
        seen = Observations(tuple(codes), values, tuple(ids))
        model = unpack(path, header, tensors, "model")
        if model.ids_ != seen.ids:
            raise ModelFileError(f"{path} is damaged: its model is not of its readings.")
        return cls(seen, group, _units(seen, group)[0], model)


def _keys(seen: Observations, shape: tuple[int, ...]) -> Ints:
    """Return one number for each cell."""
    return series_keys(seen.codes, shape)[0]


def _units(seen: Observations, group: int | None) -> tuple[Units, Any]:
    """Mean and variance of each type, and the type of each reading.

    A single reading says nothing of the variance of its type, and those of other types are in other
    units: it may be off by its own size.
    """
    if group is None:
        types, many = np.zeros(len(seen), dtype=np.int64), 1
    else:
        types, many = seen.codes[group].astype(np.int64), len(seen.ids[group])
    mean, variance = Units.of(seen.values, types, many)
    lone = np.flatnonzero(np.bincount(types, minlength=many) == 1)
    variance[lone] = np.where(mean[lone] == 0.0, 1.0, mean[lone] ** 2)
    return Units(mean, variance), types


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
