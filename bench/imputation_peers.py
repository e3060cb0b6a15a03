"""Peers that fill tables: one function each, in the settings that their packages give.

A function takes times x series with NaN and returns the table filled. Packages are imported where
they are used: each environment has those that it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Table = Any


class Peer(NamedTuple):
    """A method of another package."""

    fill: Callable[..., Table]
    package: str
    settings: dict[str, Any]


def linear(table: Table) -> Table:
    """Straight lines between readings, the nearest one at both ends."""
    import pandas as pd

    return pd.DataFrame(table).interpolate(limit_direction="both").to_numpy()


def pchip(table: Table) -> Table:
    """Splines that do not overshoot, the nearest reading at both ends."""
    import pandas as pd

    inside = pd.DataFrame(table).interpolate("pchip", limit_area="inside")
    return inside.ffill().bfill().to_numpy()


def last(table: Table) -> Table:
    import pandas as pd

    return pd.DataFrame(table).ffill().bfill().to_numpy()


def knn(table: Table, **settings: Any) -> Table:
    from sklearn.impute import KNNImputer

    return KNNImputer(keep_empty_features=True, **settings).fit_transform(table)


def iterative(table: Table, n_nearest_features: int, **settings: Any) -> Table:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    few = table.shape[1] <= 50  # all others tell of a series then
    model = IterativeImputer(
        n_nearest_features=None if few else n_nearest_features,
        keep_empty_features=True, **settings,
    )  # fmt: skip
    return model.fit_transform(table)


def imputegap(table: Table, algorithm: str, **settings: Any) -> Table:
    """Call an algorithm of imputegap by its name, on z-scores as its own runner does."""
    from importlib import import_module

    function = getattr(import_module(f"imputegap.algorithms.{algorithm}"), algorithm)
    centre, spread = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    scores = function((table - centre) / spread, logs=False, verbose=False, **settings)
    return np.asarray(scores, dtype=np.float64) * spread + centre


def saits(table: Table, n_steps: int, stride: int, **settings: Any) -> Table:
    """Train on windows of the table, and fill windows that follow each other."""
    import torch
    from pypots.imputation import SAITS
    from pypots.utils.random import set_random_seed

    set_random_seed(0)
    centre, spread = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    scores, times = (table - centre) / spread, len(table)
    n_steps = min(n_steps, times)
    starts = np.append(np.arange(0, times - n_steps, n_steps), times - n_steps)
    offsets = np.append(np.arange(0, times - n_steps, stride), times - n_steps)
    within = np.arange(n_steps)
    windows = scores[offsets[:, None] + within].astype(np.float32)
    rng = np.random.default_rng(0)
    held = rng.permutation(len(windows))[: max(len(windows) // 10, 1)]
    watched = windows[held]
    hide = (rng.random(watched.shape) < 0.1) & ~np.isnan(watched)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = {"n_steps": n_steps, "n_features": table.shape[1]}
    model = SAITS(**shape, device=device, verbose=False, **settings)
    model.fit(
        {"X": np.delete(windows, held, axis=0)},
        {"X": np.where(hide, np.nan, watched), "X_ori": watched},
    )
    found = model.predict({"X": scores[starts[:, None] + within].astype(np.float32)})["imputation"]
    filled = scores.copy()
    for start, window in zip(starts, found, strict=True):
        part = filled[start : start + n_steps]
        part[...] = np.where(np.isnan(part), window, part)
    return filled * spread + centre


def _gap(algorithm: str, **settings: Any) -> Peer:
    return Peer(imputegap, "imputegap", {"algorithm": algorithm, **settings})


PEERS: dict[str, Peer] = {
    "pandas-linear": Peer(linear, "pandas", {}),
    "pandas-pchip": Peer(pchip, "pandas", {}),
    "pandas-last": Peer(last, "pandas", {}),
    "sklearn-iterative": Peer(
        iterative, "scikit-learn", {"max_iter": 10, "n_nearest_features": 20, "random_state": 0}
    ),
    "sklearn-knn": Peer(knn, "scikit-learn", {"n_neighbors": 10, "weights": "distance"}),
    # What imputegap's file of default values has.
    "imputegap-cdrec": _gap("cdrec", truncation_rank=3, iterations=100, epsilon=1e-6),
    "imputegap-soft-impute": _gap("soft_impute", max_rank=3),
    "imputegap-iterative-svd": _gap("iterative_svd", truncation_rank=3),
    "imputegap-svt": _gap("svt", tau=0.2),
    "imputegap-rosl": _gap("rosl", rank=3, regularization=0.6),
    "imputegap-grouse": _gap("grouse", max_rank=3),
    "imputegap-stmvl": _gap("stmvl", window_size=7, gamma=0.85, alpha=2),
    "imputegap-dynammo": _gap("dynammo", h=3, max_iteration=100, approximation=True),
    "imputegap-trmf": _gap(
        "trmf", lags=[1, 7], K=4, lambda_f=1, lambda_x=1, lambda_w=1, eta=1, alpha=1000,
        max_iter=5000,
    ),
    "imputegap-iim": _gap("iim", number_neighbor=10, algo_code="iim 2"),
    "pypots-saits": Peer(
        saits, "pypots",
        {
            "n_steps": 48, "stride": 12, "n_layers": 2, "d_model": 256, "n_heads": 4, "d_k": 64,
            "d_v": 64, "d_ffn": 128, "dropout": 0.1, "batch_size": 32, "epochs": 100,
            "patience": 10,
        },
    ),
}  # fmt: skip
