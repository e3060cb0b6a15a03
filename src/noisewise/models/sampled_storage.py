"""Posteriors as files have them, and back; files are not trusted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise.engine.gibbs.data import Scale, Spec, Timeline
from noisewise.engine.gibbs.draw import EFFECTS
from noisewise.engine.gibbs.posterior import PROCESS, Posterior, SeriesPosterior
from noisewise.engine.gibbs.rating_posterior import RatingPosterior
from noisewise.engine.series import Array
from noisewise.errors import ModelFileError
from noisewise.storage import (
    ANY,
    Tensors,
    check_codes,
    rises,
    take,
    take_counts,
    take_real,
    take_starts,
    take_whole,
)

Sizes = dict[str, tuple[str, tuple[int, ...]]]  # type and size of every part of a snapshot


def pack(posterior: RatingPosterior) -> tuple[dict[str, Any], Tensors]:
    """Header and tensors of a file."""
    header, tensors = _pack_draws(posterior)
    tensors["levels"] = posterior.scale.levels
    if posterior.timeline is not None:
        for name, parts in posterior.timeline._asdict().items():
            tensors |= {f"timeline{mode}.{name}": part for mode, part in enumerate(parts)}
    scale = posterior.scale
    own = {
        "location": scale.location,
        "scale": scale.scale,
        "range": [None if math.isinf(end) else end for end in (scale.low, scale.high)],
        "anchor": scale.anchor,
    }
    return header | own, tensors


def unpack(
    path: Any, spec: Spec, header: dict[str, Any], tensors: Tensors, shape: tuple[int, ...]
) -> RatingPosterior:
    """Undo ``pack``, given the model that the settings of the file describe."""
    scale = _unpack_scale(path, spec, header, tensors)
    timeline = _unpack_timeline(path, tensors, shape) if spec.time else None
    sizes = _rating_sizes(spec, shape, len(scale.levels), timeline, _half(header))
    draws = _unpack_draws(path, header, tensors, sizes)
    counts = _unpack_counts(path, tensors, shape)
    return RatingPosterior(spec, shape, counts, draws, scale, timeline)


def pack_series(posterior: SeriesPosterior) -> tuple[dict[str, Any], Tensors]:
    """Header and tensors of a file."""
    header, tensors = _pack_draws(posterior)
    return header, tensors | {"codes": posterior.codes, "values": posterior.values}


def unpack_series(
    path: Any,
    spec: Spec,
    header: dict[str, Any],
    tensors: Tensors,
    shape: tuple[int, ...],
    stamps: Array,
) -> SeriesPosterior:
    """Undo ``pack_series``, given the model that the settings of the file describe."""
    codes = take(path, tensors, "codes", "int32", len(shape), ANY)
    n = codes.shape[1]
    values = take(path, tensors, "values", "float32", n)
    if not n:
        raise ModelFileError(f"{path} is damaged: it has no observations.")
    for mode, size in enumerate(shape):
        check_codes(path, "codes", codes[mode], size)
    steps = np.diff(codes, axis=1)  # of codes within their bounds, none overflows
    first = (steps != 0).argmax(axis=0)
    if (np.take_along_axis(steps, first[None], axis=0) <= 0).any():
        raise ModelFileError(f"{path} is damaged: its observations are not in order.")
    many = 1 + int((first < len(shape) - 1).sum())
    sizes = _sizes(spec, shape, _half(header)) | dict.fromkeys(PROCESS, ("float32", (many,)))
    draws = _unpack_draws(path, header, tensors, sizes)
    if not all((draws[name] > 0).all() for name in PROCESS):
        raise ModelFileError(f"{path} is damaged: its series make no sense.")
    counts = _unpack_counts(path, tensors, shape)
    return SeriesPosterior(spec, shape, counts, draws, codes, values, stamps)


def _pack_draws(posterior: Posterior) -> tuple[dict[str, Any], Tensors]:
    tensors: Tensors = {f"draws.{name}": array for name, array in posterior.draws.items()}
    tensors |= {f"mode{m}.counts": count for m, count in enumerate(posterior.counts)}
    header = {
        "draws": len(posterior),
        "half": str(posterior.draws["factors"].dtype) == "float16",
        "seed": posterior.spec.seed,
    }
    return header, tensors


def _unpack_draws(path: Any, header: dict[str, Any], tensors: Tensors, sizes: Sizes) -> Tensors:
    n = take_whole(path, header, "draws", least=1)
    draws = {
        name: take(path, tensors, f"draws.{name}", dtype, n, *size)
        for name, (dtype, size) in sizes.items()
    }
    if (draws["noise"] <= 0).any() or (draws["level"] <= 0).any():
        raise ModelFileError(f"{path} is damaged: its noise must be positive.")
    return draws


def _unpack_counts(path: Any, tensors: Tensors, shape: tuple[int, ...]) -> tuple[Any, ...]:
    sizes = enumerate(shape)
    return tuple(take_counts(path, tensors, f"mode{m}.counts", rows) for m, rows in sizes)


def _unpack_scale(path: Any, spec: Spec, header: dict[str, Any], tensors: Tensors) -> Scale:
    levels = take(path, tensors, "levels", "float32", ANY)
    location = take_real(path, header, "location")
    spread = take_real(path, header, "scale", above=0.0)
    low, high = (
        default if end is None else float(end)
        for end, default in zip(header["range"], (-math.inf, math.inf), strict=True)
    )
    anchor = take_whole(path, header, "anchor")
    sound = low <= high  # the same where all values were
    if spec.ordinal:
        sound &= len(levels) >= 2 and 1 <= anchor < len(levels) and rises(levels, strictly=True)
    if not sound:
        raise ModelFileError(f"{path} is damaged: its scale of values makes no sense.")
    return Scale(location, spread, low, high, levels, anchor)


def _unpack_timeline(path: Any, tensors: Tensors, shape: tuple[int, ...]) -> Timeline:
    parts: list[tuple[Any, ...]] = []
    for mode in (0, 1):
        starts = take_starts(path, tensors, f"timeline{mode}.starts", shape[mode])
        n = int(starts[-1])
        times = take(path, tensors, f"timeline{mode}.times", "float64", n)
        others = take(path, tensors, f"timeline{mode}.others", "int32", n)
        check_codes(path, f"timeline{mode}.others", others, shape[1 - mode])
        parts.append((starts, times, others))
    return Timeline(*zip(*parts, strict=True))


def _half(header: dict[str, Any]) -> str:
    return "float16" if header["half"] is True else "float32"


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


def _rating_sizes(
    spec: Spec, shape: tuple[int, ...], n_levels: int, timeline: Timeline | None, half: str
) -> Sizes:
    rows, modes, D1 = sum(shape), len(shape), spec.rank + 1
    many = n_levels - 2 if spec.ordinal else 0
    sizes = _sizes(spec, shape, half) | {
        "centres": ("float32", (modes, D1)),
        "precisions": ("float32", (modes, D1, D1)),
        "features": (half, (rows if spec.implicit else 0, D1)),
        "widths": (half, (shape[0], many)),
        "width_centre": ("float32", (many,)),
        "temporal_settings": ("float32", (len(EFFECTS) if spec.time else 0, 2)),
    }
    if timeline is not None:
        for mode in (0, 1):
            sizes[f"gaps{mode}"] = (half, (len(timeline.times[mode]) + shape[mode],))
    return sizes
