"""Targets: a checkpoint of every kind of training, from which a small fit goes on."""

from __future__ import annotations

import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any

from noisewise_reproduction.rivals.autorec import AutoRec
from noisewise_reproduction.rivals.drmf import TrimmedFactorizer
from noisewise_reproduction.rivals.llorma import LLORMA
from noisewise_reproduction.rivals.rbm import RBM
from noisewise_reproduction.rivals.rbmf import RobustBayesianFactorizer
from noisewise_reproduction.rivals.rcf import HuberFactorizer
from noisewise_reproduction.rivals.tucker import TuckerFactorizer
from sklearn.base import clone

from fuzz import small
from fuzz.forging import forged, taken_apart
from fuzz.harness import Target
from fuzz.using import cells_of, finite
from noisewise import (
    BayesianFactorizer,
    DeviationFactorizer,
    TemporalFactorizer,
    observe,
)

SUFFIX = ".kept"
REFIT = ".refit"
KEPT = 3  # epochs in a checkpoint
OFTEN = {"checkpoint_epochs": 1, "checkpoint_minutes": None}
SHARED: dict[str, Any] = {"random_state": 0, "n_jobs": 1}
FEW: dict[str, Any] = SHARED | {"rank": 2, "epochs": 5, "patience": 3, "refit": False}
SWEEPS: dict[str, Any] = SHARED | {"rank": 2, "sweeps": 6, "burn_in": 1, "samples": 3}
NETWORK: dict[str, Any] = SHARED | {
    "hidden": 2, "epochs": 5, "patience": 3, "refit": False, "device": "cpu",
}  # fmt: skip


class Killed(Exception):
    """What stands for the end of a process."""


def targets() -> list[Target]:
    """Make a target for every kind of checkpoint."""
    ratings, readings = small.ratings(), small.readings()
    stars, timed = observe(ratings), small.timed(ratings)
    plans: dict[str, tuple[Any, Any]] = {
        "deviation": (DeviationFactorizer(deviation_rank=1, warmup=1, **FEW), ratings),
        "deviation-tensor": (DeviationFactorizer(deviation_rank=1, **FEW), readings),
        "huber": (HuberFactorizer(**FEW), ratings),
        "trimmed": (TrimmedFactorizer(round_epochs=1, **FEW), ratings),
        "robust-bayes": (RobustBayesianFactorizer(**FEW), ratings),
        "llorma": (LLORMA(models=3, global_rank=2, **FEW), ratings),
        "tucker": (TuckerFactorizer(**FEW), readings),
        "autorec": (AutoRec(**NETWORK), ratings),
        "autorec-lbfgs": (AutoRec(optimizer="lbfgs", **NETWORK), ratings),
        "rbm": (RBM(batch=4, **NETWORK), ratings),
        "bayes": (BayesianFactorizer(**SWEEPS), ratings),
        "bayes-ordinal": (BayesianFactorizer(likelihood="ordinal", **SWEEPS), ratings),
        "bayes-time": (BayesianFactorizer(time=2, **SWEEPS), timed),
        "temporal": (TemporalFactorizer(**SWEEPS), readings),
        "temporal-heavy": (TemporalFactorizer(tails="heavy", **SWEEPS), readings),
    }
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        made = [_target(key, model, rows, {}, folder) for key, (model, rows) in plans.items()]
        watched = {"validation": stars.take(slice(5))}
        model = BayesianFactorizer(**SWEEPS)
        made.append(_target("bayes-watched", model, stars.take(slice(5, None)), watched, folder))
        model = DeviationFactorizer(deviation_rank=1, **FEW | {"refit": True})
        made.append(_refit_target("deviation-refit", model, ratings, folder))
        return made


def _target(name: str, model: Any, data: Any, more: dict[str, Any], folder: Path) -> Target:
    path = folder / f"{name}{SUFFIX}"
    _stop(clone(model), data, {"checkpoint": path, **more}, KEPT)
    return _made(name, path, SUFFIX, partial(go_on, model, data, more), folder)


def _refit_target(name: str, model: Any, data: Any, folder: Path) -> Target:
    """Make a target for the second stage of a training, with the first beside it."""
    path = folder / f"{name}{SUFFIX}"

    _stop(clone(model), data, {"checkpoint": path}, 1, in_refit=True)
    run = partial(go_on_refitting, model, data, path.read_bytes())
    return _made(name, path.with_name(f"{path.name}{REFIT}"), REFIT, run, folder)


def _made(name: str, path: Path, suffix: str, run: Any, folder: Path) -> Target:
    valid = [path.read_bytes()]
    parts = [taken_apart(valid[0], folder)]
    return Target(f"checkpoint-{name}", partial(forged, valid, parts), suffix, run, valid)


def _stop(model: Any, data: Any, more: dict[str, Any], epochs: int, in_refit: bool = False) -> None:
    """Train, and be killed when so many epochs, or epochs of a refit, were kept."""

    def kill(info: Any, state: Any) -> None:
        refitting = info.validation_rmse is None
        if info.epoch > epochs and (refitting or not in_refit):
            raise Killed

    try:
        model.fit(data, callbacks=[kill], **OFTEN, **more)
    except Killed:
        return
    raise AssertionError(f"{model} was not killed")


def go_on(model: Any, data: Any, more: dict[str, Any], path: Path) -> None:
    """Go on from a checkpoint, and use what comes of it."""
    model = clone(model).fit(data, checkpoint=path, **OFTEN, **more)
    finite(*model.predict(cells_of(model), return_std=True))


def go_on_refitting(model: Any, data: Any, first: bytes, path: Path) -> None:
    """Go on from a checkpoint of the second stage."""
    path.with_suffix("").write_bytes(first)
    go_on(model, data, {}, path.with_suffix(""))
