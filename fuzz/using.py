"""What people do with a model once it is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import small
from noisewise import DeviationImputer, load, noisy_ids, noisy_series
from noisewise.errors import NoisewiseError

NEW = "never seen"


def attempt(call: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """Call; what noisewise refuses here is refused, and the rest is still tried."""
    with contextlib.suppress(NoisewiseError):
        return call(*args, **more)
    return ()


class Nonsense(Exception):
    """A model that was loaded predicts what is no number."""


def finite(*predicted: Any) -> None:
    """Raise for predictions that are no numbers."""
    if not all(np.isfinite(part).all() for part in predicted):
        raise Nonsense("NaN or infinity")


def use_model(path: Path) -> None:
    """Load a model and do with it what people do."""
    model: Any = load(path)
    cells = cells_of(model)
    finite(*attempt(model.predict, cells, return_std=True))
    finite(*attempt(model.predict_parts, cells))
    finite(*attempt(model.predict_interval, cells, coverage=0.9))
    known, other = (ids.labels.tolist() for ids in model.ids_[:2])
    if hasattr(model, "recommend"):
        attempt(model.recommend, known[0] if known else NEW, 3, risk=1.0)
        attempt(model.recommend, NEW, 3, exclude_seen=False)
        attempt(model.similar, other[0] if other else NEW, 3)
        row = attempt(model.fold_in, [*other[:2], NEW], [3.0, 4.0, 5.0])
        if row != ():
            attempt(row.predict, [*other[:2], NEW], return_std=True)
            attempt(row.recommend, 3)
        attempt(model.fold_in, known[:2], [1.0, 2.0], mode=1)
        attempt(noisy_ids, model)
    if hasattr(model, "row"):
        attempt(model.row, known[0] if known else NEW)
    if getattr(model, "likelihood", None) == "ordinal":
        attempt(model.predict_proba, cells)
    if hasattr(model, "leave_one_out"):
        attempt(model.leave_one_out, cells, return_std=True)
    if hasattr(model, "noise_by_series_"):
        attempt(noisy_series, model)
    attempt(model.calibrate, [(*cell, 3.0 + k) for k, cell in enumerate(cells)])
    attempt(model.save, path.with_name("again"))
    if hasattr(model, "partial_fit"):
        attempt(model.partial_fit, [(*cell, 3.0) for cell in cells])
        attempt(model.predict, cells, return_std=True)
    str(model)


def cells_of(model: Any) -> list[tuple[Any, ...]]:
    """Return cells of known and of unknown ids, and of times between known ones."""
    columns = [[*ids.labels[:3].tolist(), NEW] for ids in model.ids_]
    columns[-1] += [2.5, 1e6]
    cells = [tuple(column[k % len(column)] for column in columns) for k in range(7)]
    if type(model).__name__ == "BayesianFactorizer" and model.time is not None:
        cells = [(*cell, 1_000.0 + 10.0 * k) for k, cell in enumerate(cells)]
    return cells


def use_imputer(path: Path) -> None:
    """Load an imputer, and fill a table."""
    imputer = DeviationImputer.load(path)
    table = small.holed_table()
    if getattr(imputer, "n_features_in_", 3) == table.shape[1]:  # else scikit-learn refuses it
        attempt(imputer.transform, table, return_std=True)
        attempt(imputer.transform, np.vstack([table, table[:2]]))
    attempt(imputer.save, path.with_name("again"))
    str(imputer)
