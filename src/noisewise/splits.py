"""Splits into training, validation and test rows.

Of ratings ``test`` is a share of all, ``validation`` a share of what is left then, as in the paper:
10 %, 9 % and 81 %. Splits of sensors go by the cells and not by their order in the table. Parts are
row numbers: they fit arrays, frames and ids alike.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisewise.errors import DataError, brief

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of the three parts; no row is in two of them.

    Examples
    --------
    >>> split = rating_split(100, seed=0)
    >>> len(split.train), len(split.validation), len(split.test), len(split.fit)
    (81, 9, 10, 90)
    """

    train: Rows
    validation: Rows
    test: Rows
    seed: int | None = None  # that drew them; None when nothing was drawn

    __repr__ = brief

    @property
    def fit(self) -> Rows:
        """Everything but test, validation first: for the last fit, once the settings are chosen."""
        return np.concatenate([self.validation, self.train])


def rating_split(n: int, seed: int) -> Split:
    """Split `n` ratings at random, as the paper does: a tenth, a tenth of the rest, the rest.

    With ``order = np.random.default_rng(seed).permutation(n)`` the first ``n // 10`` are test, the
    first tenth of the others is validation, and ``split.fit`` is ``order[n // 10:]``.

    Examples
    --------
    >>> rating_split(100, seed=0).test[:3].tolist()
    [82, 36, 20]
    """
    n_test, n_validation = _sizes(n, 0.1, 0.1, "ratings")
    order = np.random.default_rng(seed).permutation(n)
    test, validation, train = np.split(order, [n_test, n_test + n_validation])
    return Split(train, validation, test, seed)


def split_by_time(
    time: ArrayLike, *, test: float = 0.1, validation: float = 0.1, users: ArrayLike | None = None
) -> Split:
    """Train on the past, test on the future; each part in table order.

    ``time`` has a number or a datetime64 for every row. Of two rows of the same time the upper one
    counts as earlier. With the codes of ``users``, each user's own history is cut and not the
    table's; one of too few rows for a part gives it none.

    Examples
    --------
    >>> split = split_by_time([3, 1, 2, 4], test=0.25, validation=0.4)
    >>> split.train, split.validation, split.test
    (array([1, 2]), array([0]), array([3]))
    """
    when = _checked_time(time)
    user = np.zeros(len(when), dtype=np.int64) if users is None else _codes(users, "users")
    if len(user) != len(when):
        raise DataError(f"users needs one code per row, {len(when)}; got {len(user)}.")
    order = np.lexsort((when, user))  # stable: rows of one user and one time stay in table order
    _, start, count = np.unique(user[order], return_index=True, return_counts=True)
    unit = "rows" if users is None else "rows of one user"
    n_test, n_validation = _sizes(count, test, validation, unit)
    later = np.repeat(start + count, count) - np.arange(len(when))  # 1 for a user's latest row
    in_test = later <= np.repeat(n_test, count)
    in_train = later > np.repeat(n_test + n_validation, count)
    between = ~(in_train | in_test)
    return Split(np.sort(order[in_train]), np.sort(order[between]), np.sort(order[in_test]))


def leave_last_out(time: ArrayLike, users: ArrayLike) -> Split:
    """Test on the last row of every user, validate on the one before it, train on the rest.

    Lists of recommendations are usually judged so. Of two rows of the same time the lower one
    counts as later. Users of one or two rows are trained on, and not tested.

    Examples
    --------
    >>> split = leave_last_out([3, 1, 2, 4, 9], users=[0, 0, 0, 0, 1])
    >>> split.train, split.validation, split.test
    (array([1, 2, 4]), array([0]), array([3]))
    """
    when, user = _checked_time(time), _codes(users, "users")
    if len(user) != len(when):
        raise DataError(f"users needs one code per row, {len(when)}; got {len(user)}.")
    order = np.lexsort((when, user))
    _, count = np.unique(user[order], return_counts=True)
    if count.max(initial=0) < 3:
        raise DataError("Leaving the last row out needs a user with 3 rows or more; got none.")
    later = np.repeat(np.cumsum(count), count) - np.arange(len(when))  # 1 for a user's latest row
    enough = np.repeat(count, count) >= 3
    validation, test = (np.sort(order[enough & (later == k)]) for k in (2, 1))
    return Split(np.sort(order[~enough | (later > 2)]), validation, test)


