"""Tasks for threads, one thread for linear algebra on small matrices, and Ctrl-C."""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import threadpoolctl

TASKS = 64  # that rows are dealt into: many enough for threads to end together
CHUNK = 65_536  # observations in a task of loops over all of them

Work = Callable[[Any], None]

_lock = threading.Lock()
_inside = 0  # how many are limiting it now, in all threads
_limit: Any = None  # what the first of them found, for the last of them to restore


@contextlib.contextmanager
def pool(n_jobs: int) -> Iterator[Callable[[Work, Iterable[Any]], None]]:
    """Give a function that calls ``work`` with every task and returns when all are done."""
    with ThreadPoolExecutor(n_jobs) if n_jobs > 1 else contextlib.nullcontext() as threads:
        each: Any = map if threads is None else threads.map

        def run(work: Work, tasks: Iterable[Any]) -> None:
            for _ in each(work, tasks):
                pass

        yield run


def in_threads(work: Work, tasks: Iterable[Any], n_jobs: int) -> None:
    """Call ``work`` with every task, in any order."""
    with pool(n_jobs) as run:
        run(work, tasks)


def dealt(order: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Deal rows, the heaviest first, into tasks of about equal work."""
    many = min(TASKS, len(order))
    return [np.ascontiguousarray(order[k::many]) for k in range(many)]


def chunks(n: int, size: int | None = None) -> list[slice]:
    """Return n observations in chunks of equal size."""
    size = size or CHUNK
    return [slice(start, start + size) for start in range(0, n, size)]


@contextlib.contextmanager
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
    """Look for the BLAS libraries, which takes milliseconds.

    Compiled loops call that of scipy, which must be loaded by then: one that came later would keep
    its threads, and sums in another order.
    """
    importlib.import_module("scipy.linalg.cython_blas")
    return threadpoolctl.ThreadpoolController()


class CtrlC:
    """Take note of Ctrl-C instead of breaking off, for a while, so that what is learned is whole.

    A second Ctrl-C waits for nothing: it is the KeyboardInterrupt that it always was.
    Only in the main thread, where Ctrl-C arrives, and only where nobody else has a handler for it;
    elsewhere nothing is changed. In the end, and after the first Ctrl-C, Python's own handler is
    back. ``words`` are said on stderr when it is pressed.
    """

    def __init__(self, words: str) -> None:
        self.words, self.pressed = words, False

    def __enter__(self) -> Self:
        alone = threading.current_thread() is threading.main_thread()
        if alone and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        if signal.getsignal(signal.SIGINT) == self._press:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _press(self, *_: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.pressed = True
        # A terminal that cannot be written to just now is no reason to lose what was learned.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            print(f"\n{self.words}", file=sys.stderr, flush=True)
