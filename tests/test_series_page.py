"""Figures and page of series: what was read, what was filled, the longest gaps first."""

import base64
import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from test_report import NASTY, Elements

from noisewise.errors import DataError, SettingError
from noisewise.report.charts import Odd, Trace, kept
from noisewise.report.series import COLUMNS, in_columns, noise_parts, series_page


def trace(name="hall heat", n=50, gap=slice(10, 20), dates=False):
    time = np.arange(n) * (3600.0 if dates else 1.0)
    value = np.sin(np.arange(n) / 5)
    mean = np.full(n, np.nan)
    mean[gap] = value[gap]
    value[gap] = np.nan
    return Trace(name, time, value, mean, mean - 0.1, mean + 0.2, dates)


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


def test_the_band_reaches_as_far_as_the_intervals_of_a_column():
    steps = in_columns(trace())
    gap = slice(10, 20)
    np.testing.assert_allclose(steps.high[gap] - steps.mean[gap], 0.2)
    np.testing.assert_allclose(steps.mean[gap] - steps.low[gap], 0.1)
    assert np.isnan(steps.low[:10]).all()


def test_a_series_at_irregular_times_has_empty_columns_where_nothing_was():
    one = trace(n=4, gap=slice(0, 0))
    one = replace(one, time=np.array([0.0, 1.0, 2.0, 100.0]))
    assert np.isnan(in_columns(one).lowest).sum() == 2


def test_parts_of_noise_are_two_bars_each():
    table = {"series": np.array(["a", "b"]), "white": np.array([5.0, -1.0])}
    drawing = noise_parts(table | {"drift": np.array([0.5, 2.0])})
    assert "a 5.0 and 0.5, b 0.0 and 2.0" in drawing.alt
    assert {"white noise", "drift", "a", "b"} <= set(Elements(drawing.svg()).texts)


def test_what_cannot_be_drawn_is_refused():
    one = trace()
    with pytest.raises(DataError, match="'x' needs one value, mean, low and high"):
        Trace("x", one.time[:-1], one.value, one.mean, one.low, one.high)
    with pytest.raises(DataError, match="a row or more; got 0"):
        noise_parts({"series": np.array([]), "white": np.array([]), "drift": np.array([])})
    with pytest.raises(SettingError, match="1 series or more; got 0"):
        series_page("x", [sensor("a", 1.0)], most=0)


def told(html):
    """Return what the script of a page is told."""
    return json.loads(re.search(r'id="series-data">(.*?)</script>', html, re.DOTALL).group(1))


def numbers(text, kind):
    return np.frombuffer(base64.b64decode(text), kind)


@pytest.fixture(scope="module")
def html():
    spike = Odd("spike", 5.0, 5.0, 9.0, f"{NASTY} read 9.")
    stuck = Odd("stuck", 30.0, 40.0, 0.0, "bad was stuck.")
    sensors = [
        sensor("calm", 0.1, gap=slice(10, 12)),
        replace(sensor("bad", 9.0, gap=slice(10, 30)), odd=(stuck,)),
        replace(sensor(f"\x1b[31m{NASTY}", 4.0, kind=NASTY), odd=(spike,)),
    ]
    unread = replace(trace("unread", gap=slice(0, 0)), sensor="heat")
    return series_page("A page", [unread, *sensors], lead="Lead.", foot="Foot.", most=3)


def test_the_longest_gaps_come_first_and_the_rest_is_counted(html):
    names = [one["n"] for one in told(html)["series"]]
    assert names[0] == "bad"
    assert names[2] == "calm"
    assert "1 series with shorter gaps are left out" in html
    links = [a for a in Elements(html).named("a") if a["href"] == "#series-0"]
    assert links[-1]["data-from"] == "10.0"
    assert links[-1]["data-to"] == "29.0"


def test_the_page_sums_up_every_type(html):
    assert '<th scope="row">heat</th><td>3</td><td>128</td><td>22</td><td>14.7 %</td>' in html
    assert "<td>± 0." in html


def test_white_noise_and_drift_stand_beside_each_other(html):
    row = "<td>9.0</td><td>9.0</td><td>0.0</td><td>0.25</td><td>0.5</td>"
    assert f'<th scope="row">bad</th>{row}' in html
    assert "Noise 9.0: white noise 0.25, drift 0.5. Odd: 1 stuck." in told(html)["series"][0]["w"]


