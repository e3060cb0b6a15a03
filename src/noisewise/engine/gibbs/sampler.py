"""A model is a list of steps. How its chains go on, what they keep, and the sampler of ratings."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Array, Arrays, Codes, Counts, Floats, Ints, Source
from noisewise.engine.data import Data, Scale, Spec, Timeline
from noisewise.engine.gibbs import left_out, newcomers
from noisewise.engine.gibbs.left_out import LeftOut, Look
from noisewise.engine.gibbs.posterior import TOTALS, Query, RatingPosterior, Sums
from noisewise.engine.gibbs.schedule import Schedule
from noisewise.engine.gibbs.snapshots import rating_snapshot
from noisewise.engine.gibbs.steps import ordinal, regression, rows, temporal, variances
from noisewise.engine.gibbs.sweep import (
    ALL_FROM,
    EFFECTS,
    D,
    RatingDraw,
    Snapshot,
    Step,
    Sweep,
    Workspace,
    first_draw,
)
from noisewise.engine.rounding import rounded
from noisewise.engine.training import EpochInfo

PROBES = 1_000  # cells whose predictions show whether a chain has converged
MOST_NOISE = math.log(2.0)  # that a draw may have beyond those of later sweeps, to count
MOST_LOOKED = 20_000  # observations that are predicted as if they had been left out
MOST_ROUNDING = 0.01  # share of the noise's std that half precision may move predictions by
MOST_ROUNDED = 0.03  # the same for a byte a number, of a single draw


@dataclass
class Chain(Generic[D]):
    """What sampling carries from sweep to sweep."""

    draw: D  # the current values of everything unknown
    kept: Snapshot  # of some draws, stacked; only the first ``n_kept`` are filled
    n_kept: int
    probes: Floats  # predictions of probe cells, a row per sweep
    trace: Array  # summaries of the draw, a row per sweep
    sums: Array  # totals of held-out cells (see ``Sums``)
    looks: Array  # of some observations, sums over sweeps (see ``left_out``)

    @property
    def epoch(self) -> int:
        """Number of finished sweeps."""
        return self.draw.epoch

    def copy(self) -> Chain[D]:
        """Return a chain of its own."""
        return copy.deepcopy(self)

    def is_finite(self) -> bool:
        """Whether every number of the current draw is finite."""
        return self.draw.is_finite()

    def pack(self) -> tuple[dict[str, Any], Arrays]:
        """Header and tensors of a checkpoint."""
        header, of_draw = self.draw.pack()
        tensors = {f"draw.{name}": array for name, array in of_draw.items()} | self._filled()
        return header | {"kept": self.n_kept}, tensors

    def restored(self, source: Source) -> Chain[D]:
        """Return a chain like this one with what ``pack`` gave."""
        new = replace(self.copy(), draw=self.draw.restored(source.part("draw")))
        new.n_kept = source.whole("kept", most=len(next(iter(new.kept.values()))))
        if new.epoch > len(new.trace):
            raise source.damaged("it holds more sweeps than were asked for")
        if getattr(source.tensors.get("kept.factors"), "dtype", None) == np.float32:
            new.kept = {
                name: a.astype(np.float32) if a.dtype == np.float16 else a
                for name, a in new.kept.items()
            }
        for name, array in new._filled().items():
            array[:] = source.array(name, str(array.dtype), *array.shape)
        return new

    def _filled(self) -> Arrays:
        """Return the part of all arrays that is filled."""
        filled = {f"kept.{name}": array[: self.n_kept] for name, array in self.kept.items()}
        filled |= {"probes": self.probes[: self.epoch], "trace": self.trace[: self.epoch]}
        return filled | {"sums": self.sums, "looks": self.looks}


class Sampler(Generic[D]):
    """What all samplers share: a sweep, and which draws are kept."""

    fewest = 20  # sweeps that must count before it is judged how far predictions may be off

    def __init__(self, sweep: Sweep[D], schedule: Schedule) -> None:
        self.sweep, self.schedule = sweep, schedule
        self.spec, self.data = sweep.work.spec, sweep.work.data

    def _started(self, draw: D, n_watched: int, looks: tuple[int, int] = (0, 0)) -> Chain[D]:
        """Return a chain before its first sweep."""
        sweeps, self.names = self.schedule.sweeps, list(self.summaries(draw))
        return Chain(
            draw,
            self._room(self._snapshot(draw)),
            0,
            np.zeros((sweeps, PROBES), dtype=np.float32),
            np.zeros((sweeps, len(self.names))),
            np.zeros((TOTALS, n_watched)),
            np.zeros(looks),
        )

    def step(self, chain: Chain[D]) -> EpochInfo:
        """Sweep once, and note what came of it."""
        draw = chain.draw
        info = self.sweep(draw)
        chain.probes[draw.epoch - 1] = self._predicted(draw)[0]
        chain.trace[draw.epoch - 1] = list(self.summaries(draw).values())
        before, after = (self.schedule.kept_by(epoch) for epoch in (draw.epoch - 1, draw.epoch))
        stay = [k for k, sweep in enumerate(before[: chain.n_kept]) if sweep in after]
        if len(stay) < chain.n_kept:
            for array in chain.kept.values():
                array[: len(stay)] = array[stay]
        chain.n_kept = len(stay)
        self._note(chain, keep=bool(after) and after[-1] == draw.epoch)
        return info

    def _note(self, chain: Chain[D], *, keep: bool) -> None:
        """Keep the current draw, if it is to be kept."""
        if keep:
            self._keep(chain, self._snapshot(chain.draw))

    def _room(self, one: Snapshot) -> Snapshot:
        """Return room for all snapshots that will be kept, which are like this one."""
        many = self.schedule.room
        return {name: np.zeros((many, *array.shape), array.dtype) for name, array in one.items()}

    def _keep(self, chain: Chain[D], one: Snapshot) -> None:
        for name, array in one.items():
            chain.kept[name][chain.n_kept] = array
        chain.n_kept += 1

    def mean_error(self, chain: Chain[D]) -> float:
        """Return how far the running mean of a prediction may be off, as a share of a std."""
        first = self.schedule.first(chain.epoch)
        if chain.epoch - first < self.fewest:
            return math.inf
        seen = chain.probes[first : chain.epoch].astype(np.float64)
        half = len(seen) // 2
        apart = 0.5 * (seen[:half].mean(axis=0) - seen[-half:].mean(axis=0))
        return self._share_of_std(chain, seen, apart)

    def summaries(self, draw: D) -> dict[str, float]:
        """Return a few numbers by which to judge whether chains agree."""
        raise NotImplementedError

    def _snapshot(self, draw: D) -> Snapshot:
        """Return what predictions need of a draw."""
        raise NotImplementedError

    def _predicted(self, draw: D) -> tuple[Floats, Any]:
        """Means of probes in one draw, and their variances."""
        raise NotImplementedError

    def _share_of_std(self, chain: Chain[D], seen: Array, apart: Array) -> float:
        """Return differences between predictions of probes as a share of a std."""
        raise NotImplementedError


def rating_steps(work: Workspace, anchor: int = 1) -> list[Step[Any]]:
    """Return the steps of ratings; ``anchor`` is the cut-point between levels that is 0."""
    spec, data = work.spec, work.data
    steps: list[Step[Any]] = [variances.Precisions(work)]
    if spec.ordinal:
        levels = ordinal.Levels(work, anchor)
        steps += [ordinal.Rescaling(work, levels), levels]
    steps.append(rows.Target(work))
    for mode, n in enumerate(data.shape):
        if spec.implicit:
            steps.append(regression.Implicit(work, mode))
        if data.designs.of(mode) is not None:
            steps.append(regression.SideFeatures(work, mode))
        freedom = variances.freedom(spec.rank + 1, n)
        steps.append(variances.NormalWishart(work, mode, freedom, variances.SCALES_FROM))
        steps.append(rows.Rows(work, mode))
    if spec.time:
        steps += [temporal.TemporalEffect(work, number) for number in range(len(EFFECTS))]
    if spec.noise_rank:
        steps.append(variances.LowRankNoise(work, ALL_FROM))
    elif not spec.ordinal:
        steps.append(variances.ConstantNoise(work))
    with_features = [mode for mode in range(data.n_modes) if data.designs.of(mode) is not None]
    return steps + [regression.Newcomers(work, mode) for mode in with_features]


class RatingSampler(Sampler[RatingDraw]):
    """A sampler of ratings; cells held out are watched: their codes, times or None, and values."""

    cold: tuple[Any, ...] = ()  # per mode, features of ids (see ``RatingPosterior``)

    def __init__(
        self,
        spec: Spec,
        data: Data,
        scale: Scale,
        counts: tuple[Counts, ...],
        timeline: Timeline | None,
        schedule: Schedule,
        held_out: tuple[tuple[Codes, ...], Any, Floats] | None,
        n_jobs: int,
    ) -> None:
        super().__init__(self._sweep(spec, data, scale, n_jobs, schedule.burn_in), schedule)
        self.scale, self.counts, self.timeline = scale, counts, timeline
        rng = np.random.default_rng(0)  # the same probes for every chain, busy rows more often
        picks = rng.integers(len(data), size=(data.n_modes, PROBES))
        self.probes = self._places(picks)
        self.nothing = self.as_posterior({"level": np.empty((0, 1))})
        self.truth = np.empty(0, dtype=np.float32)
        some = np.sort(rng.permutation(len(data))[:MOST_LOOKED])
        self.looked = some if data.n_modes == 2 else some[:0]
        self.looks = left_out.rows(len(scale.levels)), len(self.looked)
        self.some = self._places(np.tile(some, (data.n_modes, 1)))
        self.query: Query | None = None
        if held_out is not None:
            codes, time, self.truth = held_out
            self.query = self.nothing.query(codes, time)

    def _places(self, picks: Ints) -> npt.NDArray[np.int32]:
        """Return for each mode the places of the rows of some observations."""
        return np.take_along_axis(self.data.places, picks, axis=1)

    def _sweep(
        self, spec: Spec, data: Data, scale: Scale, n_jobs: int, burn_in: int
    ) -> Sweep[RatingDraw]:
        work = Workspace(spec, data, n_jobs, burn_in)
        return Sweep(work, rating_steps(work, scale.anchor))

    def start(self) -> Chain[RatingDraw]:
        """Return a chain before its first sweep."""
        draw = first_draw(self.spec, self.data, len(self.scale.levels))
        return self._started(draw, len(self.truth), self.looks)

    def step(self, chain: Chain[RatingDraw]) -> EpochInfo:
        """Sweep once, and note what came of it; the report is in units of the values."""
        info, factor = super().step(chain), self.scale.scale
        if len(self.looked) and chain.epoch > self.schedule.burn_in:
            chain.looks += self._looked_at(chain)
        nll = info.train_nll + math.log(factor)
        return replace(info, train_rmse=info.train_rmse * factor, train_nll=nll)

    def validate(self, chain: Chain[RatingDraw]) -> tuple[float, float]:
        """RMSE and NLL of the running mean on held-out cells; nan as long as there is none."""
        if not chain.sums[-1].any():
            return float("nan"), float("nan")
        mean, noise, epistemic = self.nothing.in_units(Sums(chain.sums).moments())
        error = (self.truth - mean).astype(np.float64) ** 2
        least = 1e-12 * min(1.0, self.scale.scale**2)
        variance = np.maximum((noise + epistemic).astype(np.float64), least)
        nll = 0.5 * np.mean(np.log(2.0 * math.pi * variance) + error / variance)
        return math.sqrt(error.mean()), float(nll)

    def posterior(self, chains: list[Chain[RatingDraw]]) -> RatingPosterior:
        """Return the draws that chains have kept; of chains cut short, their last ones."""
        stay, names = [(chain.kept, self._stay(chain)) for chain in chains], chains[0].kept
        if not any(len(own) for _, own in stay):
            parts = [self._kept(chain.draw) for chain in chains]
            return self.as_posterior({n: np.stack([part[n] for part in parts]) for n in names})
        if len(stay) == 1:
            return self.as_posterior({n: np.asarray(a[stay[0][1]]) for n, a in stay[0][0].items()})
        return self.as_posterior({n: np.concatenate([a[n][s] for a, s in stay]) for n in names})

    def left_out(self, chains: list[Chain[RatingDraw]]) -> LeftOut | None:
        """Return what all others say of some observations; None where there were too few sweeps."""
        sums: Array = np.sum([chain.looks for chain in chains], axis=0)
        return left_out.found(sums, self.looked_values, self.scale) if sums.size else None

    def _looked_at(self, chain: Chain[RatingDraw]) -> Array:
        """Return what the last sweep adds to sums; of levels, in units of its typical noise."""
        draw, ones = chain.draw, np.ones((1, len(self.looked)))
        look = Look(*(part.astype(np.float64) for part in self._look(draw)))
        if not self.spec.ordinal:
            return np.vstack([*look.sums(), ones])
        unit = math.exp(-0.5 * chain.trace[draw.epoch - 1, 0])
        cuts = left_out.cuts_of(self._looked_widths(draw), self.scale.anchor)
        return np.vstack([*look.times(unit).sums(), cuts.T * unit, ones])

    @cached_property
    def looked_values(self) -> Floats:
        """Values of the observations that are looked at; of levels, their numbers."""
        values: Floats = self.data.values[self.looked]
        return values

    def _looked_widths(self, draw: RatingDraw) -> Any:
        """Return logs of widths of levels, of the users of observations that are looked at."""
        return draw.widths[self.some[0]]

    def _look(self, draw: RatingDraw) -> Any:
        """Return what is a ``Look`` at observations in a draw."""
        at, values = self.looked, draw.latent if self.spec.ordinal else self.data.values
        return draw.mean(at), self.sweep.work.root[at], values[at]

    def summaries(self, draw: RatingDraw) -> dict[str, float]:
        """Return a few numbers by which to judge whether chains agree."""
        named = {"noise": -2.0 * self._roots()[0]}
        for mode, precision in enumerate(draw.precisions):
            named[f"precision of mode {mode}"] = float(np.linalg.slogdet(precision)[1])
        for number, strength in enumerate(draw.strengths):
            of = "implicit sets" if self.spec.implicit and number < 2 else "features"
            named[f"strength of {of} {number}"] = math.log(strength)
        for number, (phi, variance) in enumerate(draw.temporal_settings.tolist()):
            effect = f"temporal effect {number}"
            named |= {f"phi of {effect}": phi, f"variance of {effect}": variance}
        for number, centre in enumerate(draw.width_centre.tolist()):
            named[f"width of level {number + 1}"] = centre
        return named

    def _roots(self) -> tuple[float, float]:
        """Return means over observations: of the log of the root of the precision, and of it."""
        root = self.sweep.work.root
        return float(np.log(root).mean(dtype=np.float64)), float(root.mean(dtype=np.float64))

    def as_posterior(self, draws: Snapshot) -> RatingPosterior:
        """Return kept draws as what predicts."""
        shape, timeline = self.data.shape, self.timeline
        parts = self.spec, shape, self.counts, draws, self.scale, timeline
        return RatingPosterior(*parts, self.cold)

    def _stay(self, chain: Chain[RatingDraw]) -> Ints:
        """Return which of the kept draws stay in the end: none that took far more for noise.

        Noise that is hardly there takes longer than any ``burn_in`` to be found.
        """
        if not chain.n_kept:
            return np.empty(0, dtype=np.int64)
        kept = np.array(self.schedule.kept_by(chain.epoch), dtype=np.int64) - 1
        noise = chain.trace[: chain.epoch, 0]
        later = noise[(self.schedule.burn_in + chain.epoch) // 2 :]
        counted = np.flatnonzero(noise[kept] <= np.median(later) + MOST_NOISE)
        return counted[self.schedule.chosen(len(counted))]

    def _note(self, chain: Chain[RatingDraw], *, keep: bool) -> None:
        """Keep the current draw, if it is to be kept, and watch held-out cells."""
        watched = self.query if chain.epoch > self.schedule.burn_in else None
        if not keep and watched is None:
            return
        one = self._kept(chain.draw, self._precision(chain))
        if keep and not chain.n_kept:
            chain.kept = self._room(one)
        if keep:
            self._keep(chain, one)
        if watched is not None:
            single = self.as_posterior({name: array[None] for name, array in one.items()})
            single.add(watched, Sums(chain.sums, single.n_levels), self.sweep.work.n_jobs)

    def _kept(self, draw: RatingDraw, half: type = np.float16) -> Snapshot:
        """Return what is kept of a draw, its rows rounded and its average rows as chosen."""
        one = self._rounded(self._snapshot(draw, half))
        return one | {"typical": newcomers.as_chosen(one, self.some)}

    def _rounded(self, one: Snapshot) -> Snapshot:
        """Return a snapshot whose rows take a byte a number, if that hardly moves predictions."""
        if one["factors"].dtype != np.float16:
            return one
        coarse = one | {name: rounded(one[name]) for name in ("factors", "features")}
        biases = one["biases"].astype(np.float32)
        before, after = np.empty((2, PROBES), dtype=np.float32)
        for kept, out in ((one, before), (coarse, after)):
            rows.means(self.probes, kept["factors"].astype(np.float32), biases, out)
        apart = np.sqrt(np.mean((after - before).astype(np.float64) ** 2)) * self._typical_root()
        return coarse if apart < MOST_ROUNDED else one

    def _precision(self, chain: Chain[RatingDraw]) -> type:
        """Return the type of kept draws: half precision if that hardly moves predictions."""
        if chain.n_kept:
            return np.float16 if chain.kept["factors"].dtype == np.float16 else np.float32
        draw, names = chain.draw, ("factors", "biases")
        half = {n: getattr(draw, n).astype(np.float16).astype(np.float32) for n in names}
        both = (self._predicted(one)[0] for one in (replace(draw, **half), draw))
        apart = np.subtract(*both).astype(np.float64)
        enough = np.sqrt(np.mean(apart**2)) * self._typical_root() < MOST_ROUNDING
        return np.float16 if enough else np.float32

    def _typical_root(self) -> float:
        return float(np.median(self.sweep.work.root))

    def _snapshot(self, draw: RatingDraw, half: type = np.float16) -> Snapshot:
        return rating_snapshot(draw, self.spec, self.data, half)

    def _predicted(self, draw: RatingDraw) -> tuple[Floats, Any]:
        mean = np.empty(PROBES, dtype=np.float32)
        rows.means(self.probes, draw.factors, draw.biases, mean)
        return mean, None

    def _share_of_std(self, chain: Chain[RatingDraw], seen: Array, apart: Array) -> float:
        return float(np.sqrt(np.mean(apart**2))) * self._roots()[1]
