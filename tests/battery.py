"""One battery that every model passes: scikit-learn's contract, unknown ids, intervals, files.

A suite lists its models and lets ``Battery`` loose on them, and scikit-learn's checks too:

    class TestEveryModel(Battery):
        cases = {"deviation": Case(DeviationFactorizer(rank=4), ratings, rmse=(0.8, 0.9))}

    @scikit_learn_checks(any_modes=[DeviationFactorizer(rank=4, duplicates="mean")])
    def test_scikit_learn_has_no_complaints(estimator, check):
        check(estimator)
"""

import importlib
import inspect
import pickle
import pkgutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
from shared import assert_same_bits, make_world
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, ShuffleSplit, cross_validate
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from noisewise import DataError, FitInterrupted, Observations, SettingError, load, observe, storage
from noisewise.errors import UnknownIdsWarning


@dataclass(frozen=True)
class Table:
    """Cells of text, and of numbers where they are times; their values; and how ids are called."""

    X: np.ndarray
    y: np.ndarray
    names: tuple[str, ...]

    def part(self, index: Any) -> "Table":
        return Table(self.X[index], self.y[index], self.names)

    def halves(self) -> tuple["Table", "Table"]:
        """Three quarters to train on, and the rest."""
        n = len(self.y) * 3 // 4
        return self.part(slice(n)), self.part(slice(n, None))

    def frame(self, library: ModuleType) -> Any:
        columns = zip(self.names, self.X.T, strict=True)
        return library.DataFrame({name: column.tolist() for name, column in columns})

    @property
    def nobody(self) -> tuple[Any, ...]:
        """A cell none of whose ids was ever seen, but for its time."""
        return ("nobody", "nothing", *self.X[0, 2:])

    def unknown(self) -> dict[str, np.ndarray]:
        """All cells, with one of their ids replaced, and with both."""
        first, second, both = self.X.copy(), self.X.copy(), self.X.copy()
        first[:, 0], second[:, 1], both[:, :2] = "nobody", "nothing", ("nobody", "nothing")
        return {"first": first, "second": second, "both": both}


@cache
def ratings() -> Table:
    """Two thirds of a matrix, with ids that are text."""
    world = make_world(80, 50, 2600)
    columns = (np.char.add(kind, world.X[:, k].astype(str)) for k, kind in enumerate("ui"))
    return Table(np.column_stack([*columns]).astype(object), world.y, ("user", "item"))


@cache
def stars() -> Table:
    """The same in stars, for models that need levels."""
    table = ratings()
    return Table(table.X, np.clip(np.rint(table.y), 1, 5), table.names)


