"""A posterior as a file has it, and back; the file is not trusted."""

from __future__ import annotations

import math
from typing import Any

from noisewise.engine.gibbs.data import Model
from noisewise.engine.gibbs.draw import PATHS
from noisewise.engine.gibbs.posterior import Posterior, Scale
from noisewise.engine.gibbs.timeline import Timeline
from noisewise.errors import ModelFileError
from noisewise.storage import ANY, Tensors, rises, take, take_counts, take_real, take_whole


def pack(posterior: Posterior) -> tuple[dict[str, Any], Tensors]:
    """Header and tensors of a file."""
    tensors: Tensors = {f"draws.{name}": array for name, array in posterior.draws.items()}
    tensors |= {f"mode{m}.counts": count for m, count in enumerate(posterior.counts)}
    tensors["levels"] = posterior.scale.levels
    if posterior.timeline is not None:
        tensors |= posterior.timeline.pack()
    scale = posterior.scale
    header = {
        "draws": len(posterior),
        "half": str(posterior.draws["factors"].dtype) == "float16",
        "seed": posterior.model.seed,
        "sets": posterior.model.sets,
        "location": scale.location,
        "scale": scale.scale,
        "range": [None if math.isinf(end) else end for end in (scale.low, scale.high)],
        "anchor": scale.anchor,
    }
    return header, tensors


def unpack(
    path: Any, model: Model, header: dict[str, Any], tensors: Tensors, shape: tuple[int, ...]
) -> Posterior:
    """Undo ``pack``, given the model that the settings of the file describe."""
    levels = take(path, tensors, "levels", "float32", ANY)
    location = take_real(path, header, "location")
    spread = take_real(path, header, "scale", above=0.0)
    low, high = (
        default if end is None else float(end)
        for end, default in zip(header["range"], (-math.inf, math.inf), strict=True)
    )
    anchor, n = take_whole(path, header, "anchor"), take_whole(path, header, "draws", least=1)
    sound = low <= high  # the same where all values were
    if model.ordinal:
        sound &= len(levels) >= 2 and 1 <= anchor < len(levels) and rises(levels, strictly=True)
    if not sound:
        raise ModelFileError(f"{path} is damaged: its scale of values makes no sense.")
    timeline = Timeline.unpack(path, tensors, shape) if model.time else None
    half = "float16" if header["half"] is True else "float32"
    draws = {
        name: take(path, tensors, f"draws.{name}", dtype, n, *size)
        for name, (dtype, size) in _sizes(model, shape, len(levels), timeline, half).items()
    }
    if (draws["noise"] <= 0).any() or (draws["level"] <= 0).any():
        raise ModelFileError(f"{path} is damaged: its noise must be positive.")
    counts = tuple(
        take_counts(path, tensors, f"mode{m}.counts", rows) for m, rows in enumerate(shape)
    )
    scale = Scale(location, spread, low, high, levels, anchor)
    return Posterior(model, scale, shape, counts, draws, timeline)


def _sizes(
    model: Model, shape: tuple[int, ...], n_levels: int, timeline: Timeline | None, half: str
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and size of every part of a snapshot."""
    rows, modes, D1 = sum(shape), len(shape), model.rank + 1
    K, many = model.noise_rank, n_levels - 2 if model.ordinal else 0
    sizes: dict[str, tuple[str, tuple[int, ...]]] = {
        "factors": (half, (rows, model.rank)),
        "biases": (half, (rows,)),
        "noise": ("float32", (rows, K)),
        "level": ("float32", (max(K, 1),)),
        "centres": ("float32", (modes, D1)),
        "precisions": ("float32", (modes, D1, D1)),
        "features": (half, (rows if model.sets else 0, D1)),
        "typical": ("float32", (modes, D1)),
        "covariances": ("float32", (modes, D1, D1)),
        "widths": (half, (shape[0], many)),
        "width_centre": ("float32", (many,)),
        "path_settings": ("float32", (len(PATHS) if model.time else 0, 2)),
    }
    if timeline is not None:
        for mode in (0, 1):
            sizes[f"gaps{mode}"] = (half, (len(timeline.times[mode]) + shape[mode],))
    return sizes
