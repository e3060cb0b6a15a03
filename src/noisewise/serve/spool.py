"""A model file that others may change at any time: what is served is a private copy, and mapped.

A file that is written to in place, or cut short, would take its pages away from whoever maps it. So
every version is copied into a folder of the server's own, once for all workers, with its draws
decoded; workers map that copy and share its memory. A version that is broken changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisewise import storage
from noisewise.any_file import load_any
from noisewise.engine.rounding import all_decoded
from noisewise.engine.sgd.factors import Factors
from noisewise.errors import ModelFileError

try:
    import fcntl
except ImportError:  # on Windows, where one worker is all there is
    fcntl = None  # type: ignore[assignment]

BLOCK = 2**20  # bytes that are copied at a time
KEPT = 3  # versions in the folder: of workers that are still about to map one


class Version(NamedTuple):
    """What a file looks like from outside: a change of it changes one of these."""

    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> Version | None:
        """Look at a file; None where there is none."""
        try:
            found = os.stat(path)
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@dataclass(frozen=True)
class Loaded:
    """A model, and which version of its file it is from: the first 16 digits of its SHA-256."""

    model: Any
    digest: str
    version: Version


class Changing(Exception):
    """A file was written to while it was copied: another look will tell."""


@dataclass(frozen=True)
class Spool:
    """A model file, and the folder with copies of its versions."""

    path: Path
    folder: Path

    def load(self, check: Callable[[Loaded], None] = lambda loaded: None) -> Loaded:
        """Load the file as it is now; a broken one is a ``ModelFileError``.

        It is noted as the latest that could be read once a check has not raised for it.
        """
        with self._alone():
            version = Version.of(self.path)
            if version is None:
                raise ModelFileError(f"There is no file {self.path}.")
            noted = self._noted()
            known = noted is not None and noted[0] == version
            digest = noted[1] if noted is not None and known else self._copied(version)
            loaded = self._mapped(version, digest)
            check(loaded)
            if not known:
                storage.write_bytes(self._note, json.dumps([list(version), digest]).encode())
                self._forget()
            return loaded

    def latest(self) -> Loaded:
        """Load the last version that could be read."""
        with self._alone():
            noted = self._noted()
            if noted is None:
                raise ModelFileError(f"No version of {self.path} has been read.")
            return self._mapped(*noted)

    def _mapped(self, version: Version, digest: str) -> Loaded:
        copy = self.folder / f"{digest}.safetensors"
        with storage.mapped(), _named(copy, self.path):
            model = load_any(copy)
        _share_rows(model, copy)
        return Loaded(_of_one_thread(model), digest, version)

    def _copied(self, version: Version) -> str:
        """Copy a version, with draws decoded, and return what the copy is called."""
        raw = self.folder / f"{os.getpid()}.raw"
        try:
            digest = _copy(self.path, raw)[:16]
            if Version.of(self.path) != version:
                raise Changing
            with _named(raw, self.path):
                load_any(raw)  # which refuses what makes no sense
                header = storage.read_header(raw, None)
                kind = header.pop("kind")
                header.pop("version")
                tensors = _widened(header, all_decoded(storage.read(raw, kind)[1]))
            storage.write(self.folder / f"{digest}.safetensors", kind, header, tensors)
        finally:
            raw.unlink(missing_ok=True)
        return digest

    def _noted(self) -> tuple[Version, str] | None:
        """Return the last version that a worker could read, and what it is called."""
        try:
            found, digest = json.loads(self._note.read_bytes())
        except FileNotFoundError:
            return None
        return Version(*found), str(digest)

    def _forget(self) -> None:
        """Remove copies of long ago; whoever maps one still has it."""
        copies = sorted(self.folder.glob("*.safetensors"), key=lambda copy: copy.stat().st_mtime)
        for copy in copies[:-KEPT]:
            for file in self.folder.glob(f"{copy.stem}.*"):
                file.unlink(missing_ok=True)

    @property
    def _note(self) -> Path:
        return self.folder / "latest.json"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one worker in at a time."""
        with open(self.folder / "lock", "w") as lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@contextmanager
def _named(copy: Path, path: Path) -> Iterator[None]:
    """Name the file that people know in errors."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(str(error).replace(str(copy), str(path))) from error


def _widened(header: dict[str, Any], tensors: storage.Tensors) -> storage.Tensors:
    """Return draws in single precision, which they are computed with: answers are the same.

    Else every request would convert them; and all workers share what is in the copy.
    """
    posterior = header.get("posterior", {})
    if not posterior.get("half", False):
        return tensors
    posterior["half"] = False
    return {
        name: tensor.astype(np.float32) if tensor.dtype == np.float16 else tensor
        for name, tensor in tensors.items()
    }


def _share_rows(model: Any, copy: Path) -> None:
    """Map the rows of a model that puts them together when it is loaded, in place of its own."""
    factors = getattr(model, "factors_", None)
    if not isinstance(factors, Factors):
        return
    mapped = []
    for mode, rows in enumerate(factors.state.rows):
        beside = copy.with_suffix(f".{mode}.npy")
        if not beside.exists():
            with storage.writing(beside) as file:
                np.save(file, rows)
        mapped.append(np.asarray(np.load(beside, mmap_mode="c")))
    model.factors_ = replace(factors, state=replace(factors.state, rows=tuple(mapped)))


def _copy(path: Path, to: Path) -> str:
    """Copy a file and return its SHA-256."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as source, open(to, "wb") as copy:
            while block := source.read(BLOCK):
                digest.update(block)
                copy.write(block)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}.") from error
    return digest.hexdigest()


def _of_one_thread(model: Any) -> Any:
    """Have every model in a model use one thread: requests are what runs side by side."""
    inner = model
    while inner is not None:
        if hasattr(inner, "n_jobs"):
            inner.n_jobs = 1
        inner = getattr(inner, "model_", None)  # what an imputer learned, what a contest chose
    return model
