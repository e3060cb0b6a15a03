"""Weights of observations: what the variance of their noise is divided by, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.data.ids import check_values
from noisewise.errors import DataError


def check_weight(weight: Any, n: int) -> NDArray[np.float32]:
    """Return weights as they should be: n finite numbers, none below 0, one above it at least."""
    found = check_values(weight, "sample_weight").astype(np.float32)
    if len(found) != n:
        raise DataError(f"sample_weight needs one number per row, {n}; got {len(found)}.")
    bad = (found < 0) | ~np.isfinite(found)
    if bad.any():
        row = int(bad.argmax())
        raise DataError(f"sample_weight must not be below 0; got {found[row]:g} in row {row}.")
    if n and not found.any():
        raise DataError(
            "Sample weights must contain at least one non-zero number; got 0 in every row of "
            "sample_weight."
        )
    return found
