"""The one loop: epochs, early stopping, checkpoints and resume, progress, callbacks.

A backend gives a ``step``: change the state by one epoch, and report. Everything around it is
written once, here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from noisewise.engine.checkpoints import Carried, Checkpoint, S, Training
from noisewise.engine.sgd.layout import EpochInfo
from noisewise.engine.stopping import CtrlC
from noisewise.errors import DivergedError
from noisewise.showing import progress

Step = Callable[[S], EpochInfo]
Validate = Callable[[S], tuple[float, float]]
Callback = Callable[[EpochInfo, Any], bool | None]


def train(
    state: S,
    step: Step[S],
    *,
    epochs: int,
    validate: Validate[S] | None = None,
    patience: int | None = None,
    monitor: Literal["rmse", "nll"] = "rmse",
    settle: int = 0,
    keep_best: bool = True,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | None = None,
    label: str = "fit",
    unit: str = "epoch",
    verbose: bool | None = None,
    advice: str = "",
) -> Training[S]:
    """Run epochs until there are enough, or until validation no longer improves.

    Parameters
    ----------
    state
        Where to start; it is changed.
    step
        One epoch of a backend.
    epochs
        How many at most.
    validate
        RMSE and NLL of a state on held-out data. Without it nothing is stopped early.
    patience
        Epochs without an improvement of ``monitor`` after which to stop; None never stops.
    settle
        Epochs of a warm-up: always run, and not counted by ``patience``.
    keep_best
        Keep a copy of the state that validates best. Without it the last state counts: a sampler
        has no best one.
    callbacks
        Called after each epoch; one that returns True stops the training. A KeyboardInterrupt of
        theirs counts as Ctrl-C, which ends training after the epoch in which it was pressed.
    checkpoint
        If its file exists, training goes on from there, with the same bits as if never stopped.
    label, unit, advice
        Name and unit on the progress bar; what to try when the numbers blow up.
    verbose
        Whether to show the bar: True always, False never; None on a terminal and in a notebook.
    """
    training = Training(state)
    if checkpoint is not None and checkpoint.path.exists():
        watched = validate is not None
        best = (lambda curve: _best(curve, monitor).epoch) if watched and keep_best else None
        training = checkpoint.resumed(state, epochs, watched, best)
    written = time.monotonic()
    bar = progress(
        total=epochs, initial=training.state.epoch, desc=label, unit=unit, verbose=verbose,
        delay=0.5, leave=False, dynamic_ncols=True,
    )  # fmt: skip
    words = f"Stopping after this {unit}; press Ctrl-C again to stop at once."
    with bar, CtrlC(words) as ctrl_c:
        while not (ctrl_c.pressed or _finished(training, epochs, patience, monitor, settle)):
            started = time.perf_counter()
            info = _stepped(step, training.state, advice)
            _check_finite(info, training.state, advice)
            if validate is not None:
                rmse, nll = validate(training.state)
                info = replace(info, validation_rmse=rmse, validation_nll=nll)
            info = replace(info, seconds=time.perf_counter() - started)
            training.curve.append(info)
            if validate is not None and keep_best and _best(training.curve, monitor) == info:
                training.best = training.state.copy()
            bar.set_postfix_str(_summary(info), refresh=False)
            bar.update()
            try:
                for callback in callbacks:
                    training.stopped |= bool(callback(info, training.state))
            except KeyboardInterrupt:
                ctrl_c.pressed = True
            if checkpoint is not None and _is_due(checkpoint, info.epoch, written):
                checkpoint.keep(training)
                written = time.monotonic()
    training.interrupted = ctrl_c.pressed
    if training.interrupted and not training.curve:
        raise KeyboardInterrupt(f"Training was interrupted before its first {unit}.")
    if checkpoint is not None:
        checkpoint.keep(training)
    return training


def _finished(
    training: Training[S], epochs: int, patience: int | None, monitor: str, settle: int
) -> bool:
    done = training.state.epoch
    if training.stopped or done >= epochs:
        return True
    if patience is None or training.best is None:
        return False
    return done - max(_best(training.curve, monitor).epoch, settle) >= patience


def _best(curve: list[EpochInfo], monitor: str) -> EpochInfo:
    return min(curve, key=lambda info: getattr(info, f"validation_{monitor}"))


def _stepped(step: Step[S], state: S, advice: str) -> EpochInfo:
    try:
        return step(state)
    except ValueError as error:
        if not isinstance(error, np.linalg.LinAlgError) and state.is_finite():
            raise
        raise DivergedError(f"The numbers blew up after epoch {state.epoch}. {advice}") from error


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


def _is_due(checkpoint: Checkpoint, epoch: int, written: float) -> bool:
    by_epochs = checkpoint.epochs is not None and epoch % checkpoint.epochs == 0
    waited = time.monotonic() - written
    return by_epochs or (checkpoint.minutes is not None and waited >= 60 * checkpoint.minutes)
