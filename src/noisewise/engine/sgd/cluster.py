"""The block strata over the workers of a cluster: the bits of one machine on any number of them.

Workers have stripes (see ``stripes``), and send them to each other: an epoch is one call to each.

Where a worker is lost, all are started anew, from what was kept last or else from the beginning,
and go once more through the epochs since: they end with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from noisewise.engine.arrays import Arrays, Counts, Floats, Source
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.layout import Params, State, aligned_zeros
from noisewise.engine.sgd.stripe_plan import Plan
from noisewise.engine.sgd.stripes import Encode, Held, Part
from noisewise.engine.training import EpochInfo
from noisewise.engine.workers import Team, persistently, put


class SpreadState:
    """A state whose rows the workers have: what training carries on."""

    spread: Spread
    epoch: int
    variance: float
    kept: bool

    def __init__(self, spread: Spread, epoch: int, variance: float, *, kept: bool = False) -> None:
        self.spread, self.epoch, self.variance, self.kept = spread, epoch, variance, kept

    def copy(self) -> Self:
        """Let workers remember the rows as they are now, instead of those before."""
        self.spread.remember()
        return type(self)(self.spread, self.epoch, self.variance, kept=True)

    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return self.kept or self.spread.is_finite()

    def pack(self) -> tuple[dict[str, Any], Arrays]:
        """Header and arrays of a checkpoint, in the order of rows."""
        header = {"epoch": self.epoch, "variance": self.variance}
        rows = self.spread.rows(self)
        self.spread.saved[self.kept] = self.epoch, self.variance, rows
        return header, {f"rows{mode}": own for mode, own in enumerate(rows)}

    def restored(self, source: Source) -> SpreadState:
        """Return a state like this one with what ``pack`` gave."""
        plan = self.spread.plan
        width = plan.params.layout.width
        epoch, variance = source.whole("epoch"), source.real("variance", above=0.0)
        rows = [
            source.array(f"rows{m}", "float32", n, width) for m, n in enumerate(plan.grid.shape)
        ]
        return self.spread.start_from(epoch, variance, rows)


class Spread:
    """The ratings of a training on workers, and what all of them do together."""

    team: Team
    params: Params
    counts: tuple[Counts, ...]
    encode: Encode
    observed: Sequence[Any]
    watched: Sequence[Any]
    n: int
    state: SpreadState
    plan: Plan
    places: list[Any]

    def __init__(
        self,
        team: Team,
        params: Params,
        counts: tuple[Counts, ...],
        observed: Sequence[Any],
        watched: Sequence[Any],
        encode: Encode,
    ) -> None:
        self.team, self.params, self.counts, self.encode = team, params, counts, encode
        self.observed, self.watched = observed, watched  # references to chunks
        self.n = int(counts[0].sum())
        # What was kept last of the state and of the best one: epoch, variance and rows.
        self.saved: dict[bool, tuple[int, float, list[Floats]]] = {}
        self.best: int | None = None  # the epoch that workers remember
        self.state = SpreadState(self, 0, 1.0)
        team.start()
        self._surely(self._build)

    def _build(self) -> None:
        """Give workers their ratings."""
        self.plan = Plan.of(self.params, self.counts, len(self.team))
        common = put(self.plan)
        self.team.make(Part, [
            (common, worker, self.team.threads, self.observed, self.watched, self.encode,
             self.team.peers)
            for worker in range(len(self.team))
        ])  # fmt: skip
        self.places = self.team.all("held_out")
        self.team.all("join", self.team.all("offer"))
        self.team.all("begin")  # before another sends anything

    def start(self) -> SpreadState:
        """Return the state before the first epoch."""
        return self.state

    def start_from(self, epoch: int, variance: float, rows: list[Floats]) -> SpreadState:
        """Return a state, with rows as ``rows`` returned them, to go on from.

        The first is the state itself; another is the best one, that is remembered.
        """
        best = bool(self.saved)
        self.saved[best] = epoch, variance, rows
        if best:
            self.best = epoch
        else:
            self.state = SpreadState(self, epoch, variance)
        self._surely(self._restore)
        return SpreadState(self, epoch, variance, kept=True) if best else self.state

    def _restore(self) -> SpreadState:
        """Set workers to what was kept last, or to the start; return that state."""
        epoch, variance = 0, 1.0
        if False in self.saved:
            epoch, variance, rows = self.saved[False]
            self.team.all("restore", put(self._by_stripe(rows)))
        if True in self.saved and self.saved[True][0] == self.best:
            self.team.call(0, "recall", self._by_stripe(self.saved[True][2]))
        return SpreadState(self, epoch, variance)

    def _by_stripe(self, rows: list[Floats]) -> Held:
        return {stripe: rows[stripe[0]][self.plan.rows(stripe)] for stripe in self.plan.stripes}

    def _surely(self, work: Callable[[], Any]) -> Any:
        """Do something on workers; where some are lost, bring all back to where training is."""

        def mend() -> None:
            self.team.restart()
            self._build()
            at = self._restore()
            while at.epoch < self.state.epoch:
                self._epoch(at)
                if at.epoch == self.best:
                    self.team.all("keep")

        return persistently(work, mend)

    def epoch(self, state: SpreadState) -> EpochInfo:
        """Visit every observation once; report in standardised units."""
        info: EpochInfo = self._surely(lambda: self._epoch(state))
        return info

    def _epoch(self, state: SpreadState) -> EpochInfo:
        if state.epoch == self.params.warmup:
            self.team.all("release", state.variance)  # before another sends anything
        total = np.sum(self.team.all("epoch", state.epoch, state.variance), axis=0)
        state.epoch, state.variance, info = strata.reported(
            total, self.n, self.params, state.epoch, state.variance, self.plan.n_modes
        )
        return info

    def remember(self) -> None:
        """Let workers remember the rows as they are."""
        self._surely(lambda: self.team.all("keep"))
        self.best = self.state.epoch

    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return all(self._surely(lambda: self.team.all("is_finite")))

    def rows(self, state: SpreadState) -> list[Floats]:
        """Return all rows as they are, or of a state that is remembered, mode by mode."""

        def gather() -> list[Any]:
            if state.kept:
                return self.team.all("remembered")
            return self.team.all("rows")

        parts = self._surely(gather)
        rows = [aligned_zeros(n, self.params.layout.width) for n in self.plan.grid.shape]
        for part in parts:
            for stripe, own in part.items():
                rows[stripe[0]][self.plan.rows(stripe)] = own
        return rows

    def predict(self, state: SpreadState) -> tuple[Floats, Floats]:
        """Mean and variance of held-out observations, in standardised units and in their order."""
        found = self._surely(lambda: self._predict(state))
        mean, variance = np.empty((2, sum(map(len, self.places))), dtype=np.float32)
        for places, (own, spread) in zip(self.places, found, strict=True):
            mean[places], variance[places] = own, spread
        return mean, variance

    def _predict(self, state: SpreadState) -> list[Any]:
        """Send all stripes to all workers, and let them predict."""
        self.team.all("share", *self.team.ask("held"))
        return self.team.all("predict", state.epoch, state.variance)

    def finished(self, state: SpreadState) -> State:
        """Return a state with its rows in one place."""
        rows = tuple(self.rows(state))
        return State(rows, self.params.layout, state.epoch, state.variance)
