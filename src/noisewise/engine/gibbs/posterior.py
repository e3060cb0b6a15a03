"""What was learned: kept draws, and from them mean, noise and epistemic variance of cells."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Codes, Counts, Floats, Moments
from noisewise.engine.gibbs import cells
from noisewise.engine.gibbs.data import Floats64, Ints, Model
from noisewise.engine.gibbs.snapshot import Snapshot, gap_variance, path_variance
from noisewise.engine.gibbs.steps.noise import FLOOR
from noisewise.engine.gibbs.timeline import Timeline
from noisewise.engine.threads import in_threads, one_blas_thread
from noisewise.errors import brief, too_coarse

CHUNK = 16_384  # cells predicted by one task


class Scale(NamedTuple):
    """How standardised values become values; of levels, their values and the cut-point at 0."""

    location: float
    scale: float
    low: float  # predictions are clipped to this range
    high: float
    levels: Floats
    anchor: int


class Rows(NamedTuple):
    """Some rows of a mode in one draw; ``unknown`` ones stand for ids never seen.

    Rows that were not drawn, but are known by their distribution, have a ``covariance`` each, the
    bias last.
    """

    factors: Floats
    biases: Floats
    noise: Floats
    widths: Floats
    unknown: npt.NDArray[np.bool_]
    covariance: Floats

    def take(self, chosen: Any) -> Rows:
        """Return some of the rows."""
        arrays: Any = (array[chosen] for array in self)
        return Rows(*arrays)


@dataclass(frozen=True)
class Side:
    """Rows of one mode in every draw, right after their last observation."""

    size: int
    rows: Callable[[int], Rows]  # by the number of the draw

    def part(self, chosen: slice) -> Side:
        """Return some of the rows."""
        size = len(range(*chosen.indices(self.size)))
        return Side(size, lambda draw: self.rows(draw).take(chosen))


class Sums:
    """What is summed over draws for cells; of levels in units, else in standardised units.

    ``mean`` is of predictions clipped to the range of values, ``centre`` and ``square`` of what the
    draws say: clipping a prediction must not change its std.
    """

    def __init__(self, n: int, n_levels: int) -> None:
        self.draws = 0
        self.mean, self.centre, self.square, self.noise = np.zeros((4, n))
        self.probabilities = np.zeros((n, n_levels))

    def moments(self) -> Moments:
        """Mean, noise and epistemic variance of cells."""
        totals: Any = (self.mean, self.centre, self.square, self.noise)
        mean, centre, square, noise = (total / self.draws for total in totals)
        return Moments(mean, noise, np.maximum(square - centre**2, 0.0))


class Query(NamedTuple):
    """Cells to predict: rows needed of each mode, and where each cell's is among them."""

    rows: list[Codes]
    places: npt.NDArray[np.int32]
    gaps: list[Ints]  # of each mode, where there is a timeline


