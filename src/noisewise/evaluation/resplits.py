"""How large test parts are beside training parts, where splits are random and of the same data.

Intervals and tests over such splits need it (`noisewise.metrics.summarise`).
"""

from __future__ import annotations

import math
from typing import Any

TENTH = ("random", "paper", "user")


def split_ratio(protocol: Any, data: dict[str, Any]) -> float:
    """Return the size of a test part over that of its training part, validation included.

    Parameters
    ----------
    protocol : str or dict
        As a result has it: the name of one for ratings, or one for sensors. None stands for
        experiments on data that are drawn anew.
    data : dict
        Number of observations, and shape, as a result has them.

    Returns
    -------
    float
        0 where there is a single split, or none.

    Examples
    --------
    >>> split_ratio("paper", {"observations": 1000, "shape": [60, 50]}) * 9
    1.0
    >>> split_ratio({"kind": "cells", "share": 0.2}, {"observations": 500, "shape": [10, 100]})
    1.5
    >>> split_ratio("time", {"observations": 1000, "shape": [60, 50]})
    0.0
    """
    if protocol in TENTH:
        return 1 / 9
    if not isinstance(protocol, dict):
        return 0.0
    share: float = protocol["share"]
    if protocol["kind"] == "blocks":
        return share / (1 - share)
    train = int(share * math.prod(data["shape"]) + 1e-6)  # as `share_split` counts them
    return float((data["observations"] - train) / train)
