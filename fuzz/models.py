"""Targets: a file of every model and imputer that can be saved, loaded and then used."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import small
from fuzz.forging import forged, taken_apart
from fuzz.harness import Target
from noisewise import DeviationImputer, load, noisy_ids, noisy_series
from noisewise.errors import NoisewiseError

SUFFIX = ".nw"
NEW = "never seen"


def targets() -> list[Target]:
    """Make a target for every model and for every imputer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = [_target(f"model-{key}", model, use_model, folder) for key, model in _models()]
        return made + [
            _target(key, imputer, use_imputer, folder) for key, imputer in small.imputers().items()
        ]


def _models() -> Any:
    return small.models().items()


def _target(name: str, model: Any, use: Callable[[Path], None], folder: Path) -> Target:
    path = folder / f"{name}{SUFFIX}"
    model.save(path)
    valid = [path.read_bytes()]
    parts = [taken_apart(valid[0], folder)]
    return Target(name, partial(forged, valid, parts), SUFFIX, use, valid)


def attempt(call: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """Call; what noisewise refuses here is refused, and the rest is still tried."""
    with contextlib.suppress(NoisewiseError):
        return call(*args, **more)
    return None


def use_model(path: Path) -> None:
    """Load a model and do with it what people do."""
    model: Any = load(path)
    cells = _cells(model)
    attempt(model.predict, cells, return_std=True)
    attempt(model.predict_parts, cells)
    attempt(model.predict_interval, cells, coverage=0.9)
    known, other = (ids.labels.tolist() for ids in model.ids_[:2])
    if hasattr(model, "recommend"):
        attempt(model.recommend, known[0] if known else NEW, 3, risk=1.0)
        attempt(model.recommend, NEW, 3, exclude_seen=False)
        attempt(model.similar, other[0] if other else NEW, 3)
        row = attempt(model.fold_in, [*other[:2], NEW], [3.0, 4.0, 5.0])
        if row is not None:
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
        attempt(model.partial_fit, [(*cell, 3.0) for cell in cells], epochs=1)
        attempt(model.predict, cells, return_std=True)
    str(model)


def _cells(model: Any) -> list[tuple[Any, ...]]:
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
    attempt(imputer.transform, table, return_std=True)
    attempt(imputer.transform, np.vstack([table, table[:2]]))
    attempt(imputer.save, path.with_name("again"))
    str(imputer)
