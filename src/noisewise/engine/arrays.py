"""Types: arrays, moments of predictions, and where arrays come back from."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int64]
Values = npt.NDArray[Any]
Arrays = dict[str, Values]  # by name


class Moments(NamedTuple):
    """Mean of cells, and their variance told apart: noise, and epistemic, of rows hardly known."""

    mean: Floats
    noise: Floats
    epistemic: Floats


class Source(Protocol):
    """Where numbers and arrays come back from: a part of a file, which is not trusted.

    What does not have the type, the shape or the bounds that are asked for raises an error.
    """

    @property
    def header(self) -> dict[str, Any]:
        """All but the arrays, as it is."""

    @property
    def tensors(self) -> Arrays:
        """The arrays, as they are."""

    def part(self, name: str) -> Source:
        """Return arrays below a name, and what the header has below it, or else all of it."""

    def array(self, name: str, dtype: str, *shape: int | None) -> Values:
        """Return an array of a type and shape; None is any length."""

    def whole(self, name: str, least: int = 0, most: int = 2**53) -> int:
        """Return a whole number within bounds."""

    def real(self, name: str, above: float = -np.inf) -> float:
        """Return a number above a bound."""

    def damaged(self, words: str, name: str | None = None) -> Exception:
        """Return what to raise where something else is wrong, with an array if it has a name."""
