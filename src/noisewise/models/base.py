"""The contract of every model: fit, predict with a std, an interval, save and load.

A model says how it learns (``fit``) and what it knows of cells (``cells``). What it has learned are
attributes that belong together: no failed fit may leave half of them behind, and no prediction read
some before and some after another thread has fitted anew. So what changes a model works on a twin,
which shares all arrays, and hands over at the end; what asks a model works on a twin of its own.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from noisewise.calibration import Calibration, level_chances, normal_half_width
from noisewise.data import Ids, Observations, observe, warn_of_unknown
from noisewise.data.tables import has_names
from noisewise.engine.arrays import Floats, Moments
from noisewise.errors import DivergedError, FitInterrupted, warn
from noisewise.models import model_file, shelf
from noisewise.models.levels import smallest_sets, with_sets
from noisewise.schema import Found, Schema
from noisewise.settings import (
    RANDOM_SEED,
    SPAN,
    THREADS,
    either,
    learned,
    number,
    one_of,
    setting,
    settings,
)

NOTHING_KEPT = "Training was interrupted before there was anything to keep: the model is as it was."

M = TypeVar("M")
Method = TypeVar("Method", bound=Callable[..., Any])


def as_it_is(model: M) -> M:
    """Return a twin: another object with the attributes that a model has at this moment."""
    twin = object.__new__(type(model))
    twin.__dict__ = dict(vars(model))  # a copy in one step, whatever other threads do
    return twin


def at_one_moment(method: Method) -> Method:
    """Let a method that asks a model see it as it is when it is called, and no change after."""

    @functools.wraps(method)
    def ask(model: Any, *given: Any, **named: Any) -> Any:
        return method(as_it_is(model), *given, **named)

    return cast(Method, ask)


def in_one_step(method: Method) -> Method:
    """Let a method change a model all at once at its end; if it raises, nothing has changed."""

    @functools.wraps(method)
    def change(model: Any, *given: Any, **named: Any) -> Any:
        twin = as_it_is(model)
        before = dict(vars(twin))
        try:
            method(twin, *given, **named)
        except FitInterrupted as stop:
            if stop.model is not twin:  # but a model inside, of which alone nothing can be made
                raise KeyboardInterrupt(NOTHING_KEPT) from None
            stop.model = model
            _hand_over(model, before, vars(twin))
            raise
        _hand_over(model, before, vars(twin))
        return model

    return cast(Method, change)


def _hand_over(model: Any, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Give a model what its twin has changed; all else is left as it is by now."""
    now = dict(vars(model))
    stays = {name: value for name, value in now.items() if name in after or name not in before}
    changed = {name: v for name, v in after.items() if name not in before or before[name] is not v}
    model.__dict__ = stays | changed  # one step: nobody sees a half of it


class Cells(NamedTuple):
    """What a model knows of cells, before clipping and calibration."""

    moments: Moments
    unseen: npt.NDArray[np.bool_]  # which of them have an id that was never trained on


@settings
class Threads:
    """Base class of models that use several threads."""

    n_jobs: int | None = setting(
        THREADS, "Threads; -1 uses all cores. They change no bit.", default=-1
    )

    def _threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))


@settings
class Seeded:
    """Base class of models that draw random numbers, and take so long that a bar is shown."""

    random_state: int | np.random.RandomState | None = setting(
        RANDOM_SEED,
        "The same int gives the same bits, whatever the number of threads.",
        default=None,
    )
    verbose: bool | None = setting(
        one_of(True, False, None),
        "Show a progress bar: True always, False never; None on a terminal and in a notebook.",
        default=None,
    )


