"""Lists judged by what users rated later: NDCG, recall, MRR, hit rate, coverage and novelty.

Every user of the test part gets the best items of all that were trained on, but for those that they
were trained with. What counts as right are the items of the test part, or those that were liked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from inspect import signature
from typing import Any

import numpy as np

from noisewise import metrics
from noisewise.data import Ids, Observations
from noisewise.engine.arrays import Array
from noisewise.errors import DataError, SettingError
from noisewise.evaluation.comparison import Comparison, Result, compare, compared
from noisewise.settings import either, number, whole
from noisewise.splits import core

PER_USER = ("ndcg", "recall", "mrr", "hit")  # with the length of lists after their names
OF_LISTS = ("catalogue", "novelty")
METRICS = (*PER_USER, *OF_LISTS)


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """How lists are made and judged.

    ``top`` is their length. ``relevant`` is the least value of what counts as right; None counts
    all that was rated. ``how`` has what ``recommend_many`` is told beside, such as ``risk``.
    """

    top: int = 10
    relevant: float | None = None
    how: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        whole(1).require("top", self.top)
        either(number(), None).require("relevant", self.relevant)

    def about(self) -> dict[str, Any]:
        """Return what a result says of it."""
        return {**asdict(self), "how": dict(self.how)}

    def check(self, model: Any) -> None:
        """Raise unless a model can make such lists."""
        if not hasattr(model, "recommend_many"):
            raise SettingError(f"Lists need a model that recommends; a {_kind(model)} does not.")
        known = signature(model.recommend_many).parameters
        for name, value in self.how:
            if name not in known:
                raise SettingError(
                    f"{name} must be left out: a {_kind(model)} has one way to rank; got {value}."
                )


def judged(
    model: Any, train: Observations, test: Observations, ranking: Ranking
) -> tuple[dict[str, float], dict[str, Array]]:
    """Return the scores of a model's lists, and those of every user who has any."""
    if test.n_modes != 2:
        raise DataError(f"Lists need 2 id columns; got {test.n_modes}.")
    right = (
        np.ones(len(test), bool) if ranking.relevant is None else test.values >= ranking.relevant
    )
    if not right.any():
        raise DataError(f"No rating of the test part is {ranking.relevant:g} or more.")
    users, items = (codes[right] for codes in test.codes)
    order = np.argsort(users, kind="stable")
    rows, starts = np.unique(users[order], return_index=True)
    wanted = [set(part.tolist()) for part in np.split(items[order], starts[1:])]
    found = model.recommend_many(
        test.ids[0].labels[rows].tolist(), ranking.top, **dict(ranking.how)
    )
    lists = [test.ids[1].lookup([one.id for one in best]).tolist() for best in found]
    of_users = metrics.rank_metrics(lists, wanted, ranking.top)
    counts = Counter(train.codes[1].tolist())
    scores = {name: float(column.mean()) for name, column in of_users.items()}
    scores[f"catalogue{ranking.top}"] = metrics.catalogue_coverage(lists, len(counts))
    many = len(np.unique(train.codes[0]))
    scores[f"novelty{ranking.top}"] = metrics.novelty(lists, counts, many)
    return scores, of_users


def by_user(result: Result, metric: str) -> Array | None:
    """Return a metric of every user, averaged over splits; None if a result has it not."""
    rows = [row.get(metric) for row in result.get("users", ())]
    if not rows or any(not _is_column(row, len(rows[0] or ())) for row in rows):
        return None
    of_users: Array = np.array(rows, dtype=np.float64).mean(axis=0)
    return of_users


def comparison_of(a: Result, b: Result, metric: str) -> tuple[Comparison, dict[str, str]]:
    """Test whether two results differ; also say where the first is better.

    Lists of the same users are compared user by user, all else split by split.
    """
    asked = [one.get("ranking", {}) for one in (a, b)]
    if higher_is_better(metric) and asked[0].get("relevant") != asked[1].get("relevant"):
        raise DataError("Lists can only be compared by the same items: --relevant differs.")
    first, second = by_user(a, metric), by_user(b, metric)
    test = compare(a, b, metric)  # which refuses other data and other protocols
    unit = ""
    if first is not None and second is not None and len(first) == len(second):
        test, unit = compared(first, second, 0.0), " users"
    paired = test.paired
    if not higher_is_better(metric):
        return test, {"lower on": f"{paired.wins} of {paired.n}{unit}"}
    if unit and first is not None and second is not None:
        higher = int(np.sum(first > second))
    else:
        values = ([row[metric] for row in one["splits"]] for one in (a, b))
        higher = sum(x > y for x, y in zip(*values, strict=True))
    return test, {"higher on": f"{higher} of {paired.n}{unit}"}


def core_of(observations: Observations, least: int) -> Observations:
    """Return the k-core of observations: every id that is left has ``least`` of them or more."""
    kept = observations.take(core(observations.codes, least))
    found = [np.unique(codes, return_inverse=True) for codes in kept.codes]
    ids = tuple(
        Ids(one.labels[rows], one.name) for one, (rows, _) in zip(kept.ids, found, strict=True)
    )
    codes = tuple(inverse.astype(np.int32) for _, inverse in found)
    return Observations(codes, kept.values, ids, kept.time)


def higher_is_better(metric: str) -> bool:
    """Tell whether a metric is one of lists, which are better when it is higher."""
    return metric.rstrip("0123456789") in METRICS


def _is_column(row: Any, n: int) -> bool:
    return isinstance(row, list) and len(row) == n > 0 and all(type(v) in (int, float) for v in row)


def _kind(model: Any) -> str:
    return type(model).__name__
