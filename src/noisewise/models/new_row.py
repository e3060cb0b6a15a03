"""A new id that was folded in, and what is recommended to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Codes, Floats, Moments
from noisewise.errors import DataError, DataWarning, printable, warn
from noisewise.models.lists import Recommendation, as_recommendations, labels_of
from noisewise.recommend import best_columns, likely_by


@dataclass(frozen=True, eq=False)
class NewRow:
    """A new id that ``fold_in`` learned: it predicts and recommends like any other."""

    model: Any  # that knows the rows of the other mode
    mode: int  # of the new id
    side: Any  # its row
    seen: Codes  # of the other mode, that it was learned from

    def __repr__(self) -> str:
        name, other = (printable(self.model.ids_[m].name) for m in (self.mode, 1 - self.mode))
        kind = type(self.model).__name__
        return f"NewRow({name}, learned from {len(self.seen):,} {other}, of a {kind})"

    def predict(self, others: Sequence[Any], return_std: bool = False) -> Any:
        """Predict the value with each of ``others``, and its std if asked for."""
        mean, noise, epistemic = self._cells(others)
        return (mean, np.sqrt(noise + epistemic)) if return_std else mean

    def predict_parts(self, others: Sequence[Any]) -> tuple[Floats, Floats, Floats]:
        """Predict, and tell noise from epistemic uncertainty: mean, noise_std and epistemic_std."""
        mean, noise, epistemic = self._cells(others)
        return mean, np.sqrt(noise), np.sqrt(epistemic)

    def predict_interval(
        self, others: Sequence[Any], coverage: float = 0.9
    ) -> tuple[Floats, Floats]:
        """Predict an interval that holds the value in ``coverage`` of the cases."""
        mean, std = self.predict(others, return_std=True)
        low, high = self.model.interval(mean, std, coverage, self.strangers(others))
        return low, high

    def strangers(self, others: Sequence[Any]) -> npt.NDArray[np.int64]:
        """Return of how many ids no value was seen, of the cells with ``others``."""
        n = len(self.model.factors_.counts[1 - self.mode])
        found: npt.NDArray[np.int64] = (self._known(others) >= n).astype(np.int64)
        return found if len(self.seen) else found + 1

    def recommend(
        self,
        n: int = 10,
        *,
        by: Literal["value", "utility"] = "value",
        risk: float = 0.0,
        exclude_seen: bool = True,
        candidates: Iterable[Any] | None = None,
    ) -> list[Recommendation]:
        """Recommend the best n, as ``DeviationFactorizer.recommend`` does."""
        if by != "value" and self.mode != 0:
            raise DataError(f'by={by!r} is for new rows of the first mode; use by="value".')
        model, seen = self.model, self.seen if exclude_seen else self.seen[:0]
        likely = likely_by(by, risk, model.factors_, model.seen_, [self.seen])
        starts = np.array([0, len(seen)])
        sought = model.wanted(self.mode, n, risk, (starts, seen), candidates, likely)
        one = np.zeros(1, dtype=np.int32)
        found = best_columns(model.factors_, self.mode, one, sought, side=self.side)
        (best,) = as_recommendations(found, labels_of(model, 1 - self.mode))
        return best

    def _cells(self, others: Sequence[Any]) -> Moments:
        codes = self._known(others)
        first = np.zeros(len(codes), dtype=np.int32)
        found = self.model.factors_.pairs(self.mode, self.side, first, codes)
        calibrated: Moments = self.model._calibrated(found)
        return calibrated

    def _known(self, others: Sequence[Any]) -> Codes:
        other = 1 - self.mode
        codes: Codes = self.model._places(other, self.model._codes(other, others), others)
        return codes


def lengths_of(others: Sequence[Any], y: Sequence[Any]) -> list[int]:
    """Return of how many values each of many new ids is learned; raise if some are missing."""
    if not (_are_many(others) and _are_many(y)):
        raise DataError(
            "fold_in_many needs two lists, of what new ids were seen with and of their values; got "
            f"{others!r} and {y!r}."
        )
    found = []
    for ids, values in zip_longest(others, y, fillvalue=()):
        if not (_are_many(ids) and _are_many(values)):
            raise DataError(
                "fold_in_many needs a list of ids and a list of values for every new id, such as "
                f"[['Alien', 'M'], ['Brazil']] and [[5, 3], [4]]; got {ids!r} and {values!r}."
            )
        if len(ids) != len(values) or not len(ids):
            raise DataError(
                "fold_in_many needs ids, and a value for each of them, for every new id; got "
                f"{len(ids)} and {len(values)}."
            )
        found.append(len(ids))
    return found


def _are_many(own: Any) -> bool:
    return hasattr(own, "__len__") and not isinstance(own, str | bytes)


def warn_of_other_levels(levels: Any, values: Any) -> None:
    """Warn of a value that is beyond all levels a model was trained on: on another scale, maybe."""
    if len(levels) and not levels[0] <= values.min() <= values.max() <= levels[-1]:
        far = values[np.argmax(np.maximum(levels[0] - values, values - levels[-1]))]
        warn(
            f"The value {far:g} is beyond those that were trained on, {levels[0]:g} to "
            f"{levels[-1]:g}; give values on the same scale.",
            DataWarning,
        )


def in_one(lists: Sequence[Any]) -> Any:
    """Put sequences one after another."""
    if all(isinstance(own, np.ndarray) for own in lists):
        return np.concatenate(lists)
    return list(chain.from_iterable(lists))