@cache
def readings() -> Table:
    """Cells (place, sensor, hour): two sensors at six places that follow two slow signals."""
    rng = np.random.default_rng(0)
    hours = np.cumsum(rng.exponential(1.0, 60)).round(3)
    signals = np.stack([np.sin(hours / 4), np.cos(hours / 7)])
    rows = []
    for place in range(6):
        for sensor, (level, unit) in {"heat": (20.0, 3.0), "damp": (60.0, 9.0)}.items():
            clean = level + unit * (rng.normal(0, 0.3) + rng.normal(1.0, 0.4, 2) @ signals)
            noisy = rng.normal(clean, unit * rng.uniform(0.1, 0.3))
            rows += [(f"p{place}", sensor, *cell) for cell in zip(hours, noisy, strict=True)]
    chosen = [rows[k] for k in rng.permutation(len(rows))[: len(rows) * 4 // 5]]
    X = np.array([row[:3] for row in chosen], dtype=object)
    return Table(X, np.array([row[3] for row in chosen]), ("place", "sensor", "hour"))


PLACES = {f"p{k}": (float(k), 0.0) for k in range(6)}  # where the places of the readings are


@dataclass(frozen=True)
class Case:
    """A model that was not fitted, what it learns from, and how well it must predict."""

    model: Any
    source: Callable[[], Table]
    rmse: tuple[float, float]  # of a quarter that is held out
    is_honest: bool = False  # its std is right without anything held out
    needs: str | None = None  # a package

    def fresh(self) -> Any:
        return clone(self.model)

    @property
    def table(self) -> Table:
        return self.source()

    @cached_property
    def fitted(self) -> Any:
        """The model fitted to all of its table, once for all tests; none of them changes it."""
        return self.fresh().fit(self.table.X, self.table.y)

    @property
    def is_sampled(self) -> bool:
        return "sweeps" in self.model.get_params()

    def has(self, *settings: str) -> bool:
        return set(settings) <= self.model.get_params().keys()

    @property
    def is_random(self) -> bool:
        return self.has("random_state")

    @property
    def in_epochs(self) -> bool:
        return "callbacks" in inspect.signature(self.model.fit).parameters

    @property
    def has_rows(self) -> bool:
        return hasattr(self.model, "fold_in")


def kept(model: Any, folder: Any) -> tuple[dict[str, Any], storage.Tensors]:
    """All that a file has of a model, but for its settings and how long everything took."""
    model.save(folder / "kept")
    header, tensors = storage.read(folder / "kept", "model")
    return _untimed(header), tensors


def _untimed(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {k: _untimed(v) for k, v in entry.items() if k not in ("seconds", "settings")}
    return [_untimed(v) for v in entry] if isinstance(entry, list) else entry


def assert_same(model: Any, other: Any, table: Table, folder: Any) -> None:
    """Assert that two models have learned and predict the same, to the bit."""
    (header, tensors), (other_header, other_tensors) = (kept(m, folder) for m in (model, other))
    assert other_header == header
    assert_same_bits(other_tensors, tensors)
    X = [*table.X.tolist(), table.nobody]
    for asked in (partial(type(model).predict, return_std=True), type(model).predict_parts):
        np.testing.assert_array_equal(asked(other, X), asked(model, X))
    if hasattr(model, "fold_in"):
        assert other.recommend("u3", risk=1.0) == model.recommend("u3", risk=1.0)
        assert other.similar("i3") == model.similar("i3")
        rows = [m.fold_in(["i1", "i2"], [5.0, 3.0]) for m in (model, other)]
        one, another = (row.predict(["i7", "nothing"], return_std=True) for row in rows)
        np.testing.assert_array_equal(another, one)


@contextmanager
def uncalibrated() -> Iterator[None]:
    """Leave out the warning of intervals that nothing held out could calibrate."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "These intervals are not calibrated")
        yield


def only(trait: str) -> Callable[[Any], Any]:
    """Ask a test of those cases alone that have a property."""

    def mark(test: Any) -> Any:
        test.only = trait
        return test

    return mark


class Killed(Exception):
    """What a test throws where a kill would come."""


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
class Battery:
    """What every model must do; a suite inherits it and says which models it has."""

    cases: ClassVar[dict[str, Case]]

    def pytest_generate_tests(self, metafunc: Any) -> None:
        trait = getattr(metafunc.function, "only", None)
        asked = {k: v for k, v in self.cases.items() if trait is None or getattr(v, trait)}
        metafunc.parametrize("case", asked.values(), ids=asked, scope="class")

    @pytest.fixture
    def table(self, case):
        if case.needs is not None:
            pytest.importorskip(case.needs)
        return case.table

    @pytest.fixture
    def fitted(self, case, table):
        return case.fitted

    def test_clone_and_params(self, case):
        params = case.model.get_params(deep=False)
        copy = case.fresh()
        assert copy is not case.model
        assert str(copy.get_params(deep=False)) == str(params)  # a model inside is cloned too
        name = next(iter(params))
        assert copy.set_params(**{name: "another"}) is copy
        assert copy.get_params(deep=False) == {**copy.get_params(deep=False), name: "another"}
        assert case.model.get_params(deep=False) == params
        with pytest.raises(ValueError, match="no_such_setting"):
            copy.set_params(no_such_setting=1)

    def test_fit_returns_self_and_changes_no_setting_and_no_data(self, case, table):
        X, y, model = table.X.copy(), table.y.copy(), case.fresh()
        before = str(model.get_params())
        X.flags.writeable = y.flags.writeable = False
        assert model.fit(X, y) is model
        assert str(model.get_params()) == before
        np.testing.assert_array_equal(X, table.X)
        np.testing.assert_array_equal(y, table.y)
        assert model.n_features_in_ == len(table.names)

    def test_it_predicts_held_out_cells_as_well_as_it_should(self, case, table):
        train, test = table.halves()
        mean = case.fresh().fit(train.X, train.y).predict(test.X)
        low, high = case.rmse
        assert low < np.sqrt(np.mean((test.y - mean) ** 2)) < high

    def test_cross_validation_works_with_frames_of_pandas(self, case, table):
        scoring = "neg_root_mean_squared_error"
        scores = cross_validate(case.fresh(), table.frame(pd), table.y, cv=3, scoring=scoring)
        assert scores["test_score"].shape == (3,)
        assert -scores["test_score"].mean() < case.rmse[1] * 1.15  # with fewer cells to learn from

    def test_grid_search_works_with_frames_of_polars(self, case, table):
        frame, grid = table.frame(pl), {"value_range": [(0.0, 0.1), None]}
        once = ShuffleSplit(1, test_size=0.3, random_state=0)
        search = GridSearchCV(case.fresh(), grid, cv=once).fit(frame, pl.Series(table.y))
        assert search.best_params_ == {"value_range": None}
        assert search.predict(frame[:3]).shape == (3,)

    def test_arrays_frames_lists_and_observations_are_all_the_same(self, case, table):
        some = table.part(slice(250))
        X, y = some.X, some.y
        rows, frames = X.tolist(), [some.frame(library) for library in (pd, pl)]
        with_values = [(*cell, value) for cell, value in zip(rows, y.tolist(), strict=True)]
        expected = case.fresh().fit(X, y).predict(X, return_std=True)
        given = [(rows, y.tolist()), (with_values,), (observe(X, y),)]
        given += [(frames[0], pd.Series(y)), (frames[1], pl.Series(y))]
        for table_of_any_kind in given:
            model = case.fresh().fit(*table_of_any_kind)
            np.testing.assert_array_equal(model.predict(X.tolist(), return_std=True), expected)
        for asked in (observe(X, y), *frames, frames[0][list(reversed(some.names))]):
            np.testing.assert_array_equal(model.predict(asked, return_std=True), expected)

    @pytest.mark.parametrize("n", [0, 1, 7])
    def test_predictions_are_float32_one_for_each_row(self, fitted, table, n):
        X = table.X[:n]
        with uncalibrated():
            told = [fitted.predict(X), *fitted.predict(X, return_std=True)]
            told += [*fitted.predict_parts(X), *fitted.predict_interval(X)]
        for part in told:
            assert part.shape == (n,)
            assert part.dtype == np.float32

    def test_mean_is_the_same_with_and_without_a_std(self, fitted, table):
        mean, std = fitted.predict(table.X, return_std=True)
        np.testing.assert_array_equal(fitted.predict(table.X), mean)
        parts = fitted.predict_parts(table.X)
        np.testing.assert_array_equal(parts[0], mean)
        np.testing.assert_allclose(np.hypot(parts[1], parts[2]), std, rtol=1e-5)

    def test_predictions_are_finite_and_their_std_is_positive(self, fitted, table):
        mean, std = fitted.predict([*table.X.tolist(), table.nobody], return_std=True)
        assert np.isfinite(mean).all()
        assert np.isfinite(std).all()
        assert (std > 0).all()

    def test_a_prediction_does_not_depend_on_the_others(self, fitted, table):
        X = table.X[:40]
        together = np.array(fitted.predict(X, return_std=True))
        alone = np.array([fitted.predict(X[k : k + 1], return_std=True) for k in range(40)])
        np.testing.assert_array_equal(alone[:, :, 0].T, together)
        np.testing.assert_array_equal(fitted.predict(X[::-1], return_std=True), together[:, ::-1])

    def test_unknown_ids_never_fail_and_have_a_wider_std(self, case, fitted, table):
        known = fitted.predict(table.X, return_std=True)[1].mean()
        std = {}
        for which, cells in table.unknown().items():
            mean, own = fitted.predict(cells, return_std=True)
            assert np.isfinite(mean).all()
            std[which] = own.mean()
        assert known <= min(std["first"], std["second"])
        assert known < max(std["first"], std["second"]) <= std["both"]

    def test_ids_of_another_type_are_unknown_and_not_an_error(self, fitted, table):
        rest = table.nobody[2:]
        cells = [(1, 2.5, *rest), (("a", "tuple"), b"bytes", *rest)]
        words = "of type (int or tuple|bytes or int), .* str, "
        with pytest.warns(UnknownIdsWarning, match=words) as told:
            mean = fitted.predict(cells)
        assert len(told) == 2
        np.testing.assert_array_equal(mean, fitted.predict([table.nobody] * 2))

    def test_intervals_are_in_order_in_range_and_wider_for_more_coverage(self, fitted, table):
        low, high = fitted.value_range_ or (-np.inf, np.inf)
        before = np.zeros(len(table.X))
        for coverage in (0.1, 0.5, 0.9, 0.999):
            with uncalibrated():
                bottom, top = fitted.predict_interval(table.X, coverage=coverage)
            assert (np.float32(low) <= bottom).all()
            assert (bottom <= top).all()
            assert (top <= np.float32(high)).all()
            assert (top - bottom >= before).all()
            assert (top - bottom).mean() > before.mean()
            before = top - bottom

    def test_intervals_that_nothing_held_out_could_calibrate_warn(self, case, fitted, table):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            fitted.predict_interval(table.X[:3])
        honest = fitted.calibration_ is not None or case.is_honest
        assert len(told) == 0 if honest else "call calibrate(X, y)" in str(told[0].message)

    @only("has_rows")
    @pytest.mark.parametrize("mode", [0, 1])
    def test_a_folded_row_tells_parts_and_intervals_as_its_model_does(
        self, case, fitted, table, mode
    ):
        X, y = table.X, table.y
        mine = X[:, mode] == X[0, mode]
        others = X[mine, 1 - mode].tolist()
        row = fitted.fold_in(others, y[mine], mode=mode)
        asked = [*others, "nothing"]
        mean, std = row.predict(asked, return_std=True)
        parts = row.predict_parts(asked)
        np.testing.assert_array_equal(parts[0], mean)
        np.testing.assert_allclose(np.hypot(parts[1], parts[2]), std, rtol=1e-5)
        own_std = fitted.predict(X[mine], return_std=True)[1]
        with uncalibrated():
            ends = row.predict_interval(asked, coverage=0.8)
            own_ends = fitted.predict_interval(X[mine], coverage=0.8)
        low, high = (np.float32(end) for end in fitted.value_range_ or (-np.inf, np.inf))
        free = (own_ends[0] > low) & (own_ends[1] < high)
        halves = ((own_ends[1] - own_ends[0]) / own_std)[free] / 2
        wide, narrow = 1.2 * halves.max(), halves.min() / 1.2  # stds: groups of cells differ
        for end, sign in zip(ends, (-1, 1), strict=True):
            far, near = (np.clip(mean + sign * k * std, low, high) for k in (wide, narrow))
            assert (sign * (far - end) > -1e-3).all()
            assert (sign * (end - near) > -1e-3).all()
        assert repr(row).startswith(f"NewRow({fitted.ids_[mode].name}, learned from ")
        assert type(fitted).__name__ in repr(row)
        assert len(repr(row)) < 80

    def test_score_is_the_share_of_variance_explained(self, fitted, table):
        left = np.mean((table.y - fitted.predict(table.X)) ** 2)
        assert fitted.score(table.X, table.y) == pytest.approx(1 - left / table.y.var(), rel=1e-5)

    def test_predict_refuses_what_is_no_table_of_ids(self, fitted, table):
        name, rest = fitted.ids_[1].name, table.nobody[2:]
        bad = {
            f"Row 1 of column '{name}' has no id": [table.nobody, ("ann", None, *rest)],
            "X has 1 features": [("ann",)],
            f"X has {len(rest) + 3} features": [("ann", "Alien", *rest, 5.0)],
            "Expected 2D array": ["ann", "Alien"],
            "cannot be an id": [("ann", ["Alien"], *rest)],
            "X must be a frame": 7,
        }
        for message, X in bad.items():
            for ask in (fitted.predict, fitted.predict_parts, fitted.predict_interval):
                with pytest.raises(DataError, match=message):
                    ask(X)

    def test_fit_refuses_what_it_cannot_learn_from(self, case, table):
        X, y = table.X[:2].tolist(), [1.0, 2.0]
        bad = {
            "Row 1 of y is NaN": (X, [1.0, np.nan]),
            "Row 0 of y is 'good'": (X, ["good", 1]),
            "same length; got 2 and 1": (X, [1.0]),
            "single observation": (X[:1], y[:1]),
            "given more than once": ([X[0], X[0]], y),
            "0 rows": (np.empty((0, len(table.names))), []),
            "2 or more": ([("a",), ("b",)], y),
            "Row 1 of column .* has no id": ([X[0], (None, *X[1][1:])], y),
        }
        for message, given in bad.items():
            model = case.fresh()
            with pytest.raises(DataError, match=message):
                model.fit(*given)
            with pytest.raises(NotFittedError):
                model.predict(X)

    def test_a_model_that_was_not_fitted_says_so(self, case, table, tmp_path):
        X = table.X[:2]
        asks = {name: [X] for name in ("predict", "predict_interval", "predict_parts")}
        asks |= {"calibrate": [X, [1.0, 2.0]], "save": [tmp_path / "model"], "score": [X, [1, 2]]}
        if case.has_rows:
            asks |= {"recommend": ["a"], "similar": ["a"], "row": ["a"], "fold_in": [["b"], [1.0]]}
        for name, words in asks.items():
            with pytest.raises(NotFittedError):
                getattr(case.fresh(), name)(*words)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("coverage", [0, 1, -0.1, 1.5, float("nan")])
    def test_coverage_must_be_a_share(self, fitted, table, coverage):
        with uncalibrated(), pytest.raises(DataError, match="coverage must be between 0 and 1"):
            fitted.predict_interval(table.X[:2], coverage=coverage)

    def test_every_bad_setting_is_found_by_fit_and_not_before(self, case, table):
        for name in case.model.get_params(deep=False):
            model = case.fresh().set_params(**{name: object()})
            with pytest.raises(SettingError, match=rf"\b{name} must be .*; got <object"):
                model.fit(table.X, table.y)

    def test_files_and_pickles_keep_every_bit(self, fitted, table, tmp_path):
        fitted.save(tmp_path / "model")
        others = [
            load(tmp_path / "model"),
            type(fitted).load(tmp_path / "model"),
            pickle.loads(pickle.dumps(fitted)),  # as joblib does
        ]
        for other in others:
            assert type(other) is type(fitted)
            assert_same(fitted, other, table, tmp_path)

    def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads(
        self, case, fitted, table, tmp_path
    ):
        again = case.fresh()
        if case.has("n_jobs"):
            again.set_params(n_jobs=2)
        assert_same(fitted, again.fit(table.X, table.y), table, tmp_path)

    @only("is_random")
    def test_another_seed_gives_another_model(self, case, fitted, table):
        other = case.fresh().set_params(random_state=1).fit(table.X, table.y)
        one, another = (model.predict(table.X, return_std=True) for model in (fitted, other))
        assert not np.array_equal(one, another)

    def test_a_second_fit_forgets_the_first(self, case, table):
        n = len(table.X) // 2
        first, second = table.part(slice(n)), table.part(slice(n, None))
        model = case.fresh().fit(first.X, first.y)
        levels = second.y if case.source is stars else 10 * second.y
        model.fit(second.frame(pd), levels).fit(second.X, levels)
        once = case.fresh().fit(second.X, levels)
        assert_array = np.testing.assert_array_equal
        assert_array(model.predict(table.X, True), once.predict(table.X, True))
        assert vars(model).keys() == vars(once).keys()

    def test_a_fit_that_fails_leaves_the_model_as_it_was(self, case, table):
        def fail(info, state):
            raise ArithmeticError

        n = len(table.X) // 2
        first, second = table.part(slice(n)), table.part(slice(n, None))
        model = case.fresh().fit(first.X, first.y)
        before = model.predict(table.X, return_std=True)
        with pytest.raises(DataError):
            model.fit(second.X, np.append(second.y[:-1], np.nan))
        np.testing.assert_array_equal(model.predict(table.X, return_std=True), before)
        if case.in_epochs:
            with pytest.raises(ArithmeticError):
                model.fit(second.X, second.y, callbacks=[fail])
            np.testing.assert_array_equal(model.predict(table.X, return_std=True), before)

    @only("in_epochs")
    def test_an_interrupted_fit_is_the_best_model_so_far(self, case, table, tmp_path):
        last = 12 if case.is_sampled else 2  # a posterior needs a few draws

        def interrupt(info, state):
            if info.epoch == last:
                raise KeyboardInterrupt

        model = case.fresh()
        if case.is_sampled:
            model.set_params(burn_in=0)
        told = rf"interrupted after (epoch|sweep) {last} of"
        with pytest.raises(FitInterrupted, match=told) as stop:
            model.fit(table.X, table.y, callbacks=[interrupt])
        assert stop.value.model is model
        assert model.learning_curve_["epoch"] == [*range(1, last + 1)]
        assert np.isfinite(model.predict(table.X, return_std=True)).all()
        if case.is_sampled:
            assert (model.predict_parts(table.X)[2] > 0).all()
        else:
            short = case.fresh().set_params(epochs=last, refit=False).fit(table.X, table.y)
            assert_same(short, model, table, tmp_path)

    @only("in_epochs")
    def test_a_killed_fit_goes_on_with_the_same_bits(self, case, table, tmp_path):
        X, y = table.X[:1500], table.y[:1500]
        moments = []

        def moment_of(info):
            return info.epoch, info.validation_rmse is None  # the second for a refit

        whole = case.fresh().fit(X, y, callbacks=[lambda info, _: moments.append(moment_of(info))])
        model, often = case.fresh(), {"checkpoint": tmp_path / "checkpoint", "checkpoint_epochs": 1}
        for moment in (moments[1], moments[len(moments) // 2], moments[-1]):

            def kill(info, state, moment=moment):
                if moment_of(info) == moment:
                    raise Killed

            with pytest.raises(Killed):
                model.fit(X, y, callbacks=[kill], **often)
        assert (tmp_path / "checkpoint").exists()
        model.fit(X, y, **often)
        assert not list(tmp_path.iterdir())
        assert_same(whole, model, table, tmp_path)

    @pytest.mark.filterwarnings("ignore:All .* values are 3")
    @pytest.mark.parametrize("n", [2, 3, 10])
    def test_a_handful_of_observations_is_enough(self, case, table, n):
        first, second = (np.unique(table.X[:, mode]) for mode in (0, 1))
        rest = [()] * n if len(table.names) == 2 else [(float(k),) for k in range(n)]
        X = [(first[k % 2], second[k % len(second)], *rest[k]) for k in range(n)]
        for y in (range(n), [3.0] * n):
            mean, std = case.fresh().fit(X, y).predict([*X, table.nobody], return_std=True)
            assert ((mean >= min(y)) & (mean <= max(y))).all()
            assert (np.isfinite(std) & (std > 0)).all()

    def test_calibrate_makes_the_std_right_on_average(self, fitted, table, tmp_path):
        fitted.save(tmp_path / "model")
        model = load(tmp_path / "model")
        some = table.part(slice(300))
        y = some.y + 2.0  # a world that has changed since
        model.calibrate(some.X, y)
        mean, std = model.predict(some.X, return_std=True)
        assert np.mean(((y - mean) / std) ** 2) == pytest.approx(1.0, rel=1e-3)


def public_models(package: ModuleType, base: type) -> set[type]:
    """All models that a package has: subclasses that can be made, wherever they are defined."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = [base]
    for kind in found:
        found += [new for new in kind.__subclasses__() if new not in found]
    own = f"{package.__name__}."
    return {k for k in found if k.__module__.startswith(own) and not inspect.isabstract(k)}


class OnFloats:
    """A model of two ids for scikit-learn's checks, which fit many columns of numbers.

    The column that tells most of y is the first id, all others together are the second. Nothing
    else of the model is replaced; y is as the check gives it, but where a model needs levels.
    """

    in_levels = False

    def fit(self, X: Any, y: Any) -> Any:
        X, numbers = validate_data(self, X), np.asarray(y)
        told = np.zeros(X.shape[1])
        if numbers.size == len(X):  # what does not fit together is for the model to refuse
            told = np.cov(X, numbers.ravel(), rowvar=False)[-1, :-1] / (X.std(axis=0) + 1e-9)
        self.informative_ = int(np.argmax(np.abs(told)))
        step = numbers.std() or 1.0
        super().fit(self._ids(X), np.rint(numbers / step) * step if self.in_levels else y)
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        return super().predict(self._asked_ids(X), return_std)

    @available_if(lambda self: hasattr(super(), "predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(self._asked_ids(X))

    def _asked_ids(self, X: Any) -> Any:
        if isinstance(X, Observations):  # with which a model asks itself
            return X
        check_is_fitted(self)
        return self._ids(validate_data(self, X, reset=False))

    def _ids(self, X: np.ndarray) -> list[tuple[int, tuple[int, ...]]]:
        rows = np.rint(X).astype(int).tolist()
        return [(row.pop(self.informative_), tuple(row)) for row in rows]


def on_floats(model: Any, in_levels: bool) -> Any:
    """Return a model that takes numbers for ids; its class can be pickled."""
    name = f"{type(model).__name__}OnFloats"
    own = {"__module__": __name__, "in_levels": in_levels}
    kind = globals().setdefault(name, type(name, (OnFloats, type(model)), own))
    return kind(**model.get_params(deep=False))


# What the checks ask with more than two columns of numbers. The first are asked through OnFloats;
# the others are about columns alone, so that OnFloats would answer them and not the model: the
# battery asks them with ids.
OF_MANY_COLUMNS = {
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_estimators_pickle",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_pipeline_consistency",
    "check_regressor_data_not_an_array",
    "check_regressors_int",
    "check_regressors_no_decision_function",
    "check_regressors_train",
    "check_supervised_y_2d",
}
ABOUT_COLUMNS = {
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_f_contiguous_array_estimator",
    "check_fit2d_predict1d",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
}

SKIPPED = {"check_array_api_input"}  # by scikit-learn itself, where no other library is switched on


def scikit_learn_checks(
    any_modes: Iterable[Any] = (),
    two_modes: Iterable[Any] = (),
    in_levels: Iterable[Any] = (),
    failing: Mapping[tuple[type, str], str] = MappingProxyType({}),
) -> Any:
    """Parametrize a test (estimator, check) with every check of scikit-learn, for every model.

    Models of any number of modes take the numbers of the checks for ids, as they are. Checks that
    fail are named with their model, and the reason.
    """
    asked = [pair for model in any_modes for pair in estimator_checks_generator(model)]
    for model, levels in [(m, False) for m in two_modes] + [(m, True) for m in in_levels]:
        for estimator, check in estimator_checks_generator(model):
            if check.func.__name__ not in OF_MANY_COLUMNS | ABOUT_COLUMNS:
                asked.append((estimator, check))
        for estimator, check in estimator_checks_generator(on_floats(model, levels)):
            if check.func.__name__ in OF_MANY_COLUMNS:
                asked.append((estimator, check))
    asked = [(model, check) for model, check in asked if check.func.__name__ not in SKIPPED]
    params = [_param(estimator, check, failing) for estimator, check in asked]
    return pytest.mark.parametrize(("estimator", "check"), params)


def _param(estimator: Any, check: Any, failing: Mapping[tuple[type, str], str]) -> Any:
    words = [type(estimator).__name__, check.func.__name__]
    name = "-".join(words + [f"{k}={v}" for k, v in check.keywords.items()])
    reasons = [
        why
        for (kind, failed), why in failing.items()
        if isinstance(estimator, kind) and failed == check.func.__name__
    ]
    marks = [pytest.mark.xfail(reason=why) for why in reasons]
    return pytest.param(estimator, check, id=name, marks=marks)
