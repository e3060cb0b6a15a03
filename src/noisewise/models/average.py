"""AverageFactorizer: the mean of what several models say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noisewise.calibration import Calibration
from noisewise.data import Observations
from noisewise.engine.arrays import Moments
from noisewise.engine.training import in_threads, one_blas_thread
from noisewise.errors import unsaid
from noisewise.models.base import Cells, Factorizer, Seeded, Threads, clone_with, shown
from noisewise.models.learner import fixed_seed
from noisewise.models.model_file import Part
from noisewise.models.sensors import InTime, Readings
from noisewise.schema import Entry, Found, Schema, real
from noisewise.settings import Rule, learned, setting, settings
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


@settings
class AverageFactorizer(Readings, InTime, Seeded, Threads):
    """Predict the mean of what several models predict; it is often better than each of them.

    Their errors are taken to go together, so that the std is the mean of their stds.

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

    parts_: tuple[Factorizer, ...] = learned("The models, fitted.")

    def _learn(
        self, seen: Observations, validation: Observations | None
    ) -> tuple[Observations, Calibration | None]:
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
        return seen, None

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        found = [part.cells(X) for part in self.parts_]
        pairs = zip(self.parts_, found, strict=True)
        moments = [part.finished(cells) for part, cells in pairs]
        mean = np.mean([one.mean for one in moments], axis=0)
        std = np.mean([np.sqrt(one.noise + one.epistemic) for one in moments], axis=0)
        noise = np.minimum(np.mean([one.noise for one in moments], axis=0), std**2)
        unseen = np.any([cells.unseen for cells in found], axis=0)
        return Cells(Moments(mean, noise, std**2 - noise), unseen)

    def schema(self) -> Schema:
        """Declare what a file keeps: the models."""
        yield Entry("seconds", "seconds_", real())
        for k in range(len(self.models)):
            yield Part(f"part{k}", f"parts_.{k}")

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        self.parts_ = tuple(found[f"part{k}"] for k in range(len(self.models)))
        if any(part.ids_ != self.ids_ for part in self.parts_):
            raise Damaged("its parts do not belong together")
