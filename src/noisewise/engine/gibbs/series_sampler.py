"""A chain: how long it runs, which of its draws are kept, and whether it has settled."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from noisewise.engine import state_space as course
from noisewise.engine.arrays import Floats
from noisewise.engine.gibbs import cells
from noisewise.engine.gibbs.data import Model
from noisewise.engine.gibbs.posterior import Posterior, Scale
from noisewise.engine.gibbs.sampler import PROBES, Chain
from noisewise.engine.gibbs.series_data import Timetable
from noisewise.engine.gibbs.series_draw import Draw, first_draw
from noisewise.engine.gibbs.series_posterior import SETTINGS, DriftPosterior
from noisewise.engine.gibbs.series_sweep import DriftSweeper, Lengths
from noisewise.engine.gibbs.snapshot import Snapshot, snapshot
from noisewise.engine.series import Array, Ints
from noisewise.engine.training import EpochInfo

FEWEST = 50  # sweeps that must count before a chain may be called settled
STANDARD = Scale(0.0, 1.0, -math.inf, math.inf, np.empty(0, dtype=np.float32), 1)


class Thinning(NamedTuple):
    """Which draws to keep, however long a chain will run.

    The later half of all sweeps counts, and never the first ``burn_in``. Of those that count, every
    second, fourth, eighth... is kept, so that there are at most ``samples``.

    Examples
    --------
    >>> thinning = Thinning(burn_in=2, samples=4)
    >>> [thinning.kept_by(epoch) for epoch in (2, 4, 7, 20)]
    [[], [3, 4], [4, 5, 6, 7], [12, 16, 20]]
    """

    burn_in: int
    samples: int

    def first(self, epoch: int) -> int:
        """Return how many sweeps do not count, after so many."""
        return max(self.burn_in, epoch // 2)

    def kept_by(self, epoch: int) -> list[int]:
        """Return the sweeps whose draws are kept after so many."""
        first, step = self.first(epoch), 1
        while epoch // step - first // step > self.samples:
            step *= 2
        return list(range((first // step + 1) * step, epoch + 1, step))


class Probes(NamedTuple):
    """Cells whose predictions show whether a chain has settled: any series at any moment."""

    places: Any
    which: Ints
    when: Array
    right: Ints

    @classmethod
    def at_random(cls, timetable: Timetable, stamps: Array) -> Probes:
        """Choose cells, the same for every chain."""
        rng = np.random.default_rng(0)
        problem, series = timetable.problem, timetable.series
        which = rng.integers(len(series), size=PROBES)
        moment = rng.choice(problem.places[-1], PROBES) - problem.firsts[-1]
        places = problem.places[:, series.starts[which]]
        places[-1] = moment + problem.firsts[-1]
        many = problem.shape[-1]
        known = series.which * many + problem.places[-1] - problem.firsts[-1]
        right = np.searchsorted(known, which * many + moment)
        return cls(places, which, stamps[moment], right)


class Sampling:
    """Everything that does not change while a chain runs.

    Parameters
    ----------
    model, timetable, lengths
        What to sample, from what, and between which lengths a series may forget.
    stamps
        Times of the rows of the last mode, in order.
    thinning
        What to keep.
    sweeps
        How long to run, at most.
    n_jobs
        Threads.
    """

    def __init__(
        self,
        model: Model,
        timetable: Timetable,
        lengths: Lengths,
        stamps: Array,
        thinning: Thinning,
        sweeps: int,
        n_jobs: int,
    ) -> None:
        self.model, self.timetable, self.lengths = model, timetable, lengths
        self.stamps, self.thinning, self.sweeps = stamps, thinning, sweeps
        self.sweep = DriftSweeper(model, timetable, lengths, n_jobs)
        self.probes = Probes.at_random(timetable, stamps)

    def start(self) -> Chain:
        """Return a chain before its first sweep."""
        draw = first_draw(self.model, self.timetable, *self.lengths)
        shapes = {name: (array.shape, array.dtype) for name, array in self._snapshot(draw).items()}
        room = min(self.thinning.samples, self.sweeps)
        kept = {name: np.zeros((room, *shape), dtype) for name, (shape, dtype) in shapes.items()}
        return Chain(
            draw,
            kept,
            0,
            np.zeros((self.sweeps, PROBES), dtype=np.float32),
            np.zeros((self.sweeps, len(self.summaries(draw)))),
            np.zeros((5, 0)),
        )

    def step(self, chain: Chain) -> EpochInfo:
        """Sweep once, and note what came of it."""
        draw: Any = chain.draw
        info = self.sweep(draw)
        chain.probes[draw.epoch - 1] = self._predicted(draw)[0]
        chain.trace[draw.epoch - 1] = list(self.summaries(draw).values())
        before, after = (self.thinning.kept_by(epoch) for epoch in (draw.epoch - 1, draw.epoch))
        stay = [k for k, sweep in enumerate(before) if sweep in after]
        if len(stay) < len(before):
            for array in chain.kept.values():
                array[: len(stay)] = array[stay]
        chain.n_kept = len(stay)
        if after and after[-1] == draw.epoch:
            for name, array in self._snapshot(draw).items():
                chain.kept[name][chain.n_kept] = array
            chain.n_kept += 1
        return info

    def unsettled(self, chain: Chain) -> float:
        """Return how far the mean of a typical prediction may be off, as a share of its std.

        Half the difference between the first and the second half of the sweeps that count; the
        median over probes, as a series that hardly anything is known of may wander for long.
        """
        draw: Any = chain.draw
        seen = chain.probes[self.thinning.first(chain.epoch) : chain.epoch].astype(np.float64)
        if len(seen) < FEWEST:
            return math.inf
        half = len(seen) // 2
        apart = 0.5 * (seen[:half].mean(axis=0) - seen[-half:].mean(axis=0))
        variance = seen.var(axis=0) + self._predicted(draw)[1]
        return float(np.median(np.abs(apart) / np.sqrt(variance)))

    def posterior(self, chain: Chain) -> DriftPosterior:
        """Return what a chain has kept; if that is nothing yet, its current draw."""
        draw: Any = chain.draw
        kept = {name: array[: chain.n_kept].copy() for name, array in chain.kept.items()}
        if not chain.n_kept:
            kept = {name: array[None] for name, array in self._snapshot(draw).items()}
        problem = self.timetable.problem
        settings = {name: kept.pop(name) for name in SETTINGS}
        counts = tuple(np.diff(starts) for starts in problem.starts)
        rows = Posterior(self.model, STANDARD, problem.shape, counts, kept)
        codes = problem.places - np.array(problem.firsts, dtype=np.int32)[:, None]
        return DriftPosterior(rows, settings, codes, problem.values, self.stamps)

    def summaries(self, draw: Draw) -> dict[str, float]:
        """Return a few numbers by which to judge whether a chain has settled."""
        named = {
            "length": float(np.log(draw.lengths).mean()),
            "amplitude": float(np.log(draw.amplitudes).mean()),
            "noise": float(np.log(draw.variances).mean()),
        }
        if self.model.noise_rank:
            named["noise"] = float(np.log(draw.noise).mean())
        for mode, precision in enumerate(draw.precisions):
            named[f"precision of mode {mode}"] = float(np.linalg.slogdet(precision)[1])
        return named

    def _snapshot(self, draw: Draw) -> Snapshot:
        """Return what predictions need of a draw."""
        own = {name: getattr(draw, name).astype(np.float32) for name in SETTINGS}
        return snapshot(draw, self.model, self.timetable.problem) | own

    def _predicted(self, draw: Draw) -> tuple[Floats, Array]:
        """Means of probes given rows and courses of a draw, and their variances with the noise."""
        probes, series = self.probes, self.timetable.series
        rows = np.empty(PROBES, dtype=np.float32)
        cells.means(probes.places, draw.factors, draw.biases, rows)
        exact = np.zeros_like(draw.courses)
        mean, spread = np.empty((2, PROBES))
        course.between(
            probes.which, probes.when, probes.right, series.starts, series.time, draw.lengths,
            draw.amplitudes, draw.courses, exact, draw.courses, exact, mean, spread,
        )  # fmt: skip
        noise = draw.variances[probes.which].astype(np.float32)
        if self.model.noise_rank:
            cells.variances(probes.places, draw.noise, noise)
        return rows + mean.astype(np.float32), spread + noise
