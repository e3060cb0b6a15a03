"""Means over splits with their intervals, and tests in pairs, corrected for their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from noisewise.evaluation import comparison
from noisewise.evaluation.comparison import split_ratio
from noisewise_reproduction.runs.run import Run

RATIO = "test_ratio"  # of test part to training part: what intervals over splits need

Row = dict[str, Any]
Finished = list[tuple[Run, dict[str, Any]]]  # runs and their records


def rows_of(found: Finished, part: Callable[[dict[str, Any]], Row]) -> list[Row]:
    """Return one row per run: its labels, a part of its numbers, and the ratio of its split."""
    return [
        {**run.labels, **part(record["numbers"]), RATIO: run_ratio(run)} for run, record in found
    ]


def run_ratio(run: Run) -> float:
    """Return the size of the test part of a run over that of its training part."""
    return split_ratio(run.about.get("protocol"), run.about.get("data", {}))


def scores(numbers: dict[str, Any]) -> Row:
    """Return the scores of a run."""
    found: Row = numbers["scores"]
    return found


def summarised(rows: Sequence[Row], by: Sequence[str]) -> list[Row]:
    """Return mean and 95 % interval over splits of every number that all rows of a group have.

    Parameters
    ----------
    rows : sequence of dict
        One per split, with the ratio of its test part to its training part; without it, rows are
        taken as independent.
    by : sequence of str
        What makes a group.

    Examples
    --------
    >>> rows = [{"model": "a", "seed": 0, "rmse": 1.0}, {"model": "a", "seed": 1, "rmse": 3.0}]
    >>> (row,) = summarised(rows, ["model"])
    >>> row["splits"], row["mean"]["rmse"]
    (2, 2.0)
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in by), []).append(row)
    return [
        {**dict(zip(by, key, strict=True)), "splits": len(group), **_summary(group, by)}
        for key, group in groups.items()
    ]


def paired(
    rows: Sequence[Row], pairs: Iterable[Sequence[str]], by: Sequence[str], metric: str
) -> list[Row]:
    """Test models against each other on the splits that both have; corrected by Holm's method.

    Parameters
    ----------
    rows : sequence of dict
        One per model and split.
    pairs : sequence of pairs
        Models; the difference is that of the first minus the second.
    by : sequence of str
        What rows must have in common beside the split, such as the dataset.
    metric : str
        What is compared.

    Returns
    -------
    list of dict
        Difference, interval, wins, and the p-values of Student's t and of Wilcoxon, each also as
        corrected for all tests of the list.
    """
    tests = []
    groups = list(dict.fromkeys(tuple(row[key] for key in by) for row in rows))
    for group in groups:
        inside = [row for row in rows if tuple(row[key] for key in by) == group]
        for a, b in pairs:
            one, other = (
                {row["seed"]: row[metric] for row in inside if row["model"] == name}
                for name in (a, b)
            )
            seeds = sorted(one.keys() & other.keys())
            if seeds:
                first, second = ([errors[seed] for seed in seeds] for errors in (one, other))
                test = comparison.paired_test(first, second, _ratio(inside))
                what = {**dict(zip(by, group, strict=True)), "a": a, "b": b}
                tests.append({**what, "metric": metric, **test._asdict()})
    return corrected(tests, "t_pvalue", "wilcoxon_pvalue")


def corrected(tests: list[Row], *names: str) -> list[Row]:
    """Add to each test its p-values corrected for all of them, as ``<name>_holm``."""
    for name in names:
        for test, value in zip(tests, holm([test[name] for test in tests]), strict=True):
            test[f"{name}_holm"] = value
    return tests


def holm(pvalues: Sequence[float]) -> list[float]:
    """Correct p-values for their number by Holm's method; one that is nan stays so, uncounted.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none gets smaller than the
    one before, or larger than 1.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(pvalues, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    raised = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    out = np.full(len(p), np.nan)
    out[order] = np.minimum(raised, 1.0)
    return out.tolist()


def _summary(group: list[Row], by: Sequence[str]) -> Row:
    names = [
        name
        for name, value in group[0].items()
        if name not in (*by, "seed", RATIO)
        and (value is None or isinstance(value, int | float))
        and all(name in row for row in group)
    ]
    ratio = _ratio(group)
    found = {
        name: comparison.summarise([_number(row[name]) for row in group], ratio) for name in names
    }
    return {
        "mean": {name: one.mean for name, one in found.items()},
        "interval95": {name: [one.low, one.high] for name, one in found.items()},
    }


def _ratio(group: list[Row]) -> float:
    """Return the ratio of a group of splits, which have the same protocol and data."""
    return float(group[0].get(RATIO, 0.0))


def _number(value: float | None) -> float:
    """Return a number; what JSON has as null could not be measured."""
    return float("nan") if value is None else value
