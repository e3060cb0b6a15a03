"""A model changes in one step or not at all, and is asked as it is at one moment."""

import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from battery import public_models
from sklearn.base import clone

import noisewise
from noisewise import (
    BayesianFactorizer,
    DataError,
    DeviationFactorizer,
    DeviationImputer,
    ResidualFactorizer,
    noisy_ids,
    registry,
)
from noisewise.errors import unsaid, warn
from noisewise.models.average import AverageFactorizer
from noisewise.models.base import Factorizer
from noisewise.models.residual import Layer, TypeMean
from noisewise.models.rows import Rows
from noisewise.models.series import LinearInterpolator, OUSmoother
from noisewise.models.simple import ItemKNN, Popularity

QUICK = {"rank": 3, "epochs": 3, "random_state": 0, "n_jobs": 1}
SWEEPS = {"rank": 2, "sweeps": 8, "burn_in": 4}
TURNS = 10


@dataclass
class Case:
    """A model, and two worlds of different sizes to fit it to."""

    make: Callable[[], Any]
    first: tuple[Any, ...]
    second: tuple[Any, ...]
    asked: Any
    needs: str | None = None  # a package

    @classmethod
    def of(cls, model, worlds, needs=None):
        return cls(partial(clone, model), *worlds, worlds[0][0], needs)

    def ask(self, model):
        if isinstance(model, DeviationImputer):
            return np.array(model.transform(self.asked, return_std=True))
        return np.array(model.predict(self.asked, return_std=True))


