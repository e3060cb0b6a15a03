"""One safetensors file with a JSON header: nothing in it can run.

A file is written beside its final name and renamed, so that a crash leaves the old one or the new.
Reading checks sizes before memory is taken, and indices by comparison: differences of forged ones
overflow.
"""

from __future__ import annotations

import glob
import json
import math
import mmap
import os
import reprlib
import secrets
import stat
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from noisewise.errors import DataError, ModelFileError, NoisewiseError, SettingError
from noisewise.tensor_file import about, in_blocks, write_tensors

FORMAT_VERSION = 2
MAX_HEADER_BYTES = 16 * 2**20  # of JSON; ids are tensors, so an honest header is far smaller
MAX_BRACKETS = 100_000  # lists and dicts in a header, each of which takes 30 times its own size
MAX_DEPTH = 50  # of lists and dicts within each other
MAX_TENSORS = 10_000
TYPES = {  # that are written; of others, numpy lacks some
    "F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "|u1",
}  # fmt: skip
SAVING = ".saving"  # how the name of a file ends while it is written
ABANDONED = 600.0  # seconds after the last write when such a file has no writer any more

Tensors = dict[str, npt.NDArray[Any]]

_mapping: ContextVar[bool] = ContextVar("mapping", default=False)

# What parts of a file lead to that are not what they should be.
BROKEN = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip


def write(
    path: str | Path, kind: str, header: Mapping[str, Any], tensors: Mapping[str, Any]
) -> None:
    """Write ``tensors`` and a JSON ``header`` to ``path``, wholly or not at all.

    A tensor that has ``pieces()`` is written one after the other, and never here as a whole.
    """
    document = json.dumps({"version": FORMAT_VERSION, "kind": kind, **header}, allow_nan=False)
    _check_size(path, document)
    with writing(path) as file:
        write_tensors(file, document, tensors)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file, wholly or not at all; see ``writing``."""
    with writing(path) as file:
        file.write(content)


@contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """Write a file beside its final name and rename it, so that it is never seen half written.

    A link is followed, a file that is there keeps its mode, and what writers that were killed left
    behind is removed.
    """
    target = destination(path)
    old = target.stat() if target.exists() else None
    _remove_abandoned(target)
    beside = _beside(target)
    # The system takes the umask off the mode of a new file; a private one is private all the time.
    try:
        handle = os.open(beside, _NEW, 0o666 if old is None else 0o600)
    except OSError as error:
        error.filename = str(path)  # and not that of the file beside it, which nobody knows
        raise
    try:
        with os.fdopen(handle, "w+b") as file:
            if old is not None:
                _take_after(old, beside)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(beside)
        if isinstance(error, OSError) and error.filename is None:  # as where a disk is full
            error.filename = str(path)
        raise


def destination(path: str | Path) -> Path:
    """Return the file that a path stands for, links followed; raise for what is no plain file."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        kind = "folder" if target.is_dir() else "device, a pipe or a socket"
        raise DataError(f"{path} cannot be written: it is a {kind}; give the name of a file.")
    return target


def check_writable(path: str | Path) -> None:
    """Raise unless a file can be written there, so that nobody works for hours and then fails."""
    try:
        target = destination(path)
        beside = _beside(target)
        os.close(os.open(beside, _NEW, 0o600))
        os.unlink(beside)
    except OSError as error:
        why = f"there is no folder {target.parent}" if error.errno == 2 else error.strerror
        raise DataError(f"{path} cannot be written: {why}.") from error


def check_kept(read: str | Path, written: str | Path) -> None:
    """Raise if a file that is read would be replaced by one that is written."""
    own, other = Path(read), Path(written)
    if own.is_file() and other.exists() and own.samefile(other):
        raise SettingError(f"{own} is kept as it is: write to another file than {other}.")


def read(path: str | Path, kind: str) -> tuple[dict[str, Any], Tensors]:
    """Read the header and the tensors of a file that holds a ``kind``."""
    header, tensors = _open(path, kind, with_tensors=True)
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "f" and not all(np.isfinite(p).all() for p in in_blocks(tensor)):
            raise ModelFileError(f"{path} is damaged: {name} holds numbers that are not finite.")
    return header, tensors


def read_header(path: str | Path, kind: str | None) -> dict[str, Any]:
    """Read only the header of a file that holds a ``kind``; None takes any."""
    return _open(path, kind, with_tensors=False)[0]


@contextmanager
def mapped() -> Iterator[None]:
    """Map files that are read for a while, in this thread alone, in place of copying them.

    Processes that map one file share its memory. A tensor may be written to, and its file stays as
    it is; nobody else may write to the file as long as there is a tensor of it.
    """
    before = _mapping.set(True)
    try:
        yield
    finally:
        _mapping.reset(before)


def maps(path: str | Path, kind: str) -> tuple[dict[str, Any], Tensors]:
    """Map a file that ``read`` has found sound before: nothing but the header is looked at."""
    with mapped():
        return _open(path, kind, with_tensors=True, whole=False)


def finite(value: Any) -> Any:
    """Return a record as JSON has it: what could not be measured is null."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shown(value: object) -> str:
    """Return a value of a file for people to read, cut short where it is long."""
    return cut(reprlib.repr(value))


def cut(text: str) -> str:
    """Return at most the beginning of a text."""
    return text if len(text) <= 300 else f"{text[:300]}..."


class Damaged(ValueError):
    """What is wrong with a part of a file; `reading` adds the name of the file."""


class Foreign(Damaged):
    """What a file holds that cannot be used here, though it is whole."""


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn what any part of a file leads to into one error that names the file."""
    try:
        yield
    except ModelFileError:
        raise
    except Foreign as error:
        raise ModelFileError(f"{path} holds {error}.") from error
    except BROKEN as error:
        plain = isinstance(error, Damaged | NoisewiseError)
        told = str(error) if plain else repr(error)
        raise ModelFileError(f"{path} is damaged: {cut(told).removesuffix('.')}.") from error


