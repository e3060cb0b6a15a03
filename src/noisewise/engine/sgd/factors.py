"""Rows of a factorization by id; from them, mean, noise and epistemic variance of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Arrays, Codes, Counts, Floats, Moments
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.layout import BIAS, SHARE, Params, State, aligned_zeros, initial_state
from noisewise.engine.sgd.uncertainty import Population, of_cells, of_modes, of_two_modes
from noisewise.engine.training import mean_in_units, one_blas_thread, variance_in_units
from noisewise.errors import DivergedError, brief

ROUNDING, FLOAT_ROUNDING = 1e-4, 1e-6  # of a table, beside a std and beside the values
LARGEST = 1e9  # number of a row, in standardised units, that nobody would miss


class Side(NamedTuple):
    """Rows of one mode, with what else a cell needs of them."""

    rows: Floats
    spread: Floats
    shrink: Floats

    @property
    def size(self) -> int:
        """How many rows."""
        return len(self.rows)

    def part(self, chosen: slice) -> Side:
        """Return some of the rows."""
        return Side(*(array[chosen] for array in self))


@dataclass(frozen=True)
class Factors:
    """Packed rows in the order of the ids, with one more at the end of each mode.

    That last row stands for an id never seen: the average of the known ones. Rows are of values
    that were standardised: ``value = location + scale * standardised``. With two modes, a spread
    has a number for every row, with more it has two matrices (see ``uncertainty``).
    """

    params: Params
    state: State
    counts: tuple[Counts, ...]  # observations of every row that has an id
    location: float
    scale: float
    spread: tuple[Floats, ...]
    shrink: tuple[Floats, ...]
    worth: float = 1.0  # weight of the observations that noise was learned in units of

    __repr__ = brief

    @classmethod
    def finalize(
        cls,
        params: Params,
        state: State,
        counts: tuple[Counts, ...],
        location: float,
        scale: float,
        order: tuple[Codes, ...],
    ) -> Factors:
        """Put a trained state in the order of the ids, and add what an id never seen gets."""
        rows = tuple(map(_with_average, state.rows, order, counts))
        final = State(rows, state.layout, state.epoch, state.variance)
        in_order = [_with_bias(final, m) for m in range(len(rows))]
        noise = max(state.variance, params.delta, 1e-6)
        measure = of_two_modes if len(rows) == 2 else of_modes
        with one_blas_thread():  # the same bits on any machine's threads
            try:
                spread, shrink = measure(in_order, counts, noise)
            except ValueError as error:
                if all(np.abs(part).max(initial=0.0) < LARGEST for part in final.rows):
                    raise
                raise DivergedError("What was learned is too large to compute with.") from error
        return cls(params, final, counts, location, scale, spread, shrink)

    def in_units_of(self, worth: float) -> Factors:
        """Return the same with noise that was learned of observations of this weight.

        ``params``, ``state`` and what follows from them are of weight 1, whatever it is.
        """
        if worth == self.worth:
            return self
        more = worth / self.worth
        params = replace(self.params, delta=self.params.delta * more)
        state, part = self.state, self.state.layout.parts["deviation"]
        rows = (state.rows[0].copy(), *state.rows[1:])
        rows[0][:, part] *= np.float32(more)
        state = State(rows, state.layout, state.epoch, state.variance * more)
        return replace(self, params=params, state=state, worth=worth)

    @property
    def learned_deviation(self) -> bool:
        """Whether deviation factors were trained; else every cell has the same noise."""
        return self.params.deviation_rank > 0 and self.state.epoch > self.params.warmup

    @cached_property
    def populations(self) -> tuple[Population, ...]:
        """Of two modes, what the rows of each have in common; measured when first asked for."""
        rows = [_with_bias(self.state, m) for m in range(2)]
        with one_blas_thread():  # the same bits on any machine's threads
            return tuple(
                Population.of(rows[m], self.counts[m], rows[1 - m], self.counts[1 - m])
                for m in range(2)
            )

    def known_codes(self, mode: int, codes: Codes) -> Codes:
        """Send ids never trained on (-1, or without observations) to the last row."""
        count = self.counts[mode]
        known = (codes >= 0) & (count[codes] > 0)
        return np.where(known, codes, len(count)).astype(np.int32)

    def moments(self, codes: tuple[Codes, ...], n_jobs: int = 1) -> Moments:
        """Moments of cells in units of the values; codes as from ``known_codes``."""
        mean, noise = strata.predict(self.state, codes, self.params, n_jobs)
        return self.in_units(mean, noise, self._epistemic(codes, n_jobs))

    def side(self, mode: int, codes: Codes) -> Side:
        """Rows of a mode by their codes."""
        parts = self.state.rows, self.spread, self.shrink
        return Side(*(part[mode][codes] for part in parts))

    def table(self, mode: int, side: Side, codes: Codes, *, spread: bool) -> Moments:
        """Moments of rows of ``mode`` with some of the other: matrix products.

        Without a spread there is only a mean. The caller keeps the number of rows small, so that no
        full table is ever built.
        """
        other, parts = 1 - mode, self.state.layout.parts
        columns = self.state.rows[other][codes]
        mean = side.rows[:, parts["mean"]] @ columns[:, parts["mean"]].T
        mean += side.rows[:, BIAS, None] + columns[:, BIAS]
        if not spread:
            return self.in_units(mean, mean[:0], mean[:0])
        if self.learned_deviation:
            part = parts["deviation"]
            noise = side.rows[:, part] @ columns[:, part].T + np.float32(self.params.delta)
        else:
            noise = np.full_like(mean, self.state.variance)
        epistemic = np.outer(side.shrink, self.spread[other][codes])
        epistemic += np.outer(side.spread, self.shrink[other][codes])
        return self.in_units(mean, noise, epistemic)

    def shortlist(self, n: int) -> tuple[int, float]:
        """Return how many of the best by ``table``, and what is how little worse, to look at."""
        return n, ROUNDING * self.scale + FLOAT_ROUNDING * abs(self.location)

    def pairs(self, mode: int, side: Side, rows: Codes, codes: Codes) -> Moments:
        """Moments of cells: places of rows in ``side``, and codes of the other mode.

        They are as ``moments`` has them; a row that has no id yet has a place here too.
        """
        other = 1 - mode
        both, pair = [side.rows, side.rows], [rows, rows]
        both[other], pair[other] = self.state.rows[other], codes
        state = State(tuple(both), self.state.layout, self.state.epoch, self.state.variance)
        mean, noise = strata.predict(state, tuple(pair), self.params, 1)
        epistemic = side.shrink[rows] * self.spread[other][codes]
        epistemic += self.shrink[other][codes] * side.spread[rows]
        return self.in_units(mean, noise, epistemic)

    def similarity(self, mode: int, code: int) -> Floats:
        """Cosine of a row's mean factors with those of all rows of its mode."""
        rows = self.state.mean_factors(mode)[:-1]
        length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        cosine: Floats = rows @ rows[code] / np.maximum(length * length[code], np.float32(1e-12))
        return cosine

    def noise_by_row(self, mode: int) -> npt.NDArray[np.float64]:
        """Variance of the noise of every row, averaged over the other modes as observed."""
        if not self.learned_deviation:
            return np.full(len(self.counts[mode]), self.state.variance * self.scale**2)
        average = np.ones(self.params.deviation_rank)
        for other, count in enumerate(self.counts):
            if other != mode:
                weight = count / count.sum()
                average *= weight @ self.state.deviation_factors(other)[:-1]
        own = self.state.deviation_factors(mode)[:-1]
        return np.asarray(own @ average + self.params.delta) * self.scale**2

    def grown(self, counts: tuple[Counts, ...]) -> State:
        """Return a state to go on training from, in the order of the ids, with rows for new ones.

        A new row starts like any row before training, but with the average deviation. ``counts``
        has old and new observations together.
        """
        grown = initial_state(self.params, counts)
        part = self.state.layout.parts["deviation"]
        for rows, old in zip(grown.rows, self.state.rows, strict=True):
            n = len(old) - 1
            share = rows[:n, SHARE].copy()
            rows[:n] = old[:-1]
            rows[:n, SHARE] = share
            rows[n:, part] = old[-1, part]
        grown.epoch, grown.variance = self.state.epoch, self.state.variance
        return grown

    @classmethod
    def of_parts(
        cls,
        params: Params,
        modes: Sequence[Arrays],
        *,
        epoch: int,
        variance: float,
        location: float,
        scale: float,
        worth: float | None = None,
    ) -> Factors:
        """Put rows together of their parts, which a file has by name, mode by mode."""
        rows = []
        for parts in modes:
            own = aligned_zeros(len(parts["bias"]), params.layout.width)
            for name, part in params.layout.parts.items():
                own[:, part] = parts[name]
            order = np.arange(len(own), dtype=np.int32)
            rows.append(_with_average(own, order, parts["counts"]))
        state = State(tuple(rows), params.layout, epoch, variance)
        names = "counts", "spread", "shrink"
        counts, spread, shrink = (tuple(parts[name] for parts in modes) for name in names)
        worth = worth or 1.0
        params = replace(params, delta=params.delta * worth)
        return cls(params, state, counts, location, scale, spread, shrink, worth)

    def _epistemic(self, codes: tuple[Codes, ...], n_jobs: int) -> Floats:
        """Variance of cells that comes from not knowing their rows, in standardised units."""
        if len(codes) == 2:
            (i, j), spread, shrink = codes, self.spread, self.shrink
            return shrink[0][i] * spread[1][j] + shrink[1][j] * spread[0][i]
        rows, n_mean = self.state.rows, self.state.layout.mean
        variance = np.empty(len(codes[0]), dtype=np.float32)

        def work(part: slice) -> None:
            some = [code[part] for code in codes]
            variance[part] = of_cells(rows, n_mean, self.spread, self.shrink, some)

        strata.in_chunks(work, len(variance), strata.MANY_CHUNK, n_jobs)
        return variance

    def in_units(self, mean: Floats, noise: Floats, epistemic: Floats) -> Moments:
        """Return moments that are standardised in units of the values."""
        units = self.location, self.scale
        parts = (variance_in_units(part, *units) for part in (noise, epistemic))
        return Moments(mean_in_units(mean, *units), *parts)


def _with_average(rows: Floats, order: Codes, count: Counts) -> Floats:
    """Lay rows in the given order, and the average of those with observations after them."""
    extended = aligned_zeros(len(rows) + 1, rows.shape[1])
    np.take(rows, order, axis=0, out=extended[:-1])
    extended[-1] = extended[:-1][count > 0].mean(axis=0, dtype=np.float64)
    return extended


def _with_bias(state: State, mode: int) -> Floats:
    """Return the rows of all ids of a mode as ``[mean factors, bias]``."""
    return np.column_stack([state.mean_factors(mode)[:-1], state.biases(mode)[:-1]])
