"""Top-N lists for many rows at once: by mean, less risk times std, or by expected utility.

The table of all users with all items is never built: blocks of it are, by products of matrices, and
what may win is asked for once more, cell by cell. So a list has the same bits whoever else is asked
for, and in however many threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from noisewise.data.ids import Seen
from noisewise.engine.arrays import Array, Codes, Counts, Floats, Ints, Moments
from noisewise.engine.training import chunks, in_threads, one_blas_thread
from noisewise.errors import DataError, SettingError
from noisewise.propensity import propensity_of
from noisewise.settings import number, one_of, whole

CHUNK_CELLS = 1_000_000  # of a block of the table
MOST_RISK = 1e12  # beyond which the mean counts for nothing, and single precision overflows

Finish = Callable[[Moments], Moments]  # clips and calibrates


class RowFactors(Protocol):
    """Factors of the rows of two modes, or draws of them, with what can be asked of them."""

    @property
    def location(self) -> float:
        """The value that is usual."""

    @property
    def counts(self) -> tuple[npt.NDArray[np.int64], ...]:
        """Observations of every row that has an id."""

    def known_codes(self, mode: int, codes: Codes) -> Codes:
        """Send ids never trained on to the row after the last."""

    def moments(self, codes: tuple[Codes, ...], n_jobs: int = 1) -> Moments:
        """Moments of cells."""

    def side(self, mode: int, codes: Codes) -> Any:
        """Rows of a mode by their codes."""

    def table(self, mode: int, side: Any, codes: Codes, *, spread: bool) -> Moments:
        """Moments of rows of a mode with those of the other, up to rounding; or their means."""

    def shortlist(self, n: int) -> tuple[int, float]:
        """Return how many of the best by ``table``, and what is how little worse, to look at."""

    def pairs(self, mode: int, side: Any, rows: Codes, codes: Codes) -> Moments:
        """Moments of cells: places of rows in ``side``, and codes of the other mode."""

    def similarity(self, mode: int, code: int) -> Floats:
        """Cosine of a row's factors with those of all rows of its mode."""

    def noise_by_row(self, mode: int) -> npt.NDArray[np.float64]:
        """Variance of the noise of every row, averaged over the other mode."""


class Likely(NamedTuple):
    """How likely rows are to take up each column, and the value that is usual of one."""

    scores: Callable[[slice], Array]  # above 0, for some of the rows
    usual: float


def likely_by(
    by: str, risk: float, factors: RowFactors, seen: Seen | None, rows: Sequence[int | Codes]
) -> Likely | None:
    """Return how likely rows are to take up each column; None if lists are ranked by value.

    Rows are numbers of those that were trained on, or the sets of others.
    """
    one_of("value", "utility").require("by", by)
    if by == "value":
        return None
    if risk:
        raise SettingError(f'risk is for by="value"; got {risk:g} and by="utility".')
    if seen is None:
        raise DataError(
            "This model did not keep what was seen; fit with keep_seen=True, or rank with "
            'by="value".'
        )
    sets = [seen.of_row(row) if isinstance(row, int) else row for row in rows]
    propensity = propensity_of(seen, len(factors.counts[1]))
    return Likely(lambda part: propensity.scores(sets[part]), factors.location)


class Sought(NamedTuple):
    """Which columns are the best: highest mean minus ``risk`` times std.

    With ``likely``, highest chance to be taken up, and to be better than usual.
    """

    n: int
    risk: float
    columns: Codes  # to choose from, in order
    finish: Finish
    seen: tuple[Counts, Codes] | None = None  # what to leave out: starts by code of row, columns
    likely: Likely | None = None

    @property
    def spread(self) -> bool:
        """Whether it takes a std to rank."""
        return bool(self.risk) or self.likely is not None


class Lists(NamedTuple):
    """The best columns of rows, best first: a line each, ended by -1 where there are fewer."""

    codes: Codes
    mean: Floats
    std: Floats

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """How many each row has."""
        return np.asarray((self.codes >= 0).sum(axis=1))