@settings
class Factorizer(RegressorMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base class of models that predict a value for a cell named by one id per mode."""

    _std_is_honest: ClassVar[bool] = False  # without held-out data to learn its scale from

    value_range: Literal["auto"] | tuple[float, float] | None = setting(
        either(SPAN, "auto", None),
        "Clip predictions to the range of the training values, not at all, or to this range.",
        default="auto",
    )
    unknown: Literal["default"] | float = setting(
        either(number(), "default"),
        "What to predict for a cell with an id never seen, or a time that is none: what is known "
        "of the rest, or a constant.",
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

    def schema(self) -> Schema:
        """Declare what a file keeps of this model beside ids, settings and calibration."""
        yield from ()

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has; plain attributes are in place."""

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
        """Predict, and tell noise from epistemic uncertainty: mean, noise_std, epistemic_std.

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

    @at_one_moment
    def predict_set(self, X: Any, coverage: float = 0.9) -> npt.NDArray[np.bool_]:
        """Predict the smallest set of levels that holds the value in ``coverage`` of the cases.

        It is for values that are levels, such as stars: at most 50 different ones. There is a row
        per cell and a column for each of ``levels_``, True where the set has it. Sets have the
        likeliest levels, and as many as it took on held-out data.

        Examples
        --------
        >>> from noisewise import DeviationFactorizer
        >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Brazil", 1)]
        >>> model = DeviationFactorizer(rank=1, patience=None, random_state=0).fit(ratings)
        >>> model.levels_
        array([1., 4., 5.])
        >>> model.predict_set([("bob", "Alien")], coverage=0.99).tolist()
        [[True, True, True]]
        """
        check_is_fitted(self)
        levels = self._levels()
        chances = self._level_chances(X) if len(levels) else np.empty((0, 0))
        return smallest_sets(levels, chances, self.calibration_, coverage)

    def _levels(self) -> npt.NDArray[np.float64]:
        return getattr(self, "levels_", np.empty(0))

    def _level_chances(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the chance of every level of cells."""
        return level_chances(self._levels(), *self.predict(X, return_std=True))

    def strangers(self, X: Any) -> npt.NDArray[np.int64] | None:
        """Return how many ids of each cell were never seen; None where intervals are the same."""
        return None

    def interval(
        self, mean: Floats, std: Floats, coverage: float, strangers: Any = None
    ) -> tuple[Floats, Floats]:
        """Return an interval around each mean that holds the value in ``coverage`` of the cases.

        ``strangers`` are as ``strangers(X)`` returns them; without them all ids are taken as known.
        """
        if self.calibration_ is not None:
            reach = self.calibration_.half_width(coverage, mean, std, strangers)
            half = np.float32(reach) * std
        else:
            if not self._std_is_honest:
                warn(
                    "These intervals are not calibrated, as nothing was held out: call "
                    "calibrate(X, y) with values that were not trained on, or fit with patience "
                    "set."
                )
            half = normal_half_width(coverage) * std
        return self._clipped(mean - half), self._clipped(mean + half)

    @in_one_step
    def calibrate(self, X: Any, y: Any = None) -> Self:
        """Learn from values that were not trained on how far std and interval must reach."""
        check_is_fitted(self)
        held_out = self.observed(X, y)
        self.calibration_ = None
        mean, std = self.expected(held_out)
        shaped = mean if self._has_shape() and len(self.ids_) == 2 else None
        found = Calibration.measure(held_out.values - mean, std, shaped)
        self.calibration_ = found
        if shaped is not None and len(self._levels()):
            chances = self._level_chances(held_out)
            self.calibration_ = with_sets(found, self._levels(), chances, held_out.values)
        return self

    @at_one_moment
    def save(self, path: str | Path) -> None:
        """Write the model to one safetensors file, wholly or not at all; nothing in it can run.

        To the folder with the shards of a model, it writes what these lack.
        """
        check_is_fitted(self)
        shelf.write_model(path, self)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that ``save`` wrote; a broken or foreign file is a ``ModelFileError``."""
        model: Self = model_file.unpack(path, *shelf.read_model(path), cls)
        return model

    @at_one_moment
    def moments(self, X: Any) -> Moments:
        """Return mean, variance of the noise and epistemic variance of cells, as named arrays."""
        check_is_fitted(self)
        cells = self.cells(X)
        warn_of_unknown(X, self.ids_, cells.unseen, but=self._unbounded())
        return self.finished(cells)

    def expected(self, observations: Observations) -> tuple[Floats, Floats]:
        """Return mean and std of values that have weights, which ``predict`` takes to be 1."""
        mean, noise, epistemic = self.moments(observations)
        weight = 1.0 if observations.weight is None else observations.weight
        return mean, np.sqrt(noise / weight + epistemic)

    def finished(self, cells: Cells) -> Moments:
        """Return moments as the settings and the calibration have them."""
        mean, noise, epistemic = cells.moments
        if self.unknown != "default":
            mean = np.where(cells.unseen, mean.dtype.type(self.unknown), mean)
        return self._calibrated(Moments(mean, noise, epistemic))

    def _calibrated(self, moments: Moments) -> Moments:
        """Return moments clipped and scaled; a model whose numbers are beyond use is refused."""
        mean, variances = self._clipped(moments.mean), (moments.noise, moments.epistemic)
        square = np.float32(1.0)
        if self.calibration_ is not None:
            with np.errstate(invalid="ignore", over="ignore"):
                square = np.float32(self.calibration_.factor(mean, np.sqrt(sum(variances))))
        noise, epistemic = (square * part for part in variances)
        sound = all((part >= 0.0).all() for part in variances)
        with np.errstate(over="ignore"):
            total = noise + epistemic
        if not (sound and np.isfinite(mean).all() and np.isfinite(total).all()):
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

    def _has_shape(self) -> bool:
        """Whether held-out data also tell how the std follows the predicted mean."""
        return False

    def _note_levels(self, values: Floats) -> None:
        """Remember the levels that values have: for most models, nothing."""

    def _remember(self, observations: Observations) -> None:
        """Keep of the observations what is of use later: for most models, nothing."""

    def _note_columns(self, X: Any) -> None:
        """Remember the columns that the model was fitted to, as scikit-learn does."""
        self.n_features_in_ = len(self.ids_)
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if has_names(X):
            self.name_columns()

    def name_columns(self) -> None:
        """Remember that the columns had names: those of the ids."""
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


def clone_with(model: Factorizer, **settings: Any) -> Any:
    """Return an unfitted copy of a model, with those of the settings that it knows."""
    copy = clone(model)
    known = copy.get_params(deep=False)
    return copy.set_params(**{name: value for name, value in settings.items() if name in known})


def shown(verbose: bool | None) -> dict[str, bool]:
    """Return ``verbose`` for a model within another, which keeps its own unless told otherwise."""
    return {} if verbose is None else {"verbose": verbose}
