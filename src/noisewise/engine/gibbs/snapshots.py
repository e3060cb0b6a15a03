"""What is kept of a draw: all that predictions need, most of it in half precision."""

from __future__ import annotations

import numpy as np

from noisewise.engine.data import Data, Spec
from noisewise.engine.gibbs import newcomers
from noisewise.engine.gibbs.steps.temporal import gaps
from noisewise.engine.gibbs.sweep import Draw, RatingDraw, Snapshot, rows_of


def snapshot(draw: Draw, spec: Spec, data: Data, half: type = np.float16) -> Snapshot:
    """Return what predictions need of rows of a draw, by name; most of it of type ``half``."""
    means, covariances = [], []  # of rows that have observations: they stand for one never seen
    for mode in range(data.n_modes):
        seen = np.flatnonzero(np.diff(data.starts[mode])) + data.firsts[mode]
        rows = rows_of(draw, seen, spec.rank)
        means.append(rows.mean(axis=0))
        centred = rows - means[-1]
        covariances.append(centred.T @ centred / len(rows))
    return {
        "factors": draw.factors[:, : spec.rank].astype(half),
        "biases": draw.biases.astype(half),
        "noise": draw.noise.astype(np.float32),
        "level": draw.level.astype(np.float32),
        "typical": np.array(means, dtype=np.float32),
        "covariances": np.array(covariances, dtype=np.float32),
    }


def rating_snapshot(draw: RatingDraw, spec: Spec, data: Data, half: type = np.float16) -> Snapshot:
    """Return what predictions need of ratings, with temporal effects between observations."""
    kept = snapshot(draw, spec, data, half)
    for name in ("centres", "precisions", "width_centre", "temporal_settings"):
        kept[name] = getattr(draw, name).astype(np.float32)
    for name in ("features", "widths"):
        kept[name] = getattr(draw, name).astype(half)
    kept |= newcomers.kept_of(draw, spec, data, half)
    for mode in range(2 if spec.time else 0):
        kept[f"gaps{mode}"] = gaps(draw, data, mode).astype(half)
    return kept