def _open(
    path: str | Path, kind: str | None, *, with_tensors: bool, whole: bool = True
) -> tuple[dict[str, Any], Tensors]:
    if not Path(path).is_file():
        raise ModelFileError(f"There is no file {path}.")
    try:
        _check_length(path)
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
            header = _header(path, metadata.get("noisewise"), kind)
            if not with_tensors:
                return header, {}
            names = file.keys()
            if len(names) > MAX_TENSORS:
                raise ModelFileError(f"{path} has {len(names):,} tensors; that is not honest.")
            types = {name: _type(path, file, name) for name in names}
            if _mapping.get():
                tensors = _maps(path, file, types)
            else:
                tensors = {name: np.asarray(file.get_tensor(name)) for name in names}
    except (SafetensorError, OSError) as error:
        raise ModelFileError(
            f"{path} is not a noisewise file, or it is cut short or damaged ({error})."
        ) from error
    if whole and metadata.get("checksum") != _checksum(metadata["noisewise"], tensors):
        raise ModelFileError(f"{path} is damaged: its content does not match its checksum.")
    return header, tensors


def _check_length(path: str | Path) -> None:
    """Refuse a file whose header would take much memory before anything of it is parsed."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if 2 * MAX_HEADER_BYTES < length < os.path.getsize(path):  # quotes in it are escaped
        raise ModelFileError(f"{path} has a header of {length:,} bytes; that is not honest.")


def _maps(path: str | Path, file: Any, types: dict[str, str]) -> Tensors:
    """Return tensors that are maps of the file; `safe_open` has seen that they lie without gaps."""
    with open(path, "rb") as plain:
        offset = 8 + int.from_bytes(plain.read(8), "little")
        content = mmap.mmap(plain.fileno(), 0, access=mmap.ACCESS_COPY)
    tensors: Tensors = {}
    for name in file.offset_keys():
        shape = tuple(file.get_slice(name).get_shape())
        tensors[name] = np.ndarray(shape, types[name], content, offset)
        offset += tensors[name].nbytes
    return tensors


def _type(path: str | Path, file: Any, name: str) -> str:
    kind = file.get_slice(name).get_dtype()
    if kind not in TYPES:
        raise ModelFileError(f"{path} is damaged: {name} has numbers of the type {kind}.")
    return TYPES[kind]


def _checksum(document: str, tensors: Tensors) -> str:
    """CRC of header and tensors: it finds a file that has decayed, not one that was forged."""
    crc = zlib.crc32(document.encode())
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(about(name, tensor), crc)
        crc = zlib.crc32(tensor.reshape(-1).view(np.uint8).data, crc)
    return f"{crc:08x}"


def _check_size(path: str | Path, document: str) -> None:
    if len(document) > MAX_HEADER_BYTES:
        raise ModelFileError(f"{path} has a header of {len(document):,} bytes; that is not honest.")
    brackets = document.count("[") + document.count("{")
    if brackets > MAX_BRACKETS:
        raise ModelFileError(f"{path} has {brackets:,} brackets in its header; that is not honest.")


def _is_deep(header: Any) -> bool:
    """Whether lists and dicts lie within each other more often than any honest header's."""
    level = [header]
    for _ in range(MAX_DEPTH):
        inner = (part.values() if isinstance(part, dict) else part for part in level)
        level = [one for parts in inner for one in parts if isinstance(one, dict | list)]
    return bool(level)


def _header(path: str | Path, document: str | None, kind: str | None) -> dict[str, Any]:
    if document is None:
        raise ModelFileError(f"{path} is a safetensors file, but noisewise did not write it.")
    _check_size(path, document)
    try:
        header = json.loads(document, parse_constant=_refuse, parse_float=_finite)
        version, found = header["version"], header["kind"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(
            f"{path} is damaged: its header cannot be read ({cut(repr(error))})."
        ) from error
    if _is_deep(header):
        raise ModelFileError(f"{path} has more than {MAX_DEPTH} brackets within each other.")
    if type(version) is int and version < FORMAT_VERSION:
        raise ModelFileError(
            f"{path} was written by an older noisewise (format {shown(version)}; this one reads "
            f"{FORMAT_VERSION}): fit and save it again."
        )
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} was written by a newer noisewise (format {shown(version)}; this one reads up "
            f"to {FORMAT_VERSION}): pip install --upgrade noisewise."
        )
    if kind not in (None, found):
        raise ModelFileError(f"{path} holds a {shown(found)}, not a {kind!r}.")
    return dict(header)


def _finite(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a finite number")


_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name[:50]}.{secrets.token_hex(4)}{SAVING}")


def _take_after(old: os.stat_result, new: Path) -> None:
    """Give a file the owner, if that is allowed, and the mode of the one that it will replace."""
    if (old.st_uid, old.st_gid) != (new.stat().st_uid, new.stat().st_gid):
        with suppress(PermissionError, AttributeError):
            os.chown(new, old.st_uid, old.st_gid)
    os.chmod(new, stat.S_IMODE(old.st_mode))


def _remove_abandoned(target: Path) -> None:
    """Remove what writers that were killed have left of this file."""
    for left in target.parent.glob(f".{glob.escape(target.name[:50])}.*{SAVING}"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()
