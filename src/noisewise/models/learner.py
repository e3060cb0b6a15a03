"""What models that learn step by step share: settings, what is held out, checkpoints.

A checkpoint is what a training has come to, in a file; the file is not trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from noisewise import schema, storage
from noisewise.data import Ids, Observations, observe, warn_of_types
from noisewise.engine.arrays import Counts
from noisewise.engine.training import NAMES, BestEpoch, Callback, EpochInfo, S, Training, columns
from noisewise.engine.workers import Cluster
from noisewise.errors import DataError, DataWarning, ModelFileError, SettingError, warn
from noisewise.models.base import Factorizer, Seeded, Threads
from noisewise.schema import Entry, Schema, Source
from noisewise.settings import PATH, either, learned, number, settings, whole
from noisewise.splits import random_split
from noisewise.spread import SpreadObservations, here

KIND = "checkpoint"
VERSION = version("noisewise")  # of which a training is, that a checkpoint keeps
NEUTRAL = {"n_jobs", "verbose", "keep_seen"}  # settings that change no bit of what is learned
RULES = {
    "checkpoint": either(PATH, None),
    "checkpoint_epochs": either(whole(1), None),
    "checkpoint_minutes": either(number(above=0.0), None),
}
FEWEST_HELD_OUT = 3  # fewer tell nothing: then all epochs are run, on all data


class Given(NamedTuple):
    """What a fit learns from."""

    X: Any
    y: Any = None
    validation: Observations | None = None
    sample_weight: Any = None
    features: Any = None


class How(NamedTuple):
    """How a fit is watched and kept, and where it runs."""

    callbacks: Sequence[Callback]
    kept: tuple[Any, ...]  # where a checkpoint is, and after how many epochs and minutes
    cluster: str | Cluster | None


@settings
class Learner(Factorizer, Seeded, Threads):
    """Base class of models that learn in the one loop, and can be stopped and taken up again."""

    learning_curve_: dict[str, list[Any]] = learned(
        "Per epoch: epoch, train_rmse, train_nll, validation_rmse, validation_nll, seconds."
    )
    n_epochs_: int = learned("Epochs of the model that is kept.")
    seconds_: float = learned("Time that fit took.")

    def _place(self, cluster: Any) -> Cluster | None:
        """Return where to fit, None if here."""
        return Cluster.wanted(cluster, self)

    @abstractmethod
    def _train(
        self, given: Given, callbacks: Sequence[Callback], wanted: Checkpoint | None
    ) -> None:
        """Fit; what was learned is in place when this returns or raises."""

    def _describe(self, observations: Observations, curve: list[EpochInfo], epochs: int) -> None:
        self.learning_curve_ = columns(curve)
        self.n_epochs_ = epochs
        self._remember(observations)

    def schema(self) -> Schema:
        """Declare what a file keeps: also the record of training."""
        yield from super().schema()
        yield Entry("record.learning_curve", "learning_curve_", schema.record)
        yield Entry("record.epochs", "n_epochs_", schema.integer())
        yield Entry("record.seconds", "seconds_", schema.real())


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often to keep the state of a training that may be killed."""

    path: Path
    fingerprint: str  # of data, settings and version: a checkpoint of others is refused
    epochs: int | None = 1  # write after so many, or after so many minutes
    minutes: float | None = None

    @classmethod
    def wanted(cls, checkpoint: Any, epochs: Any, minutes: Any) -> Checkpoint | None:
        """Return what a user wants, of no training yet; raise for what cannot be meant."""
        for (name, rule), value in zip(RULES.items(), (checkpoint, epochs, minutes), strict=True):
            rule.require(name, value)
        return None if checkpoint is None else cls(Path(checkpoint), "", epochs, minutes)

    def check(self) -> None:
        """Raise, before any work is done, if the file cannot be written or is of others."""
        storage.check_writable(self.path)
        if self.path.exists():
            self._check_own(storage.read_header(self.path, KIND))

    def is_due(self, epoch: int, waited: float) -> bool:
        """Whether to write after this epoch, so many seconds after the last time."""
        by_epochs = self.epochs is not None and epoch % self.epochs == 0
        return by_epochs or (self.minutes is not None and waited >= 60 * self.minutes)

    def keep(self, training: Training[Any]) -> None:
        """Write what a training has come to; if that fails, warn, as it can go on without."""
        header: dict[str, Any] = {
            "fingerprint": self.fingerprint,
            "curve": storage.finite(columns(training.curve)),
            "stopped": training.stopped,
        }
        tensors: storage.Tensors = {}
        for name, state in (("state", training.state), ("best", training.best)):
            if state is not None:
                header[name], packed = state.pack()
                tensors |= {f"{name}.{key}": tensor for key, tensor in packed.items()}
        try:
            storage.write(self.path, KIND, header, tensors)
        except (OSError, ValueError) as error:  # no room, no right, or numbers that no file takes
            warn(
                f"The checkpoint {self.path} could not be written ({error}); "
                "training goes on, but could not be taken up from here if it were stopped."
            )

    def resumed(
        self, state: S, epochs: int, watched: bool, best: BestEpoch | None
    ) -> Training[S] | None:
        """Return what a training had come to; None if there is no file."""
        if not self.path.exists():
            return None
        header, tensors = storage.read(self.path, KIND)
        self._check_own(header)

        def restored(name: str) -> S:
            return state.restored(Source(header[name], tensors, f"{name}."))

        with storage.reading(self.path):
            curve = _curve(header["curve"], watched)
            training = Training(restored("state"), curve, stopped=header["stopped"])
            sound = type(training.stopped) is bool and len(curve) == training.state.epoch <= epochs
            if best is not None and curve:
                training.best = restored("best")
                sound &= training.best.epoch == best(curve)
        if not sound:
            raise ModelFileError(f"{self.path} is damaged: its epochs do not belong together.")
        return training

    def remove(self) -> None:
        """Remove the file, and never one that is not of this training; a link stays."""
        if not self.path.exists():
            return
        try:
            self._check_own(storage.read_header(self.path, KIND))
            Path(os.path.realpath(self.path)).unlink()
        except (ModelFileError, OSError) as error:
            warn(f"The checkpoint {self.path} is of no more use, but was not removed ({error}).")

    def _check_own(self, header: dict[str, Any]) -> None:
        if header.get("fingerprint") != self.fingerprint:
            raise ModelFileError(
                f"The checkpoint {self.path} belongs to other data or other settings, or to "
                "another version of noisewise; delete it, or name another file."
            )


