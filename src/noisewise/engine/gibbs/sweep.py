"""One draw of everything unknown, sweeps over the steps that draw its parts, and convergence.

Steps share data, threads, random streams, and arrays that one hands on to the next.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numba import njit

from noisewise.engine.arrays import Array, Arrays, Floats, Source
from noisewise.engine.data import Data, Spec
from noisewise.engine.training import EpochInfo, chunks, in_threads

Run = Callable[[Callable[[Any], None], Iterable[Any]], None]  # calls work with every task
Snapshot = dict[str, Any]  # what predictions need of a draw, by name

# Streams of random numbers: what they are for, and in a sweep what is drawn with them.
START, SWEEP, FOLD, UPDATE = range(4)
(
    ROWS, NORMAL_WISHART, FEATURES, NOISE, TEMPORAL, TEMPORAL_SETTINGS, LEVELS, RESCALING,
    SIDE_FEATURES, NEWCOMERS,
) = range(1, 11)  # fmt: skip

START_STD = 0.15  # of factors at the start: smaller ones take many sweeps to grow
FIRST_SCALE = 0.5  # of the prior of rows, before scales are drawn
EFFECTS = ((0, 0.8), (0, 0.98), (1, 0.95))  # temporal: their mode, and phi that the prior is around
EFFECT_VARIANCE = 0.03  # that the prior of their stationary variance is around
CUT_WIDTH = 0.7  # that the prior of the widths of levels is around
WIDTH_SPREAD = 0.3  # of the logs of widths between users, at the start
ALL_FROM = 5  # sweep in which temporal effects, noise and cut-points join in, of ratings
PIECE = 2**24  # observations whose errors are added up one after another
NOTHING = 0.0, 0.0, 0.0, 1.0  # what they are added to
WANTED = 0.3  # share of Metropolis proposals to accept


def key(seed: int, *place: int) -> np.uint64:
    """Return the key of all streams of one draw, say of one conditional in one sweep."""
    # As entropy, [seed, 0] would be the same as seed; a spawn key is never the same as none.
    sequence = np.random.SeedSequence(seed, spawn_key=place)
    return np.uint64(sequence.generate_state(1, np.uint64)[0])


def generator(seed: int, *place: int) -> np.random.Generator:
    """Return a generator of its own for one draw; no other place or seed has the same numbers."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=place))


@dataclass
class State:
    """A draw of everything unknown, as a dataclass of arrays."""

    positive: ClassVar[tuple[str, ...]] = ()  # arrays whose numbers must be above 0

    epoch: int  # number of finished sweeps

    def copy(self) -> Self:
        """Return a draw of its own."""
        return copy.deepcopy(self)

    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return all(np.isfinite(array.sum(dtype=np.float64)) for array in self.arrays.values())

    def pack(self) -> tuple[dict[str, Any], Arrays]:
        """Header and tensors of a checkpoint."""
        return {"epoch": self.epoch}, self.arrays

    def restored(self, source: Source) -> Self:
        """Return a draw like this one with what ``pack`` gave."""
        arrays = {}
        for name, array in self.arrays.items():
            arrays[name] = source.array(name, str(array.dtype), *array.shape).copy()
            if name in self.positive and (arrays[name] <= 0).any():
                raise source.damaged("must be above 0", name)
        return replace(self, epoch=source.whole("epoch"), **arrays)

    @property
    def arrays(self) -> Arrays:
        """All but the number of sweeps, by name."""
        return {name: array for name, array in vars(self).items() if name != "epoch"}


@dataclass
class Draw(State):
    """Rows and their noise, in standardised units: what every model draws."""

    positive: ClassVar[tuple[str, ...]] = (
        "noise", "level", "strengths", "cold_strengths", "width_spread", "proposals",
    )  # fmt: skip

    factors: Floats  # rows of all modes, one after another, padded with zeros to whole vectors
    biases: Floats
    centres: Array  # per mode, mean and precision of its rows, the bias last
    precisions: Array
    scales: Array  # per mode, how far rows are expected to spread (see ``steps.variances``)
    noise: Floats  # factors of the variance
    level: Array  # prior mean of the last mode's; without factors, the variance itself
    fitted: Floats  # factors' and biases' part of the mean of every observation


@dataclass
class RatingDraw(Draw):
    """All unknowns of ratings; a part that the model does not have is empty."""

    effects: Floats  # what implicit sets and side features add to the mean of each row
    features: Floats  # weights of every feature: of the first mode's sets, the second's; side ones
    strengths: Array  # how strongly weights are pulled to zero: of sets, of fields of features
    cold_weights: Floats  # rows, with logs of their noise, by side features alone: weights,
    cold_strengths: Array  # their strengths, and per mode centre and covariance of what is left
    cold_centres: Array
    cold_covariances: Array
    temporal: Floats  # per temporal effect, its value at every observation
    temporal_settings: Array  # per temporal effect, logit of phi and log of the variance
    widths: Array  # logs of the widths of levels per row of the first mode
    width_centre: Array  # their mean and std
    width_spread: Array
    latent: Floats  # hidden values of levels
    proposals: Array  # how far Metropolis steps reach: cut-points, then each temporal effect

    def temporal_sum(self, some: Any = ...) -> Any:
        """Return all temporal effects together at observations; 0 without any."""
        return self.temporal[:, some].sum(axis=0) if len(self.temporal) else np.float32(0.0)

    def mean(self, some: Any = ...) -> Any:
        """Return the mean of all observations, or of some; of levels, of their hidden values."""
        return self.fitted[some] + self.temporal_sum(some)


