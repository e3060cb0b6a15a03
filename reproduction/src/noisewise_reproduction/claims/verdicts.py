"""Verdicts: whether what was measured here is what the paper says.

Lower is better for every number of the paper. Its number has an interval, or is taken as it is;
ours is a mean with its 95 % interval over splits.

.. code-block:: text

    better            our whole interval is below the paper's
    reproduced        the intervals overlap
    not reproduced    our whole interval is above the paper's
    not judged        there is no interval, as there was one split; or the run was a quick one
    not measured      there are no numbers, as data or a library are missing
"""

from __future__ import annotations

from typing import Any

BETTER, REPRODUCED, MISSED = "better", "reproduced", "not reproduced"
OPEN, MISSING = "not judged", "not measured"
LEVEL = 0.05

Result = dict[str, Any]


def of_interval(low: float | None, high: float | None, paper: float, reach: float = 0.0) -> str:
    """Judge an interval by the paper's number, plus or minus its reach.

    Examples
    --------
    >>> of_interval(0.831, 0.836, 0.845, 0.003)
    'better'
    >>> of_interval(0.843, 0.849, 0.841, 0.003)
    'reproduced'
    >>> of_interval(None, None, 0.841)
    'not judged'
    """
    if low is None or high is None:
        return OPEN
    if high < paper - reach:
        return BETTER
    return MISSED if low > paper + reach else REPRODUCED


def of_rule(kept: bool | None) -> str:
    """Judge a rule that was kept, or not; None if that cannot be said.

    Examples
    --------
    >>> of_rule(True), of_rule(False), of_rule(None)
    ('reproduced', 'not reproduced', 'not judged')
    """
    return OPEN if kept is None else REPRODUCED if kept else MISSED


def is_below(test: Result) -> bool | None:
    """Return whether the first of two models is lower, by a corrected test; None if unknown."""
    return None if test["t_pvalue_holm"] is None else _sure(test) and test["difference"] < 0


def is_above(test: Result) -> bool | None:
    """Return whether the first of two models is higher, by a corrected test; None if unknown."""
    return None if test["t_pvalue_holm"] is None else _sure(test) and test["difference"] > 0


def together(kept: list[bool | None]) -> bool | None:
    """Return whether all rules were kept: a broken one decides, then one that is unknown.

    Examples
    --------
    >>> together([True, None]), together([False, None]), together([True])
    (None, False, True)
    """
    if any(one is False for one in kept):
        return False
    return None if None in kept or not kept else True


def _sure(test: Result) -> bool:
    return bool(test["t_pvalue_holm"] < LEVEL)
