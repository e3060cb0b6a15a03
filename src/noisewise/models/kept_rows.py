"""Models that keep what they were trained on: why a prediction is what it is."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from noisewise.data import Observations
from noisewise.engine.arrays import Array, Floats
from noisewise.engine.gibbs.posterior import RatingPosterior
from noisewise.engine.gibbs.pulls import pulls
from noisewise.engine.training import standardised
from noisewise.errors import DataError, SettingError
from noisewise.models.base import at_one_moment
from noisewise.models.rows import Rows
from noisewise.schema import Found, Schema, Tensor
from noisewise.settings import learned, settings, whole
from noisewise.storage import Damaged

VALUES = {"values": "float32", "exact_values": "float64"}  # in files


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
        codes, values = self._own(row)
        if not posterior.counts[1][column]:
            raise DataError(f"The {self.ids_[1].name} {item!r} was not seen in training.")
        location, scale = posterior.scale.location, posterior.scale.scale
        z = standardised(values, location, scale).astype(np.float64)
        found = pulls(posterior, row, column, codes, z, np.ones(len(z)))
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

    def _own(self, row: int) -> tuple[Any, Array]:
        """Columns and values that a row was trained with."""
        if self.seen_ is None or self.values_ is None:
            raise DataError(
                "This model did not keep the ratings that it was trained on; fit with "
                "keep_seen=True."
            )
        part = slice(int(self.seen_.starts[row]), int(self.seen_.starts[row + 1]))
        return self.seen_.columns[part], self.values_[part].astype(np.float64)

    def _remember(self, observations: Observations) -> None:
        super()._remember(observations)
        self.values_ = None
        if self.seen_ is not None:
            order = np.lexsort((observations.codes[1], observations.codes[0]))
            self.values_ = observations.values[order]

    def schema(self) -> Schema:
        """Declare what a file keeps: also the values of cells that were trained on."""
        yield from super().schema()
        for name, dtype in VALUES.items():  # the second where single precision is too coarse
            of = partial(_values, dtype)
            yield Tensor(name, dtype, (None,), of, optional=True)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        kept = [found[name] for name in VALUES if found[name] is not None]
        self.values_ = kept[0] if kept else None
        if kept and (self.seen_ is None or len(kept[0]) != len(self.seen_.columns)):
            raise Damaged("it must have one value for every cell that was seen")


def _values(dtype: str, model: Any) -> Floats | None:
    fits = model.values_ is not None and model.values_.dtype == dtype
    return model.values_ if fits else None
