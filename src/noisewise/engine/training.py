"""The one loop: epochs, early stopping, checkpoints and resume, progress, Ctrl-C; and threads.

A backend gives a ``step``: change the state by one epoch, and report. Everything around it is
written once, here. It trains on values that are centred and divided by their std, in single
precision; where that is too coarse for the values themselves, they come and go in double.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import threadpoolctl

from noisewise.engine.arrays import Arrays, Floats, Source, Values
from noisewise.errors import DivergedError, too_coarse, training_bar

TASKS = 64  # that rows are dealt into: many enough for threads to end together
CHUNK = 65_536  # observations in a task of loops over all of them
MOST_POWER = 60  # of two: single precision holds such a variance, and its inverse

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


def dealt(order: Values) -> list[Values]:
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

    The number belongs to the whole process: the first to come sets it, the last sets it back.
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
    """Look for the BLAS libraries, which takes milliseconds."""
    # Compiled loops call that of scipy: loaded later, it would keep its threads, and sum otherwise.
    importlib.import_module("scipy.linalg.cython_blas")
    return threadpoolctl.ThreadpoolController()


class CtrlC:
    """Take note of Ctrl-C instead of breaking off, for a while, so that what is learned is whole.

    Only in the main thread, and only where nobody else has a handler for it. In the end, and after
    the first Ctrl-C, Python's own handler is back. ``words`` are said on stderr when it is pressed.
    """

    words: str
    pressed: bool

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


@dataclass(frozen=True)
class EpochInfo:
    """What one epoch reports: squared error and likelihood over what it trained on."""

    epoch: int
    train_rmse: float
    train_nll: float
    validation_rmse: float | None = None
    validation_nll: float | None = None
    seconds: float = 0.0


NAMES = tuple(field.name for field in fields(EpochInfo))


def columns(curve: Sequence[EpochInfo]) -> dict[str, list[Any]]:
    """Return what epochs reported as columns, by name."""
    return {name: [getattr(info, name) for info in curve] for name in NAMES}


class Carried(Protocol):
    """What a backend carries from epoch to epoch, and a checkpoint keeps."""

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""

    def copy(self) -> Self:
        """Return a state of its own, to be kept while training goes on."""

    def is_finite(self) -> bool:
        """Whether every number is finite."""

    def pack(self) -> tuple[dict[str, Any], Arrays]:
        """Header and arrays of a checkpoint."""

    def restored(self, source: Source) -> Self:
        """Return a state like this one with what ``pack`` gave."""


S = TypeVar("S", bound=Carried)
Step = Callable[[S], EpochInfo]
Validate = Callable[[S], tuple[float, float]]
Callback = Callable[[EpochInfo, Any], bool | None]
BestEpoch = Callable[[list[EpochInfo]], int]
NO_BAR = training_bar("train", verbose=False)


@dataclass
class Training(Generic[S]):
    """What a training has come to: the last state, the best one, and the curve up to here."""

    state: S
    curve: list[EpochInfo] = field(default_factory=list)
    best: S | None = None
    stopped: bool = False  # by a callback
    interrupted: bool = False  # by Ctrl-C, after an epoch that was finished

    @property
    def chosen(self) -> S:
        """The best state where one was looked for, else the last."""
        return self.state if self.best is None else self.best


class Checkpointing(Protocol):
    """Where a training is kept, so that it can be taken up where it was stopped."""

    def resumed(
        self, state: S, epochs: int, watched: bool, best: BestEpoch | None
    ) -> Training[S] | None:
        """Return what a training of at most so many epochs had come to; None if none was kept.

        ``watched``: whether held-out data were looked at; ``best`` finds the epoch that is kept.
        """

    def is_due(self, epoch: int, waited: float) -> bool:
        """Whether to keep the state after this epoch, so many seconds after the last one."""

    def keep(self, training: Training[Any]) -> None:
        """Keep what a training has come to."""


def train(
    state: S,
    step: Step[S],
    *,
    epochs: int,
    validate: Validate[S] | None = None,
    patience: int | None = None,
    monitor: Literal["rmse", "nll"] = "rmse",
    warmup: int = 0,
    keep_best: bool = True,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpointing | None = None,
    bar: Callable[..., Any] = NO_BAR,
    advice: str = "",
) -> Training[S]:
    """Run epochs of a state, which is changed, until validation no longer improves.

    ``validate`` gives RMSE and NLL on held-out data; without it all epochs are run. With it,
    training stops after ``patience`` epochs without a better ``monitor``, of which those of the
    warm-up do not count, and the best state is kept, but for samplers, which have none. A callback
    that returns True stops the training; its KeyboardInterrupt counts as Ctrl-C, which ends
    training after the epoch in which it was pressed. A training that the checkpoint has kept goes
    on, with the same bits as if never stopped. The advice is what to try when numbers blow up.
    """
    training, watch_best = Training(state), validate is not None and keep_best
    if checkpoint is not None:
        best = (lambda curve: _best(curve, monitor).epoch) if watch_best else None
        training = checkpoint.resumed(state, epochs, validate is not None, best) or training
    shown, written = bar(total=epochs, initial=training.state.epoch), time.monotonic()
    words = f"Stopping after this {shown.unit}; press Ctrl-C again to stop at once."
    with shown, CtrlC(words) as ctrl_c:
        while not (ctrl_c.pressed or _finished(training, epochs, patience, monitor, warmup)):
            info = _epoch(training, step, validate, advice)
            if watch_best and _best(training.curve, monitor) == info:
                training.best = training.state.copy()
            shown.set_postfix_str(_summary(info), refresh=False)
            shown.update()
            try:
                for callback in callbacks:
                    training.stopped |= bool(callback(info, training.state))
            except KeyboardInterrupt:
                ctrl_c.pressed = True
            waited = time.monotonic() - written
            if checkpoint is not None and checkpoint.is_due(info.epoch, waited):
                checkpoint.keep(training)
                written = time.monotonic()
    training.interrupted = ctrl_c.pressed
    if training.interrupted and not training.curve:
        raise KeyboardInterrupt(f"Training was interrupted before its first {shown.unit}.")
    if checkpoint is not None:
        checkpoint.keep(training)
    return training


def _epoch(
    training: Training[S], step: Step[S], validate: Validate[S] | None, advice: str
) -> EpochInfo:
    """Run an epoch, and add what it reports to the curve."""
    state, started = training.state, time.perf_counter()
    try:
        info = step(state)
    except ValueError as error:
        if not isinstance(error, np.linalg.LinAlgError) and state.is_finite():
            raise
        raise DivergedError(f"The numbers blew up after epoch {state.epoch}. {advice}") from error
    _check_finite(info, state, advice)
    if validate is not None:
        rmse, nll = validate(state)
        info = replace(info, validation_rmse=rmse, validation_nll=nll)
    info = replace(info, seconds=time.perf_counter() - started)
    training.curve.append(info)
    return info


def _finished(
    training: Training[S], epochs: int, patience: int | None, monitor: str, warmup: int
) -> bool:
    done = training.state.epoch
    if training.stopped or done >= epochs:
        return True
    if patience is None or training.best is None:
        return False
    return done - max(_best(training.curve, monitor).epoch, warmup) >= patience


def _best(curve: list[EpochInfo], monitor: str) -> EpochInfo:
    return min(curve, key=lambda info: getattr(info, f"validation_{monitor}"))


def _check_finite(info: EpochInfo, state: Carried, advice: str) -> None:
    if not (np.isfinite(info.train_rmse) and np.isfinite(info.train_nll) and state.is_finite()):
        raise DivergedError(
            f"The numbers blew up in epoch {info.epoch} (training error {info.train_rmse}). "
            f"{advice}"
        )


def _summary(info: EpochInfo) -> str:
    if info.validation_rmse is None:
        return f"rmse {info.train_rmse:.4f}, nll {info.train_nll:.4f}"
    return (
        f"rmse {info.train_rmse:.4f}, held-out {info.validation_rmse:.4f}, "
        f"nll {info.validation_nll:.4f}"
    )


def usual_weight(weight: npt.NDArray[np.floating]) -> float:
    """Return the largest power of two that is not above the median of weights.

    Noise is learned in units in which weights are about 1, so that all weights may be large, as the
    inverses of small variances are, or small. Powers of two change no bit of what is divided.

    Examples
    --------
    >>> usual_weight(np.array([1.0, 1.0, 3.0])), usual_weight(np.array([400.0, 900.0]))
    (1.0, 512.0)
    """
    power = math.frexp(float(np.median(weight)))[1] - 1
    return 2.0 ** min(max(power, -MOST_POWER), MOST_POWER)


def standardised(values: Values, location: float, scale: float) -> Floats:
    """Return values centred and scaled, in single precision, from the precision that they have."""
    if values.dtype == np.float64:
        return ((values - location) / scale).astype(np.float32)
    return (values - np.float32(location)) / np.float32(scale)


def mean_in_units(mean: Values, location: float, scale: float) -> Values:
    """Undo `standardised` for predictions; in double precision where single is too coarse."""
    if too_coarse(abs(location), scale):
        return location + scale * mean.astype(np.float64)
    return np.float32(location) + np.float32(scale) * mean


def variance_in_units(variance: Values, location: float, scale: float) -> Values:
    """Return variances in units of the values, in the precision of `mean_in_units`."""
    if too_coarse(abs(location), scale):
        return scale**2 * variance.astype(np.float64)
    return np.float32(scale**2) * variance
