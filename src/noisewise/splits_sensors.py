"""Which cells of a tensor of sensors train, which choose the settings, which judge.

Two questions, two ways to split:

* :func:`share_split`: how good on single readings that are missing? The protocol of the paper.
* :func:`block_split`: how good on an outage, where a sensor is silent for hours or weeks? It is
  the harder question and the more useful one: a single missing reading has neighbours in time that
  nearly give it away.

Both go by the cells and not by their order in the table, so any copy of the data gives the same
parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisewise.errors import DataError
from noisewise.splits import TEST, TRAIN, VALIDATION, Split

Numbers = NDArray[np.int64]


def share_split(
    shape: Sequence[int], codes: Sequence[NDArray[np.integer]], share: float, seed: int
) -> Split:
    """Train on a share of all cells of a tensor, test on every other cell that was observed.

    Let n be the observed cells in the order of the first mode, then the second, then the third, and
    ``order = np.random.default_rng(seed).permutation(n)``. Of the cells in this order the first
    ``floor(share * prod(shape))`` are for training, and the first tenth of these, rounded down, for
    validation. The rest is test. So a smaller share of the same seed is a part of a larger one.

    Parameters
    ----------
    shape : sequence of int
        How many ids each mode has. Cells that were not observed count.
    codes : sequence of integer arrays
        For each mode, the row number of every observed cell; no cell twice.
    share : float
        Share of all cells that is for training, validation included.
    seed : int
        Draws the cells.

    Returns
    -------
    Split
        Row numbers, in the order they were drawn.

    Examples
    --------
    >>> codes = np.unravel_index(np.arange(0, 1000, 2), (10, 10, 10))  # every other cell
    >>> split = share_split((10, 10, 10), codes, share=0.2, seed=0)
    >>> len(split.train), len(split.validation), len(split.test)
    (180, 20, 300)
    """
    cell = _cells(codes, shape)
    _check_share(share)
    n, n_cells = len(cell), math.prod(shape)
    n_fit = int(share * n_cells + 1e-6)  # forgiving .29 * 100 = 28.999999
    if n_fit >= n:
        raise DataError(
            f"A share of {share:g} is {n_fit:,} of {n_cells:,} cells, but only {n:,} are observed "
            f"and one at least must be left for test; take less than {n / n_cells:.4g}."
        )
    if n_fit < 10:
        raise DataError(
            f"A share of {share:g} is {n_fit} of {n_cells:,} cells; at least 10 are needed, one of "
            "them for validation."
        )
    in_order = np.argsort(cell, kind="stable")
    drawn = in_order[np.random.default_rng(seed).permutation(n)]
    validation, train, test = np.split(drawn, [n_fit // 10, n_fit])
    return Split(train, validation, test, seed)


def block_split(
    codes: Sequence[NDArray[np.integer]], time: ArrayLike, length: float, share: float, seed: int
) -> Split:
    """Hide whole stretches of time of single series, as outages do.

    Time is cut into stretches of ``length`` that begin at the earliest time of the table. A block
    is what one series has in one stretch. Of the blocks with an observation, ordered by series and
    stretch, a permutation drawn from the seed puts the first ``floor(share * n)`` into test and the
    first tenth of the rest, rounded down, into validation.

    Parameters
    ----------
    codes : sequence of integer arrays
        For each mode but time, the row number of every observation: they name its series.
    time : array of numbers
        When each observation was made: time ids, not their row numbers where ids have gaps.
    length : float
        Length of a stretch in units of ``time``.
    share : float
        Share of all blocks that is test.
    seed : int
        Draws the blocks.

    Returns
    -------
    Split
        Each part in table order.

    Examples
    --------
    >>> series, time = np.repeat(np.arange(4), 100), np.tile(np.arange(100), 4)
    >>> split = block_split([series], time, length=10, share=0.2, seed=0)
    >>> len(split.train), len(split.validation), len(split.test)
    (290, 30, 80)
    >>> np.unique(10 * series[split.test] + time[split.test] // 10)  # blocks are hidden whole
    array([ 2,  3,  4, 11, 23, 24, 27, 34])
    """
    series = _cells(codes, [int(np.max(column, initial=0)) + 1 for column in codes])
    stretch = _stretches(time, length, len(series))
    _check_share(share)
    _, block = np.unique(series * (stretch.max() + 1) + stretch, return_inverse=True)
    n = int(block.max()) + 1
    n_test = int(share * n + 1e-6)
    n_validation = (n - n_test) // 10
    if n_test < 1 or n_validation < 1:
        raise DataError(
            f"A share of {share:g} of {n} blocks leaves {n_test} for test and {n_validation} for "
            f"validation; take shorter ones than {length:g} or another share."
        )
    part_of = np.full(n, TRAIN)
    order = np.random.default_rng(seed).permutation(n)
    part_of[order[:n_test]] = TEST
    part_of[order[n_test : n_test + n_validation]] = VALIDATION
    part = part_of[block]
    train, validation, test = (np.flatnonzero(part == p) for p in (TRAIN, VALIDATION, TEST))
    return Split(train, validation, test, seed)


def _cells(codes: Sequence[NDArray[np.integer]], shape: Sequence[int]) -> Numbers:
    """Return the number of each cell, in the order of the modes."""
    columns = [np.asarray(column) for column in codes]
    if len(columns) != len(shape) or not columns:
        raise DataError(f"codes needs one array per mode, {len(shape)}; got {len(columns)}.")
    for mode, (column, size) in enumerate(zip(columns, shape, strict=True)):
        if column.ndim != 1 or column.dtype.kind not in "iu" or len(column) != len(columns[0]):
            raise DataError(
                f"codes needs one integer per row and mode; got dtype {column.dtype} and shape "
                f"{column.shape} in mode {mode}, {len(columns[0])} rows in mode 0."
            )
        if not len(column):
            raise DataError("codes is empty: there are 0 rows to split.")
        if column.min() < 0 or column.max() >= size:
            wrong = column.min() if column.min() < 0 else column.max()
            raise DataError(f"codes of mode {mode} must lie in 0 to {size - 1}; got {wrong}.")
    return np.asarray(np.ravel_multi_index(columns, shape), dtype=np.int64)


def _stretches(time: ArrayLike, length: float, n: int) -> Numbers:
    when = np.asarray(time)
    if when.shape != (n,) or when.dtype.kind not in "iuf" or not np.isfinite(when).all():
        raise DataError(
            f"time needs one finite number per row, {n}; got dtype {when.dtype} and shape "
            f"{when.shape}."
        )
    if not (length > 0 and math.isfinite(length)):
        raise DataError(f"length must be above 0, in units of time; got {length}.")
    return np.asarray(np.floor((when - when.min()) / length), dtype=np.int64)


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise DataError(f"share must lie between 0 and 1; got {share}.")
