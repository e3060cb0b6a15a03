"""Split-conformal intervals scaled by the predicted deviation.

On held-out observations, the score of each is its error over its predicted std. The half-width of
an interval is then a quantile of these scores times the std: whatever the shape of the errors, it
covers as often as it says on data like the held-out data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from noisewise.errors import DataError, brief

MAX_SCORES = 2_000  # kept of a large calibration set: its quantiles, rounded away from zero


@dataclass(frozen=True, eq=False)
class Calibration:
    """What held-out errors say of the predicted std."""

    scale: float  # makes the mean squared score 1: std times scale is the calibrated std
    scores: npt.NDArray[np.float64]  # sorted absolute errors over calibrated std: ``MAX_SCORES``
    n: int  # held-out observations

    __repr__ = brief

    @classmethod
    def measure(cls, error: npt.ArrayLike, std: npt.ArrayLike) -> Calibration:
        """Learn from errors on data that was not trained on, and the std predicted for them.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> calibration = Calibration.measure(rng.normal(0, 2, 5000), np.ones(5000))
        >>> round(calibration.scale, 1)
        2.0
        """
        with np.errstate(divide="ignore", invalid="ignore"):  # what is not finite is refused below
            scores = np.sort(np.abs(np.asarray(error, float)) / np.asarray(std, float))
        if len(scores) == 0 or not np.isfinite(scores).all():
            raise DataError("Calibration needs held-out errors and stds that are finite numbers.")
        scale = float(np.sqrt(np.mean(scores**2))) or 1.0
        kept = scores
        if len(scores) > MAX_SCORES:
            kept = np.quantile(scores, np.linspace(0, 1, MAX_SCORES), method="higher")
        return cls(scale, kept / scale, len(scores))

    def half_width(self, coverage: float) -> float:
        """Calibrated stds to either side of the mean that hold ``coverage`` of the cells."""
        check_coverage(coverage)
        rank = math.ceil((self.n + 1) * coverage - 1e-9)  # of 1 to n: the score that covers enough
        if rank > self.n:  # more than so few can tell
            return max(float(self.scores[-1]), normal_half_width(coverage))
        place = math.ceil((rank - 1) * (len(self.scores) - 1) / max(self.n - 1, 1))
        return float(self.scores[place])


def normal_half_width(coverage: float) -> float:
    """Stds to either side of the mean that hold ``coverage`` of a normal distribution."""
    check_coverage(coverage)
    return float(ndtri(0.5 + 0.5 * coverage))


def check_coverage(coverage: float) -> None:
    """Raise unless coverage is a share strictly between 0 and 1."""
    if not 0.0 < coverage < 1.0:
        raise DataError(f"coverage must be between 0 and 1, e.g. 0.9; got {coverage!r}.")
