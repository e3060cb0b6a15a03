"""Values that are levels, such as stars: which there are, and the smallest sets that hold them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise.calibration import Calibration, check_coverage, kept_sets, up_to
from noisewise.errors import DataError

MOST_LEVELS = 50  # more distinct values are no levels
CHECKED = 10_000  # values that are looked at first

Levels = npt.NDArray[np.float64]


def levels_of(values: npt.NDArray[np.floating]) -> Levels:
    """Return the levels that values have, in order; none where they are not few.

    Examples
    --------
    >>> levels_of(np.array([4.0, 5.0, 1.0, 5.0]))
    array([1., 4., 5.])
    >>> levels_of(np.linspace(0.0, 1.0, 200))
    array([], dtype=float64)
    """
    for some in (values[:CHECKED], values):
        found = np.unique(some)
        if len(found) > MOST_LEVELS:
            return np.empty(0)
    return found.astype(np.float64)


def smallest_sets(
    levels: Levels, chances: Levels, calibration: Calibration | None, coverage: float
) -> npt.NDArray[np.bool_]:
    """Return for every cell which levels the smallest set has that covers enough."""
    check_coverage(coverage)
    if not len(levels):
        raise DataError(
            "predict_set needs a model of values that are levels, such as stars: at most "
            f"{MOST_LEVELS} different ones, and not a model of the simplest or of sensors. "
            "predict_interval is for all others."
        )
    reach = up_to(chances)
    if calibration is None or calibration.sets is None:
        within = reach - chances < coverage  # the least that has enough of their own chances
    else:
        within = reach <= calibration.set_reach(coverage)
    sets: npt.NDArray[np.bool_] = within | (chances == chances.max(axis=1, keepdims=True))
    return sets


def with_sets(calibration: Calibration, levels: Levels, chances: Levels, truth: Any) -> Calibration:
    """Let a calibration know what it takes for sets of levels to cover held-out values."""
    return replace(calibration, sets=kept_sets(chances, levels, truth))
