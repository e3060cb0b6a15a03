"""Memory that processes of one machine share: a file that has no name once all have opened it."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

import numpy as np

from noisewise.engine.arrays import Floats

FAST = Path("/dev/shm")  # a folder in memory; elsewhere the usual one for temporary files


def offer(n: int, width: int) -> str | None:
    """Make room for so many rows of floats; return where, or None if there is none."""
    size, reserve = max(1, n * width * 4), getattr(os, "posix_fallocate", None)
    if reserve is None:
        return None
    handle, path = tempfile.mkstemp(prefix="noisewise-", dir=FAST if FAST.is_dir() else None)
    try:
        # Else a folder that is full would end the process when it writes.
        reserve(handle, 0, size)
    except OSError:
        Path(path).unlink()
        return None
    finally:
        os.close(handle)
    return path


def opened(path: str, n: int, width: int) -> Floats:
    """Return the rows that are there; they stay as long as somebody has them."""
    with Path(path).open("r+b") as file:
        room = mmap.mmap(file.fileno(), max(1, n * width * 4))
    return np.frombuffer(room, dtype=np.float32, count=n * width).reshape(n, width)
