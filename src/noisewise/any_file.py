"""A file that holds a model or an imputer, whichever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noisewise import storage
from noisewise.imputer import DeviationImputer
from noisewise.imputer_file import KIND
from noisewise.models import load
from noisewise.models.shelf import head_of


def load_any(path: str | Path) -> Any:
    """Read a model of ratings or of sensors, or an imputer; a broken file is a ModelFileError."""
    if storage.read_header(head_of(path), None)["kind"] == KIND:
        return DeviationImputer.load(path)
    return load(path)
