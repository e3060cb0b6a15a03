"""Checks of what a user chose, with one sentence each."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from noisewise.errors import SettingError


class Rule(NamedTuple):
    """What a setting must be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


def whole(least: int) -> Rule:
    """Ask for a whole number of at least ``least``."""
    return Rule(
        f"a whole number, {least} or more",
        lambda v: isinstance(v, int | np.integer) and type(v) is not bool and bool(v >= least),
    )


def number(*, above: float = -math.inf, least: float = -math.inf, most: float = math.inf) -> Rule:
    """Ask for a finite number between bounds."""
    words = ["a number"]
    words += [f"above {above:g}"] if above > -math.inf else []
    words += [f"at least {least:g}"] if least > -math.inf else []
    words += [f"at most {most:g}"] if most < math.inf else []

    def holds(v: Any) -> bool:
        if type(v) is bool or not isinstance(v, int | float | np.number):
            return False
        return bool(math.isfinite(v) and above < v and least <= v <= most)

    return Rule(", ".join(words), holds)


def one_of(*choices: object) -> Rule:
    """Ask for one of a few."""
    return Rule(
        f"one of {', '.join(map(repr, choices))}",
        lambda v: isinstance(v, Hashable) and v in choices,  # an array has no truth value
    )


def either(first: Rule, *others: object) -> Rule:
    """Ask for what obeys a rule, or is one of a few other things."""
    words = " or ".join([first.words, *map(repr, others)])
    return Rule(words, lambda v: one_of(*others).holds(v) or first.holds(v))


def span() -> Rule:
    """Ask for a pair (low, high)."""

    def holds(v: Any) -> bool:
        pair = isinstance(v, tuple | list) and len(v) == 2
        return pair and all(map(number().holds, v)) and v[0] < v[1]

    return Rule("a pair (low, high)", holds)


def path() -> Rule:
    """Ask for the name of a file."""
    return Rule("a path", lambda v: isinstance(v, str | os.PathLike) and str(v) != "")


def random_seed() -> Rule:
    """Ask for what random numbers can start from."""
    return Rule(
        f"{whole(0).words}, a RandomState or None",
        lambda v: v is None or isinstance(v, np.random.RandomState) or whole(0).holds(v),
    )


def threads() -> Rule:
    """Ask for a number of threads as joblib has it: -1 is all cores."""
    return Rule(
        "a whole number but 0, or None",
        lambda v: v is None or (isinstance(v, int | np.integer) and type(v) is not bool and v != 0),
    )


VERBOSE = one_of(True, False, None)  # whether a progress bar is shown


def check(model: Any, rules: dict[str, Rule]) -> None:
    """Raise for the first setting of ``model`` that does not obey its rule."""
    for name, rule in rules.items():
        value = getattr(model, name)
        if not rule.holds(value):
            raise SettingError(f"{name} must be {rule.words}; got {value!r}.")
