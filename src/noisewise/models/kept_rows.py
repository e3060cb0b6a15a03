"""Models that keep what they were trained on: why a prediction is what it is, and daily updates."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from noisewise.data import Observations, observe
from noisewise.data.features import Tables
from noisewise.engine.arrays import Array, Counts, Floats
from noisewise.engine.gibbs.posterior import RatingPosterior
from noisewise.engine.gibbs.pulls import pulls
from noisewise.engine.gibbs.update import changed_rows, due_rows, updated
from noisewise.engine.training import standardised
from noisewise.errors import LARGEST, DataError, DataWarning, SettingError, warn
from noisewise.models.base import at_one_moment, in_one_step
from noisewise.models.learner import count_rows, joined, warn_of_new_types
from noisewise.models.rows import Rows
from noisewise.schema import NOT_NEGATIVE, POSITIVE, Found, Schema, Tensor
from noisewise.settings import check, learned, settings, whole
from noisewise.storage import Damaged

SPREAD, SHIFT = 1.2, 0.25  # of errors over std, from which values are not what was expected
SIGMAS = 5.0  # by which they must be beyond what chance does
MOST_SINCE = 0.25  # share of observations since the fit, from which another is due
VALUES = {"values": "float32", "exact_values": "float64"}  # in files


class Drift(NamedTuple):
    """How new values differ from what a model expected of them: errors over their std.

    ``spread``, their root mean square, and ``shift``, their mean, are about 1 and 0 where nothing
    has changed; nan where no new value is of two known ids.
    """

    n: int
    spread: float
    shift: float

    @classmethod
    def of(cls, z: Array) -> Drift:
        """Measure errors over their std."""
        return cls(len(z), float(np.sqrt(np.mean(z**2))), float(z.mean()))

    def warn(self, since: float) -> None:
        """Say that values have changed, or that a share of all that is known is new."""
        rough = SIGMAS / math.sqrt(max(self.n, 1))
        wider = self.spread**2 - 1.0 > max(SPREAD**2 - 1.0, math.sqrt(2.0) * rough)
        moved = abs(self.shift) > max(SHIFT, rough)
        if wider or moved:
            warn(
                f"New values of known ids, {self.n:,} of them, are not what was expected: their "
                f"errors are {self.spread:.3g} times the std, and {self.shift:+.3g} of it in the "
                "mean. What is rated, or how, may have changed: fit anew.",
                DataWarning,
            )
        elif since > MOST_SINCE:
            warn(
                f"{since:.0%} of all observations have come since the model was fitted, and priors "
                "are still those of then: fit anew when time allows.",
                DataWarning,
            )


class Pull(NamedTuple):
    """What one of a user's own ratings adds to a prediction, in units of the values.

    ``pull`` is ``by_value``, as the rating differs from what the average user would give, plus
    ``by_choice``, as the item was rated at all; ``std`` says how far draws disagree about it, and
    ``sure`` which share of them agrees with its sign.
    """

    id: Any
    value: float
    pull: float
    std: float
    sure: float
    by_value: float
    by_choice: float


class Explanation(NamedTuple):
    """Why a prediction is what it is: ``mean = average + sum of all pulls + rest``.

    ``average`` is what the average user would give. ``rest`` is what pulls that are not listed add,
    and what none of the ratings accounts for: side features, clipping, the luck of the draws.
    """

    mean: float
    std: float
    average: float
    pulls: list[Pull]
    rest: float


@settings
class KeptRows(Rows):
    """Base class of models of ratings that keep what they were trained on."""

    factors_: RatingPosterior = learned("The draws that were kept.")
    values_: Floats | None = learned(
        "The values of the cells in ``seen_``, in their order; None if these were not kept."
    )

    weight_: Floats | None = learned("Their weights; None if all are 1.")
    since_fit_: int = learned("Observations that have come since the model was fitted.")
    drift_: Drift | None = learned("How the last update differed from what was expected.")
    _waiting: tuple[Counts, ...] | None = learned()

    @in_one_step
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sweeps: int = 2,
        sample_weight: Any = None,
        features: Tables | None = None,
    ) -> Self:
        """Take new observations, of new ids or old ones, into every kept draw; seconds, no restart.

        In each draw, rows that have changed are drawn anew from their conditionals given all their
        observations and everything else, ``sweeps`` times in turn with those of the other mode; of
        levels, hidden values are drawn before. A row with very many observations waits until a
        twentieth of them is new. Priors, scale, range and calibration of values stay as they were
        fitted, and so do the cut-points of users; new users have average ones. A cell that was seen
        before has its new value from now on. On a model that was never fitted, this is ``fit``.

        It warns when the new values are not what the model expected, and when so many have come
        since ``fit`` that it should be fitted anew; ``drift_`` has the numbers.

        Parameters
        ----------
        X : table of ids or Observations
            One id column per mode (see ``noisewise.observe``).
        y : sequence of float, optional
            The values; without it, the last column of X.
        sweeps : int
            How often rows that changed are drawn.
        sample_weight : sequence of float, optional
            As for ``fit``.
        features : dict of tables, optional
            Features of ids that were not in the tables of ``fit``, by mode, with the same columns.
        """
        check(self)
        whole(1).require("sweeps", sweeps)
        if not hasattr(self, "factors_"):
            own: Any = {"sample_weight": sample_weight, "features": features}
            return self.fit(X, y, **own)
        started = time.perf_counter()
        self._needs_two_modes("partial_fit")
        if self.factors_.spec.time:
            raise SettingError(
                "partial_fit needs time=None: moods and fashions would have to be drawn anew for "
                "all times; fit anew instead."
            )
        self._know(features)
        new = observe(X, y, duplicates=self.duplicates, ids=self.ids_, weight=sample_weight)
        warn_of_new_types(self.ids_, new, features)
        old = self._kept()
        drift, since = self._drift(new), self.since_fit_ + len(new)
        everything = _merged(old, new)
        self._take_in(everything, new, sweeps)
        self.ids_ = new.ids
        waiting = self._waiting
        self._remember(everything)
        self._waiting, self.since_fit_, self.drift_ = waiting, since, drift
        self.seconds_ = time.perf_counter() - started
        drift.warn(since / len(everything))
        return self

    def _take_in(self, everything: Observations, new: Observations, sweeps: int) -> None:
        """Update all draws, and note which rows wait."""
        posterior = self.factors_
        counts, fresh = count_rows(everything), count_rows(new)
        before = self._waiting or tuple(np.zeros(n, dtype=np.int64) for n in posterior.shape)
        waiting = tuple(
            more + np.pad(had, (0, len(more) - len(had)))
            for had, more in zip(before, fresh, strict=True)
        )
        z = self._as_drawn(everything.values, "partial_fit")
        weight, changed = everything.weight, []
        if weight is None:
            weight = np.ones(len(z), dtype=np.float32)
        for mode in (0, 1):
            rows = due_rows(counts[mode], waiting[mode], len(new))
            waiting[mode][rows] = 0
            given = rows, everything.codes, z, weight, everything.shape
            found = changed_rows(mode, *given, posterior.spec.implicit)
            labels = everything.ids[mode].labels[rows]
            changed.append(found._replace(side=self._described(mode, labels)))
        self.factors_ = updated(
            posterior, everything.shape, counts, everything.codes, changed, sweeps, self._threads()
        )
        self._waiting = waiting

    @abstractmethod
    def _know(self, features: Tables | None) -> None:
        """Know more ids by their features."""

    @abstractmethod
    def _described(self, mode: int, labels: Any) -> Any:
        """Return side features of ids of a mode, as a sparse matrix; None if there are none."""

    def _as_drawn(self, values: Floats, who: str) -> Floats:
        """Return values as draws have them: standardised, or as numbers of levels."""
        scale = self.factors_.scale
        if not self.factors_.spec.ordinal:
            z = standardised(values, scale.location, scale.scale)
            if (np.abs(z) > LARGEST).any():
                raise DataError(
                    f"{who} needs values on the scale of those that were trained on; got "
                    f"{values[np.argmax(np.abs(z))]:g}."
                )
            return z
        places = np.searchsorted(scale.levels, values)
        strange = scale.levels[np.minimum(places, len(scale.levels) - 1)] != values
        if strange.any():
            raise DataError(
                f"{who} needs values among the levels {scale.levels.tolist()}; got "
                f"{values[strange][0]}."
            )
        return places.astype(np.float32)

    def _drift(self, new: Observations) -> Drift:
        """Compare new values with what is expected of them, where both ids are known."""
        known = np.all(
            [code < n for code, n in zip(new.codes, self.factors_.shape, strict=True)], axis=0
        )
        if not known.any():
            return Drift(0, float("nan"), float("nan"))
        asked = new.take(known)
        mean, noise, epistemic = self.finished(self.cells(asked))
        if asked.weight is not None:
            noise = noise / asked.weight
        z = (asked.values - mean).astype(np.float64) / np.sqrt(noise + epistemic)
        return Drift.of(z)

    def _kept(self) -> Observations:
        """Return what the model was trained on."""
        if self.seen_ is None or self.values_ is None:
            raise DataError(
                "partial_fit needs the ratings that the model was trained on, as rows are drawn "
                "given all of them; fit with keep_seen=True."
            )
        return Observations(self.seen_.cells(), self.values_, self.ids_, weight=self.weight_)

    @at_one_moment
    def explain(self, user: Any, item: Any, n: int = 10) -> Explanation:
        """Say which of a user's own ratings pull a prediction, by how much, and how sure that is.

        Every draw has a mean that is a sum with a part for each rating; parts are averaged over
        draws. The ratings must have been kept (``keep_seen``).

        Parameters
        ----------
        user, item : hashable
            The cell; both must have been trained on.
        n : int
            How many pulls to list, the strongest first.

        Examples
        --------
        >>> import warnings
        >>> from noisewise import BayesianFactorizer
        >>> ratings = [("ann", "Jaws", 5), ("ann", "Ran", 4), ("bob", "Jaws", 1), ("bob", "M", 4)]
        >>> model = BayesianFactorizer(rank=2, sweeps=60, burn_in=20, random_state=0)
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")  # four ratings settle nothing
        ...     why = model.fit(ratings).explain("ann", "M")
        >>> sorted(pull.id for pull in why.pulls)
        ['Jaws', 'Ran']
        """
        check_is_fitted(self)
        self._needs_two_modes("explain")
        whole(1).require("n", n)
        posterior = self.factors_
        if posterior.spec.ordinal or posterior.spec.time:
            raise SettingError(
                'explain needs likelihood="gaussian" and time=None: of levels and of moods that '
                "change, no sum over ratings is kept."
            )
        row, column = self._known_code(user, 0), self._known_code(item, 1)
        codes, values, weight = self._own(row)
        if not posterior.counts[1][column]:
            raise DataError(f"The {self.ids_[1].name} {item!r} was not seen in training.")
        location, scale = posterior.scale.location, posterior.scale.scale
        z = standardised(values, location, scale).astype(np.float64)
        found = pulls(posterior, row, column, codes, z, weight)
        mean, std = (float(one[0]) for one in self.predict([(user, item)], return_std=True))
        average = location + scale * float(found.average.mean())
        both = scale * (found.by_value + found.by_choice)
        total = both.mean(axis=0)
        sure = np.mean(np.sign(both) == np.sign(total), axis=0)
        parts = (total, both.std(axis=0), sure, scale * found.by_value.mean(axis=0))
        listed = []
        for k in np.argsort(-np.abs(total), kind="stable")[:n].tolist():
            pull, spread, agreed, by_value = (float(part[k]) for part in parts)
            (label,) = self.ids_[1].labels[codes[k : k + 1]].tolist()
            own = Pull(label, float(values[k]), pull, spread, agreed, by_value, pull - by_value)
            listed.append(own)
        rest = mean - average - sum(pull.pull for pull in listed)
        return Explanation(mean, std, average, listed, rest)

    def _own(self, row: int) -> tuple[Any, Array, Array]:
        """Columns, values and weights that a row was trained with."""
        if self.seen_ is None or self.values_ is None:
            raise DataError(
                "This model did not keep the ratings that it was trained on; fit with "
                "keep_seen=True."
            )
        part = slice(int(self.seen_.starts[row]), int(self.seen_.starts[row + 1]))
        values = self.values_[part].astype(np.float64)
        weight = np.ones(len(values)) if self.weight_ is None else self.weight_[part]
        return self.seen_.columns[part], values, weight.astype(np.float64)

    def _remember(self, observations: Observations) -> None:
        super()._remember(observations)
        self.values_ = self.weight_ = self.drift_ = self._waiting = None
        self.since_fit_ = 0
        if self.seen_ is not None:
            order = np.lexsort((observations.codes[1], observations.codes[0]))
            self.values_ = observations.values[order]
            if observations.weight is not None:
                self.weight_ = observations.weight[order]

    def schema(self) -> Schema:
        """Declare what a file keeps: also the values of cells that were trained on."""
        yield from super().schema()
        for name, dtype in VALUES.items():  # the second where single precision is too coarse
            of = partial(_values, dtype)
            yield Tensor(name, dtype, (None,), of, optional=True)
        yield Tensor("weights", "float32", (None,), "weight_", POSITIVE, optional=True)
        yield Tensor("since_fit", "int64", (1,), _since_fit, NOT_NEGATIVE, optional=True)
        for mode, n in enumerate(map(len, self.ids_)):
            of = partial(_waiting, mode)
            yield Tensor(f"waiting{mode}", "int64", (n,), of, NOT_NEGATIVE, optional=True)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        kept = [found[name] for name in VALUES if found[name] is not None]
        self.values_ = kept[0] if kept else None
        self.since_fit_ = 0 if found["since_fit"] is None else int(found["since_fit"][0])
        waiting = [found[f"waiting{mode}"] for mode in range(len(self.ids_))]
        self._waiting = None if any(part is None for part in waiting) else tuple(waiting)
        self.drift_ = None
        if kept and (self.seen_ is None or len(kept[0]) != len(self.seen_.columns)):
            raise Damaged("it must have one value for every cell that was seen")
        if self.weight_ is not None and (not kept or len(self.weight_) != len(kept[0])):
            raise Damaged("it must have one weight for every value")


def _merged(old: Observations, new: Observations) -> Observations:
    """Return all observations; a cell that both have has its new value."""
    width = new.shape[1]
    mine, fresh = (seen.codes[0].astype(np.int64) * width + seen.codes[1] for seen in (old, new))
    return joined(old.take(~np.isin(mine, fresh)), new)


def _since_fit(model: Any) -> Any:
    return np.array([model.since_fit_]) if model.since_fit_ else None


def _waiting(mode: int, model: Any) -> Any:
    return None if model._waiting is None else model._waiting[mode]


def _values(dtype: str, model: Any) -> Floats | None:
    fits = model.values_ is not None and model.values_.dtype == dtype
    return model.values_ if fits else None
