"""What an imputer does after its fit: it takes new readings in, and says what has drifted."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from noisewise.drift import warn_of
from noisewise.models.base import at_one_moment, in_one_step


class Ahead:
    """Part of an imputer that goes on after its fit."""

    @in_one_step
    def update(self: Any, X: Any) -> Any:
        """Take in the readings of new rows for good, without training.

        What was learned stays as it is, and goes on from these readings: a Kalman filter in every
        kept draw of "bayes", series that are longer for others. The imputer knows them from now on,
        in ``transform`` and in files. Where new readings are no longer like those of ``fit``, a
        warning says so with numbers. Readings of series of which ``fit`` had none are left out.

        Parameters
        ----------
        X : table
            Rows as for ``transform``: mostly what came in since, but late readings count too.

        Examples
        --------
        >>> import numpy as np
        >>> from noisewise import DeviationImputer
        >>> hours = np.arange(50.0)
        >>> heat = np.column_stack([20 + np.sin(hours / 4), 15 + np.sin(hours / 4)])
        >>> imputer = DeviationImputer("ou").fit(heat[:48])
        >>> filled = imputer.update(heat[48:49]).transform([[np.nan, heat[49, 1]]])
        >>> bool(abs(filled[0, 0] - heat[49, 0]) < 0.3)
        True
        """
        check_is_fitted(self)
        table = self._placed(self._read(X, reset=False))
        before = self._standardised
        model = before.knowing(table.observed(self.duplicates), self.bounds)
        self._fitted = self._fitted.later(table)
        if model is not before:
            self._standardised = model.settled()
            drifted = before.drift()[0].drifted
            found, names = model.drift()
            warn_of(found, names, found.drifted & ~drifted)
        return self

    @at_one_moment
    def drift(self: Any) -> dict[str, Any]:
        """Return how far readings since ``fit`` have drifted from what was learned, by series.

        It is a table as a dict of columns: the ids of a series, whether it has drifted, the
        ``level`` of its last 24 readings in stds from the mean of the series, and their mean
        squared ``surprise``, which is 1 on average; beside both the most that there was in as many
        readings of ``fit``. NaN where fewer came in.

        Examples
        --------
        >>> import numpy as np
        >>> from noisewise import DeviationImputer
        >>> noise = np.random.default_rng(0).normal(size=(230, 1))
        >>> imputer = DeviationImputer("ou").fit(noise[:200]).update(noise[200:])
        >>> imputer.drift()["drifted"].tolist()
        [False]
        """
        check_is_fitted(self)
        found, names = self._standardised.drift()
        return {"series": names, "drifted": found.drifted, **found._asdict()}