def stars(n_users, n_items, seed):
    rng = np.random.default_rng(seed)
    cells = np.array(list(np.ndindex(n_users, n_items)))
    cells = cells[rng.permutation(len(cells))[: len(cells) * 2 // 3]]
    return cells, rng.integers(1, 6, len(cells)).astype(float)


def readings(n_places, n_hours, seed):
    rng = np.random.default_rng(seed)
    cells = np.array(list(np.ndindex(n_places, 2, n_hours)))
    cells = cells[rng.permutation(len(cells))[: len(cells) * 2 // 3]]
    y = np.sin(cells[:, 2] / 5) + cells[:, 0] + 10.0 * cells[:, 1] + rng.normal(0, 0.1, len(cells))
    return [(f"p{i}", f"k{j}", t) for i, j, t in cells.tolist()], y


def tables():
    """Two tables with holes."""
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(2, 40, 3))
    tables[:, 5:9, 1] = np.nan
    return (tables[0],), (tables[1][:30],)


RATINGS = stars(30, 20, 0), stars(9, 8, 1)
READINGS = readings(4, 40, 0), readings(3, 25, 1)


def of_sensors(name, settings, coordinates=None):
    """Return the case of a sensor model by its name."""
    shared = {"time": -1, "sensor": 1, "random_state": 0, "n_jobs": 1}
    build = partial(registry.build, "sensors", name, settings, coordinates=coordinates, **shared)
    return Case(build, *READINGS, READINGS[0][0])


CASES = {
    "deviation": Case.of(DeviationFactorizer(deviation_rank=1, **QUICK), RATINGS),
    "bayes of ratings": Case.of(BayesianFactorizer(random_state=0, n_jobs=1, **SWEEPS), RATINGS),
    "auto": of_sensors("auto", {"candidates": ("linear", "ou")}),
    "bayes": of_sensors("bayes", SWEEPS),
    "fast": of_sensors("fast", SWEEPS),
    "ou": of_sensors("ou", {}),
    "linear": of_sensors("linear", {}),
    "dtf": of_sensors("dtf", {"rank": 2, "epochs": 3}),
    "ptf": of_sensors("ptf", {"rank": 2, "epochs": 3}),
    "type mean": Case.of(TypeMean(), READINGS),
    "nearest": of_sensors("nearest", {}),
    "average": Case.of(
        AverageFactorizer((("linear", LinearInterpolator()), ("ou", OUSmoother()))), READINGS
    ),
    "popularity": Case.of(Popularity(), RATINGS),
    "item-knn": Case.of(ItemKNN(), RATINGS),
    "imputer": Case.of(DeviationImputer("ou"), tables()),
}


@contextmanager
def failing_at(kind, number, monkeypatch):
    """Let the assignment of that number, of all attributes of a kind of model, fail."""
    seen = []

    def assign(model, name, value):
        seen.append(name)
        if len(seen) == number:
            raise ArithmeticError(name)
        object.__setattr__(model, name, value)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "__setattr__", assign)
        yield seen


def answers(case, model):
    """All that can be asked of a model, as things that can be compared."""
    told = [case.ask(model).tobytes()]
    if isinstance(model, Rows):
        told.append(repr(model.recommend_many([1, 2, 29])))
        told.append(repr(model.similar(1)))
        told.append(repr(model.fold_in([1, 2], [5.0, 3.0]).predict([1, 7], return_std=True)))
        told.append(repr(noisy_ids(model)))
    return told


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
class Changing:
    """What every model must do; a suite inherits it and says which models it has."""

    cases: ClassVar[dict[str, Case]]

    def pytest_generate_tests(self, metafunc):
        metafunc.parametrize("case", self.cases.values(), ids=self.cases)

    @pytest.fixture(autouse=True)
    def its_package(self, case):
        if case.needs is not None:
            pytest.importorskip(case.needs)

    @pytest.fixture
    def hasty(self):
        """Let threads take turns as often as they can."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(before)

    def test_a_fit_that_fails_at_any_point_leaves_the_model_as_it_was(self, case, monkeypatch):
        model = case.make().fit(*case.first)
        before, attributes = case.ask(model), dict(vars(model))
        with failing_at(type(model), 0, monkeypatch) as seen:
            clone(model).fit(*case.second)
        assigned = len(seen) - len(model.get_params(deep=False))  # clone has assigned its settings
        assert assigned > 1
        for number in sorted({1, 2, 3, assigned // 2, assigned - 1, assigned}):
            with (
                failing_at(type(model), number, monkeypatch),
                pytest.raises(ArithmeticError),
            ):
                model.fit(*case.second)
            assert vars(model) == attributes
            np.testing.assert_array_equal(case.ask(model), before)
        assert model.fit(*case.second) is model
        fresh = case.make().fit(*case.second)
        if not isinstance(model, DeviationImputer):  # whose second table has other rows
            np.testing.assert_array_equal(case.ask(model), case.ask(fresh))

    def test_asking_while_another_thread_fits_gives_the_answer_of_one_fit(self, case, hasty):
        """A large fit and a small one in turns: rows of the one are out of bounds in the other."""
        worlds = case.first, case.second
        right = [answers(case, case.make().fit(*world)) for world in worlds]
        model, done, wrong, asked = case.make().fit(*case.first), threading.Event(), [], []

        def ask():
            while not done.is_set():
                try:
                    told = answers(case, model)
                except Exception as error:
                    wrong.append(error)
                    continue
                asked.append(1)
                wrong.extend(
                    k for k, one in enumerate(told) if one not in (right[0][k], right[1][k])
                )

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for turn in range(TURNS):
            model.fit(*worlds[1 - turn % 2])
        done.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert asked


class TestEveryModel(Changing):
    cases = CASES


def test_no_model_is_forgotten():
    tried = {type(case.make()) for case in CASES.values()}
    assert tried == public_models(noisewise, Factorizer) | {DeviationImputer}


def test_a_refit_that_fails_leaves_factors_and_what_was_seen_together(monkeypatch):
    model = DeviationFactorizer(deviation_rank=1, **QUICK).fit(*stars(30, 20, 0))
    best, learn = model.recommend(3), DeviationFactorizer._learn

    def fail_in_refit(self, observations, held_out, plan, seed):
        if plan.label == "refit":
            raise ArithmeticError
        return learn(self, observations, held_out, plan, seed)

    monkeypatch.setattr(DeviationFactorizer, "_learn", fail_in_refit)
    with pytest.raises(ArithmeticError):
        model.fit(*stars(9, 8, 1))
    assert model.recommend(3) == best


def test_a_partial_fit_that_fails_leaves_the_model_as_it_was(monkeypatch):
    first, second = stars(30, 20, 0), stars(40, 8, 1)
    model = DeviationFactorizer(deviation_rank=1, duplicates="last", **QUICK).fit(*first)
    before, attributes = model.predict(first[0], return_std=True), dict(vars(model))

    def fail(*given):
        raise ArithmeticError

    monkeypatch.setattr(DeviationFactorizer, "_describe", fail)
    with pytest.raises(ArithmeticError):
        model.partial_fit(*second)
    assert vars(model) == attributes
    np.testing.assert_array_equal(model.predict(first[0], return_std=True), before)


def test_a_calibration_that_fails_leaves_the_old_one(monkeypatch):
    X, y = stars(30, 20, 0)
    model = DeviationFactorizer(deviation_rank=1, **QUICK).fit(X, y)
    old = model.calibration_
    assert old is not None

    def fail(*given):
        raise DataError("no")

    monkeypatch.setattr("noisewise.models.base.Calibration.measure", fail)
    with pytest.raises(DataError):
        model.calibrate(X, y)
    assert model.calibration_ is old


def test_settings_that_change_during_a_fit_stay_changed():
    model = DeviationFactorizer(deviation_rank=1, **QUICK)

    def change(info, state):
        model.set_params(unknown=2.5)
        model.note = "mine"

    model.fit(*stars(9, 8, 1), callbacks=[change])
    assert (model.unknown, model.note) == (2.5, "mine")
    assert model.predict([(9_999, 9_999)]).item() == 2.5


def test_a_folded_row_stays_with_the_fit_it_was_made_from():
    model = DeviationFactorizer(deviation_rank=1, **QUICK).fit(*stars(30, 20, 0))
    row = model.fold_in([1, 2, 19], [5.0, 3.0, 1.0])
    before = row.predict(list(range(20)), return_std=True)
    model.fit(*stars(9, 8, 1))
    np.testing.assert_array_equal(row.predict(list(range(20)), return_std=True), before)


def test_a_warning_points_at_the_line_that_asked():
    model = DeviationFactorizer(deviation_rank=1, patience=None, **QUICK).fit(*stars(9, 8, 1))
    with pytest.warns(UserWarning, match="not calibrated") as caught:
        model.predict_interval([(1, 2)])
    assert caught[0].filename == __file__


def test_fits_that_overlap_in_threads_leave_the_filters_of_warnings_as_they_were(monkeypatch):
    """The first is inside when the second comes, and leaves before it."""
    rows = [(place, t, place + np.sin(t / 9)) for place in range(4) for t in range(30)]
    model = ResidualFactorizer(DeviationFactorizer(**QUICK), base="type", validation_fraction=0.01)
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))
    warnings.resetwarnings()  # for the rest of this test
    learn, before = Layer.learn, list(warnings.filters)

    def slowly(base, factorizer, *given):
        if threading.current_thread() is threads[0]:
            first_is_in.set()
            second_is_in.wait(60)
        else:
            second_is_in.set()
            first_is_out.wait(60)
        return learn(base, factorizer, *given)

    monkeypatch.setattr(Layer, "learn", slowly)
    threads = [threading.Thread(target=clone(model).fit, args=[rows]) for _ in range(2)]
    threads[0].start()
    assert first_is_in.wait(60)
    threads[1].start()
    threads[0].join()
    first_is_out.set()
    threads[1].join()
    assert warnings.filters == before


def test_a_warning_is_left_unsaid_in_one_thread_alone():
    with unsaid("Predictions"), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        warn("Predictions have not settled.")
        warn("Nothing was held out.")
        thread = threading.Thread(target=warn, args=["Predictions of another thread."])
        thread.start()
        thread.join()
    told = [str(one.message) for one in heard]
    assert told == ["Nothing was held out.", "Predictions of another thread."]