def core(codes: Sequence[NDArray[np.integer]], least: int) -> Rows:
    """Return the rows of a k-core: the largest part in which every id has ``least`` rows or more.

    ``codes`` has for each mode the row number of every observation.

    Examples
    --------
    >>> users, items = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 0, 1, 1, 2])
    >>> core([users, items], least=2)  # item 2 was seen once; then user 2 has only one row left
    array([0, 1, 2, 3])
    """
    if least < 1:
        raise DataError(f"A k-core needs a k of 1 or more; got {least}.")
    columns = [_codes(column, f"codes of mode {mode}") for mode, column in enumerate(codes)]
    rows = np.arange(len(columns[0]))
    while len(rows):
        counts = [np.bincount(column[rows])[column[rows]] for column in columns]
        stays = np.min(counts, axis=0) >= least
        if stays.all():
            return rows
        rows = rows[stays]
    raise DataError(f"No ids have {least} observations of each other: take a smaller core.")


def split_by_user(
    user_codes: ArrayLike, *, test: float = 0.1, validation: float = 0.1, seed: int
) -> Split:
    """Hold out whole users: every row of a user is in the same part, in table order.

    Any mode will do: pass item codes to hold out items. ``test`` is the share of all users in test,
    ``validation`` that of the other users in validation.

    Examples
    --------
    >>> split = split_by_user([0, 0, 1, 1, 2, 2, 3, 3], test=0.25, validation=0.4, seed=0)
    >>> split.train, split.validation, split.test
    (array([2, 3, 6, 7]), array([0, 1]), array([4, 5]))
    """
    codes, user = np.unique(_codes(user_codes, "user_codes"), return_inverse=True)
    n_test, n_validation = _sizes(len(codes), test, validation, "users")
    return _draw(user, len(codes), int(n_test), int(n_validation), seed)


