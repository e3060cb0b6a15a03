"""Significance tests over splits: means with their intervals, and two models on the same splits.

Random splits of the same data share most of their training parts, so that what is measured on them
scatters less than on new data. Nadeau and Bengio (2003) therefore take the variance of a mean over
n splits to be ``1 / n + test_ratio`` times that of one split, in place of ``1 / n``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from noisewise import metrics
from noisewise.errors import DataError

Result = dict[str, Any]


def split_ratio(protocol: Any, data: dict[str, Any]) -> float:
    """Return the size of a test part over that of the rest; 0 of a single split, or of none."""
    if protocol in ("random", "paper", "user"):
        return 1 / 9
    if not isinstance(protocol, dict):
        return 0.0
    share: float = protocol["share"]
    if protocol["kind"] == "blocks":
        return share / (1 - share)
    train = int(share * math.prod(data["shape"]) + 1e-6)  # as `share_split` counts them
    return float((data["observations"] - train) / train)


class Summary(NamedTuple):
    """A mean over `n` splits and its 95 % interval."""

    mean: float
    low: float
    high: float
    n: int


def summarise(values: ArrayLike, test_ratio: float = 0.0) -> Summary:
    """Mean of one metric over splits, with the 95 % interval of Student's t.

    The interval of one value is nan. A metric that is nan on one split is nan over all.
    ``test_ratio`` is the size of a test part over that of its training part; 0 for values that are
    independent, such as those of data drawn anew.

    Examples
    --------
    >>> found = summarise([0.84, 0.83, 0.85])
    >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
    (0.84, 0.815, 0.865)
    """
    values = metrics.one_column("values", values)
    mean, n, reach = float(values.mean()), len(values), math.nan
    if n > 1:
        reach = float(stats.t.ppf(0.975, n - 1)) * _standard_error(values, test_ratio)
    return Summary(mean, mean - reach, mean + reach, n)


class PairedTest(NamedTuple):
    """Two methods on the same `n` splits: `difference` is the mean of a - b, below 0 if a is lower.

    `low` and `high` are its 95 % interval; `wins` counts the splits where a is lower than b.
    """

    difference: float
    low: float
    high: float
    t_pvalue: float
    wilcoxon_pvalue: float
    wins: int
    n: int


def paired_test(a: ArrayLike, b: ArrayLike, test_ratio: float = 0.0) -> PairedTest:
    """Test whether a metric of method `a` differs from that of `b`, split by split (two-sided).

    With a `test_ratio` the t-test and its interval are those of random splits of the same data, as
    in `summarise`; Wilcoxon's test takes splits as independent, and cannot go below
    ``2 ** (1 - n)``: .0625 for five splits. Differences of rounding size count as 0. Where nothing
    varies p-values are those of the limit; that of the t-test is nan with one split.

    Examples
    --------
    >>> test = paired_test([0.84, 0.83, 0.85], [0.86, 0.84, 0.88])
    >>> round(test.difference, 3), test.wins, test.n
    (-0.02, 3, 3)
    """
    a, b = metrics.columns(a=a, b=b)
    rounding = 64 * np.finfo(np.float64).eps * max(np.abs(a).max(), np.abs(b).max())
    difference = np.where(np.abs(a - b) > rounding, a - b, 0.0)
    changed = difference[difference != 0]
    mean, low, high, n = summarise(difference, test_ratio)
    if n == 1:
        t_pvalue = float("nan")
    elif np.ptp(difference) <= rounding:  # without spread the statistic is 0 / 0 or infinite
        t_pvalue = float(len(changed) == 0)
    else:
        t = abs(mean) / _standard_error(difference, test_ratio)
        t_pvalue = float(2 * stats.t.sf(t, n - 1))
    wilcoxon_pvalue = float(stats.wilcoxon(changed).pvalue) if len(changed) else 1.0
    wins = int(np.sum(difference < 0))
    return PairedTest(mean, low, high, t_pvalue, wilcoxon_pvalue, wins, n)


class Comparison(NamedTuple):
    """Two models on the same splits: the test of the paper, and the one that pairs the splits."""

    unpaired_pvalue: float
    paired: PairedTest


def usual_metric(result: Result) -> str:
    """Return the error that results are ranked by: mse of sensors, rmse of ratings."""
    return "mse" if any("mse" in row for row in result["splits"]) else "rmse"


def compare(a: Result, b: Result, metric: str | None = None) -> Comparison:
    """Test whether two results differ; ``paired.difference`` is below 0 if `a` is lower.

    The paper's test takes both as independent samples of equal variance (Student's t, two-sided),
    though they are of the same splits. Pairs make use of that, and of what splits share.

    Examples
    --------
    >>> rows = ({"seed": 0, "rmse": 0.84}, {"seed": 1, "rmse": 0.85})
    >>> one = {"data": {}, "protocol": "random", "splits": rows}
    >>> other = one | {"splits": ({"seed": 0, "rmse": 0.90}, {"seed": 1, "rmse": 0.89})}
    >>> compare(one, other).paired.wins
    2
    """
    metric = metric or usual_metric(a)
    alike = all(a[key] == b[key] for key in ("data", "protocol"))
    values = [{row["seed"]: row.get(metric) for row in result["splits"]} for result in (a, b)]
    if not alike or values[0].keys() != values[1].keys():
        raise DataError("Results can only be compared over the same data and the same splits.")
    if None in values[0].values() or None in values[1].values():
        raise DataError(f"Both results need {metric!r} on every split, as a number.")
    first, second = ([column[seed] for seed in values[0]] for column in values)
    return compared(first, second, split_ratio(a["protocol"], a["data"]))


def compared(a: ArrayLike, b: ArrayLike, test_ratio: float) -> Comparison:
    """Test whether two models differ by their errors on the same splits, as ``compare`` does."""
    unpaired = math.nan
    a, b = np.array(a, dtype=np.float64), np.array(b, dtype=np.float64)  # also of huge integers
    if len(a) > 1:
        constant = np.ptp(a) == 0 and np.ptp(b) == 0  # where the p-value is its limit
        unpaired = float(a[0] == b[0]) if constant else float(stats.ttest_ind(a, b).pvalue)
    return Comparison(unpaired, paired_test(a, b, test_ratio))


def _standard_error(values: NDArray[np.float64], test_ratio: float) -> float:
    """Return the standard deviation of a mean over splits, two or more."""
    if not test_ratio >= 0:
        raise DataError(f"test_ratio must be 0 or more; got {test_ratio}.")
    return float(values.std(ddof=1) * np.sqrt(1 / len(values) + test_ratio))
