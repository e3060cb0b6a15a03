"""Exceptions that noisewise raises on purpose, warnings, text that is safe to show, progress bars.

.. code-block:: text

    NoisewiseError
    ├── DataError (ValueError)         the table, array or file that was given cannot be used
    ├── SettingError (ValueError)      a parameter of a model or a function is out of range
    ├── ModelFileError (ValueError)    a saved model or checkpoint is broken, foreign or too new
    ├── DivergedError (ArithmeticError)  training produced numbers that are not finite
    ├── MissingExtraError (ImportError)  an optional library is needed; the message has the pip line
    └── PluginError (ImportError)      an installed package that adds to noisewise is broken

    DataWarning (UserWarning)          the data can be used, but hardly for what it seems meant for
    └── UnknownIdsWarning              next to none of the ids that were asked for was trained on
    FitInterrupted (KeyboardInterrupt)   Ctrl-C ended a fit, and the model keeps what it had learned

An interrupt is no error: it passes ``except Exception``, and ends whatever loop the fit was in.
"""

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np

PACKAGES = ("noisewise.", "noisewise_")  # this one, and those that add to it
COARSE = 1e-4  # of the std: what may be lost in rounding
SMALLEST, LARGEST = 1e-15, 1e15  # stds whose squares, and parts of these, single precision can hold

show_progress: bool | None = None  # what the command line was told: True, False, or nothing

# Control characters, with them the start of every escape code; surrogates, which cannot be
# printed; separators of lines; and what turns the direction of text.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_LONGEST = 60  # of a single entry in the line of an object, or of a name in a message
_SHOWN = 20  # names in a message

_unsaid: ContextVar[tuple[str, ...]] = ContextVar("unsaid", default=())
_heard: ContextVar[list[str] | None] = ContextVar("heard", default=None)


class NoisewiseError(Exception):
    """Anything noisewise raises on purpose; its message is shown as text that is safe to print.

    Examples
    --------
    >>> import noisewise
    >>> try:
    ...     noisewise.observe([("ann", "Alien", float("nan"))])
    ... except noisewise.NoisewiseError as error:
    ...     print(type(error).__name__)
    DataError
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class DataError(NoisewiseError, ValueError):
    """The table, array or file that was given cannot be used as it is.

    Examples
    --------
    >>> import noisewise
    >>> noisewise.observe([("ann", "Alien", float("nan"))])
    Traceback (most recent call last):
    ...
    noisewise.errors.DataError: ...
    """


class SettingError(NoisewiseError, ValueError):
    """A parameter of a model or a function is not what it must be.

    Examples
    --------
    >>> import noisewise
    >>> noisewise.DeviationFactorizer(rank=-1).fit([("ann", "Alien", 5)])
    Traceback (most recent call last):
    ...
    noisewise.errors.SettingError: rank must be ...
    """


class ModelFileError(NoisewiseError, ValueError):
    """A saved model or checkpoint cannot be read: broken, foreign, or newer than this version.

    Examples
    --------
    >>> import noisewise
    >>> noisewise.load(__file__)
    Traceback (most recent call last):
    ...
    noisewise.errors.ModelFileError: ...
    """


class DivergedError(NoisewiseError, ArithmeticError):
    """Training produced numbers that are not finite.

    Examples
    --------
    >>> issubclass(DivergedError, ArithmeticError)
    True
    """


class MissingExtraError(NoisewiseError, ImportError):
    """An optional library is needed for what was asked.

    Examples
    --------
    >>> print(MissingExtraError("The command line", "cli"))
    The command line needs an optional library: pip install 'noisewise[cli]'.
    """

    def __init__(self, purpose: str, extra: str, package: str = "noisewise") -> None:
        super().__init__(f"{purpose} needs an optional library: pip install '{package}[{extra}]'.")


class PluginError(NoisewiseError, ImportError):
    """An installed package that adds to noisewise is broken.

    Examples
    --------
    >>> print(PluginError("mine", "mine.models:MODELS", AttributeError("no MODELS")))
    The package mine adds to noisewise, but mine.models:MODELS cannot be used: ...
    """

    def __init__(self, package: str, place: str, error: Exception) -> None:
        super().__init__(
            f"The package {package} adds to noisewise, but {place} cannot be used: "
            f"{type(error).__name__}: {error}. Update or remove it."
        )


class DataWarning(UserWarning):
    """What was given can be used, but hardly for what it seems to be meant for."""


class UnknownIdsWarning(DataWarning):
    """Next to none of the ids that were asked for was trained on."""


class FitInterrupted(KeyboardInterrupt):
    """Ctrl-C has ended a fit that had something to keep; the message says what it is worth.

    ``model`` is the one that was fitted, with what it had learned. A ``KeyboardInterrupt`` that is
    none of these has left the model as it was before the fit.

    Examples
    --------
    >>> try:
    ...     raise FitInterrupted("after epoch 12 of 100")  # as Ctrl-C makes a fit do
    ... except KeyboardInterrupt as stopped:
    ...     print(stopped)
    after epoch 12 of 100
    """

    def __init__(self, message: str, model: Any = None) -> None:
        super().__init__(message)
        self.model = model


@contextmanager
def unsaid(beginning: str) -> Iterator[None]:
    """Give no warning of this package that begins so, for a while, in this thread alone."""
    # Filters of Python's warnings belong to the process: fits in threads would leave them changed.
    before = _unsaid.set((*_unsaid.get(), beginning))
    try:
        yield
    finally:
        _unsaid.reset(before)


@contextmanager
def heard() -> Iterator[list[str]]:
    """Collect warnings of this package for a while, in this thread alone, and give none.

    Examples
    --------
    >>> with heard() as told:
    ...     warn("Few ratings.")
    >>> told
    ['Few ratings.']
    """
    told: list[str] = []
    before = _heard.set(told)
    try:
        yield told
    finally:
        _heard.reset(before)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of something at the line outside of this package that led to it."""
    if message.startswith(_unsaid.get()):
        return
    told = _heard.get()
    if told is not None:
        told.append(printable(message))
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(PACKAGES):
        frame, level = frame.f_back, level + 1
    warnings.warn(printable(message), category, stacklevel=level)


