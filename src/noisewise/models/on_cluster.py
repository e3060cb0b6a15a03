"""What models do on a cluster: a fit by its workers, with the bits of one machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from noisewise import storage
from noisewise.data import Observations
from noisewise.engine.arrays import Floats, Values
from noisewise.engine.data import Scale, Spec
from noisewise.engine.gibbs.cluster import OF_OBSERVATIONS, SpreadSampler
from noisewise.engine.gibbs.sampler import Chain
from noisewise.engine.gibbs.schedule import Schedule
from noisewise.engine.gibbs.views import level_numbers
from noisewise.engine.sgd.cluster import Spread, SpreadState
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.layout import Params
from noisewise.engine.training import BestEpoch, EpochInfo, Training, mean_in_units, standardised
from noisewise.engine.workers import Team
from noisewise.models.iterative import Fit, Plan, judged
from noisewise.models.learner import Checkpoint, count_rows, mean_and_std
from noisewise.models.shelf import Shelf
from noisewise.spread import SpreadObservations


def fit_factors(
    team: Team,
    params: Params,
    observations: Observations,
    held_out: Observations | None,
    plan: Plan,
    advice: str,
) -> Fit:
    """Train on observations, watching held-out ones if there are any."""
    units, counts = mean_and_std(observations.values), count_rows(observations)
    seen = SpreadObservations.of(observations)
    watched = [] if held_out is None else SpreadObservations.of(held_out).chunks
    encode = partial(standardised, location=units[0], scale=units[1])
    spread = Spread(team, params, counts, seen.chunks, watched, encode)

    def step(state: SpreadState) -> EpochInfo:
        info = spread.epoch(state)
        rmse, nll = info.train_rmse * units[1], info.train_nll + math.log(units[1])
        return replace(info, train_rmse=rmse, train_nll=nll)

    validate = None
    if held_out is not None:
        truth, square = held_out.values, units[1] ** 2

        def validate(state: SpreadState) -> tuple[float, float]:
            mean, variance = spread.predict(state)
            mean = mean_in_units(mean, *units)
            return judged(truth, mean, variance.astype(np.float64) * square, plan.value_range)

    warmup = params.warmup if params.deviation_rank else 0
    training = plan.train(spread.start(), step, validate, warmup=warmup, advice=advice)
    chosen = training.chosen
    state, order = spread.finished(chosen), spread.plan.grid.order
    factors = Factors.finalize(params, state, counts, *units, order)
    return Fit(factors, chosen.epoch, training.curve, training.interrupted)


def sampler(
    team: Team,
    spec: Spec,
    observations: Observations,
    scale: Scale,
    schedule: Schedule,
    held_out: Any,
) -> SpreadSampler:
    """Spread observations for a chain."""
    seen, counts = SpreadObservations.of(observations), count_rows(observations)
    # Workers import what encodes: the engine has it, which is there sooner than models are.
    encode: Callable[[Values], Floats] = partial(
        standardised, location=scale.location, scale=scale.scale
    )
    if spec.ordinal:
        encode = partial(level_numbers, levels=scale.levels)
    shards = team.cluster.shards
    shelf = None if shards is None else partial(Shelf.new, shards)
    given = spec, scale, counts, schedule, held_out
    return SpreadSampler(team, seen.chunks, encode, *given, shelf)


@dataclass(frozen=True)
class SpreadCheckpoint:
    """A checkpoint of a chain on a cluster: the file is that of one machine."""

    file: Checkpoint
    sampler: SpreadSampler

    def resumed(
        self, state: Any, epochs: int, watched: bool, best: BestEpoch | None
    ) -> Training[Any] | None:
        """Return what a training had come to, and bring workers there; None if there is no file."""
        training = self.sampler.surely(lambda: self._read(state, epochs, watched, best))
        if training is not None:
            self.sampler.resume(training.state)
        # A chain that is mended starts from what the file has by then.
        self.sampler.reload = partial(self._reload, state, epochs, watched, best)
        return training

    def _reload(self, *given: Any) -> Chain[Any] | None:
        training = self._read(*given)
        return None if training is None else training.state

    def _read(
        self, state: Any, epochs: int, watched: bool, best: BestEpoch | None
    ) -> Training[Any] | None:
        n = len(self.sampler.data)
        room = {
            name: np.zeros((*own.shape[:-1], n), dtype=own.dtype)
            for name in OF_OBSERVATIONS
            if (own := getattr(state.draw, name)) is not None
            and (name != "latent" or self.sampler.spec.ordinal)
        }
        empty = replace(state, draw=replace(state.draw, **room))
        with storage.mapped():
            return self.file.resumed(empty, epochs, watched, best)

    def is_due(self, epoch: int, waited: float) -> bool:
        """Whether to write after this sweep, so many seconds after the last time."""
        return self.file.is_due(epoch, waited)

    def keep(self, training: Training[Any]) -> None:
        """Write what a training has come to."""
        chain = training.state
        self.sampler.surely(
            lambda: self.file.keep(replace(training, state=self.sampler.whole(chain))), chain
        )


def release(sampler: Any, chain: Chain[Any]) -> None:
    """Take the draws of a chain from the workers, if they have them, before another begins."""
    if isinstance(sampler, SpreadSampler):
        sampler.release(chain)


def kept_by(sampler: Any, file: Checkpoint | None) -> Any:
    """Return what keeps a chain in a file, wherever it is sampled."""
    if file is None or not isinstance(sampler, SpreadSampler):
        return file
    return SpreadCheckpoint(file, sampler)
