"""How far errors reach of cells that the Bayesian model of ratings knows, and of ids never seen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise.calibration import Calibration
from noisewise.engine.arrays import Array
from noisewise.engine.training import one_blas_thread
from noisewise.models.arranged import places_of

MOST = 5_000  # observations that are predicted as if one of their ids had never been seen


def left_out(model: Any, sampler: Any, truth: Array, mean: Array, std: Array) -> Calibration | None:
    """Learn from observations as ``sampler`` predicts them left out, and as those of strangers."""
    low, high = model.value_range_ or (-math.inf, math.inf)
    found = Calibration.left_out(truth, mean.clip(low, high), std, model.levels_)
    if found is None:
        return None
    some = slice(None, None, -(-len(truth) // MOST))
    with one_blas_thread():  # the same bits on any number of threads
        both = [_as_strangers(model, sampler, mode, some) for mode in (0, 1)]
    means, stds = (np.concatenate(parts) for parts in zip(*both, strict=True))
    return found.with_strangers(np.tile(truth[some], 2), means.clip(low, high), stds)


def _as_strangers(model: Any, sampler: Any, mode: int, some: slice) -> tuple[Array, Array]:
    """Mean and std of observations that are looked at, as if their ids of a mode were new."""
    places, looked, own = sampler.some[:, some], sampler.looked[some], model.factors_
    codes = [at - first for at, first in zip(places, sampler.data.firsts, strict=True)]
    n, labels = own.shape[mode], model.ids_[mode].labels[codes[mode]]
    codes[mode] = places_of(np.full(len(looked), n), n, model.features_.get(mode), labels)
    time = None if own.timeline is None else own.timeline.times[0][looked]
    mean, noise, epistemic = own.moments(tuple(codes), model._threads(), time)
    if sampler.data.weight is not None:
        noise = noise / sampler.data.weight[looked] ** 2
    return mean.astype(np.float64), np.sqrt((noise + epistemic).astype(np.float64))
