"""How long models are judged, how long they learn, and with how many factors.

Samplers that are judged may be shorter than those that learn from everything in the end. Of few
readings they are longer than usual, of many shorter; and what was judged by a part of a large table
has more factors for the whole.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise.errors import unsaid
from noisewise.models.base import clone_with
from noisewise.models.grid import TableModel
from noisewise.models.sensors import SeriesModel
from noisewise.models.temporal import TemporalFactorizer

SWEEPS = 60, 240  # that a sampler is judged by, at least and at most
WORK = 2_000_000  # readings times sweeps of a sampler that is judged
FEW_READINGS, MANY_READINGS = 15_000_000, 80_000_000  # times sweeps of the last fit
SHORTEST, LONGEST = 80, 600  # sweeps of the last fit
CHAINS, MOST_OF_CHAINS = 2, 2_000_000  # of a sampler that is taken alone; readings at most
ALL_TOGETHER = 1.5  # times the sweeps of one that all have together
WIDER, WIDEST = 4.0, 16  # times the factors that it was judged with, and factors, at most
MUCH, SERIES = 2.0, 3  # times the readings, and series for every factor, at least


def shortened(model: Any, n: int) -> Any:
    """Return an unfitted copy for one thread, to be judged by n readings in no longer than it must.

    Chains that are too short find less in outages than they will: of few readings they are longer.
    """
    if not isinstance(model, TemporalFactorizer):
        return clone_with(model, n_jobs=1)
    sweeps = max(int(np.clip(WORK // n, *SWEEPS)), 3 * model.burn_in)
    return clone_with(model, sweeps=min(model.sweeps, sweeps), n_jobs=1, verbose=False)


def lengthened(model: Any, n: int, together: int) -> Any:
    """Return an unfitted copy to learn from n readings: few take longer to settle, in less time.

    It may be shorter where several are taken together: their mean settles sooner.
    """
    if not isinstance(model, TemporalFactorizer):
        return clone_with(model)
    least, most = min(FEW_READINGS // n, LONGEST), max(MANY_READINGS // n, SHORTEST)
    sweeps = int(min(max(model.sweeps, least), most) * ALL_TOGETHER / max(together, CHAINS))
    return clone_with(model, sweeps=max(sweeps, 3 * model.burn_in))


def as_in_the_end(model: Any, n: int, together: int) -> Any:
    """Return an unfitted copy for one thread, to be judged as it will learn in the end."""
    quiet = {"verbose": False} if isinstance(model, TemporalFactorizer) else {}
    return clone_with(lengthened(model, n, together), n_jobs=1, **quiet)


def widened(model: Any, ratio: float, n_series: int) -> Any:
    """Return an unfitted copy for ``ratio`` times the readings that a model was judged by.

    What more readings of many series tell takes more factors; what is not needed fades away.

    Examples
    --------
    >>> model = TemporalFactorizer(4)
    >>> [widened(model, ratio, 100).rank for ratio in (1.9, 6.0, 20.0, 400.0)]
    [4, 9, 16, 16]
    >>> widened(model, 20.0, 18).rank
    6
    """
    if not isinstance(model, TemporalFactorizer) or ratio < MUCH:
        return clone_with(model)
    wider = int(model.rank * np.clip(math.sqrt(ratio), 1.0, WIDER))
    return clone_with(model, rank=max(model.rank, min(wider, WIDEST, n_series // SERIES)))


def has_chains(model: Any, n: int) -> bool:
    """Tell whether several chains are worth it: each may have found another part of the truth."""
    return isinstance(model, TemporalFactorizer) and n <= MOST_OF_CHAINS


def fitted(model: Any, seen: Any) -> Any:
    """Fit a model as long as was chosen for it: that more would be better is nobody's concern."""
    with unsaid("Predictions have not settled"):
        return model.fit(seen)


def uncalibrated(model: Any) -> Any:
    """Take from a fitted model what its own few held-out cells said of its std."""
    model.calibration_ = None
    return model


def is_dear(model: Any) -> bool:
    """Tell whether a model costs seconds."""
    table = isinstance(model, TableModel) and model.method == "forest"
    return table or not isinstance(model, SeriesModel)
