"""Who takes part in a contest after its first trial, and what the others are said to err.

Those far behind leave, as do all but a few of those that cost seconds, and twins: a model of
seasons says just what another one says of a table that has none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

FEW = 30  # hidden cells that tell nobody to be hopeless
CHEAP = 2.0  # times the error of the best of those that cost little, which may do well in others


class Limits(NamedTuple):
    """What it takes to go on."""

    error: float  # times that of the best, at most
    dear: int  # models that cost seconds, at most


AFTER_A_TRIAL = Limits(1.5, 5)
AFTER_A_HEAT = Limits(1.6, 3)  # some learn more from a larger window than others


def hopeful(
    errors: Mapping[str, float], names: list[str], dear: Collection[str], n: int, limits: Limits
) -> list[str]:
    """Return those that are worth another trial: near the best, and of the dear the best few.

    Examples
    --------
    >>> hopeful({"linear": 1.0, "bayes": 1.4, "forest": 1.6}, ["linear", "bayes", "forest"],
    ...         ["bayes", "forest"], 100, AFTER_A_TRIAL)
    ['linear', 'bayes']
    """
    if n < FEW or not names:
        return names
    least = min(errors[name] for name in names)
    order = sorted((name for name in names if name in dear), key=lambda name: errors[name])
    kept = {name for name in order[: limits.dear] if errors[name] <= limits.error * least}
    kept |= {name for name in names if name not in dear and errors[name] <= CHEAP * least}
    return [name for name in names if name in kept]


def without_twins(said: Mapping[str, Any], names: list[str]) -> list[str]:
    """Return those that say something of their own: of twins, the first.

    Examples
    --------
    >>> said = {"a": np.array([1.0, 2.0]), "b": np.array([1.0, 3.0]), "c": np.array([1.0, 2.0])}
    >>> without_twins(said, ["a", "b", "c"])
    ['a', 'b']
    """
    kept: list[str] = []
    for name in names:
        if not any(np.array_equal(said[name], said[other]) for other in kept):
            kept.append(name)
    return kept


def as_if_later(
    told: list[dict[str, float]], staying: list[str], bounds: tuple[float, float]
) -> dict[str, float]:
    """Return errors of those that left early, as if later trials had been as hard for them."""
    least, most = bounds
    found: dict[str, float] = {}
    for turn in told if staying else []:
        harder = float(np.mean([told[-1][name] / max(turn[name], least) for name in staying]))
        left = turn.keys() - {*staying}
        found |= {name: min(harder * turn[name], most) for name in left}
    return found
