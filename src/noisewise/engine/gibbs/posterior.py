"""Kept draws, and from them moments of cells: what all posteriors share, and that of ratings."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Array, Codes, Counts, Floats, Ints, Moments
from noisewise.engine.data import Scale, Spec, Timeline
from noisewise.engine.gibbs import newcomers
from noisewise.engine.gibbs.blocks import Block
from noisewise.engine.gibbs.steps.ordinal import masses
from noisewise.engine.gibbs.steps.rows import means
from noisewise.engine.gibbs.steps.temporal import effect_variances
from noisewise.engine.gibbs.steps.variances import low_rank_variances
from noisewise.engine.gibbs.sweep import Snapshot
from noisewise.engine.training import chunks, in_threads
from noisewise.errors import brief, too_coarse

Places = npt.NDArray[np.int32]  # a row per mode

CHUNK = 16_384  # cells predicted by one task
TOTALS = 5  # that are summed over draws for every cell
ROUNDING, FLOAT_ROUNDING = 1e-4, 1e-6  # of a table, beside a std and beside the values


class Rows(NamedTuple):
    """Some rows of a mode in one draw; ``unknown`` ones stand for ids never seen."""

    factors: Floats
    biases: Floats
    noise: Floats
    widths: Floats
    unknown: npt.NDArray[np.bool_]
    covariance: Floats  # of rows known by their distribution: one each, the bias last
    featured: npt.NDArray[np.bool_]  # which of the unknown ones have features


class Sums:
    """What is summed over draws for cells; of levels in units, else in standardised units.

    ``totals`` has predictions, clipped to the range of values; what the draws say, and its square,
    as clipping a prediction must not change its std; noise; and the number of draws.
    """

    totals: Array
    probabilities: Array

    def __init__(self, totals: Array, n_levels: int = 0) -> None:
        self.totals, self.probabilities = totals, np.zeros((totals.shape[1], n_levels))

    @classmethod
    def of(cls, n: int, n_levels: int = 0) -> Sums:
        """Start with nothing for n cells."""
        return cls(np.zeros((TOTALS, n)), n_levels)

    def add(self, part: slice, *of_a_draw: Any) -> None:
        """Add what a draw says of some of the cells: all totals but the number of draws."""
        for total, added in zip(self.totals, (*of_a_draw, 1.0), strict=True):
            total[part] += added

    def moments(self) -> Moments:
        """Mean, noise and epistemic variance of cells."""
        mean, centre, square, noise = self.totals[:-1] / self.totals[-1]
        return Moments(mean, noise, np.maximum(square - centre**2, 0.0))


@dataclass(frozen=True)
class Posterior:
    """Kept draws; a code equal to the number of a mode's rows stands for an id never seen."""

    spec: Spec
    shape: tuple[int, ...]  # rows of each mode
    counts: tuple[Counts, ...]  # observations of every row
    draws: Snapshot  # stacked: a leading axis of draws

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.draws["level"])

    @cached_property
    def average_noise(self) -> Floats:
        """Factors of the noise in every draw and mode, averaged over observations."""
        shares = [(count / max(count.sum(), 1)).astype(np.float32) for count in self.counts]
        found = np.empty((len(self), len(shares), self.spec.noise_rank), dtype=np.float32)
        for draw, own in enumerate(found):
            parts = np.split(np.asarray(self.draws["noise"][draw]), np.cumsum(self.shape)[:-1])
            own[:] = [one @ part for one, part in zip(shares, parts, strict=True)]
        return found

    def known_codes(self, mode: int, codes: Codes) -> Codes:
        """Send ids never trained on (-1, or without observations) to the last row."""
        count = self.counts[mode]
        known = (codes >= 0) & (count[codes] > 0)
        return np.where(known, codes, len(count)).astype(np.int32)

    def rows(self, draw: int, mode: int, codes: Codes) -> Rows:
        """Rows of a mode by their codes, in one draw; those of the first have widths of levels."""
        unknown = codes == self.shape[mode]
        known = np.where(unknown, 0, codes)
        factors, biases, noise = (
            self.draws[name][draw][known + sum(self.shape[:mode])].astype(np.float32)
            for name in ("factors", "biases", "noise")
        )
        typical = self.draws["typical"][draw, mode]
        factors[unknown], biases[unknown] = typical[:-1], typical[-1]
        if unknown.any():
            noise[unknown] = self.average_noise[draw, mode]
        widths = np.empty((len(codes), 0), dtype=np.float32)
        if mode == 0 and self.spec.ordinal:
            widths = self.draws["widths"][draw][known].astype(np.float32)
            widths[unknown] = self.draws["width_centre"][draw]
        drawn = np.empty((len(codes), 0, 0), dtype=np.float32)
        return Rows(factors, biases, noise, widths, unknown, drawn, np.zeros_like(unknown))

    def spreads(self, draw: int, mode: int, rows: Rows) -> list[tuple[Any, Floats]]:
        """Which rows were never seen, and the covariance that these have in one draw."""
        names = {"covariances": rows.unknown & ~rows.featured, "cold_covariances": rows.featured}
        return [(w, self.draws[name][draw, mode]) for name, w in names.items() if w.any()]

    def extra(self, draw: int, rows: list[Rows], places: Places) -> Array:
        """Variance of the mean in one draw: rows never seen, and temporal effects."""
        extra = np.zeros(places.shape[1])
        found = []  # per mode, which cells have a row that was not drawn, and its covariance
        for mode, own in enumerate(rows):
            cases = [(which[places[mode]], one) for which, one in self.spreads(draw, mode, own)]
            if own.covariance.size:
                cases += [(places[mode] == row, one) for row, one in enumerate(own.covariance)]
            found.append([(which, one) for which, one in cases if which.any()])
            for which, covariance in found[mode]:
                others = [
                    r.factors[at[which]]
                    for m, (r, at) in enumerate(zip(rows, places, strict=True))
                    if m != mode
                ]
                extra[which] += spread(reduce(np.multiply, others), covariance)
            if self.spec.time:
                settings = self.draws["temporal_settings"][draw]
                extra += np.where(own.unknown[places[mode]], *effect_variances(settings, mode))
        for (first, one), (second, other) in itertools.product(found[0], found[1]):
            extra[first & second] += float((one * other)[:-1, :-1].sum())
        return extra


