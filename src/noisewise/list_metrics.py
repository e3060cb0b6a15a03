"""Metrics of lists: NDCG, recall, reciprocal rank, hits, coverage of a catalogue, novelty."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from noisewise.errors import DataError
from noisewise.recommend import check_n

Floats = NDArray[np.float64]


def ndcg_at(ranked: Sequence[Hashable], relevant: Collection[Hashable], n: int) -> float:
    """Gain of the first `n` of a ranked list over that of the best list; nan if none is relevant.

    A relevant id at place k, counted from 1, gains ``1 / log2(k + 1)``.

    Examples
    --------
    >>> ndcg_at(["a", "b", "c"], {"a", "b"}, n=3), ndcg_at(["a", "b", "c"], {"b"}, n=3)
    (1.0, 0.6309297535714575)
    """
    hits = _hits(ranked, relevant, n)
    gain = 1 / np.log2(np.arange(2, n + 2))
    best = gain[: len(set(relevant))].sum()
    return float(gain[: len(hits)][hits].sum() / best) if best else float("nan")


def recall_at(ranked: Sequence[Hashable], relevant: Collection[Hashable], n: int) -> float:
    """Share of the relevant ids among the first `n` of a ranked list; nan if none is relevant.

    Examples
    --------
    >>> recall_at(["a", "b", "c"], {"b", "x"}, n=2)
    0.5
    """
    hits = _hits(ranked, relevant, n)
    return float(hits.sum() / len(set(relevant))) if len(relevant) else float("nan")


def reciprocal_rank_at(ranked: Sequence[Hashable], relevant: Collection[Hashable], n: int) -> float:
    """One over the place of the first relevant id, 0 if the first `n` have none: MRR in the mean.

    Examples
    --------
    >>> reciprocal_rank_at(["a", "b", "c"], {"b", "c"}, n=3)
    0.5
    """
    hits = _hits(ranked, relevant, n)
    if not len(relevant):
        return float("nan")
    return 1 / (1 + int(hits.argmax())) if hits.any() else 0.0


def hit_at(ranked: Sequence[Hashable], relevant: Collection[Hashable], n: int) -> float:
    """1 if one of the first `n` is relevant, else 0: the hit rate in the mean; nan if none is.

    Examples
    --------
    >>> hit_at(["a", "b", "c"], {"b", "x"}, n=2)
    1.0
    """
    return float(_hits(ranked, relevant, n).any()) if len(relevant) else float("nan")


def rank_metrics(
    lists: Sequence[Sequence[Hashable]], relevant: Sequence[Collection[Hashable]], n: int
) -> dict[str, Floats]:
    """Give NDCG, recall, reciprocal rank and hit of every list at `n`, under short names.

    Examples
    --------
    >>> found = rank_metrics([["a", "b"], ["c", "a"]], [{"b"}, {"a", "x"}], n=2)
    >>> {name: one.round(3).tolist() for name, one in found.items()}
    {'ndcg2': [0.631, 0.387], 'recall2': [1.0, 0.5], 'mrr2': [0.5, 0.5], 'hit2': [1.0, 1.0]}
    """
    if len(lists) != len(relevant):
        got = f"{len(lists)} and {len(relevant)}"
        raise DataError(f"Every list needs its relevant ids; got {got} of them.")
    check_n(n)
    one = {"ndcg": ndcg_at, "recall": recall_at, "mrr": reciprocal_rank_at, "hit": hit_at}
    pairs = list(zip(lists, relevant, strict=True))
    return {f"{name}{n}": np.array([of(*pair, n) for pair in pairs]) for name, of in one.items()}


def catalogue_coverage(lists: Iterable[Iterable[Hashable]], catalogue: int) -> float:
    """Share of a catalogue, of so many ids, that is in some list.

    Examples
    --------
    >>> catalogue_coverage([["a", "b"], ["a", "c"]], catalogue=6)
    0.5
    """
    if catalogue < 1:
        raise DataError(f"A catalogue has one id or more; got {catalogue}.")
    return len({one for ranked in lists for one in ranked}) / catalogue


def novelty(
    lists: Iterable[Iterable[Hashable]], counts: Mapping[Hashable, int], users: int
) -> float:
    """Mean of ``-log2`` of the share of `users` who know what is in the lists; higher is rarer.

    `counts` has the number of users who know each id; an id that it lacks counts as known to one.

    Examples
    --------
    >>> novelty([["a", "b"]], {"a": 8, "b": 2}, users=8)
    1.0
    """
    if users < 1:
        raise DataError(f"Novelty needs one user or more; got {users}.")
    known = [max(counts.get(one, 0), 1) for ranked in lists for one in ranked]
    return float(np.mean(-np.log2(np.array(known) / users))) if known else float("nan")


def _hits(ranked: Sequence[Hashable], relevant: Collection[Hashable], n: int) -> NDArray[np.bool_]:
    check_n(n)
    if len(set(ranked)) < len(ranked):
        raise DataError("A ranked list names each id once; got one twice or more.")
    wanted = set(relevant)
    return np.array([item in wanted for item in ranked[:n]], dtype=bool)
