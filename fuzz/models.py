"""Targets: a file of every model and imputer that can be saved, loaded and then used."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fuzz import small
from fuzz.forging import forged, taken_apart
from fuzz.harness import Target
from fuzz.using import use_imputer, use_model

SUFFIX = ".nw"


def targets() -> list[Target]:
    """Make a target for every model and for every imputer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models, imputers = small.models().items(), small.imputers().items()
        made = [_target(f"model-{key}", model, use_model, folder) for key, model in models]
        return made + [_target(key, imputer, use_imputer, folder) for key, imputer in imputers]


def _target(name: str, model: Any, use: Callable[[Path], None], folder: Path) -> Target:
    path = folder / f"{name}{SUFFIX}"
    model.save(path)
    valid = [path.read_bytes()]
    parts = [taken_apart(valid[0], folder)]
    return Target(name, partial(forged, valid, parts), SUFFIX, use, valid)