def checkpoints_of(
    model: Any,
    wanted: Checkpoint | None,
    stages: Sequence[str],
    observations: Observations,
    n_kept: int,
    validation: Observations | None = None,
    more: Sequence[npt.NDArray[Any]] = (),
) -> dict[str, Checkpoint]:
    """Return where each stage of a model's training is kept, once checked; empty if it is not."""
    if wanted is None:
        return {}
    if not isinstance(model.random_state, int | np.integer):
        raise SettingError("checkpoint needs random_state to be an int, to go on with it.")
    settings = {k: v for k, v in model.get_params().items() if k not in NEUTRAL}
    about = [VERSION, type(model).__name__, settings, n_kept]
    digest = hashlib.sha256(json.dumps(about, default=str).encode())
    parts = [() if s is None else (*s.codes, s.values, s.time) for s in (observations, validation)]
    worth = [s.weight for s in (observations, validation) if s is not None]
    for arrays in (*parts, more, [one for one in worth if one is not None]):
        for array in arrays:
            digest.update(b"none" if array is None else f"{array.shape}".encode())
            digest.update(b"" if array is None else np.ascontiguousarray(array).data)
    path, kept = wanted.path, {}
    for stage in stages:
        own = path if stage == "fit" else path.with_name(f"{path.name}.{stage}")
        kept[stage] = replace(wanted, path=own, fingerprint=f"{stage} {digest.hexdigest()}")
        kept[stage].check()
    return kept


HELD_OUT = ("validation_rmse", "validation_nll")


def _curve(kept: Any, watched: bool) -> list[EpochInfo]:
    """Return what epochs reported, numbered from 1; what could not be measured is NaN."""
    if kept["epoch"] != list(range(1, len(kept["epoch"]) + 1)):
        raise storage.Damaged("its epochs are not in order")
    in_order = zip(*(kept[name] for name in NAMES), strict=True)
    rows = [dict(zip(NAMES, row, strict=True)) for row in in_order]
    for row in rows:
        for name in NAMES[1:]:
            if name in HELD_OUT and row[name] is None:
                row[name] = float("nan") if watched else None
            else:
                row[name] = Source(row, {}).real(name)
    return [EpochInfo(**row) for row in rows]


