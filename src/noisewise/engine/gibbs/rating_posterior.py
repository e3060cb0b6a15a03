"""Kept draws of ratings, and from them mean, noise and epistemic variance of cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Codes, Floats, Moments
from noisewise.engine.gibbs.data import Data, Scale, Spec, Timeline
from noisewise.engine.gibbs.draw import Floats64, RatingDraw, Snapshot
from noisewise.engine.gibbs.posterior import Posterior, Rows, Sums, snapshot, spread, stacked
from noisewise.engine.gibbs.steps.noise import FLOOR, variances
from noisewise.engine.gibbs.steps.ordinal import masses
from noisewise.engine.gibbs.steps.rows import means
from noisewise.engine.gibbs.steps.temporal import effect_variance, gap_variance, gaps
from noisewise.engine.series import Ints
from noisewise.engine.threads import in_threads, one_blas_thread
from noisewise.errors import too_coarse

CHUNK = 16_384  # cells predicted by one task
MOST_ROUNDING = 0.01  # share of the noise's std that half precision may move predictions by


@dataclass(frozen=True)
class Side:
    """Rows of one mode in every draw, right after their last observation."""

    size: int
    rows: Callable[[int], Rows]  # by the number of the draw

    def part(self, chosen: slice) -> Side:
        """Return some of the rows."""
        size = len(range(*chosen.indices(self.size)))
        return Side(size, lambda draw: self.rows(draw).take(chosen))


class Query(NamedTuple):
    """Cells to predict: rows needed of each mode, and where each cell's is among them."""

    rows: list[Codes]
    places: npt.NDArray[np.int32]
    gaps: list[Ints]  # of each mode, where there is a timeline


