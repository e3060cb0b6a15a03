"""Figures and page of series: what was read, what was filled, the noisiest first."""

import re
from dataclasses import replace

import numpy as np
import pytest
from test_report import NASTY, Elements

from noisewise.errors import DataError, SettingError
from noisewise.report.series import (
    COLUMNS,
    Trace,
    filled_series,
    in_columns,
    noise_parts,
    series_page,
)


def trace(name="hall heat", n=50, gap=slice(10, 20), dates=False):
    time = np.arange(n) * (3600.0 if dates else 1.0)
    value = np.sin(np.arange(n) / 5)
    mean, std = np.full(n, np.nan), np.full(n, np.nan)
    mean[gap], std[gap] = value[gap], 0.1
    value[gap] = np.nan
    return Trace(name, time, value, mean, std, dates)


def sensor(name, noise, kind="heat", **options):
    parts = {"white": noise, "drift": 0.0, "white_std": 0.25, "drift_std": 0.5}
    return replace(trace(name, **options), sensor=kind, noise=noise, **parts)


def test_every_reading_of_a_short_series_has_a_column_of_its_own():
    one = trace()
    steps = in_columns(one)
    np.testing.assert_array_equal(steps.lowest, one.value)
    np.testing.assert_array_equal(steps.highest, one.value)
    np.testing.assert_array_equal(steps.mean, one.mean)
    assert len(steps.edges) == 51


def test_a_long_series_keeps_its_extremes():
    one = trace(n=5000, gap=slice(0, 0))
    one.value[1234] = 99.0
    one.value[4321] = -99.0
    steps = in_columns(one)
    assert len(steps.lowest) == COLUMNS
    assert (np.nanmax(steps.highest), np.nanmin(steps.lowest)) == (99.0, -99.0)
    assert np.isnan(steps.mean).all()


def test_the_band_holds_as_much_as_is_promised():
    steps = in_columns(trace(), coverage=0.9)
    gap = slice(10, 20)
    np.testing.assert_allclose(steps.high[gap] - steps.mean[gap], 1.6449 * 0.1, rtol=1e-3)
    np.testing.assert_allclose(steps.mean[gap] - steps.low[gap], 1.6449 * 0.1, rtol=1e-3)
    assert np.isnan(steps.low[:10]).all()


def test_a_series_at_irregular_times_has_empty_columns_where_nothing_was():
    one = trace(n=4, gap=slice(0, 0))
    one = Trace("x", np.array([0.0, 1.0, 2.0, 100.0]), one.value, one.mean, one.std)
    assert np.isnan(in_columns(one).lowest).sum() == 2


def test_a_series_of_one_reading_can_be_drawn():
    assert filled_series(trace(n=1, gap=slice(0, 0))).svg().startswith("<svg")


@pytest.mark.parametrize("dates", [True, False])
def test_a_series_is_drawn_with_its_gaps(dates):
    drawing = filled_series(trace(dates=dates))
    texts = Elements(drawing.svg()).texts
    assert {"hall heat", "read", "filled", "holds 90 %"} <= set(texts)
    assert "40 of 50 were read, 10 filled in" in drawing.alt
    assert any("1970" in text for text in texts) == dates


def test_a_series_without_gaps_needs_no_word_of_them():
    texts = Elements(filled_series(trace(gap=slice(0, 0))).svg()).texts
    assert "filled" not in texts


def test_a_figure_of_series_takes_the_colours_of_the_page():
    svg = filled_series(trace()).svg()
    assert "currentColor" in svg
    assert "var(--blue" in svg
    assert "http" not in svg


def test_parts_of_noise_are_two_bars_each():
    table = {"series": np.array(["a", "b"]), "white": np.array([5.0, -1.0])}
    drawing = noise_parts(table | {"drift": np.array([0.5, 2.0])})
    assert "a 5.0 and 0.5, b 0.0 and 2.0" in drawing.alt
    assert {"white noise", "drift", "a", "b"} <= set(Elements(drawing.svg()).texts)


def test_what_cannot_be_drawn_is_refused():
    one = trace()
    with pytest.raises(DataError, match="'x' needs one value, mean and std"):
        in_columns(Trace("x", one.time[:-1], one.value, one.mean, one.std))
    with pytest.raises(DataError, match="a row or more; got 0"):
        noise_parts({"series": np.array([]), "white": np.array([]), "drift": np.array([])})
    with pytest.raises(SettingError, match="1 series or more; got 0"):
        series_page("x", [sensor("a", 1.0)], most=0)


@pytest.fixture(scope="module")
def html():
    sensors = [sensor("calm", 0.1), sensor("bad", 9.0), sensor("odd", 4.0, kind=NASTY)]
    unread = replace(trace("unread"), sensor="heat")
    return series_page("A page", [unread, *sensors], lead="Lead.", foot="Foot.", most=3)


def test_the_noisiest_series_come_first_and_the_rest_is_counted(html):
    drawn = [svg["aria-label"] for svg in Elements(html).named("svg")]
    assert [label.split(":")[0] for label in drawn[1:]] == ["bad", "odd", "calm"]
    assert "1 less noisy series are left out" in html


def test_the_page_sums_up_every_type(html):
    assert '<th scope="row">heat</th><td>3</td><td>120</td><td>30</td><td>20.0 %</td>' in html
    assert '<th scope="row">all</th><td>4</td><td>160</td><td>40</td><td>20.0 %</td>' in html


def test_white_noise_and_drift_stand_beside_each_other(html):
    assert (
        '<th scope="row">bad</th><td>9.0</td><td>9.0</td><td>0.0</td><td>0.25</td><td>0.5</td>'
        in html
    )
    assert "Noise 9.0: white noise 0.25, drift 0.5." in html


def test_the_page_of_series_needs_nothing_else(html):
    elements = Elements(html)
    assert not re.search(r"https?://|@import|url\(['\"]?[^#'\"]", html)
    assert not {"script", "link", "iframe", "img", "object"} & {tag for tag, _ in elements.tags}


def test_a_series_that_was_never_read_comes_last_without_a_number():
    unread = replace(trace("unread"), sensor="heat")
    html = series_page("A page", [unread, sensor("calm", 0.1)])
    assert '<th scope="row">unread</th><td>\N{EN DASH}</td>' in html
    drawn = [svg["aria-label"].split(":")[0] for svg in Elements(html).named("svg")]
    assert drawn[-1] == "unread"


def test_a_page_of_many_types_sums_them_up():
    html = series_page(
        "A page", [sensor(f"s{k}", 1.0, kind=f"type {k}") for k in range(20)], most=1
    )
    assert '<th scope="row">all</th><td>20</td>' in html
    assert '<th scope="row">type 3</th>' not in html