def test_what_is_odd_is_listed_and_marked(html):
    assert "Found: 1 stuck, 1 spike." in html
    entries = told(html)["series"]
    assert entries[0]["o"][0] | {"w": ""} == {
        "k": "stuck", "s": 30.0, "e": 40.0, "p": 30, "v": 0.0, "w": ""
    }  # fmt: skip
    calm = series_page("A page", [sensor("calm", 0.1)])
    assert "Nothing is odd" in calm


def test_readings_and_intervals_survive_their_few_bytes(html):
    entry = told(html)["series"][2]
    one = sensor("calm", 0.1, gap=slice(10, 12))
    code = numbers(entry["v"], "<u2").astype(float)
    value = entry["lo"] + (entry["hi"] - entry["lo"]) * (code - 1) / 65534
    np.testing.assert_allclose(value, np.where(one.filled, one.mean, one.value), atol=4e-5)
    holes = np.unpackbits(numbers(entry["f"], np.uint8), bitorder="little")[:50]
    np.testing.assert_array_equal(holes.astype(bool), one.filled)
    reach = (entry["hi"] - entry["lo"]) * (numbers(entry["a"], np.uint8) / 255.0) ** 2
    np.testing.assert_allclose(reach, 0.2, atol=0.01)


def test_series_that_share_their_times_share_them_on_the_page(html):
    assert told(html)["times"] == [{"start": 0.0, "step": 1.0, "n": 50}]
    odd = replace(trace(n=4, gap=slice(0, 0)), time=np.array([0.0, 1.0, 2.0, 100.0]))
    (times,) = told(series_page("A page", [odd]))["times"]
    np.testing.assert_array_equal(numbers(times["raw"], "<f8"), odd.time)


def test_a_series_too_long_for_a_page_keeps_its_extremes_gaps_and_spikes():
    one = trace(n=5000, gap=slice(1000, 1010))
    one.value[1234] = 99.0
    one = replace(one, odd=(Odd("spike", 4000.0, 4000.0, 0.0, "odd"),))
    keep = kept(one, 300)
    assert len(keep) <= 320
    assert {1234, 4000} <= set(keep.tolist())
    assert one.filled[keep].any()
    assert len(kept(one, 5000)) == 5000


def test_a_page_of_two_hundred_long_series_is_small():
    rng = np.random.default_rng(0)
    value = rng.normal(size=10_000)
    mean = np.where(rng.random(10_000) < 0.2, value, np.nan)
    value[~np.isnan(mean)] = np.nan
    one = Trace("x", np.arange(10_000.0), value, mean, mean - 1, mean + 1)
    html = series_page("A page", [replace(one, name=f"series {k}") for k in range(200)])
    assert len(html.encode()) < 8_000_000
    assert told(html)["times"] == [{"start": 0.0, "step": 1.0, "n": 10_000}]


def test_the_page_of_series_needs_nothing_else_and_runs_its_own_script_alone(html):
    elements = Elements(html)
    assert not re.search(r"https?://|@import|url\(['\"]?[^#'\"]", html)
    assert not {"link", "iframe", "img", "object"} & {tag for tag, _ in elements.tags}
    scripts = re.findall(r"<script(?: [^>]*)?>(.*?)</script>", html, re.DOTALL)
    assert len(scripts) == 2
    digest = base64.b64encode(hashlib.sha256(scripts[1].encode()).digest()).decode()
    (policy,) = (m["content"] for m in elements.named("meta") if "http-equiv" in m)
    assert policy.endswith(f"script-src 'sha256-{digest}'")
    assert NASTY not in html
    assert "\x1b" not in html


def test_a_series_that_was_never_read_has_no_number_of_noise():
    unread = replace(trace("unread"), sensor="heat")
    html = series_page("A page", [unread, sensor("calm", 0.1)])
    assert '<th scope="row">unread</th><td>\N{EN DASH}</td>' in html


def test_a_page_of_many_types_sums_them_up():
    html = series_page(
        "A page", [sensor(f"s{k}", 1.0, kind=f"type {k}") for k in range(20)], most=1
    )
    assert '<th scope="row">all</th><td>20</td>' in html
    assert '<th scope="row">type 3</th>' not in html
