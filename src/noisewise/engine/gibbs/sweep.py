"""A sweep takes all steps of a model; they share data, threads, random streams and arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numba import njit

from noisewise.engine.arrays import Floats
from noisewise.engine.gibbs.data import Data, SeriesData, Spec
from noisewise.engine.gibbs.draw import Draw, Floats64, RatingDraw, SeriesDraw
from noisewise.engine.random import SWEEP, generator, key
from noisewise.engine.threads import in_threads
from noisewise.engine.training import EpochInfo

# Streams of random numbers, by what is drawn with them.
(
    ROWS, NORMAL_WISHART, FEATURES, NOISE, TEMPORAL, TEMPORAL_SETTINGS, LEVELS, RESCALING,
) = range(1, 9)  # fmt: skip
PATHS, TIMESCALES, AMPLITUDES = range(101, 104)

ALL_FROM = 5  # sweep in which temporal effects, noise and cut-points join in, of ratings
SERIES_FROM = 12  # sweep in which paths and low-rank noise do: rows explain first what they can
WANTED = 0.3  # share of Metropolis proposals to accept

D = TypeVar("D", bound=Draw)


class Workspace:
    """Data and model of a sweep, and arrays that its steps hand on; in threads, bits stay the same.

    Parameters
    ----------
    spec, data
        What to sample, and from what.
    n_jobs
        Threads.
    burn_in
        Sweeps in which Metropolis proposals are tuned.

    Attributes
    ----------
    root
        Root of the precision of every observation.
    target
        What rows are to explain of every observation.
    residual
        What is left once everything is explained.
    """

    def __init__(self, spec: Spec, data: Data, n_jobs: int = 1, burn_in: int = 0) -> None:
        self.spec, self.data, self.n_jobs, self.burn_in = spec, data, n_jobs, burn_in
        self.root = np.ones(len(data), dtype=np.float32)
        self.target = self.residual = np.empty(0, dtype=np.float32)

    def key(self, draw: Draw, *place: int) -> np.uint64:
        """Return the key of the streams of one step in one sweep."""
        return key(self.spec.seed, SWEEP, self.spec.chain, draw.epoch, *place)

    def rng(self, draw: Draw, *place: int) -> np.random.Generator:
        """Return the generator of one step in one sweep."""
        return generator(self.spec.seed, SWEEP, self.spec.chain, draw.epoch, *place)

    def over_rows(self, mode: int, work: Callable[[Any], None]) -> None:
        """Call ``work`` with rows of a mode, in threads."""
        in_threads(work, self.data.tasks[mode], self.n_jobs)

    def over_observations(self, work: Callable[[slice], None]) -> None:
        """Call ``work`` with chunks of observations, in threads."""
        in_threads(work, self.data.chunks(), self.n_jobs)

    def visited(self, mode: int, array: Floats) -> Floats:
        """Return an array in the order in which a mode visits observations."""
        if mode == 0:  # whose order is theirs
            return array
        index, out = self.data.index[mode], np.empty_like(array)

        def work(part: slice) -> None:
            np.take(array, index[part], out=out[part], mode="clip")

        self.over_observations(work)
        return out

    def tune(self, draw: RatingDraw, number: int, accepted: float) -> None:
        """Let proposals reach farther if more of them were accepted than wanted, or less far."""
        if draw.epoch < self.burn_in:
            draw.proposals[number] *= math.exp(
                (accepted - WANTED) * max(0.05, 1.0 / math.sqrt(draw.epoch))
            )


class SeriesWorkspace(Workspace):
    """The same for series, each of which has an Ornstein-Uhlenbeck process of its own.

    Attributes
    ----------
    noise
        Variance of every observation.
    phi, innovations
        How the process goes on from the observation before (see ``state_space``); one more at the
        end, where phi is zero.
    gain
        Of the Kalman filter, for every observation.
    """

    data: SeriesData

    def __init__(self, spec: Spec, data: SeriesData, n_jobs: int = 1) -> None:
        super().__init__(spec, data, n_jobs)
        n = len(data)
        self.noise, self.gain = np.ones((2, n), dtype=np.float32)
        self.phi, self.innovations = np.zeros((2, n + 1), dtype=np.float32)
        self.innovations[n] = 1.0

    def over_series(self, work: Callable[[Any], None]) -> None:
        """Call ``work`` with series, in threads."""
        in_threads(work, self.data.series.tasks, self.n_jobs)


class Step(Generic[D]):
    """A conditional: some unknowns are drawn, given all others.

    Attributes
    ----------
    joins
        The first sweep that the step is part of, counted from 0: what explains most goes first.
    """

    joins: int = 0

    def __init__(self, work: Workspace, mode: int = 0) -> None:
        self.work, self.spec, self.data, self.mode = work, work.spec, work.data, mode

    def __call__(self, draw: D) -> None:
        """Draw, and change the draw and what the workspace hands on."""
        raise NotImplementedError


class SeriesStep(Step[SeriesDraw]):
    """A conditional of series."""

    work: SeriesWorkspace
    data: SeriesData

    def __init__(self, work: SeriesWorkspace, mode: int = 0) -> None:
        super().__init__(work, mode)


class Sweep(Generic[D]):
    """One sweep over all steps that have joined in.

    Parameters
    ----------
    work
        What the steps share.
    steps
        What to draw, in this order.
    """

    def __init__(self, work: Workspace, steps: Sequence[Step[D]]) -> None:
        self.work, self.steps = work, steps

    def __call__(self, draw: D) -> EpochInfo:
        """Draw everything once more; the report is in standardised units."""
        for step in self.steps:
            if draw.epoch >= step.joins:
                step(draw)
        draw.epoch += 1
        n = len(self.work.residual)
        square, weighted, log_root = _sums(self.work.residual, self.work.root)
        nll = 0.5 * (math.log(2.0 * math.pi) + weighted / n) - log_root / n
        return EpochInfo(draw.epoch, math.sqrt(square / n), nll)


def rows_of(draw: Draw, part: slice, rank: int) -> Floats64:
    """Return rows of a mode, the bias last, in double precision."""
    return np.column_stack([draw.factors[part, :rank], draw.biases[part]]).astype(np.float64)


@njit(nogil=True, error_model="numpy", cache=True)
def _sums(residual, root):
    """Sum squares of residuals, squares over variances, and logs of the roots of precisions."""
    square, weighted, log_root, product = 0.0, 0.0, 0.0, 1.0
    for n in range(np.uintp(len(residual))):
        e, r = np.float64(residual[n]), np.float64(root[n])
        square += e * e
        weighted += e * r * e * r
        product *= r  # one logarithm for many
        if product < 1e-200 or product > 1e200:
            log_root += math.log(product)
            product = 1.0
    return square, weighted, log_root + math.log(product)
