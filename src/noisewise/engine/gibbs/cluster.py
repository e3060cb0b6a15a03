"""The sampler of ratings on a cluster: the draws of one machine on any number of workers.

The lead, which runs this, has the draw of all rows and small things; workers have observations
(see ``shards``) and draw rows. Rows have random streams of their own, so it does not matter who
draws them.

Where a worker is lost, all are started anew, from what was kept last or else from the beginning,
and go once more through the sweeps since: they end with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Counts, Floats, Ints, Values
from noisewise.engine.data import Data, Scale, Spec, Timeline
from noisewise.engine.gibbs import sweep
from noisewise.engine.gibbs.cluster_steps import (
    SpreadData,
    SpreadSweep,
    SpreadWorkspace,
    rating_steps,
)
from noisewise.engine.gibbs.kept import Shelf, SpreadDraws, give, shares
from noisewise.engine.gibbs.posterior import RatingPosterior
from noisewise.engine.gibbs.sampler import Chain, RatingSampler
from noisewise.engine.gibbs.schedule import Schedule
from noisewise.engine.gibbs.shards import Shards
from noisewise.engine.gibbs.snapshots import rating_snapshot
from noisewise.engine.gibbs.steps import regression
from noisewise.engine.gibbs.sweep import RatingDraw, Snapshot, Sweep
from noisewise.engine.gibbs.views import Layout
from noisewise.engine.sharded import Sharded
from noisewise.engine.training import EpochInfo
from noisewise.engine.workers import Team, cut_evenly, persistently, put

T = TypeVar("T")

OF_OBSERVATIONS = ("fitted", "temporal", "latent")


class SpreadSampler(RatingSampler):
    """A sampler of ratings on a cluster; ``chunks`` are references to observations.

    A chunk has the codes of every mode, values, and times if the model follows them; ``encode``
    standardises values.
    """

    team: Team
    chunks: Sequence[Any]
    encode: Callable[[Values], Floats]
    layout: Layout
    work: SpreadWorkspace

    def __init__(
        self,
        team: Team,
        chunks: Sequence[Any],
        encode: Callable[[Values], Floats],
        spec: Spec,
        scale: Scale,
        counts: tuple[Counts, ...],
        schedule: Schedule,
        held_out: Any,
        shelf: Callable[[int], Shelf] | None = None,
    ) -> None:
        self.team, self.chunks, self.encode, self.shelf = team, chunks, encode, shelf
        self.reload: Callable[[], Chain[RatingDraw] | None] = lambda: None  # what was kept last
        data = SpreadData.of(counts)
        team.start()

        def begin() -> None:
            self._build(spec, data, scale)
            timeline = self._timeline(data) if spec.time else None
            given = spec, data, scale, counts, timeline, schedule, held_out, team.threads
            super(SpreadSampler, self).__init__(*given)

        persistently(begin, team.restart)

    def surely(self, work: Callable[[], T], chain: Chain[RatingDraw] | None = None) -> T:
        """Do something on workers; where some are lost, bring others to where a chain is.

        Without a chain they only get their observations.
        """
        return persistently(work, self._rebuild if chain is None else partial(self._mend, chain))

    def _build(self, spec: Spec, data: Data, scale: Scale) -> None:
        """Give workers their observations."""
        team = self.team
        weights = [np.diff(starts) + spec.rank / 4.0 + 1.0 for starts in data.starts]
        cuts = tuple(cut_evenly(weight, len(team)) for weight in weights)
        anchor, n_levels = scale.anchor, len(scale.levels)
        self.layout = Layout(spec, data.shape, data.starts, cuts, anchor, n_levels)
        common = put(self.layout)
        team.make(Shards, [
            (common, worker, team.threads, self.chunks, self.encode) for worker in range(len(team))
        ])  # fmt: skip
        if spec.implicit:
            blocks = -(-(spec.rank + 1) // regression.BLOCK)
            for mode in (0, 1):
                parts = team.ask("seen_with", mode)
                for worker in range(min(blocks, len(team))):
                    team.call(worker, "know", mode, *parts)

    def _timeline(self, data: Data) -> Timeline:
        both = [zip(*self.team.all("timeline", mode), strict=True) for mode in (0, 1)]
        times, others = zip(*([np.concatenate(part) for part in one] for one in both), strict=True)
        return Timeline(data.starts, times, others)

    def _sweep(
        self, spec: Spec, data: Data, scale: Scale, n_jobs: int, burn_in: int
    ) -> Sweep[RatingDraw]:
        self.work = SpreadWorkspace(self.team, self.layout, data, burn_in)
        self.work.n_jobs = n_jobs  # for predictions of held-out cells
        return SpreadSweep(self.work, rating_steps(self.work, scale.anchor))

    def _places(self, picks: Ints) -> npt.NDArray[np.int32]:
        places = np.max(self.team.all("places_at", picks.ravel()), axis=0)
        modes = np.arange(self.data.n_modes)
        cube = places.reshape(self.data.n_modes, *picks.shape)
        return np.ascontiguousarray(cube[modes, modes])

    def start(self) -> Chain[RatingDraw]:
        """Return a chain before its first sweep."""
        return self.surely(self._start)

    def _start(self) -> Chain[RatingDraw]:
        chain = super().start()
        self._bring(chain)
        return chain

    def _rebuild(self) -> None:
        self.team.restart()
        self._build(self.spec, self.data, self.scale)
        self.work.layout = self.layout

    def _bring(self, chain: Chain[RatingDraw]) -> None:
        """Set workers to a chain; a draw with observations, which was kept, gives them away."""
        draw = chain.draw
        self.work.spread(draw)
        if len(draw.fitted):
            given = {name: getattr(draw, name) for name in OF_OBSERVATIONS}
            self.team.all("set_observed", put(given))
            for name, array in given.items():
                setattr(draw, name, array[..., :0])
            if self.spec.time:
                for number, (mode, _) in enumerate(sweep.EFFECTS):
                    self.work.exchange(str(number), mode)

    def whole(self, chain: Chain[RatingDraw]) -> Chain[RatingDraw]:
        """Return a chain as one machine has it, with what is drawn for observations."""
        parts = self.surely(lambda: self.team.all("observed"), chain)
        found: dict[str, Any] = {
            n: np.concatenate([p[n] for p in parts], axis=-1) for n in OF_OBSERVATIONS
        }
        return replace(chain, draw=replace(chain.draw, **found))

    def resume(self, chain: Chain[RatingDraw]) -> None:
        """Set workers to a chain that ``whole`` returned; it loses its observations."""
        self.surely(partial(self._bring, chain))

    def step(self, chain: Chain[RatingDraw]) -> EpochInfo:
        """Sweep once, and note what came of it; the report is in units of the values."""
        before = chain.epoch
        return persistently(
            lambda: super(SpreadSampler, self).step(chain), lambda: self._mend(chain, before)
        )

    def _mend(self, chain: Chain[RatingDraw], epoch: int | None = None) -> None:
        """Bring workers, and a chain, to where they were after so many sweeps."""
        done = chain.epoch if epoch is None else epoch
        self._rebuild()
        again = self.reload() or super().start()
        self._bring(again)
        while again.epoch < done:
            super().step(again)
        vars(chain).update(vars(again))

    def _room(self, one: Snapshot) -> Snapshot:
        """Return room with the lead for what is small; rows are kept by workers."""
        rows = {name: a for name, a in one.items() if shares(name, self.layout) is not None}
        small = super()._room({name: array for name, array in one.items() if name not in rows})
        given = self.team, lambda: self.layout, self.schedule.room
        spread = {name: SpreadDraws.room(name, *given, array) for name, array in rows.items()}
        return {name: small.get(name, spread.get(name)) for name in one}

    def _keep(self, chain: Chain[RatingDraw], one: Snapshot) -> None:
        rows = {n: a[None] for n, a in one.items() if isinstance(chain.kept[n], SpreadDraws)}
        give(self.team, self.layout, [chain.n_kept], rows)
        super()._keep(chain, {name: array for name, array in one.items() if name not in rows})

    def release(self, chain: Chain[RatingDraw]) -> None:
        """Bring the draws of a chain here, before another begins."""
        chain.kept = self.surely(
            lambda: {n: np.asarray(a[: chain.n_kept]) for n, a in chain.kept.items()}, chain
        )

    def posterior(self, chains: list[Chain[RatingDraw]]) -> RatingPosterior:
        """Return the draws that chains have kept: here, or as shards that workers write."""
        last = chains[-1]
        places = self._stay(last).tolist()
        if self.shelf is None or not places:
            return self.surely(lambda: super(SpreadSampler, self).posterior(chains), last)
        return self.as_posterior(self.surely(lambda: self._written(last.kept, places), last))

    def _written(self, kept: Snapshot, places: list[int]) -> Snapshot:
        """Let every worker write its rows of some draws; return these draws, wherever they are."""
        assert self.shelf is not None
        shelf = self.shelf(len(self.team))
        each = [(shelf, number, places) for number in range(len(self.team))]
        try:
            rounded = [set(own) for own in self.team.all("write_kept", each=each)]
        except BaseException:
            shelf.discard()
            raise
        found = {}
        for name, array in kept.items():
            keys = {share.key for share in shares(name, self.layout) or ()}
            bytewise = all(keys <= own for own in rounded)
            found[name] = Sharded(partial(shelf.open, name), bytewise) if keys else array[places]
        return found

    def _roots(self) -> tuple[float, float]:
        n = len(self.data)
        return self.work.total("log") / n, self.work.total("plain") / n

    def _look(self, draw: RatingDraw) -> Any:
        return np.sum(self.team.all("look_at", self.looked), axis=0)[:3]

    @cached_property
    def looked_values(self) -> Floats:
        """Values of the observations that are looked at; of levels, their numbers."""
        values: Floats = np.sum(self.team.all("look_at", self.looked), axis=0)[3]
        return values

    def _typical_root(self) -> float:
        return self.work.typical_root()

    def _snapshot(self, draw: RatingDraw, half: type = np.float16) -> Snapshot:
        kept = rating_snapshot(draw, replace(self.spec, time=False), self.data, half)
        for mode in range(2 if self.spec.time else 0):
            parts = self.team.all("gaps", mode, draw.temporal_settings)
            kept[f"gaps{mode}"] = np.concatenate(parts).astype(half)
        return kept
