"""The one loop: epochs, early stopping, checkpoints and resume, progress, callbacks.

A backend gives a ``step``: change the state by one epoch, and report. Everything around it is
written once, here.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

import numpy as np

from noisewise.engine.state import EpochInfo
from noisewise.errors import DivergedError, ModelFileError
from noisewise.showing import progress
from noisewise.storage import Tensors, read, write


class Carried(Protocol):
    """What a backend carries from epoch to epoch, and a checkpoint keeps."""

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""

    def copy(self) -> Self:
        """Return a state of its own, to be kept while training goes on."""

    def is_finite(self) -> bool:
        """Whether every number is finite."""

    def pack(self) -> tuple[dict[str, Any], Tensors]:
        """Header and tensors of a checkpoint."""

    def restored(self, path: Path, header: dict[str, Any], tensors: Tensors) -> Self:
        """Return a state like this one with what ``pack`` gave; the file is not trusted."""


S = TypeVar("S", bound=Carried)
Step = Callable[[S], EpochInfo]
Validate = Callable[[S], tuple[float, float]]
Callback = Callable[[EpochInfo, Any], bool | None]

PACKAGE = "noisewise."


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often to keep the state of a training that may be killed.

    Attributes
    ----------
    path
        File to write, wholly or not at all.
    fingerprint
        Identifies data and settings: a checkpoint of others is refused.
    epochs, minutes
        Write after so many epochs, or after so many minutes, whichever comes first.
    """

    path: Path
    fingerprint: str
    epochs: int | None = 1
    minutes: float | None = None


@dataclass
class Training(Generic[S]):
    """What a training has come to: the last state, the best one, and the curve up to here."""

    state: S
    curve: list[EpochInfo] = field(default_factory=list)
    best: S | None = None
    stopped: bool = False  # by a callback
    interrupted: bool = False

    @property
    def chosen(self) -> S:
        """The best state where one was looked for, else the last."""
        return self.state if self.best is None else self.best


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
        Called after each epoch; one that returns True stops the training.
    checkpoint
        If its file exists, training goes on from there, with the same bits as if never stopped.
    label, unit, advice
        Name and unit on the progress bar; what to try when the numbers blow up.
    verbose
        Whether to show the bar: True always, False never; None on a terminal and in a notebook.
    """
    training = Training(state)
    if checkpoint is not None and checkpoint.path.exists():
        training = _resumed(checkpoint, state)
    written = time.monotonic()
    bar = progress(
        total=epochs, initial=training.state.epoch, desc=label, unit=unit, verbose=verbose,
        delay=0.5, leave=False, dynamic_ncols=True,
    )  # fmt: skip
    with bar:
        try:
            while not _finished(training, epochs, patience, monitor, settle):
                started = time.perf_counter()
                info = step(training.state)
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
                for callback in callbacks:
                    training.stopped |= bool(callback(info, training.state))
                if checkpoint is not None and _is_due(checkpoint, info.epoch, written):
                    _keep(checkpoint, training)
                    written = time.monotonic()
        except KeyboardInterrupt:
            if not training.curve:
                raise
            training.interrupted = True
            warnings.warn(
                f"Training was interrupted after {unit} {training.curve[-1].epoch}; "
                "the best model so far is kept.",
                stacklevel=_levels_up(),
            )
    if checkpoint is not None and not training.interrupted:
        _keep(checkpoint, training)
    return training


def _levels_up() -> int:
    """How many levels above the loop the first line outside of this package is, to warn of."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


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


def _keep(checkpoint: Checkpoint, training: Training[S]) -> None:
    tensors: Tensors = {}
    header: dict[str, Any] = {
        "fingerprint": checkpoint.fingerprint,
        "curve": [asdict(info) for info in training.curve],
        "stopped": training.stopped,
    }
    for name, state in (("state", training.state), ("best", training.best)):
        if state is not None:
            header[name], packed = state.pack()
            tensors |= {f"{name}.{key}": tensor for key, tensor in packed.items()}
    write(checkpoint.path, "checkpoint", header, tensors)


def _resumed(checkpoint: Checkpoint, state: S) -> Training[S]:
    header, tensors = read(checkpoint.path, "checkpoint")
    if header.get("fingerprint") != checkpoint.fingerprint:
        raise ModelFileError(
            f"The checkpoint {checkpoint.path} belongs to other data or other settings; "
            "delete it, or name another file."
        )

    def restored(name: str) -> S:
        start = f"{name}."
        own = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
        return state.restored(checkpoint.path, header[name], own)

    try:
        curve = [EpochInfo(**info) for info in header["curve"]]
        best = restored("best") if "best" in header else None
        return Training(restored("state"), curve, best, bool(header["stopped"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"The checkpoint {checkpoint.path} is damaged ({error!r}).") from error
