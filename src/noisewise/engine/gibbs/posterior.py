"""What was learned: kept draws of rows, and what cells have from them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Codes, Counts, Floats, Moments
from noisewise.engine.gibbs.data import Data
from noisewise.engine.gibbs.draw import Draw, Floats64, Snapshot
from noisewise.engine.gibbs.spec import Spec
from noisewise.errors import brief


class Rows(NamedTuple):
    """Some rows of a mode in one draw; ``unknown`` ones stand for ids never seen.

    Rows that were not drawn, but are known by their distribution, have a ``covariance`` each, the
    bias last.
    """

    factors: Floats
    biases: Floats
    noise: Floats
    widths: Floats
    unknown: npt.NDArray[np.bool_]
    covariance: Floats

    def take(self, chosen: Any) -> Rows:
        """Return some of the rows."""
        arrays: Any = (array[chosen] for array in self)
        return Rows(*arrays)


class Sums:
    """What is summed over draws for cells; of levels in units, else in standardised units.

    ``mean`` is of predictions clipped to the range of values, ``centre`` and ``square`` of what the
    draws say: clipping a prediction must not change its std.
    """

    def __init__(self, n: int, n_levels: int) -> None:
        self.draws = 0
        self.mean, self.centre, self.square, self.noise = np.zeros((4, n))
        self.probabilities = np.zeros((n, n_levels))

    def moments(self) -> Moments:
        """Mean, noise and epistemic variance of cells."""
        totals: Any = (self.mean, self.centre, self.square, self.noise)
        mean, centre, square, noise = (total / self.draws for total in totals)
        return Moments(mean, noise, np.maximum(square - centre**2, 0.0))


@dataclass(frozen=True)
class Posterior:
    """Kept draws; a code equal to the number of a mode's rows stands for an id never seen.

    Attributes
    ----------
    spec, shape
        What was sampled, and rows of each mode.
    counts
        Observations of every row.
    draws
        Snapshots, stacked: a leading axis of draws.
    """

    spec: Spec
    shape: tuple[int, ...]
    counts: tuple[Counts, ...]
    draws: Snapshot

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.draws["level"])

    def known_codes(self, mode: int, codes: Codes) -> Codes:
        """Send ids never trained on (-1, or without observations) to the last row."""
        count = self.counts[mode]
        known = (codes >= 0) & (count[codes] > 0)
        return np.where(known, codes, len(count)).astype(np.int32)

    def rows(self, draw: int, mode: int, codes: Codes) -> Rows:
        """Rows of a mode by their codes, in one draw."""
        names = "factors", "biases", "noise", "typical", "level"
        one = {name: self.draws[name][draw] for name in names}
        n, first = self.shape[mode], sum(self.shape[:mode])
        unknown = codes == n
        codes = np.where(unknown, 0, codes)
        factors, biases, noise = (
            one[name][codes + first].astype(np.float32) for name in ("factors", "biases", "noise")
        )
        factors[unknown], biases[unknown] = one["typical"][mode, :-1], one["typical"][mode, -1]
        if self.spec.noise_rank:
            noise[unknown] = one["level"] if mode == len(self.shape) - 1 else 1.0
        widths = np.empty((len(codes), 0), dtype=np.float32)
        drawn = np.empty((len(codes), 0, 0), dtype=np.float32)
        return Rows(factors, biases, noise, widths, unknown, drawn)

    def extra(self, draw: int, rows: list[Rows], places: npt.NDArray[np.int32]) -> Floats64:
        """Variance of the mean in one draw: rows never seen."""
        extra = np.zeros(places.shape[1])
        found = [self._open(draw, mode, r, places[mode]) for mode, r in enumerate(rows)]
        for mode, cases in enumerate(found):
            for which, covariance in cases:
                others = [
                    r._replace(covariance=r.covariance[:, :0, :0]).take(at[which])
                    for m, (r, at) in enumerate(zip(rows, places, strict=True))
                    if m != mode
                ]
                extra[which] += spread(_product(others), covariance)
            extra += self.time_variance(draw, mode, rows[mode].unknown[places[mode]])
        for (first, one), (second, other) in itertools.product(found[0], found[1]):
            extra[first & second] += float((one * other)[:-1, :-1].sum())
        return extra

    def time_variance(self, draw: int, mode: int, unknown: npt.NDArray[np.bool_]) -> Any:
        """Variance that temporal effects of a mode add to cells, of unknown rows and of others."""
        return 0.0

    def _open(
        self, draw: int, mode: int, rows: Rows, places: npt.NDArray[np.int32]
    ) -> list[tuple[npt.NDArray[np.bool_], Floats]]:
        """Which cells have a row of a mode that was not drawn, and its covariance."""
        cases = [(rows.unknown[places], self.draws["covariances"][draw, mode])]
        if rows.covariance.size:
            cases += [(places == row, own) for row, own in enumerate(rows.covariance)]
        return [(which, covariance) for which, covariance in cases if which.any()]


def stacked(rows: list[Rows]) -> tuple[npt.NDArray[np.int32], Floats, Floats, Floats]:
    """Put the rows of all modes together: where each mode begins, factors, biases and noise."""
    firsts = np.cumsum([0, *(len(r.biases) for r in rows[:-1])]).astype(np.int32)
    factors, biases, noise = (np.concatenate([r[k] for r in rows]) for k in range(3))
    return firsts, factors, biases, noise


def _product(rows: list[Rows]) -> Rows:
    """Multiply factors of several modes; all else is the first mode's."""
    factors = rows[0].factors
    for other in rows[1:]:
        factors = factors * other.factors
    return rows[0]._replace(factors=factors)


def spread(rows: Rows, covariance: Floats) -> Floats64:
    """Variance that a row of this covariance has with given rows of the others."""
    x = np.column_stack([rows.factors, np.ones(len(rows.factors), dtype=np.float32)])
    return np.asarray(np.einsum("ij,ij->i", x @ covariance, x, dtype=np.float64))


def snapshot(draw: Draw, spec: Spec, data: Data, half: type = np.float16) -> Snapshot:
    """Return what predictions need of rows of a draw, by name; most of it of type ``half``.

    Beside the parts of the draw there are the average row of each mode and the covariance of rows,
    which stand for a row never seen.
    """
    means, covariances = _typical(draw, spec, data)
    return {
        "factors": draw.factors[:, : spec.rank].astype(half),
        "biases": draw.biases.astype(half),
        "noise": draw.noise.astype(np.float32),
        "level": draw.level.astype(np.float32),
        "typical": means.astype(np.float32),
        "covariances": covariances.astype(np.float32),
    }


def _typical(draw: Draw, spec: Spec, data: Data) -> tuple[Floats64, Floats64]:
    """Mean and covariance of the rows that have observations, per mode."""
    means, covariances = [], []
    for mode in range(data.n_modes):
        seen = np.flatnonzero(np.diff(data.starts[mode])) + data.firsts[mode]
        rows = np.column_stack([draw.factors[seen, : spec.rank], draw.biases[seen]])
        rows = rows.astype(np.float64)
        means.append(rows.mean(axis=0))
        centred = rows - means[-1]
        covariances.append(centred.T @ centred / len(rows))
    return np.array(means), np.array(covariances)
