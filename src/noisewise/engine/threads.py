"""One thread for linear algebra on small matrices: starting more costs more than it saves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import threadpoolctl

_lock = threading.Lock()
_inside = 0  # how many are limiting it now, in all threads
_limit: Any = None  # what the first of them found, for the last of them to restore


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread for a while.

    The number of threads belongs to the whole process. So the first to come sets it, and the last
    to leave sets it back, however fits in several threads overlap.
    """
    global _inside, _limit
    with _lock:
        if not _inside:
            _limit = _controller().limit(limits=1, user_api="blas")
            _let_go()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _limit.restore_original_limits()
                _let_go()


def _let_go() -> None:
    """Let any thread set the number next: threadpoolctl 3.8 heeds only the one that set it last."""
    openblas: Any = getattr(threadpoolctl, "OpenBLASController", None)
    if hasattr(openblas, "clear_controlling_thread"):
        openblas.clear_controlling_thread()


@cache
def _controller() -> Any:
    return threadpoolctl.ThreadpoolController()  # looking for the libraries takes milliseconds
