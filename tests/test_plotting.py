"""An imputer draws series of a table: readings, what was filled in, and what is odd."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib")

from matplotlib import pyplot

from noisewise import DeviationImputer, SettingError

pyplot.switch_backend("Agg")

HOURS = pd.date_range("2024-05-01", periods=120, freq="h")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    day = np.sin(np.arange(120) / 4)[:, None]
    table = pd.DataFrame(20 + day + rng.normal(0, 0.1, (120, 4)), HOURS, ["a", "b", "$c$", "d"])
    table.iloc[30:60, 2] = np.nan
    table.iloc[30:40, 1] = np.nan
    table.iloc[90, 2] = 99.0
    return table


@pytest.fixture(scope="module")
def imputer(frame):
    return DeviationImputer("linear").fit(frame)


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def labels(axes):
    return axes.get_legend_handles_labels()[1]


def test_the_longest_gaps_come_first_with_what_is_odd(frame, imputer):
    axes = imputer.plot(frame, most=2)
    assert [one.get_title() for one in axes] == ["$c$", "b"]
    assert labels(axes[0]) == ["holds 90 %", "filled", "read", "spike"]
    assert labels(axes[1]) == ["holds 90 %", "filled", "read"]
    axes[0].figure.savefig("/dev/null", format="png")
    assert "spike" not in labels(imputer.plot(frame, ["$c$"], anomalies=False)[0])


def test_series_are_drawn_by_name_in_the_order_given(frame, imputer):
    axes = imputer.plot(frame, ["d", "a"], coverage=0.5)
    assert [one.get_title() for one in axes] == ["d", "a"]
    assert labels(axes[0]) == ["read"]
    for wrong, words in (
        (["e"], "series must be some of a, b"),
        ([], "must name one series or more"),
    ):
        with pytest.raises(SettingError, match=words):
            imputer.plot(frame, wrong)
    for most in (0, "x", 1.5):
        with pytest.raises(SettingError, match="most must be a whole number, 1 or more; got"):
            imputer.plot(frame, most=most)


def test_a_name_with_two_dollar_signs_is_no_formula(frame):
    renamed = frame.rename(columns={"a": r"$\cost$"})
    (axes,) = DeviationImputer("linear").fit(renamed).plot(renamed, [r"$\cost$"])
    axes.figure.savefig("/dev/null", format="png")
    assert not axes.title.get_parse_math()


def test_arrays_long_tables_and_single_series_can_be_drawn(frame):
    values = frame.to_numpy()
    assert len(DeviationImputer("linear").fit(values).plot(values)) == 4
    column = frame["b"]
    assert len(DeviationImputer("linear").fit(column).plot(column)) == 1
    long = frame.rename_axis("when").reset_index().melt("when", var_name="who")
    imputer = DeviationImputer("linear", time="when", sensor="who", value="value").fit(long)
    assert [one.get_title() for one in imputer.plot(long, most=1)] == ["$c$"]


def test_without_matplotlib_a_sentence_says_what_to_install():
    code = """
import sys
sys.modules["matplotlib"] = None
import numpy as np
from noisewise import DeviationImputer, MissingExtraError
table = np.arange(20.0).reshape(10, 2)
try:
    DeviationImputer("linear").fit(table).plot(table)
except MissingExtraError as error:
    assert "noisewise[plot]" in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)