@dataclass(frozen=True, repr=False)
class RatingPosterior(Posterior):
    """Kept draws of ratings.

    Attributes
    ----------
    scale
        How values are standardised.
    timeline
        When rows were observed; None without time.
    """

    scale: Scale
    timeline: Timeline | None = None

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
        """Rows of a mode by their codes, in one draw; those of the first have widths of levels."""
        found = super().rows(draw, mode, codes)
        if mode != 0:
            return found
        widths = self.draws["widths"][draw][np.where(found.unknown, 0, codes)].astype(np.float32)
        widths[found.unknown] = self.draws["width_centre"][draw]
        return found._replace(widths=widths)

    def time_variance(self, draw: int, mode: int, unknown: npt.NDArray[np.bool_]) -> Any:
        """Variance that temporal effects of a mode add to cells, of unknown rows and of others."""
        if not self.spec.time:
            return 0.0
        settings = self.draws["temporal_settings"][draw]
        return np.where(unknown, effect_variance(settings, mode), gap_variance(settings, mode))

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
                    covariance = self.draws["covariances"][draw, mode]
                    square[a.unknown] += spread(b, covariance).astype(np.float32)
                for row in range(len(a.covariance) if a.covariance.size else 0):
                    square[row] += spread(b, a.covariance[row]).astype(np.float32)
                if not self.spec.ordinal:
                    np.clip(mean, self.scale.low, self.scale.high, out=mean)
                total += mean
                if self.spec.noise_rank:
                    noise += np.maximum(a.noise @ b.noise.T, np.float32(FLOOR))
                else:
                    noise += self._constant(draw)
                widths += a.widths if mode == 0 else b.widths
        many = np.float32(len(self))
        epistemic = np.maximum(square / many - (centre / many) ** 2, 0.0)
        hidden = Moments(total / many, noise / many, epistemic)
        if not self.spec.ordinal:
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
    def n_levels(self) -> int:
        """Levels that values have; 0 where values are not levels."""
        return len(self.scale.levels) if self.spec.ordinal else 0

    def in_units(self, moments: Moments) -> Moments:
        """Return moments in units of the values."""
        mean, noise, epistemic = moments
        if not self.spec.ordinal:
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
        firsts, factors, biases, noise = stacked(rows)
        scale, spec = self.scale, self.spec

        def work(start: int) -> None:
            part = slice(start, start + CHUNK)
            at = places[:, part] + firsts[:, None]
            mean, variance = np.empty((2, at.shape[1]), dtype=np.float32)
            means(at, factors, biases, mean)
            for mode, gap in enumerate(gaps):
                effect = self.draws[f"gaps{mode}"][draw][gap[part]].astype(np.float32)
                mean += np.where(rows[mode].unknown[places[mode, part]], np.float32(0.0), effect)
            variance[:] = self._constant(draw)
            if spec.noise_rank:
                variances(at, noise, variance)
            extra = self.extra(draw, rows, places[:, part])
            if not spec.ordinal:
                sums.mean[part] += np.clip(mean, scale.low, scale.high)
                sums.centre[part] += mean
                sums.square[part] += mean.astype(np.float64) ** 2 + extra
                sums.noise[part] += variance
                return
            mass = np.empty((len(mean), self.n_levels))
            masses(places[0, part], rows[0].widths, scale.anchor, mean, variance + extra, mass)
            levels = scale.levels.astype(np.float64)
            expected = mass @ levels
            sums.mean[part] += expected
            sums.centre[part] += expected
            sums.square[part] += expected**2
            sums.noise[part] += mass @ levels**2 - expected**2
            sums.probabilities[part] += mass

        in_threads(work, range(0, places.shape[1], CHUNK), n_jobs)
        sums.draws += 1

    def _levelled(self, mode: int, hidden: Moments, widths: Floats) -> Moments:
        """Moments of levels whose hidden values are normal; ``widths`` of the first mode's rows."""
        mean, noise, epistemic = hidden
        users = np.arange(len(widths))
        grid = np.broadcast_to(users[:, None] if mode == 0 else users, mean.shape).ravel()
        mass = np.empty((mean.size, self.n_levels))
        full = (noise + epistemic).astype(np.float64)
        masses(grid, widths, self.scale.anchor, mean.ravel(), full.ravel(), mass)
        levels = self.scale.levels.astype(np.float64)
        expected = mass @ levels
        variance = np.maximum(mass @ levels**2 - expected**2, 0.0).reshape(mean.shape)
        share = noise / full
        parts = (expected.reshape(mean.shape), variance * share, variance * (1.0 - share))
        return Moments(*(part.astype(np.float32) for part in parts))


def rating_snapshot(draw: RatingDraw, spec: Spec, data: Data, half: type = np.float16) -> Snapshot:
    """Return what predictions need of a draw of ratings, by name; most of it of type ``half``.

    There are also the temporal effects expected between observations.
    """
    kept = snapshot(draw, spec, data, half) | {
        "centres": draw.centres.astype(np.float32),
        "precisions": draw.precisions.astype(np.float32),
        "features": draw.features.astype(half),
        "widths": draw.widths.astype(half),
        "width_centre": draw.width_centre.astype(np.float32),
        "temporal_settings": draw.temporal_settings.astype(np.float32),
    }
    for mode in range(2 if spec.time else 0):
        kept[f"gaps{mode}"] = gaps(draw, data, mode).astype(half)
    return kept


def half_is_enough(draw: RatingDraw, places: Any, root: float) -> bool:
    """Whether half precision moves predictions by a small share of the noise's std only.

    Parameters
    ----------
    draw, places
        A draw, and cells to try.
    root
        One over the std of the noise.
    """
    exact, rounded = np.empty((2, places.shape[1]), dtype=np.float32)
    means(places, draw.factors, draw.biases, exact)
    factors, biases = (
        array.astype(np.float16).astype(np.float32) for array in (draw.factors, draw.biases)
    )
    means(places, factors, biases, rounded)
    apart = (rounded - exact).astype(np.float64)
    return bool(np.sqrt(np.mean(apart**2)) * root < MOST_ROUNDING)
