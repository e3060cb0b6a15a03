"""Top-N lists in chunks: by mean, or by mean minus risk times std; similar rows.

The table of all users with all items is never built: a chunk of it is, and what wins is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse

from noisewise.engine.arrays import Codes, Floats, Moments
from noisewise.errors import brief
from noisewise.storage import Tensors, check_codes, take, take_starts

CHUNK_CELLS = 4_000_000

Rows = npt.NDArray[np.intp]


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


class Seen(NamedTuple):
    """Which cells were observed: columns of row i are ``columns[starts[i]:starts[i + 1]]``."""

    starts: npt.NDArray[np.int64]
    columns: Codes

    def __repr__(self) -> str:
        return brief(self)

    @classmethod
    def of(cls, codes: tuple[Codes, ...], shape: tuple[int, ...]) -> Seen:
        """Remember cells by their codes; four bytes a cell."""
        ones = np.ones(len(codes[0]), dtype=np.int8)
        matrix = scipy.sparse.csr_array((ones, codes), shape=shape)
        matrix.sum_duplicates()
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))

    def pack(self) -> Tensors:
        """Tensors of a file."""
        return {"seen.starts": self.starts, "seen.columns": self.columns}

    @classmethod
    def unpack(cls, path: Any, tensors: Tensors, shape: tuple[int, ...]) -> Seen | None:
        """Undo ``pack``; None if the file remembers nothing. It is not trusted."""
        if "seen.starts" not in tensors:
            return None
        starts = take_starts(path, tensors, "seen.starts", shape[0])
        columns = take(path, tensors, "seen.columns", "int32", int(starts[-1]))
        check_codes(path, "seen.columns", columns, shape[1])
        return cls(starts, columns)

    def cells(self) -> tuple[Codes, Codes]:
        """Codes of every cell."""
        rows = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))
        return rows, self.columns

    def of_row(self, row: int) -> Codes:
        """Columns seen with a row; a row beyond the end has none."""
        if not 0 <= row < len(self.starts) - 1:
            return np.empty(0, dtype=np.int32)
        return self.columns[self.starts[row] : self.starts[row + 1]]


def top_columns(
    factors: RowFactors,
    side: Side,
    n: int,
    *,
    mode: int = 0,
    risk: float = 0.0,
    std_scale: float = 1.0,
    excluded: list[Codes],
    candidates: Codes | None = None,
) -> Iterator[Codes]:
    """Yield, row by row, the best n columns: highest mean minus ``risk`` times std, best first.

    ``side`` has the rows of ``mode`` to rank for, and ``excluded`` for each the columns to leave
    out. Only ``candidates`` are ranked; None ranks all that were trained on.
    """
    counts = factors.counts[1 - mode]
    allowed = counts > 0
    if candidates is not None:
        chosen = np.zeros_like(allowed)
        chosen[candidates] = True
        allowed = allowed & chosen
    barred = np.flatnonzero(~allowed)
    chunk = max(1, CHUNK_CELLS // len(counts))
    for start in range(0, side.size, chunk):
        part = slice(start, start + chunk)
        moments = factors.table(mode, side.part(part))
        score = moments.mean
        if risk:
            score = score - np.float32(risk * std_scale) * np.sqrt(
                moments.noise + moments.epistemic
            )
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
