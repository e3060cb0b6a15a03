"""A worker's observations in the order of one mode: a view, and the steps that draw for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Array, Codes, Floats, Ints, Values
from noisewise.engine.data import Data, Spec
from noisewise.engine.gibbs import sweep
from noisewise.engine.gibbs.steps import ordinal, rows, temporal, variances
from noisewise.engine.gibbs.sweep import RatingDraw, Workspace
from noisewise.engine.training import dealt

BUFFER = 8192  # observations that numpy adds up at a time when it casts them


class Layout(NamedTuple):
    """Which rows are whose, and what all workers know of the data."""

    spec: Spec
    shape: tuple[int, ...]
    starts: tuple[Ints, ...]  # per mode, the first visit of every row, of all observations
    cuts: tuple[list[int], ...]  # per mode, worker w has the rows from cuts[w] to cuts[w + 1]
    anchor: int
    n_levels: int

    def own(self, mode: int, worker: int) -> slice:
        """Return the rows of a mode that a worker has."""
        return slice(self.cuts[mode][worker], self.cuts[mode][worker + 1])

    def visits(self, worker: int, mode: int = 0) -> slice:
        """Return which of all observations are a worker's, in the order of a mode."""
        own = self.own(mode, worker)
        return slice(int(self.starts[mode][own.start]), int(self.starts[mode][own.stop]))


@dataclass(frozen=True)
class Shard(Data):
    """A worker's observations of one mode, in its order; other modes have no order here."""

    mode: int
    own: slice  # rows of the mode

    @cached_property
    def others(self) -> list[npt.NDArray[np.int32]]:
        """Places in all other modes; of this mode only."""
        found: list[Any] = [None] * self.n_modes
        found[self.mode] = np.delete(self.places, self.mode, 0)[:, self.index[self.mode]]
        return found

    @cached_property
    def tasks(self) -> list[list[Codes]]:
        """Rows dealt into tasks of about equal work; of this mode only."""
        found: list[Any] = [None] * self.n_modes
        counts = np.diff(self.starts[self.mode])[self.own]
        order = np.argsort(-counts, kind="stable") + self.own.start
        found[self.mode] = dealt(order.astype(np.int32))
        return found


class ShardWorkspace(Workspace):
    """The workspace of a view, whose arrays are in its order."""

    largest: float = 0.0

    def visited(self, mode: int, array: Floats) -> Floats:
        """Return an array as it is."""
        return array

    def largest_root(self) -> float:
        """Return the root of the largest precision, of all workers."""
        return self.largest


class ShardLevels(ordinal.Levels):
    """Levels of a worker's users."""

    def drawn(self, draw: RatingDraw, step: float) -> Any:
        """Move cut-points, then draw hidden values; return which moves were accepted."""
        return self._moved(draw, step, self.work.key(draw, sweep.LEVELS))

    def likelihoods(self, draw: RatingDraw, log_scale: float) -> Array:
        """Log-likelihood, slope and curvature of every user."""
        return self._likelihoods(draw, draw.mean(), log_scale)


class ShardEffect(temporal.TemporalEffect):
    """A temporal effect of a worker's rows."""

    def drawn(self, draw: RatingDraw, phi: float, variance: float) -> None:
        """Draw its values."""
        key = self.work.key(draw, sweep.TEMPORAL, self.number)
        self._draw_effect(draw, phi, variance, key)

    def scores(self, draw: RatingDraw, phi: Values, variance: Values) -> Values:
        """Log-likelihood of every row for each pair of phi and variance."""
        return self._row_scores(draw, phi, variance)


class ShardNoise(variances.LowRankNoise):
    """Noise of a worker's rows."""

    def drawn(self, draw: RatingDraw, mode: int, level: Array) -> None:
        """Draw the factors of the variance of a mode's rows."""
        self._draw_mode(draw, mode, level, self.work.key(draw, sweep.NOISE, mode))


class View:
    """Observations of one mode, what is drawn for them, and the steps that do."""

    shard: Shard
    work: ShardWorkspace
    draw: RatingDraw
    precisions: variances.Precisions
    target: rows.Target
    rows: rows.Rows
    noise: ShardNoise

    def __init__(self, shard: Shard, work: ShardWorkspace, draw: RatingDraw) -> None:
        n, effects = len(shard), len(draw.temporal)
        self.shard, self.work = shard, work
        self.draw = replace(
            draw, fitted=np.zeros(n, dtype=np.float32),
            temporal=np.zeros((effects, n), dtype=np.float32),
            latent=np.zeros(n if work.spec.ordinal else 0, dtype=np.float32),
        )  # fmt: skip
        self.precisions, self.target = variances.Precisions(work), rows.Target(work)
        self.rows, self.noise = rows.Rows(work, shard.mode), ShardNoise(work, 0)


def level_numbers(values: Values, levels: Floats) -> Floats:
    """Return the numbers of the levels that values are.

    Examples
    --------
    >>> level_numbers(np.array([3.0, 1.0]), np.array([1.0, 2.0, 3.0])).tolist()
    [2.0, 0.0]
    """
    return np.searchsorted(levels, values).astype(np.float32)


def sum_of(name: str, part: Floats) -> float:
    """Sum squares, logs or numbers of at most ``BUFFER`` observations."""
    if name == "square":
        return float(np.einsum("i,i->", part, part, dtype=np.float64))
    return float((np.log(part) if name == "log" else part).sum(dtype=np.float64))
