"""AverageFactorizer: the mean of what several models say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from noisewise.calibration import Calibration
from noisewise.data import Observations
from noisewise.engine.arrays import Moments
from noisewise.engine.training import in_threads, one_blas_thread
from noisewise.errors import SettingError, unsaid
from noisewise.models.base import Cells, Factorizer, Seeded, Threads, clone_with, shown
from noisewise.models.learner import fixed_seed
from noisewise.models.mixing import shares
from noisewise.models.model_file import Part
from noisewise.models.sensors import InTime, Readings
from noisewise.schema import Entry, Found, Schema, real
from noisewise.settings import Rule, learned, number, setting, settings
from noisewise.storage import Damaged


def _are_models(given: Any) -> bool:
    pairs = isinstance(given, tuple | list) and len(given) > 0
    return pairs and all(
        isinstance(one, tuple | list)
        and len(one) == 2
        and isinstance(one[0], str)
        and isinstance(one[1], Factorizer)
        for one in given
    )


def _are_weights(given: Any) -> bool:
    return given is None or (
        isinstance(given, tuple | list) and all(number(above=0.0).holds(one) for one in given)
    )


def _as_weights(given: Any) -> tuple[float, ...]:
    return tuple(float(one) for one in given)


@settings
class AverageFactorizer(Readings, InTime, Seeded, Threads):
    """Predict the mean of what several models predict; it is often better than each of them.

    Their errors are taken to go together, so that the std is the mean of their stds. Models may
    count more or less (``weights``), and more where they are surer than usual (``usual_stds``).

    Examples
    --------
    >>> from noisewise.models.series import LinearInterpolator, OUSmoother
    >>> rows = [(place, t, place + np.sin(t / 9)) for place in range(4) for t in range(0, 200, 3)]
    >>> model = AverageFactorizer((("linear", LinearInterpolator()), ("ou", OUSmoother())))
    >>> model = model.fit(rows)
    >>> parts = [one.predict([(2, 100)])[0] for one in model.parts_]
    >>> bool(np.isclose(model.predict([(2, 100)])[0], np.mean(parts)))
    True
    """

    models: Sequence[tuple[str, Factorizer]] = setting(
        Rule("pairs of a name and a model", _are_models),
        "Pairs of a name and a model. ``n_jobs``, ``time`` and ``sensor`` of all of them are those "
        "given here, and so is ``random_state``, plus 0, 1, 2 and so on.",
        kw_only=False,
    )

    weights: Sequence[float] | None = setting(
        Rule("None or positive numbers", _are_weights),
        "How much each of the models counts; all the same by default.",
        default=None,
    )

    usual_stds: Sequence[float] | None = setting(
        Rule("None or positive numbers", _are_weights),
        "The std that each of the models usually has, over the mean of those of all: where its std "
        "is smaller than that, a model counts so many times more. None: the same everywhere.",
        default=None,
    )

    parts_: tuple[Factorizer, ...] = learned("The models, fitted.")
    weights_: tuple[float, ...] = learned("How much each of them counts; 1 together.")

    def _learn(
        self, seen: Observations, validation: Observations | None
    ) -> tuple[Observations, Calibration | None]:
        weights = [1.0] * len(self.models) if self.weights is None else [*self.weights]
        for name, given in (("weights", weights), ("usual_stds", self.usual_stds)):
            if given is not None and len(given) != len(self.models):
                raise SettingError(
                    f"{name} must be as many as models, {len(self.models)}; got {len(given)}."
                )
        seed = fixed_seed(self.random_state)
        shared: dict[str, Any] = {"time": self.time, "sensor": self.sensor, "n_jobs": 1}
        shared |= shown(self.verbose)
        parts = [
            clone_with(model, random_state=(seed + k) % 2**32, **shared)
            for k, (_, model) in enumerate(self.models)
        ]

        def fit(part: Any) -> None:
            with unsaid("Predictions have not settled"):
                part.fit(seen)
            part.n_jobs = self.n_jobs  # for predictions
            part.calibration_ = None  # by few cells; what calibrates the mean is for those who ask

        with one_blas_thread():
            in_threads(fit, parts, self._threads())
        self.parts_ = tuple(parts)
        self.weights_ = tuple(float(one) / math.fsum(weights) for one in weights)
        return seen, None

    def only(self, which: Sequence[int], parts: Sequence[Factorizer]) -> None:
        """Go on with some of the models, by number, which may have become others."""
        left = [self.weights_[k] for k in which]
        self.models, self.weights = tuple(self.models[k] for k in which), tuple(left)
        self.parts_ = tuple(parts)
        self.weights_ = tuple(one / math.fsum(left) for one in left)
        if self.usual_stds is not None:
            self.usual_stds = tuple(self.usual_stds[k] for k in which)

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        found = [part.cells(X) for part in self.parts_]
        pairs = zip(self.parts_, found, strict=True)
        moments = [part.finished(cells) for part, cells in pairs]
        stds = [np.sqrt(one.noise + one.epistemic) for one in moments]
        share: Any = self.weights_
        if self.usual_stds is not None:
            share = shares(self.weights_, stds, self.usual_stds)

        def together(parts: Sequence[Any]) -> Any:
            return np.average(parts, axis=0, weights=share).astype(np.float32)

        mean, std = together([one.mean for one in moments]), together(stds)
        noise = np.minimum(together([one.noise for one in moments]), std**2)
        unseen = np.any([cells.unseen for cells in found], axis=0)
        return Cells(Moments(mean, noise, std**2 - noise), unseen)

    def schema(self) -> Schema:
        """Declare what a file keeps: the models, and how much each counts."""
        yield Entry("seconds", "seconds_", real())
        yield Entry("weights", "weights_", _as_weights, added=True)
        for k in range(len(self.models)):
            yield Part(f"part{k}", f"parts_.{k}")

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        self.parts_ = tuple(found[f"part{k}"] for k in range(len(self.models)))
        given: Any = self.weights_
        if given is None:  # a file from before there were any
            given = self.weights_ = (1.0 / len(self.parts_),) * len(self.parts_)
        odd = len(given) != len(self.parts_) or not _are_weights(given)
        odd = odd or not math.isclose(math.fsum(given), 1.0, rel_tol=1e-6)
        odd = odd or (self.usual_stds is not None and len(self.usual_stds) != len(self.parts_))
        if odd or any(part.ids_ != self.ids_ for part in self.parts_):
            raise Damaged("its parts do not belong together")
