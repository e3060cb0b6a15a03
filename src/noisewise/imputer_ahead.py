"""What an imputer does after its fit: it takes new readings in, forecasts, and says what drifts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from noisewise.calibration import check_coverage
from noisewise.data import encode_ids
from noisewise.data.next_rows import last_rows, next_rows
from noisewise.drift import warn_of
from noisewise.errors import DataError
from noisewise.models.base import at_one_moment, in_one_step
from noisewise.scaling import whole_numbers
from noisewise.settings import Rule, either, whole

MOST_CHUNKS = 1_000  # of holes that are drawn together
MOST = 1_000  # steps of a forecast
SEED = either(whole(0), None)
STEPS = Rule(f"a whole number from 1 to {MOST:,}", lambda v: whole(1).holds(v) and v <= MOST)


class Forecast(NamedTuple):
    """The rows that come next, as tables of one kind."""

    mean: Any
    std: Any
    low: Any  # of an interval
    high: Any


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
        if self._fitted.later(table).end > self._fitted.end:
            self._last = last_rows(X, self._roles, table.when)
        self._fitted = self._fitted.later(table)
        if model is not before:
            self._standardised = model.settled()
            drifted = before.drift()[0].drifted
            found, names = model.drift()
            warn_of(found, names, found.drifted & ~drifted)
        return self

    @at_one_moment
    def sample(self: Any, X: Any, n: int = 5, random_state: int | None = None) -> list[Any]:
        """Return n tables without holes, whose holes are drawn together: multiple imputations.

        Every table is one that could have been: what is filled in scatters as readings do, and goes
        together within a gap and between series. Analyse each of them, and pool what you find by
        Rubin's rules, so that its error counts what was missing. Means and stds are those of
        ``transform``; how holes go together comes from kept draws of "bayes". Where the method is
        another, such draws are made when they are first asked for, which takes as long as its fit.

        Parameters
        ----------
        X : table
            As for ``transform``.
        n : int
            How many; 5 to 50 are usual.
        random_state : int, optional
            The same int gives the same tables.

        Examples
        --------
        >>> import numpy as np
        >>> from noisewise import DeviationImputer
        >>> heat = np.sin(np.arange(60) / 4)[:, None] + np.array([15.0, 20.0])
        >>> heat[20:24, 0] = np.nan
        >>> quick = {"sweeps": 30, "rank": 1, "tolerance": None}
        >>> tables = DeviationImputer("bayes", settings=quick, random_state=0).fit(heat).sample(
        ...     heat, 3, random_state=0
        ... )
        >>> len(tables), bool(np.isfinite(tables[0]).all()), bool((tables[0] != tables[1]).any())
        (3, True, True)
        """
        whole(1).require("n", n)
        SEED.require("random_state", random_state)
        rng = np.random.default_rng(random_state)
        streams = iter(rng.spawn(MOST_CHUNKS))
        table, known, drawn = self._answered(
            X, lambda model, cells: model.sample(cells, n, next(streams)), n
        )
        if self.whole:
            drawn = [whole_numbers(one, np.rint, self.bounds) for one in drawn]
        return [table.put(one, known) for one in drawn]

    @at_one_moment
    def forecast(self: Any, steps: int, X: Any = None, coverage: float = 0.9) -> Forecast:
        """Return the rows that come next: what to expect, its std, and intervals.

        The last reading, the mean of the part of the day or year, what fades between both, and
        regressions on readings before are mixed, for every step as it was best from earlier
        origins in the fitted table. The errors there also tell how far intervals must reach: wider
        where forecasts have been far off of late. That is learned from the readings of ``fit`` when
        it is first asked for, which takes seconds, and goes on from all readings since. It is the
        same for every method but for the scale.

        Parameters
        ----------
        steps : int
            How many rows, at the usual distance of the table, after its last one.
        X : table, optional
            Newer rows as for ``transform``: the forecast goes on from these, as the imputer stays
            as it was. An imputer that was loaded from a file needs a row or more to know what its
            tables look like.
        coverage : float
            Share of the cases in which an interval holds what will be read.

        Returns
        -------
        Forecast
            Four tables of the kind of X, with the next stamps: ``mean``, ``std``, ``low`` and
            ``high``. Series of which nothing was ever read stay empty.

        Examples
        --------
        >>> import numpy as np
        >>> from noisewise import DeviationImputer
        >>> hours = np.arange(480)
        >>> noise = np.random.default_rng(0).normal(0, 0.1, 480)
        >>> heat = 20 + np.sin(hours / 24 * 2 * np.pi) + noise
        >>> told = DeviationImputer("ou").fit(heat[:474, None]).forecast(6)
        >>> bool((abs(told.mean[:, 0] - heat[474:]) < 0.5).all()), told.low.shape
        (True, (6, 1))
        """
        check_is_fitted(self)
        STEPS.require("steps", steps)
        check_coverage(coverage)
        model, rows, known = self._from(X)
        if rows is None:
            raise DataError(
                "An imputer from a file does not know what its tables look like: give the last "
                "rows, as forecast(steps, X)."
            )
        step = model.past.step
        step = int(step) if step == int(step) else step
        table = self._read(next_rows(rows, self._roles, step, steps), reset=False)
        table = table.later(known.end) if table.clock == "rows" else table
        found, where = _next_cells(model, table, steps, coverage)
        found = _whole(found, self.bounds) if self.whole else found
        return Forecast(*(table.put(part, where) for part in found))

    def _from(self: Any, X: Any) -> tuple[Any, Any, Any]:
        """Return what a forecast goes on from: the model, the last rows, and what is known."""
        model, rows, known = self._standardised, getattr(self, "_last", None), self._fitted
        if X is None:
            return model, rows, known
        table = self._placed(self._read(X, reset=False))
        model, known = (
            model.knowing(table.observed(self.duplicates), self.bounds),
            known.later(table),
        )
        if known.end == known.of(table).end:  # of older rows nothing but readings is new
            rows = last_rows(X, self._roles, table.when)
        elif rows is None:
            raise DataError("X must have the last rows that the imputer knows, or later ones.")
        return model, rows, known

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


def _whole(found: list[Any], bounds: Any) -> list[Any]:
    """Round a forecast: means, and ends of intervals outwards."""
    mean, std, low, high = found
    ways = ((mean, np.rint), (low, np.floor), (high, np.ceil))
    mean, low, high = (whole_numbers(part, way, bounds) for part, way in ways)
    return [mean, std, low, high]


def _next_cells(model: Any, table: Any, steps: int, coverage: float) -> tuple[list[Any], Any]:
    """Return a forecast in the shape of a table of the next rows, and where there is one.

    Steps are counted from the last reading, which may be some rows before the end of the table.
    """
    cells = table.cells(np.arange(table.values.size))
    codes = encode_ids(cells, model.seen.ids)[:-1]
    known = (np.array(codes) >= 0).all(axis=0)
    which = model.past.series(tuple(np.where(known, code, 0) for code in codes))
    known &= which >= 0
    labels = cells.ids[-1].labels
    silent = max(round((float(min(labels)) - model.last_time) / model.past.step) - 1, 0)
    if silent + steps > MOST:
        raise DataError(
            f"Nothing was read in the last {silent:,} rows, and a forecast can be of at most "
            f"{MOST:,} from the last reading: leave rows without readings out, or ask for fewer."
        )
    place = silent + np.argsort(np.argsort(labels, kind="stable"))[cells.codes[-1]]
    ahead = model.ahead(silent + steps, coverage)
    found = [np.where(known, part[place, which], np.nan) for part in ahead]
    shape = table.values.shape
    return [part.reshape(shape) for part in found], known.reshape(shape)
