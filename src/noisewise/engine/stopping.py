"""Ctrl-C while a model is trained: the epoch is finished first, so that what was learned is whole.

A second Ctrl-C waits for nothing: it is the KeyboardInterrupt that it always was.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import Any, Self


class CtrlC:
    """Take note of Ctrl-C instead of breaking off, for a while.

    Only in the main thread, where Ctrl-C arrives, and only where nobody else has a handler for it;
    elsewhere nothing is changed. In the end, and after the first Ctrl-C, Python's own handler is
    back.

    Parameters
    ----------
    words : str
        What to say on stderr when it is pressed.

    Attributes
    ----------
    pressed : bool
        Whether it was.
    """

    def __init__(self, words: str) -> None:
        self.words = words
        self.pressed = False

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
