"""What the file of a ``TemporalFactorizer`` keeps of its posterior."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewise import schema
from noisewise.engine.arrays import Array
from noisewise.engine.gibbs.series.draw import Season, SeriesSpec
from noisewise.engine.gibbs.series.posterior import SeriesPosterior
from noisewise.schema import Entry, Found, Schema, Tensor
from noisewise.storage import Damaged

POSITIVE = (
    "precisions", "timescales", "amplitudes", "variances", "slot_noise", "freedom",
    "factor_timescales",
)  # fmt: skip
MOST_CELLS = 2**31  # of cycles and slots: a file that claims more is damaged


def series_schema(model: Any, shape: tuple[int, ...], n_times: int) -> Schema:
    """Declare what a file keeps of ``posterior_``; time is the last mode."""
    n = yield Entry("posterior.draws", lambda model: len(model.posterior_), schema.integer(1))
    seed = yield Entry("posterior.seed", "posterior_.spec.seed", schema.seed)
    seasons = yield Entry("posterior.seasons", _listed, _as_seasons)
    sizes = (*shape[:-1], n_times)
    codes = yield Tensor("codes", "int32", (len(sizes), schema.ANY), "posterior_.codes")
    for mode, most in enumerate(sizes):
        if not schema.below(most).holds(codes[mode]):
            raise Damaged("codes is out of bounds")
    if not codes.size:
        raise Damaged("it has no observations")
    yield Tensor("values", "float32", codes.shape[1:], "posterior_.values")
    known = _as_seasons(seasons) or ()  # lists where a file is written
    spec = model._spec(seed, _count_series(codes), known)
    for name, (dtype, size) in _sizes(spec, sizes, codes).items():
        rule = schema.POSITIVE if name in POSITIVE else schema.ANYTHING
        yield Tensor(f"draws.{name}", dtype, (n, *size), f"posterior_.draws.{name}", rule)
    for m, rows in enumerate(sizes):
        yield Tensor(f"mode{m}.counts", "int64", (rows,), f"posterior_.counts.{m}", schema.COUNTS)


def restored_series(
    model: Any, found: Found, shape: tuple[int, ...], stamps: Array
) -> SeriesPosterior:
    """Make the posterior of what ``series_schema`` declares."""
    codes, own = found["codes"], found.part("posterior")
    spec = model._spec(own["seed"], _count_series(codes), own["seasons"])
    counts = tuple(found[f"mode{m}.counts"] for m in range(len(shape)))
    draws = found.part("draws")
    return SeriesPosterior(spec, shape, counts, draws, codes, found["values"], stamps)


def _count_series(codes: Any) -> int:
    """Return how many series observations are of, which must be in order."""
    steps = np.diff(codes, axis=1)  # of codes within their bounds, none overflows
    first = (steps != 0).argmax(axis=0)
    step = np.take_along_axis(steps, first[None], axis=0)[0]
    if (step < 0).any():
        raise Damaged("its observations are not in order")
    return 1 + int(((step != 0) & (first < len(codes) - 1)).sum())


def _sizes(
    spec: SeriesSpec, shape: tuple[int, ...], codes: Any
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and size of every part of a draw."""
    calendar, many = spec.calendar(), _count_series(codes)
    sizes: dict[str, tuple[int, ...]] = {
        "loadings": (many, spec.width + 1),
        "precisions": (spec.width + 1,),
        "rows": (sum(shape[:-1]) if len(shape) > 2 else 0, spec.width + 1),
        "factors": (shape[-1], spec.width),
        "slopes": (shape[-1], spec.rank),
        "factor_timescales": (spec.rank,),
        "strengths": (calendar[-1][2].stop if calendar else 0,),
        "profiles": (calendar[-1][3].stop if calendar else 0,),
        "calendar_settings": (len(calendar), 3),
        "slot_noise": (spec.seasons[0].n_slots if spec.seasons else 0,),
        "freedom": (1,),
    }
    sizes |= dict.fromkeys(("timescales", "amplitudes", "variances"), (many,))
    found = {name: ("float32", size) for name, size in sizes.items()}
    return found | {"weights": ("uint8", (codes.shape[1] if spec.tails else 0,))}


def _listed(model: Any) -> list[list[float]]:
    return [list(map(float, season)) for season in model.posterior_.spec.seasons]


def _as_seasons(value: Any) -> tuple[Season, ...] | None:
    """Return seasons; None if they make no sense."""
    found = []
    for period, origin, *sizes in value:
        cycles, slots, rank = (int(size) for size in sizes)
        sound = np.isfinite([period, origin]).all() and period > 0 and min(cycles, slots) > 0
        if not sound or rank < 0 or max(cycles, slots) * max(rank, 1) > MOST_CELLS:
            return None
        found.append(Season(float(period), float(origin), cycles, slots, rank))
    return tuple(found)