def check_n(n: int) -> None:
    """Raise for a length that lists cannot have."""
    if not whole(1).holds(n):
        kind = "1 or more" if whole(-sys.maxsize).holds(n) else "a whole number, 1 or more"
        raise DataError(f"n must be {kind}; got {n!r}.")


def check_ranking(n: int, risk: float) -> None:
    """Raise for a length that lists cannot have, and for a risk that nothing is ranked by."""
    check_n(n)
    if not number().holds(risk):
        raise DataError(f"risk must be a finite number; got {risk!r}.")


def bounded(risk: float) -> float:
    """Return a risk that single precision can rank by, in the order of the one that is given."""
    return min(max(risk, -MOST_RISK), MOST_RISK)


def as_candidates(candidates: Iterable[Any] | None) -> list[Any] | None:
    """Return candidates as a list; one text is refused, as its letters are no ids."""
    if candidates is None:
        return None
    if isinstance(candidates, str | bytes) or not isinstance(candidates, Iterable):
        raise DataError(f"candidates must be ids in a list, such as [{candidates!r}].")
    return list(candidates)


def allowed(counts: Counts, candidates: Codes | None) -> Codes:
    """Return columns to choose from: those trained on, of candidates (-1 is none) if given."""
    if candidates is None:
        return np.flatnonzero(counts).astype(np.int32)
    chosen = np.unique(candidates[candidates >= 0])
    return chosen[counts[chosen] > 0].astype(np.int32)


