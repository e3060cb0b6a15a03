"""One safetensors file with a JSON header: nothing in it can run.

A file is written beside its final name, flushed to the disk and then renamed, so that a crash
leaves either the old file or the new one. Reading checks everything before anything is used.
"""

from __future__ import annotations

import datetime
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from noisewise.errors import DataError, ModelFileError
from noisewise.observations import Ids

FORMAT_VERSION = 1
MAX_HEADER_BYTES = 64 * 2**20  # of JSON; ids are tensors, so an honest header is far smaller
TYPES = ("F16", "F32", "F64", "I32", "I64", "U8")  # that are written; of others, numpy lacks some

Tensors = dict[str, npt.NDArray[Any]]


def write(path: str | Path, kind: str, header: Mapping[str, Any], tensors: Tensors) -> None:
    """Write ``tensors`` and a JSON ``header`` to ``path``, wholly or not at all."""
    document = json.dumps({"version": FORMAT_VERSION, "kind": kind, **header}, allow_nan=False)
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    checksum = _checksum(document, contiguous)
    write_bytes(path, save(contiguous, metadata={"noisewise": document, "checksum": checksum}))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file beside its final name and rename it, so that it is never seen half written."""
    path = Path(path)
    handle, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o666 & ~_umask())
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def read(path: str | Path, kind: str) -> tuple[dict[str, Any], Tensors]:
    """Read the header and the tensors of a file that holds a ``kind``.

    Raises
    ------
    ModelFileError
        If the file is truncated, not of noisewise, of another kind, or newer than this version.
    """
    header, tensors = _open(path, kind, with_tensors=True)
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
            raise ModelFileError(f"{path} is damaged: {name} holds numbers that are not finite.")
    return header, tensors


def read_header(path: str | Path, kind: str) -> dict[str, Any]:
    """Read only the header of a file that holds a ``kind``."""
    return _open(path, kind, with_tensors=False)[0]


def take(
    path: str | Path, tensors: Tensors, name: str, dtype: str, *shape: int
) -> npt.NDArray[Any]:
    """Return a tensor of the type and shape that the header promises; -1 stands for any length."""
    tensor = tensors.get(name)
    if tensor is None:
        raise ModelFileError(f"{path} is damaged: {name} is missing.")
    fits = len(shape) == tensor.ndim and all(
        want in (-1, got) for want, got in zip(shape, tensor.shape, strict=True)
    )
    if tensor.dtype != np.dtype(dtype) or not fits:
        raise ModelFileError(
            f"{path} is damaged: {name} must be {dtype} of shape {shape}; "
            f"got {tensor.dtype} of shape {tensor.shape}."
        )
    return tensor


def pack_ids(ids: Ids, prefix: str) -> tuple[dict[str, Any], Tensors]:
    """Turn ids into a header entry and tensors: whole numbers, text, or JSON with type names."""
    entry = {"name": ids.name, "length": len(ids)}
    if ids.labels.dtype == np.int64:
        return {**entry, "type": "int"}, {f"{prefix}.ids": ids.labels}
    labels = ids.labels.tolist()
    if all(type(label) is str for label in labels):
        return {**entry, "type": "str"}, _pack_texts(labels, prefix)
    texts = [json.dumps(_tagged(label)) for label in labels]
    for label, text in zip(labels, texts, strict=True):
        if _untagged(json.loads(text)) != label:
            _refuse(label)
    return {**entry, "type": "json"}, _pack_texts(texts, prefix)


def unpack_ids(path: str | Path, entry: Any, tensors: Tensors, prefix: str) -> Ids:
    """Undo ``pack_ids``."""
    try:
        name, length, kind = str(entry["name"]), int(entry["length"]), entry["type"]
        if kind == "int":
            labels = take(path, tensors, f"{prefix}.ids", "int64", length)
        elif kind == "str":
            labels = _objects(_unpack_texts(path, tensors, prefix, length))
        elif kind == "json":
            texts = _unpack_texts(path, tensors, prefix, length)
            labels = _objects([_untagged(json.loads(text)) for text in texts])
        else:
            raise ModelFileError(f"{path} is damaged: ids of the unknown type {kind!r}.")
        ids = Ids(labels, name)
        different = len(set(labels.tolist()))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{path} is damaged: its ids cannot be read ({error!r}).") from error
    if different != length:
        raise ModelFileError(f"{path} is damaged: {length} ids, but only {different} different.")
    return ids


def _open(path: str | Path, kind: str, *, with_tensors: bool) -> tuple[dict[str, Any], Tensors]:
    if not Path(path).is_file():
        raise ModelFileError(f"There is no file {path}.")
    try:
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
            header = _header(path, metadata.get("noisewise"), kind)
            if not with_tensors:
                return header, {}
            tensors = {name: _tensor(path, file, name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelFileError(
            f"{path} is not a noisewise file, or it is cut short or damaged ({error})."
        ) from error
    if metadata.get("checksum") != _checksum(metadata["noisewise"], tensors):
        raise ModelFileError(f"{path} is damaged: its content does not match its checksum.")
    return header, tensors


def _tensor(path: str | Path, file: Any, name: str) -> npt.NDArray[Any]:
    kind = file.get_slice(name).get_dtype()
    if kind not in TYPES:
        raise ModelFileError(f"{path} is damaged: {name} has numbers of the type {kind}.")
    return np.asarray(file.get_tensor(name))


def _checksum(document: str, tensors: Tensors) -> str:
    """CRC of header and tensors: it finds a file that has decayed, not one that was forged."""
    crc = zlib.crc32(document.encode())
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {tensor.dtype.str} {tensor.shape}".encode(), crc)
        crc = zlib.crc32(tensor.reshape(-1).view(np.uint8).data, crc)
    return f"{crc:08x}"


def _header(path: str | Path, document: str | None, kind: str) -> dict[str, Any]:
    if document is None:
        raise ModelFileError(f"{path} is a safetensors file, but noisewise did not write it.")
    if len(document) > MAX_HEADER_BYTES:
        raise ModelFileError(f"{path} has a header of {len(document):,} bytes; that is not honest.")
    try:
        header = json.loads(document)
        version, found = header["version"], header["kind"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(
            f"{path} is damaged: its header cannot be read ({error!r})."
        ) from error
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} was written by a newer noisewise (format {version}; this one reads up to "
            f"{FORMAT_VERSION}): pip install --upgrade noisewise."
        )
    if found != kind:
        raise ModelFileError(f"{path} holds a {found!r}, not a {kind!r}.")
    return dict(header)


def _pack_texts(texts: list[str], prefix: str) -> Tensors:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {
        f"{prefix}.ids": np.frombuffer(b"".join(encoded), dtype=np.uint8),
        f"{prefix}.id_ends": ends,
    }


def _unpack_texts(path: str | Path, tensors: Tensors, prefix: str, length: int) -> list[str]:
    blob = take(path, tensors, f"{prefix}.ids", "uint8", -1).tobytes()
    ends = take(path, tensors, f"{prefix}.id_ends", "int64", length)
    bounds = np.concatenate([[0], ends])
    if (np.diff(bounds) < 0).any() or bounds[-1] != len(blob):
        raise ModelFileError(f"{path} is damaged: its ids do not match their lengths.")
    pairs = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    return [blob[start:end].decode("utf-8", "surrogatepass") for start, end in pairs]


def _tagged(label: object) -> Any:
    """JSON that remembers the type of an id."""
    if label is None or isinstance(label, bool | str):
        return label
    if isinstance(label, int):
        return {"int": str(label)}
    if isinstance(label, float):
        return {"float": label.hex()}
    if isinstance(label, bytes):
        return {"bytes": label.hex()}
    if isinstance(label, tuple):
        return {"tuple": [_tagged(part) for part in label]}
    for kind in (datetime.datetime, datetime.date, datetime.time):
        if isinstance(label, kind):
            return {kind.__name__: label.isoformat()}
    if isinstance(label, np.datetime64):
        return {"datetime64": str(label)}
    return _refuse(label)


def _refuse(label: object) -> NoReturn:
    raise DataError(
        f"Ids of type {type(label).__name__} cannot be saved, e.g. {label!r}; "
        "use int, str, float, bool, bytes, dates, or tuples of these."
    )


def _untagged(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "tuple":
        return tuple(_untagged(part) for part in content)
    readers: dict[str, Callable[[str], Any]] = {
        "int": int,
        "float": float.fromhex,
        "bytes": bytes.fromhex,
        "date": datetime.date.fromisoformat,
        "datetime": datetime.datetime.fromisoformat,
        "time": datetime.time.fromisoformat,
        "datetime64": np.datetime64,
    }
    return readers[tag](content)


def _objects(values: list[Any]) -> npt.NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
