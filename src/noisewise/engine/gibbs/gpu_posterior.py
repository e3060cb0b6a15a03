"""Kept draws on a GPU: moments of many cells, and the best columns for many rows.

A chunk of the table of rows with all columns is built from products of factors, draw by draw, as
``RatingPosterior.table`` does; for those that win, moments are as ``RatingPosterior.cells`` has
them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from noisewise.engine.arrays import Codes, Counts, Moments
from noisewise.engine.devices import Device
from noisewise.engine.gibbs.gpu import RESIDENT, kernels_of, width_of
from noisewise.engine.gibbs.posterior import RatingPosterior
from noisewise.engine.gibbs.steps.temporal import effect_variances
from noisewise.engine.gibbs.steps.variances import FLOOR
from noisewise.engine.sgd.gpu_factors import best_columns

CELLS = 400_000_000  # of a table of rows with all columns, of which the best are kept
TABLES = 8  # arrays of that size at the same time, at most
PREDICTED = 20_000_000  # cells at a time


class Side(NamedTuple):
    """Some rows of a mode in one draw, on the GPU; those of users have widths of levels."""

    factors: Any
    biases: Any
    noise: Any
    widths: Any


class Sought(NamedTuple):
    """Which columns are the best."""

    n: int
    risk: float = 0.0
    std_scale: float = 1.0
    seen: tuple[Counts, Codes] | None = None  # starts and columns of what to leave out, by row
    candidates: Codes | None = None  # rank only these; None ranks all that were trained on


class GpuPosterior:
    """A posterior of two modes whose draws go to a GPU."""

    device: Device
    posterior: RatingPosterior
    xp: Any
    warps: int

    def __init__(self, device: Device, posterior: RatingPosterior) -> None:
        self.device, self.posterior, self.xp = device, posterior, device.xp
        self.kernels = kernels_of(device, posterior.spec, 2)
        self.warps = device.workers(RESIDENT)

    def moments(self, codes: tuple[Codes, ...], time: Any) -> Moments:
        """Moments of cells in units of the values, as ``RatingPosterior.moments`` has them."""
        parts = []
        for start in range(0, len(codes[0]), PREDICTED):
            chunk = slice(start, start + PREDICTED)
            some, when = tuple(code[chunk] for code in codes), None if time is None else time[chunk]
            sums = self.xp.zeros((4, len(some[0])))
            self._add_all(some, when, sums)
            parts.append(self._averages(sums))
        own = (np.concatenate(part) for part in zip(*parts, strict=True))
        return self.posterior.in_units(Moments(*own))

    def _add_all(self, codes: tuple[Codes, ...], time: Any, sums: Any) -> None:
        """Add what every draw says of cells."""
        own, xp, device = self.posterior, self.xp, self.device
        users, items = (device.on_device(code) for code in codes)
        unknown = [users == own.shape[0], items == own.shape[1]]
        places = xp.stack([users, items + np.int32(own.shape[0] + 1)])
        found = [] if own.timeline is None else own.timeline.gaps(codes, time)
        gaps = [device.on_device(gap) for gap in found]
        everything = [np.arange(n + 1, dtype=np.int32) for n in own.shape]
        for draw in range(len(own)):
            sides = [self._side(draw, m, everything[m], at_end=False) for m in (0, 1)]
            mean, noise = self._of_places(draw, sides, places)
            for mode, gap in enumerate(gaps):
                effect = device.on_device(own.draws[f"gaps{mode}"][draw])[gap]
                mean += xp.where(unknown[mode], np.float32(0.0), effect.astype(np.float32))
            extra = self._extra(draw, sides, (users, items), unknown)
            widths = sides[0].widths[users]
            self._add(sums, widths, mean[:, None], noise[:, None], extra[:, None])

    def _of_places(self, draw: int, sides: list[Side], places: Any) -> tuple[Any, Any]:
        """Mean and noise of cells, whose rows are at places of both sides together."""
        xp, n = self.xp, np.int64(places.shape[1])
        factors, biases, noise = (xp.concatenate([side[k] for side in sides]) for k in range(3))
        padded = xp.zeros((len(factors), width_of(self.posterior.spec.rank)), dtype=np.float32)
        padded[:, : factors.shape[1]] = factors
        mean, root = (xp.empty(places.shape[1], dtype=np.float32) for _ in range(2))
        self.kernels("fit", self.warps)(places, n, padded, biases, mean)
        if self.posterior.spec.noise_rank == 0:
            return mean, xp.full_like(mean, self.posterior.draws["level"][draw, 0])
        self.kernels("roots", self.warps)(places, n, noise, root)
        return mean, 1.0 / xp.square(root)

    def _extra(self, draw: int, sides: list[Side], codes: Any, unknown: Any) -> Any:
        """Variance of the mean: rows never seen, and temporal effects; see ``Posterior.extra``."""
        own, xp = self.posterior, self.xp
        extra = xp.zeros(len(codes[0]), dtype=np.float32)
        for mode in (0, 1):
            which = xp.flatnonzero(unknown[mode])
            other = sides[1 - mode].factors[codes[1 - mode][which]]
            extra[which] += self._spread(other, draw, mode)
            if own.spec.time:
                apart, between = effect_variances(own.draws["temporal_settings"][draw], mode)
                extra += xp.where(unknown[mode], np.float32(apart), np.float32(between))
        first, second = own.draws["covariances"][draw]
        both = np.float32((first * second)[:-1, :-1].sum())
        return extra + both * (unknown[0] & unknown[1])

    def best(self, rows: Codes, sought: Sought) -> tuple[Codes, Moments]:
        """Return the best columns for rows of the first mode, -1 where there are fewer; moments.

        Codes are as from ``known_codes``; moments are in units, those of a row one after another.
        """
        counts = self.posterior.counts[1]
        allowed = counts > 0
        if sought.candidates is not None:
            allowed &= np.isin(np.arange(len(counts)), sought.candidates)
        barred = self.device.on_device(np.flatnonzero(~allowed))
        room = self.device.free_bytes() // (4 * TABLES)
        chunk = max(1, min(CELLS, room) // len(counts))
        columns = None if sought.seen is None else self.device.on_device(sought.seen[1])
        everything = np.arange(len(counts), dtype=np.int32)
        others = [self._side(draw, 1, everything) for draw in range(len(self.posterior))]
        codes, moments = [], []
        for start in range(0, len(rows), chunk):
            some = rows[start : start + chunk]
            sides = [self._side(draw, 0, some) for draw in range(len(self.posterior))]
            scores = self._scores(sides, others, some, sought.risk * sought.std_scale)
            seen = None if sought.seen is None else (sought.seen[0], columns)
            best = best_columns(self.device, scores, some, sought.n, barred, seen)
            del scores
            codes.append(self.device.on_host(best))
            moments.append(self._cells(sides, others, some, best))
        parts = (np.concatenate(part) for part in zip(*moments, strict=True))
        found = np.concatenate(codes)
        chosen = (part[found.ravel() >= 0] for part in parts)
        return found, self.posterior.in_units(Moments(*chosen))

    def _side(self, draw: int, mode: int, codes: Codes, *, at_end: bool = True) -> Side:
        """Rows of a mode; ``at_end`` right after their last observation."""
        own, xp = self.posterior, self.xp
        unknown = codes == own.shape[mode]
        known = np.where(unknown, 0, codes).astype(np.int64)
        at = known + sum(own.shape[:mode])
        factors, biases, noise = (
            self.device.on_device(_taken(own.draws[name][draw], at)).astype(np.float32)
            for name in ("factors", "biases", "noise")
        )
        if own.timeline is not None and at_end:
            gaps = own.timeline.starts[mode][known + 1] + known
            effect = np.where(unknown, 0.0, own.draws[f"gaps{mode}"][draw][gaps])
            biases += self.device.on_device(effect.astype(np.float32))
        widths = xp.zeros((len(codes), 0), dtype=np.float32)
        if mode == 0 and own.spec.ordinal:
            widths = self.device.on_device(_taken(own.draws["widths"][draw], known))
            widths = widths.astype(np.float32)
        if unknown.any():
            which = self.device.on_device(np.flatnonzero(unknown))
            typical = self.device.on_device(own.draws["typical"][draw, mode])
            factors[which], biases[which] = typical[:-1], typical[-1]
            noise[which] = self.device.on_device(own.average_noise[draw, mode])
            if own.spec.ordinal and mode == 0:
                widths[which] = self.device.on_device(own.draws["width_centre"][draw])
        return Side(factors, biases, noise, widths)

    def _scores(self, sides: list[Side], others: list[Side], rows: Codes, risk: float) -> Any:
        """Mean minus risk times std of rows with all columns; of levels, approximately."""
        xp, own = self.xp, self.posterior
        shape = len(rows), own.shape[1]
        full = bool(risk) or own.spec.ordinal
        total = xp.zeros(shape, dtype=np.float32)
        first, centre, square, noise = (
            (xp.zeros(shape, dtype=np.float32) for _ in range(4)) if full else [total] * 4
        )
        low, high = (own.scale.low, own.scale.high) if not own.spec.ordinal else (-math.inf,) * 2
        high = math.inf if own.spec.ordinal else high
        unknown = self.device.on_device((rows == own.shape[0]).astype(np.float32))
        for draw, (a, b) in enumerate(zip(sides, others, strict=True)):
            constant = -1.0 if own.spec.noise_rank else float(own.draws["level"][draw, 0])
            extra = xp.concatenate([unknown, self._spread(b.factors, draw, 0)])
            self.kernels("add_draw", self.warps)(
                a.factors @ b.factors.T, np.int64(shape[0]), np.int64(shape[1]), a.biases,
                b.biases, np.float32(low), np.float32(high), a.noise, b.noise,
                np.float32(constant), np.int32(full), np.int32(draw == 0), extra, first, total,
                centre, square, noise,
            )  # fmt: skip
        many = np.float32(len(sides))
        total /= many
        if not full:
            return total
        variance = square / many - (centre / many) ** 2
        variance = xp.maximum(variance, 0.0) + noise / many
        if own.spec.ordinal:
            widths = sum(side.widths for side in sides) / many
            total, variance = self._levels(widths, total, variance)
        return total - np.float32(risk) * xp.sqrt(variance) if risk else total

    def _cells(self, sides: list[Side], others: list[Side], rows: Codes, best: Any) -> list[Any]:
        """Mean, noise and epistemic variance of rows with their best columns, one after another."""
        xp, own = self.xp, self.posterior
        codes = xp.maximum(best, 0)
        sums = xp.zeros((4, *codes.shape))
        unknown = self.device.on_device((rows == own.shape[0]).astype(np.float32))[:, None]
        for draw, (a, b) in enumerate(zip(sides, others, strict=True)):
            mean = xp.matmul(b.factors[codes], a.factors[:, :, None])[..., 0]
            mean += a.biases[:, None] + b.biases[codes]
            if own.spec.noise_rank:
                noise = xp.matmul(b.noise[codes], a.noise[:, :, None])[..., 0]
                noise = xp.maximum(noise, np.float32(FLOOR))
            else:
                noise = xp.full(codes.shape, own.draws["level"][draw, 0], dtype=np.float32)
            extra = unknown * self._spread(b.factors, draw, 0)[codes]
            if own.spec.time:
                settings = own.draws["temporal_settings"][draw]
                apart, between = effect_variances(settings, 0)
                extra += unknown * np.float32(apart - between)
                extra += np.float32(between + effect_variances(settings, 1)[1])
            self._add(sums, a.widths, mean, noise, extra)
        return self._averages(sums.reshape(4, -1))

    def _add(self, sums: Any, widths: Any, mean: Any, noise: Any, extra: Any) -> None:
        """Add what a draw says of cells; a line of them has the same cut-points."""
        scale = self.posterior.scale
        if self.posterior.spec.ordinal:
            expected, left = self._levels(widths, mean, noise + extra)
            added = expected, expected, expected.astype(np.float64) ** 2, left
        else:
            clipped = mean.clip(np.float32(scale.low), np.float32(scale.high))
            added = clipped, mean, mean.astype(np.float64) ** 2 + extra, noise
        for total, more in zip(sums, added, strict=True):
            total += more.reshape(total.shape)

    def _averages(self, sums: Any) -> list[Any]:
        """Mean, noise and epistemic variance, of sums over draws."""
        mean, centre, square, noise = sums / len(self.posterior)
        epistemic = self.xp.maximum(square - centre**2, 0.0)
        return [self.device.on_host(part) for part in (mean, noise, epistemic)]

    def _spread(self, factors: Any, draw: int, mode: int) -> Any:
        """Variance that a row of a mode, never seen, has with given rows of the other."""
        covariance = self.device.on_device(self.posterior.draws["covariances"][draw, mode])
        ones = self.xp.ones((len(factors), 1), dtype=np.float32)
        x = self.xp.concatenate([factors, ones], axis=1)
        return ((x @ covariance) * x).sum(axis=1)

    def _levels(self, widths: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Mean and variance of levels, of rows whose hidden values are normal."""
        own, xp = self.posterior, self.xp
        expected, left = (xp.empty(mean.shape, dtype=np.float32) for _ in range(2))
        self.kernels("level_moments", self.warps)(
            np.int64(mean.size), np.int64(mean.shape[1]),
            xp.ascontiguousarray(widths, dtype=np.float32), np.int32(widths.shape[1]),
            np.int32(own.scale.anchor), xp.ascontiguousarray(mean, dtype=np.float32),
            xp.ascontiguousarray(variance, dtype=np.float32),
            self.device.on_device(own.scale.levels), expected, left,
        )  # fmt: skip
        return expected, left


def _taken(array: Any, at: Any) -> Any:
    """Return rows at places; a view where they follow each other."""
    if len(at) and at[-1] - at[0] == len(at) - 1 and (np.diff(at) == 1).all():
        return array[at[0] : at[-1] + 1]
    return array[at]
