"""How the C library keeps memory that is free: large pieces go back to the system at once.

Otherwise what a worker has used to load a version of the model would stay with it. It is asked of
the GNU C library; others are left as they are.
"""

from __future__ import annotations

import ctypes
import platform

LARGE = 2**22  # bytes from which on a piece is a mapping of its own, and goes back when freed
KEPT = 2**23  # bytes that each thread keeps for its next answer; the system is slow to give them
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as malloc.h calls them
_IS_GNU = platform.libc_ver()[0] == "glibc"


def give_large_pieces_back() -> None:
    """Have large pieces of memory go back to the system when they are freed, from now on."""
    if _IS_GNU:
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, LARGE)
        library.mallopt(_TRIM_THRESHOLD, KEPT)


def give_all_back() -> None:
    """Give back to the system what is free by now."""
    if _IS_GNU:
        ctypes.CDLL(None).malloc_trim(0)
