"""Metrics of predictions: error, likelihood, intervals, calibration, ranking of errors and lists.

Columns in, one float out; `evaluate` gives all at once. All columns have the same length: the
`truth`, the predicted `mean`, its `std`, or the ends `low` and `high` of an interval. A number
without meaning is nan: one constant std ranks no errors, for instance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn.metrics
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import log_ndtr, ndtr

from noisewise.calibration import check_coverage, normal_half_width
from noisewise.errors import DataError
from noisewise.list_metrics import (
    catalogue_coverage,
    hit_at,
    ndcg_at,
    novelty,
    rank_metrics,
    recall_at,
    reciprocal_rank_at,
)

__all__ = [
    "ause", "calibration_curve", "catalogue_coverage", "constant_nll", "coverage", "crps",
    "ence", "error_auc", "evaluate", "hit_at", "interval_score", "mae", "miscalibration_area",
    "mse", "ndcg_at", "nll", "novelty", "rank_metrics", "rating_log_loss", "recall_at",
    "reciprocal_rank_at", "rmse", "rpi", "sharpness", "spearman", "width",
]  # fmt: skip

Floats = NDArray[np.float64]


def rmse(truth: ArrayLike, mean: ArrayLike) -> float:
    """Root of the mean squared error.

    Examples
    --------
    >>> rmse([1, 2], [1, 4])
    1.4142135623730951
    """
    return float(sklearn.metrics.root_mean_squared_error(*columns(truth=truth, mean=mean)))


def mse(truth: ArrayLike, mean: ArrayLike) -> float:
    """Mean squared error.

    Examples
    --------
    >>> mse([1, 2], [1, 4])
    2.0
    """
    return float(sklearn.metrics.mean_squared_error(*columns(truth=truth, mean=mean)))


def mae(truth: ArrayLike, mean: ArrayLike) -> float:
    """Mean absolute error.

    Examples
    --------
    >>> mae([1, 2], [1, 4])
    1.0
    """
    return float(sklearn.metrics.mean_absolute_error(*columns(truth=truth, mean=mean)))


def nll(truth: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Mean of ``-ln N(truth | mean, std^2)``, with its ``ln(2 pi) / 2``; lower is better.

    Examples
    --------
    >>> round(nll([1, 2], [1, 4], [0.5, 2.0]), 3), round(nll([1, 2], [1, 4], [0.5, 0.5]), 3)
    (1.169, 4.226)
    """
    return float(-stats.norm.logpdf(*columns(truth=truth, mean=mean, std=std)).mean())


def constant_nll(truth: ArrayLike, mean: ArrayLike, residuals: ArrayLike) -> float:
    """NLL of the mean with one std for all, the root mean square of `residuals` of validation.

    Examples
    --------
    >>> round(constant_nll([1, 2], [1, 4], residuals=[1.0, -1.0]), 3)
    1.919
    """
    (residuals,) = columns(residuals=residuals)
    return nll(truth, mean, np.full(np.shape(mean), np.sqrt(np.mean(residuals**2))))


