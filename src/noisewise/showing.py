"""What an imputer shows: what is odd in its readings, and series with what was filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from noisewise.anomalies.find import anomalies_of
from noisewise.errors import SettingError, listed
from noisewise.gaps import Table
from noisewise.models.base import at_one_moment
from noisewise.report.charts import Trace
from noisewise.report.figures import require_matplotlib
from noisewise.report.series import draw_series
from noisewise.report.traces import odd_of_table, traces
from noisewise.settings import whole

HEIGHT, WIDTH = 1.9, 9.0  # inches of a series


class Showing:
    """Part of an imputer that shows readings: in a table, and in figures."""

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
        ['1 read -40 at 50, where about 20.5 was expected.']
        """
        check_is_fitted(self)
        own: Any = self
        return anomalies_of(own._standardised.everything, own._fitted.clock, probability)

    @at_one_moment
    def plot(
        self: Any,
        X: Any,
        series: Sequence[Any] | None = None,
        *,
        most: int = 6,
        coverage: float = 0.9,
        anomalies: bool = True,
    ) -> Any:
        """Draw series of a table: readings, what is filled in with its interval, and what is odd.

        It needs matplotlib, and draws with pyplot, so that a notebook shows the figure.

        Parameters
        ----------
        X : table
            As for ``transform``.
        series : sequence, optional
            Names of series, or tuples of their ids, in the order in which they are drawn. Without
            it, those with the longest gaps are.
        most : int, default 6
            How many are drawn, if they are not named.
        coverage : float, default 0.9
            How often the band holds the missing reading.
        anomalies : bool, default True
            Whether what is odd is marked.

        Returns
        -------
        ndarray of Axes
            One for each series, from top to bottom.

        Examples
        --------
        >>> import numpy as np
        >>> from noisewise import DeviationImputer
        >>> heat = 20 + np.sin(np.arange(99.0) / 5)[:, None] + [0.0, 1.0, 2.0]
        >>> heat[20:40, 1] = np.nan
        >>> axes = DeviationImputer("linear").fit(heat).plot(heat, most=1)
        >>> [one.get_title() for one in axes]
        ['1']
        """
        check_is_fitted(self)
        require_matplotlib()
        whole(1).require("most", most)
        cells = self._read(X, reset=False)
        parts = [self._read(one, reset=False).values for one in self._filled(X, coverage)]
        odd = odd_of_table(cells, cells.observed(self.duplicates)) if anomalies else {}
        found = traces(cells, parts, odd)
        drawn = _longest(found, most) if series is None else _named(found, series)
        return _drawn(drawn, coverage)

    def _filled(self: Any, X: Any, coverage: float) -> list[Any]:
        return [self.transform(X), *self.interval(X, coverage)]


def _longest(found: list[Trace], most: int) -> list[Trace]:
    return sorted(found, key=lambda one: -float(one.lasts(*one.gaps()).max(initial=0.0)))[:most]


def _named(found: list[Trace], series: Sequence[Any]) -> list[Trace]:
    """Return the series of some names, or ids."""
    known = {one.name: one for one in found}
    wanted = [" ".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in series]
    for name in wanted:
        if name not in known:
            raise SettingError(
                f"series must be some of {listed(list(known)[:5])} and so on; got {name!r}."
            )
    if not wanted:
        raise SettingError("series must name one series or more; got none.")
    return [known[name] for name in wanted]


def _drawn(series: list[Trace], coverage: float) -> Any:
    from matplotlib import pyplot

    size = (WIDTH, HEIGHT * len(series) + 0.4)
    figure, axes = pyplot.subplots(
        len(series), sharex=True, squeeze=False, figsize=size, layout="constrained"
    )
    labels: dict[str, Any] = {}
    for one, own in zip(series, axes[:, 0], strict=True):
        draw_series(own, one, coverage=coverage)
        handles = own.get_legend_handles_labels()
        labels |= dict(zip(handles[1], handles[0], strict=True))
    figure.legend(labels.values(), labels, loc="outside lower center", ncols=len(labels))
    return np.asarray(axes[:, 0])
