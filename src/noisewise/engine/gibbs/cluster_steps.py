"""The steps of ratings on a cluster: the lead draws what is small, workers the rest.

Sums over rows are added by the lead as on one machine; sums over observations are added in pieces,
which numpy makes on one machine as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from noisewise.engine.arrays import Array, Counts, Values
from noisewise.engine.data import Data
from noisewise.engine.gibbs import sweep
from noisewise.engine.gibbs.steps import ordinal, regression, temporal, variances
from noisewise.engine.gibbs.sweep import RatingDraw, Step, Sweep, Workspace
from noisewise.engine.gibbs.views import Layout, sum_of
from noisewise.engine.workers import Team, put

ROWS = ("factors", "biases")
EVERYWHERE = ("factors", "biases", "noise", "effects", "widths")  # that workers need of all rows


@dataclass(frozen=True)
class SpreadData(Data):
    """What the lead knows of observations: how many every row has."""

    def __len__(self) -> int:
        return int(self.starts[0][-1])

    @classmethod
    def of(cls, counts: tuple[Counts, ...]) -> SpreadData:
        """Describe observations by the number that every row has."""
        nothing = np.empty((len(counts), 0), np.int32), np.empty(0, np.float32)
        starts = tuple(np.concatenate([[0], np.cumsum(count)]) for count in counts)
        return cls(tuple(map(len, counts)), *nothing, starts, ())


class SpreadWorkspace(Workspace):
    """The workspace of the lead: workers are asked for what concerns observations."""

    team: Team
    layout: Layout
    largest: float

    def __init__(self, team: Team, layout: Layout, data: Data, burn_in: int) -> None:
        super().__init__(layout.spec, data, 1, burn_in)
        self.team, self.layout, self.largest = team, layout, 0.0

    def exchange(self, name: str, mode: int, *, back: bool = False) -> None:
        """Bring an array of observations from the first view to a mode's, or back."""
        if mode == 0:
            return
        many = len(self.team)
        sent = [
            self.team.call(worker, "send_back" if back else "send", name, mode, returns=many)
            for worker in range(many)
        ]
        parcels = list(zip(*sent, strict=True))
        self.team.ask("receive", each=[(name, mode, back, *parcel) for parcel in parcels])

    def share(self, names: tuple[str, ...], mode: int, refs: list[Any], draw: RatingDraw) -> None:
        """Let all workers, and the lead, take over what each has drawn of the rows of a mode."""
        self.team.ask("install", names, mode, *refs)
        first = self.data.firsts[mode]
        for worker, part in enumerate(self.team.get(refs)):
            own = self.layout.own(mode, worker)
            for name, array in zip(names, part, strict=True):
                getattr(draw, name)[first + own.start : first + own.stop] = array

    def spread(self, draw: RatingDraw, names: tuple[str, ...] = EVERYWHERE) -> None:
        """Send rows of all modes to all workers."""
        self.team.ask("set_all", put({name: getattr(draw, name) for name in names}))

    def total(self, name: str) -> float:
        """Sum squares of residuals, roots of precisions, or their logs, as numpy does."""
        pieces: dict[int, Any] = {}
        for found in self.team.all("pieces", name):
            for number, part in found:
                parts = pieces.setdefault(number, [])
                parts.append(part)
        total = 0.0
        for number in sorted(pieces):
            parts = pieces[number]
            whole = isinstance(parts[0], float)
            total += parts[0] if whole else sum_of(name, np.concatenate(parts))
        return total

    def typical_root(self) -> float:
        """Return the median of the roots of precisions, from counts of their bits."""
        n = len(self.data)
        upper = np.cumsum(np.sum(self.team.all("histogram", None), axis=0))
        found = []
        for place in {(n - 1) // 2, n // 2}:
            high = int(np.searchsorted(upper, place, side="right"))
            before = int(upper[high - 1]) if high else 0
            lower = np.cumsum(np.sum(self.team.all("histogram", high), axis=0))
            low = int(np.searchsorted(lower, place - before, side="right"))
            found.append(np.array([high << 16 | low], np.uint32).view(np.float32)[0])
        return float(np.median(np.array(found, dtype=np.float32)))


class SpreadStep(Step[RatingDraw]):
    """A conditional that workers draw."""

    work: SpreadWorkspace


class SpreadPrecisions(SpreadStep):
    """Take the precision of every observation from the noise factors."""

    def _draw(self, draw: RatingDraw) -> None:
        self.work.largest = max(self.work.team.all("weigh", draw.level))


class SpreadTarget(SpreadStep):
    """Take temporal effects from the values: rows are to explain the rest."""

    def _draw(self, draw: RatingDraw) -> None:
        self.work.team.ask("aim")
        if self.spec.time or self.spec.ordinal:
            for mode in range(1, self.data.n_modes):
                self.work.exchange("target", mode)


class SpreadRows(SpreadStep):
    """Draw the rows of a mode; after the last mode, set the residual."""

    def _draw(self, draw: RatingDraw) -> None:
        work, mode, last = self.work, self.mode, self.data.n_modes - 1
        prior = draw.centres[mode], draw.precisions[mode]
        refs = work.team.ask("draw_rows", mode, draw.epoch, prior, work.largest)
        work.share(ROWS, mode, refs, draw)
        if mode == last:
            work.exchange("fitted", last, back=True)
            for other in range(last):
                work.exchange("fitted", other)
                work.team.ask("explain", other)


class SpreadImplicit(regression.Implicit):
    """Draw weights of sets: workers share coordinates."""

    work: SpreadWorkspace

    def _draw(self, draw: RatingDraw) -> None:
        super()._draw(draw)
        effects = put(draw.effects[self.data.part(self.mode)])
        self.work.team.ask("set_effects", self.mode, effects)

    def _draw_weights(self, draw: RatingDraw, whitened: Any, weights: Any) -> None:
        team, mode, size = self.work.team, self.mode, regression.BLOCK
        strength, refs = np.float32(draw.strengths[mode]), []
        for start in range(0, self.spec.rank + 1, size):
            block = slice(start, start + size)
            E, Y = (np.ascontiguousarray(array[:, block]) for array in (whitened, weights))
            key = self.work.key(draw, sweep.FEATURES, mode, start)
            worker = start // size % len(team)
            refs += team.call(worker, "draw_weights", mode, key, strength, E, Y)
        for start, (E, Y) in zip(range(0, self.spec.rank + 1, size), team.get(refs), strict=True):
            whitened[:, start : start + size], weights[:, start : start + size] = E, Y


class SpreadEffect(temporal.TemporalEffect):
    """Draw a temporal effect: where its mode is not the first, residuals go there and back."""

    work: SpreadWorkspace

    def _draw(self, draw: RatingDraw) -> None:
        self.work.exchange("residual", self.mode)
        super()._draw(draw)
        self.work.exchange("residual", self.mode, back=True)
        self.work.exchange(str(self.number), self.mode, back=True)
        if self.number == len(sweep.EFFECTS) - 1 and self.mode == 0:
            self.work.exchange("residual", 1)

    def _draw_effect(self, draw: RatingDraw, phi: float, variance: float, key: np.uint64) -> None:
        self.work.team.ask("draw_effect", self.number, draw.epoch, phi, variance)

    def _row_scores(self, draw: RatingDraw, phi: Values, variance: Values) -> Values:
        return np.concatenate(self.work.team.all("scores", self.number, phi, variance))


class SpreadLevels(ordinal.Levels):
    """Draw cut-points and hidden values of levels."""

    work: SpreadWorkspace

    def _moved(self, draw: RatingDraw, step: float, key: np.uint64) -> Any:
        prior = draw.width_centre, draw.width_spread
        found = self.work.team.all("draw_levels", draw.epoch, step, prior)
        accepted, widths = zip(*found, strict=True)
        draw.widths[:] = np.concatenate(widths)
        return np.concatenate(accepted)

    def _likelihoods(self, draw: RatingDraw, mean: Any, log_scale: float) -> Array:
        return np.concatenate(self.work.team.all("likelihoods", log_scale))


class SpreadRescaling(ordinal.Rescaling):
    """Move along the two directions in which everything drags everything else along."""

    work: SpreadWorkspace

    def __init__(self, work: SpreadWorkspace, levels: SpreadLevels) -> None:
        super().__init__(work, levels)
        self.precisions: Any = SpreadPrecisions(work)

    def _draw(self, draw: RatingDraw) -> None:
        spec, data, work = self.spec, self.data, self.work
        likelihood = partial(self.levels.scaled_likelihood, draw, None)
        jump = ordinal.move_signal(draw, spec, data, likelihood, work.rng(draw, sweep.RESCALING, 0))
        self._follow(jump, "rescale")
        if spec.noise_rank:
            jump = ordinal.move_all(draw, spec, data, work.rng(draw, sweep.RESCALING, 1))
            self._follow(jump, "rescale_all")
        work.spread(draw)
        if spec.noise_rank:
            self.precisions(draw)

    def _follow(self, jump: float, method: str) -> None:
        if jump:
            self.work.team.ask(method, jump)


class SpreadNoise(variances.LowRankNoise):
    """Draw the factors of the variance."""

    work: SpreadWorkspace

    def _draw_mode(self, draw: Any, mode: int, level: Array, key: np.uint64) -> None:
        refs = self.work.team.ask("draw_noise", mode, draw.epoch, level)
        self.work.share(("noise",), mode, refs, draw)


class SpreadConstantNoise(variances.ConstantNoise):
    """Draw the variance that all observations share."""

    work: SpreadWorkspace

    def _square(self) -> float:
        return self.work.total("square")


class SpreadSweep(Sweep[RatingDraw]):
    """One sweep over all steps that have joined in, in their order."""

    work: SpreadWorkspace

    def _sums(self) -> Any:
        team, layout, n = self.work.team, self.work.layout, len(self.work.data)
        refs = []
        for start in range(0, n, sweep.PIECE):
            piece, carried = slice(start, min(start + sweep.PIECE, n)), put(sweep.NOTHING)
            for worker in range(len(team)):
                visits = layout.visits(worker)
                if visits.start < piece.stop and visits.stop > piece.start:
                    (carried,) = team.call(worker, "add_up", piece, carried)
            refs.append(carried)
        return n, *sweep.added(team.get(refs))


def rating_steps(work: SpreadWorkspace, anchor: int) -> list[Step[Any]]:
    """Return the steps of ratings; ``anchor`` is the cut-point between levels that is 0."""
    spec, data = work.spec, work.data
    steps: list[Step[Any]] = [SpreadPrecisions(work)]
    if spec.ordinal:
        levels = SpreadLevels(work, anchor)
        steps += [SpreadRescaling(work, levels), levels]
    steps.append(SpreadTarget(work))
    for mode, n in enumerate(data.shape):
        if spec.implicit:
            steps.append(SpreadImplicit(work, mode))
        freedom = variances.freedom(spec.rank + 1, n)
        steps.append(variances.NormalWishart(work, mode, freedom, variances.SCALES_FROM))
        steps.append(SpreadRows(work, mode))
    if spec.time:
        steps += [SpreadEffect(work, number) for number in range(len(sweep.EFFECTS))]
    if spec.noise_rank:
        steps.append(SpreadNoise(work, sweep.ALL_FROM))
    elif not spec.ordinal:
        steps.append(SpreadConstantNoise(work))
    return steps
