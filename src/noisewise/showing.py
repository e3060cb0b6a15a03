"""What people see: text that a terminal cannot misread, objects in a line, progress bars."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from tqdm.auto import tqdm

always: bool | None = None  # what the command line was told of bars: True, False, or nothing

# Control characters, with them the start of every escape code; surrogates, which cannot be
# printed; separators of lines; and what turns the direction of text.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_LONGEST = 60  # of a single entry in the line of an object, or of a name in a message
_SHOWN = 20  # names in a message


def printable(text: object, *, keep: str = "") -> str:
    r"""Return text with all that a terminal would obey, and not show, escaped as Python does.

    Ids and names of columns come from files of others: on a terminal they must not move the
    cursor, change what was printed before, or read in another order than they are stored in.

    Parameters
    ----------
    text : object
        What to show.
    keep : str
        Characters to leave as they are: line ends, where the text is one of several lines.

    Examples
    --------
    >>> print(printable("\x1b[2Jann\u202e"))
    \x1b[2Jann\u202e
    """

    def escaped(found: re.Match[str]) -> str:
        character = found.group()
        return character if character in keep else ascii(character)[1:-1]

    return _UNSAFE.sub(escaped, str(text))


def listed(names: Sequence[object]) -> str:
    """Return names for a message: the first ones, cut where they are long, and how many more.

    Examples
    --------
    >>> listed(["user", "item"])
    'user, item'
    >>> listed(range(1_000_000))[-23:]
    '18, 19 and 999,980 more'
    """
    shown = ", ".join(shortened(name) for name in names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def shortened(name: object) -> str:
    """Return the beginning of a name that is too long for a message.

    Examples
    --------
    >>> shortened("user"), len(shortened("u" * 1_000_000))
    ('user', 63)
    """
    text = str(name)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def brief(thing: Any) -> str:
    """Return an object of fields in a line: of arrays, their shape and type.

    To be used as the ``__repr__`` of a dataclass or a named tuple.

    Examples
    --------
    >>> from noisewise.recommend import Seen
    >>> Seen(np.array([0, 1, 3]), np.array([4, 2, 7], dtype=np.int32))
    Seen(starts=<3 int64>, columns=<3 int32>)
    """
    names = [field.name for field in fields(thing)] if is_dataclass(thing) else thing._fields
    entries = ", ".join(f"{name}={_entry(getattr(thing, name))}" for name in names)
    return f"{type(thing).__name__}({entries})"


def progress(
    iterable: Iterable[Any] | None = None,
    *,
    verbose: bool | None = None,
    desc: str = "",
    **options: Any,
) -> Any:
    """Return a progress bar of tqdm, around an iterable or to be updated.

    Parameters
    ----------
    verbose : bool or None
        True always shows it, False never does; None shows it on a terminal and in a notebook,
        unless ``--no-progress`` or ``TQDM_DISABLE`` says otherwise.
    desc : str
        Stands before the bar.
    **options
        As for ``tqdm``.
    """
    shown = is_shown(verbose)
    if shown is not None:
        options["disable"] = not shown
    if shown:
        options["delay"] = 0.0
    return tqdm(iterable, desc=printable(desc), **options)


def is_shown(verbose: bool | None = None) -> bool | None:
    """Tell whether a bar is shown: always, never, or (None) as tqdm's own settings have it."""
    chosen = always if verbose is None else verbose
    if chosen is None and not (_is_terminal() or _is_notebook()):
        return False
    return chosen


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _is_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


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
