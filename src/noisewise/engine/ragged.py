"""Rows of unequal lengths in batches: padded to the longest of a batch, alike in length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Counts, Ints
from noisewise.engine.devices import Device

SPREAD = 1.25  # length of the longest row of a batch over that of its shortest, about
FEW = 8  # entries by which they may differ in any case
SHARE = 4  # of the free memory that a batch takes: one part of so many
MOST = 2**31  # bytes of a batch


class Batch(NamedTuple):
    """Some rows, a line each."""

    rows: Ints  # which
    lengths: Ints
    at: Ints  # where the entries of each are; what pads a row is at its first entry
    valid: npt.NDArray[np.bool_]  # which entries are no padding


def batches(starts: Counts, most: int, fixed: int = 0) -> Iterator[Batch]:
    """Yield rows, of which row k has the entries ``starts[k]:starts[k + 1]``, the short ones first.

    A batch has at most ``most`` entries, where a row counts as ``fixed`` entries more than it has,
    or a single row. Every row has an entry.

    Examples
    --------
    >>> [batch.rows.tolist() for batch in batches(np.array([0, 40, 42, 43]), 100)]
    [[2, 1], [0]]
    """
    lengths = np.diff(starts)
    order = np.argsort(lengths, kind="stable")
    first = 0
    while first < len(order):
        longest = SPREAD * lengths[order[first]] + FEW
        alike = int(np.searchsorted(lengths[order], longest, side="right"))
        padded = np.arange(1, alike - first + 1) * (lengths[order[first:alike]] + fixed)
        many = max(1, int(np.searchsorted(padded, most, side="right")))
        rows = order[first : first + many]
        own = lengths[rows]
        place = np.arange(own[-1])
        valid = place < own[:, None]
        yield Batch(rows, own, starts[rows][:, None] + np.where(valid, place, 0), valid)
        first += many


def entries(device: Device, floats: int) -> int:
    """Return how many entries a batch may have, where each needs so many numbers of eight bytes."""
    return max(1, min(MOST, device.free_bytes() // SHARE) // (8 * floats))


def times(xp: Any, matrices: Any, vectors: Any) -> Any:
    """Multiply each matrix with its vector."""
    return xp.matmul(matrices, vectors[..., None])[..., 0]
