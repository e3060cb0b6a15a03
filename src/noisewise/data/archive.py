"""Arrays in an npz file, each checked by what it says of itself before memory is taken for it."""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.data.reader import check_unpacked, most_unpacked
from noisewise.errors import DataError, listed, shortened

_SUFFIX = ".npy"
_HEADER = 2**14  # bytes; numpy itself refuses headers that are longer than 10,000
_PIECE = 2**20  # bytes to unpack at a time
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# What zipfile and numpy raise for broken archives and headers. The latter are Python literals, so
# that brackets without end may exhaust the parser.
_FAULTS = (
    zipfile.BadZipFile, zlib.error, tokenize.TokenError, EOFError, OSError, RuntimeError,
    ValueError, TypeError, SyntaxError, LookupError, OverflowError, AttributeError, MemoryError,
)  # fmt: skip


class Archive:
    """An npz file that is open.

    Attributes
    ----------
    files : list of str
        The names of the arrays.
    """

    def __init__(self, packed: zipfile.ZipFile, most: int) -> None:
        self._packed = packed
        self._members = {info.filename.removesuffix(_SUFFIX): info for info in packed.infolist()}
        self._most, self._taken = most, 0
        self.files = list(self._members)

    def array(self, key: str | int | None) -> NDArray[Any]:
        """Read an array of numbers, text or dates; nothing in it can run."""
        if not isinstance(key, str) or key not in self._members:
            raise DataError(f"There is no array {key!r}; the arrays are {listed(self.files)}.")
        try:
            return self._read(self._members[key])
        except DataError as error:
            raise DataError(f"Array {key!r} cannot be read: {error}") from None
        except _FAULTS as error:
            raise DataError(
                f"Array {key!r} cannot be read; get a new copy. {shortened(error)}"
            ) from error

    def column(self, key: str | int) -> NDArray[Any]:
        """Read an array of one dimension."""
        array = self.array(key)
        if array.ndim != 1:
            raise DataError(f"Array {key!r} must have one dimension; got shape {array.shape}.")
        return array

    def _read(self, info: zipfile.ZipInfo) -> NDArray[Any]:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError("its compression is not one that numpy uses; save it again.")
        with self._packed.open(info) as member:
            head = io.BytesIO(member.read(_HEADER))
            version = np.lib.format.read_magic(head)
            if version not in _HEADERS:
                raise DataError(f"its format {version} is not 1.0 or 2.0, which hold plain arrays.")
            shape, fortran, dtype = _HEADERS[version](head)
            if dtype.hasobject or dtype.kind not in "biufcSUmM":
                raise DataError(f"it must hold numbers, text or dates; got {dtype}.")
            entries = math.prod(shape)
            size = entries * dtype.itemsize
            self._taken += entries * max(dtype.itemsize, 1)
            if min(shape, default=0) < 0 or head.tell() + size != info.file_size:
                raise DataError(f"it has {info.file_size:,} bytes, not those of {shape} {dtype}.")
            check_unpacked(self._taken, self._most)
            content = np.empty(size, dtype=np.uint8)
            filled, piece = 0, head.read()
            while piece:
                content[filled : filled + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
                filled += len(piece)
                piece = member.read(_PIECE)
            if filled < size:
                raise EOFError("it is cut off")
        if not size:
            return np.zeros(shape, dtype)
        return content.view(dtype).reshape(shape, order="F" if fortran else "C")


@contextmanager
def open_npz(path: Path) -> Iterator[Archive]:
    """Open an archive; nothing in it can run."""
    with path.open("rb") as file:
        most = most_unpacked(path)
        try:
            archive = Archive(zipfile.ZipFile(file), most)
        except _FAULTS as error:
            raise DataError(
                f"The npz file is damaged; get a new copy. {shortened(error)}"
            ) from error
        yield archive
