"""What was learned on a GPU, made whole there: ``Factors`` of a state, moments of cells, top N.

The sums over all rows that ``uncertainty.py`` has on the CPU are products of matrices here.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh

from noisewise.engine.arrays import Codes, Counts, Floats, Moments
from noisewise.engine.devices import Device
from noisewise.engine.sgd.factors import LARGEST, Factors
from noisewise.engine.sgd.gpu import Kernels
from noisewise.engine.sgd.gpu_state import GpuState, sent
from noisewise.engine.sgd.layout import BIAS, LINE, Params, State, aligned_zeros
from noisewise.engine.sgd.uncertainty import shrink_of, stabilised
from noisewise.errors import DivergedError

CHUNK = 65_536  # rows that are worked on in float64 at a time
TABLE_CELLS = 400_000_000  # of a table of rows with all columns, of which the best are kept
PREDICTED = 50_000_000  # cells at a time


def finalize(
    device: Device,
    params: Params,
    state: GpuState,
    counts: tuple[Counts, ...],
    location: float,
    scale: float,
) -> Factors:
    """Do what ``Factors.finalize`` does: rows of numpy, and what an id never seen gets."""
    if len(counts) > 2:
        order = tuple(np.arange(len(count), dtype=np.int32) for count in counts)
        return Factors.finalize(params, state.on_host(), counts, location, scale, order)
    xp = device.xp
    here = [device.on_device(count) for count in counts]
    ends = [_averages(xp, own, count) for own, count in zip(state.rows, here, strict=True)]
    noise = max(state.variance, params.delta, 1e-6)
    parts = [_Part.of(device, params, state.rows[m], here[m], counts[m]) for m in range(2)]
    try:
        first, second = (_seen(device, parts[m], parts[1 - m], noise) for m in range(2))
    except ValueError as error:
        if all(float(abs(own).max()) < LARGEST for own in state.rows):
            raise
        raise DivergedError("What was learned is too large to compute with.") from error
    rows = tuple(_on_host(device, own, end) for own, end in zip(state.rows, ends, strict=True))
    final = State(rows, state.layout, state.epoch, state.variance)
    spread, shrink = (second[0], first[0]), (first[1], second[1])
    return Factors(params, final, counts, location, scale, spread, shrink)


class _Part(NamedTuple):
    """Rows of one mode: ``[mean factors, bias]``, their covariance, and how they are seen."""

    rows: Any
    counts: Counts
    weight: Any  # of every row, by its observations
    known: Any
    covariance: Any
    moments: Any

    @classmethod
    def of(cls, device: Device, params: Params, packed: Any, count: Any, counts: Counts) -> _Part:
        """Measure them."""
        xp = device.xp
        mean = packed[:, LINE : LINE + params.rank]
        rows = xp.concatenate([mean, packed[:, BIAS : BIAS + 1]], axis=1)
        weight = count / max(int(counts.sum()), 1)
        known = (count > 0) / max(int((counts > 0).sum()), 1)
        covariance = device.on_host(_second(xp, rows, known, _first(xp, rows, known)))
        moments = device.on_host(_second(xp, _seen_through(rows), weight, None))
        return cls(rows, counts, weight, known, stabilised(covariance), moments)


def _seen(device: Device, own: _Part, other: _Part, noise: float) -> tuple[Floats, Floats]:
    """Spread of every row of the other mode, and shrink of every row of this one."""
    xp = device.xp
    root = np.linalg.cholesky(own.covariance)
    strength, vectors = eigh(root.T @ other.moments @ root / noise)
    turned = xp.asarray(root @ vectors)
    spread, typical = xp.empty(len(other.rows)), xp.zeros(len(strength))
    for part in _chunks(len(other.rows)):
        squares = (_seen_through(other.rows[part]) @ turned) ** 2
        spread[part] = squares.sum(axis=1)
        typical += other.weight[part] @ squares
    average = float(other.known @ spread)
    return (
        np.append(device.on_host(spread), average).astype(np.float32),
        shrink_of(own.counts, device.on_host(typical), strength),
    )


def _on_host(device: Device, rows: Any, end: Any) -> Floats:
    """Return rows as numpy has them, and what stands for an id never seen after them."""
    extended = aligned_zeros(len(rows) + 1, rows.shape[1])
    device.on_host(rows, out=extended[:-1])
    extended[-1] = device.on_host(end)
    return extended


def _averages(xp: Any, rows: Any, counts: Any) -> Any:
    known = counts > 0
    return _first(xp, rows, known / max(int(known.sum()), 1))


def _first(xp: Any, rows: Any, weight: Any) -> Any:
    """Weighted mean of rows, in float64."""
    total = xp.zeros(rows.shape[1])
    for part in _chunks(len(rows)):
        total += weight[part] @ rows[part].astype(np.float64)
    return total


def _second(xp: Any, rows: Any, weight: Any, centre: Any) -> Any:
    """Weighted second moments of rows around a centre, in float64."""
    total = xp.zeros((rows.shape[1], rows.shape[1]))
    for part in _chunks(len(rows)):
        x = rows[part].astype(np.float64)
        if centre is not None:
            x -= centre
        total += (x * weight[part, None]).T @ x
    return total


def _seen_through(rows: Any) -> Any:
    """Return what multiplies the row that is not known: the factors, and 1 for its bias."""
    x = rows.astype(np.float64)
    x[:, -1] = 1.0
    return x


def _chunks(n: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, n, CHUNK)]


class OnGpu:
    """Factors with their rows on a GPU, for many predictions.

    Parameters
    ----------
    device, factors
        Where, and what was learned; of two modes.
    """

    device: Device
    factors: Factors
    state: GpuState
    kernels: Kernels
    spread: tuple[Any, ...]
    shrink: tuple[Any, ...]

    def __init__(self, device: Device, factors: Factors) -> None:
        self.device, self.factors = device, factors
        self.state = sent(device, factors.state)
        self.kernels = Kernels(device, factors.params, len(factors.counts), is_ring=False)
        self.spread = tuple(map(device.on_device, factors.spread))
        self.shrink = tuple(map(device.on_device, factors.shrink))

    def moments(self, codes: tuple[Codes, ...]) -> Moments:
        """Moments of cells in units of the values, as ``Factors.moments`` has them."""
        parts = []
        for start in range(0, len(codes[0]), PREDICTED):
            here = tuple(self.device.on_device(c[start : start + PREDICTED]) for c in codes)
            mean, noise = self.kernels.predict(self.state, here)
            parts.append([self.device.on_host(x) for x in (mean, noise, self._epistemic(here))])
        return self.factors.in_units(*map(np.concatenate, zip(*parts, strict=True)))

    def _epistemic(self, codes: tuple[Any, ...]) -> Any:
        (i, j), spread, shrink = codes, self.spread, self.shrink
        return shrink[0][i] * spread[1][j] + shrink[1][j] * spread[0][i]

    def top(
        self,
        rows: Codes,
        n: int,
        *,
        risk: float = 0.0,
        std_scale: float = 1.0,
        seen: tuple[Counts, Codes] | None = None,
        candidates: Codes | None = None,
    ) -> Codes:
        """Return for rows of the first mode the best n columns of the second, best first.

        Parameters
        ----------
        rows
            Codes as from ``Factors.known_codes``.
        risk, std_scale
            Rank by mean minus ``risk`` times std, which is scaled by this.
        seen
            Starts and columns of what to leave out, by row.
        candidates
            Rank only these; None ranks all that were trained on.

        Returns
        -------
        codes
            -1 where there are fewer than n.
        """
        device = self.device
        counts = self.factors.counts[1]
        allowed = counts > 0
        if candidates is not None:
            allowed &= np.isin(np.arange(len(counts)), candidates)
        barred, chunk = device.on_device(np.flatnonzero(~allowed)), _chunk(len(counts))
        out = np.empty((len(rows), n), dtype=np.int32)
        columns = None if seen is None else device.on_device(seen[1])
        for start in range(0, len(rows), chunk):
            some = rows[start : start + chunk]
            scores = self._scores(device.on_device(some), risk * std_scale)
            left_out = None if seen is None else (seen[0], columns)
            best = best_columns(device, scores, some, n, barred, left_out)
            out[start : start + chunk] = device.on_host(best)
        return out

    def _scores(self, rows: Any, risk: float) -> Any:
        """Mean minus risk times std of rows with all columns, in standardised units."""
        xp, params, layout = self.device.xp, self.factors.params, self.state.layout
        own, other = self.state.rows[0][rows], self.state.rows[1][:-1]
        part = slice(LINE, LINE + params.rank)
        mean = own[:, part] @ other[:, part].T
        mean += own[:, BIAS, None] + other[:, BIAS]
        if not risk:
            return mean
        part = slice(layout.deviation_start, layout.deviation_start + params.deviation_rank)
        variance = own[:, part] @ other[:, part].T + np.float32(params.delta)
        if not self.factors.learned_deviation:
            variance[...] = self.state.variance
        variance += self.shrink[0][rows][:, None] * self.spread[1][:-1]
        variance += self.spread[0][rows][:, None] * self.shrink[1][:-1]
        return mean - np.float32(risk) * xp.sqrt(variance)


def best_columns(
    device: Device, scores: Any, rows: Codes, n: int, barred: Any, seen: tuple[Any, Any] | None
) -> Any:
    """Return the columns of the best n scores of rows, -1 where there are fewer.

    Columns that are ``barred``, and for each row those that were ``seen`` (starts by row, of numpy,
    and columns), do not count: their scores are overwritten.
    """
    scores[:, barred] = -np.inf
    if seen is not None:
        starts, columns = seen
        places, taken = _taken(device.xp, device, rows, starts)
        scores[places, columns[taken]] = -np.inf
    best = device.xp.empty((len(rows), n), dtype=np.int32)
    kernel = device.compiled(files(__package__).joinpath("best.cu").read_text(), ())
    given = np.int64(len(rows)), np.int64(scores.shape[1]), np.int32(n)
    kernel("best", len(rows))(scores, *given, best)
    return best


def _chunk(columns: int) -> int:
    return max(1, TABLE_CELLS // columns)


def _taken(xp: Any, device: Device, rows: Codes, starts: Any) -> tuple[Any, Any]:
    """Return, of what some rows were seen with, the place of the row and where the column is."""
    known = np.minimum(rows, len(starts) - 2)
    length = np.where(rows < len(starts) - 1, starts[known + 1] - starts[known], 0)
    ends = np.cumsum(length)
    first = device.on_device(starts[known] - (ends - length))
    at = xp.arange(int(ends[-1]) if len(ends) else 0)
    places = xp.searchsorted(device.on_device(ends), at, side="right")
    return places, at + first[places]
