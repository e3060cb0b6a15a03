"""The contract of every model: fit, predict with a std, an interval, save and load.

A model says how it learns (``fit``) and what it knows of cells (``cells``); all that people ask of
it afterwards is written once, here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from noisewise import registry, storage
from noisewise.calibration import Calibration, normal_half_width
from noisewise.data import Ids, Observations, observe, warn_of_unknown
from noisewise.data.tables import has_names
from noisewise.engine.arrays import Floats, Moments
from noisewise.errors import DivergedError, ModelFileError, warn
from noisewise.filed_ids import pack_ids, unpack_ids
from noisewise.models.changing import at_one_moment, in_one_step
from noisewise.settings import (
    VERBOSE,
    check,
    either,
    learned,
    number,
    one_of,
    random_seed,
    setting,
    settings,
    span,
    threads,
)

Array = npt.NDArray[Any]

LARGEST_SCALE = 1e18  # of a calibration, whose square float32 can hold
OF_THE_MACHINE = ("verbose",)  # settings that no file keeps or decides


class Cells(NamedTuple):
    """What a model knows of cells, before clipping and calibration.

    ``unseen`` tells which of them have an id that was never trained on.
    """

    moments: Moments
    unseen: npt.NDArray[np.bool_]


@settings
class Threads:
    """Base class of models that use several threads."""

    n_jobs: int | None = setting(
        threads(), "Threads; -1 uses all cores. They change no bit.", default=-1
    )

    def _threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))


@settings
class Seeded(Threads):
    """Base class of models that draw random numbers, and take so long that a bar is shown."""

    random_state: int | np.random.RandomState | None = setting(
        random_seed(),
        "The same int gives the same bits, whatever the number of threads.",
        default=None,
    )
    verbose: bool | None = setting(
        VERBOSE,
        "Show a progress bar: True always, False never; None on a terminal and in a notebook.",
        default=None,
    )


@settings
class Factorizer(RegressorMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base class of models that predict a value for a cell named by one id per mode."""

    _std_is_honest: ClassVar[bool] = False  # without held-out data to learn its scale from

    value_range: Literal["auto"] | tuple[float, float] | None = setting(
        either(span(), "auto", None),
        "Clip predictions to the range of the training values, not at all, or to this range.",
        default="auto",
    )
    unknown: Literal["default"] | float = setting(
        either(number(), "default"),
        "What to predict for a cell with an id never seen: what is known of the rest, or a "
        "constant.",
        default="default",
    )
    duplicates: Literal["error", "last", "mean"] = setting(
        one_of("error", "last", "mean"),
        "What to do about a cell that is given more than once.",
        default="error",
    )

    ids_: tuple[Ids, ...] = learned("The ids of each mode, in the order of the rows.")
    value_range_: tuple[float, float] | None = learned("Predictions are clipped to it.")
    calibration_: Calibration | None = learned(
        "What held-out errors said of the std; None when nothing was held out."
    )
    n_features_in_: int = learned("The number of id columns.")
    feature_names_in_: npt.NDArray[Any] = learned(
        "Their names, if the model was fitted to a frame."
    )

    @abstractmethod
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a table of ids and a value for each row."""

    @abstractmethod
    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""

    @abstractmethod
    def _pack(self) -> tuple[dict[str, Any], storage.Tensors]:
        """Return what ``save`` must keep beside ids, settings and calibration."""

    @abstractmethod
    def _unpack(self, path: str | Path, header: dict[str, Any], tensors: storage.Tensors) -> None:
        """Undo ``_pack``, trusting nothing; settings and ids were checked."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the value of cells.

        Parameters
        ----------
        X : table of ids
            One id column per mode. The columns of a frame are found by their names, in any order,
            and others are left out. Ids never seen get what is known of the others and a wider std.
        return_std : bool
            Also return the standard deviation of each value around its prediction.

        Returns
        -------
        mean : ndarray
        std : ndarray, if asked for
            Noise and epistemic uncertainty together, calibrated on held-out data if there was some.
        """
        mean, noise, epistemic = self.moments(X)
        return (mean, np.sqrt(noise + epistemic)) if return_std else mean

    def predict_parts(self, X: Any) -> tuple[Floats, Floats, Floats]:
        """Predict, and tell noise from epistemic uncertainty.

        Returns
        -------
        mean, noise_std, epistemic_std : ndarray
            More data shrinks the epistemic part; the noise stays.
        """
        mean, noise, epistemic = self.moments(X)
        return mean, np.sqrt(noise), np.sqrt(epistemic)

    @at_one_moment
    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """Predict an interval that holds the value in ``coverage`` of the cases.

        The half-width is a quantile of held-out errors over their std, times the std of the cell
        (split-conformal); the ends are clipped to the range of values.
        """
        mean, std = self.predict(X, return_std=True)
        return self.interval(mean, std, coverage)

    def interval(self, mean: Floats, std: Floats, coverage: float) -> tuple[Floats, Floats]:
        """Return an interval around each mean that holds the value in ``coverage`` of the cases."""
        if self.calibration_ is None and not self._std_is_honest:
            warn(
                "These intervals are not calibrated, as nothing was held out: call calibrate(X, y) "
                "with values that were not trained on, or fit with patience set.",
            )
        if self.calibration_ is None:
            half = normal_half_width(coverage) * std
        else:
            half = np.float32(self.calibration_.half_width(coverage)) * std
        return self._clipped(mean - half), self._clipped(mean + half)

    @in_one_step
    def calibrate(self, X: Any, y: Any = None) -> Self:
        """Learn from values that were not trained on how far std and interval must reach."""
        check_is_fitted(self)
        held_out = self.observed(X, y)
        self.calibration_ = None
        mean, std = self.predict(held_out, return_std=True)
        self.calibration_ = Calibration.measure(held_out.values - mean, std)
        return self

    @at_one_moment
    def save(self, path: str | Path) -> None:
        """Write the model to one safetensors file, wholly or not at all; nothing in it can run."""
        check_is_fitted(self)
        storage.write(path, "model", *self._filed())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that ``save`` wrote; a broken or foreign file is a ``ModelFileError``."""
        return cls._unfiled(path, *storage.read(path, "model"))

    def _filed(self) -> tuple[dict[str, Any], storage.Tensors]:
        """Return all that a file of this model holds."""
        header, tensors = self._pack()
        packed = [pack_ids(ids, f"mode{m}") for m, ids in enumerate(self.ids_)]
        for _, id_tensors in packed:
            tensors |= id_tensors
        header |= {
            "model": type(self).__name__,
            "settings": _settings(self),
            "ids": [entry for entry, _ in packed],
            "has_names": hasattr(self, "feature_names_in_"),
            "value_range": self.value_range_,
            "calibration": None,
        }
        if self.calibration_ is not None:
            header["calibration"] = {"scale": self.calibration_.scale, "n": self.calibration_.n}
            tensors["calibration.scores"] = self.calibration_.scores
        return header, tensors

    @classmethod
    def _unfiled(cls, path: str | Path, header: dict[str, Any], tensors: storage.Tensors) -> Self:
        """Undo ``_filed``, trusting nothing."""
        if header.get("model") != cls.__name__:
            raise ModelFileError(f"{path} holds a {header.get('model')}, not a {cls.__name__}.")
        try:
            model: Self = _made(path, cls, header["settings"])
            model.ids_ = tuple(
                unpack_ids(path, entry, tensors, f"mode{m}")
                for m, entry in enumerate(header["ids"])
            )
            if len(model.ids_) < 2:
                raise ModelFileError(
                    f"{path} is damaged: it must have 2 modes, but has {len(model.ids_)}."
                )
            if header.get("has_names") is True:
                model._name_columns()
            model.value_range_ = _value_range(path, header["value_range"])
            model.calibration_ = _calibration(path, header["calibration"], tensors)
            model._unpack(path, header, tensors)
        except ModelFileError:
            raise
        except storage.BROKEN as error:
            raise storage.damaged(path, error) from error
        return model

    @at_one_moment
    def moments(self, X: Any) -> Moments:
        """Return mean, variance of the noise and epistemic variance of cells.

        Parameters
        ----------
        X : table of ids
            As for ``predict``, which follows from the moments.

        Returns
        -------
        Moments
            Named arrays ``mean``, ``noise`` and ``epistemic``.
        """
        check_is_fitted(self)
        cells = self.cells(X)
        warn_of_unknown(X, self.ids_, cells.unseen, but=self._unbounded())
        return self.finished(cells)

    def finished(self, cells: Cells) -> Moments:
        """Return moments as the settings and the calibration have them."""
        mean, noise, epistemic = cells.moments
        if self.unknown != "default":
            mean = np.where(cells.unseen, mean.dtype.type(self.unknown), mean)
        return self._calibrated(Moments(mean, noise, epistemic))

    def _calibrated(self, moments: Moments) -> Moments:
        """Return moments clipped and scaled; a model whose numbers are beyond use is refused."""
        square = np.float32(self.std_scale_**2)
        mean, variances = self._clipped(moments.mean), (moments.noise, moments.epistemic)
        noise, epistemic = (square * part for part in variances)
        sound = all((part >= 0.0).all() for part in variances)
        if not (sound and all(np.isfinite(part).all() for part in (mean, noise, epistemic))):
            raise DivergedError(
                "The predictions of this model are not finite numbers: it was trained on values "
                "that are too large or too small to compute with, or its file was tampered with."
            )
        return Moments(mean, noise, epistemic)

    def _unbounded(self) -> tuple[int, ...]:
        """Modes in which an id never seen is normal: times."""
        return ()

    def observed(self, X: Any, y: Any) -> Observations:
        """Observe values for a model that is fitted: columns are found by the names of its ids."""
        return observe(X, y, duplicates="last", ids=self.ids_)

    def _remember(self, observations: Observations) -> None:
        """Keep of the observations what is of use later: for most models, nothing."""

    def _note_columns(self, X: Any) -> None:
        """Remember the columns that the model was fitted to, as scikit-learn does."""
        self.n_features_in_ = len(self.ids_)
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if has_names(X):
            self._name_columns()

    def _name_columns(self) -> None:
        self.feature_names_in_ = np.array([ids.name for ids in self.ids_], dtype=object)

    @property
    def std_scale_(self) -> float:
        """Factor on every std, learned on held-out data."""
        return 1.0 if self.calibration_ is None else self.calibration_.scale

    def _clipped(self, mean: Floats) -> Floats:
        if self.value_range_ is None:
            return mean
        low, high = self.value_range_
        return np.clip(mean, mean.dtype.type(low), mean.dtype.type(high))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.target_tags.required = True
        return tags


