"""The steps of series in their order, and the sampler that runs them."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewise.engine.arrays import Array, Floats, Ints
from noisewise.engine.data import SeriesData
from noisewise.engine.gibbs.sampler import PROBES, Chain, Sampler
from noisewise.engine.gibbs.schedule import LaterHalf
from noisewise.engine.gibbs.series import own_paths
from noisewise.engine.gibbs.series.draw import SeriesDraw, SeriesSpec, SeriesWorkspace, first_draw
from noisewise.engine.gibbs.series.moments import Moments
from noisewise.engine.gibbs.series.posterior import SeriesPosterior, snapshot
from noisewise.engine.gibbs.series.sliding import Sliding
from noisewise.engine.gibbs.series.time_factors import TimeFactors, Timescales
from noisewise.engine.gibbs.sweep import Snapshot, Step, Sweep
from noisewise.engine.training import EpochInfo, pool

ROOM = 256_000_000  # bytes that kept draws may take, at most
ALONE = 100_000  # products of observations and factors from which threads are worth their start


def series_steps(work: SeriesWorkspace, timescales: Timescales) -> list[Step[Any]]:
    """Return the steps of series."""
    moments, sliding = Moments(work), Sliding(work)
    moments.joins = sliding.joins = own_paths.JOINS + 1
    steps: list[Step[Any]] = [own_paths.Precisions(work), TimeFactors(work, timescales)]
    steps += [moments, sliding]
    steps.append(own_paths.Process(work, timescales))
    steps += [own_paths.Scatter(work), own_paths.Loadings(work)]
    steps.append(own_paths.OwnPaths(work))
    if work.spec.seasons:
        steps.append(own_paths.SlotNoise(work))
    return [*steps, own_paths.Tails(work)] if work.spec.tails else steps


class SeriesSampler(Sampler[SeriesDraw]):
    """A sampler of series, whose paths may forget between ``timescales``."""

    work: SeriesWorkspace
    timescales: Timescales
    n_jobs: int
    probes: tuple[Ints, Ints]

    fewest = 30
    data: SeriesData
    spec: SeriesSpec

    def __init__(
        self,
        spec: SeriesSpec,
        data: SeriesData,
        timescales: Timescales,
        schedule: LaterHalf,
        n_jobs: int,
    ) -> None:
        self.work, self.timescales = SeriesWorkspace(spec, data, n_jobs), timescales
        super().__init__(Sweep(self.work, series_steps(self.work, timescales)), schedule)
        self.n_jobs = n_jobs if len(data) * spec.width > ALONE else 1
        self.probes = _holes(self.work)

    def start(self) -> Chain[SeriesDraw]:
        """Return a chain before its first sweep."""
        draw = first_draw(self.work)
        for timescales in (draw.timescales, draw.factor_timescales):
            np.clip(timescales, *self.timescales, out=timescales)
        return self._started(draw, 0)

    def step(self, chain: Chain[SeriesDraw]) -> EpochInfo:
        """Sweep once, and note what came of it."""
        with pool(self.n_jobs) as self.work.run:
            return super().step(chain)

    def posterior(self, chain: Chain[SeriesDraw]) -> SeriesPosterior:
        """Return what a chain has kept; if that is nothing yet, its current draw."""
        data = self.data
        kept = {name: array[: chain.n_kept].copy() for name, array in chain.kept.items()}
        if not chain.n_kept:
            kept = {name: array[None] for name, array in self._snapshot(chain.draw).items()}
        counts = tuple(np.diff(starts) for starts in data.starts)
        codes = data.places - np.array(data.firsts, dtype=np.int32)[:, None]
        return SeriesPosterior(self.spec, data.shape, counts, kept, codes, data.values, data.stamps)

    def summaries(self, draw: SeriesDraw) -> dict[str, float]:
        """Return a few numbers by which to judge whether a chain has converged."""
        named = {
            "timescale": draw.timescales, "amplitude": draw.amplitudes, "noise": draw.variances,
        }  # fmt: skip
        logs = {name: float(np.log(values).mean()) for name, values in named.items()}
        if self.spec.rank:
            logs["timescale of factors"] = float(np.log(draw.factor_timescales).mean())
        size = np.square(draw.loadings[:, :-1]).sum()
        return logs | {"size of loadings": float(np.log(size + 1e-12))}

    def _snapshot(self, draw: SeriesDraw) -> Snapshot:
        return snapshot(draw)

    def _predicted(self, draw: SeriesDraw) -> tuple[Floats, Array]:
        """Means of probes given a draw, and the variances of their noise."""
        which, when = self.probes
        mean = np.einsum("nd,nd->n", draw.loadings[which, :-1], draw.factors[when])
        mean += draw.loadings[which, -1] + draw.paths[which, when, 0]
        return mean.astype(np.float32), draw.variances[which]

    def _share_of_std(self, chain: Chain[SeriesDraw], seen: Array, apart: Array) -> float:
        """Return the median: a series of which little is known may wander for long."""
        variance = seen.var(axis=0) + self._predicted(chain.draw)[1]
        return float(np.median(np.abs(apart) / np.sqrt(variance)))


def affordable(spec: SeriesSpec, data: SeriesData, wanted: int) -> int:
    """Return how many draws to keep: as many as wanted, or as room allows, but ten at least."""
    times, factors = len(data.stamps), spec.width + spec.rank
    weights = len(data) if spec.tails else 0
    return min(wanted, max(10, ROOM // (4 * times * max(factors, 1) + weights)))


def _holes(work: SeriesWorkspace) -> tuple[Ints, Ints]:
    """Choose cells whose predictions show whether a chain has converged: not observed, if any."""
    rng, shape = np.random.default_rng(0), (len(work.data.series), work.n_times)
    which, when = (rng.integers(n, size=20 * PROBES) for n in shape)
    observed = np.isin(which * shape[1] + when, work.which * shape[1] + work.times)
    order = np.argsort(observed, kind="stable")[:PROBES]
    return which[order], when[order]
