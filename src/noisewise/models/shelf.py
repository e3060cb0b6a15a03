"""A model as a folder: every worker of a cluster has written the draws of its rows as a shard.

``model.nw`` has all but these draws, and is written last. Shards are files of noisewise; they are
checked whole when a model is loaded, and then mapped: rows are read as they are needed.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise import storage
from noisewise.engine.sharded import Pieces, Sharded
from noisewise.errors import DataError, ModelFileError
from noisewise.models.model_file import pack

HEAD = "model.nw"
KIND = "shard"
NAME = re.compile(r"[0-9a-f]{8}")  # of a fit: it is in the names of its shards
MOST_SHARDS = 10_000


@dataclass(frozen=True)
class Shelf:
    """The shards of one fit in a folder."""

    folder: str
    fit: str  # which fit it is
    count: int

    @classmethod
    def new(cls, folder: str | os.PathLike[str], count: int) -> Shelf:
        """Return a place for so many shards in a folder that may have others."""
        return cls(os.path.abspath(folder), secrets.token_hex(4), count)

    def path(self, number: int) -> Path:
        """Return the file of a worker."""
        return Path(self.folder, f"{KIND}-{self.fit}-{number:05d}.safetensors")

    def write(self, number: int, tensors: dict[str, Pieces]) -> None:
        """Write the shard of a worker, wholly or not at all."""
        storage.write(self.path(number), KIND, {"fit": self.fit, "number": number}, tensors)

    def open(self, name: str) -> Sequence[npt.NDArray[Any]]:
        """Return what shards have of an array, mapped, in the order of rows; all were checked."""
        shards = [storage.maps(self.path(number), KIND)[1] for number in range(self.count)]
        modes = sorted({key for own in shards for key in own if key.rpartition(".")[0] == name})
        return [own[key] for key in modes for own in shards]

    def read(self, rounded: set[str]) -> dict[str, Any]:
        """Check all shards whole, and return what they have, by the names that a file has."""
        keys: set[str] = set()
        for number in range(self.count):
            path = self.path(number)
            with storage.mapped():
                header, tensors = storage.read(path, KIND)
            with storage.reading(path):
                if (header["fit"], header["number"]) != (self.fit, number):
                    raise storage.Damaged("it is the shard of another model")
                if number and set(tensors) != keys:
                    raise storage.Damaged("it does not have the draws that other shards have")
            keys = set(tensors)
        names = {key.rpartition(".")[0] for key in keys}
        return {f"draws.{n}": Sharded(partial(self.open, n), n in rounded) for n in names}

    def discard(self) -> None:
        """Remove shards of this fit."""
        self._remove(lambda name: self.fit in name)

    def remove_others(self) -> None:
        """Remove shards of all other fits."""
        self._remove(lambda name: self.fit not in name)

    def _remove(self, unwanted: Any) -> None:
        for path in Path(self.folder).glob(f"{KIND}-*.safetensors"):
            if unwanted(path.name):
                with suppress(FileNotFoundError):
                    path.unlink()


def head_of(path: str | os.PathLike[str]) -> Path:
    """Return the file that has a model's header: itself, or that of its folder."""
    return Path(path, HEAD) if Path(path).is_dir() else Path(path)


def write_model(path: str | Path, model: Any) -> None:
    """Write a model to one file; to the folder with its shards, what these lack."""
    if not Path(path).is_dir():
        storage.write(path, "model", *pack(model))
        return
    draws = getattr(getattr(model, "factors_", None), "draws", {})
    sharded = {name: array for name, array in draws.items() if isinstance(array, Sharded)}
    opened: Any = next((array.open for array in sharded.values()), None)
    shelf: Shelf | None = None if opened is None else opened.func.__self__
    if shelf is None or not os.path.samefile(shelf.folder, path):
        raise DataError(f"{path} cannot be written: it is a folder; give the name of a file.")
    header, tensors = pack(model)
    rounded = sorted(name for name, array in sharded.items() if array.rounded)
    header["shards"] = {"fit": shelf.fit, "count": shelf.count, "rounded": rounded}
    here = {name: own for name, own in tensors.items() if isinstance(own, np.ndarray)}
    storage.write(head_of(path), "model", header, here)
    shelf.remove_others()


def read_model(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the header and the tensors of a model: of its file, or of a folder with its shards."""
    header, tensors = storage.read(head_of(path), "model")
    if not Path(path).is_dir():
        if "shards" in header:
            raise ModelFileError(f"{path} has no draws: name its folder, which has them in shards.")
        return header, tensors
    with storage.reading(path):
        about = header.pop("shards")
        fit, count, rounded = (about[name] for name in ("fit", "count", "rounded"))
        sound = isinstance(fit, str) and NAME.fullmatch(fit) and type(count) is int
        if not sound or not 1 <= count <= MOST_SHARDS:
            raise storage.Damaged("what it says of its shards makes no sense")
        return header, tensors | Shelf(os.path.abspath(path), fit, count).read(set(rounded))