def _calibration(path: str | Path, entry: Any, tensors: storage.Tensors) -> Calibration | None:
    if entry is None:
        return None
    scores = storage.take(path, tensors, "calibration.scores", "float64", storage.ANY)
    scale, n = float(entry["scale"]), storage.take_whole(path, entry, "n")
    in_order = len(scores) > 0 and scores[0] >= 0 and storage.rises(scores)
    if not (in_order and 0 < scale < LARGEST_SCALE and len(scores) <= n):
        raise ModelFileError(f"{path} is damaged: its calibration makes no sense.")
    return Calibration(scale, scores, n)


def _value_range(path: str | Path, entry: Any) -> tuple[float, float] | None:
    if entry is None:
        return None
    low, high = (float(end) for end in entry)
    if not low <= high:
        raise ModelFileError(f"{path} is damaged: its range of values is {storage.shown(entry)}.")
    return low, high


def model_class(path: str | Path, name: Any) -> Any:
    """Return the class that a file names, if noisewise or an installed package declares it."""
    kind = registry.class_named(name)
    if isinstance(kind, type) and issubclass(kind, Factorizer):
        return kind
    raise ModelFileError(
        f"{path} holds a model that no installed package has: {storage.shown(name)}."
    )


def _settings(model: Factorizer) -> dict[str, Any]:
    """Return settings as a file has them: where and how a fit runs is not among them."""
    params = model.get_params(deep=False)
    return {name: _plain(params[name]) for name in params if name not in OF_THE_MACHINE}


def _plain(value: Any) -> Any:
    """Return a setting as JSON has it; of a model within a model, its class and settings."""
    if isinstance(value, Factorizer):
        return {"model": type(value).__name__, "settings": _settings(value)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return None if isinstance(value, np.random.RandomState | np.random.Generator) else str(value)


def _made(path: str | Path, kind: Any, settings: dict[str, Any]) -> Any:
    """Return a model with the settings of a file, which obey the same rules as those of a user."""
    given = {name: _setting(path, v) for name, v in settings.items() if name not in OF_THE_MACHINE}
    model = kind(**given)
    check(model)
    return model


def _setting(path: str | Path, value: Any) -> Any:
    """Undo ``_plain``."""
    if isinstance(value, list):
        return tuple(_setting(path, part) for part in value)
    if isinstance(value, dict):
        return _made(path, model_class(path, value["model"]), value["settings"])
    return value
