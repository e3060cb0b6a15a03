"""Chains: the current draw, the draws that are kept, and whether they have converged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol

import numpy as np

from noisewise.engine.arrays import Arrays, Floats, Source
from noisewise.engine.gibbs.draw import Floats64, Snapshot
from noisewise.engine.gibbs.sweep import D, Sweep
from noisewise.engine.training import EpochInfo

PROBES = 1_000  # cells whose predictions show whether a chain has converged


class Schedule(Protocol):
    """How many sweeps to run, and which of their draws to keep."""

    @property
    def sweeps(self) -> int:
        """Sweeps to run, at most."""

    @property
    def room(self) -> int:
        """Draws that are kept at the same time, at most."""

    def first(self, epoch: int) -> int:
        """Return how many sweeps do not count, after so many."""

    def kept_by(self, epoch: int) -> list[int]:
        """Return the sweeps whose draws are kept after so many."""


class EvenSchedule(NamedTuple):
    """Forget some sweeps, and keep so many draws of the rest, evenly spaced.

    Examples
    --------
    >>> EvenSchedule(sweeps=10, burn_in=2, keep=3).kept_by(10)
    [5, 8, 10]
    """

    sweeps: int
    burn_in: int
    keep: int

    @property
    def room(self) -> int:
        """Draws that are kept at the same time, at most."""
        return len(self.kept_by(self.sweeps))

    def first(self, epoch: int) -> int:
        """Return how many sweeps do not count, after so many."""
        return self.burn_in

    def kept_by(self, epoch: int) -> list[int]:
        """Return the sweeps whose draws are kept: evenly spaced, the last one among them."""
        many, total = min(self.keep, self.sweeps - self.burn_in), self.sweeps - self.burn_in
        ran = range(1, epoch - self.burn_in + 1)
        return [self.burn_in + k for k in ran if k * many // total > (k - 1) * many // total]


class LaterHalf(NamedTuple):
    """Keep draws of the later half of all sweeps, however long a chain will run.

    The first ``burn_in`` sweeps never count. Of those that do, every second, fourth, eighth... is
    kept, so that there are at most ``keep``.

    Examples
    --------
    >>> schedule = LaterHalf(sweeps=20, burn_in=2, keep=4)
    >>> [schedule.kept_by(epoch) for epoch in (2, 4, 7, 20)]
    [[], [3, 4], [4, 5, 6, 7], [12, 16, 20]]
    """

    sweeps: int
    burn_in: int
    keep: int

    @property
    def room(self) -> int:
        """Draws that are kept at the same time, at most."""
        return min(self.keep, self.sweeps)

    def first(self, epoch: int) -> int:
        """Return how many sweeps do not count, after so many."""
        return max(self.burn_in, epoch // 2)

    def kept_by(self, epoch: int) -> list[int]:
        """Return the sweeps whose draws are kept after so many."""
        first, step = self.first(epoch), 1
        while epoch // step - first // step > self.keep:
            step *= 2
        return list(range((first // step + 1) * step, epoch + 1, step))


@dataclass
class Chain(Generic[D]):
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

    draw: D
    kept: Snapshot
    n_kept: int
    probes: Floats
    trace: Floats64
    sums: Floats64

    @property
    def epoch(self) -> int:
        """Number of finished sweeps."""
        return self.draw.epoch

    def copy(self) -> Chain[D]:
        """Return a chain of its own."""
        kept = {name: array.copy() for name, array in self.kept.items()}
        arrays = (self.probes.copy(), self.trace.copy(), self.sums.copy())
        return Chain(self.draw.copy(), kept, self.n_kept, *arrays)

    def is_finite(self) -> bool:
        """Whether every number of the current draw is finite."""
        return self.draw.is_finite()

    def pack(self) -> tuple[dict[str, Any], Arrays]:
        """Header and tensors of a checkpoint."""
        header, tensors = self.draw.pack()
        tensors = {f"draw.{name}": array for name, array in tensors.items()}
        tensors |= {f"kept.{name}": array[: self.n_kept] for name, array in self.kept.items()}
        tensors |= {"probes": self.probes[: self.epoch], "trace": self.trace[: self.epoch]}
        tensors["sums"] = self.sums
        return header | {"kept": self.n_kept}, tensors

    def restored(self, source: Source) -> Chain[D]:
        """Return a chain like this one with what ``pack`` gave."""
        new = replace(self.copy(), draw=self.draw.restored(source.part("draw")))
        new.n_kept = source.whole("kept", most=len(new.kept["level"]))
        if new.epoch > len(new.trace):
            raise source.damaged("it holds more sweeps than were asked for")
        if getattr(source.tensors.get("kept.factors"), "dtype", None) == np.float32:
            new.kept = {name: np.asarray(a, np.float32) for name, a in new.kept.items()}
        for name, array in new.kept.items():
            shape = (new.n_kept, *array.shape[1:])
            array[: new.n_kept] = source.array(f"kept.{name}", str(array.dtype), *shape)
        for name, array in (("probes", new.probes), ("trace", new.trace)):
            shape = (new.epoch, *array.shape[1:])
            array[: new.epoch] = source.array(name, str(array.dtype), *shape)
        new.sums[:] = source.array("sums", "float64", *new.sums.shape)
        return new


class Sampler(Generic[D]):
    """What all samplers share: a sweep, and which draws are kept.

    Parameters
    ----------
    sweep
        The steps to take.
    schedule
        How long to run, and what to keep.
    """

    def __init__(self, sweep: Sweep[D], schedule: Schedule) -> None:
        self.sweep, self.schedule = sweep, schedule
        self.spec, self.data = sweep.work.spec, sweep.work.data

    def _started(self, draw: D, n_watched: int) -> Chain[D]:
        """Return a chain before its first sweep."""
        sweeps = self.schedule.sweeps
        return Chain(
            draw,
            room_for(self._snapshot(draw), self.schedule.room),
            0,
            np.zeros((sweeps, PROBES), dtype=np.float32),
            np.zeros((sweeps, len(self.summaries(draw)))),
            np.zeros((5, n_watched)),
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

    def mean_error(self, chain: Chain[D]) -> float:
        """Return how far the running mean of a prediction may be off, as a share of a std."""
        raise NotImplementedError

    def summaries(self, draw: D) -> dict[str, float]:
        """Return a few numbers by which to judge whether chains agree."""
        return {
            f"precision of mode {mode}": float(np.linalg.slogdet(precision)[1])
            for mode, precision in enumerate(draw.precisions)
        }

    def _note(self, chain: Chain[D], *, keep: bool) -> None:
        """Keep the current draw, if it is to be kept."""
        if keep:
            self._keep(chain, self._snapshot(chain.draw))

    def _keep(self, chain: Chain[D], one: Snapshot) -> None:
        for name, array in one.items():
            chain.kept[name][chain.n_kept] = array
        chain.n_kept += 1

    def _halves(self, chain: Chain[D]) -> tuple[Floats64, Floats64]:
        """Predictions that count, and half the difference between the means of their halves."""
        counts = slice(self.schedule.first(chain.epoch), chain.epoch)
        seen = chain.probes[counts].astype(np.float64)
        half = len(seen) // 2
        return seen, 0.5 * (seen[:half].mean(axis=0) - seen[-half:].mean(axis=0))

    def _counting(self, chain: Chain[D]) -> int:
        return chain.epoch - self.schedule.first(chain.epoch)

    def _snapshot(self, draw: D) -> Snapshot:
        """Return what predictions need of a draw."""
        raise NotImplementedError

    def _predicted(self, draw: D) -> tuple[Floats, Any]:
        """Means of probes in one draw, and their variances."""
        raise NotImplementedError


def room_for(one: Snapshot, many: int) -> Snapshot:
    """Return room for so many snapshots like this one."""
    return {name: np.zeros((many, *array.shape), array.dtype) for name, array in one.items()}


def convergence(
    chains: Sequence[Chain[Any]], names: list[str], first: int
) -> dict[str, dict[str, float]]:
    """Split R-hat and effective sample size of every summary, and of the predictions of probes."""
    length = min(chain.epoch for chain in chains)
    traces = np.array([chain.trace[first:length] for chain in chains])
    probes = np.array([chain.probes[first:length] for chain in chains], dtype=np.float64)
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


def split_rhat(chains: Floats64) -> float:
    """Return how much wider all draws together are than halves of chains: 1 when they agree.

    Parameters
    ----------
    chains
        One row of draws per chain.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bool(split_rhat(rng.normal(size=(2, 500))) < 1.01)
    True
    >>> bool(split_rhat(np.arange(500.0)[None]) > 1.5)
    True
    """
    half = chains.shape[1] // 2
    if half < 2:
        return float("nan")
    parts = np.concatenate([chains[:, :half], chains[:, -half:]])
    within = parts.var(axis=1, ddof=1).mean()
    between = half * parts.mean(axis=1).var(ddof=1)
    if within == 0.0:
        return 1.0 if between == 0.0 else float("inf")
    return float(np.sqrt((half - 1) / half + between / half / within))


def effective_size(chains: Floats64) -> float:
    """Return how many independent draws the mean of the draws is worth.

    Autocorrelations are summed in pairs as long as pairs are positive (Geyer), over both halves of
    every chain.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(1, 1000))
    >>> bool(600 < effective_size(draws) <= 1000)
    True
    """
    half = chains.shape[1] // 2
    if half < 4:
        return float("nan")
    parts = np.concatenate([chains[:, :half], chains[:, -half:]])
    centred = parts - parts.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, n=2 * half, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, axis=1)[:, :half].mean(axis=0) / half
    within = covariance[0] * half / (half - 1)
    total = within * (half - 1) / half + parts.mean(axis=1).var(ddof=1)
    if total == 0.0:
        return float(parts.size)
    correlation = 1.0 - (within - covariance * half / (half - 1)) / total
    correlation[0] = 1.0
    pairs = correlation[: half // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs < 0.0)
    length = 2.0 * pairs[: ends[0] if len(ends) else len(pairs)].sum() - 1.0
    return float(min(parts.size / max(length, 1e-12), parts.size))
