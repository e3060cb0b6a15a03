"""How models do on ratings whose noise is known: scores, and what they say of every test cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisewise import metrics
from noisewise.calibration import normal_half_width
from noisewise.data.synthetic import SyntheticRatings
from noisewise.models.bayesian import BayesianFactorizer
from noisewise.models.deviation import DeviationFactorizer

COVERAGE = 0.9

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Row:
    """How one model did on test cells.

    Attributes
    ----------
    model : str
        Its name.
    rmse, nll : float
        Error of the mean, and negative log-likelihood.
    coverage, width : float
        Share of ratings in their 90 % interval, and its mean width in stars.
    noise_correlation : float or None
        Correlation of the learned noise std with the true one; None if all cells have the same.
    std_correlation : float or None
        The same for the predicted std, which holds the epistemic part beside the noise.
    epochs : int or None
        Epochs of the model that was kept.
    seconds : float or None
        Time to fit it.
    """

    model: str
    rmse: float
    nll: float
    coverage: float
    width: float
    noise_correlation: float | None
    std_correlation: float | None
    epochs: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, eq=False)
class Judged:
    """What was predicted for test cells, and how good it was.

    Attributes
    ----------
    row : Row
        Scores.
    truth : ndarray
        The ratings.
    mean, std, noise_std, low, high : ndarray
        What was predicted: mean, std, the part of it that is noise, and a 90 % interval.
    true_std : ndarray
        What the std should be.
    """

    row: Row
    truth: Floats
    mean: Floats
    std: Floats
    noise_std: Floats
    low: Floats
    high: Floats
    true_std: Floats


def judge(
    name: str, model: BayesianFactorizer | DeviationFactorizer, ratings: SyntheticRatings
) -> Judged:
    """Judge a fitted model by ratings that it has not seen."""
    cells = ratings.observations
    mean, std = model.predict(cells, return_std=True)
    _, noise_std, _ = model.predict_parts(cells)
    low, high = model.predict_interval(cells, COVERAGE)
    return _judged(name, ratings, mean, std, noise_std, low, high, model.n_epochs_, model.seconds_)


def judge_truth(name: str, ratings: SyntheticRatings) -> Judged:
    """Judge the mean and std that the ratings were drawn from: the best that can be had."""
    mean, std = ratings.true_mean, ratings.true_std
    half = normal_half_width(COVERAGE) * std
    return _judged(name, ratings, mean, std, std, mean - half, mean + half)


def _judged(
    name: str,
    ratings: SyntheticRatings,
    mean: Floats,
    std: Floats,
    noise_std: Floats,
    low: Floats,
    high: Floats,
    epochs: int | None = None,
    seconds: float | None = None,
) -> Judged:
    truth, true_std = ratings.observations.values, ratings.true_std
    row = Row(
        name,
        metrics.rmse(truth, mean),
        metrics.nll(truth, mean, std),
        metrics.coverage(truth, low, high),
        metrics.width(low, high),
        _correlation(noise_std, true_std),
        _correlation(std, true_std),
        epochs,
        seconds,
    )
    return Judged(row, truth, mean, std, noise_std, low, high, true_std)


def _correlation(learned: Floats, true: Floats) -> float | None:
    constant = np.ptp(learned) <= 1e-6 * np.max(learned)  # up to rounding
    return None if constant else float(np.corrcoef(learned, true)[0, 1])