def random_split(n: int, fraction: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Hold out a random `fraction` of `n` rows: those to train on, and those held out.

    Examples
    --------
    >>> train, held_out = random_split(10, 0.2, np.random.default_rng(0))
    >>> len(train), len(held_out)
    (8, 2)
    """
    _check_share(fraction, "fraction is a share and")
    n_held_out = int(_share(n, fraction))
    if n_held_out < 1:
        needed = bisect_left(range(2**62), 1, key=lambda m: int(_share(m, fraction)))
        raise DataError(f"Holding out {fraction} needs at least {needed} rows; got {n}.")
    order = rng.permutation(n)
    return order[n_held_out:], order[:n_held_out]


def share_split(
    shape: Sequence[int], codes: Sequence[NDArray[np.integer]], share: float, seed: int
) -> Split:
    """Train on a share of all cells of a tensor, test on every other cell that was observed.

    Let n be the observed cells in the order of the modes, and
    ``order = np.random.default_rng(seed).permutation(n)``. Of the cells in this order the first
    ``floor(share * prod(shape))`` are for training, and the first tenth of these, rounded down, for
    validation; the rest is test. So a smaller share of the same seed is a part of a larger one.
    ``codes`` has for each mode the row number of every observed cell, no cell twice.

    Examples
    --------
    >>> codes = np.unravel_index(np.arange(0, 1000, 2), (10, 10, 10))  # every other cell
    >>> split = share_split((10, 10, 10), codes, share=0.2, seed=0)
    >>> len(split.train), len(split.validation), len(split.test)
    (180, 20, 300)
    """
    cell = _cells(codes, shape)
    _check_share(share, "share")
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

    ``codes`` has for each mode but time the row number of every observation: they name its series.
    ``time`` says when it was made, and is cut into stretches of ``length`` from the earliest on. A
    block is what one series has in one stretch. Of the blocks with an observation, ordered by
    series and stretch, a permutation drawn from the seed puts the first ``floor(share * n)`` into
    test and the first tenth of the rest, rounded down, into validation; parts are in table order.

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
    when = np.asarray(time)
    if when.shape != series.shape or when.dtype.kind not in "iuf" or not np.isfinite(when).all():
        got = f"dtype {when.dtype} and shape {when.shape}"
        raise DataError(f"time needs one finite number per row, {len(series)}; got {got}.")
    if not (length > 0 and math.isfinite(length)):
        raise DataError(f"length must be above 0, in units of time; got {length}.")
    _check_share(share, "share")
    stretch = np.asarray(np.floor((when - when.min()) / length), dtype=np.int64)
    _, block = np.unique(series * (stretch.max() + 1) + stretch, return_inverse=True)
    n = int(block.max()) + 1
    n_test = int(share * n + 1e-6)
    n_validation = (n - n_test) // 10
    if n_test < 1 or n_validation < 1:
        raise DataError(
            f"A share of {share:g} of {n} blocks leaves {n_test} for test and {n_validation} for "
            f"validation; take shorter ones than {length:g} or another share."
        )
    return _draw(block, n, n_test, n_validation, seed)


def _share(n: int | Rows, fraction: float) -> Rows:
    """Floor of `fraction` of each `n`, forgiving .29 * 100 = 28.999999; at least one stays out."""
    share: Rows = np.minimum(np.floor(np.multiply(n, fraction) + 1e-6), np.subtract(n, 1))
    return share.astype(np.int64)


def _sizes(n: int | Rows, test: float, validation: float, unit: str) -> tuple[Rows, Rows]:
    """How many of each `n` are test and validation; refuse numbers too small for all parts."""
    _check_share(test, "test is a share and")
    _check_share(validation, "validation is a share and")

    def sizes(n: int | Rows) -> tuple[Rows, Rows]:
        n_test = _share(n, test)
        return n_test, _share(n - n_test, validation)

    largest = n if isinstance(n, int) else int(n.max(initial=0))
    if min(sizes(largest)) < 1:
        needed = bisect_left(range(2**62), True, key=lambda m: bool(min(sizes(m)) >= 1))
        raise DataError(
            f"A split with test={test} and validation={validation} needs at least {needed} {unit}; "
            f"got {largest}."
        )
    return sizes(n)


def _check_share(share: float, subject: str) -> None:
    if not 0 < share < 1:
        raise DataError(f"{subject} must lie between 0 and 1; got {share}.")


def _checked_time(time: ArrayLike) -> NDArray[Any]:
    when = np.asarray(time)
    if when.ndim != 1 or when.dtype.kind not in "iufmM":
        got = f"dtype {when.dtype} and shape {when.shape}"
        raise DataError(f"time needs one number or datetime64 per row; got {got}.")
    if np.isnan(when).any():
        row = int(np.isnan(when).argmax())
        raise DataError(f"time needs a value in every row; got {when[row]} in row {row}.")
    return when


def _codes(codes: ArrayLike, name: str) -> Rows:
    array = np.asarray(codes)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"{name} needs one integer code per row; got dtype {array.dtype} and shape "
            f"{array.shape}: turn ids into codes with np.unique(ids, return_inverse=True)[1]."
        )
    return array.astype(np.int64, copy=False)


def _draw(unit: Rows, n: int, n_test: int, n_validation: int, seed: int) -> Split:
    """Draw a part for each of `n` units; a row goes where its unit goes."""
    order = np.random.default_rng(seed).permutation(n)
    parts = np.split(order, [n_test, n_test + n_validation])
    test, validation, train = (np.flatnonzero(np.isin(unit, part)) for part in parts)
    return Split(train, validation, test, seed)


def _cells(codes: Sequence[NDArray[np.integer]], shape: Sequence[int]) -> Rows:
    """Return the number of each cell, in the order of the modes."""
    columns = [_codes(column, f"codes of mode {mode}") for mode, column in enumerate(codes)]
    if len(columns) != len(shape) or not columns:
        raise DataError(f"codes needs one array per mode, {len(shape)}; got {len(columns)}.")
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1 or not lengths[0]:
        raise DataError(f"codes needs the same rows in every mode, one or more; got {lengths}.")
    for mode, (column, size) in enumerate(zip(columns, shape, strict=True)):
        if column.min() < 0 or column.max() >= size:
            wrong = column.min() if column.min() < 0 else column.max()
            raise DataError(f"codes of mode {mode} must lie in 0 to {size - 1}; got {wrong}.")
    return np.asarray(np.ravel_multi_index(columns, shape), dtype=np.int64)
