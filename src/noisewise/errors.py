"""The exceptions noisewise raises on purpose, and its warnings.

.. code-block:: text

    NoisewiseError
    ├── DataError (ValueError)         the table, array or file that was given cannot be used
    ├── SettingError (ValueError)      a parameter of a model or a function is out of range
    ├── ModelFileError (ValueError)    a saved model or checkpoint is broken, foreign or too new
    ├── DivergedError (ArithmeticError)  training produced numbers that are not finite
    └── MissingExtraError (ImportError)  an optional library is needed; the message has the pip line

    DataWarning (UserWarning)          the data can be used, but hardly for what it seems meant for
    └── UnknownIdsWarning              next to none of the ids that were asked for was trained on
    FitInterrupted (KeyboardInterrupt)   Ctrl-C ended a fit, and the model keeps what it had learned

Each also inherits from the builtin a caller would expect, so ``except ValueError`` keeps working.
An interrupt is no error: it passes ``except Exception``, and ends whatever loop the fit was in.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from noisewise.showing import printable

PACKAGE = "noisewise."

_unsaid: ContextVar[tuple[str, ...]] = ContextVar("unsaid", default=())


class NoisewiseError(Exception):
    """Anything noisewise raises on purpose.

    A message may have ids and names from a file: it is shown so that a terminal cannot misread it.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class DataError(NoisewiseError, ValueError):
    """The table, array or file that was given cannot be used as it is."""


class SettingError(NoisewiseError, ValueError):
    """A parameter of a model or a function is not what it must be."""


class ModelFileError(NoisewiseError, ValueError):
    """A saved model or checkpoint cannot be read: broken, foreign, or newer than this version."""


class DivergedError(NoisewiseError, ArithmeticError):
    """Training produced numbers that are not finite."""


class MissingExtraError(NoisewiseError, ImportError):
    """An optional library is needed for what was asked."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f"{purpose} needs an optional library: pip install 'noisewise[{extra}]'.")


class DataWarning(UserWarning):
    """What was given can be used, but hardly for what it seems to be meant for."""


class UnknownIdsWarning(DataWarning):
    """Next to none of the ids that were asked for was trained on."""


class FitInterrupted(KeyboardInterrupt):
    """Ctrl-C has ended a fit that had something to keep; the message says what it is worth.

    A ``KeyboardInterrupt`` that is none of these has left the model as it was before the fit.

    Attributes
    ----------
    model : model
        The model that was fitted, with what it had learned.
    """

    def __init__(self, message: str, model: Any = None) -> None:
        super().__init__(message)
        self.model = model


@contextmanager
def unsaid(beginning: str) -> Iterator[None]:
    """Give no warning of this package that begins so, for a while, in this thread alone.

    The filters of Python's warnings belong to the whole process: fits in several threads would
    leave them changed.
    """
    before = _unsaid.set((*_unsaid.get(), beginning))
    try:
        yield
    finally:
        _unsaid.reset(before)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of something at the line outside of this package that led to it."""
    if message.startswith(_unsaid.get()):
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(printable(message), category, stacklevel=level)