def crps(truth: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Continuous ranked probability score of the Gaussian: the MAE as std goes to 0.

    Examples
    --------
    >>> round(crps([1, 2], [1, 4], [0.5, 2.0]), 3)
    0.661
    """
    error, std = _errors(truth, mean, std)
    z = error / std
    score = std * (z * (2 * ndtr(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    return float(score.mean())


def rating_log_loss(truth: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: ArrayLike) -> float:
    """Log-loss of the rating given among `levels`, sorted upwards: fair to models of classes.

    A level has its share of the Gaussian's mass on all cells. A cell ends halfway to each
    neighbour; the outer ones reach as far out as in.

    Examples
    --------
    >>> round(rating_log_loss([3], [3.0], [100.0], [1, 2, 3, 4, 5]), 3)  # knows nothing: ln 5
    1.609
    """
    truth, mean, std = columns(truth=truth, mean=mean, std=std)
    (levels,) = columns(levels=levels)
    if len(levels) < 2 or np.any(np.diff(levels) <= 0):
        raise DataError(f"levels needs two or more values, each above the last; got {levels}.")
    cell = np.searchsorted(levels, truth).clip(max=len(levels) - 1)
    _refuse(levels[cell] != truth, truth, f"truth must hold only the levels {levels}")
    inner = (levels[1:] + levels[:-1]) / 2
    edges = np.r_[2 * levels[0] - inner[0], inner, 2 * levels[-1] - inner[-1]]
    every = _log_mass((edges[0] - mean) / std, (edges[-1] - mean) / std)
    right = _log_mass((edges[cell] - mean) / std, (edges[cell + 1] - mean) / std)
    return float(np.mean(every - right))


def sharpness(std: ArrayLike) -> float:
    """Root of the mean predicted variance: small is sharp, and only good when calibrated.

    Examples
    --------
    >>> sharpness([3.0, 4.0])
    3.5355339059327378
    """
    (std,) = columns(std=std)
    return float(np.sqrt(np.mean(std**2)))


def coverage(truth: ArrayLike, low: ArrayLike, high: ArrayLike) -> float:
    """Share of truths inside their interval, ends included. Never report it without the width.

    Examples
    --------
    >>> coverage([1, 2, 5], low=[0, 1, 1], high=[2, 3, 4])
    0.6666666666666666
    """
    truth, low, high = columns(truth=truth, low=low, high=high)
    return float(np.mean((low <= truth) & (truth <= high)))


def width(low: ArrayLike, high: ArrayLike) -> float:
    """Mean width of the intervals.

    Examples
    --------
    >>> width(low=[0, 1], high=[2, 4])
    2.5
    """
    low, high = columns(low=low, high=high)
    return float(np.mean(high - low))


def interval_score(truth: ArrayLike, low: ArrayLike, high: ArrayLike, coverage: float) -> float:
    """Mean width, plus ``2 / (1 - coverage)`` times the distance of each miss; lower is better.

    Examples
    --------
    >>> interval_score([1, 5], low=[0, 1], high=[2, 4], coverage=0.5)
    4.5
    """
    truth, low, high = columns(truth=truth, low=low, high=high)
    check_coverage(coverage)
    miss = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    return float(np.mean(high - low + miss * 2 / (1 - coverage)))


def calibration_curve(
    truth: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: ArrayLike
) -> Floats:
    """Share of truths at or below their own predicted quantile: `levels` again, if calibrated.

    Examples
    --------
    >>> calibration_curve([-2, -1, 1, 2], [0, 0, 0, 0], [1, 1, 1, 1], levels=[0.1, 0.5, 0.9])
    array([0.25, 0.5 , 0.75])
    """
    (levels,) = columns(levels=levels)
    _refuse((levels < 0) | (levels > 1), levels, "levels must lie between 0 and 1")
    reached = _reached(truth, mean, std)
    return np.searchsorted(reached, levels, side="right") / len(reached)


def miscalibration_area(truth: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Area between the calibration curve and the diagonal, exactly: 0 is best, 0.5 worst.

    Examples
    --------
    >>> round(miscalibration_area([-2, -1, 1, 2], [0, 0, 0, 0], [1, 1, 1, 1]), 3)
    0.16
    """
    reached = _reached(truth, mean, std)
    # Seen from the side: the integral of |reached_i - q| over q from i/n to (i+1)/n, for each i.
    edges = np.linspace(0, 1, len(reached) + 1)
    below, above = reached - edges[:-1], edges[1:] - reached
    return float(np.sum(below * np.abs(below) + above * np.abs(above)) / 2)


def ence(truth: ArrayLike, mean: ArrayLike, std: ArrayLike, bins: int = 10) -> float:
    """Mean of ``|RMSE - RMV| / RMV`` over `bins` of equal size, sorted by std; RMV is its RMS.

    The expected normalised calibration error: 0 if the std is right where small and where large.

    Examples
    --------
    >>> ence([1, 2], [0, 4], [1.0, 2.0]), ence([1, 2], [0, 4], [2.0, 1.0])
    (0.0, 0.75)
    """
    squared, std = _by_std(truth, mean, std)
    if bins < 1:
        raise DataError(f"bins must be 1 or more; got {bins}.")
    bins = min(bins, len(std))
    happened = np.sqrt([part.mean() for part in np.array_split(squared, bins)])
    promised = np.sqrt([part.mean() for part in np.array_split(std**2, bins)])
    return float(np.mean(np.abs(happened - promised) / promised))


def spearman(truth: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Rank correlation of absolute error and std; nan when either is the same in all rows.

    Examples
    --------
    >>> round(spearman([1, 2, 5], [1.5, 2, 3], [0.5, 0.4, 1.5]), 3)
    1.0
    """
    error, std = _errors(truth, mean, std)
    if np.ptp(np.abs(error)) == 0 or np.ptp(std) == 0:
        return float("nan")
    return float(stats.spearmanr(np.abs(error), std).statistic)


def error_auc(truth: ArrayLike, mean: ArrayLike, std: ArrayLike, threshold: float = 1.0) -> float:
    """Chance that an error above `threshold` has a larger std than one that is not (ROC area).

    Examples
    --------
    >>> error_auc([1, 2, 5], [1.5, 2, 3], [0.5, 0.4, 1.5])
    1.0
    """
    error, std = _errors(truth, mean, std)
    large = np.abs(error) > threshold
    if large.all() or not large.any():
        return float("nan")
    return float(sklearn.metrics.roc_auc_score(large, std))


def ause(truth: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Area under the sparsification error, in units of the truth: 0 ranks errors perfectly.

    The RMSE of what is left when rows of largest std are dropped one by one, minus that when rows
    of largest error are; in the mean. Rows of equal std count as dropped at random.

    Examples
    --------
    >>> ause([1, 2, 5], [1.5, 2, 3], [0.5, 0.4, 1.5])
    0.0
    """
    by_std, _ = _by_std(truth, mean, std)
    by_error = np.sort(_errors(truth, mean, std)[0] ** 2)
    kept = np.arange(1, len(by_std) + 1)
    return float(np.mean(np.sqrt(by_std.cumsum() / kept) - np.sqrt(by_error.cumsum() / kept)))


def rpi(truth: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Reliability prediction index: how error and std rise together, large errors first.

    ``mean(e (e - MAE) (std - mean std)) / (MAE * MAD(e) * MAD(std))`` with e the absolute error and
    MAD the mean absolute deviation. Higher is better, 0 knows nothing; nan as for `spearman`.

    Examples
    --------
    >>> rpi([1, 2, 5], [1.5, 2, 3], [0.5, 0.4, 1.5]) > 0
    True
    """
    error, std = _errors(truth, mean, std)
    error = np.abs(error)
    if np.ptp(error) == 0 or np.ptp(std) == 0:
        return float("nan")
    excess, spread = error - error.mean(), std - std.mean()
    scale = error.mean() * np.abs(excess).mean() * np.abs(spread).mean()
    return float(np.mean(error * excess * spread) / scale)


def evaluate(
    truth: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike | None = None,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    coverage: float = 0.9,
) -> dict[str, float]:
    """Give every metric that the columns allow, under short names.

    The interval is `low` to `high`, or else that of the Gaussian; `coverage` is the share it should
    hold, and part of the names.

    Examples
    --------
    >>> list(evaluate([1, 2, 5], [1.5, 2, 3], std=[0.5, 0.5, 1.5]))
    ['rmse', 'mae', 'nll', 'crps', 'calibration_area', 'ence', 'spearman', 'auc', 'ause', 'rpi',
    'sharpness', 'coverage90', 'width90', 'interval_score90']
    """
    scores = {"rmse": rmse(truth, mean), "mae": mae(truth, mean)}
    if std is not None:
        of_std = {"nll": nll, "crps": crps, "calibration_area": miscalibration_area, "ence": ence}
        of_std |= {"spearman": spearman, "auc": error_auc, "ause": ause, "rpi": rpi}
        scores |= {name: metric(truth, mean, std) for name, metric in of_std.items()}
        scores["sharpness"] = sharpness(std)
    if (low is None) != (high is None):
        raise DataError("An interval needs low and high; got only one of them.")
    if low is None and std is not None:
        reach: Any = normal_half_width(coverage) * np.asarray(std, dtype=np.float64)
        low, high = mean - reach, mean + reach
    if low is None or high is None:
        return scores
    return scores | _held(truth, low, high, coverage)


def one_column(name: str, values: ArrayLike) -> Floats:
    """Turn what was given into one column of floats, or say what is wrong."""
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{name} needs numbers: {error}.") from error
    if column.ndim != 1 or len(column) == 0:
        raise DataError(f"{name} needs one dimension and a row or more; got shape {column.shape}.")
    return column


def columns(**given: ArrayLike) -> list[Floats]:
    """Turn what was given into columns of finite floats of one length, or say what is wrong."""
    found = {name: one_column(name, values) for name, values in given.items()}
    lengths = [len(column) for column in found.values()]
    if len(set(lengths)) > 1:
        raise DataError(f"{', '.join(found)} need the same length; got {lengths}.")
    for name, column in found.items():
        _refuse(~np.isfinite(column), column, f"{name} needs finite numbers")
    if "std" in found:
        _refuse(found["std"] <= 0, found["std"], "std must be above 0")
    if "high" in found:
        _refuse(found["high"] < found["low"], found["high"], "high must not be below low")
    return list(found.values())


def _refuse(bad: NDArray[np.bool_], column: Floats, rule: str) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise DataError(f"{rule}; got {column[row]} in row {row}.")


def _errors(truth: ArrayLike, mean: ArrayLike, std: ArrayLike) -> tuple[Floats, Floats]:
    """Errors of the mean, and the std beside them."""
    truth, mean, std = columns(truth=truth, mean=mean, std=std)
    return truth - mean, std


def _reached(truth: ArrayLike, mean: ArrayLike, std: ArrayLike) -> Floats:
    """At which quantile of its own prediction each truth lies, sorted."""
    error, std = _errors(truth, mean, std)
    return np.sort(ndtr(error / std))


def _by_std(truth: ArrayLike, mean: ArrayLike, std: ArrayLike) -> tuple[Floats, Floats]:
    """Squared errors and std, sorted by std; rows of equal std share their mean squared error."""
    error, std = _errors(truth, mean, std)
    value, group, count = np.unique(std, return_inverse=True, return_counts=True)
    return np.repeat(np.bincount(group, error**2) / count, count), np.repeat(value, count)


def _log_mass(low: Floats, high: Floats) -> Floats:
    """``ln(Phi(high) - Phi(low))``, accurate in both tails: the right one is mirrored first."""
    right = low + high > 0
    low, high = np.where(right, -high, low), np.where(right, -low, high)
    top = log_ndtr(high)
    return np.asarray(top + np.log(-np.expm1(log_ndtr(low) - top)))


def _held(truth: ArrayLike, low: ArrayLike, high: ArrayLike, share: float) -> dict[str, float]:
    percent = f"{100 * share:g}"
    return {
        f"coverage{percent}": coverage(truth, low, high),
        f"width{percent}": width(low, high),
        f"interval_score{percent}": interval_score(truth, low, high, share),
    }
