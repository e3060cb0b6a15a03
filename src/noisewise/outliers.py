"""Readings that cannot be: alone, and far from all that their series ever was."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from noisewise.data import Observations
from noisewise.data.timestamps import Floats, Ints
from noisewise.errors import unsaid
from noisewise.models.contest import compact, draw_trials
from noisewise.models.holes import Readings, trials
from noisewise.models.series import LinearInterpolator, OUSmoother
from noisewise.models.weighing import series_scale

FAR = 6.0  # stds of its series, without tails, that a reading is away from its neighbours
SHARPLY = 12.0  # and times the usual distance from them
NEIGHBOURS = 2  # readings to either side
MOST = 0.03  # share of a series: more than that is how it is
FEWEST = 20  # readings of a series

Mask = npt.NDArray[np.bool_]


def find_outliers(seen: Observations, which: Ints, when: Floats, n: int) -> Mask:
    """Tell which readings are far from those before and after, and from all of their series.

    What more than one series has at the same time is an event, and no error.

    Examples
    --------
    >>> from noisewise.data import observe
    >>> values = np.sin(np.arange(60.0))
    >>> values[30] = 50.0
    >>> seen = observe([("hall", t, value) for t, value in enumerate(values)])
    >>> np.flatnonzero(find_outliers(seen, np.zeros(60, int), np.arange(60.0), 1)).tolist()
    [30]
    """
    scale = series_scale(seen.values, which, n)
    order = np.lexsort([when, which])
    bounds = np.searchsorted(which[order], np.arange(n + 1))
    found = np.zeros(len(seen), dtype=bool)
    for s in range(n):
        rows = order[bounds[s] : bounds[s + 1]]
        if len(rows) < FEWEST:
            continue
        own = seen.values[rows].astype(np.float64)
        ends = np.pad(own, NEIGHBOURS, mode="reflect")
        middle = np.median(
            np.lib.stride_tricks.sliding_window_view(ends, 2 * NEIGHBOURS + 1), axis=1
        )
        away = np.abs(own - middle)
        far = (away > FAR * scale[s]) & (away > SHARPLY * np.median(away))
        if 0 < far.sum() <= MOST * len(rows):
            found[rows[far]] = True
    times, place = np.unique(when[found], return_inverse=True)
    together = np.bincount(place, minlength=len(times)) > 1
    found[np.flatnonzero(found)[together[place]]] = False
    return found


def are_errors(seen: Observations, holes: Observations | None, outliers: Mask) -> bool:
    """Tell whether other readings of the same series are predicted better without outliers.

    Errors are in units of their series, so that none decides by what it is measured in.
    """
    power = np.frexp(np.abs(seen.values).max())[1]  # by which models can square squares of any unit
    seen = Observations(seen.codes, np.ldexp(seen.values, -power), seen.ids)
    readings = Readings.of(seen, seen.n_modes - 1, holes)
    ill = np.zeros(readings.n_series, dtype=bool)
    ill[readings.seen.which[outliers]] = True
    unit = series_scale(seen.values, readings.seen.which, readings.n_series)
    errors = np.zeros(2)
    for trial in draw_trials(trials(readings, "table", np.random.default_rng(0))):
        asked = trial.hidden[ill[readings.seen.which[trial.hidden]] & ~outliers[trial.hidden]]
        if not len(asked):
            continue
        cells = compact(seen.take(asked))
        parts = (trial.train, trial.train[~outliers[trial.train]])
        for k, train in enumerate(parts):
            for model in (LinearInterpolator(sensor=None), OUSmoother(sensor=None)):
                with unsaid(""):
                    mean = model.set_params(n_jobs=1).fit(compact(seen.take(train))).predict(cells)
                away = np.abs(mean - cells.values) / unit[readings.seen.which[asked]]
                errors[k] += float(away.mean())
    return bool(errors[1] <= errors[0])
