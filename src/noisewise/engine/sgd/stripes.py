"""What one worker of a cluster has: stripes of the longest mode with their ratings, for good.

Stripes of the other modes go from worker to worker, as the strata have it: a stratum has one block
for each of them. A worker's blocks of a stratum are taken in two halves, so that stripes are under
way while it works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from noisewise.engine.arrays import Array, Codes, Counts, Floats, Ints, Values
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.layout import (
    Params,
    State,
    aligned_zeros,
    first_deviation,
    first_factors,
    set_header,
)
from noisewise.engine.training import pool
from noisewise.engine.workers import cut_evenly, take

HALVES = 2  # of a worker's blocks of a stratum: stripes of one travel while the other is worked on

Stripe = tuple[int, int]  # mode and number
Encode = Callable[[Values], Floats]  # values as they are given -> standardised ones
Held = dict[Stripe, Floats]  # rows of stripes


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

    def blocks(self, worker: int, stratum: int) -> list[tuple[int, list[Stripe]]]:
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


class Call(NamedTuple):
    """Blocks of one stratum for one worker, with the stripes that they need."""

    worker: int
    stratum: int
    blocks: list[int]
    stripes: list[Stripe]


def calls_of(plan: Plan, epoch: int) -> list[Call]:
    """Return all calls of an epoch, in the order of strata."""
    calls = []
    for stratum in strata.strata_of(plan.params, epoch, plan.n_strata):
        for worker in range(len(plan.cuts) - 1):
            blocks = plan.blocks(worker, stratum)
            middle = -(-len(blocks) // HALVES)
            for some in filter(None, (blocks[:middle], blocks[middle:])):
                stripes = [stripe for _, needed in some for stripe in needed]
                calls.append(Call(worker, stratum, [block for block, _ in some], stripes))
    return calls


class Part:
    """What one worker has: ratings and rows of its stripes, and the stripes that come by."""

    def __init__(
        self, plan: Plan, number: int, threads: int, observed: Sequence[Any],
        watched: Sequence[Any], encode: Encode,
    ) -> None:  # fmt: skip
        self.plan, self.number, self.threads = plan, number, threads
        codes, values, _ = self._collected(observed)
        blocks = plan.grid.arrange(codes, encode(values))
        self.starts, self.values, self.n = blocks.starts, blocks.values, len(values)
        self.codes = self._local(blocks.codes)
        # Of the longest mode only its own rows, of the others all; of any number of modes the
        # kernel takes them one after another.
        sizes = [b - a for a, b in self._ranges]
        self.first = np.cumsum([0, *sizes[:-1]])
        self.together = aligned_zeros(sum(sizes), plan.params.layout.width)
        self.views = tuple(np.split(self.together, self.first[1:]))
        self.sums = np.zeros((len(self.starts) - 1, 2))
        self.kept: Held = {}
        cells, self.truth, self.places = self._collected(watched)
        placed = tuple(order[c] for order, c in zip(plan.grid.order, cells, strict=True))
        self.cells = self._local(placed)

    @property
    def _ranges(self) -> list[tuple[int, int]]:
        """Rows of every mode that there is room for here."""
        plan, own = self.plan, self.plan.own(self.number)
        return [
            (own.start, own.stop) if m == plan.owner else (0, n)
            for m, n in enumerate(plan.grid.shape)
        ]

    def _collected(self, chunks: Sequence[Any]) -> tuple[tuple[Codes, ...], Floats, Ints]:
        """Return codes and values of this worker's observations, and which ones they are."""
        plan, owner, found = self.plan, self.plan.owner, []
        low, high = plan.cuts[self.number : self.number + 2]
        before = 0
        for ref in chunks:
            (chunk,) = take([ref])
            stripe = plan.grid.stripes[owner][chunk[owner]]
            own = np.flatnonzero((stripe >= low) & (stripe < high))
            found.append([*(part[own] for part in chunk[: plan.n_modes + 1]), own + before])
            before += len(stripe)
        if not found:
            empty = [np.empty(0, np.int32)] * plan.n_modes
            found = [[*empty, np.empty(0, np.float32), np.empty(0, np.int64)]]
        *codes, values, places = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return tuple(codes), values, places

    def _local(self, codes: tuple[Codes, ...]) -> tuple[Codes, ...]:
        """Count rows of the longest mode from the first that is here."""
        first = np.int32(self.plan.own(self.number).start)
        return tuple(c - first if m == self.plan.owner else c for m, c in enumerate(codes))

    def held_out(self) -> Ints:
        """Return which of the held-out observations are here."""
        return self.places

    def begin(self) -> None:
        """Set all rows to what they start from."""
        plan, layout = self.plan, self.plan.params.layout
        self.together[:] = 0.0
        for mode, drawn, rows in first_factors(plan.params, plan.grid.shape):
            self._set(mode, layout.parts["mean"], drawn, rows)
        for mode, (low, high) in enumerate(self._ranges):
            set_header(self.views[mode], plan.counts[mode][low:high], plan.params)

    def release(self, variance: float) -> None:
        """Start the deviation factors."""
        plan, columns = self.plan, self.plan.params.layout.parts["deviation"]
        for mode, drawn, rows in first_deviation(plan.params, plan.grid.shape, variance):
            self._set(mode, columns, drawn, rows)

    def _set(self, mode: int, columns: slice, drawn: Any, rows: slice) -> None:
        """Set columns of those of the rows that are here."""
        low, high = self._ranges[mode]
        first, last = max(rows.start, low), min(rows.stop, high)
        if first < last:
            some = drawn[first - rows.start : last - rows.start]
            self.views[mode][first - low : last - low, columns] = some

    def visit(
        self, stratum: int, blocks: list[int], settings: tuple[Any, ...],
        came: list[Stripe], leave: list[Stripe], *stripes: Floats,
    ) -> Any:  # fmt: skip
        """Visit blocks of a stratum with stripes that came; return those that leave."""
        self.install(came, *stripes)
        plan, layout, side = self.plan, self.plan.params.layout, self.plan.grid.side
        kernel, codes, rows = self._kernel

        def work(block: int) -> None:
            kernel(
                stratum, block, side, side, self.starts, *codes, self.values, *rows,
                layout.mean, layout.deviation, *settings, self.sums,
            )  # fmt: skip

        with pool(min(self.threads, len(blocks))) as run:
            run(work, blocks)
        found = [self.views[stripe[0]][plan.rows(stripe)] for stripe in leave]
        return found[0] if len(found) == 1 else tuple(found)

    @property
    def _kernel(self) -> tuple[Callable[..., None], tuple[Any, ...], tuple[Any, ...]]:
        state = State(self.views, self.plan.params.layout)
        if self.plan.n_modes > 3:
            return strata.kernel_of(state, self.codes, self.together, self.first)
        return strata.kernel_of(state, self.codes)

    def install(self, came: list[Stripe], *stripes: Floats) -> None:
        """Take over stripes of another worker."""
        for stripe, rows in zip(came, stripes, strict=True):
            self.views[stripe[0]][self.plan.rows(stripe)] = rows

    def give(self, stripes: list[Stripe]) -> Any:
        """Return stripes as they are here."""
        found = [self.views[stripe[0]][self.plan.rows(stripe)] for stripe in stripes]
        return found[0] if len(found) == 1 else tuple(found)

    def finish(self) -> Array:
        """Set to zero what should be; return what blocks add to error and likelihood."""
        for rows in self.views:
            strata.tidy(rows, self.plan.params, self.plan.n_modes)
        sums, self.sums = self.sums, np.zeros_like(self.sums)
        return sums

    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return State(self.views, self.plan.params.layout).is_finite()

    def rows(self, held: list[Stripe]) -> Held:
        """Return the rows that only this worker has: its own, and stripes that it holds."""
        plan = self.plan
        first = plan.own(self.number).start
        found = {}
        for number in range(*plan.cuts[self.number : self.number + 2]):
            rows = plan.rows((plan.owner, number))
            own = self.views[plan.owner][rows.start - first : rows.stop - first]
            found[plan.owner, number] = own
        return found | {stripe: self.views[stripe[0]][plan.rows(stripe)] for stripe in held}

    def keep(self, held: list[Stripe]) -> None:
        """Remember these rows as they are now."""
        self.kept = {stripe: rows.copy() for stripe, rows in self.rows(held).items()}

    def recall(self, rows: Held) -> None:
        """Remember rows, of all stripes, for all workers."""
        self.kept = rows

    def remembered(self) -> Held:
        """Return the rows that were remembered."""
        return self.kept

    def restore(self, rows: Held) -> None:
        """Set rows, of all stripes, to what they once were."""
        plan, first = self.plan, self.plan.own(self.number).start
        for stripe, part in rows.items():
            to = plan.rows(stripe)
            if stripe[0] != plan.owner:
                self.views[stripe[0]][to] = part
            elif plan.cuts[self.number] <= stripe[1] < plan.cuts[self.number + 1]:
                self.views[stripe[0]][to.start - first : to.stop - first] = part

    def predict(self, epoch: int, variance: float) -> tuple[Floats, Floats]:
        """Mean and variance of the held-out observations that are here."""
        state = State(self.views, self.plan.params.layout, epoch, variance)
        return strata.predict(state, self.cells, self.plan.params, self.threads)
