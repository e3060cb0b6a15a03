"""What one worker of a cluster has of ratings to sample: rows of every mode, with observations.

A worker draws the rows from one number to another of each mode. Its observations are here once for
every mode, in the order in which that mode visits them: a view. Rows are known to all workers.
What is drawn for observations in one view goes to the others as parcels: both sides put what one
has of the other's rows in the same order, so that a parcel needs no addresses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Array, Codes, Floats, Ints, Values
from noisewise.engine.data import Data, visiting_order
from noisewise.engine.gibbs import sweep
from noisewise.engine.gibbs.kept import KeptHere
from noisewise.engine.gibbs.steps import regression, temporal
from noisewise.engine.gibbs.sweep import first_draw
from noisewise.engine.gibbs.views import (
    BUFFER,
    Layout,
    Shard,
    ShardEffect,
    ShardLevels,
    ShardWorkspace,
    View,
    sum_of,
)
from noisewise.engine.workers import take


class Shards(KeptHere):
    """Everything that a worker has."""

    layout: Layout
    number: int
    levels: ShardLevels
    effects: list[ShardEffect]

    def __init__(
        self,
        layout: Layout,
        number: int,
        threads: int,
        chunks: Sequence[Any],
        encode: Callable[[Values], Floats],
    ) -> None:
        super().__init__()
        self.layout, self.number = layout, number
        spec, shape = layout.spec, layout.shape
        nobody = Data(shape, np.empty((len(shape), 0), np.int32), np.empty(0, np.float32), (), ())
        self.draw = first_draw(spec, nobody, layout.n_levels)
        self.views: list[View] = []
        self.times: list[Any] = []
        self.parcels: list[list[Ints]] = []  # per mode and worker, which of the first view's go
        self.arrivals: list[list[Ints]] = []  # and which of the mode's come from there
        for mode in range(len(shape)):
            codes, values, time = self._collected(chunks, mode)
            shard = self._shard(codes, encode(values), mode)
            work = ShardWorkspace(spec, shard, threads)
            self.views.append(View(shard, work, self.draw))
            self.times.append(time)
            self.arrivals.append(self._by_worker(codes[0], 0))
        first = self.views[0].shard
        codes = tuple(first.places[m] - np.int32(first.firsts[m]) for m in range(len(shape)))
        for mode in range(len(shape)):
            order = visiting_order(codes, mode, self.times[0])
            owners = self._by_worker(codes[mode][order], mode)
            self.parcels.append([order[own] for own in owners])
        self.levels = ShardLevels(self.views[0].work, layout.anchor)
        self.effects = [
            ShardEffect(self.views[mode].work, number)
            for number, (mode, _) in enumerate(sweep.EFFECTS if spec.time else ())
        ]
        self.members: dict[int, Codes] = {}
        self.shares: dict[int, Floats] = {}
        self.left: Any = None

    def _collected(self, chunks: Sequence[Any], mode: int) -> tuple[Any, Any, Any]:
        """Return this worker's observations of a mode, in its order."""
        own, found = self.layout.own(mode, self.number), []
        for ref in chunks:
            (chunk,) = take([ref])
            mine = np.flatnonzero((chunk[mode] >= own.start) & (chunk[mode] < own.stop))
            found.append([part[mine] for part in chunk])
        parts = [np.concatenate(some) for some in zip(*found, strict=True)]
        n_modes = len(self.layout.shape)
        codes, values = tuple(parts[:n_modes]), parts[n_modes]
        time = parts[n_modes + 1] if self.layout.spec.time else None
        order = visiting_order(codes, mode, time)
        time = None if time is None else time[order]
        return tuple(c[order] for c in codes), values[order], time

    def _shard(self, codes: tuple[Codes, ...], values: Floats, mode: int) -> Shard:
        layout, shape = self.layout, self.layout.shape
        firsts = np.cumsum([0, *shape[:-1]])
        places = np.array([c + first for c, first in zip(codes, firsts, strict=True)], np.int32)
        own, visits = layout.own(mode, self.number), layout.visits(self.number, mode)
        starts: list[Any] = [None] * len(shape)
        starts[mode] = np.clip(layout.starts[mode], visits.start, visits.stop) - visits.start
        index: list[Any] = [None] * len(shape)
        index[mode] = np.arange(len(values), dtype=np.int32)
        return Shard(shape, places, values, tuple(starts), tuple(index), mode, own)

    def _by_worker(self, codes: Codes, mode: int) -> list[Ints]:
        """Return for every worker where the codes of its rows are, in their order."""
        owner = np.searchsorted(self.layout.cuts[mode], codes, side="right") - 1
        order = np.argsort(owner, kind="stable")
        many = np.bincount(owner, minlength=len(self.layout.cuts[mode]) - 1)
        return np.split(order, np.cumsum(many)[:-1])

    # What all workers know of rows, and what only the lead draws.

    def set_all(self, given: dict[str, Any]) -> None:
        """Set whole arrays of rows and small ones."""
        for name, array in given.items():
            getattr(self.draw, name)[...] = array

    def install(self, names: tuple[str, ...], mode: int, *parts: Any) -> None:
        """Take over what all workers have drawn of the rows of a mode."""
        first = sum(self.layout.shape[:mode])
        for worker, part in enumerate(parts):
            own = self.layout.own(mode, worker)
            for name, array in zip(names, part, strict=True):
                getattr(self.draw, name)[first + own.start : first + own.stop] = array

    def set_effects(self, mode: int, effects: Floats) -> None:
        """Take over what sets add to rows."""
        own, first = self.layout.own(mode, self.number), sum(self.layout.shape[:mode])
        self.draw.effects[first + own.start : first + own.stop] = effects[own]

    def _at(self, mode: int, epoch: int) -> View:
        view = self.views[mode]
        view.draw.epoch = epoch
        return view

    def _own_rows(self, mode: int, *arrays: Any) -> tuple[Any, ...]:
        own, first = self.layout.own(mode, self.number), sum(self.layout.shape[:mode])
        return tuple(array[first + own.start : first + own.stop] for array in arrays)

    # The steps.

    def weigh(self, level: Array) -> float:
        """Take precisions from the noise factors; return the root of the largest."""
        self.draw.level[:] = level
        for view in self.views:
            view.precisions(view.draw)
        return float(self.views[0].work.root.max(initial=0.0))

    def aim(self) -> None:
        """Take temporal effects from the values; without them, views do not wait for parcels."""
        alone = not (self.layout.spec.time or self.layout.spec.ordinal)
        for view in self.views if alone else self.views[:1]:
            view.target(view.draw)

    def draw_rows(self, mode: int, epoch: int, prior: tuple[Array, Array], largest: float) -> Any:
        """Draw rows of a mode; return factors and biases."""
        view = self._at(mode, epoch)
        self.draw.centres[mode], self.draw.precisions[mode] = prior
        view.work.largest = largest
        view.rows(view.draw)
        return self._own_rows(mode, self.draw.factors, self.draw.biases)

    def explain(self, mode: int) -> None:
        """Set what is left of the values once everything is explained."""
        view = self.views[mode]
        view.work.residual = view.work.target - view.draw.fitted

    def draw_noise(self, mode: int, epoch: int, level: Array) -> Any:
        """Draw noise of rows of a mode, and return it."""
        view = self._at(mode, epoch)
        view.noise.drawn(view.draw, mode, level)
        return self._own_rows(mode, self.draw.noise)

    def draw_effect(self, number: int, epoch: int, phi: float, variance: float) -> None:
        """Draw the values of a temporal effect."""
        step = self.effects[number]
        step.drawn(self._at(step.mode, epoch).draw, phi, variance)

    def scores(self, number: int, phi: Values, variance: Values) -> Any:
        """Log-likelihood of rows for each pair of phi and variance of a temporal effect."""
        step = self.effects[number]
        scores = step.scores(self.views[step.mode].draw, phi, variance)
        return scores[self.layout.own(step.mode, self.number)]

    def draw_levels(self, epoch: int, step: float, prior: tuple[Array, Array]) -> Any:
        """Draw cut-points and hidden values; return which moves were accepted, and widths."""
        view, own = self._at(0, epoch), self.layout.own(0, self.number)
        self.draw.width_centre[:], self.draw.width_spread[:] = prior
        return self.levels.drawn(view.draw, step)[own], self.draw.widths[own]

    def likelihoods(self, log_scale: float) -> Array:
        """Log-likelihood, slope and curvature of users by a scale on means and cut-points."""
        found = self.levels.likelihoods(self.views[0].draw, log_scale)
        return found[self.layout.own(0, self.number)]

    def rescale(self, jump: float) -> None:
        """Scale means of observations."""
        factor = np.float32(math.exp(jump))
        for view in self.views:
            view.draw.fitted *= factor
            view.draw.temporal *= factor

    def rescale_all(self, jump: float) -> None:
        """Scale hidden values, too."""
        self.rescale(jump)
        self.views[0].draw.latent *= np.float32(math.exp(jump))

    # Implicit sets: a worker that draws weights knows who was seen with whom.

    def seen_with(self, mode: int) -> Codes:
        """Return the rows of a mode that rows of the other were seen with, in the other's order."""
        view = self.views[1 - mode].shard
        return np.asarray(view.others[1 - mode][0] - np.int32(view.firsts[mode]))

    def know(self, mode: int, *parts: Codes) -> None:
        """Take over the same from all workers."""
        self.members[mode] = np.concatenate(parts)
        count = np.maximum(np.diff(self.layout.starts[mode]), 1)
        self.shares[mode] = (1.0 / np.sqrt(count)).astype(np.float32)

    def draw_weights(self, mode: int, key: np.uint64, strength: Any, E: Any, Y: Any) -> Any:
        """Draw weights of all features for a block of coordinates."""
        E, Y = E.copy(), Y.copy()  # what came from elsewhere cannot be written to
        regression.draw_features(
            self.layout.starts[1 - mode], self.members[mode], self.shares[mode],
            regression.NO_VALUES, np.full(len(Y), strength), key, E, Y,
        )  # fmt: skip
        return E, Y

    # Parcels.

    def _array(self, name: str, mode: int) -> Any:
        view = self.views[mode]
        if name in ("target", "residual"):
            return getattr(view.work, name)
        return view.draw.fitted if name == "fitted" else view.draw.temporal[int(name)]

    def send(self, name: str, mode: int) -> Any:
        """Return parcels for all workers, from the first view to a mode's."""
        return self._packed(self._array(name, 0), self.parcels[mode])

    def send_back(self, name: str, mode: int) -> Any:
        """Return parcels for all workers, from a mode's view to the first."""
        return self._packed(self._array(name, mode), self.arrivals[mode])

    def _packed(self, array: Any, places: list[Ints]) -> Any:
        found = [array[own] for own in places]
        self.left, found[self.number] = found[self.number], None
        return found[0] if len(found) == 1 else tuple(found)

    def receive(self, name: str, mode: int, back: bool, *parcels: Any) -> None:
        """Take parcels of all workers."""
        if name in ("target", "residual"):
            work = self.views[0 if back else mode].work
            n = len(work.data)
            setattr(work, name, np.empty(n, dtype=np.float32))
        array = self._array(name, 0 if back else mode)
        places = self.parcels[mode] if back else self.arrivals[mode]
        for worker, (own, parcel) in enumerate(zip(places, parcels, strict=True)):
            array[own] = self.left if worker == self.number else parcel

    # Sums over all observations, in pieces that do not depend on workers.

    def add_up(self, piece: slice, before: tuple[float, ...]) -> tuple[float, ...]:
        """Go on adding up errors of a piece of all observations, where the one before stopped."""
        first, work = self.layout.visits(self.number).start, self.views[0].work
        own = slice(max(piece.start - first, 0), max(piece.stop - first, 0))
        found: tuple[float, ...] = sweep.add_up(work.residual[own], work.root[own], before)
        return found

    def pieces(self, name: str) -> list[tuple[int, Any]]:
        """Return sums over pieces of ``BUFFER`` observations, and what is here of others as it is.

        Of whole pieces: their number and their sum.
        """
        visits, work = self.layout.visits(self.number), self.views[0].work
        array = work.residual if name == "square" else work.root
        found: list[tuple[int, Any]] = []
        total = int(self.layout.starts[0][-1])
        for number in range(visits.start // BUFFER, -(-visits.stop // BUFFER)):
            low, high = number * BUFFER, min((number + 1) * BUFFER, total)
            part = array[max(low - visits.start, 0) : max(high - visits.start, 0)]
            whole = len(part) == high - low
            found.append((number, sum_of(name, part) if whole else part))
        return found

    def histogram(self, high: int | None) -> Ints:
        """Count roots by the upper half of their bits, or those of an upper half by the lower."""
        bits = self.views[0].work.root.view(np.uint32)
        some = bits >> 16 if high is None else bits[bits >> 16 == high] & 0xFFFF
        return np.bincount(some, minlength=2**16)

    def places_at(self, positions: Ints) -> npt.NDArray[np.int32]:
        """Return places of observations by their numbers, of those that are here; else -1."""
        visits, places = self.layout.visits(self.number), self.views[0].shard.places
        here = (positions >= visits.start) & (positions < visits.stop)
        found = np.full((len(places), len(positions)), -1, dtype=np.int32)
        found[:, here] = places[:, positions[here] - visits.start]
        return found

    def look_at(self, positions: Ints) -> Floats:
        """Return what is a ``Look`` at observations, and their values; 0 if not here."""
        visits, view = self.layout.visits(self.number), self.views[0]
        here = (positions >= visits.start) & (positions < visits.stop)
        at, draw = positions[here] - visits.start, view.draw
        seen = view.shard.values[at]
        values = draw.latent[at] if self.layout.spec.ordinal else seen
        found = np.zeros((4, len(positions)), dtype=np.float32)
        found[:, here] = draw.mean(at), view.work.root[at], values, seen
        return found

    # What predictions need of observations, and what checkpoints keep of them.

    def gaps(self, mode: int, settings: Array) -> Floats:
        """Return the effect of time in the gaps of rows of a mode."""
        view = self.views[mode]
        view.draw.temporal_settings[:] = settings
        found = temporal.gaps(view.draw, view.shard, mode)
        own, starts = view.shard.own, view.shard.starts[mode]
        return found[starts[own.start] + own.start : starts[own.stop] + own.stop]

    def timeline(self, mode: int) -> tuple[Array, Codes]:
        """Return when rows of a mode were observed, and with whom."""
        return self.times[mode].astype(np.float64), self.seen_with(1 - mode)

    def observed(self) -> dict[str, Floats]:
        """Return what is drawn for observations, of the first view."""
        draw = self.views[0].draw
        return {"fitted": draw.fitted, "temporal": draw.temporal, "latent": draw.latent}

    def set_observed(self, given: dict[str, Floats]) -> None:
        """Set what is drawn for observations, of the first view, from all of them."""
        visits, draw = self.layout.visits(self.number), self.views[0].draw
        for name, array in given.items():
            own: Any = getattr(draw, name)
            own[...] = array[..., visits] if own.size else own
