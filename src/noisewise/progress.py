"""Progress bars: shown on a terminal and in a notebook, or as a user or the command line says."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from tqdm.auto import tqdm

from noisewise.errors import printable

always: bool | None = None  # what the command line was told of bars: True, False, or nothing


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


def training_bar(
    desc: str, *, unit: str = "epoch", verbose: bool | None = None
) -> Callable[..., Any]:
    """Return what the training loop makes its progress bar with."""

    def make(total: int, initial: int) -> Any:
        shown = progress(
            total=total, initial=initial, desc=desc, unit=unit, verbose=verbose,
            delay=0.5, leave=False, dynamic_ncols=True,
        )  # fmt: skip
        shown.unit = unit  # which a bar that is not shown would forget
        return shown

    return make


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
