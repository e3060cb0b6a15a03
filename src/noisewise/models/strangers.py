"""How far errors reach of cells that the Bayesian model of ratings knows, and of ids never seen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise.calibration import Calibration
from noisewise.engine.arrays import Array
from noisewise.engine.gibbs.left_out import LeftOut
from noisewise.engine.training import one_blas_thread
from noisewise.models.arranged import places_of
from noisewise.models.sampled import FEWEST_DRAWS

MOST = 5_000  # observations that are predicted as if their ids had never been seen


def learned(model: Any, sampler: Any, left_out: LeftOut) -> Calibration | None:
    """Learn from observations as ``sampler`` predicts them left out, and as those of strangers."""
    low, high = model.value_range_ or (-math.inf, math.inf)
    truth, mean, std, share, chances = left_out
    more = 2.0 / (max(len(model.factors_), FEWEST_DRAWS) - 1.0)  # that a mean of few draws is off
    scale = math.sqrt(1.0 + share * more)
    found = Calibration.left_out(truth, mean.clip(low, high), std, model.levels_, chances, scale)
    if found is None:
        return None
    some = slice(None, None, -(-len(truth) // MOST))
    cases = (0,), (1,), (0, 1)
    with one_blas_thread():  # the same bits on any number of threads
        each = [_as_strangers(model, sampler, modes, some) for modes in cases]
    means, stds = (np.concatenate(parts) for parts in zip(*each, strict=True))
    unseen = np.repeat([float(len(modes)) for modes in cases], len(truth[some]))
    given = np.tile(truth[some], len(cases)), means.clip(low, high), stds, unseen
    return found.with_strangers(*given)


def _as_strangers(
    model: Any, sampler: Any, modes: tuple[int, ...], some: slice
) -> tuple[Array, Array]:
    """Mean and std of observations that are looked at, as if their ids of modes were new."""
    places, looked, own = sampler.some[:, some], sampler.looked[some], model.factors_
    codes = [at - first for at, first in zip(places, sampler.data.firsts, strict=True)]
    for mode in modes:
        n, labels = own.shape[mode], model.ids_[mode].labels[codes[mode]]
        codes[mode] = places_of(np.full(len(looked), n), n, model.features_.get(mode), labels)
    time = None if own.timeline is None else own.timeline.times[0][looked]
    mean, noise, epistemic = own.moments(tuple(codes), model._threads(), time)
    if sampler.data.weight is not None:
        noise = noise / sampler.data.weight[looked] ** 2
    return mean.astype(np.float64), np.sqrt((noise + epistemic).astype(np.float64))
