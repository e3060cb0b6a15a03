"""What an imputer shows of the readings that it has learned from: what is odd in them."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from noisewise.anomalies.find import anomalies_of
from noisewise.data.timestamps import are_dates
from noisewise.gaps import Table
from noisewise.models.base import at_one_moment


class Showing:
    """Tell what is odd in the readings that were learned from."""

    @at_one_moment
    def anomalies(self, probability: float = 0.5) -> Table:
        """Find what is odd in the readings that were learned from, or taken in since.

        Spikes, sensors that are stuck or dead, other units, shifts and drifts, each with its dates
        and a sentence: the table, and ``probability``, are as for ``noisewise.find_anomalies``.

        Examples
        --------
        >>> import numpy as np
        >>> from noisewise import DeviationImputer
        >>> heat = 20 + np.sin(np.arange(200.0) / 5)[:, None] + [0.0, 1.0, 2.0]
        >>> heat[50, 1] = -40.0
        >>> found = DeviationImputer("linear").fit(heat).anomalies()
        >>> found["words"].tolist()
        ['1 read -40 at 50, where about 20.45 was expected.']
        """
        check_is_fitted(self)
        own: Any = self
        dated = are_dates(own._fitted.clock)
        return anomalies_of(own._standardised.everything, dated=dated, probability=probability)
