"""One sweep: every unknown is drawn once.

Order matters: what is drawn without the courses of series comes first, then the courses, then what
is drawn given them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from noisewise.engine import state_space as course
from noisewise.engine.arrays import Floats
from noisewise.engine.gibbs import cells
from noisewise.engine.gibbs.data import Model
from noisewise.engine.gibbs.series_data import Timetable
from noisewise.engine.gibbs.series_draw import Draw
from noisewise.engine.gibbs.steps import ou as memory
from noisewise.engine.gibbs.steps.time_factors import draw_moments
from noisewise.engine.gibbs.sweep import NOISE, ROWS, Sweeper, report
from noisewise.engine.threads import in_threads
from noisewise.engine.training import EpochInfo

COURSES, MEMORY, AMPLITUDES = range(101, 104)  # streams
ALL_FROM = 12  # sweep in which courses and low-rank noise join in: rows explain first what they can


class Lengths(NamedTuple):
    """Between which lengths of time a series may forget."""

    shortest: float
    longest: float


class DriftSweeper(Sweeper):
    """Sweeps over a timetable, in threads; the draws do not depend on their number.

    Parameters
    ----------
    model
        Rank, rank of the noise (0: a variance for every series) and seed.
    timetable
        The observations.
    lengths
        Between which lengths of time a series may forget.
    n_jobs
        Threads.
    """

    scales_from = math.inf  # never: they stay 1

    def __init__(
        self, model: Model, timetable: Timetable, lengths: Lengths, n_jobs: int = 1
    ) -> None:
        super().__init__(model, timetable.problem, n_jobs=n_jobs)
        self.timetable, self.lengths, self.which = timetable, lengths, timetable.series.which
        n = len(timetable.problem)
        self.noise, self.gain = np.ones((2, n), dtype=np.float32)
        self.fade, self.drift = np.zeros((2, n + 1), dtype=np.float32)
        self.drift[n] = 1.0

    def __call__(self, draw: Draw) -> EpochInfo:  # type: ignore[override]
        """Draw everything once more; the report is in standardised units."""
        problem, last = self.problem, self.problem.n_modes - 1
        all_joined = draw.epoch >= ALL_FROM
        self._set_noise(draw)
        if draw.epoch == ALL_FROM:
            draw.amplitudes[:] = self._mean_noise()
        if all_joined:
            self._draw_memory(draw)
            self._set_noise(draw)
        self._set_gains(draw)
        self._draw_courses(draw)
        target = problem.values - draw.courses
        for mode in range(last):
            self._draw_common(draw, mode)
            self._draw_rows(draw, mode, target)
        self._draw_common(draw, last)
        self._draw_moments(draw)
        residual = problem.values - draw.fitted - draw.courses
        info = report(draw.epoch + 1, residual, self.root)
        if all_joined:
            self._draw_amplitudes(draw)
        if self.model.noise_rank == 0:
            self._draw_variances(draw, residual)
        elif all_joined:
            self._draw_noise(draw, residual)
        draw.epoch += 1
        return info

    def _freedom(self) -> list[float]:
        return [self.model.rank + 1.0] * self.problem.n_modes

    def _over_series(self, work: Callable[[Any], None]) -> None:
        in_threads(work, self.timetable.series.tasks, self.n_jobs)

    def _set_noise(self, draw: Draw) -> None:
        """Take the variance of every observation from its series, or from the noise factors."""

        def work(part: slice) -> None:
            if self.model.noise_rank == 0:
                self.noise[part] = draw.variances[self.which[part]]
            else:
                cells.variances(self.problem.places[:, part], draw.noise, self.noise[part])
            self.root[part] = 1.0 / np.sqrt(self.noise[part])

        in_threads(work, self.problem.chunks(), self.n_jobs)

    def _mean_noise(self) -> Any:
        series = self.timetable.series
        return np.add.reduceat(self.noise, series.starts[:-1], dtype=np.float64) / series.counts

    def _draw_memory(self, draw: Draw) -> None:
        residual, memory_key = self.problem.values - draw.fitted, self._key(draw, MEMORY)

        def work(chosen: Any) -> None:
            memory.draw_memory(
                chosen, self.timetable.series.starts, self.timetable.gaps, residual, self.noise,
                *self.lengths, memory.AMPLITUDE_RATE, memory.NOISE_LEVEL,
                self.model.noise_rank == 0, memory_key, draw.lengths, draw.amplitudes,
                draw.variances,
            )  # fmt: skip

        self._over_series(work)

    def _set_gains(self, draw: Draw) -> None:
        def work(chosen: Any) -> None:
            course.set_gains(
                chosen, self.timetable.series.starts, self.timetable.gaps, self.noise,
                draw.lengths, draw.amplitudes, self.fade, self.drift, self.gain,
            )  # fmt: skip

        self._over_series(work)

    def _draw_courses(self, draw: Draw) -> None:
        residual, courses_key = self.problem.values - draw.fitted, self._key(draw, COURSES)

        def work(chosen: Any) -> None:
            course.draw_courses(
                chosen, self.timetable.series.starts, residual, self.noise, self.fade, self.drift,
                self.gain, courses_key, draw.courses,
            )  # fmt: skip

        self._over_series(work)

    def _draw_moments(self, draw: Draw) -> None:
        """Draw the rows of time, and the courses at their observations."""
        problem, mode = self.problem, self.problem.n_modes - 1
        keys = self._key(draw, ROWS, mode), self._key(draw, COURSES, mode)

        def work(chosen: Any) -> None:
            draw_moments(
                chosen, problem.starts[mode], problem.index[mode], problem.others[mode],
                draw.factors, draw.biases, problem.firsts[mode], self.timetable.bound, self.noise,
                self.fade, self.drift, problem.values, draw.centres[mode], draw.precisions[mode],
                self.model.rank, *keys, draw.courses, draw.fitted,
            )  # fmt: skip

        in_threads(work, self.timetable.stretches, self.n_jobs)

    def _draw_amplitudes(self, draw: Draw) -> None:
        series = self.timetable.series
        fresh = self.drift[:-1] / draw.amplitudes[self.which]
        draw.amplitudes[:] = memory.draw_amplitudes(
            series.starts, draw.courses, self.fade[:-1], fresh, self._rng(draw, AMPLITUDES)
        )

    def _draw_variances(self, draw: Draw, residual: Floats) -> None:
        rng, starts = self._rng(draw, NOISE), self.timetable.series.starts
        draw.variances[:] = memory.draw_variances(starts, residual, memory.NOISE_LEVEL, rng)
