"""Tensors written to a safetensors file one after the other, so that not all need be in memory."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

KINDS = {  # what safetensors calls the types of numpy
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "float16": "F16",
    "uint32": "U32", "int32": "I32", "float32": "F32", "uint64": "U64", "int64": "I64",
    "float64": "F64",
}  # fmt: skip
BLOCK = 2**22  # numbers, or bytes, that are looked at together


def in_blocks(tensor: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Return parts of a tensor, of which little memory is taken at a time.

    Examples
    --------
    >>> [len(block) for block in in_blocks(np.zeros((5, 2**20)))]
    [4194304, 1048576]
    """
    flat = tensor.reshape(-1)
    for start in range(0, len(flat), BLOCK):
        yield flat[start : start + BLOCK]


def about(name: str, tensor: Any) -> bytes:
    """Return what a checksum counts of a tensor beside its numbers."""
    return f"{name} {tensor.dtype.str} {tensor.shape}".encode()


def write_tensors(file: BinaryIO, document: str, tensors: Mapping[str, Any]) -> None:
    """Write tensors, and a document with the checksum of both, to a file that can be read, too.

    A tensor that has ``pieces()`` is never here as a whole. The checksum is known once all is
    written; then it gets its place.
    """
    found = {name: _plain(tensor) for name, tensor in tensors.items()}
    order = sorted(found, key=lambda name: (-found[name].dtype.itemsize, name))  # none is split
    metadata, entries, end = {"noisewise": document, "checksum": "0" * 8}, {}, 0
    for name in order:
        dtype, shape = found[name].dtype, found[name].shape
        start, end = end, end + dtype.itemsize * math.prod(shape)
        entries[name] = {"dtype": KINDS[dtype.name], "shape": shape, "data_offsets": (start, end)}

    def head() -> bytes:
        text = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    first = file.write(head())
    for name in order:
        for piece in _pieces(found[name]):
            file.write(
                np.ascontiguousarray(piece, found[name].dtype).reshape(-1).view(np.uint8).data
            )
        if file.tell() != first + entries[name]["data_offsets"][1]:
            raise ValueError(f"The pieces of {name} do not have the shape {found[name].shape}.")
    metadata["checksum"] = _checksum(file, document, first, found, entries)
    file.seek(0)
    file.write(head())


def _plain(tensor: Any) -> Any:
    """Return an array as files have it: in one piece, the lowest byte of a number first."""
    if hasattr(tensor, "pieces"):
        return tensor
    array = np.asarray(tensor)
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def _pieces(tensor: Any) -> Iterable[npt.NDArray[Any]]:
    found: Iterable[npt.NDArray[Any]] = tensor.pieces() if hasattr(tensor, "pieces") else [tensor]
    return found


def _checksum(
    file: BinaryIO,
    document: str,
    first: int,
    tensors: Mapping[str, Any],
    entries: Mapping[str, Any],
) -> str:
    """Return the CRC of the document and of tensors, by their names, as they are in the file."""
    crc = zlib.crc32(document.encode())
    for name in sorted(tensors):
        crc = zlib.crc32(about(name, tensors[name]), crc)
        start, end = entries[name]["data_offsets"]
        file.seek(first + start)
        for at in range(start, end, BLOCK):
            crc = zlib.crc32(file.read(min(end - at, BLOCK)), crc)
    return f"{crc:08x}"