@dataclass(frozen=True)
class Posterior:
    """Kept draws; a code equal to the number of a mode's rows stands for an id never seen.

    Attributes
    ----------
    model, scale, shape
        What was sampled, how values are standardised, rows of each mode.
    counts
        Observations of every row.
    draws
        Snapshots, stacked: a leading axis of draws.
    timeline
        When rows were observed; None without time.
    """

    model: Model
    scale: Scale
    shape: tuple[int, ...]
    counts: tuple[Counts, ...]
    draws: Snapshot
    timeline: Timeline | None = None

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.draws["level"])

    def known_codes(self, mode: int, codes: Codes) -> Codes:
        """Send ids never trained on (-1, or without observations) to the last row."""
        count = self.counts[mode]
        known = (codes >= 0) & (count[codes] > 0)
        return np.where(known, codes, len(count)).astype(np.int32)

    def moments(
        self, codes: tuple[Codes, ...], n_jobs: int = 1, time: npt.NDArray[Any] | None = None
    ) -> Moments:
        """Moments of cells in units of the values; codes as from ``known_codes``."""
        return self.in_units(self._sums(codes, n_jobs, time).moments())

    def probabilities(
        self, codes: tuple[Codes, ...], n_jobs: int = 1, time: npt.NDArray[Any] | None = None
    ) -> Floats64:
        """Probability of every level of cells."""
        return self._sums(codes, n_jobs, time).probabilities / len(self)

    def query(self, codes: tuple[Codes, ...], time: npt.NDArray[Any] | None = None) -> Query:
        """Prepare cells; without a time they come right after the last observation."""
        found = [np.unique(code, return_inverse=True) for code in codes]
        places = np.array([inverse.ravel() for _, inverse in found], dtype=np.int32)
        gaps = [] if self.timeline is None else self.timeline.gaps(codes, time)
        return Query([rows.astype(np.int32) for rows, _ in found], places, gaps)

    def add(self, query: Query, sums: Sums, n_jobs: int) -> None:
        """Add what every draw says of cells."""
        for draw in range(len(self)):
            rows = [self.rows(draw, mode, needed) for mode, needed in enumerate(query.rows)]
            self._add(draw, rows, query.places, query.gaps, sums, n_jobs)

    def rows(self, draw: int, mode: int, codes: Codes) -> Rows:
        """Rows of a mode by their codes, in one draw."""
        one = {name: array[draw] for name, array in self.draws.items()}
        n, first = self.shape[mode], sum(self.shape[:mode])
        unknown = codes == n
        codes = np.where(unknown, 0, codes)
        factors, biases, noise = (
            one[name][codes + first].astype(np.float32) for name in ("factors", "biases", "noise")
        )
        factors[unknown], biases[unknown] = one["typical"][mode, :-1], one["typical"][mode, -1]
        if self.model.noise_rank:
            noise[unknown] = one["level"] if mode == len(self.shape) - 1 else 1.0
        widths = np.empty((len(codes), 0), dtype=np.float32)
        if mode == 0:
            widths = one["widths"][codes].astype(np.float32)
            widths[unknown] = one["width_centre"]
        drawn = np.empty((len(codes), 0, 0), dtype=np.float32)
        return Rows(factors, biases, noise, widths, unknown, drawn)

    def side(self, mode: int, codes: Codes) -> Side:
        """Rows of a mode by their codes, in every draw."""

        def rows(draw: int) -> Rows:
            found = self.rows(draw, mode, codes)
            if self.timeline is not None:
                starts = self.timeline.starts[mode]
                known = np.where(found.unknown, 0, codes)
                effect = self.draws[f"gaps{mode}"][draw][starts[known + 1] + known]
                found.biases[:] += np.where(found.unknown, 0.0, effect)
            return found

        return Side(len(codes), rows)

    def cells(self, mode: int, side: Side, codes: Codes) -> Moments:
        """Moments of a single row of ``mode`` with some rows of the other, as ``moments`` has them.

        A row that has no id yet has a place here too.
        """
        n, other = len(codes), self.side(1 - mode, codes)
        sums = Sums(n, self.n_levels)
        places = np.zeros((2, n), dtype=np.int32)
        places[1 - mode] = np.arange(n)
        sides = [side, other] if mode == 0 else [other, side]
        for draw in range(len(self)):
            self._add(draw, [s.rows(draw) for s in sides], places, [], sums, 1)
        return self.in_units(sums.moments())

    def table(self, mode: int, side: Side) -> Moments:
        """Moments of rows of ``mode`` with every id of the other mode: matrix products.

        Of levels, an approximation: the hidden value is taken to be normal, cut-points to be their
        average. The caller keeps the number of rows small, so that no full table is ever built.
        """
        columns = self.side(1 - mode, np.arange(self.shape[1 - mode], dtype=np.int32))
        total, centre, square, noise = np.zeros((4, side.size, columns.size), dtype=np.float32)
        first = None
        users = side if mode == 0 else columns
        widths = np.zeros((users.size, max(self.n_levels - 2, 0)))
        with one_blas_thread():
            for draw in range(len(self)):
                a, b = side.rows(draw), columns.rows(draw)
                mean = a.factors @ b.factors.T + (a.biases[:, None] + b.biases)
                first = mean.copy() if first is None else first
                apart = mean - first  # squares of the means themselves would drown small variances
                centre += apart
                square += apart * apart
                if a.unknown.any():
                    spread = _spread(b, self.draws["covariances"][draw, mode])
                    square[a.unknown] += spread.astype(np.float32)
                for row in range(len(a.covariance) if a.covariance.size else 0):
                    square[row] += _spread(b, a.covariance[row]).astype(np.float32)
                if not self.model.ordinal:
                    np.clip(mean, self.scale.low, self.scale.high, out=mean)
                total += mean
                if self.model.noise_rank:
                    noise += np.maximum(a.noise @ b.noise.T, np.float32(FLOOR))
                else:
                    noise += self._constant(draw)
                widths += a.widths if mode == 0 else b.widths
        many = np.float32(len(self))
        epistemic = np.maximum(square / many - (centre / many) ** 2, 0.0)
        hidden = Moments(total / many, noise / many, epistemic)
        if not self.model.ordinal:
            return self.in_units(hidden)
        return self._levelled(mode, hidden, (widths / len(self)).astype(np.float32))

    def similarity(self, mode: int, code: int) -> Floats:
        """Cosine of a row's factors with all rows of its mode, averaged over draws."""
        part = slice(sum(self.shape[:mode]), sum(self.shape[: mode + 1]))
        total = np.zeros(self.shape[mode], dtype=np.float32)
        for factors in self.draws["factors"][:, part]:
            own = factors.astype(np.float32)
            length = np.sqrt(np.einsum("ij,ij->i", own, own))
            total += own @ own[code] / np.maximum(length * length[code], np.float32(1e-12))
        return total / np.float32(len(self))

    def noise_by_row(self, mode: int) -> Floats64:
        """Variance of the noise of every row, averaged over the other modes as they were seen."""
        total = np.zeros(self.shape[mode])
        for draw in range(len(self)):
            if self.model.noise_rank == 0:
                total += self._constant(draw)
                continue
            noise = self.draws["noise"][draw].astype(np.float64)
            parts = np.split(noise, np.cumsum(self.shape)[:-1])
            rest = np.ones(noise.shape[1])
            for m, (count, part) in enumerate(zip(self.counts, parts, strict=True)):
                rest = rest if m == mode else rest * (count @ part / count.sum())
            total += parts[mode] @ rest
        return total / len(self) * self.scale.scale**2

    @property
    def n_levels(self) -> int:
        """Levels that values have; 0 where values are not levels."""
        return len(self.scale.levels) if self.model.ordinal else 0

    def in_units(self, moments: Moments) -> Moments:
        """Return moments in units of the values."""
        mean, noise, epistemic = moments
        if not self.model.ordinal:
            location, scale = self.scale.location, self.scale.scale
            if too_coarse(abs(location), scale):
                double: Any = [np.asarray(part, np.float64) for part in moments]
                return Moments(location + scale * double[0], *(scale**2 * p for p in double[1:]))
            mean = location + scale * mean
            noise, epistemic = (scale**2 * part for part in (noise, epistemic))
        return Moments(*(np.asarray(part, np.float32) for part in (mean, noise, epistemic)))

    def _sums(self, codes: tuple[Codes, ...], n_jobs: int, time: Any) -> Sums:
        sums = Sums(len(codes[0]), self.n_levels)
        self.add(self.query(codes, time), sums, n_jobs)
        return sums

    def _constant(self, draw: int) -> float:
        return float(self.draws["level"][draw, 0])

    def _add(
        self,
        draw: int,
        rows: list[Rows],
        places: npt.NDArray[np.int32],
        gaps: list[Ints],
        sums: Sums,
        n_jobs: int,
    ) -> None:
        """Add what one draw says of cells, whose rows are at ``places`` of each mode's."""
        firsts = np.cumsum([0, *(len(r.biases) for r in rows[:-1])]).astype(np.int32)
        factors, biases, noise = (np.concatenate([r[k] for r in rows]) for k in range(3))
        scale, model = self.scale, self.model

        def work(start: int) -> None:
            part = slice(start, start + CHUNK)
            at = places[:, part] + firsts[:, None]
            mean, variance = np.empty((2, at.shape[1]), dtype=np.float32)
            cells.means(at, factors, biases, mean)
            for mode, gap in enumerate(gaps):
                effect = self.draws[f"gaps{mode}"][draw][gap[part]].astype(np.float32)
                mean += np.where(rows[mode].unknown[places[mode, part]], np.float32(0.0), effect)
            variance[:] = self._constant(draw)
            if model.noise_rank:
                cells.variances(at, noise, variance)
            extra = self.extra(draw, rows, places[:, part])
            if not model.ordinal:
                sums.mean[part] += np.clip(mean, scale.low, scale.high)
                sums.centre[part] += mean
                sums.square[part] += mean.astype(np.float64) ** 2 + extra
                sums.noise[part] += variance
                return
            mass = np.empty((len(mean), self.n_levels))
            spread = variance + extra
            cells.masses(places[0, part], rows[0].widths, scale.anchor, mean, spread, mass)
            levels = scale.levels.astype(np.float64)
            expected = mass @ levels
            sums.mean[part] += expected
            sums.centre[part] += expected
            sums.square[part] += expected**2
            sums.noise[part] += mass @ levels**2 - expected**2
            sums.probabilities[part] += mass

        in_threads(work, range(0, places.shape[1], CHUNK), n_jobs)
        sums.draws += 1

    def extra(self, draw: int, rows: list[Rows], places: npt.NDArray[np.int32]) -> Floats64:
        """Variance of the mean in one draw: rows never seen, and time in between."""
        extra = np.zeros(places.shape[1])
        found = [self._open(draw, mode, r, places[mode]) for mode, r in enumerate(rows)]
        for mode, cases in enumerate(found):
            for which, covariance in cases:
                others = [
                    r._replace(covariance=r.covariance[:, :0, :0]).take(at[which])
                    for m, (r, at) in enumerate(zip(rows, places, strict=True))
                    if m != mode
                ]
                extra[which] += _spread(_product(others), covariance)
            if self.model.time:
                settings, new = self.draws["path_settings"][draw], rows[mode].unknown[places[mode]]
                extra += np.where(new, path_variance(settings, mode), gap_variance(settings, mode))
        for (first, one), (second, other) in itertools.product(found[0], found[1]):
            extra[first & second] += float((one * other)[:-1, :-1].sum())
        return extra

    def _open(
        self, draw: int, mode: int, rows: Rows, places: npt.NDArray[np.int32]
    ) -> list[tuple[npt.NDArray[np.bool_], Floats]]:
        """Which cells have a row of a mode that is not settled in this draw; its covariance."""
        cases = [(rows.unknown[places], self.draws["covariances"][draw, mode])]
        if rows.covariance.size:
            cases += [(places == row, own) for row, own in enumerate(rows.covariance)]
        return [(which, covariance) for which, covariance in cases if which.any()]

    def _levelled(self, mode: int, hidden: Moments, widths: Floats) -> Moments:
        """Moments of levels whose hidden values are normal; ``widths`` of the first mode's rows."""
        mean, noise, epistemic = hidden
        users = np.arange(len(widths))
        grid = np.broadcast_to(users[:, None] if mode == 0 else users, mean.shape).ravel()
        mass = np.empty((mean.size, self.n_levels))
        spread = (noise + epistemic).astype(np.float64)
        cells.masses(grid, widths, self.scale.anchor, mean.ravel(), spread.ravel(), mass)
        levels = self.scale.levels.astype(np.float64)
        expected = mass @ levels
        variance = np.maximum(mass @ levels**2 - expected**2, 0.0).reshape(mean.shape)
        share = noise / spread
        parts = (expected.reshape(mean.shape), variance * share, variance * (1.0 - share))
        return Moments(*(part.astype(np.float32) for part in parts))


def _product(rows: list[Rows]) -> Rows:
    """Multiply factors of several modes; all else is the first mode's."""
    factors = rows[0].factors
    for other in rows[1:]:
        factors = factors * other.factors
    return rows[0]._replace(factors=factors)


def _spread(rows: Rows, covariance: Floats) -> Floats64:
    """Variance that a row of this covariance has with given rows of the others."""
    x = np.column_stack([rows.factors, np.ones(len(rows.factors), dtype=np.float32)])
    return np.asarray(np.einsum("ij,ij->i", x @ covariance, x, dtype=np.float64))
