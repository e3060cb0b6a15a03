"""Top-N lists in chunks: by mean, less risk times std, or by expected utility; similar rows.

The table of all users with all items is never built: a chunk of it is, and what wins is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from noisewise.data.ids import Seen
from noisewise.engine.arrays import Array, Codes, Floats, Moments
from noisewise.errors import DataError, SettingError
from noisewise.propensity import propensity_of
from noisewise.settings import one_of

CHUNK_CELLS = 4_000_000


class Side(Protocol):
    """Rows of one mode, as the factors they come from have them."""

    @property
    def size(self) -> int:
        """How many rows."""

    def part(self, chosen: slice) -> Self:
        """Return some of the rows."""


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

    def table(self, mode: int, side: Any) -> Moments:
        """Moments of rows of a mode with every id of the other mode."""

    def cells(self, mode: int, side: Any, codes: Codes) -> Moments:
        """Moments of a single row of a mode with some rows of the other."""

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


def top_columns(
    factors: RowFactors,
    side: Side,
    n: int,
    *,
    mode: int = 0,
    risk: float = 0.0,
    std_scale: float = 1.0,
    likely: Likely | None = None,
    excluded: list[Codes],
    candidates: Codes | None = None,
) -> Iterator[Codes]:
    """Yield, row by row, the best n columns: highest mean minus ``risk`` times std, best first.

    ``side`` has the rows of ``mode`` to rank for, and ``excluded`` for each the columns to leave
    out. Only ``candidates`` are ranked; None ranks all that were trained on. With ``likely`` the
    best are those of the highest chance to be taken up, and to be better than usual.
    """
    counts = factors.counts[1 - mode]
    ranked = np.flatnonzero(counts) if candidates is None else candidates[counts[candidates] > 0]
    barred = np.setdiff1d(np.arange(len(counts)), ranked)
    chunk = max(1, CHUNK_CELLS // len(counts))
    for start in range(0, side.size, chunk):
        part = slice(start, start + chunk)
        moments = factors.table(mode, side.part(part))
        score = moments.mean
        if risk:
            std = np.sqrt(moments.noise + moments.epistemic)
            score = score - np.float32(risk * std_scale) * std
        if likely is not None:
            std = std_scale * np.sqrt(moments.noise + moments.epistemic)
            chance = log_ndtr((moments.mean - likely.usual) / std)
            score = (np.log(likely.scores(part)) + chance).astype(np.float32)
        score[:, barred] = -np.inf
        for row, without in zip(score, excluded[part], strict=True):
            row[without] = -np.inf
            yield _best(row, n)


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
