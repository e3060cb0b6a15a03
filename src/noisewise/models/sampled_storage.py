"""What files keep of posteriors, and posteriors made of it again."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np

from noisewise.engine.gibbs.data import Scale, Spec, Timeline
from noisewise.engine.gibbs.posterior import RatingPosterior
from noisewise.engine.gibbs.series_sampler import PROCESS, SeriesPosterior
from noisewise.engine.gibbs.sweep import EFFECTS
from noisewise.engine.series import Array
from noisewise.schema import (
    ANY,
    ANYTHING,
    COUNTS,
    POSITIVE,
    RISING,
    STARTS,
    Entry,
    Field,
    Found,
    Schema,
    Tensor,
    below,
    flag,
    integer,
    real,
    seed,
)
from noisewise.storage import Damaged

Sizes = dict[str, tuple[str, tuple[int, ...]]]  # type and size of every part of a draw


def rating_schema(model: Any, shape: tuple[int, ...]) -> Schema:
    """Declare what a file keeps of ``factors_``, a posterior of ratings."""
    n, half, number = yield from _head("factors_")
    spec = model._spec(len(shape), number)
    yield Entry("posterior.location", "factors_.scale.location", real())
    yield Entry("posterior.scale", "factors_.scale.scale", real(above=0.0))
    yield Entry("posterior.range", _ends, _range)
    anchor = yield Entry("posterior.anchor", "factors_.scale.anchor", integer())
    rule = RISING if spec.ordinal else ANYTHING
    levels = yield Tensor("levels", "float32", (ANY,), "factors_.scale.levels", rule)
    if spec.ordinal and not 1 <= anchor < len(levels):
        raise Damaged("its scale of values makes no sense")
    sizes = _rating_sizes(spec, shape, len(levels), half)
    for mode in (0, 1) if spec.time else ():
        name, of = f"timeline{mode}", "factors_.timeline"
        starts = yield Tensor(
            f"{name}.starts", "int64", (shape[mode] + 1,), f"{of}.starts.{mode}", STARTS
        )
        size, rule = (int(starts[-1]),), below(shape[1 - mode])
        yield Tensor(f"{name}.times", "float64", size, f"{of}.times.{mode}")
        yield Tensor(f"{name}.others", "int32", size, f"{of}.others.{mode}", rule)
        sizes[f"gaps{mode}"] = (half, (size[0] + shape[mode],))
    yield from _draws("factors_", n, sizes)
    yield from _counts("factors_", shape)


def restored_ratings(model: Any, found: Found) -> RatingPosterior:
    """Make the posterior of what ``rating_schema`` declares."""
    shape, own = tuple(map(len, model.ids_)), found.part("posterior")
    low, high = own["range"]
    scale = Scale(own["location"], own["scale"], low, high, found["levels"], own["anchor"])
    spec, timeline = model._spec(len(shape), own["seed"]), None
    if spec.time:
        both = [found.part(f"timeline{mode}") for mode in (0, 1)]
        timeline = Timeline(*(tuple(part[name] for part in both) for name in Timeline._fields))
    return RatingPosterior(spec, shape, *_common(found, shape), scale, timeline)


def series_schema(model: Any, shape: tuple[int, ...]) -> Schema:
    """Declare what a file keeps of ``posterior_``, a posterior of series; time is the last mode."""
    n, half, number = yield from _head("posterior_")
    codes = yield Tensor("codes", "int32", (len(shape), ANY), "posterior_.codes")
    for mode, size in enumerate(shape):
        if not below(size).holds(codes[mode]):
            raise Damaged("codes is out of bounds")
    if not codes.size:
        raise Damaged("it has no observations")
    yield Tensor("values", "float32", codes.shape[1:], "posterior_.values")
    steps = np.diff(codes, axis=1)  # of codes within their bounds, none overflows
    first = (steps != 0).argmax(axis=0)
    if (np.take_along_axis(steps, first[None], axis=0) <= 0).any():
        raise Damaged("its observations are not in order")
    many = 1 + int((first < len(shape) - 1).sum())
    sizes = _sizes(model._spec(number), shape, half)
    yield from _draws("posterior_", n, sizes | dict.fromkeys(PROCESS, ("float32", (many,))))
    yield from _counts("posterior_", shape)


def restored_series(
    model: Any, found: Found, shape: tuple[int, ...], stamps: Array
) -> SeriesPosterior:
    """Make the posterior of what ``series_schema`` declares."""
    spec = model._spec(found["posterior.seed"])
    draws = _common(found, shape)
    return SeriesPosterior(spec, shape, *draws, found["codes"], found["values"], stamps)


def _head(place: str) -> Generator[Field, Any, tuple[int, str, int]]:
    """Declare how many draws there are, of which type, and their seed; return them."""
    n = yield Entry("posterior.draws", lambda model: len(getattr(model, place)), integer(1))
    half = yield Entry(
        "posterior.half",
        lambda model: getattr(model, place).draws["factors"].dtype == np.float16,
        flag,
    )
    number = yield Entry("posterior.seed", f"{place}.spec.seed", seed)
    return n, "float16" if half else "float32", number


def _draws(place: str, n: int, sizes: Sizes) -> Schema:
    for name, (dtype, size) in sizes.items():
        rule = POSITIVE if name in ("noise", "level", *PROCESS) else ANYTHING
        yield Tensor(f"draws.{name}", dtype, (n, *size), f"{place}.draws.{name}", rule)


def _counts(place: str, shape: tuple[int, ...]) -> Schema:
    for m, rows in enumerate(shape):
        yield Tensor(f"mode{m}.counts", "int64", (rows,), f"{place}.counts.{m}", COUNTS)


def _common(found: Found, shape: tuple[int, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(found[f"mode{m}.counts"] for m in range(len(shape))), found.part("draws")


def _ends(model: Any) -> list[float | None]:
    scale = model.factors_.scale
    return [None if math.isinf(end) else end for end in (scale.low, scale.high)]


def _range(value: Any) -> tuple[float, float] | None:
    """Return both ends, infinite where there is none; they are the same where all values were."""
    low, high = (
        default if end is None else float(end)
        for end, default in zip(value, (-math.inf, math.inf), strict=True)
    )
    return (low, high) if low <= high else None


def _sizes(spec: Spec, shape: tuple[int, ...], half: str) -> Sizes:
    rows, modes, D1, K = sum(shape), len(shape), spec.rank + 1, spec.noise_rank
    return {
        "factors": (half, (rows, spec.rank)),
        "biases": (half, (rows,)),
        "noise": ("float32", (rows, K)),
        "level": ("float32", (max(K, 1),)),
        "typical": ("float32", (modes, D1)),
        "covariances": ("float32", (modes, D1, D1)),
    }


def _rating_sizes(spec: Spec, shape: tuple[int, ...], n_levels: int, half: str) -> Sizes:
    rows, modes, D1 = sum(shape), len(shape), spec.rank + 1
    many = n_levels - 2 if spec.ordinal else 0
    return _sizes(spec, shape, half) | {
        "centres": ("float32", (modes, D1)),
        "precisions": ("float32", (modes, D1, D1)),
        "features": (half, (rows if spec.implicit else 0, D1)),
        "widths": (half, (shape[0], many)),
        "width_centre": ("float32", (many,)),
        "temporal_settings": ("float32", (len(EFFECTS) if spec.time else 0, 2)),
    }
