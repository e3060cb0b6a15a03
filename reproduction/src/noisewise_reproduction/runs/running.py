"""Cells one after the other or in several processes, with a bar; what is finished is skipped."""

from __future__ import annotations

import io
import signal
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr
from multiprocessing import active_children, get_context
from typing import Any

from noisewise.engine.threads import one_blas_thread
from noisewise.errors import MissingExtraError, SettingError
from noisewise.evaluation.records import where_and_when
from noisewise.progress import progress
from noisewise_reproduction.runs.run import Cell, Store

ALL_CORES = -1


def run(cells: Sequence[Cell], store: Store, *, jobs: int = 1) -> dict[str, str]:
    """Measure the cells that a store lacks, and keep each as soon as it is finished.

    Parameters
    ----------
    cells : sequence of Cell
        What to measure; a cell that is there twice is measured once.
    store : Store
        Where finished cells are.
    jobs : int
        Processes. With one, a model uses all cores; with more, each uses one. Cells that must be
        alone come last, one at a time. Numbers do not depend on it, but for times.

    Ctrl-C ends the run: the cell in work is not kept, those that are finished are.

    Returns
    -------
    dict
        Names of cells that could not be measured for want of an optional library, and why.
    """
    if jobs < 1:
        raise SettingError(f"jobs must be 1 or more; got {jobs}.")
    every = {cell.name: cell for cell in cells}
    missing = [cell for cell in every.values() if not store.has(cell)]
    alone = [cell for cell in missing if cell.alone]
    others = [cell for cell in missing if not cell.alone]
    if jobs == 1:
        alone, others = others + alone, []
    bar = progress(
        total=len(every), initial=len(every) - len(missing), desc="reproduce", unit="cell",
        smoothing=0.0, dynamic_ncols=True,
    )  # fmt: skip
    left_out: dict[str, str] = {}
    with bar:
        for cell, why in _finished(others, alone, store, jobs):
            bar.set_postfix_str(cell.name.rsplit("--", 1)[0], refresh=False)
            bar.update()
            if why is not None:
                left_out[cell.name] = why
    return left_out


def _finished(
    others: list[Cell], alone: list[Cell], store: Store, jobs: int
) -> Iterator[tuple[Cell, str | None]]:
    """Give cells as they get done, each with why it could not be measured."""
    if others:
        strangers = active_children()
        # A new interpreter: one that was copied while it had threads may hang.
        fresh = get_context("spawn")
        with ProcessPoolExecutor(min(jobs, len(others)), fresh, initializer=_leave_ctrl_c) as pool:
            waiting = {pool.submit(_work, cell, store, 1): cell for cell in others}
            try:
                for done in as_completed(waiting):
                    yield waiting[done], done.result()
            except BaseException:
                for process in active_children():
                    if process not in strangers:
                        process.terminate()  # cells are written wholly or not at all
                pool.shutdown(cancel_futures=True)
                raise
    for cell in alone:
        yield cell, _work(cell, store, ALL_CORES)


def _leave_ctrl_c() -> None:
    """Leave Ctrl-C, which the terminal sends to all processes, to the one that started them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(cell: Cell, store: Store, n_jobs: int) -> str | None:
    """Measure and keep a cell; return why it cannot be, if a library is missing."""
    try:
        store.keep(cell, measured(cell, n_jobs))
    except MissingExtraError as error:
        return str(error)
    return None


def measured(cell: Cell, n_jobs: int) -> dict[str, Any]:
    """Measure a cell: its numbers, what it warned of, where and when it ran.

    BLAS gets one thread, as the order of its sums would depend on more. Bars of single models are
    not shown: the one over cells is.
    """
    with (
        one_blas_thread(),
        warnings.catch_warnings(record=True) as heard,
        redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("always")
        numbers = cell.measure(n_jobs)
    said = sorted({str(warning.message) for warning in heard})
    return {"numbers": numbers, "warnings": said, "n_jobs": n_jobs, **where_and_when()}