def first_draw(spec: Spec, data: Data, n_levels: int = 0) -> RatingDraw:
    """Start from small random factors, and everything else in the middle of its prior."""
    rows, n, D1 = sum(data.shape), data.n_here, spec.rank + 1
    many = n_levels - 2 if spec.ordinal else 0
    effects = len(EFFECTS) if spec.time else 0
    settings = [[np.log(phi / (1.0 - phi)), np.log(EFFECT_VARIANCE)] for _, phi in EFFECTS]
    implicit, sets = (rows, 2) if spec.implicit else (0, 0)
    side, fields = data.designs.size
    cold, wide = data.n_modes if side else 0, D1 + spec.noise_rank
    return RatingDraw(
        **_first_rows(spec, data, START_STD, FIRST_SCALE),
        effects=np.zeros((rows if spec.implicit or side else 0, D1), dtype=np.float32),
        features=np.zeros((implicit + side, D1), dtype=np.float32),
        strengths=np.ones(sets + fields),
        cold_weights=np.zeros((side, wide), dtype=np.float32),
        cold_strengths=np.ones(fields),
        cold_centres=np.zeros((cold, wide)),
        cold_covariances=np.tile(np.eye(wide), (cold, 1, 1)),
        temporal=np.zeros((effects, n), dtype=np.float32),
        temporal_settings=np.array(settings[:effects]).reshape(effects, 2),
        widths=np.full((data.shape[0], many), np.log(CUT_WIDTH)),
        width_centre=np.full(many, np.log(CUT_WIDTH)),
        width_spread=np.full(many, WIDTH_SPREAD),
        latent=np.zeros(n if spec.ordinal else 0, dtype=np.float32),
        proposals=np.array([1.0, *[0.1] * effects]),
    )


