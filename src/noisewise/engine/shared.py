"""Memory that processes of one machine share: a file without a name, gone when nobody has it."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

from noisewise.engine.arrays import Floats


def offered(n: int, width: int) -> int | None:
    """Make room for so many rows of floats; return its handle, or None where there is no such."""
    if not hasattr(os, "memfd_create"):  # only Linux has
        return None
    handle: int = os.memfd_create("noisewise")
    os.ftruncate(handle, max(1, n * width * 4))
    return handle


def path_of(handle: int) -> str:
    """Return where other processes of this machine find it, as long as it is open."""
    return f"/proc/{os.getpid()}/fd/{handle}"


def opened(path: str, n: int, width: int) -> Floats:
    """Return the rows that are there; they stay as long as somebody has them."""
    with Path(path).open("r+b") as file:
        room = mmap.mmap(file.fileno(), max(1, n * width * 4))
    return np.frombuffer(room, dtype=np.float32, count=n * width).reshape(n, width)
