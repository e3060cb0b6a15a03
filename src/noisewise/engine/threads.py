"""Tasks for threads, and one thread for linear algebra on small matrices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import threadpoolctl

TASKS = 64  # that rows are dealt into: many enough for threads to end together
CHUNK = 65_536  # observations in a task of loops over all of them

_lock = threading.Lock()
_inside = 0  # how many are limiting it now, in all threads
_limit: Any = None  # what the first of them found, for the last of them to restore


def in_threads(work: Callable[[Any], None], tasks: Any, n_jobs: int) -> None:
    """Call ``work`` with every task."""
    if n_jobs == 1:
        for task in tasks:
            work(task)
        return
    with ThreadPoolExecutor(n_jobs) as pool:
        for _ in pool.map(work, tasks):
            pass


def dealt(order: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Deal rows, the heaviest first, into tasks of about equal work."""
    many = min(TASKS, len(order))
    return [np.ascontiguousarray(order[k::many]) for k in range(many)]


def chunks(n: int) -> list[slice]:
    """Return n observations in chunks of equal size."""
    return [slice(start, start + CHUNK) for start in range(0, n, CHUNK)]


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread for a while: starting more costs more than it saves.

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
