"""DeviationRegressor: a line through points of which some are noisier than others.

    mean_i     = w . x_i + b
    variance_i = p . |x_i| + p_0 + floor           p >= 0

learned together on the Gaussian likelihood, as the factorizations learn theirs; or, with the
deviation of every point given, weighted least squares (DLR in Lee, Yang and Lin, 2017).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from noisewise.errors import DataError, warn
from noisewise.models.base import at_one_moment, in_one_step
from noisewise.models.series import fit_variance
from noisewise.settings import check, number, one_of, whole

TINY = 1e-12  # share of the mean square of y below which that of residuals is rounding
LEAST = 1e-100  # a variance that can still be squared

Array = npt.NDArray[np.float64]

RULES = {
    "deviation": one_of("linear", "constant"),
    "delta": number(above=0.0, most=1.0),
    "fit_intercept": one_of(True, False),
    "max_iter": whole(1),
    "tol": number(least=0.0),
}


class DeviationRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Linear regression that learns how noisy each observation is.

    The mean is weighted least squares given the variance, the variance takes multiplicative steps
    given the residuals; neither ever raises the negative log-likelihood.

    Parameters
    ----------
    deviation : {"linear", "constant"}
        Let the variance grow with the size of features, or give all observations the same:
        ordinary linear regression.
    delta : float
        Floor of the variance, as a share of the variance around an ordinary regression. Without
        one, a line through a few points could claim to know them exactly.
    fit_intercept : bool
        Whether the line need not pass through zero.
    max_iter : int
        Turns of mean and variance, at most.
    tol : float
        Stop when a turn lowers the mean negative log-likelihood by less.

    Attributes
    ----------
    coef_, intercept_ : ndarray, float
        The line.
    deviation_coef_, deviation_intercept_ : ndarray, float
        The variance of the noise: ``deviation_coef_ @ abs(x) + deviation_intercept_``.
    nll_ : list of float
        Mean negative log-likelihood after each turn; it never rises.
    n_iter_ : int
        Number of turns.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 1, (500, 1))
    >>> y = 2 * X[:, 0] + rng.normal(0, 0.01 + X[:, 0])
    >>> model = DeviationRegressor().fit(X, y)
    >>> mean, std = model.predict([[0.1], [0.9]], return_std=True)
    >>> bool(std[0] < 0.5 * std[1])
    True
    """

    coef_: Array
    intercept_: float
    deviation_coef_: Array
    deviation_intercept_: float
    nll_: list[float]
    n_iter_: int

    def __init__(
        self,
        deviation: Literal["linear", "constant"] = "linear",
        *,
        delta: float = 0.01,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-6,
    ) -> None:
        self.deviation = deviation
        self.delta = delta
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol

    @in_one_step
    def fit(self, X: Any, y: Any, sample_std: Any = None) -> Self:
        """Learn from rows of numbers and a value for each.

        Parameters
        ----------
        X : table of numbers
            One row per observation.
        y : sequence of float
            The values.
        sample_std : sequence of float, optional
            The std of each value around the line, where it is known. Then nothing is learned of the
            noise, and ``predict`` takes that of new points to be the mean square of these.

        Returns
        -------
        self
        """
        check(self, RULES)
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        y = y.astype(np.float64)
        if sample_std is not None:
            variance = _checked_std(sample_std, len(y)) ** 2
            line = fit_line(X, y, variance, self.fit_intercept)
            noise = np.append(np.zeros(X.shape[1]), variance.mean())
            curve, left = [_nll(line.residual, variance)], 1.0
        else:
            line, noise, variance, curve = self._learned(X, y)
            scaled = float(np.sum(line.residual**2 / variance))
            left = scaled / (len(y) - line.rank) if len(y) > line.rank else 1.0
        self.coef_, self.intercept_ = line.coef, line.intercept
        self.deviation_coef_ = left * noise[:-1]  # residuals are smaller than errors
        self.deviation_intercept_ = left * float(noise[-1])
        self.centre_, self.covariance_ = line.centre, left * line.covariance
        self.centre_variance_ = left * line.centre_variance
        self.nll_, self.n_iter_ = curve, len(curve)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the value at rows of numbers.

        Parameters
        ----------
        X : table of numbers
            One row per value to predict.
        return_std : bool
            Also return the standard deviation of each value around its prediction: the noise there,
            and what is not known of the line.
        """
        mean, noise, epistemic = self.predict_parts(X)
        return (mean, np.hypot(noise, epistemic)) if return_std else mean

    @at_one_moment
    def predict_parts(self, X: Any) -> tuple[Array, Array, Array]:
        """Predict, and tell noise from epistemic uncertainty.

        Returns
        -------
        mean, noise_std, epistemic_std : ndarray
            More data shrinks the epistemic part; the noise stays.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        noise = np.abs(X) @ self.deviation_coef_ + self.deviation_intercept_
        away = X - self.centre_
        epistemic = ((away @ self.covariance_) * away).sum(axis=1) + self.centre_variance_
        mean = X @ self.coef_ + self.intercept_
        return mean, np.sqrt(noise), np.sqrt(np.maximum(epistemic, 0.0))

    def _learned(self, X: Array, y: Array) -> tuple[Line, Array, Array, list[float]]:
        """Return the line, what its noise is made of, the variance of every y, and the way there.

        ``variance = features @ noise``, the last feature being 1; a part of the last of the noise
        is the floor, which does not change.
        """
        line = fit_line(X, y, np.ones(len(y)), self.fit_intercept)
        level = float(np.mean(line.residual**2))
        level = max(level, TINY * float(np.mean(y**2)), LEAST)
        variance = np.full(len(y), level)
        noise = np.append(np.zeros(X.shape[1]), level)
        if self.deviation == "constant":
            line = fit_line(X, y, variance, self.fit_intercept)
            return line, noise, variance, [_nll(line.residual, variance)]
        floor = self.delta * level
        features = np.column_stack([np.abs(X), np.ones(len(y))])
        size = features.mean(axis=0)
        p = max(level - floor, 0.1 * level) / len(size) * (size > 0) / np.maximum(size, TINY)
        curve: list[float] = []
        for _ in range(self.max_iter):
            p = fit_variance(features, line.residual**2, p, floor)
            variance = features @ p + floor
            line = fit_line(X, y, variance, self.fit_intercept)
            curve.append(_nll(line.residual, variance))
            if len(curve) > 1 and curve[-2] - curve[-1] < self.tol:
                break
        else:
            warn(
                f"The likelihood still rose after {self.max_iter} turns: raise max_iter or tol.",
                ConvergenceWarning,
            )
        return line, p + np.append(np.zeros(X.shape[1]), floor), variance, curve


