"""What people see: no text that a terminal obeys, no insides of objects, bars as they are asked."""

import inspect
import io
import os
import pickle
import sys
import types

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone

import noisewise
from noisewise import DataError, DeviationFactorizer, errors, observe
from noisewise.calibration import Calibration
from noisewise.errors import brief, printable, progress
from noisewise.models.residual import ResidualFactorizer
from noisewise.report.page import Section, Table, page

NASTY = "\x1b[31mred\x07\u202eevil\u2066\x9b2J\r\n\ud800"
UNSAFE = [c for c in NASTY if not c.isprintable()]

MODELS = {
    name: kind
    for name, kind in ((name, getattr(noisewise, name)) for name in noisewise.__all__)
    if isinstance(kind, type)
    and issubclass(kind, BaseEstimator)
    and "verbose" in inspect.signature(kind).parameters
}
QUICK = {"rank": 2, "epochs": 2, "sweeps": 6, "burn_in": 2, "random_state": 0, "n_jobs": 1}
INSIDE = DeviationFactorizer(2, deviation_rank=0, epochs=2)


class Terminal(io.StringIO):
    """A terminal that remembers what it was told."""

    def isatty(self):
        return True


def quick(name):
    model = MODELS[name]()
    known = model.get_params()
    model.set_params(**{k: v for k, v in QUICK.items() if k in known})
    if name == "AutoFactorizer":
        model.set_params(candidates=[("quick", INSIDE)])
    if name == "ResidualFactorizer":
        model.set_params(factorizer=INSIDE)
    if name == "DeviationImputer":
        model.set_params(method="bayes", settings={"sweeps": 6, "burn_in": 2, "rank": 2})
    return model


