"""What ``AutoFactorizer`` says of its choice, in sentences."""

from __future__ import annotations

from typing import Any

from noisewise.models.contest import Contest, Scaling
from noisewise.models.mixing import Mix
from noisewise.models.temporal import TemporalFactorizer


def no_choice(taken: Mix) -> str:
    """Say that there was too little to choose by."""
    return f"chose {str(taken)!r}, the first: too few observations to judge by."


def of_choice(scores: dict[str, dict[str, float]], chosen: Mix, found: Contest, like: str) -> str:
    """Say what was chosen, by what, and the errors of all."""
    told = ", ".join(f"{name} {one['error']:.3g}" for name, one in scores.items())
    holes = "holes like those of the table" if like == "table" else f"holes like {like!r}"
    n = int(found.trial.max()) + 1
    return (
        f"chose {str(chosen)!r}: lowest error on {len(found.truth):,} readings hidden by {holes} "
        f"in {n} trial{'s' if n > 1 else ''}, in units of the std of each series; {told}."
    )


def of_scale(chosen: Scaling, errors: dict[str, float]) -> str:
    """Say which scale was taken, and what others would have come to."""
    told = ", ".join(f"{name} {error:.3g}" for name, error in errors.items())
    taken = "readings as they are" if chosen.name is None else f"the {chosen.name} of readings"
    return f" It computes in {taken}; {told}."


def of_ranks(chosen: dict[str, Any], judged: dict[str, Any], ratio: float) -> str:
    """Say which models have more factors than they were judged with."""
    more = {
        name: (model.rank, judged[name].rank)
        for name, model in chosen.items()
        if isinstance(model, TemporalFactorizer) and model.rank > judged[name].rank
    }
    if not more:
        return ""
    told = ", ".join(f"{name} {own} factors instead of {old}" for name, (own, old) in more.items())
    return f" The table has {ratio:.0f} times the readings of a trial, so there are more: {told}."
