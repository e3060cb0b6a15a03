"""Runs one after the other or in several processes, with a bar; what is finished is skipped."""

from __future__ import annotations

import io
import signal
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr
from multiprocessing import active_children, get_context
from typing import Any

from noisewise.engine.training import one_blas_thread
from noisewise.errors import MissingExtraError, SettingError, progress
from noisewise.evaluation.records import where_and_when
from noisewise_reproduction.runs.run import Run, Store

ALL_CORES = -1


def measure_all(runs: Sequence[Run], store: Store, *, jobs: int = 1) -> dict[str, str]:
    """Measure the runs that a store lacks, and keep each as soon as it is finished.

    Parameters
    ----------
    runs : sequence of Run
        What to measure; a run that is there twice is measured once.
    store : Store
        Where finished runs are.
    jobs : int
        Processes. With one, a model uses all cores; with more, each uses one. Runs that must be
        alone come last, one at a time. Numbers do not depend on it, but for times.

    Ctrl-C ends them: the run in work is not kept, those that are finished are.

    Returns
    -------
    dict
        Names of runs that could not be measured for want of an optional library, and why.
    """
    if jobs < 1:
        raise SettingError(f"jobs must be 1 or more; got {jobs}.")
    every = {run.name: run for run in runs}
    missing = [run for run in every.values() if not store.has(run)]
    alone = [run for run in missing if run.alone]
    others = [run for run in missing if not run.alone]
    if jobs == 1:
        alone, others = others + alone, []
    bar = progress(
        total=len(every), initial=len(every) - len(missing), desc="reproduce", unit="run",
        smoothing=0.0, dynamic_ncols=True,
    )  # fmt: skip
    left_out: dict[str, str] = {}
    with bar:
        for run, why in _finished(others, alone, store, jobs):
            bar.set_postfix_str(run.name.rsplit("--", 1)[0], refresh=False)
            bar.update()
            if why is not None:
                left_out[run.name] = why
    return left_out


def _finished(
    others: list[Run], alone: list[Run], store: Store, jobs: int
) -> Iterator[tuple[Run, str | None]]:
    """Give runs as they get done, each with why it could not be measured."""
    if others:
        strangers = active_children()
        # A new interpreter: one that was copied while it had threads may hang.
        fresh = get_context("spawn")
        with ProcessPoolExecutor(min(jobs, len(others)), fresh, initializer=_leave_ctrl_c) as pool:
            waiting = {pool.submit(_work, run, store, 1): run for run in others}
            try:
                for done in as_completed(waiting):
                    yield waiting[done], done.result()
            except BaseException:
                for process in active_children():
                    if process not in strangers:
                        process.terminate()  # runs are written wholly or not at all
                pool.shutdown(cancel_futures=True)
                raise
    for run in alone:
        yield run, _work(run, store, ALL_CORES)


def _leave_ctrl_c() -> None:
    """Leave Ctrl-C, which the terminal sends to all processes, to the one that started them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(run: Run, store: Store, n_jobs: int) -> str | None:
    """Measure and keep a run; return why it cannot be, if a library is missing."""
    try:
        store.keep(run, measured(run, n_jobs))
    except MissingExtraError as error:
        return str(error)
    return None


def measured(run: Run, n_jobs: int) -> dict[str, Any]:
    """Measure a run: its numbers, what it warned of, where and when it ran.

    BLAS gets one thread, as the order of its sums would depend on more. Bars of single models are
    not shown: the one over runs is.
    """
    with (
        one_blas_thread(),
        warnings.catch_warnings(record=True) as heard,
        redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("always")
        numbers = run.measure(n_jobs)
    said = sorted({str(warning.message) for warning in heard})
    return {"numbers": numbers, "warnings": said, "n_jobs": n_jobs, **where_and_when()}