def stacked(rows: list[Rows]) -> tuple[Codes, Floats, Floats, Floats]:
    """Put the rows of all modes together: where each mode begins, factors, biases and noise."""
    firsts = np.cumsum([0, *(len(r.biases) for r in rows[:-1])]).astype(np.int32)
    factors, biases, noise = (np.concatenate([r[k] for r in rows]) for k in range(3))
    return firsts, factors, biases, noise


def spread(factors: Floats, covariance: Floats) -> Array:
    """Variance that a row of this covariance has with given rows of the others, multiplied."""
    x = np.column_stack([factors, np.ones(len(factors), dtype=np.float32)])
    return np.asarray(np.einsum("ij,ij->i", x @ covariance, x, dtype=np.float64))


@dataclass(frozen=True)
class Side:
    """Rows of one mode in every draw, right after their last observation."""

    size: int
    rows: Callable[[int], Rows]  # by the number of the draw

    def part(self, chosen: slice) -> Side:
        """Return some of the rows."""

        def rows(draw: int) -> Rows:
            arrays: Any = (array[chosen] for array in self.rows(draw))
            return Rows(*arrays)

        return Side(len(range(*chosen.indices(self.size))), rows)


class Query(NamedTuple):
    """Cells to predict: rows needed of each mode, and where each cell's is among them."""

    rows: list[Codes]
    places: Places
    gaps: list[Ints]  # of each mode, where there is a timeline