def hold_out(
    observations: Observations, validation: Observations | None, fraction: float, seed: int
) -> tuple[Observations, Observations | None]:
    """Return what to train on at first, and what is held out: given, or a random share."""
    if validation is not None:
        validation = observe(validation, ids=observations.ids)
        return with_ids(observations, validation), validation
    if len(observations) * fraction < FEWEST_HELD_OUT:
        return observations, None
    rng = np.random.default_rng([seed, 3])
    kept, held_out = random_split(len(observations), fraction, rng)
    return observations.take(kept), here(observations, held_out)


def warn_of_new_types(known: Sequence[Ids], new: Observations, features: Any = None) -> None:
    """Warn where ids of new observations are all new, and of another type than those known.

    Where there is a single one, or where they come with features, they are meant as they are.
    """
    if features is not None:
        return
    for ids, grown, codes in zip(known, new.ids, new.codes, strict=True):
        if len(grown) > len(ids) + 1 and (codes >= len(ids)).all():
            warn_of_types(ids, grown.labels[len(ids) :].tolist())


def refuse_weight(model: Any, observations: Observations) -> None:
    """Raise for weights, which a model does not take."""
    if observations.weight is not None:
        raise SettingError(
            f"sample_weight must be left out: a {type(model).__name__} takes all values to be "
            "worth the same; BayesianFactorizer and DeviationFactorizer take weights."
        )


def refuse_on_cluster(observations: Observations) -> None:
    """Raise for weights, which workers of a cluster do not have."""
    if observations.weight is not None:
        raise SettingError("sample_weight needs a fit without a cluster; leave one of them out.")


def warn_if_alike(observations: Observations) -> None:
    """Warn of values that are all the same: there is nothing to learn from them."""
    value = observations.values[0]
    if (observations.values != value).any():
        return
    warn(
        f"All {len(observations):,} values are {value:g}, so there is nothing to tell apart, and "
        f"{value:g} is all that will be predicted. noisewise learns from values that differ, such "
        "as ratings, and not from clicks or purchases; docs/limits.md says more.",
        DataWarning,
    )


def with_ids(observations: Observations, other: Observations) -> Observations:
    """Return observations with the longer ids of ``other``."""
    if isinstance(observations, SpreadObservations):
        return observations.with_ids(other.ids)
    return replace(observations, ids=other.ids)


def joined(first: Observations, second: Observations) -> Observations:
    """Return all observations of both, which have the same ids."""
    if isinstance(first, SpreadObservations):
        return first.joined(second)
    codes = tuple(map(np.append, first.codes, second.codes))
    time = None
    if first.time is not None and second.time is not None:
        time = np.append(first.time, second.time)
    weight = None
    if first.weight is not None or second.weight is not None:
        weight = np.append(_weight(first), _weight(second))
    return Observations(codes, np.append(first.values, second.values), second.ids, time, weight)


def _weight(observations: Observations) -> npt.NDArray[np.float32]:
    own = observations.weight
    return np.ones(len(observations), dtype=np.float32) if own is None else own


def range_of(chosen: Any, observations: Observations) -> tuple[float, float] | None:
    """Return the range to clip predictions to, as a user chose it."""
    if chosen is None:
        return None
    if chosen == "auto":
        return float(observations.values.min()), float(observations.values.max())
    return float(chosen[0]), float(chosen[1])


def fixed_seed(random_state: Any) -> int:
    """Return a number that all random streams of a fit start from."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def count_rows(observations: Observations) -> tuple[Counts, ...]:
    """Observations of every id of every mode."""
    if isinstance(observations, SpreadObservations):
        return observations.counts()
    pairs = zip(observations.codes, observations.shape, strict=True)
    return tuple(np.bincount(codes, minlength=n) for codes, n in pairs)


def mean_and_std(values: npt.NDArray[np.floating]) -> tuple[float, float]:
    """Mean and std of values, to standardise them by; a std of 1 where all are alike."""
    alike = values.min() == values.max()
    std = 1.0 if alike else float(values.std(dtype=np.float64))
    if std**2 < np.finfo(np.float64).tiny:
        raise DataError(
            f"Values from {values.min():g} to {values.max():g} are too near to each other to "
            "compute with: multiply them by a large number."
        )
    return float(values.mean(dtype=np.float64)), std


def check_levels(values: npt.NDArray[np.floating]) -> None:
    """Raise for levels that single precision, in which they are kept, cannot tell apart."""
    if values.dtype == np.float64 and values.min() < values.max():
        raise DataError(
            f"Levels from {values.min():.15g} to {values.max():.15g} are too much alike, too small "
            "or too large for single precision: number them 1, 2, 3 and so on."
        )
