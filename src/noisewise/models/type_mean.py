"""TypeMean: mean and std of each type of sensor, which every other model must beat."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np

from noisewise import storage
from noisewise.data import encode_ids, observe
from noisewise.data.panel import Grouping, Units, sensor_modes
from noisewise.engine.arrays import Moments
from noisewise.errors import ModelFileError
from noisewise.models.base import Cells
from noisewise.models.changing import in_one_step
from noisewise.models.sensors import InTime, Typed
from noisewise.models.trained import range_of
from noisewise.settings import check, learned, settings


@settings
class TypeMean(InTime, Typed):
    """Predict the mean of a type of sensor everywhere; its std is all noise.

    Examples
    --------
    >>> readings = [("hall", "C", 8, 19.0), ("hall", "%", 8, 40.0), ("attic", "C", 8, 21.0)]
    >>> TypeMean(sensor=1).fit(readings).predict([("cellar", "C", 9)]).tolist()
    [20.0]
    """

    units_: Units = learned("Mean and variance of every type.")

    @in_one_step
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a table of ids and a value for each row."""
        check(self)
        seen = observe(X, y, duplicates=self.duplicates)
        grouping = self._grouping(tuple(seen.ids))
        self.units_ = Units.of(seen.values, grouping.type_of(seen.codes), grouping.n_types)
        self.ids_, self.calibration_ = seen.ids, None
        self.value_range_ = range_of(self.value_range, seen)
        self._note_columns(X)
        return self

    def leave_one_out(self, X: Any, return_std: bool = False) -> Any:
        """Predict cells as ever: one among all of its type makes no difference."""
        return self.predict(X, return_std)

    def _grouping(self, ids: tuple[Any, ...]) -> Grouping:
        modes = sensor_modes(self.time, self.sensor, ids)
        return Grouping(*modes, tuple(map(len, ids)), np.empty(0, dtype=np.int64))

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        codes = encode_ids(X, self.ids_)
        types = self._grouping(self.ids_).type_of(codes)
        mean, noise = (part[types].astype(self.units_.precision) for part in self.units_)
        unseen = np.any([code < 0 for code in codes], axis=0)
        return Cells(Moments(mean, noise, np.zeros_like(noise)), unseen)

    def _pack(self) -> tuple[dict[str, Any], storage.Tensors]:
        return {}, {"mean": self.units_.mean, "variance": self.units_.variance}

    def _unpack(self, path: str | Path, header: dict[str, Any], tensors: storage.Tensors) -> None:
        n = self._grouping(self.ids_).n_types + 1
        mean, variance = (
            storage.take(path, tensors, name, "float64", n) for name in ("mean", "variance")
        )
        if variance.min() <= 0:
            raise ModelFileError(f"{path} is damaged: it has a variance that is none.")
        self.units_ = Units(mean, variance)
