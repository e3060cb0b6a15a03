"""Which rows are in which stripe, and which worker of a cluster has which stripe when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisewise.engine.arrays import Counts, Ints
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.layout import Params
from noisewise.engine.workers import cut_evenly

Stripe = tuple[int, int]  # mode and number
Block = tuple[int, list[Stripe]]  # number in its stratum, and the stripes that travel to it


@dataclass(frozen=True)
class Plan:
    """Which rows are in which stripe, and which worker has which stripes of the longest mode."""

    params: Params
    grid: strata.Grid
    counts: tuple[Counts, ...]  # in the order of rows
    owner: int  # the longest mode
    bounds: tuple[Ints, ...]  # per mode, the first row of every stripe, and the end
    cuts: list[int]  # worker w has the stripes from cuts[w] to cuts[w + 1]

    @classmethod
    def of(cls, params: Params, counts: tuple[Counts, ...], workers: int) -> Plan:
        """Deal rows into stripes, and stripes to workers."""
        grid = strata.Grid.deal(counts, params.layout.width)
        bounds = tuple(
            np.concatenate([[0], np.cumsum(np.bincount(stripe, minlength=grid.side))])
            for stripe in grid.stripes
        )
        placed = tuple(
            own[np.argsort(order)] for own, order in zip(counts, grid.order, strict=True)
        )
        owner = int(np.argmax(grid.shape))
        weights = np.add.reduceat(placed[owner], bounds[owner][:-1])
        return cls(params, grid, placed, owner, bounds, cut_evenly(weights, workers))

    @property
    def n_modes(self) -> int:
        """The number of modes."""
        return len(self.grid.shape)

    @property
    def stripes(self) -> list[Stripe]:
        """All stripes of all modes."""
        return [(m, k) for m in range(self.n_modes) for k in range(self.grid.side)]

    @property
    def n_strata(self) -> int:
        """How many strata there are."""
        return int(self.grid.side ** (self.n_modes - 1))

    def rows(self, stripe: Stripe) -> slice:
        """Return the rows of a stripe."""
        mode, number = stripe
        return slice(int(self.bounds[mode][number]), int(self.bounds[mode][number + 1]))

    def own(self, worker: int) -> slice:
        """Return the rows of the longest mode that a worker has."""
        first, last = (int(self.bounds[self.owner][cut]) for cut in self.cuts[worker : worker + 2])
        return slice(first, last)

    def blocks(self, worker: int, stratum: int) -> list[Block]:
        """Return a worker's blocks of a stratum, each with the stripes that travel to it."""
        side, ahead = self.grid.side, [0] * self.n_modes
        for mode in reversed(range(1, self.n_modes)):
            stratum, ahead[mode] = divmod(stratum, side)
        found = []
        for stripe in range(self.cuts[worker], self.cuts[worker + 1]):
            block = (stripe - ahead[self.owner]) % side
            others = [m for m in range(self.n_modes) if m != self.owner]
            found.append((block, [(m, (block + ahead[m]) % side) for m in others]))
        return found

    def way(self, order: Sequence[int]) -> Ints:
        """Return which worker has every stripe of every mode in strata of an order."""
        side, ahead = self.grid.side, np.zeros((self.n_modes, len(order)), dtype=np.int64)
        left = np.asarray(order)
        for mode in reversed(range(1, self.n_modes)):
            left, ahead[mode] = np.divmod(left, side)
        worker_of = np.repeat(np.arange(len(self.cuts) - 1), np.diff(self.cuts))
        moved = (ahead[self.owner] - ahead).T[:, :, None]
        return np.asarray(worker_of[(np.arange(side) + moved) % side])
