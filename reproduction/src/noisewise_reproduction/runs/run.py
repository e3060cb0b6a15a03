"""A run: one model on one split, the smallest piece that is measured, kept and never repeated.

A finished run is one JSON file, named after all that its numbers follow from. So what was
killed goes on where it was, other settings are another run, and a quick and a full one can
share a folder.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from noisewise.errors import DataError
from noisewise.evaluation.records import as_json, read_json
from noisewise.storage import write_bytes

# Settings that change no number: threads, bars, files, and what is remembered beside the model.
NEUTRAL = {
    "n_jobs", "verbose", "checkpoint", "checkpoint_epochs", "checkpoint_minutes", "keep_seen",
    "coordinates", "random_state",
}  # fmt: skip

Numbers = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Run:
    """Something to measure.

    Attributes
    ----------
    about : dict
        All that its numbers follow from, as JSON has it; "task" says what is measured, and
        "dataset", "model" and "seed" are part of the file's name.
    labels : dict
        What tables call it, such as dataset, model and seed.
    measure : callable
        Takes a number of threads and gives the numbers, ready for JSON. It can be sent to another
        process.
    alone : bool
        Whether nothing else may run meanwhile, as it is time that is measured.
    defaults : dict
        Settings of the model as it comes: what a result had that was written before one existed.
    """

    about: dict[str, Any]
    labels: dict[str, Any]
    measure: Callable[[int], Numbers]
    alone: bool = False
    defaults: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def name(self) -> str:
        """Return the name of its file."""
        document = json.dumps(self.about, sort_keys=True, allow_nan=False)
        digest = hashlib.sha256(document.encode()).hexdigest()[:12]
        words = [str(self.about[key]) for key in ("task", "dataset", "model", "seed")]
        return re.sub(r"[^\w.-]", "_", "--".join([*words, digest])) + ".json"


@dataclass(frozen=True)
class Store:
    """Finished runs in a folder, one file each."""

    folder: Path

    def path(self, run: Run) -> Path:
        """Return where a run is kept."""
        return self.folder / run.name

    def has(self, run: Run) -> bool:
        """Return whether a run is finished."""
        return self.path(run).exists()

    def keep(self, run: Run, record: dict[str, Any]) -> None:
        """Write a finished run, wholly or not at all.

        Parameters
        ----------
        run : Run
            What was measured.
        record : dict
            "numbers", and where and when they were measured.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        write_bytes(self.path(run), as_json({"about": run.about, **record}).encode())

    def read(self, run: Run) -> dict[str, Any]:
        """Return the record of a finished run; a damaged or foreign file is a ``DataError``."""
        path = self.path(run)
        try:
            record = read_json(path, "a run")
        except DataError as error:
            raise _damaged(path, "it is no JSON") from error
        if not isinstance(record, dict) or record.get("about") != run.about:
            raise _damaged(path, "it is of another run")
        if not (record.keys() >= _REST and isinstance(record["numbers"], dict)):
            raise _damaged(path, f"it needs {', '.join(sorted(_REST))}")
        return record


_REST = {"numbers", "machine", "date"}


def settings_of(model: Any) -> dict[str, Any]:
    """Return all settings of a model that its numbers follow from, as JSON has them.

    Examples
    --------
    >>> from noisewise.models.series import OUSmoother
    >>> settings_of(OUSmoother(time=0, n_jobs=3))["time"]
    0
    """
    given = model.get_params()
    kept = {k: _plain(v) for k, v in given.items() if k.rpartition("__")[2] not in NEUTRAL}
    plain: dict[str, Any] = json.loads(as_json(kept))
    return plain


def defaults_of(model: Any) -> dict[str, Any]:
    """Return the settings of a model as it comes, as JSON has them; what must be given is not in.

    Examples
    --------
    >>> from noisewise.models.series import OUSmoother
    >>> defaults_of(OUSmoother(time=0))["time"]
    -1
    """
    given = inspect.signature(type(model)).parameters.values()
    known = {one.name: _plain(one.default) for one in given if one.default is not one.empty}
    plain: dict[str, Any] = json.loads(as_json(known))
    return plain


def _plain(value: Any) -> Any:
    """Name models by their class; their settings stand beside them."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return type(value).__name__ if hasattr(value, "get_params") else value


def _damaged(path: Path, why: str) -> DataError:
    return DataError(f"{path} is damaged: {why}. Remove it, and the run is measured again.")
