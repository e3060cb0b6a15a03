"""One small fitted model of every kind that can be saved, and the data that it was fitted to."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from noisewise_reproduction.rivals.autorec import AutoRec
from noisewise_reproduction.rivals.drmf import TrimmedFactorizer
from noisewise_reproduction.rivals.llorma import LLORMA
from noisewise_reproduction.rivals.rbm import RBM
from noisewise_reproduction.rivals.rbmf import RobustBayesianFactorizer
from noisewise_reproduction.rivals.rcf import HuberFactorizer
from noisewise_reproduction.rivals.spatial import SpatialNeighbours
from noisewise_reproduction.rivals.table_imputers import TableImputer
from noisewise_reproduction.rivals.tucker import TuckerFactorizer

from noisewise import (
    AutoFactorizer,
    BayesianFactorizer,
    DeviationFactorizer,
    DeviationImputer,
    LinearInterpolator,
    OUSmoother,
    ResidualFactorizer,
    TemporalFactorizer,
)

Rows = list[tuple[Any, ...]]

SHARED: dict[str, Any] = {"random_state": 0, "n_jobs": 1}
QUICK = SHARED | {"rank": 2}
FEW = QUICK | {"epochs": 2, "patience": 1}
SWEEPS = QUICK | {"sweeps": 6, "burn_in": 2, "samples": 3}
NETWORK = SHARED | {"hidden": 2, "epochs": 2, "patience": 1, "device": "cpu"}
COORDINATES = {"hall": (0.0, 0.0), "attic": (0.0, 3.0), "cellar": (0.0, -2.0), "roof": (0.0, 5.0)}


def ratings(labels: Callable[[int], Any] = lambda k: f"u{k}") -> Rows:
    """Return stars that 8 users gave to 6 items."""
    rng = np.random.default_rng(0)
    rows = [(labels(u), f"i{i}", float(rng.integers(1, 6))) for u in range(8) for i in range(6)]
    return [row for row in rows if rng.random() < 0.8]


def readings(places: tuple[str, ...] = ("hall", "attic", "cellar")) -> Rows:
    """Return what two sensors at some places read over 8 hours."""
    rng = np.random.default_rng(1)
    rows = [
        (place, sensor, float(hour), 20.0 + np.sin(hour / 3) + rng.normal(0, 0.1))
        for place in places
        for sensor in ("heat", "light")
        for hour in range(8)
    ]
    return [row for row in rows if rng.random() < 0.8]


def timed(rows: Rows) -> Rows:
    """Ratings with a time before the value."""
    return [(*row[:-1], 1_000.0 + 7.0 * k, row[-1]) for k, row in enumerate(rows)]


def mixed_label(k: int) -> Any:
    """Ids of several types."""
    return (k, f"u{k}", k + 0.5, b"u%d" % k, (k, "u"), True, f"v{k}", -k)[k]


def models() -> dict[str, Any]:
    """Return fitted models by name."""
    few_tucker = TuckerFactorizer(rank=2, epochs=2, patience=1, **SHARED)
    bayes = BayesianFactorizer(**SWEEPS)
    plans: dict[str, tuple[Any, Rows]] = {
        "deviation": (DeviationFactorizer(deviation_rank=1, **FEW), ratings()),
        "deviation-ints": (
            DeviationFactorizer(deviation_rank=0, patience=None, epochs=2, **QUICK),
            ratings(int),
        ),
        "deviation-tensor": (DeviationFactorizer(deviation_rank=1, **FEW), readings()),
        "huber": (HuberFactorizer(**FEW), ratings()),
        "trimmed": (TrimmedFactorizer(round_epochs=1, **FEW), ratings()),
        "robust-bayes": (RobustBayesianFactorizer(**FEW), ratings(mixed_label)),
        "llorma": (LLORMA(models=3, global_rank=2, **FEW), ratings()),
        "autorec": (AutoRec(**NETWORK), ratings()),
        "rbm": (RBM(batch=4, **NETWORK), ratings()),
        "bayes": (bayes, ratings()),
        "bayes-ordinal": (BayesianFactorizer(likelihood="ordinal", **SWEEPS), ratings()),
        "bayes-time": (BayesianFactorizer(time=2, **SWEEPS), timed(ratings())),
        "bayes-tensor": (BayesianFactorizer(deviation="constant", **SWEEPS), readings()),
        "linear": (LinearInterpolator(n_jobs=1), readings()),
        "ou": (OUSmoother(n_jobs=1), readings()),
        "spatial": (SpatialNeighbours(COORDINATES, n_neighbours=2, n_jobs=1), readings()),
        "tucker": (few_tucker, readings()),
        "temporal": (TemporalFactorizer(**SWEEPS), readings()),
        "temporal-heavy": (TemporalFactorizer(tails="heavy", **SWEEPS), readings()),
        "residual": (ResidualFactorizer(few_tucker, **SHARED), readings()),
        "table": (TableImputer("knn", n_neighbours=2, random_state=0), readings()),
        "auto": (AutoFactorizer(["linear", "ou"], **SHARED), readings()),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: model.fit(rows) for name, (model, rows) in plans.items()}


def holed_table() -> np.ndarray[Any, Any]:
    """Hours x series, with holes."""
    hours = np.arange(12.0)
    table = np.column_stack([20 + np.sin(hours / 2), 15 + np.cos(hours / 2), hours])
    table[[2, 5, 6], [0, 1, 1]] = np.nan
    return table


def imputers() -> dict[str, DeviationImputer]:
    """Return fitted imputers by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "imputer-ou": DeviationImputer("ou", n_jobs=1).fit(holed_table()),
            "imputer-linear": DeviationImputer("linear", sensor=None, n_jobs=1).fit(holed_table()),
            "imputer-tucker": DeviationImputer(
                "tucker", settings={"rank": 1, "epochs": 2}, random_state=0, n_jobs=1
            ).fit(holed_table()),
        }
