"""What one worker of a cluster has: stripes of the longest mode with their ratings, for good.

Stripes of the other modes go from worker to worker, as the strata have it: a stratum has one block
for each of them. Workers send them to each other. Of a stratum, a worker visits first what it has
the stripes of and others wait for; so stripes are under way while it works. Workers of one machine
share the memory of stripes that travel, and only tell each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition
from typing import Any, NamedTuple

import numpy as np

from noisewise.engine import shared
from noisewise.engine.arrays import Array, Codes, Floats, Ints, Values
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.layout import (
    State,
    aligned_zeros,
    first_deviation,
    first_factors,
    set_header,
)
from noisewise.engine.sgd.stripe_plan import Block, Plan, Stripe
from noisewise.engine.training import pool
from noisewise.engine.workers import Peers, take

ANYBODY = -1  # has a stripe that all workers have

Encode = Callable[[Values], Floats]  # values as they are given -> standardised ones
Held = dict[Stripe, Floats]  # rows of stripes


class Stay(NamedTuple):
    """A stratum as it is visited: when, and who has every stripe before, meanwhile and then."""

    when: tuple[int, int]  # epoch, and place in its order
    way: list[Ints]


class Group(NamedTuple):
    """Stripes that go to another worker together, once all blocks are done."""

    to: int
    stripes: list[Stripe]
    blocks: set[int]


class Part:
    """What one worker has: ratings and rows of its stripes, and the stripes that come by."""

    plan: Plan
    number: int
    threads: int
    peers: Peers
    holders: Values
    arrival: Condition
    arrived: set[tuple[int, int, Stripe]]
    starts: Ints
    values: Floats
    n: int
    codes: tuple[Codes, ...]
    sizes: list[int]
    first: Ints
    together: Floats
    views: tuple[Floats, ...]
    shares: bool
    sums: Array
    truth: Floats
    places: Ints
    cells: tuple[Codes, ...]

    def __init__(
        self, plan: Plan, number: int, threads: int, observed: Sequence[Any],
        watched: Sequence[Any], encode: Encode, peers: Peers,
    ) -> None:  # fmt: skip
        self.plan, self.number, self.threads, self.peers = plan, number, threads, peers
        self.holders = np.full((plan.n_modes, plan.grid.side), ANYBODY)
        self.arrival, self.arrived = Condition(), set[tuple[int, int, Stripe]]()
        codes, values, _ = self._collected(observed)
        blocks = plan.grid.arrange(codes, encode(values))
        self.starts, self.values, self.n = blocks.starts, blocks.values, len(values)
        self.codes = self._local(blocks.codes)
        # Of the longest mode only its own rows, of the others all; of any number of modes the
        # kernel takes them one after another.
        self.sizes = [b - a for a, b in self._ranges]
        self.first = np.cumsum([0, *self.sizes[:-1]])
        self.together = aligned_zeros(sum(self.sizes), plan.params.layout.width)
        self.views = tuple(np.split(self.together, self.first[1:]))
        self.offered: int | None = None
        self.shares = False  # travelling stripes with all workers of this machine
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

    def offer(self) -> str | None:
        """Make room for travelling stripes that all workers of this machine share, if there is."""
        alone = self.peers.machines.count(self.peers.machines[self.number]) == 1
        if alone or self.peers.first(self.number) != self.number or self.plan.n_modes > 3:
            return None
        self.offered = shared.offered(self._n_travelling, self.plan.params.layout.width)
        return None if self.offered is None else shared.path_of(self.offered)

    @property
    def _n_travelling(self) -> int:
        return sum(n for m, n in enumerate(self.sizes) if m != self.plan.owner)

    def join(self, offers: list[str | None]) -> None:
        """Take the room of this machine's first worker for all stripes that travel."""
        path = offers[self.peers.first(self.number)]
        if path is None:
            return
        self.shares = True
        left, views = shared.opened(path, self._n_travelling, self.plan.params.layout.width), []
        for mode, n in enumerate(self.sizes):
            own = mode == self.plan.owner
            views.append(aligned_zeros(n, self.plan.params.layout.width) if own else left[:n])
            left = left if own else left[n:]
        self.views, self.together = tuple(views), self.together[:0]

    def begin(self) -> None:
        """Set all rows to what they start from."""
        if self.offered is not None:
            os.close(self.offered)  # all have opened it
            self.offered = None
        plan, layout = self.plan, self.plan.params.layout
        for view in self.views:
            view[:] = 0.0
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

    def epoch(self, epoch: int, variance: float) -> Array:
        """Visit every observation here once; return what blocks add to error and likelihood."""
        plan = self.plan
        order = strata.strata_of(plan.params, epoch, plan.n_strata)
        way = [self.holders, *plan.way(order)]
        given = strata.settings(plan.params, epoch, variance)
        travelling = [s for s in plan.stripes if s[0] != plan.owner]
        for to, stripes in self._leaving(travelling, way[0], way[1]).items():
            self._send(to, (epoch, 0), stripes)
        with pool(self.threads) as run:
            for position, stratum in enumerate(order):
                stay = Stay((epoch, position), way[position : position + 3])
                blocks = plan.blocks(self.number, stratum)
                first = sorted(blocks, key=lambda block: self._turn(stay, block[1]))
                visit = partial(self._visit, stratum, given, stay, self._groups(stay, blocks))
                run(visit, first)
        self.holders = way[-1]
        return self._finish()

    def _turn(self, stay: Stay, stripes: list[Stripe]) -> tuple[bool, bool]:
        """Return what to sort blocks by: what is here goes first, of that what others wait for."""
        return self._waits(stay, stripes), not self._leaving(stripes, *stay.way[1:])

    def _waits(self, stay: Stay, stripes: list[Stripe]) -> bool:
        return any(stay.way[0][s] not in (self.number, ANYBODY) for s in stripes)

    def _leaving(
        self, stripes: list[Stripe], now: Ints | None = None, then: Ints | None = None
    ) -> dict[int, list[Stripe]]:
        """Return the stripes that go from here to every other worker."""
        found: dict[int, list[Stripe]] = {}
        if now is None or then is None:
            return found
        for stripe in stripes:
            if now[stripe] == self.number != then[stripe]:
                found.setdefault(int(then[stripe]), []).append(stripe)
        return found

    def _groups(self, stay: Stay, blocks: list[Block]) -> dict[tuple[bool, int], Group]:
        """Return stripes that go together, by whether they have to come first, and whereto."""
        groups: dict[tuple[bool, int], Group] = {}
        for block, stripes in blocks:
            waits = self._waits(stay, stripes)
            for to, leaving in self._leaving(stripes, *stay.way[1:]).items():
                group = groups.setdefault((waits, to), Group(to, [], set()))
                group.stripes.extend(leaving)
                group.blocks.add(block)
        return groups

    def _visit(
        self, stratum: int, given: tuple[Any, ...], stay: Stay,
        groups: dict[tuple[bool, int], Group], block: Block,
    ) -> None:  # fmt: skip
        """Visit a block once its stripes are here; send off what is complete."""
        number, stripes = block
        waits = self._waits(stay, stripes)
        if waits:
            self._await([(*stay.when, s) for s in stripes
                         if stay.way[0][s] not in (self.number, ANYBODY)])  # fmt: skip
        layout, side = self.plan.params.layout, self.plan.grid.side
        kernel, codes, rows = self._kernel
        kernel(
            stratum, number, side, side, self.starts, *codes, self.values, *rows,
            layout.mean, layout.deviation, *given, self.sums,
        )  # fmt: skip
        epoch, position = stay.when
        for to in self._leaving(stripes, *stay.way[1:]):
            group = groups[waits, to]
            with self.arrival:
                group.blocks.remove(number)
                complete = not group.blocks
            if complete:
                self._send(to, (epoch, position + 1), group.stripes)

    def _await(self, wanted: list[tuple[int, int, Stripe]]) -> None:
        with self.arrival:
            self.arrival.wait_for(lambda: self.arrived.issuperset(wanted))
            self.arrived.difference_update(wanted)

    def _send(self, worker: int, when: tuple[int, int], stripes: list[Stripe]) -> None:
        near = self._is_near(worker)
        self.peers.send(worker, when, stripes, None if near else self.give(stripes))

    def _is_near(self, worker: int) -> bool:
        """Whether a worker has the same memory for stripes that travel."""
        return self.shares and self.peers.first(worker) == self.peers.first(self.number)

    def deliver(self, when: tuple[int, int], stripes: list[Stripe], rows: Any) -> None:
        """Take over stripes that another worker sent, for a stratum of an epoch.

        Rows are None where both have the same memory.
        """
        if rows is not None:
            self._install(stripes, rows)
        with self.arrival:
            self.arrived.update((*when, stripe) for stripe in stripes)
            self.arrival.notify_all()

    @property
    def _kernel(self) -> tuple[Callable[..., None], tuple[Any, ...], tuple[Any, ...]]:
        state = State(self.views, self.plan.params.layout)
        if self.plan.n_modes > 3:
            return strata.kernel_of(state, self.codes, self.together, self.first)
        return strata.kernel_of(state, self.codes)

    def _install(self, stripes: list[Stripe], rows: list[Floats]) -> None:
        for stripe, own in zip(stripes, rows, strict=True):
            self.views[stripe[0]][self.plan.rows(stripe)] = own

    def give(self, stripes: list[Stripe]) -> list[Floats]:
        """Return travelling stripes as they are here."""
        return [self.views[stripe[0]][self.plan.rows(stripe)] for stripe in stripes]

    def held(self) -> tuple[list[Stripe], list[Floats]]:
        """Return the travelling stripes that this worker alone has."""
        own = [s for s in self.plan.stripes
               if s[0] != self.plan.owner and self.holders[s] == self.number]  # fmt: skip
        return own, self.give(own)

    def share(self, *parts: tuple[list[Stripe], list[Floats]]) -> None:
        """Take over the stripes of all workers, so that all have all of them."""
        for worker, part in enumerate(parts):
            if worker != self.number and not self._is_near(worker):
                self._install(*part)
        self.holders = np.full_like(self.holders, ANYBODY)

    def _finish(self) -> Array:
        """Set to zero what should be; return what blocks add to error and likelihood."""
        for rows in (self.views[self.plan.owner], *self.held()[1]):
            strata.tidy(rows, self.plan.params, self.plan.n_modes)
        sums, self.sums = self.sums, np.zeros_like(self.sums)
        return sums

    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return State(self.views, self.plan.params.layout).is_finite()

    def rows(self) -> Held:
        """Return the rows that this worker answers for: its own, and stripes that it has."""
        plan = self.plan
        first = plan.own(self.number).start
        found = {}
        for number in range(*plan.cuts[self.number : self.number + 2]):
            rows = plan.rows((plan.owner, number))
            own = self.views[plan.owner][rows.start - first : rows.stop - first]
            found[plan.owner, number] = own
        stripes, parts = self.held()
        if self.number == 0:
            shared = [s for s in plan.stripes
                      if s[0] != plan.owner and self.holders[s] == ANYBODY]  # fmt: skip
            stripes, parts = [*stripes, *shared], [*parts, *self.give(shared)]
        return found | dict(zip(stripes, parts, strict=True))

    def keep(self) -> None:
        """Remember these rows as they are now."""
        self.kept = {stripe: rows.copy() for stripe, rows in self.rows().items()}

    def recall(self, rows: Held) -> None:
        """Remember rows, of all stripes, for all workers."""
        self.kept = rows

    def remembered(self) -> Held:
        """Return the rows that were remembered."""
        return self.kept

    def restore(self, rows: Held) -> None:
        """Set rows, of all stripes, to what they once were."""
        plan, first = self.plan, self.plan.own(self.number).start
        self.holders = np.full_like(self.holders, ANYBODY)
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
