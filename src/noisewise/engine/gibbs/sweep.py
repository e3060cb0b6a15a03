"""One sweep: every unknown is drawn once, given all others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from noisewise.engine.arrays import Floats
from noisewise.engine.gibbs.data import Floats64, Model, Problem
from noisewise.engine.gibbs.draw import CUT_WIDTH, PATHS, Draw
from noisewise.engine.gibbs.steps import implicit as sets
from noisewise.engine.gibbs.steps import noise, ordinal
from noisewise.engine.gibbs.steps import rescaling as scale
from noisewise.engine.gibbs.steps import temporal as paths
from noisewise.engine.gibbs.steps.normal_wishart import draw_common, freedom
from noisewise.engine.gibbs.steps.rescaling import CENTRE_SPREAD, feature_part
from noisewise.engine.gibbs.steps.rows import draw_rows, sums_for
from noisewise.engine.random import SWEEP, generator, key
from noisewise.engine.threads import in_threads
from noisewise.engine.training import EpochInfo

ROWS, COMMON, FEATURES, NOISE, PATH, PATH_SETTINGS, LEVELS, SCALE = range(1, 9)  # streams
SETS_FROM, ALL_FROM, PATH_SETTINGS_FROM, SCALES_FROM = 3, 5, 8, 10  # sweeps when parts join in
SPREAD_SHAPE, SPREAD_RATE = 3.0, 0.2  # inverse Gamma prior of the variance of log widths
WANTED = 0.3  # share of Metropolis proposals to accept


class Sweeper:
    """Sweeps over a problem with a model, in threads; the draws do not depend on their number.

    Parameters
    ----------
    model, problem
        What to sample.
    anchor
        Which cut-point between levels is 0.
    n_jobs
        Threads.
    burn_in
        Sweeps in which Metropolis proposals are tuned.
    """

    scales_from: ClassVar[float] = SCALES_FROM  # the sweep from which scales of rows are drawn

    def __init__(
        self, model: Model, problem: Problem, anchor: int = 1, n_jobs: int = 1, burn_in: int = 0
    ) -> None:
        self.model, self.problem = model, problem
        self.freedom = self._freedom()
        self.anchor, self.n_jobs, self.burn_in = anchor, n_jobs, burn_in
        self.levels = problem.values.astype(np.int32) if model.ordinal else None
        self.root = np.ones(len(problem), dtype=np.float32)

    def __call__(self, draw: Draw) -> EpochInfo:
        """Draw everything once more; the report is in standardised units."""
        model, problem = self.model, self.problem
        self._set_roots(draw)
        time = draw.paths.sum(axis=0) if model.time else np.float32(0.0)
        if model.ordinal:
            if draw.epoch >= ALL_FROM:
                self._move_scale(draw, time)
                time = draw.paths.sum(axis=0) if model.time else np.float32(0.0)
            self._draw_levels(draw, time)
        target = np.asarray((draw.latent if model.ordinal else problem.values) - time)
        for mode in range(problem.n_modes):
            if model.sets and draw.epoch >= SETS_FROM:
                self._draw_sets(draw, mode)
            self._draw_common(draw, mode)
            self._draw_rows(draw, mode, target)
        residual = target - draw.fitted
        if model.time and draw.epoch >= ALL_FROM:
            for number in range(len(draw.paths)):
                self._draw_path(draw, number, residual)
        if draw.epoch >= ALL_FROM or model.noise_rank == 0:
            self._draw_noise(draw, residual)
        draw.epoch += 1
        return report(draw.epoch, residual, self.root)

    def _freedom(self) -> list[float]:
        """Degrees of freedom of the priors of rows."""
        return [freedom(self.model.rank + 1, n) for n in self.problem.shape]

    def _key(self, draw: Draw, *place: int) -> np.uint64:
        return key(self.model.seed, SWEEP, self.model.chain, draw.epoch, *place)

    def _rng(self, draw: Draw, *place: int) -> np.random.Generator:
        return generator(self.model.seed, SWEEP, self.model.chain, draw.epoch, *place)

    def _over_rows(self, mode: int, work: Callable[[Any], None]) -> None:
        in_threads(work, self.problem.tasks[mode], self.n_jobs)

    def _set_roots(self, draw: Draw) -> None:
        """Take the precision of every observation from the noise factors."""
        if self.model.noise_rank == 0:
            self.root[:] = 1.0 / math.sqrt(max(draw.level[0], noise.FLOOR))
            return

        def work(part: slice) -> None:
            noise.roots(self.problem.places[:, part], draw.noise, self.root[part])

        in_threads(work, self.problem.chunks(), self.n_jobs)

    def _draw_rows(self, draw: Draw, mode: int, target: Floats) -> None:
        problem = self.problem
        rows_key = self._key(draw, ROWS, mode)
        effects = draw.effects[problem.part(mode)] if self.model.sets else draw.effects

        fitted = draw.fitted if mode == problem.n_modes - 1 else draw.fitted[:0]
        sums = sums_for(self.root)
        root, target = (self._visited(mode, array) for array in (self.root, target))

        def work(chosen: Any) -> None:
            draw_rows(
                chosen, problem.starts[mode], problem.index[mode], problem.others[mode],
                draw.factors, draw.biases, problem.firsts[mode], root, target,
                draw.centres[mode], effects, draw.precisions[mode], self.model.rank, rows_key,
                sums, fitted,
            )  # fmt: skip

        self._over_rows(mode, work)

    def _visited(self, mode: int, array: Floats) -> Floats:
        """Return an array in the order in which a mode visits observations."""
        if mode == 0:  # whose order is theirs
            return array
        index, out = self.problem.index[mode], np.empty_like(array)

        def work(part: slice) -> None:
            np.take(array, index[part], out=out[part], mode="clip")

        in_threads(work, self.problem.chunks(), self.n_jobs)
        return out

    def _draw_common(self, draw: Draw, mode: int) -> None:
        part = self.problem.part(mode)
        rows = _rows(draw, part, self.model.rank)
        features, strength = None, 0.0
        if self.model.sets and draw.epoch >= SETS_FROM:
            rows -= draw.effects[part]
            features = draw.features[feature_part(self.problem, mode)].astype(np.float64)
            strength = float(draw.strengths[mode])
        rng, free = self._rng(draw, COMMON, mode), self.freedom[mode]
        draw.centres[mode], draw.precisions[mode], draw.scales[mode] = draw_common(
            rows, features, strength, draw.scales[mode], free, rng,
            rescale=draw.epoch >= self.scales_from,
        )  # fmt: skip

    def _draw_sets(self, draw: Draw, mode: int) -> None:
        problem, part, own = self.problem, self.problem.part(mode), feature_part(self.problem, mode)
        root = np.linalg.cholesky(draw.precisions[mode])
        centred = _rows(draw, part, self.model.rank) - draw.centres[mode]
        whitened = ((centred - draw.effects[part]) @ root).astype(np.float32)
        weights = (draw.features[own] @ root).astype(np.float32)
        strength = np.float32(draw.strengths[mode])

        def work(start: int) -> None:
            block = slice(start, start + sets.BLOCK)
            E, Y = (np.ascontiguousarray(array[:, block]) for array in (whitened, weights))
            sets.draw_features(
                problem.starts[1 - mode], problem.members[mode], problem.shares[mode],
                strength, self._key(draw, FEATURES, mode, start), E, Y,
            )  # fmt: skip
            whitened[:, block], weights[:, block] = E, Y

        in_threads(work, range(0, self.model.rank + 1, sets.BLOCK), self.n_jobs)
        rng = self._rng(draw, FEATURES, mode)
        draw.strengths[mode] = sets.draw_strength(weights, rng)
        draw.features[own] = solve_triangular(root, weights.T, lower=True, trans="T").T
        left = solve_triangular(root, whitened.T, lower=True, trans="T").T
        draw.effects[part] = centred - left

    def _draw_noise(self, draw: Draw, residual: Floats) -> None:
        problem, model = self.problem, self.model
        if model.noise_rank == 0:
            if not model.ordinal:
                square = float(np.einsum("i,i->", residual, residual, dtype=np.float64))
                level = float(draw.level[0])
                draw.level[0] = noise.draw_variance(
                    level, square, len(residual), self._rng(draw, NOISE)
                )
            return
        last, ones = problem.n_modes - 1, np.ones_like(draw.level)
        for mode in range(problem.n_modes):
            self._draw_noise_of(draw, mode, residual, draw.level if mode == last else ones)
        if not model.ordinal:  # levels have no scale of their own: there it is fixed
            draw.level[:] = noise.draw_level(draw.noise[problem.part(last)], self._rng(draw, NOISE))

    def _draw_noise_of(self, draw: Draw, mode: int, residual: Floats, level: Floats64) -> None:
        problem, noise_key = self.problem, self._key(draw, NOISE, mode)
        residual = self._visited(mode, residual)

        def work(chosen: Any) -> None:
            noise.draw_noise(
                chosen, problem.starts[mode], problem.others[mode], draw.noise,
                problem.firsts[mode], residual, level, noise_key,
            )  # fmt: skip

        self._over_rows(mode, work)

    def _draw_path(self, draw: Draw, number: int, residual: Floats) -> None:
        problem, mode = self.problem, PATHS[number][0]
        starts, index, path = problem.starts[mode], problem.index[mode], draw.paths[number]
        if draw.epoch >= PATH_SETTINGS_FROM:
            rng = self._rng(draw, PATH_SETTINGS, number)
            old = draw.path_settings[number]
            new = old + draw.steps[1 + number] * rng.standard_normal(2)
            phi, variance = _path_settings(np.array([old, new]))
            scores = np.zeros((problem.shape[mode], 2))

            def judge(chosen: Any) -> None:
                paths.log_likelihood(
                    chosen, starts, index, residual, path, self.root, phi, variance, scores
                )

            self._over_rows(mode, judge)
            before, after = scores.sum(axis=0)
            ratio = after - before + scale.path_prior(number, new) - scale.path_prior(number, old)
            accepted = math.log(rng.uniform()) < ratio
            if accepted:
                draw.path_settings[number] = new
            self._tune(draw, 1 + number, float(accepted))
        phi, variance = _path_settings(draw.path_settings[[number]])
        path_key = self._key(draw, PATH, number)

        def work(chosen: Any) -> None:
            paths.draw_paths(
                chosen, starts, index, residual, path, self.root, phi[0], variance[0], path_key
            )

        self._over_rows(mode, work)

    def _draw_levels(self, draw: Draw, time: Any) -> None:
        accepted = np.zeros(self.problem.shape[0], dtype=np.bool_)
        mean = np.asarray(draw.fitted + time)
        step = float(draw.steps[0]) if draw.epoch >= ALL_FROM else 0.0
        levels_key = self._key(draw, LEVELS)

        def work(chosen: Any) -> None:
            ordinal.draw_levels(
                chosen, self.problem.starts[0], self.levels, mean, self.root, draw.widths,
                draw.width_centre, draw.width_spread, self.anchor, step, levels_key,
                draw.latent, accepted,
            )  # fmt: skip

        self._over_rows(0, work)
        if draw.epoch >= ALL_FROM and draw.widths.size:
            self._tune(draw, 0, float(accepted.mean()))
            self._draw_width_prior(draw)

    def _draw_width_prior(self, draw: Draw) -> None:
        rng, n = self._rng(draw, LEVELS), len(draw.widths)
        precision = n / draw.width_spread**2 + 1.0 / CENTRE_SPREAD**2
        pull = draw.widths.sum(axis=0) / draw.width_spread**2
        pull += math.log(CUT_WIDTH) / CENTRE_SPREAD**2
        many = len(draw.width_centre)
        draw.width_centre[:] = pull / precision + rng.standard_normal(many) / np.sqrt(precision)
        square = ((draw.widths - draw.width_centre) ** 2).sum(axis=0)
        gamma = rng.gamma(SPREAD_SHAPE + 0.5 * n, size=many)
        draw.width_spread[:] = np.sqrt((SPREAD_RATE + 0.5 * square) / gamma)

    def _move_scale(self, draw: Draw, time: Any) -> None:
        """Move along the two directions in which everything drags everything else along."""
        mean = np.asarray(draw.fitted + time)

        def likelihood(log_scale: float) -> Floats64:
            sums = np.zeros((self.problem.shape[0], 3))

            def work(chosen: Any) -> None:
                ordinal.scale_likelihood(
                    chosen, self.problem.starts[0], self.levels, mean, self.root, draw.widths,
                    self.anchor, log_scale, sums,
                )  # fmt: skip

            self._over_rows(0, work)
            return np.asarray(sums.sum(axis=0))

        scale.move_signal(draw, self.model, self.problem, likelihood, self._rng(draw, SCALE, 0))
        if self.model.noise_rank:
            scale.move_all(draw, self.model, self.problem, self._rng(draw, SCALE, 1))
            self._set_roots(draw)

    def _tune(self, draw: Draw, number: int, accepted: float) -> None:
        if draw.epoch < self.burn_in:
            draw.steps[number] *= math.exp(
                (accepted - WANTED) * max(0.05, 1.0 / math.sqrt(draw.epoch))
            )


def _path_settings(settings: Floats64) -> tuple[Floats64, Floats64]:
    """Phi and variance of rows of settings."""
    return 1.0 / (1.0 + np.exp(-settings[:, 0])), np.exp(settings[:, 1])


def _rows(draw: Draw, part: slice, rank: int) -> Floats64:
    """Rows of a mode, the bias last, in double precision."""
    return np.column_stack([draw.factors[part, :rank], draw.biases[part]]).astype(np.float64)


def report(epoch: int, residual: Floats, root: Floats) -> EpochInfo:
    """Sum up a sweep: RMSE and NLL of residuals, whose precisions have these roots."""
    n = len(residual)
    square, weighted, log_root = noise.sums(residual, root)
    nll = 0.5 * (math.log(2.0 * math.pi) + weighted / n) - log_root / n
    return EpochInfo(epoch, math.sqrt(square / n), nll)
