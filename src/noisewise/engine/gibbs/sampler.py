"""A chain: the current draw, the draws kept for predictions, and the record of the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Codes, Counts, Floats
from noisewise.engine.gibbs import cells
from noisewise.engine.gibbs.data import Ints, Model, Problem
from noisewise.engine.gibbs.diagnostics import effective_size, split_rhat
from noisewise.engine.gibbs.draw import Draw, first_draw
from noisewise.engine.gibbs.posterior import Posterior, Query, Scale, Sums
from noisewise.engine.gibbs.snapshot import Snapshot, half_is_enough, snapshot
from noisewise.engine.gibbs.sweep import Sweeper
from noisewise.engine.gibbs.timeline import Timeline
from noisewise.engine.training import EpochInfo
from noisewise.errors import ModelFileError
from noisewise.storage import Tensors, take, take_whole

PROBES = 1_000  # cells whose predictions show whether the chain has settled
MOST_NOISE = math.log(2.0)  # that a draw may have beyond those of later sweeps, to count
FEWEST = 20  # kept sweeps before a chain may be called settled

Floats64 = npt.NDArray[np.float64]


class Schedule(NamedTuple):
    """How many sweeps to run, how many to forget, and how many draws to keep of the rest."""

    sweeps: int
    burn_in: int
    keep: int

    def kept_by(self, epoch: int) -> int:
        """Draws kept after so many sweeps: evenly spaced, the last one among them."""
        ran = max(epoch - self.burn_in, 0)
        total = self.sweeps - self.burn_in
        return ran * min(self.keep, total) // total


@dataclass
class Chain:
    """What sampling carries from sweep to sweep.

    Attributes
    ----------
    draw
        The current values of everything unknown.
    kept
        Snapshots of some draws, stacked; only the first ``n_kept`` are filled.
    probes
        Predictions of probe cells, a row per sweep.
    trace
        Summaries of the draw, a row per sweep.
    sums
        Of held-out cells: mean, centre, square, noise (see ``Sums``), and the number of draws.
    """

    draw: Draw
    kept: Snapshot
    n_kept: int
    probes: Floats
    trace: Floats64
    sums: Floats64

    @property
    def epoch(self) -> int:
        """Number of finished sweeps."""
        return self.draw.epoch

    def copy(self) -> Chain:
        """Return a chain of its own."""
        kept = {name: array.copy() for name, array in self.kept.items()}
        arrays = (self.probes.copy(), self.trace.copy(), self.sums.copy())
        return Chain(self.draw.copy(), kept, self.n_kept, *arrays)

    def is_finite(self) -> bool:
        """Whether every number of the current draw is finite."""
        return self.draw.is_finite()

    def pack(self) -> tuple[dict[str, Any], Tensors]:
        """Header and tensors of a checkpoint."""
        header, tensors = self.draw.pack()
        tensors = {f"draw.{name}": array for name, array in tensors.items()}
        tensors |= {f"kept.{name}": array[: self.n_kept] for name, array in self.kept.items()}
        tensors |= {"probes": self.probes[: self.epoch], "trace": self.trace[: self.epoch]}
        tensors["sums"] = self.sums
        return header | {"kept": self.n_kept}, tensors

    def restored(self, path: Any, header: dict[str, Any], tensors: Tensors) -> Chain:
        """Return a chain like this one with what ``pack`` gave; the file is not trusted."""
        own = {n.removeprefix("draw."): t for n, t in tensors.items() if n.startswith("draw.")}
        new = replace(self.copy(), draw=self.draw.restored(path, header, own))
        new.n_kept = take_whole(path, header, "kept", most=len(new.kept["level"]))
        if new.epoch > len(new.trace):
            raise ModelFileError(f"{path} is damaged: it holds more sweeps than were asked for.")
        if getattr(tensors.get("kept.factors"), "dtype", None) == np.float32:
            new.kept = {name: np.asarray(a, np.float32) for name, a in new.kept.items()}
        for name, array in new.kept.items():
            shape = (new.n_kept, *array.shape[1:])
            array[: new.n_kept] = take(path, tensors, f"kept.{name}", str(array.dtype), *shape)
        for name, array in (("probes", new.probes), ("trace", new.trace)):
            shape = (new.epoch, *array.shape[1:])
            array[: new.epoch] = take(path, tensors, name, str(array.dtype), *shape)
        new.sums[:] = take(path, tensors, "sums", "float64", *new.sums.shape)
        return new


class Sampling:
    """Everything that does not change while a chain runs.

    Parameters
    ----------
    model, problem, scale
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
        model: Model,
        problem: Problem,
        scale: Scale,
        counts: tuple[Counts, ...],
        timeline: Timeline | None,
        schedule: Schedule,
        held_out: tuple[tuple[Codes, ...], Any, Floats] | None,
        n_jobs: int,
    ) -> None:
        self.model, self.problem, self.scale = model, problem, scale
        self.counts, self.timeline, self.schedule, self.n_jobs = counts, timeline, schedule, n_jobs
        self.sweep = Sweeper(model, problem, scale.anchor, n_jobs, schedule.burn_in)
        self.probe_places = _probe_places(problem)
        self.truth = np.empty(0, dtype=np.float32)
        self.query: Query | None = None
        if held_out is not None:
            codes, time, self.truth = held_out
            self.query = self.posterior({"level": np.empty((0, 1))}).query(codes, time)

    def start(self) -> Chain:
        """Return a chain before its first sweep."""
        draw = first_draw(self.model, self.problem, len(self.scale.levels))
        kept = self._room(snapshot(draw, self.model, self.problem))
        sweeps = self.schedule.sweeps
        return Chain(
            draw,
            kept,
            0,
            np.zeros((sweeps, len(self.probe_places[0])), dtype=np.float32),
            np.zeros((sweeps, len(self.summaries(draw)))),
            np.zeros((5, len(self.truth))),
        )

    def step(self, chain: Chain) -> EpochInfo:
        """Sweep once, and note what came of it; the report is in units of the values."""
        draw, epoch = chain.draw, chain.epoch
        info = self.sweep(draw)
        cells.means(self.probe_places, draw.factors, draw.biases, chain.probes[epoch])
        chain.trace[epoch] = list(self.summaries(draw).values())
        keep = self.schedule.kept_by(draw.epoch) > chain.n_kept
        watch = self.query is not None and draw.epoch > self.schedule.burn_in
        if keep or watch:
            one = snapshot(draw, self.model, self.problem, self._precision(chain))
            if keep and not chain.n_kept:
                chain.kept = self._room(one)
            if keep:
                for name, array in one.items():
                    chain.kept[name][chain.n_kept] = array
                chain.n_kept += 1
            if watch:
                self._watch(chain, one)
        factor = self.scale.scale
        shift = math.log(factor)
        return replace(info, train_rmse=info.train_rmse * factor, train_nll=info.train_nll + shift)

    def validate(self, chain: Chain) -> tuple[float, float]:
        """RMSE and NLL of the running mean on held-out cells; nan as long as there is none."""
        *totals, draws = chain.sums
        if not draws.any():
            return float("nan"), float("nan")
        sums = Sums(len(self.truth), 0)
        sums.mean, sums.centre, sums.square, sums.noise = totals
        sums.draws = int(draws[0])
        posterior = self.posterior({"level": np.empty((0, 1))})
        mean, noise, epistemic = posterior.in_units(sums.moments())
        error = (self.truth - mean).astype(np.float64) ** 2
        least = 1e-12 * min(1.0, self.scale.scale**2)
        variance = np.maximum((noise + epistemic).astype(np.float64), least)
        nll = 0.5 * np.mean(np.log(2.0 * math.pi * variance) + error / variance)
        return math.sqrt(error.mean()), float(nll)

    def unsettled(self, chain: Chain) -> float:
        """Return how far the running mean of predictions may be off, as a share of the noise's std.

        Half the difference between the first and the second half of the sweeps that count.
        """
        probes = chain.probes[self.schedule.burn_in : chain.epoch].astype(np.float64)
        if len(probes) < FEWEST:
            return math.inf
        half = len(probes) // 2
        apart = 0.5 * (probes[:half].mean(axis=0) - probes[-half:].mean(axis=0))
        root = float(self.sweep.root.mean(dtype=np.float64))
        return float(np.sqrt(np.mean(apart**2))) * root

    def posterior(self, draws: Snapshot) -> Posterior:
        """Return kept draws as what predicts."""
        shape = self.problem.shape
        return Posterior(self.model, self.scale, shape, self.counts, draws, self.timeline)

    def pooled(self, chains: list[Chain]) -> Posterior:
        """Return the draws that chains have kept; of chains cut short, their last ones."""
        stay = [self._settled(chain) for chain in chains]
        kept = {
            name: np.concatenate(
                [chain.kept[name][s] for chain, s in zip(chains, stay, strict=True)]
            )
            for name in chains[0].kept
        }
        if not len(kept["level"]):
            parts = [snapshot(chain.draw, self.model, self.problem) for chain in chains]
            kept = {name: np.stack([part[name] for part in parts]) for name in kept}
        return self.posterior(kept)

    def _settled(self, chain: Chain) -> Ints:
        """Return which of the kept draws count: not those in which far more was taken for noise.

        Noise that is hardly there takes longer than any ``burn_in`` to be found. In later draws it
        moves by a few per cent.
        """
        sweeps = np.arange(chain.epoch)
        kept = [self.schedule.kept_by(k + 1) > self.schedule.kept_by(k) for k in sweeps.tolist()]
        noise = chain.trace[: chain.epoch, 0]
        later = noise[(self.schedule.burn_in + chain.epoch) // 2 :]
        if not chain.n_kept:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(noise[kept] <= np.median(later) + MOST_NOISE)

    def summaries(self, draw: Draw) -> dict[str, float]:
        """Return a few numbers by which to judge whether chains agree."""
        named = {"noise": -2.0 * float(np.log(self.sweep.root).mean(dtype=np.float64))}
        for mode, precision in enumerate(draw.precisions):
            named[f"precision of mode {mode}"] = float(np.linalg.slogdet(precision)[1])
        for mode, strength in enumerate(draw.strengths):
            named[f"strength of sets {mode}"] = math.log(strength)
        for number, (phi, variance) in enumerate(draw.path_settings.tolist()):
            named |= {f"phi of path {number}": phi, f"variance of path {number}": variance}
        for number, centre in enumerate(draw.width_centre.tolist()):
            named[f"width of level {number + 1}"] = centre
        return named

    def _room(self, one: Snapshot) -> Snapshot:
        """Return room for all snapshots that will be kept."""
        keep = self.schedule.kept_by(self.schedule.sweeps)
        return {name: np.zeros((keep, *a.shape), dtype=a.dtype) for name, a in one.items()}

    def _precision(self, chain: Chain) -> type:
        """Return the type to keep a draw in: that of those kept before, if there are some."""
        if chain.n_kept:
            return np.float16 if chain.kept["factors"].dtype == np.float16 else np.float32
        root = float(np.median(self.sweep.root))
        enough = half_is_enough(chain.draw, self.probe_places, root)
        return np.float16 if enough else np.float32

    def _watch(self, chain: Chain, one: Snapshot) -> None:
        assert self.query is not None
        sums = Sums(len(self.truth), len(self.scale.levels) if self.model.ordinal else 0)
        single = self.posterior({name: array[None] for name, array in one.items()})
        single.add(self.query, sums, self.n_jobs)
        ones = np.ones(len(self.truth))
        chain.sums += [sums.mean, sums.centre, sums.square, sums.noise, ones]


def convergence(chains: list[Chain], names: list[str], burn_in: int) -> dict[str, dict[str, float]]:
    """Split R-hat and effective sample size of every summary, and of the predictions of probes."""
    length = min(chain.epoch for chain in chains)
    traces = np.array([chain.trace[burn_in:length] for chain in chains])
    probes = np.array([chain.probes[burn_in:length] for chain in chains], dtype=np.float64)
    report = {
        name: {
            "rhat": split_rhat(traces[:, :, k]),
            "effective_size": effective_size(traces[:, :, k]),
        }
        for k, name in enumerate(names)
    }
    each = [(split_rhat(p), effective_size(p)) for p in np.moveaxis(probes, 2, 0)]
    rhat, size = np.median(each, axis=0)
    report["predictions (median)"] = {"rhat": float(rhat), "effective_size": float(size)}
    return report


def _probe_places(problem: Problem) -> npt.NDArray[np.int32]:
    """Cells at random, busy rows more often, the same for every chain."""
    rng = np.random.default_rng(0)
    picks = rng.integers(len(problem), size=(problem.n_modes, PROBES))
    return np.take_along_axis(problem.places, picks, axis=1)
