"""Since: readings that came in after a fit, beside those of the fit; and models that take them in.

Nothing is trained here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from noisewise.data import Ids, Observations
from noisewise.data.timestamps import Floats, Ints, as_integers, key_places, series_keys
from noisewise.drift import Drift, Watch
from noisewise.engine.data import Series
from noisewise.engine.gibbs.series.later import Place
from noisewise.errors import LARGEST, unsaid
from noisewise.forecasting import HORIZON, Forecaster
from noisewise.models.auto import AutoFactorizer
from noisewise.models.average import AverageFactorizer
from noisewise.models.base import Factorizer
from noisewise.models.residual import ResidualFactorizer
from noisewise.models.sensors import widened
from noisewise.models.series import OUSmoother
from noisewise.models.temporal import TemporalFactorizer, usual_step
from noisewise.scaling import Scale
from noisewise.simple_forecasts import Grid

SAMPLER: dict[str, Any] = {"rank": 8, "sweeps": 120}  # what draws for models that cannot


class Since(NamedTuple):
    """Readings of known series after a fit, each cell once, in the order of time."""

    codes: npt.NDArray[np.int32]  # rows of every mode but time
    when: Floats
    values: Floats

    @classmethod
    def none(cls, n_modes: int) -> Since:
        """Nothing was read since."""
        return cls(np.zeros((n_modes - 1, 0), np.int32), np.zeros(0), np.zeros(0))

    def __len__(self) -> int:
        return len(self.when)

    def joined(self, new: Since) -> Since:
        """Return readings of both; of one cell, the new one holds."""
        codes = np.append(self.codes, new.codes, axis=1)
        when, values = np.append(self.when, new.when), np.append(self.values, new.values)
        order = np.lexsort([*codes, when])  # which keeps the new one behind the old
        last = np.ones(len(order), dtype=bool)
        alike = (np.diff(codes[:, order], axis=1) == 0).all(axis=0)
        last[:-1] = (np.diff(when[order]) != 0) | ~alike
        order = order[last]
        return Since(codes[:, order], when[order], values[order])

    def find(self, new: Since) -> Floats:
        """Return what was read in the cells of others; NaN where nothing was."""
        found = np.full(len(new), np.nan)
        if not len(self) or not len(new) or new.when.min() > self.when[-1]:
            return found
        near = self.take(slice(*np.searchsorted(self.when, [new.when.min(), new.when.max() + 1.0])))
        cells = dict(zip(near._cells(), near.values.tolist(), strict=True))
        found[:] = [cells.get(cell, np.nan) for cell in new._cells()]
        return found

    def _cells(self) -> list[tuple[float, ...]]:
        return list(zip(self.when.tolist(), *self.codes.tolist(), strict=True))

    def take(self, rows: Any) -> Since:
        """Return some of them."""
        return Since(self.codes[:, rows], self.when[rows], self.values[rows])

    def observations(self, ids: tuple[Ids, ...], values: Any = None) -> Observations:
        """Return them as observations, by the ids of a fit; with other values, if given."""
        times, code = Ids.encode(as_integers(self.when), ids[-1].name)
        values = self.values if values is None else values
        return Observations((*self.codes, code), values, (*ids[:-1], times))


@dataclass(frozen=True, eq=False)
class Past:
    """What a fit has seen, to look up by cell, and to compare with what came since."""

    seen: Observations
    scale: Scale
    sensor: int | None

    @cached_property
    def end(self) -> float:
        """The last time that the fit has seen."""
        return float(times_of(self.seen).max())

    @cached_property
    def _sorted(self) -> tuple[Ints, Any]:
        """Numbers of all cells that were read, sorted, and their order."""
        keys = series_keys(self.seen.codes, self.seen.shape)[0]
        order = np.argsort(keys)
        return keys[order], order

    def read(self, codes: tuple[Any, ...]) -> Floats:
        """Return what the fit has read in cells; NaN where nothing was."""
        keys, order = self._sorted
        at = key_places(keys, *series_keys(codes, self.seen.shape))
        return np.where(at >= 0, self.seen.values[order[at]], np.nan)

    def standard(self, since: Since) -> Floats:
        """Return readings as z-scores."""
        sensors = np.zeros(len(since)) if self.sensor is None else since.codes[self.sensor]
        z = self.scale.standard(since.values, sensors.astype(np.int64))
        return np.clip(z, -LARGEST, LARGEST)

    @cached_property
    def step(self) -> float:
        """The time that mostly lies between one row and the next."""
        return usual_step(times_of(self.seen))

    @cached_property
    def _keys(self) -> Ints:
        """Numbers of all series that were read."""
        return np.unique(series_keys(self.seen.codes, self.seen.shape, self.seen.n_modes - 1)[0])

    def series(self, codes: tuple[Any, ...]) -> Ints:
        """Return the series of cells, by rows of every mode but time; -1 if it was never read."""
        return key_places(self._keys, *series_keys(codes, self.seen.shape[:-1]))

    @property
    def sensors(self) -> Ints:
        """The sensor of every series."""
        codes = np.unravel_index(self._keys, self.seen.shape[:-1])
        none = np.zeros(len(self._keys), dtype=np.int64)
        return none if self.sensor is None else codes[self.sensor].astype(np.int64)

    def grid(self, readings: Observations) -> Grid:
        """Return readings of these series as z-scores on a grid of time."""
        since = Since(np.array(readings.codes[:-1]), times_of(readings), readings.values)
        which, z = self.series((*since.codes,)), self.standard(since)
        return Grid.of(which, since.when, z, len(self._keys), self.step)

    def forecaster(self, learned: Observations, steps: int) -> Forecaster:
        """Return what forecasts so many steps, or more, once it has learned from readings.

        It learns once for every horizon of a few, so that a call says nothing else after others.
        """
        horizon = HORIZON
        while horizon < steps:
            horizon *= 2
        found = self._forecasters.get(horizon)
        if found is None:
            read = self.grid(self.seen)
            found = Forecaster.of(self.grid(learned), horizon, read)
            self._forecasters[horizon] = found
        return found

    def sampler(self, standard: Observations) -> TemporalFactorizer:
        """Return what draws joint tables for models that cannot; it learns once from readings."""
        if "_sampler" not in self.__dict__:
            model = TemporalFactorizer(time=-1, sensor=self.sensor, random_state=0, **SAMPLER)
            with unsaid("Predictions have not settled"):
                self.__dict__["_sampler"] = model.fit(standard)
        return cast(TemporalFactorizer, self.__dict__["_sampler"])

    @cached_property
    def _forecasters(self) -> dict[int, Forecaster]:
        return {}

    @cached_property
    def _watch(self) -> tuple[Watch, Ints]:
        """What is usual for every series, and the numbers of series."""
        seen, keys = self.seen, self._keys
        which = self.series(seen.codes[:-1])
        z = self.standard(Since(np.array(seen.codes[:-1]), times_of(seen), seen.values))
        return Watch.of(Series.group(which, times_of(seen), z, len(keys))), keys

    def drift(self, since: Since) -> tuple[Drift, list[Any]]:
        """Return what readings are like beside those of the fit; and the ids of every series."""
        watch, keys = self._watch
        at = self.series((*since.codes,))
        known = at >= 0
        found = watch.look(at[known], since.when[known], self.standard(since)[known])
        places = zip(self.seen.ids, np.unravel_index(keys, self.seen.shape[:-1]), strict=False)
        labels = zip(*(ids.labels[code].tolist() for ids, code in places), strict=True)
        return found, [row[0] if len(row) == 1 else row for row in labels]


def times_of(cells: Observations) -> Floats:
    """Return the times of cells, of which the last mode is time, as numbers."""
    return np.asarray(cells.ids[-1].labels[cells.codes[-1]], dtype=np.float64)


def takes_readings(model: Any) -> bool:
    """Tell whether a fitted model can take readings in without training."""
    if isinstance(model, AutoFactorizer):
        return takes_readings(model.model_)
    if isinstance(model, AverageFactorizer):
        return any(map(takes_readings, model.parts_))
    if isinstance(model, ResidualFactorizer):
        return model.near_ is not None
    return hasattr(model, "with_readings")


def stand_in_for(model: Factorizer, seen: Observations, sensor: int | None) -> Factorizer | None:
    """Return what takes readings in for a model that cannot: each series alone, and its rhythm."""
    if takes_readings(model):
        return None
    return OUSmoother(time=-1, sensor=sensor, seasons="auto").fit(seen)


def with_readings(model: Any, new: Observations, places: Iterator[Place] | None = None) -> Any:
    """Return a twin of a fitted model that knows more readings; nothing is trained.

    Of several models together, those that cannot are left out. ``places`` are where these
    readings led filters before, if they did.
    """
    if isinstance(model, AutoFactorizer):
        again = widened(model, new.values)
        again.model_ = with_readings(model.model_, new, places)
        return again
    if isinstance(model, AverageFactorizer):
        again = widened(model, new.values)
        able = [k for k, part in enumerate(model.parts_) if takes_readings(part)]
        # What looks at the rows beside a row cannot go on as it was judged.
        able = [k for k in able if not getattr(model.parts_[k], "lags", ())] or able
        again.only(able, [with_readings(model.parts_[k], new, places) for k in able])
        return again
    if isinstance(model, TemporalFactorizer) and places is not None:
        return model.with_readings(new, next(places, None))
    return model.with_readings(new)


def sampler_of(model: Any) -> TemporalFactorizer | None:
    """Return the model within a model that draws joint tables; None if there is none."""
    if isinstance(model, AutoFactorizer):
        return sampler_of(model.model_)
    if isinstance(model, AverageFactorizer):
        return next((found for part in model.parts_ if (found := sampler_of(part))), None)
    return model if isinstance(model, TemporalFactorizer) else None


def filters(model: Any) -> Iterator[TemporalFactorizer]:
    """Yield the models within a model that go on as filters, if they know readings since."""
    if isinstance(model, AutoFactorizer):
        yield from filters(model.model_)
    elif isinstance(model, AverageFactorizer):
        for part in model.parts_:
            yield from filters(part)
    elif isinstance(model, TemporalFactorizer) and hasattr(model, "later_"):
        yield model
