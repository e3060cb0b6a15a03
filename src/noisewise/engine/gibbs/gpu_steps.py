"""The steps of ratings on a GPU: each draws what the step of the CPU draws that it stands for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from noisewise.engine.arrays import Array, Values
from noisewise.engine.devices import BLOCK, WARP
from noisewise.engine.gibbs.gpu import MOST_SHARED, WIDE, GpuWorkspace
from noisewise.engine.gibbs.steps.ordinal import Levels, Rescaling
from noisewise.engine.gibbs.steps.regression import BLOCK as COORDINATES
from noisewise.engine.gibbs.steps.regression import Implicit, feature_part
from noisewise.engine.gibbs.steps.rows import EXACT_FROM
from noisewise.engine.gibbs.steps.temporal import TemporalEffect
from noisewise.engine.gibbs.steps.variances import (
    FLOOR,
    SCALES_FROM,
    ConstantNoise,
    LowRankNoise,
    NormalWishart,
    freedom,
)
from noisewise.engine.gibbs.sweep import (
    ALL_FROM,
    EFFECTS,
    FEATURES,
    ROWS,
    RatingDraw,
    Step,
    Sweep,
)

FOUR = 4  # coordinates that a block of ``features_far`` has


class GpuStep(Step[RatingDraw]):
    """A conditional, drawn on a GPU."""

    work: GpuWorkspace

    def rows_of(self, draw: RatingDraw, part: slice) -> Any:
        """Return rows of a mode, the bias last, in double precision."""
        both = draw.factors[part, : self.spec.rank], draw.biases[part][:, None]
        return self.work.xp.concatenate(both, axis=1).astype(np.float64)


class GpuPrecisions(GpuStep):
    """Take the precision of every observation from the noise factors."""

    def _draw(self, draw: RatingDraw) -> None:
        work, n = self.work, np.int64(len(self.data))
        if self.spec.noise_rank == 0:
            work.root[:] = 1.0 / math.sqrt(max(draw.level[0], FLOOR))
        else:
            work.kernel("roots")(work.here.places, n, draw.noise, work.root)


class GpuTarget(GpuStep):
    """Take temporal effects from the values: rows are to explain the rest."""

    def _draw(self, draw: RatingDraw) -> None:
        values = draw.latent if self.spec.ordinal else self.work.here.values
        self.work.target = values - draw.temporal_sum()


class GpuRows(GpuStep):
    """Draw the rows of a mode; after the last mode, set the residual."""

    def _draw(self, draw: RatingDraw) -> None:
        data, mode, work, here = self.data, self.mode, self.work, self.work.here
        exact = float(work.root.max()) > EXACT_FROM
        effects = draw.effects[data.part(mode)] if self.spec.implicit else work.target
        rows = data.shape[mode]
        work.rows_kernel(rows, exact)(
            here.order[mode], np.int64(rows), here.starts[mode], here.index[mode],
            here.others[mode], np.int64(len(data)), draw.factors, draw.biases,
            np.int64(data.firsts[mode]), work.root, work.target,
            work.device.on_device(draw.centres[mode]), effects, np.int32(self.spec.implicit),
            work.device.on_device(draw.precisions[mode]), work.key(draw, ROWS, mode),
        )  # fmt: skip
        if mode == data.n_modes - 1:
            work.residual = work.target - work.fit(here.places, draw, draw.fitted)


class GpuNormalWishart(NormalWishart, GpuStep):
    """Draw mean and precision of the rows of a mode; their scatter comes from the GPU."""

    work: GpuWorkspace

    def _scatter(self, draw: Any, implicit: bool) -> tuple[Any, Any, Any]:
        part, of_features = self.data.part(self.mode), None
        rows = self.rows_of(draw, part)
        if implicit:
            rows -= draw.effects[part]
            features = draw.features[feature_part(self.data, self.mode)].astype(np.float64)
            of_features = self.work.on_host(features.T @ features)
        average = rows.mean(axis=0)
        rows -= average
        return self.work.on_host(average), self.work.on_host(rows.T @ rows), of_features


class GpuImplicit(GpuStep):
    """Draw the weights of what rows of a mode were seen with, and what they add to the rows.

    Coordinates do not know of each other: blocks take one each, or four where there are many rows,
    and go from feature to feature.
    """

    features: int
    squares: Any

    joins = Implicit.joins

    def __init__(self, work: GpuWorkspace, mode: int) -> None:
        super().__init__(work, mode)
        self.features = work.data.shape[1 - mode]
        self.squares = work.xp.empty(self.features, dtype=np.float32)
        work.kernel("square_sums")(
            work.here.starts[1 - mode], work.here.members[mode], work.here.shares[mode],
            np.int64(self.features), self.squares,
        )  # fmt: skip

    @property
    def is_near(self) -> bool:
        """Whether a coordinate of all rows fits the shared memory of a block."""
        return bool(8 * self.data.shape[self.mode] <= MOST_SHARED)

    def _draw(self, draw: RatingDraw) -> None:
        data, mode, work, xp = self.data, self.mode, self.work, self.work.xp
        part, own = data.part(mode), feature_part(data, mode)
        root = np.linalg.cholesky(draw.precisions[mode])
        inverse = solve_triangular(root, np.eye(len(root)), lower=True)
        there, back = work.device.on_device(root), work.device.on_device(inverse)
        centred = self.rows_of(draw, part) - work.device.on_device(draw.centres[mode])
        whitened = (centred - draw.effects[part]) @ there
        weights = draw.features[own].astype(np.float64) @ there
        whitened, weights = self._swept(draw, whitened, weights)
        rate = 1.0 + 0.5 * float(xp.square(weights).sum(dtype=np.float64))
        rng = work.rng(draw, FEATURES, mode)
        draw.strengths[mode] = rng.gamma(1.0 + 0.5 * weights.size, 1.0 / rate)
        draw.features[own] = weights.astype(np.float64) @ back
        draw.effects[part] = centred - whitened.astype(np.float64) @ back

    def _swept(self, draw: RatingDraw, whitened: Any, weights: Any) -> tuple[Any, Any]:
        """Go over all features; return rows less what sets add, and weights."""
        work, here, xp, mode = self.work, self.work.here, self.work.xp, self.mode
        D, rows, many = whitened.shape[1], len(whitened), self.features
        E, Y = (_by_coordinate(xp, array) for array in (whitened, weights))
        Z = xp.zeros(Y.shape, dtype=np.float32)
        for start in range(0, D, COORDINATES):
            key, width = work.key(draw, FEATURES, mode, start), min(COORDINATES, D - start)
            work.kernel("feature_normals")(np.int64(many), np.int32(start), np.int32(width), key, Z)
        given = (
            here.starts[1 - mode], here.members[mode], here.shares[mode], self.squares,
            np.float32(draw.strengths[mode]), np.int64(many), np.int64(rows),
        )  # fmt: skip
        if self.is_near:
            near = work.kernel("features_near", D * BLOCK // WARP, shared=8 * rows)
            near(*given, np.int32(D), E, Y, Z)
        else:
            fours = len(E) // FOUR
            E, Y, Z = (_in_fours(xp, array) for array in (E, Y, Z))
            far = work.kernel("features_far", fours * WIDE // WARP, threads=WIDE)
            far(*given, np.int32(fours), E, Y, Z)
            E, Y = (_apart(array) for array in (E, Y))
        return E[:D].T, Y[:D].T


def _by_coordinate(xp: Any, array: Any) -> Any:
    """Return single precision, a line for each coordinate; a multiple of four of them."""
    n, D = array.shape
    out = xp.zeros((-(-D // FOUR) * FOUR, n), dtype=np.float32)
    out[:D] = array.T
    return out


def _in_fours(xp: Any, array: Any) -> Any:
    """Put four coordinates of a row beside each other."""
    lines, n = array.shape
    return xp.ascontiguousarray(array.reshape(lines // FOUR, FOUR, n).transpose(0, 2, 1))


def _apart(array: Any) -> Any:
    fours, n, _ = array.shape
    return array.transpose(0, 2, 1).reshape(fours * FOUR, n)


class GpuTemporalEffect(TemporalEffect):
    """Draw one of the temporal effects on a GPU."""

    work: GpuWorkspace

    def _draw_effect(self, draw: RatingDraw, phi: float, variance: float, key: np.uint64) -> None:
        work = self.work
        work.kernel("draw_ar1")(
            *self._visits, work.residual, draw.temporal[self.number], work.root, np.float64(phi),
            np.float64(variance), key, *work.filtered,
        )  # fmt: skip

    def _scores(self, draw: RatingDraw, phi: Values, variance: Values) -> Values:
        work = self.work
        scores = work.xp.zeros((self.data.shape[self.mode], 2))
        work.kernel("ar1_log_likelihood")(
            *self._visits, work.residual, draw.temporal[self.number], work.root,
            work.device.on_device(phi), work.device.on_device(variance), scores,
        )  # fmt: skip
        return np.asarray(work.on_host(scores.sum(axis=0)))

    @property
    def _visits(self) -> tuple[Any, ...]:
        here, mode = self.work.here, self.mode
        rows = np.int64(self.data.shape[mode])
        return here.order[mode], rows, here.starts[mode], here.index[mode]


class GpuLevels(Levels):
    """Draw cut-points and hidden values of levels on a GPU."""

    work: GpuWorkspace

    def __init__(self, work: GpuWorkspace, anchor: int) -> None:
        super().__init__(work, anchor)
        self.levels: Any = work.here.values.astype(np.int32)

    def _draw_hidden(self, draw: RatingDraw, step: float, key: np.uint64) -> float:
        work, rows = self.work, self.data.shape[0]
        accepted = work.xp.zeros(rows, dtype=np.int32)
        work.kernel("draw_levels")(
            work.here.order[0], np.int64(rows), work.here.starts[0], self.levels, draw.mean(),
            work.root, draw.widths, np.int32(draw.widths.shape[1]),
            work.device.on_device(draw.width_centre), work.device.on_device(draw.width_spread),
            np.int32(self.anchor), np.float64(step), key, draw.latent, accepted,
        )  # fmt: skip
        return float(accepted.mean())

    def _draw_prior(self, draw: RatingDraw, widths: Any) -> None:
        super()._draw_prior(draw, self.work.on_host(widths))

    def scaled_likelihood(self, draw: RatingDraw, mean: Any, log_scale: float) -> Array:
        """Log-likelihood, slope and curvature by the log of a scale on means and cut-points."""
        work, rows = self.work, self.data.shape[0]
        sums = work.xp.zeros((rows, 3))
        work.kernel("scale_likelihood")(
            work.here.order[0], np.int64(rows), work.here.starts[0], self.levels, mean, work.root,
            draw.widths, np.int32(draw.widths.shape[1]), np.int32(self.anchor),
            np.float64(log_scale), sums,
        )  # fmt: skip
        return np.asarray(work.on_host(sums.sum(axis=0)))


class GpuRescaling(Rescaling):
    """Move along the two directions in which everything drags everything else along."""

    def __init__(self, work: GpuWorkspace, levels: GpuLevels) -> None:
        super().__init__(work, levels)
        self.precisions: Any = GpuPrecisions(work)


class GpuLowRankNoise(LowRankNoise):
    """Draw the factors of the variance on a GPU."""

    work: GpuWorkspace

    def _draw_mode(self, draw: Any, mode: int, level: Array, key: np.uint64) -> None:
        data, work, here = self.data, self.work, self.work.here
        work.kernel("draw_noise")(
            here.order[mode], np.int64(data.shape[mode]), here.starts[mode], here.index[mode],
            here.others[mode], np.int64(len(data)), draw.noise, np.int64(data.firsts[mode]),
            work.residual, work.device.on_device(level), key,
        )  # fmt: skip

    def _inverse(self, draw: Any, mode: int) -> Array:
        own = draw.noise[self.data.part(mode)].astype(np.float64)
        return np.asarray(self.work.on_host((1.0 / own).sum(axis=0)))


class GpuConstantNoise(ConstantNoise):
    """Draw the variance that all observations share."""

    work: GpuWorkspace

    def _square(self) -> float:
        return float(self.work.xp.square(self.work.residual).sum(dtype=np.float64))


class GpuSweep(Sweep[RatingDraw]):
    """One sweep over all steps that have joined in, in their order."""

    work: GpuWorkspace

    def _sums(self) -> Any:
        work, xp = self.work, self.work.xp
        sums = xp.stack([
            xp.square(work.residual).sum(dtype=np.float64),
            xp.square(work.residual * work.root).sum(dtype=np.float64),
            xp.log(work.root).sum(dtype=np.float64),
        ])  # fmt: skip
        return len(work.residual), *work.on_host(sums).tolist()


def rating_steps(work: GpuWorkspace, anchor: int = 1) -> list[Step[Any]]:
    """Return the steps of ratings; ``anchor`` is the cut-point between levels that is 0."""
    spec, data = work.spec, work.data
    steps: list[Step[Any]] = [GpuPrecisions(work)]
    if spec.ordinal:
        levels = GpuLevels(work, anchor)
        steps += [GpuRescaling(work, levels), levels]
    steps.append(GpuTarget(work))
    for mode, n in enumerate(data.shape):
        if spec.implicit:
            steps.append(GpuImplicit(work, mode))
        steps.append(GpuNormalWishart(work, mode, freedom(spec.rank + 1, n), SCALES_FROM))
        steps.append(GpuRows(work, mode))
    if spec.time:
        steps += [GpuTemporalEffect(work, number) for number in range(len(EFFECTS))]
    if spec.noise_rank:
        steps.append(GpuLowRankNoise(work, ALL_FROM))
    elif not spec.ordinal:
        steps.append(GpuConstantNoise(work))
    return steps