def too_coarse(largest: float, std: float) -> bool:
    """Tell whether single precision is too coarse for values of this size and spread."""
    step = float(np.finfo(np.float32).eps) * largest
    return step > COARSE * std or not SMALLEST <= std <= LARGEST


def printable(text: object, *, keep: str = "") -> str:
    """Return text with all that a terminal would obey, and not show, escaped as Python does.

    Ids and names of columns come from files of others, and must not move the cursor or turn the
    direction of text. Characters to ``keep`` are left as they are.
    """
    return _UNSAFE.sub(lambda c: c[0] if c[0] in keep else ascii(c[0])[1:-1], str(text))


def listed(names: Sequence[object]) -> str:
    """Return names for a message: the first ones, cut where they are long, and how many more."""
    shown = ", ".join(shortened(name) for name in names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def shortened(name: object) -> str:
    """Return a name, or the beginning of one that is too long for a message."""
    text = str(name)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def brief(thing: Any) -> str:
    """Show a dataclass or named tuple in a line, as its ``__repr__``: of arrays, shape and type."""
    names = [field.name for field in fields(thing)] if is_dataclass(thing) else thing._fields
    entries = ", ".join(f"{name}={_entry(getattr(thing, name))}" for name in names)
    return f"{type(thing).__name__}({entries})"


def _entry(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<{' x '.join(map(str, value.shape))} {value.dtype}>"
    if isinstance(value, tuple | list) and type(value).__repr__ in (tuple.__repr__, list.__repr__):
        if len(value) > 4:
            return f"<{len(value)} {type(value[0]).__name__}>"
        inside = ", ".join(map(_entry, value))
        return f"({inside})" if isinstance(value, tuple) else f"[{inside}]"
    text = printable(repr(value))
    return text if len(text) <= _LONGEST else f"<{type(value).__name__}>"


def progress(
    iterable: Iterable[Any] | None = None,
    *,
    verbose: bool | None = None,
    desc: str = "",
    **options: Any,
) -> Any:
    """Return a progress bar of tqdm, around an iterable or to be updated.

    With ``verbose`` it is always shown, or never; None shows it on a terminal and in a notebook,
    unless ``--no-progress`` or ``TQDM_DISABLE`` says otherwise. ``options`` are those of tqdm.
    """
    from tqdm.auto import tqdm  # which takes a while to import

    shown = is_shown(verbose)
    if shown is not None:
        options["disable"] = not shown
    if shown:
        options["delay"] = 0.0
    bar = tqdm(iterable, desc=printable(desc), **options)
    bar.unit = options.get("unit", "it")  # which a bar that is not shown would forget
    return bar


def training_bar(desc: str, *, unit: str = "epoch", **options: Any) -> Callable[..., Any]:
    """Return what the training loop makes its progress bar with."""
    looks: dict[str, Any] = {"delay": 0.5, "leave": False, "dynamic_ncols": True}
    return partial(progress, desc=desc, unit=unit, **looks, **options)


def is_shown(verbose: bool | None = None) -> bool | None:
    """Tell whether a bar is shown: always, never, or (None) as tqdm's own settings have it."""
    chosen = show_progress if verbose is None else verbose
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    is_notebook = hasattr(shell, "kernel")
    return False if chosen is None and not (is_terminal or is_notebook) else chosen
