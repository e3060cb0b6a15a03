"""Joint draws of holes for multiple imputation, and a limit on holes in a row that are filled."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from noisewise import DeviationImputer, SettingError, TemporalFactorizer
from noisewise.cli import app

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "multiple-imputation.md"
SHORT = {"rank": 2, "sweeps": 40, "burn_in": 10, "tolerance": None}


def wanderers(n=160, seed=0):
    rng = np.random.default_rng(seed)
    common, own = np.zeros(n), np.zeros((n, 3))
    for k in range(1, n):
        common[k] = 0.9 * common[k - 1] + 0.44 * rng.normal()
        own[k] = 0.9 * own[k - 1] + 0.2 * rng.normal(size=3)
    whole = 10 + common[:, None] * [1.0, 1.0, -1.0] + own + 0.1 * rng.normal(size=(n, 3))
    holed = whole.copy()
    holed[60:75] = np.nan  # nobody read anything
    holed[100:110, 0] = np.nan
    holed[rng.random(whole.shape) < 0.05] = np.nan
    return holed


HOLED = wanderers()


def bayes(**more):
    return DeviationImputer("bayes", settings=SHORT, random_state=0, n_jobs=1, **more)


@pytest.fixture(scope="module")
def fitted():
    return bayes().fit(HOLED)


def test_draws_have_the_mean_and_std_that_transform_gives(fitted):
    mean, std = fitted.transform(HOLED, return_std=True)
    tables = np.array(fitted.sample(HOLED, 150, random_state=1))
    holes = np.isnan(HOLED)
    np.testing.assert_array_equal(tables[:, ~holes], np.tile(HOLED[~holes], (150, 1)))
    off = (tables.mean(axis=0) - mean)[holes] / std[holes]
    assert np.abs(off).mean() < 0.12
    ratio = tables.std(axis=0)[holes] / std[holes]
    assert 0.85 < np.median(ratio) < 1.15


def test_holes_of_a_gap_and_of_series_that_share_something_go_together(fitted):
    tables = np.array(fitted.sample(HOLED, 150, random_state=1))
    gap = tables[:, 60:75]
    neighbours = np.corrcoef(gap[:, 7, 0], gap[:, 8, 0])[0, 1]
    far = np.corrcoef(gap[:, 2, 0], gap[:, 13, 0])[0, 1]
    assert neighbours > 0.5
    assert far < neighbours
    assert np.corrcoef(gap[:, 7, 0], gap[:, 7, 1])[0, 1] > 0.3
    assert np.corrcoef(gap[:, 7, 0], gap[:, 7, 2])[0, 1] < -0.3


def test_the_same_seed_gives_the_same_tables_also_after_load(fitted, tmp_path):
    first = fitted.sample(HOLED, 3, random_state=5)
    np.testing.assert_array_equal(first, fitted.sample(HOLED, 3, random_state=5))
    assert (first[0] != fitted.sample(HOLED, 3, random_state=6)[0]).any()
    fitted.save(tmp_path / "it.nw")
    loaded = DeviationImputer.load(tmp_path / "it.nw").set_params(n_jobs=1)
    np.testing.assert_array_equal(loaded.sample(HOLED, 3, random_state=5), first)


@pytest.mark.parametrize("kernel", ["ou", "matern32"])
@pytest.mark.parametrize("more", [{}, {"tails": "heavy", "seasons": [24.0]}])
def test_every_kind_of_draw_can_be_sampled(kernel, more):
    settings = SHORT | {"kernel": kernel} | more
    model = DeviationImputer("bayes", settings=settings, random_state=0, n_jobs=1).fit(HOLED[:140])
    std = model.transform(HOLED, return_std=True)[1]
    tables = np.array(model.sample(HOLED, 60, random_state=1))
    assert np.isfinite(tables).all()
    holes = np.isnan(HOLED)
    assert 0.7 < np.median(tables.std(axis=0)[holes] / std[holes]) < 1.3


def test_other_methods_borrow_draws(monkeypatch):
    fits = []
    fit = TemporalFactorizer.fit

    def counted(self, X, y=None):
        fits.append(1)
        return fit(self.set_params(**SHORT), X, y)

    monkeypatch.setattr(TemporalFactorizer, "fit", counted)
    model = DeviationImputer("linear", n_jobs=1).fit(HOLED[:150])
    mean, std = model.transform(HOLED, return_std=True)
    tables = np.array(model.sample(HOLED, 100, random_state=0))
    model.update(HOLED[150:]).sample(HOLED, 2, random_state=0)
    assert len(fits) == 1
    holes = np.isnan(HOLED)
    assert np.abs((tables.mean(axis=0) - mean)[holes] / std[holes]).mean() < 0.2
    assert 0.7 < np.median(tables.std(axis=0)[holes] / std[holes]) < 1.3


def test_frames_come_back_as_frames_and_counts_as_counts():
    counts = pd.DataFrame(np.random.default_rng(0).poisson(4.0, (80, 2)).astype(float))
    counts.iloc[::7, 0] = np.nan
    tables = bayes(whole=True).fit(counts).sample(counts, 2, random_state=0)
    assert all(isinstance(one, pd.DataFrame) for one in tables)
    values = np.array(tables)
    assert (values >= 0).all()
    assert (values == np.rint(values)).all()


@pytest.mark.parametrize("n", [0, -1, 2.5, True])
def test_n_must_be_a_whole_number(fitted, n):
    with pytest.raises(SettingError, match="n must be a whole number, 1 or more"):
        fitted.sample(HOLED, n)


def test_the_guide_pools_a_regression_and_holds_the_slope():
    code = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S))
    names = {}
    exec(code, names)
    assert names["low"] < -2 < names["high"]
    assert names["between"] > 0


def test_a_limit_fills_the_first_holes_of_a_run_as_pandas_does():
    frame = pd.DataFrame({"a": np.arange(1.0, 9), "b": np.arange(1.0, 9)})
    frame.loc[[1, 2, 3, 5, 7], "a"] = np.nan
    frame.loc[[0, 1], "b"] = np.nan
    model = DeviationImputer("linear", limit=2, n_jobs=1).fit(frame)
    filled, std = model.transform(frame, return_std=True)
    np.testing.assert_array_equal(filled["a"].isna(), frame["a"].ffill(limit=2).isna())
    assert filled["a"].isna().tolist() == [False, False, False, True, *[False] * 4]
    assert not filled["b"].isna().any()
    assert std["a"].isna().tolist() == filled["a"].isna().tolist()
    low, _ = model.interval(frame)
    assert low["a"].isna().sum() == 1
    long = frame.rename_axis("t").reset_index().melt(id_vars="t", var_name="s")
    shuffled = long.sample(frac=1.0, random_state=0)
    model = DeviationImputer("linear", time="t", sensor="s", value="value", limit=1, n_jobs=1)
    again = model.fit(shuffled).transform(shuffled).sort_values(["s", "t"])
    assert np.flatnonzero(again["value"].isna()).tolist() == [2, 3, 9]


@pytest.mark.parametrize("limit", [0, -1, 1.5, "2"])
def test_a_limit_must_be_a_whole_number(limit):
    with pytest.raises(SettingError, match="limit must be"):
        DeviationImputer("linear", limit=limit).fit(HOLED)


def test_a_limit_on_the_command_line(tmp_path):
    frame = pd.DataFrame({"t": range(20), "a": np.arange(20.0), "b": np.arange(20.0)})
    frame.loc[5:9, "a"] = np.nan
    frame.to_csv(tmp_path / "in.csv", index=False)
    out = tmp_path / "out.csv"
    words = ["impute", str(tmp_path / "in.csv"), "--out", str(out), "--method", "linear"]
    result = CliRunner().invoke(app, [*words, "--limit", "2"])
    assert result.exit_code == 0, result.output
    assert pd.read_csv(out)["a"].isna().sum() == 3
