"""What to sample: the parts that the model has (Spec), and the units of its values (Scale)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from noisewise.engine.arrays import Floats


@dataclass(frozen=True)
class Spec:
    """What the user chose.

    Attributes
    ----------
    rank
        Factors of the mean.
    noise_rank
        Factors of the variance; 0 gives all observations, or those of a series, the same.
    likelihood
        Values as they are, or as levels.
    implicit
        Whether what a row was seen with is part of its prior.
    time
        Whether rows have temporal effects.
    seed, chain
        Of all random streams: chains of the same seed have different ones.
    """

    rank: int
    noise_rank: int
    likelihood: Literal["gaussian", "ordinal"]
    implicit: bool
    time: bool
    seed: int
    chain: int = 0

    @property
    def ordinal(self) -> bool:
        """Whether values are levels."""
        return self.likelihood == "ordinal"


class Scale(NamedTuple):
    """How standardised values become values; of levels, their values and the cut-point at 0."""

    location: float
    scale: float
    low: float  # predictions are clipped to this range
    high: float
    levels: Floats
    anchor: int