class Line(NamedTuple):
    """A weighted least-squares fit.

    ``covariance`` is that of the coefficients, ``centre_variance`` that of the mean at ``centre``.
    """

    coef: Array
    intercept: float
    residual: Array
    rank: int
    centre: Array
    covariance: Array
    centre_variance: float


def fit_line(X: Array, y: Array, variance: Array, intercept: bool) -> Line:
    """Fit by weighted least squares; where many lines fit alike, take the flattest."""
    weight = 1.0 / variance
    centre, middle, centre_variance = np.zeros(X.shape[1]), 0.0, 0.0
    if intercept:
        share = weight / weight.sum()
        centre, middle, centre_variance = share @ X, float(share @ y), float(1.0 / weight.sum())
    away, root = X - centre, np.sqrt(weight)
    solved = np.linalg.lstsq(away * root[:, None], (y - middle) * root, rcond=None)
    coef, rank = np.asarray(solved[0], dtype=np.float64), int(solved[2]) + intercept
    start = middle - float(centre @ coef)
    information = (away * weight[:, None]).T @ away
    covariance = np.asarray(np.linalg.pinv(information, hermitian=True), dtype=np.float64)
    return Line(coef, start, y - X @ coef - start, rank, centre, covariance, centre_variance)


def _nll(residual: Array, variance: Array) -> float:
    return float(0.5 * np.mean(np.log(2.0 * np.pi * variance) + residual**2 / variance))


def _checked_std(sample_std: Any, n: int) -> Array:
    std = np.asarray(sample_std, dtype=np.float64)
    if std.shape != (n,):
        raise DataError(f"sample_std needs one std for each of {n} values; got shape {std.shape}.")
    bad = ~(np.isfinite(std) & (std > 0))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(f"sample_std must be above 0 and finite; row {row} is {std[row]}.")
    return std
