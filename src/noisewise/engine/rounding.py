"""Rows of numbers in a byte each: whole multiples of a power of two that each row has.

Draws differ by far more than such rounding moves them, and their average by less still. In memory
rounded numbers are of half precision, which holds them exactly; so do the bytes of a file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Halves = npt.NDArray[np.float16]
Bytes = npt.NDArray[np.uint8]

MOST = 127  # multiples, either way
LEAST_POWER, MOST_POWER = -24, 9  # what half precision can hold
OFFSET = 128  # of multiples and powers in bytes


def rounded(rows: Halves) -> Halves:
    """Round numbers to the multiples of their row; numbers rounded before stay as they are.

    Examples
    --------
    >>> rounded(np.array([[100.3, -0.6, 63.5], [1e-3, 0.0, 0.0]], dtype=np.float16)).tolist()
    [[100.0, -1.0, 64.0], [0.001007080078125, 0.0, 0.0]]
    """
    power = _powers(rows)
    multiples = np.rint(np.ldexp(rows.astype(np.float32), -power))
    return np.ldexp(multiples, power).astype(np.float16)


def coded(rows: Halves) -> tuple[Bytes, Bytes] | None:
    """Return multiples and powers as bytes; None unless all numbers were rounded."""
    power = _powers(rows)
    multiples = np.ldexp(rows.astype(np.float32), -power)
    if not (np.abs(multiples) <= MOST).all() or (multiples != np.rint(multiples)).any():
        return None
    return (multiples + OFFSET).astype(np.uint8), (power[..., 0] + OFFSET).astype(np.uint8)


def decoded(multiples: Bytes, powers: Bytes) -> Halves | None:
    """Undo ``coded``; None for powers that it never gives."""
    power = powers.astype(np.int32) - OFFSET
    if power.size and (power.min() < LEAST_POWER or power.max() > MOST_POWER):
        return None
    return np.ldexp(multiples.astype(np.float32) - OFFSET, power[..., None]).astype(np.float16)


def all_decoded(tensors: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Return tensors by name, with each pair of multiples and powers as the numbers it stands for.

    Examples
    --------
    >>> multiples, powers = np.array([[129, 126]], np.uint8), np.array([127], np.uint8)
    >>> all_decoded({"a.multiples": multiples, "a.powers": powers})["a"].tolist()
    [[0.5, -1.0]]
    """
    plain = dict(tensors)
    for name, multiples in tensors.items():
        stem = name.removesuffix(".multiples")
        powers = tensors.get(f"{stem}.powers")
        if stem != name and powers is not None and powers.shape == multiples.shape[:-1]:
            found = decoded(multiples, powers)
            if found is not None:
                del plain[name], plain[f"{stem}.powers"]
                plain[stem] = found
    return plain


def _powers(rows: Halves) -> npt.NDArray[np.int32]:
    largest = np.abs(rows).max(axis=-1, keepdims=True, initial=0.0).astype(np.float32)
    power: npt.NDArray[np.int32] = np.frexp(largest / (MOST + 0.5))[1]
    return np.clip(power, LEAST_POWER, MOST_POWER)