def _first_rows(spec: Spec, data: Data, std: float, scale: float) -> dict[str, Any]:
    rng = generator(spec.seed, START, spec.chain)
    rows, modes, D1, K = sum(data.shape), data.n_modes, spec.rank + 1, spec.noise_rank
    factors = np.zeros((rows, -(-max(spec.rank, 1) // 16) * 16), dtype=np.float32)
    factors[:, : spec.rank] = rng.normal(0.0, std, (rows, spec.rank))
    noise = np.ones((rows, K), dtype=np.float32)
    noise[data.part(modes - 1)] *= data.unit / max(K, 1)
    return {
        "epoch": 0,
        "factors": factors,
        "biases": np.zeros(rows, dtype=np.float32),
        "centres": np.zeros((modes, D1)),
        "precisions": np.tile(float(D1) * np.eye(D1), (modes, 1, 1)),
        "scales": np.full((modes, D1), scale),
        "noise": noise,
        "level": np.full(max(K, 1), data.unit / max(K, 1)),
        "fitted": np.zeros(data.n_here, dtype=np.float32),
    }


D = TypeVar("D", bound=State)


class Streams:
    """Random streams of a sweep's steps, and threads, which change no bit."""

    spec: Any
    n_jobs: int

    def __init__(self, spec: Any, n_jobs: int) -> None:
        self.spec, self.n_jobs = spec, n_jobs
        self.run: Run = partial(in_threads, n_jobs=n_jobs)

    def key(self, draw: State, *place: int) -> np.uint64:
        """Return the key of the streams of one step in one sweep."""
        return key(self.spec.seed, SWEEP, self.spec.chain, draw.epoch, *place)

    def rng(self, draw: State, *place: int) -> np.random.Generator:
        """Return the generator of one step in one sweep."""
        return generator(self.spec.seed, SWEEP, self.spec.chain, draw.epoch, *place)

    def over(self, tasks: Iterable[Any], kernel: Callable[..., None], *given: Any) -> None:
        """Call a kernel with every task, of rows or of series, and with what is given."""
        self.run(lambda task: kernel(task, *given), tasks)


class Workspace(Streams):
    """Data and model of a sweep, and arrays that its steps hand on."""

    data: Data
    burn_in: int
    root: Floats
    target: Floats
    residual: Floats

    spec: Spec

    def __init__(self, spec: Spec, data: Data, n_jobs: int = 1, burn_in: int = 0) -> None:
        super().__init__(spec, n_jobs)
        self.data, self.burn_in = data, burn_in
        self.root = np.ones(data.n_here, dtype=np.float32)  # of the precision of every observation
        self.target = np.empty(0, dtype=np.float32)  # what rows are to explain of it
        self.residual = self.target  # what is left once everything is explained

    def over_observations(self, work: Callable[[slice], None]) -> None:
        """Call ``work`` with chunks of observations."""
        in_threads(work, chunks(len(self.data)), self.n_jobs)

    def visited(self, mode: int, array: Floats) -> Floats:
        """Return an array in the order in which a mode visits observations."""
        if mode == 0:  # whose order is theirs
            return array
        index, out = self.data.index[mode], np.empty_like(array)

        def take(part: slice) -> None:
            np.take(array, index[part], out=out[part], mode="clip")

        self.over_observations(take)
        return out

    def largest_root(self) -> float:
        """Return the root of the largest precision."""
        return float(self.root.max(initial=0.0))

    def tune(self, draw: RatingDraw, number: int, accepted: float) -> None:
        """Let proposals reach farther if more of them were accepted than wanted, or less far."""
        if draw.epoch < self.burn_in:
            length = max(0.05, 1.0 / math.sqrt(draw.epoch))
            draw.proposals[number] *= math.exp((accepted - WANTED) * length)


class Step(Generic[D]):
    """A conditional: some unknowns are drawn, given all others."""

    work: Any
    spec: Any
    data: Any
    mode: int

    joins: int = 0  # the first sweep that it is part of, from 0: what explains most goes first

    def __init__(self, work: Any, mode: int = 0) -> None:
        self.work, self.spec, self.data, self.mode = work, work.spec, work.data, mode

    def __call__(self, draw: D) -> None:
        """Change the draw, and what the workspace hands on, once the step has joined in."""
        if draw.epoch >= self.joins:
            self._draw(draw)

    def _draw(self, draw: D) -> None:
        raise NotImplementedError


class Sweep(Generic[D]):
    """One sweep over all steps that have joined in, in their order."""

    work: Any
    steps: Sequence[Step[D]]

    def __init__(self, work: Any, steps: Sequence[Step[D]]) -> None:
        self.work, self.steps = work, steps

    def __call__(self, draw: D) -> EpochInfo:
        """Draw everything once more; the report is in standardised units."""
        for step in self.steps:
            step(draw)
        draw.epoch += 1
        n, square, weighted, log_root = self._sums()
        nll = 0.5 * (math.log(2.0 * math.pi) + weighted / n) - log_root / n
        return EpochInfo(draw.epoch, math.sqrt(square / n), nll)

    def _sums(self) -> Any:
        """Count observations, sum squares of residuals, these over variances, logs of roots."""
        residual, root = self.work.residual, self.work.root
        parts = (add_up(residual[p], root[p], NOTHING) for p in chunks(len(residual), PIECE))
        return len(residual), *added(list(parts))


def rows_of(draw: Draw, part: Any, rank: int) -> Array:
    """Return rows of a mode, the bias last, in double precision."""
    return np.column_stack([draw.factors[part, :rank], draw.biases[part]]).astype(np.float64)


def convergence(chains: Sequence[Any], names: list[str], first: int) -> dict[str, dict[str, float]]:
    """Split R-hat and effective sample size of chains: of every summary, and of predictions."""
    length = min(chain.epoch for chain in chains)
    traces = np.array([chain.trace[first:length] for chain in chains])
    probes = np.array([chain.probes[first:length] for chain in chains], dtype=np.float64)
    of_names, of_probes = (
        [(split_rhat(one), effective_size(one)) for one in np.moveaxis(draws, 2, 0)]
        for draws in (traces, probes)
    )
    found = dict(zip(names, of_names, strict=True))
    found["predictions (median)"] = tuple(np.median(of_probes, axis=0).tolist())
    return {name: {"rhat": r, "effective_size": n} for name, (r, n) in found.items()}


def split_rhat(chains: Array) -> float:
    """Return how much wider all draws together are than halves of chains: 1 when they agree.

    There is a row of draws per chain.

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


def effective_size(chains: Array) -> float:
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


def added(parts: Sequence[tuple[float, ...]]) -> Any:
    """Add the sums of pieces, in their order."""
    total = np.zeros(3)
    for square, weighted, log_root, product in parts:
        total += (square, weighted, log_root + math.log(product))
    return tuple(total.tolist())


@njit(nogil=True, error_model="numpy", cache=True)
def add_up(residual, root, before):
    """Add to squares of residuals, squares over variances, logs of the roots of precisions.

    The last of the four sums is a product of roots, whose logarithm is yet to be added.
    """
    square, weighted, log_root, product = before
    for n in range(np.uintp(len(residual))):
        e, r = np.float64(residual[n]), np.float64(root[n])
        square += e * e
        weighted += e * r * e * r
        product *= r  # one logarithm for many
        if product < 1e-200 or product > 1e200:
            log_root += math.log(product)
            product = 1.0
    return square, weighted, log_root, product
