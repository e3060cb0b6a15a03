"""A model is a list of steps: those of ratings and of series, and how their chains go on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine import state_space
from noisewise.engine.arrays import Codes, Counts, Floats
from noisewise.engine.gibbs.chain import (
    PROBES,
    Chain,
    EvenSchedule,
    LaterHalf,
    Sampler,
    room_for,
)
from noisewise.engine.gibbs.data import Data, Scale, SeriesData, Spec, Timeline
from noisewise.engine.gibbs.draw import (
    EFFECTS,
    RatingDraw,
    SeriesDraw,
    Snapshot,
    first_draw,
    first_series_draw,
)
from noisewise.engine.gibbs.posterior import SeriesPosterior, Sums, series_snapshot
from noisewise.engine.gibbs.rating_posterior import (
    Query,
    RatingPosterior,
    half_is_enough,
    rating_snapshot,
)
from noisewise.engine.gibbs.steps import noise, ou, rows
from noisewise.engine.gibbs.steps.implicit import Implicit
from noisewise.engine.gibbs.steps.normal_wishart import SCALES_FROM, NormalWishart, freedom
from noisewise.engine.gibbs.steps.ordinal import Levels
from noisewise.engine.gibbs.steps.rescaling import Rescaling
from noisewise.engine.gibbs.steps.rows import Residual, Rows, Target
from noisewise.engine.gibbs.steps.temporal import TemporalEffect
from noisewise.engine.gibbs.steps.time_factors import TimeFactors
from noisewise.engine.gibbs.sweep import (
    ALL_FROM,
    SERIES_FROM,
    SeriesWorkspace,
    Step,
    Sweep,
    Workspace,
)
from noisewise.engine.series import Array, Ints
from noisewise.engine.training import EpochInfo

FEWEST, FEWEST_OF_SERIES = 20, 50  # sweeps that must count before it is judged whether it has
MOST_NOISE = math.log(2.0)  # that a draw may have beyond those of later sweeps, to count


def rating_steps(work: Workspace, anchor: int = 1) -> list[Step[Any]]:
    """Return the steps of ratings; ``anchor`` is the cut-point between levels that is 0."""
    spec, data = work.spec, work.data
    steps: list[Step[Any]] = [noise.Precisions(work)]
    if spec.ordinal:
        levels = Levels(work, anchor)
        steps += [Rescaling(work, levels), levels]
    steps.append(Target(work))
    for mode, n in enumerate(data.shape):
        if spec.implicit:
            steps.append(Implicit(work, mode))
        steps.append(NormalWishart(work, mode, freedom(spec.rank + 1, n), SCALES_FROM))
        steps.append(Rows(work, mode))
    steps.append(Residual(work))
    if spec.time:
        steps += [TemporalEffect(work, number) for number in range(len(EFFECTS))]
    if spec.noise_rank:
        steps.append(noise.LowRankNoise(work, ALL_FROM))
    elif not spec.ordinal:
        steps.append(noise.ConstantNoise(work))
    return steps


def series_steps(work: SeriesWorkspace, timescales: ou.Timescales) -> list[Step[Any]]:
    """Return the steps of series.

    What is drawn without the paths of series comes first, then the paths, then what is drawn given
    them. Scales of rows stay 1.
    """
    spec, last = work.spec, work.data.n_modes - 1
    priors = [
        NormalWishart(work, mode, spec.rank + 1.0, math.inf) for mode in range(work.data.n_modes)
    ]
    steps: list[Step[Any]] = [ou.ObservationNoise(work), ou.Process(work, timescales)]
    steps.append(ou.Paths(work))
    for mode in range(last):
        steps += [priors[mode], Rows(work, mode)]
    steps += [priors[last], TimeFactors(work), ou.Amplitudes(work)]
    steps.append(noise.LowRankNoise(work, SERIES_FROM) if spec.noise_rank else ou.SeriesNoise(work))
    return steps


class RatingSampler(Sampler[RatingDraw]):
    """A sampler of ratings.

    Parameters
    ----------
    spec, data, scale
        What to sample, from what, and how values are standardised.
    counts
        Observations of every row.
    timeline
        When rows were observed, if the model has time.
    schedule
        How long to run, and what to keep.
    held_out
        Cells to watch: codes (as from ``known_codes``), times or None, and values.
    n_jobs
        Threads.
    """

    def __init__(
        self,
        spec: Spec,
        data: Data,
        scale: Scale,
        counts: tuple[Counts, ...],
        timeline: Timeline | None,
        schedule: EvenSchedule,
        held_out: tuple[tuple[Codes, ...], Any, Floats] | None,
        n_jobs: int,
    ) -> None:
        work = Workspace(spec, data, n_jobs, schedule.burn_in)
        super().__init__(Sweep(work, rating_steps(work, scale.anchor)), schedule)
        self.scale, self.counts, self.timeline = scale, counts, timeline
        self.probes = _probe_places(data)
        self.truth = np.empty(0, dtype=np.float32)
        self.query: Query | None = None
        if held_out is not None:
            codes, time, self.truth = held_out
            self.query = self.as_posterior({"level": np.empty((0, 1))}).query(codes, time)

    def start(self) -> Chain[RatingDraw]:
        """Return a chain before its first sweep."""
        draw = first_draw(self.spec, self.data, len(self.scale.levels))
        return self._started(draw, len(self.truth))

    def step(self, chain: Chain[RatingDraw]) -> EpochInfo:
        """Sweep once, and note what came of it; the report is in units of the values."""
        info, factor = super().step(chain), self.scale.scale
        nll = info.train_nll + math.log(factor)
        return replace(info, train_rmse=info.train_rmse * factor, train_nll=nll)

    def validate(self, chain: Chain[RatingDraw]) -> tuple[float, float]:
        """RMSE and NLL of the running mean on held-out cells; nan as long as there is none."""
        *totals, draws = chain.sums
        if not draws.any():
            return float("nan"), float("nan")
        sums = Sums(len(self.truth), 0)
        sums.mean, sums.centre, sums.square, sums.noise = totals
        sums.draws = int(draws[0])
        posterior = self.as_posterior({"level": np.empty((0, 1))})
        mean, noise, epistemic = posterior.in_units(sums.moments())
        error = (self.truth - mean).astype(np.float64) ** 2
        least = 1e-12 * min(1.0, self.scale.scale**2)
        variance = np.maximum((noise + epistemic).astype(np.float64), least)
        nll = 0.5 * np.mean(np.log(2.0 * math.pi * variance) + error / variance)
        return math.sqrt(error.mean()), float(nll)

    def mean_error(self, chain: Chain[RatingDraw]) -> float:
        """Return how far the running mean may be off, as a share of the noise's std.

        Half the difference between the first and the second half of the sweeps that count.
        """
        if self._counting(chain) < FEWEST:
            return math.inf
        _, apart = self._halves(chain)
        root = float(self.sweep.work.root.mean(dtype=np.float64))
        return float(np.sqrt(np.mean(apart**2))) * root

    def posterior(self, chains: list[Chain[RatingDraw]]) -> RatingPosterior:
        """Return the draws that chains have kept; of chains cut short, their last ones."""
        stay = [self._counted(chain) for chain in chains]
        kept = {
            name: np.concatenate(
                [chain.kept[name][s] for chain, s in zip(chains, stay, strict=True)]
            )
            for name in chains[0].kept
        }
        if not len(kept["level"]):
            parts = [self._snapshot(chain.draw) for chain in chains]
            kept = {name: np.stack([part[name] for part in parts]) for name in kept}
        return self.as_posterior(kept)

    def summaries(self, draw: RatingDraw) -> dict[str, float]:
        """Return a few numbers by which to judge whether chains agree."""
        log_root = np.log(self.sweep.work.root).mean(dtype=np.float64)
        named = {"noise": -2.0 * float(log_root)} | super().summaries(draw)
        for mode, strength in enumerate(draw.strengths):
            named[f"strength of implicit sets {mode}"] = math.log(strength)
        for number, (phi, variance) in enumerate(draw.temporal_settings.tolist()):
            effect = f"temporal effect {number}"
            named |= {f"phi of {effect}": phi, f"variance of {effect}": variance}
        for number, centre in enumerate(draw.width_centre.tolist()):
            named[f"width of level {number + 1}"] = centre
        return named

    def as_posterior(self, draws: Snapshot) -> RatingPosterior:
        """Return kept draws as what predicts."""
        shape, timeline = self.data.shape, self.timeline
        return RatingPosterior(self.spec, shape, self.counts, draws, self.scale, timeline)

    def _counted(self, chain: Chain[RatingDraw]) -> Ints:
        """Return which of the kept draws count: not those in which far more was taken for noise.

        Noise that is hardly there takes longer than any ``burn_in`` to be found. In later draws it
        moves by a few per cent.
        """
        kept = np.array(self.schedule.kept_by(chain.epoch), dtype=np.int64) - 1
        noise = chain.trace[: chain.epoch, 0]
        later = noise[(self.schedule.first(chain.epoch) + chain.epoch) // 2 :]
        if not chain.n_kept:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(noise[kept] <= np.median(later) + MOST_NOISE)

    def _note(self, chain: Chain[RatingDraw], *, keep: bool) -> None:
        """Keep the current draw, if it is to be kept, and watch held-out cells."""
        watch = self.query is not None and self._counting(chain) > 0
        if not (keep or watch):
            return
        one = rating_snapshot(chain.draw, self.spec, self.data, self._precision(chain))
        if keep and not chain.n_kept:
            chain.kept = room_for(one, self.schedule.room)
        if keep:
            self._keep(chain, one)
        if watch:
            self._watch(chain, one)

    def _snapshot(self, draw: RatingDraw) -> Snapshot:
        return rating_snapshot(draw, self.spec, self.data)

    def _predicted(self, draw: RatingDraw) -> tuple[Floats, Any]:
        mean = np.empty(PROBES, dtype=np.float32)
        rows.means(self.probes, draw.factors, draw.biases, mean)
        return mean, None

    def _precision(self, chain: Chain[RatingDraw]) -> type:
        """Return the type to keep a draw in: that of those kept before, if there are some."""
        if chain.n_kept:
            return np.float16 if chain.kept["factors"].dtype == np.float16 else np.float32
        root = float(np.median(self.sweep.work.root))
        enough = half_is_enough(chain.draw, self.probes, root)
        return np.float16 if enough else np.float32

    def _watch(self, chain: Chain[RatingDraw], one: Snapshot) -> None:
        assert self.query is not None
        sums = Sums(len(self.truth), len(self.scale.levels) if self.spec.ordinal else 0)
        single = self.as_posterior({name: array[None] for name, array in one.items()})
        single.add(self.query, sums, self.sweep.work.n_jobs)
        ones = np.ones(len(self.truth))
        chain.sums += [sums.mean, sums.centre, sums.square, sums.noise, ones]


class SeriesProbes(NamedTuple):
    """Cells whose predictions show whether a chain has converged: any series at any time."""

    places: Any
    which: Ints
    when: Array
    right: Ints

    @classmethod
    def at_random(cls, data: SeriesData) -> SeriesProbes:
        """Choose cells, the same for every chain."""
        rng = np.random.default_rng(0)
        which = rng.integers(len(data.series), size=PROBES)
        row = rng.choice(data.places[-1], PROBES) - data.firsts[-1]
        places = data.places[:, data.series.starts[which]]
        places[-1] = row + data.firsts[-1]
        many = data.shape[-1]
        known = data.which * many + data.places[-1] - data.firsts[-1]
        right = np.searchsorted(known, which * many + row)
        return cls(places, which, data.stamps[row], right)


class SeriesSampler(Sampler[SeriesDraw]):
    """A sampler of series.

    Parameters
    ----------
    spec, data, timescales
        What to sample, from what, and between which timescales a series may forget.
    schedule
        How long to run, and what to keep.
    n_jobs
        Threads.
    """

    data: SeriesData

    def __init__(
        self,
        spec: Spec,
        data: SeriesData,
        timescales: ou.Timescales,
        schedule: LaterHalf,
        n_jobs: int,
    ) -> None:
        work = SeriesWorkspace(spec, data, n_jobs)
        super().__init__(Sweep(work, series_steps(work, timescales)), schedule)
        self.timescales, self.probes = timescales, SeriesProbes.at_random(data)

    def start(self) -> Chain[SeriesDraw]:
        """Return a chain before its first sweep."""
        return self._started(first_series_draw(self.spec, self.data, *self.timescales), 0)

    def mean_error(self, chain: Chain[SeriesDraw]) -> float:
        """Return how far the mean of a typical prediction may be off, as a share of its std.

        Half the difference between the first and the second half of the sweeps that count; the
        median over probes, as a series that hardly anything is known of may wander for long.
        """
        if self._counting(chain) < FEWEST_OF_SERIES:
            return math.inf
        seen, apart = self._halves(chain)
        variance = seen.var(axis=0) + self._predicted(chain.draw)[1]
        return float(np.median(np.abs(apart) / np.sqrt(variance)))

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
            "timescale": float(np.log(draw.timescales).mean()),
            "amplitude": float(np.log(draw.amplitudes).mean()),
            "noise": float(np.log(draw.variances).mean()),
        }
        if self.spec.noise_rank:
            named["noise"] = float(np.log(draw.noise).mean())
        return named | super().summaries(draw)

    def _snapshot(self, draw: SeriesDraw) -> Snapshot:
        return series_snapshot(draw, self.spec, self.data)

    def _predicted(self, draw: SeriesDraw) -> tuple[Floats, Array]:
        """Means of probes given rows and paths of a draw, and their variances with the noise."""
        probes, series = self.probes, self.data.series
        explained = np.empty(PROBES, dtype=np.float32)
        rows.means(probes.places, draw.factors, draw.biases, explained)
        exact = np.zeros_like(draw.paths)
        mean, spread = np.empty((2, PROBES))
        state_space.between(
            probes.which, probes.when, probes.right, series.starts, series.time, draw.timescales,
            draw.amplitudes, draw.paths, exact, draw.paths, exact, mean, spread,
        )  # fmt: skip
        variance = draw.variances[probes.which].astype(np.float32)
        if self.spec.noise_rank:
            noise.variances(probes.places, draw.noise, variance)
        return explained + mean.astype(np.float32), spread + variance


def _probe_places(data: Data) -> npt.NDArray[np.int32]:
    """Cells at random, busy rows more often, the same for every chain."""
    rng = np.random.default_rng(0)
    picks = rng.integers(len(data), size=(data.n_modes, PROBES))
    return np.take_along_axis(data.places, picks, axis=1)