def learned(model):
    """Fit a model to a small table of the kind that it takes."""
    rng = np.random.default_rng(0)
    if isinstance(model, noisewise.DeviationImputer):
        table = rng.normal(size=(30, 3))
        table[4:6, 1] = np.nan
        return model.fit(table)
    cells = rng.permutation(20 * 15)[:200]
    stars = rng.integers(1, 6, 200)
    return model.fit(np.column_stack([cells // 15, cells % 15]), stars)


def test_text_for_a_terminal_has_nothing_that_it_obeys():
    shown = printable(NASTY)
    assert shown == r"\x1b[31mred\x07\u202eevil\u2066\x9b2J\r\n\ud800"
    assert shown.isprintable()
    assert printable("a\nb\x1b", keep="\n") == "a\nb\\x1b"


@pytest.mark.parametrize("text", ["Amélie", "千と千尋", "مرحبا", "👩\u200d🚀", "a b\\n", ""])
def test_text_of_all_languages_stays_as_it_is(text):
    assert printable(text) == text


def test_errors_show_names_of_columns_safely():
    with pytest.raises(DataError) as caught:
        observe(pd.DataFrame({"user": ["a", None], NASTY[:-1]: ["b", "c"], "y": [1.0, 2.0]}))
    assert str(caught.value).isprintable()
    error = DataError(f"Column {NASTY} is broken.")
    assert str(error) == f"Column {printable(NASTY)} is broken."
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_warnings_show_names_of_columns_safely():
    name = NASTY[:-1]
    rows = [(f"u{k % 8}", f"i{k // 8}", k % 5) for k in range(64)]
    frame = pd.DataFrame(rows, columns=[name, "item", "rating"])
    model = DeviationFactorizer(rank=2, epochs=2, random_state=0, n_jobs=1)
    model.fit(frame[[name, "item"]], frame["rating"])
    with pytest.warns(noisewise.errors.UnknownIdsWarning) as caught:
        model.predict(pd.DataFrame({name: [f"x{k}" for k in range(64)], "item": "i1"}))
    assert printable(name) in str(caught[0].message)
    assert str(caught[0].message).isprintable()


def test_a_page_shows_ids_safely():
    html = page(NASTY, [Section(NASTY, [Table([NASTY], [["<b>" + NASTY]])])])
    assert "<b>" not in html
    assert not any(c in html.replace("\n", "") for c in UNSAFE)


def test_objects_are_shown_in_a_line():
    model = learned(DeviationFactorizer(rank=2, epochs=2, random_state=0, n_jobs=1))
    for thing in (model.factors_, model.seen_, model.calibration_, *model.ids_):
        assert len(repr(thing)) < 300
        assert "\n" not in repr(thing)
    assert repr(model.seen_) == "Seen(starts=<21 int64>, columns=<200 int32>)"
    assert "scores=<20 float64>" in repr(model.calibration_)
    assert repr(observe([("a", "b", 1.0), ("c", "b", 2.0)]).ids[0]) == "Ids(2 user)"


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
@pytest.mark.parametrize("name", [name for name in MODELS if name != "DeviationImputer"])
def test_what_a_fitted_model_has_is_shown_in_a_few_lines(name):
    model = learned(quick(name))
    for attribute, value in vars(model).items():
        if attribute.endswith("_") and type(value).__module__.startswith("noisewise."):
            assert len(repr(value)) < 400, attribute


def test_a_brief_object_has_shapes_types_and_short_entries():
    calibration = Calibration(2.0, np.arange(3.0), 3)
    assert (
        brief(calibration)
        == "Calibration(scale=2.0, scores=<3 float64>, n=3, shape=None, sets=None, strangers=None)"
    )
    assert repr(calibration) == brief(calibration)


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
@pytest.mark.parametrize("name", MODELS)
def test_verbose_shows_a_bar_or_none_and_changes_nothing_else(name, capsys, tmp_path):
    model = quick(name)
    assert model.verbose is None
    files = []
    for verbose in (True, False, None):
        capsys.readouterr()
        fitted = learned(clone(model).set_params(verbose=verbose))
        shown = capsys.readouterr()
        assert shown.out == ""
        assert ("%" in shown.err) is (verbose is True)
        assert fitted.get_params()["verbose"] is verbose
        fitted.save(tmp_path / "model")
        loaded = type(fitted).load(tmp_path / "model")
        assert loaded.verbose is None
        files.append(loaded)
    if hasattr(model, "predict"):
        one, other, third = (file.predict([(3, 4), (1, 2)], return_std=True) for file in files)
        np.testing.assert_array_equal(other, one)
        np.testing.assert_array_equal(third, one)


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
def test_the_model_that_judges_sensors_shows_a_bar_if_asked(capsys):
    rows = [(place, hour, np.sin(hour) + place) for place in range(3) for hour in range(20)]
    for verbose in (True, False):
        noisewise.noise_model(rows, random_state=0, n_jobs=1, verbose=verbose)
        assert ("%" in capsys.readouterr().err) is verbose


def test_verbose_must_be_true_false_or_none():
    with pytest.raises(noisewise.SettingError, match="verbose must be one of True, False, None"):
        learned(DeviationFactorizer(verbose="loud"))


def test_a_model_within_another_keeps_its_own_bar_unless_told(capsys):
    inner = clone(INSIDE).set_params(verbose=True)
    for verbose, shows in ((None, True), (False, False)):
        learned(ResidualFactorizer(inner, base="type", random_state=0, verbose=verbose))
        assert ("%" in capsys.readouterr().err) is shows


def test_a_checkpoint_goes_on_whatever_bars_are_shown(tmp_path, capsys):
    class Killed(Exception):
        pass

    def kill(info, state):
        if info.epoch == 2:
            raise Killed

    settings = {"rank": 2, "epochs": 4, "patience": None, "random_state": 0, "n_jobs": 1}
    table = [(k % 7, k // 7, float(k % 5)) for k in range(60)]
    model = DeviationFactorizer(**settings, verbose=True)
    with pytest.raises(Killed):
        model.fit(table, callbacks=[kill], checkpoint=tmp_path / "kept")
    model.set_params(verbose=False).fit(table, checkpoint=tmp_path / "kept")
    assert model.learning_curve_["epoch"] == [1, 2, 3, 4]


def bars(monkeypatch, *, stream, kernel=False, asked=None, told=None):
    """What a bar of two steps writes, where and as it is asked for."""
    shell = types.SimpleNamespace(kernel=None) if kernel else None
    fake = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(errors, "show_progress", told)
    if "TQDM_DISABLE" in os.environ:
        pytest.skip("TQDM_DISABLE silences bars.")
    for _ in progress(range(2), desc="\x1b[2Jwork", verbose=asked):
        pass
    return stream.getvalue()


def test_a_bar_shows_on_terminals_and_in_notebooks(monkeypatch):
    assert r"\x1b[2Jwork: 100%" in bars(monkeypatch, stream=Terminal())
    assert "work: 100%" in bars(monkeypatch, stream=io.StringIO(), kernel=True)
    assert bars(monkeypatch, stream=io.StringIO()) == ""


def test_what_is_asked_of_a_bar_comes_before_what_the_command_line_was_told(monkeypatch):
    assert bars(monkeypatch, stream=Terminal(), told=False) == ""
    assert bars(monkeypatch, stream=Terminal(), asked=False) == ""
    assert "work" in bars(monkeypatch, stream=io.StringIO(), told=True)
    assert "work" in bars(monkeypatch, stream=io.StringIO(), asked=True, told=False)
