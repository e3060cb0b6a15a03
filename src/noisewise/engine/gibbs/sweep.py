"""A model is a list of steps: one sweep takes them all, each given what the others have drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Generic

from noisewise.engine.gibbs.draw import EFFECTS
from noisewise.engine.gibbs.steps import noise, ou
from noisewise.engine.gibbs.steps.implicit import Implicit
from noisewise.engine.gibbs.steps.normal_wishart import SCALES_FROM, NormalWishart, freedom
from noisewise.engine.gibbs.steps.ordinal import Levels
from noisewise.engine.gibbs.steps.rescaling import Rescaling
from noisewise.engine.gibbs.steps.rows import Residual, Rows, Target
from noisewise.engine.gibbs.steps.temporal import TemporalEffect
from noisewise.engine.gibbs.steps.time_factors import TimeFactors
from noisewise.engine.gibbs.workspace import (
    ALL_FROM,
    SERIES_FROM,
    D,
    SeriesWorkspace,
    Step,
    Workspace,
)
from noisewise.engine.training import EpochInfo


def rating_steps(work: Workspace, anchor: int = 1) -> list[Step[Any]]:
    """Return the steps of ratings; ``anchor`` is the cut-point between levels that is 0."""
    spec, data = work.spec, work.data
    steps: list[Step[Any]] = [noise.Precisions(work)]
    if spec.ordinal:
        levels = Levels(work, anchor)
        steps += [Rescaling(work, levels), levels]
    steps.append(Target(work))
    for mode, n in enumerate(data.shape):
        if spec.implicit:
            steps.append(Implicit(work, mode))
        steps.append(NormalWishart(work, mode, freedom(spec.rank + 1, n), SCALES_FROM))
        steps.append(Rows(work, mode))
    steps.append(Residual(work))
    if spec.time:
        steps += [TemporalEffect(work, number) for number in range(len(EFFECTS))]
    if spec.noise_rank:
        steps.append(noise.LowRankNoise(work, ALL_FROM))
    elif not spec.ordinal:
        steps.append(noise.ConstantNoise(work))
    return steps


def series_steps(work: SeriesWorkspace, timescales: ou.Timescales) -> list[Step[Any]]:
    """Return the steps of series.

    What is drawn without the paths of series comes first, then the paths, then what is drawn given
    them. Scales of rows stay 1.
    """
    spec, last = work.spec, work.data.n_modes - 1
    priors = [
        NormalWishart(work, mode, spec.rank + 1.0, math.inf) for mode in range(work.data.n_modes)
    ]
    steps: list[Step[Any]] = [ou.ObservationNoise(work), ou.Process(work, timescales)]
    steps.append(ou.Paths(work))
    for mode in range(last):
        steps += [priors[mode], Rows(work, mode)]
    steps += [priors[last], TimeFactors(work), ou.Amplitudes(work)]
    steps.append(noise.LowRankNoise(work, SERIES_FROM) if spec.noise_rank else ou.SeriesNoise(work))
    return steps


class Sweep(Generic[D]):
    """One sweep over all steps that have joined in.

    Parameters
    ----------
    work
        What the steps share.
    steps
        What to draw, in this order.
    """

    def __init__(self, work: Workspace, steps: Sequence[Step[D]]) -> None:
        self.work, self.steps = work, steps

    def __call__(self, draw: D) -> EpochInfo:
        """Draw everything once more; the report is in standardised units."""
        for step in self.steps:
            if draw.epoch >= step.joins:
                step(draw)
        draw.epoch += 1
        n = len(self.work.residual)
        square, weighted, log_root = noise.sums(self.work.residual, self.work.root)
        nll = 0.5 * (math.log(2.0 * math.pi) + weighted / n) - log_root / n
        return EpochInfo(draw.epoch, math.sqrt(square / n), nll)
