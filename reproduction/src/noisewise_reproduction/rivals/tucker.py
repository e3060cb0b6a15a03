"""TuckerFactorizer: a row per id in every mode, joined by a core, learned on observed cells only.

mean_ijk = sum_abc G_abc A_ia B_jb C_kc
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.data import Ids, Observations, encode_ids
from noisewise.data.timestamps import Units, sensor_modes
from noisewise.engine.arrays import Array, Codes, Floats, Ints, Moments
from noisewise.engine.training import EpochInfo, train
from noisewise.errors import SettingError, brief, training_bar
from noisewise.models.base import Cells, at_one_moment
from noisewise.models.iterative import Fit, Iterative, Plan
from noisewise.models.learner import count_rows
from noisewise.models.sensors import MODE, PRIOR, Typed, units_schema
from noisewise.schema import NOT_NEGATIVE, POSITIVE, Found, Schema, Tensor
from noisewise.settings import Rule, learned, number, setting, settings, whole
from noisewise_reproduction.rivals.engine import tucker_sgd as tucker
from noisewise_reproduction.rivals.engine.tucker_sgd import Params, State, first_places, places_of

LEAST = 1e-6  # share of a type's variance that is noise at least
ADVICE = "Try a smaller learning_rate (now {0.learning_rate}) or a larger l2 (now {0.l2})."


def _are_ranks(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) > 1 and all(map(whole(1).holds, value))


RANK = Rule(
    f"{whole(1).words}, or one for each mode",
    lambda v: whole(1).holds(v) or _are_ranks(v),
)


class Decomposition(NamedTuple):
    """What was learned, in units of each type's standard deviation.

    ``noise`` is the variance of residuals of every type, and of a type never seen; ``epistemic``
    has for each mode what the variance grows by when its row is not known.
    """

    rows: Floats
    core: Floats
    ranks: tuple[int, ...]
    known: npt.NDArray[np.bool_]
    units: Units
    noise: Array
    epistemic: Array

    def __repr__(self) -> str:
        return brief(self)


@settings
class TuckerFactorizer(Iterative, Typed):
    """Tucker decomposition with L2, for two modes or more.

    Values are centred and divided by their standard deviation within each type of sensor before
    training, so that no unit counts more than another; the learning curve is in these units. The
    std is that of training residuals of the type, and for ids never seen, which get the average
    row, also what errors grow by without a row; held-out data scales it.

    Examples
    --------
    >>> rows = [(i, j, k, (i + 1.0) * (j + 1) * (k - 2)) for i in range(4) for j in range(3)
    ...         for k in range(5)]
    >>> model = TuckerFactorizer(rank=2, patience=None, epochs=30, random_state=0).fit(rows)
    >>> model.core_.shape
    (2, 2, 2)
    >>> bool(model.score([row[:3] for row in rows], [row[3] for row in rows]) > 0.9)
    True
    """

    rank: int | tuple[int, ...] = setting(
        RANK,
        "Factors of every mode, or of each; a mode never has more than ids. The core has as "
        "many entries as their product, and each observation visits all of them.",
        default=10,
        kw_only=False,
    )
    time: int | str = setting(
        MODE,
        "The mode that holds the times, by number (-1 is the last) or name: it is not the type.",
        default=-1,
    )
    learning_rate: float = setting(
        number(above=0.0),
        "AdaGrad's step.",
        default=0.15,
    )
    l2: float = setting(
        number(least=0.0),
        "Penalty on the squares of rows and core, charged with every observation.",
        default=0.003,
    )
    _any_modes = True

    decomposition_: Decomposition = learned()

    @property
    @at_one_moment
    def core_(self) -> Floats:
        """The core, one axis per mode."""
        return self.decomposition_.core.reshape(self.decomposition_.ranks)

    def _checked(self, observations: Observations) -> Observations:
        self._ranks(observations.shape)
        self._group(observations.ids)
        return observations

    def _ranks(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        ranks = self.rank if isinstance(self.rank, tuple | list) else [self.rank] * len(shape)
        if len(ranks) != len(shape):
            raise SettingError(
                f"rank must be one number, or one for each of {len(shape)} modes; got {self.rank}."
            )
        return tuple(min(int(rank), n) for rank, n in zip(ranks, shape, strict=True))

    def _group(self, ids: tuple[Ids, ...]) -> int | None:
        return sensor_modes(self.time, self.sensor, ids)[1]

    def _types(self, codes: tuple[Codes, ...], sensor: int | None) -> Ints:
        """Return the type of cells; of one never seen, -1, which is the last."""
        if sensor is None:
            return np.zeros(len(codes[0]), np.int64)
        return codes[sensor].astype(np.int64)

    def _learn(
        self, observations: Observations, held_out: Observations | None, plan: Plan, seed: int
    ) -> Fit:
        shape, sensor = observations.shape, self._group(observations.ids)
        params = Params(self._ranks(shape), self.learning_rate, self.l2, seed)
        types = self._types(observations.codes, sensor)
        n_types = 1 if sensor is None else shape[sensor]
        units = Units.of(observations.values, types, n_types)
        values = _standardised(observations.values, units, types)
        places = places_of(observations.codes, shape)
        validate = None
        if held_out is not None:
            asked = places_of(held_out.codes, shape)
            truth = _standardised(held_out.values, units, self._types(held_out.codes, sensor))

            def validate(state: State) -> tuple[float, float]:
                mean = tucker.predict(state.rows, state.core, params.ranks, asked, self._threads())
                squared = float(np.mean((truth - mean).astype(np.float64) ** 2))
                variance = max(state.variance, LEAST)
                nll = 0.5 * (math.log(2 * math.pi * variance) + squared / variance)
                return math.sqrt(squared), nll

        def step(state: State) -> EpochInfo:
            return tucker.epoch(state, places, values, params)

        training = train(
            tucker.initial_state(params, observations.codes, values, shape), step,
            epochs=plan.epochs, validate=validate, patience=plan.patience, monitor=plan.monitor,
            callbacks=plan.callbacks, checkpoint=plan.checkpoint,
            bar=training_bar(plan.label, verbose=plan.verbose), advice=ADVICE.format(params),
        )  # fmt: skip
        chosen = training.chosen
        known = np.concatenate([np.append(n > 0, False) for n in count_rows(observations)])
        rows = _with_average_rows(chosen.rows, known, shape)
        left = np.empty((len(shape) + 1, len(values)))
        for without in range(len(shape) + 1):  # the last is without nothing
            seen = places.copy()
            if without < len(shape):
                seen[without] = first_places(shape)[without] + shape[without]
            mean = tucker.predict(rows, chosen.core, params.ranks, seen, self._threads())
            left[without] = (values - mean).astype(np.float64) ** 2
        overall = max(float(left[-1].mean()), LEAST)
        counts = np.append(np.bincount(types, minlength=n_types), 0)
        sums = np.append(np.bincount(types, left[-1], n_types), 0.0)
        noise = np.maximum((PRIOR * overall + sums) / (PRIOR + counts), LEAST)
        epistemic = np.maximum(left[:-1].mean(axis=1) - overall, 0.0)
        outcome = Decomposition(rows, chosen.core, params.ranks, known, units, noise, epistemic)
        return Fit(outcome, chosen.epoch, training.curve, training.interrupted)

    def _adopt(self, outcome: Decomposition) -> None:
        self.decomposition_ = outcome

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        codes = encode_ids(X, self.ids_)
        rows, core, ranks, known, units, noise, lack = self.decomposition_
        shape = tuple(map(len, self.ids_))
        firsts = first_places(shape)
        unseen = np.zeros(len(codes[0]), dtype=bool)
        epistemic = np.zeros(len(codes[0]))
        there = []
        for mode, code in enumerate(codes):
            missing = (code < 0) | ~known[firsts[mode] + code]
            there.append(np.where(missing, shape[mode], code))
            epistemic += missing * lack[mode]
            unseen |= missing
        types = self._types(codes, self._group(self.ids_))
        z = tucker.predict(rows, core, ranks, places_of(tuple(there), shape), self._threads())
        variance = units.variance[types]
        parts = (
            units.mean[types] + np.sqrt(variance) * z,
            variance * noise[types],
            variance * epistemic,
        )
        return Cells(Moments(*(part.astype(units.precision) for part in parts)), unseen)

    def _known_rows(self) -> npt.NDArray[np.uint8]:
        return self.decomposition_.known.astype(np.uint8)

    def schema(self) -> Schema:
        """Declare what a file keeps: also rows and core, units and variances."""
        yield from super().schema()
        shape = tuple(map(len, self.ids_))
        ranks, sensor = self._ranks(shape), self._group(self.ids_)
        n_types = 2 if sensor is None else shape[sensor] + 1
        n_rows = sum(shape) + len(shape)
        yield Tensor("rows", "float32", (n_rows, max(ranks)), "decomposition_.rows")
        yield Tensor("core", "float32", (math.prod(ranks),), "decomposition_.core")
        yield Tensor("known", "uint8", (n_rows,), lambda model: model._known_rows())
        yield from units_schema("", "decomposition_.units", n_types)
        yield Tensor("noise", "float64", (n_types,), "decomposition_.noise", POSITIVE)
        lack = "decomposition_.epistemic"
        yield Tensor("epistemic", "float64", (len(shape),), lack, NOT_NEGATIVE)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        self.decomposition_ = Decomposition(
            found["rows"],
            found["core"],
            self._ranks(tuple(map(len, self.ids_))),
            found["known"].astype(bool),
            Units(found["mean"], found["variance"]),
            found["noise"],
            found["epistemic"],
        )


def _standardised(values: Floats, units: Units, types: Ints) -> Floats:
    z = (values - units.mean[types]) / np.sqrt(units.variance[types])
    return z.astype(np.float32)


def _with_average_rows(
    rows: Floats, known: npt.NDArray[np.bool_], shape: tuple[int, ...]
) -> Floats:
    """Return rows in which the last of every mode is the average of those that were trained."""
    rows = rows.copy()
    for first, n in zip(first_places(shape), shape, strict=True):
        own = rows[first : first + n]
        rows[first + n] = own[known[first : first + n]].mean(axis=0)
    return rows
