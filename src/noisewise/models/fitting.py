"""From observations to Factors: standardise, arrange, train, finalize."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from noisewise.data import Observations
from noisewise.engine.arrays import Codes, Counts, Floats
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.layout import Params, State, aligned_zeros, initial_state
from noisewise.engine.training import EpochInfo, Training, mean_in_units, standardised
from noisewise.errors import DataError
from noisewise.models.trained import Fit, Plan

ADVICE = (
    "Try a smaller learning_rate (now {0.learning_rate}) or deviation_learning_rate (now "
    "{0.deviation_learning_rate}), a larger delta (now {0.delta}), or a longer warmup (now "
    "{0.warmup})."
)


def fit_factors(
    params: Params,
    observations: Observations,
    held_out: Observations | None,
    plan: Plan,
    n_jobs: int,
) -> Fit:
    """Train on observations, watching held-out ones if there are any."""
    location, scale = mean_and_std(observations.values)
    blocks = _arranged(params, observations, location, scale)
    counts = count_rows(observations)
    placed = tuple(_placed(count, order) for count, order in zip(counts, blocks.order, strict=True))
    training = _train(
        params, initial_state(params, placed), blocks, location, scale, held_out, plan, n_jobs
    )
    order = blocks.order
    del blocks
    return _finalized(training, params, counts, location, scale, order)


def continue_factors(old: Factors, observations: Observations, plan: Plan, n_jobs: int) -> Fit:
    """Train on from what was learned, visiting only new observations; their ids extend the old."""
    blocks = _arranged(old.params, observations, old.location, old.scale)
    added = count_rows(observations)
    counts = tuple(
        new + np.pad(count, (0, len(new) - len(count)))
        for count, new in zip(old.counts, added, strict=True)
    )
    state = old.grown(counts)
    state.rows = tuple(
        _placed_rows(rows, order) for rows, order in zip(state.rows, blocks.order, strict=True)
    )
    training = _train(old.params, state, blocks, old.location, old.scale, None, plan, n_jobs)
    order = blocks.order
    del blocks
    return _finalized(training, old.params, counts, old.location, old.scale, order)


def count_rows(observations: Observations) -> tuple[Counts, ...]:
    """Observations of every id of every mode."""
    return tuple(
        np.bincount(codes, minlength=n)
        for codes, n in zip(observations.codes, observations.shape, strict=True)
    )


def mean_and_std(values: npt.NDArray[np.floating]) -> tuple[float, float]:
    """Mean and std of values, to standardise them by; a std of 1 where all are alike."""
    alike = values.min() == values.max()
    std = 1.0 if alike else float(values.std(dtype=np.float64))
    return float(values.mean(dtype=np.float64)), std


def check_levels(values: npt.NDArray[np.floating]) -> None:
    """Raise for levels that single precision, in which they are kept, cannot tell apart."""
    if values.dtype == np.float64 and values.min() < values.max():
        raise DataError(
            f"Levels from {values.min():.15g} to {values.max():.15g} are too much alike, too small "
            "or too large for single precision: number them 1, 2, 3 and so on."
        )


def judged(
    truth: Floats,
    mean: Floats,
    variance: npt.NDArray[np.floating],
    value_range: tuple[float, float] | None,
) -> tuple[float, float]:
    """RMSE and NLL of predictions, clipped to a range."""
    if value_range is not None:
        mean = np.clip(mean, *value_range)
    squared = (truth - mean).astype(np.float64) ** 2
    least = 1e-12 * min(1.0, float(truth.var(dtype=np.float64)) or 1.0)
    s = np.maximum(variance.astype(np.float64), least)
    return math.sqrt(squared.mean()), float(0.5 * np.mean(np.log(2 * math.pi * s) + squared / s))


def _train(
    params: Params,
    state: State,
    blocks: strata.Blocks,
    location: float,
    scale: float,
    held_out: Observations | None,
    plan: Plan,
    n_jobs: int,
) -> Training[State]:
    def step(state: State) -> EpochInfo:
        info = strata.epoch(state, blocks, params, n_jobs)
        return replace(
            info,
            train_rmse=info.train_rmse * scale,
            train_nll=info.train_nll + math.log(scale),
        )

    validate = None
    if held_out is not None:
        cells = tuple(order[c] for order, c in zip(blocks.order, held_out.codes, strict=True))
        truth = held_out.values

        def validate(state: State) -> tuple[float, float]:
            mean, variance = strata.predict(state, cells, params, n_jobs)
            mean = mean_in_units(mean, location, scale)
            return judged(truth, mean, variance.astype(np.float64) * scale**2, plan.value_range)

    warmup = params.warmup if params.deviation_rank else 0
    return plan.train(state, step, validate, warmup=warmup, advice=ADVICE.format(params))


def _finalized(
    training: Training[State],
    params: Params,
    counts: tuple[Counts, ...],
    location: float,
    scale: float,
    order: tuple[Codes, ...],
) -> Fit:
    chosen = training.chosen
    training.state = training.best = chosen  # a state that was not chosen need not be kept
    factors = Factors.finalize(params, chosen, counts, location, scale, order)
    return Fit(factors, chosen.epoch, training.curve, training.interrupted)


def _arranged(params: Params, data: Observations, location: float, scale: float) -> strata.Blocks:
    values = standardised(data.values, location, scale)
    return strata.arrange(data.codes, values, data.shape, params.layout.width)


def _placed(count: Counts, order: Codes) -> Counts:
    """Put numbers of ids where the engine has their rows."""
    placed: npt.NDArray[np.int64] = np.empty_like(count)
    placed[order] = count
    return placed


def _placed_rows(rows: Floats, order: Codes) -> Floats:
    placed = aligned_zeros(*rows.shape)
    placed[order] = rows
    return placed
