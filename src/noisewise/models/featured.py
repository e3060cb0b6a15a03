"""What models with side features can do: predict ids by their features, and say what these do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from noisewise.calibration import check_coverage
from noisewise.data import Observations
from noisewise.data.features import SideTable, Tables, by_mode
from noisewise.data.ids import as_objects, check_ids, check_values
from noisewise.engine.arrays import Array, Codes, Floats, Moments
from noisewise.engine.gibbs import newcomers
from noisewise.engine.gibbs.posterior import RatingPosterior, spread
from noisewise.errors import DataError, SettingError
from noisewise.models.arranged import matrices, places_of
from noisewise.models.base import as_it_is, at_one_moment
from noisewise.models.feature_file import TablesOfModes
from noisewise.models.learner import count_rows
from noisewise.models.new_row import NewRow
from noisewise.models.rows import Rows
from noisewise.recommend import Likely, Sought, as_candidates
from noisewise.schema import Found, Schema
from noisewise.settings import learned, settings


class FeatureEffect(NamedTuple):
    """What one level of a feature does to predictions of an id that has it.

    All against an id with average features: ``mean`` in units of the values, ``noise`` as a factor
    on the std of the noise, each with the interval that holds it with the coverage asked for.
    ``taste`` is the std, over ids of the other mode, of what the level does beside that: how much
    some like it and others do not.
    """

    mode: str
    feature: str
    level: str
    ids: int  # that have it, of those with observations; of numbers, all of them
    mean: float
    mean_low: float
    mean_high: float
    taste: float
    noise: float
    noise_low: float
    noise_high: float


@settings
class Featured(Rows):
    """Base class of models that can learn from tables of what is known of ids."""

    factors_: RatingPosterior = learned("The draws that were kept.")
    features_: dict[int, SideTable] = learned(
        "What is known of ids, by mode: tables given to ``fit`` as ``features``."
    )

    def predict(self, X: Any, return_std: bool = False, *, features: Tables | None = None) -> Any:
        """Predict the value of cells.

        Parameters
        ----------
        X : table of ids
            One id column per mode. The columns of a frame are found by their names, in any order,
            and others are left out. Ids never seen are predicted by their features if they have
            some; else they get what is known of the others and a wider std.
        return_std : bool
            Also return the standard deviation of each value around its prediction.
        features : dict of tables, optional
            Features of ids that were not in the tables of ``fit``, by mode, with the same columns.

        Returns
        -------
        mean : ndarray
        std : ndarray, if asked for
            Noise and epistemic uncertainty together, calibrated on held-out data if there was some.
        """
        mean, noise, epistemic = self.moments(X, features=features)
        return (mean, np.sqrt(noise + epistemic)) if return_std else mean

    def predict_parts(
        self, X: Any, *, features: Tables | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """Predict, and tell noise from epistemic uncertainty: mean, noise_std, epistemic_std.

        More data shrinks the epistemic part; the noise stays. ``features`` are as in ``predict``.
        """
        mean, noise, epistemic = self.moments(X, features=features)
        return mean, np.sqrt(noise), np.sqrt(epistemic)

    @at_one_moment
    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, features: Tables | None = None
    ) -> tuple[Floats, Floats]:
        """Predict an interval that holds the value in ``coverage`` of the cases.

        The ends are clipped to the range of values. ``features`` are as in ``predict``.
        """
        self = self.with_features(features)
        mean, std = self.predict(X, return_std=True)
        return self.interval(mean, std, coverage, self.strangers(X))

    def predict_set(
        self, X: Any, coverage: float = 0.9, *, features: Tables | None = None
    ) -> npt.NDArray[np.bool_]:
        """Predict the smallest set of levels that holds the value in ``coverage`` of the cases.

        See ``DeviationFactorizer.predict_set``; ``features`` are as in ``predict``.
        """
        return super(Featured, self.with_features(features)).predict_set(X, coverage)

    def moments(self, X: Any, *, features: Tables | None = None) -> Moments:
        """Return mean, variance of the noise and epistemic variance of cells, as named arrays."""
        return super(Featured, self.with_features(features)).moments(X)

    def with_features(self, features: Tables | None) -> Self:
        """Return this model with the features of more ids, which it then knows by them.

        It shares all else with the model, which stays as it is. An id that has features already
        gets the new ones.

        Parameters
        ----------
        features : dict of tables
            By mode, such as ``{"item": frame}``, with columns as those given to ``fit``.

        Examples
        --------
        >>> import warnings
        >>> from noisewise import BayesianFactorizer
        >>> ratings = [(user, item, 1 + 4 * (item < 6)) for user in range(9) for item in range(12)]
        >>> genres = {"item": range(12), "genre": ["noir"] * 6 + ["farce"] * 6}
        >>> model = BayesianFactorizer(rank=1, sweeps=40, burn_in=20, random_state=0)
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")  # a few sweeps settle little
        ...     model = model.fit(ratings, features={"item": genres})
        >>> later = {"item": ["new", "newer"], "genre": ["noir", "farce"]}
        >>> noir, farce = model.with_features({"item": later}).predict([(0, "new"), (0, "newer")])
        >>> bool(noir > farce + 2)
        True
        """
        if features is None:
            return self
        check_is_fitted(self)
        names = [ids.name for ids in self.ids_]
        twin, tables = as_it_is(self), dict(self.features_)
        for mode, table in by_mode(features, names).items():
            if mode not in tables:
                raise DataError(f"This model was fitted without features of {names[mode]}.")
            tables[mode] = tables[mode].extended(table)
        twin._take(tables, self.factors_)
        return twin

    @at_one_moment
    def fold_in(
        self,
        others: Sequence[Any],
        y: Any,
        *,
        mode: int | str = 0,
        features: dict[str, Any] | None = None,
    ) -> NewRow:
        """Learn a new id from its values, to predict and recommend for it; the model stays as is.

        Parameters
        ----------
        others : sequence of ids
            What the new id was seen with: for a new user, items. May be empty if it has features.
        y : sequence of float
            The values.
        mode : int or str
            The mode of the new id: 0 for a user, 1 for an item, or a column's name.
        features : dict, optional
            What else is known of the new id, by the names of columns of the tables of ``fit``, such
            as ``{"age": 30}``; what is not named is missing.
        """
        check_is_fitted(self)
        m = self.mode_number(mode)
        if features is None:
            return super().fold_in(others, y, mode=mode)
        if m not in self.features_:
            raise DataError(f"This model was fitted without features of {self.ids_[m].name}.")
        self._needs_two_modes("fold_in")
        values, codes = check_values(y, "y"), self._codes(1 - m, others)
        if len(codes) != len(values):
            raise DataError(
                f"fold_in needs one value for each id; got {len(codes)} and {len(values)}."
            )
        row, known = self.features_[m].one(features), self._places(1 - m, codes, others)
        starts = np.array([0, len(codes)])
        fold = partial(self._fold_described, row)
        return self._new_rows(fold, m, starts, codes, known, values)[0]

    def _fold_described(
        self, row: Any, mode: int, starts: Any, codes: Codes, values: Any
    ) -> list[Any]:
        return [self._fold(mode, codes, values, row)]

    @at_one_moment
    def explain_features(self, *, coverage: float = 0.9) -> list[FeatureEffect]:
        """Say what features do to the mean and to the noise of ids of which nothing else is known.

        Every category and every word is a level; of numbers, levels are a few of their quantiles.
        Levels come by mode and by feature, those that move the mean most first.

        Parameters
        ----------
        coverage : float
            Of the intervals, over the draws of the posterior.

        Returns
        -------
        list of FeatureEffect
            Named tuples, from which a frame can be made.

        Examples
        --------
        >>> import warnings
        >>> from noisewise import BayesianFactorizer
        >>> ratings = [(user, item, 1 + 4 * (item < 6)) for user in range(9) for item in range(12)]
        >>> genres = {"item": range(12), "genre": ["noir"] * 6 + ["farce"] * 6}
        >>> model = BayesianFactorizer(rank=1, sweeps=40, burn_in=20, random_state=0)
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")  # a few sweeps settle little
        ...     model = model.fit(ratings, features={"item": genres})
        >>> effects = {effect.level: effect for effect in model.explain_features()}
        >>> effects["noir"].mean_low > 0 > effects["farce"].mean_high
        True
        """
        check_is_fitted(self)
        check_coverage(coverage)
        return [
            effect
            for mode in self.features_
            for effect in _explained(self.factors_, self.features_[mode], mode, self, coverage)
        ]

    def _take(self, tables: dict[int, SideTable], posterior: RatingPosterior) -> None:
        """Take over tables, and draws that know ids by them."""
        self.features_ = tables
        self.factors_ = replace(posterior, cold=matrices(tables, len(self.ids_)))

    def _learn_tables(self, features: Tables | None, seen: Observations) -> dict[int, SideTable]:
        """Learn how tables become features."""
        counts = count_rows(seen)
        return {
            mode: SideTable.learn(table, seen.ids[mode], counts[mode])
            for mode, table in sorted(by_mode(features, seen.names).items())
        }

    def _know(self, features: Tables | None) -> None:
        """Know more ids by their features."""
        more = self.with_features(features)
        self._take(more.features_, more.factors_)

    def _described(self, mode: int, labels: Any) -> Any:
        """Return side features of ids of a mode, as a sparse matrix; None if there are none."""
        return self.features_[mode].rows(labels) if mode in self.features_ else None

    def wanted(
        self,
        mode: int,
        n: int,
        risk: float,
        seen: Any,
        candidates: Iterable[Any] | None,
        likely: Likely | None = None,
    ) -> Sought:
        """Return which columns are the best for rows of a mode; candidates may be new."""
        chosen = as_candidates(candidates)
        found = super().wanted(mode, n, risk, seen, chosen, likely)
        if chosen is None or likely is not None or 1 - mode not in self.features_:
            return found
        codes = self._places(1 - mode, self.ids_[1 - mode].lookup(chosen), chosen)
        new = np.unique(codes[codes > len(self.factors_.counts[1 - mode])])
        return found._replace(columns=np.append(found.columns, new).astype(np.int32))

    def _by(self, by: str, mode: int, codes: Codes, sought: Sought) -> Sought:
        found = super()._by(by, mode, codes, sought)
        if found.likely is None:
            return found
        known = found.columns < len(self.factors_.counts[1 - mode])  # else nobody took it up yet
        return found._replace(columns=found.columns[known])

    def _are_new(self, known: tuple[Codes, ...]) -> bool:
        """Whether some cells have an id that is known by its features alone."""
        pairs = zip(known, self.factors_.counts, strict=True)
        return any(bool((code > len(n)).any()) for code, n in pairs)

    def _places(self, mode: int, codes: Codes, asked: Any) -> Codes:
        """Send ids never trained on to their features, or else to the row after the last."""
        known = super()._places(mode, codes, asked)
        table, n = self.features_.get(mode), len(self.factors_.counts[mode])
        if table is None or not (known == n).any():
            return known
        found = check_ids(asked, self.ids_[mode].name)
        return places_of(known, n, table, as_objects(found) if isinstance(found, list) else found)

    def schema(self) -> Schema:
        """Declare what a file keeps: also tables of features."""
        yield from super().schema()
        yield TablesOfModes("features", "features_", tuple(ids.name for ids in self.ids_))

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        self.features_ = found["features"]


def features_for(model: Any, tables: Tables | None) -> dict[str, Any]:
    """Return what ``fit`` of a model is given of features; one that takes none is refused."""
    if not tables:
        return {}
    if not isinstance(model, Featured):
        raise SettingError(
            f"features must be left out: a {type(model).__name__} learns from values alone; a "
            "BayesianFactorizer takes them."
        )
    return {"features": tables}


def _explained(
    posterior: RatingPosterior, table: SideTable, mode: int, model: Any, coverage: float
) -> list[FeatureEffect]:
    counts = posterior.counts[mode]
    seen = table.rows(model.ids_[mode].labels[counts > 0])
    usual = np.asarray(seen.mean(axis=0)).reshape(1, -1)
    ends = [0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)]
    found = []
    for field, first in zip(table.fields, table.bounds[:-1].tolist(), strict=True):
        own = slice(first, first + len(field))
        levels = field.levels()
        asked = np.repeat(usual, len(levels), axis=0)
        asked[:, own] = [level.toarray().ravel() for _, level in levels]
        if field.kind in ("words", "array"):  # of which an id may have several
            asked[:, own] = usual[:, own] + np.eye(len(field)) * (1.0 - usual[:, own])
        many = np.asarray((seen[:, own] != 0).sum(axis=0)).ravel()
        mean, taste, noise = _effects(posterior, mode, asked, usual)
        low, high = np.quantile(mean, ends, axis=0)
        less, more = np.quantile(noise, ends, axis=0)
        rows = [
            FeatureEffect(
                model.ids_[mode].name, field.name, name,
                int(many[k]) if field.kind != "number" else seen.shape[0],
                float(mean[:, k].mean()), float(low[k]), float(high[k]), float(taste[:, k].mean()),
                float(noise[:, k].mean()), float(less[k]), float(more[k]),
            )
            for k, (name, _) in enumerate(levels)
        ]  # fmt: skip
        found += rows if field.kind == "number" else sorted(rows, key=lambda e: -abs(e.mean))
    return found


def _effects(
    posterior: RatingPosterior, mode: int, asked: Array, usual: Array
) -> tuple[Array, Array, Array]:
    """Per draw and level: what it adds to the mean, its taste, and its factor on the noise."""
    part = newcomers.part_of(posterior.cold, mode)
    scale, many = posterior.scale.scale, (len(posterior), len(asked))
    mean, taste, noise = np.zeros(many), np.zeros(many), np.ones(many)
    shape, others = posterior.shape, [m for m in range(len(posterior.shape)) if m != mode]
    for draw in range(len(posterior)):
        given = posterior.draws, posterior.spec, draw, mode, part
        rows, factors = newcomers.expected(*given, asked.astype(np.float32))
        base, plain = newcomers.expected(*given, usual.astype(np.float32))
        away = (rows - base).astype(np.float64)
        partner = np.ones(posterior.spec.rank)
        for m in others:
            partner = partner * posterior.draws["typical"][draw, m, :-1]
        mean[draw] = scale * (away[:, :-1] @ partner + away[:, -1])
        if len(shape) == 2:
            covariance = posterior.draws["covariances"][draw, others[0]].copy()
            covariance[-1], covariance[:, -1] = 0.0, 0.0  # biases of others are no taste
            taste[draw] = scale * np.sqrt(
                np.maximum(spread(away[:, :-1].astype(np.float32), covariance), 0.0)
            )
        if posterior.spec.noise_rank:
            weight = _noise_of_others(posterior, draw, others)
            noise[draw] = np.sqrt(factors @ weight / (plain @ weight))
    return mean, taste, noise


def _noise_of_others(posterior: RatingPosterior, draw: int, others: list[int]) -> Array:
    own = posterior.draws["noise"][draw].astype(np.float64)
    parts = np.split(own, np.cumsum(posterior.shape)[:-1])
    total = np.ones(own.shape[1])
    for m in others:
        total = total * (posterior.counts[m] @ parts[m] / posterior.counts[m].sum())
    return total