@dataclass(frozen=True, repr=False)
class RatingPosterior(Posterior):
    """Kept draws of ratings."""

    scale: Scale  # how values are standardised
    timeline: Timeline | None = None  # when rows were observed; None without time
    cold: tuple[Any, ...] = ()  # per mode, features of ids; a code after the unknown one is of them

    def rows(self, draw: int, mode: int, codes: Codes) -> Rows:
        """Rows of a mode by their codes, in one draw; newcomers by their features."""
        n = self.shape[mode]
        found, featured = super().rows(draw, mode, np.minimum(codes, n)), codes > n
        if featured.any():
            part, some = newcomers.part_of(self.cold, mode), codes[featured] - (n + 1)
            given = self.draws, self.spec, draw, mode, part, self.cold[mode][some]
            own, found.noise[featured] = newcomers.expected(*given)
            found.factors[featured], found.biases[featured] = own[:, :-1], own[:, -1]
        return found._replace(featured=featured)

    def moments(self, codes: tuple[Codes, ...], n_jobs: int = 1, time: Any = None) -> Moments:
        """Moments of cells in units of the values; codes as from ``known_codes``."""
        return self.in_units(self._sums(codes, n_jobs, time).moments())

    def probabilities(self, codes: tuple[Codes, ...], n_jobs: int, time: Any) -> Array:
        """Probability of every level of cells."""
        return self._sums(codes, n_jobs, time).probabilities / len(self)

    def query(self, codes: tuple[Codes, ...], time: Any) -> Query:
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

    def pairs(self, mode: int, side: Side, rows: Codes, codes: Codes) -> Moments:
        """Moments of cells: places of rows in ``side``, and codes of the other mode.

        A row of a side may have no id.
        """
        found, inverse = np.unique(codes, return_inverse=True)
        sums, other = Sums.of(len(codes), self.n_levels), self.side(1 - mode, found)
        places = np.empty((2, len(codes)), dtype=np.int32)
        places[mode], places[1 - mode] = rows, inverse.ravel()
        sides = [side, other] if mode == 0 else [other, side]
        for draw in range(len(self)):
            self._add(draw, [s.rows(draw) for s in sides], places, [], sums, 1)
        return self.in_units(sums.moments())

    def shortlist(self, n: int) -> tuple[int, float]:
        """Return how many of the best by ``table``, and what is how little worse, to look at."""
        rounding = ROUNDING * self.scale.scale + FLOAT_ROUNDING * abs(self.scale.location)
        return (2 * n + 20 if self.spec.ordinal else n), rounding

    def table(self, mode: int, side: Side, codes: Codes, *, spread: bool) -> Moments:
        """Moments of rows of ``mode`` with some of the other: matrix products, draw by draw.

        Without a spread there is only a mean. Of levels, all is an approximation: the hidden value
        is taken to be normal, cut-points to be their average. The caller keeps the number of rows
        small, so that no full table is ever built.
        """
        columns = self.side(1 - mode, codes)
        users = side if mode == 0 else columns
        ends, full = (self.scale.low, self.scale.high), spread or self.spec.ordinal
        block = Block(side.size, columns.size, *ends, full=full)
        widths = np.zeros((users.size, max(self.n_levels - 2, 0)))
        for draw in range(len(self)):
            a, b = side.rows(draw), columns.rows(draw)
            block.add(a, b, self._constant(draw))
            if full:
                self._add_unknown(draw, mode, a, b, block.square)
            widths += a.widths if mode == 0 else b.widths
        moments = Moments(*block.averages())
        if self.spec.ordinal:
            return self._as_levels(moments, mode, widths / len(self))
        return self.in_units(moments)

    def _add_unknown(self, draw: int, mode: int, a: Rows, b: Rows, square: Floats) -> None:
        """Add the variance of rows that were not drawn."""
        for which, covariance in self.spreads(draw, mode, a):
            square[which] += spread(b.factors, covariance).astype(np.float32)
        for row in range(len(a.covariance) if a.covariance.size else 0):
            square[row] += spread(b.factors, a.covariance[row]).astype(np.float32)

    def _as_levels(self, hidden: Moments, mode: int, widths: Array) -> Moments:
        """Moments of levels, whose hidden values are normal with the moments of a table."""
        mean, noise, epistemic = hidden
        numbers, average = np.arange(len(widths)), widths.astype(np.float32)
        grid = np.broadcast_to(numbers[:, None] if mode == 0 else numbers, mean.shape).ravel()
        full = (noise + epistemic).astype(np.float64)
        _, expected, variance = self._levels(grid, average, mean.ravel(), full.ravel())
        variance = np.maximum(variance, 0.0).reshape(mean.shape)
        share = noise / full
        parts = (expected.reshape(mean.shape), variance * share, variance * (1.0 - share))
        return Moments(*(part.astype(np.float32) for part in parts))

    def similarity(self, mode: int, code: int) -> Floats:
        """Cosine of a row's factors with all rows of its mode, averaged over draws."""
        part = slice(sum(self.shape[:mode]), sum(self.shape[: mode + 1]))
        total = np.zeros(self.shape[mode], dtype=np.float32)
        for draw in range(len(self)):
            own = self.draws["factors"][draw][part].astype(np.float32)
            length = np.sqrt(np.einsum("ij,ij->i", own, own))
            total += own @ own[code] / np.maximum(length * length[code], np.float32(1e-12))
        return total / np.float32(len(self))

    def noise_by_row(self, mode: int) -> Array:
        """Variance of the noise of every row, averaged over the other modes as they were seen."""
        total = np.zeros(self.shape[mode])
        for draw in range(len(self)):
            if self.spec.noise_rank == 0:
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
    def location(self) -> float:
        """The value that is usual: the mean of all; of levels, the middle one."""
        return float(self.scale.levels.mean()) if self.spec.ordinal else self.scale.location

    @property
    def n_levels(self) -> int:
        """Levels that values have; 0 where values are not levels."""
        return len(self.scale.levels) if self.spec.ordinal else 0

    def in_units(self, moments: Moments) -> Moments:
        """Return moments in units of the values; levels are in units already."""
        location, scale = self.scale.location, self.scale.scale
        coarse = too_coarse(abs(location), scale)
        given: Any = (part.astype(np.float64) if coarse else part for part in moments)
        mean, noise, epistemic = given
        parts = location + scale * mean, scale**2 * noise, scale**2 * epistemic
        return Moments(*(part if coarse else part.astype(np.float32) for part in parts))

    def _sums(self, codes: tuple[Codes, ...], n_jobs: int, time: Any) -> Sums:
        sums = Sums.of(len(codes[0]), self.n_levels)
        self.add(self.query(codes, time), sums, n_jobs)
        return sums

    def _constant(self, draw: int) -> float:
        return float(self.draws["level"][draw, 0])

    def _add(
        self, draw: int, rows: list[Rows], places: Places, gaps: list[Ints], sums: Sums, n_jobs: int
    ) -> None:
        """Add what one draw says of cells, whose rows are at ``places`` of each mode's."""
        firsts, factors, biases, noise = stacked(rows)

        def work(part: slice) -> None:
            at = places[:, part] + firsts[:, None]
            mean, variance = np.empty((2, at.shape[1]), dtype=np.float32)
            means(at, factors, biases, mean)
            for mode, gap in enumerate(gaps):
                effect = self.draws[f"gaps{mode}"][draw][gap[part]].astype(np.float32)
                mean += np.where(rows[mode].unknown[places[mode, part]], np.float32(0.0), effect)
            variance[:] = self._constant(draw)
            if self.spec.noise_rank:
                low_rank_variances(at, noise, variance)
            extra = self.extra(draw, rows, places[:, part])
            if not self.spec.ordinal:
                square = mean.astype(np.float64) ** 2 + extra
                sums.add(part, mean.clip(self.scale.low, self.scale.high), mean, square, variance)
                return
            mass, expected, noisy = self._levels(
                places[0, part], rows[0].widths, mean, variance + extra
            )
            sums.add(part, expected, expected, expected**2, noisy)
            sums.probabilities[part] += mass

        in_threads(work, chunks(places.shape[1], CHUNK), n_jobs)

    def _levels(
        self, users: Any, widths: Floats, mean: Floats, variance: Array
    ) -> tuple[Array, Array, Array]:
        """Probabilities of levels, mean and variance of cells whose hidden values are normal."""
        mass, levels = np.empty((len(mean), self.n_levels)), self.scale.levels.astype(np.float64)
        masses(users, widths, self.scale.anchor, mean, variance, mass)
        expected = mass @ levels
        return mass, expected, mass @ levels**2 - expected**2