def best_columns(
    factors: RowFactors,
    mode: int,
    rows: Codes,
    sought: Sought,
    *,
    side: Any = None,
    n_jobs: int = 1,
) -> Lists:
    """Return the best columns for rows of a mode: by codes as from ``known_codes``, or a side."""
    parts: dict[int, Lists] = {}

    def work(part: slice) -> None:
        some = rows[part]
        own = factors.side(mode, some) if side is None else side
        taken = None if sought.likely is None else np.log(sought.likely.scores(part))
        at, codes = _candidates(factors, mode, own, some, sought, taken)
        found = factors.pairs(mode, own, at, codes)
        chance = None if taken is None else taken[at, codes]
        parts[part.start] = ranked(len(some), at, codes, found, sought, chance)

    with one_blas_thread():
        size = CHUNK_CELLS // (4 if sought.spread else 1)  # which takes as many more arrays
        blocks = chunks(len(rows), max(1, size // max(len(sought.columns), 1)))
        in_threads(work, blocks, n_jobs)
    none = ranked(0, rows[:0], rows[:0], Moments(*np.empty((3, 0), dtype=np.float32)), sought)
    lists = [none, *(parts[start] for start in sorted(parts))]
    return Lists(*(np.concatenate(part) for part in zip(*lists, strict=True)))


def _candidates(
    factors: RowFactors, mode: int, side: Any, rows: Codes, sought: Sought, taken: Array | None
) -> tuple[Codes, Codes]:
    """Return cells that may win: places of rows, and codes of columns."""
    columns, many = sought.columns, len(sought.columns)
    if not many:
        return rows[:0], rows[:0]
    table = factors.table(mode, side, columns, spread=sought.spread)
    score = _scores(table, sought, None if taken is None else taken[:, columns])
    if sought.seen is not None:
        size = max(len(factors.counts[1 - mode]), int(columns.max())) + 1
        place = np.full(size, -1, dtype=np.int32)
        place[columns] = np.arange(many, dtype=np.int32)
        at, codes = seen_cells(sought.seen, rows)
        at, codes = at[place[codes] >= 0], codes[place[codes] >= 0]
        score[at, place[codes]] = -np.inf
    n, apart = factors.shortlist(sought.n)
    worst: Any = -np.inf
    if n < many:
        worst = np.partition(score, many - n, axis=1)[:, many - n, None] - score.dtype.type(apart)
    places, found = np.nonzero((score >= worst) & (score > -np.inf))
    return places.astype(np.int32), columns[found]


def _scores(moments: Moments, sought: Sought, taken: Array | None) -> Any:
    """Rank by the mean before it is clipped, so that it makes no ties at the ends of the range."""
    if not sought.spread:
        return moments.mean
    _, noise, epistemic = sought.finish(moments)
    std = np.sqrt(noise + epistemic)
    if sought.likely is None:
        return moments.mean - std.dtype.type(sought.risk) * std
    return taken + log_ndtr((moments.mean - sought.likely.usual) / std, dtype=np.float64)


def ranked(
    n_rows: int,
    at: npt.NDArray[np.integer],
    codes: Codes,
    found: Moments,
    sought: Sought,
    taken: Array | None = None,
) -> Lists:
    """Order cells of rows, whose places rise, by what is known of them; keep the best of each."""
    mean, noise, epistemic = sought.finish(found)
    order = _order(n_rows, at, codes, -_scores(found, sought, taken))
    first = np.searchsorted(at, np.arange(n_rows))
    rank = np.arange(len(at)) - first[at]
    kept, rows, ranks = order[rank < sought.n], at[rank < sought.n], rank[rank < sought.n]
    shape = n_rows, min(sought.n, len(sought.columns))
    lists = Lists(
        np.full(shape, -1, dtype=np.int32),
        np.full(shape, np.nan, dtype=mean.dtype),
        np.full(shape, np.nan, dtype=mean.dtype),
    )
    for full, part in zip(lists, (codes, mean, np.sqrt(noise + epistemic)), strict=True):
        full[rows, ranks] = part[kept]
    return lists


def _order(n_rows: int, at: npt.NDArray[np.integer], codes: Codes, worse: Array) -> Ints:
    """Order cells by row, then by how much worse they are, then by code."""
    each = len(at) // max(1, n_rows)
    rows = np.arange(n_rows)[:, None]
    if n_rows * each == len(at) and (at.reshape(n_rows, each) == rows).all():
        # Many short lists are sorted ten times as fast as one long one.
        inside = np.lexsort((codes.reshape(n_rows, each), worse.reshape(n_rows, each)), axis=1)
        return np.asarray((inside + each * rows).ravel())
    return np.lexsort((codes, worse, at))


def seen_cells(seen: tuple[Counts, Codes], rows: Codes) -> tuple[Codes, Codes]:
    """Return what rows were seen with: their places among the rows, and columns.

    Examples
    --------
    >>> seen = np.array([0, 2, 2, 3]), np.array([4, 7, 5], dtype=np.int32)
    >>> [part.tolist() for part in seen_cells(seen, np.array([2, 1, 0, 3]))]
    [[0, 2, 2], [5, 4, 7]]
    """
    starts, columns = seen
    known = (rows >= 0) & (rows < len(starts) - 1)
    code = np.where(known, rows, 0)
    length = np.where(known, starts[code + 1] - starts[code], 0)
    places = np.repeat(np.arange(len(rows), dtype=np.int32), length)
    within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    return places, columns[np.repeat(starts[code], length) + within]


def similar_rows(factors: RowFactors, mode: int, code: int, n: int) -> tuple[Codes, Floats]:
    """Rows of a mode whose mean factors point the same way (cosine), most similar first."""
    cosine = factors.similarity(mode, code)
    cosine[factors.counts[mode] == 0] = -np.inf
    cosine[code] = -np.inf
    best = _best(cosine, n)
    return best, cosine[best]


def _best(score: Floats, n: int) -> Codes:
    n = min(n, int(np.isfinite(score).sum()))
    if n <= 0:
        return np.empty(0, dtype=np.int32)
    best = np.argpartition(-score, n - 1)[:n]
    return best[np.lexsort((best, -score[best]))].astype(np.int32)
