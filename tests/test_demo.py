"""The demo: the noise is found, intervals are calibrated, and there is something to look at."""

import json
import re
import sys

import pytest

from noisewise.errors import MissingExtraError
from noisewise.evaluation import demo
from noisewise.evaluation.demo import run_demo, table

MODELS = "Biased MF", "DMF", "Bayesian"


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return run_demo(seed=0, directory=tmp_path_factory.mktemp("demo") / "new" / "folder")


@pytest.fixture(scope="module")
def rows(result):
    return {row.model: row for row in result.rows}


def small_demo(directory, **changed):
    return run_demo(directory=directory, n_users=60, n_items=40, **changed)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A demo of few ratings, and the lines that it told meanwhile."""
    lines: list[str] = []
    return small_demo(tmp_path_factory.mktemp("small"), seed=1, progress=lines.append), lines


def test_learned_std_finds_the_noise_we_put_in(rows):
    for name in ("DMF", "Bayesian"):
        assert rows[name].noise_correlation >= 0.95
        assert rows[name].std_correlation >= 0.95


def test_one_std_for_all_has_no_correlation_with_the_noise(rows):
    assert rows["Biased MF"].noise_correlation is None
    assert abs(rows["Biased MF"].std_correlation) < 0.1


def test_learning_the_noise_makes_the_likelihood_better_and_the_mean_no_worse(rows):
    assert rows["DMF"].nll < rows["Biased MF"].nll - 0.1
    assert rows["DMF"].rmse <= rows["Biased MF"].rmse


def test_no_model_is_better_than_the_truth(rows):
    for name in MODELS:
        assert rows[name].rmse > rows["the truth"].rmse
        assert rows[name].nll > rows["the truth"].nll


@pytest.mark.parametrize("name", [*MODELS, "the truth"])
def test_ninety_percent_interval_covers_ninety_percent(rows, name):
    assert rows[name].coverage == pytest.approx(0.9, abs=0.015)


def test_intervals_are_narrower_where_the_noise_is_known(rows):
    assert rows["DMF"].width < rows["Biased MF"].width


def test_text_has_a_line_per_model_and_says_where_to_look(result):
    heading, rule, *lines = result.text.splitlines()
    assert re.split(r"\s{2,}", heading) == demo.COLUMNS
    assert set(rule) == {"-"}
    assert [line[:9].strip() for line in lines[:4]] == [*MODELS, "the truth"]
    assert lines[0].endswith("\N{EN DASH}")
    assert str(result.page) in lines[-1]


def test_columns_of_the_text_are_aligned(result):
    heading, _, *lines = table(result.rows).splitlines()
    assert {len(line) for line in lines} == {len(heading)}


def test_files_are_written_and_nothing_else(result):
    names = sorted(path.name for path in result.page.parent.iterdir())
    assert names == ["noisewise-demo.html", "noisewise-demo.png", "result.json"]
    assert result.picture.read_bytes().startswith(b"\x89PNG\r\n")


def test_record_holds_the_report(result):
    report = json.loads(result.record.read_text())
    assert report == result.report
    assert [row["model"] for row in report["rows"]] == [*MODELS, "the truth"]
    assert report["rows"][0]["noise_correlation"] is None


def test_page_is_self_contained_and_shows_the_numbers(result, rows):
    html = result.page.read_text(encoding="utf-8")
    assert "http://" not in html
    assert "https://" not in html
    assert "<script" not in html
    assert html.count("<figure>") == 7  # a table and six pictures
    assert f"<td>{rows['DMF'].rmse:.3f}</td>" in html
    assert f"correlation {rows['DMF'].noise_correlation:.3f}" in html


def test_page_names_noisy_users_who_are_noisy(result):
    found, listed = re.search(
        r"(\d+) of these (\d+) users are in truth", result.page.read_text(encoding="utf-8")
    ).groups()
    assert int(found) >= 0.8 * int(listed)


def test_progress_tells_each_step(small):
    _, lines = small
    assert [line.split(" on ")[0] for line in lines] == [
        "Fitting Biased MF",
        "Fitting DMF",
        "Fitting Bayesian",
        "Drawing",
    ]


def test_same_seed_draws_the_same_over_an_older_demo(small, tmp_path):
    first, _ = small
    for path in (first.page, first.picture):
        (tmp_path / path.name).write_text("an older demo")
    second = small_demo(tmp_path, seed=1)
    assert first.page.read_bytes() == second.page.read_bytes()
    assert first.picture.read_bytes() == second.picture.read_bytes()


def test_without_matplotlib_nothing_is_fitted_in_vain(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    lines = []
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'noisewise[plot]'")):
        small_demo(tmp_path, progress=lines.append)
    assert lines == []
    assert list(tmp_path.iterdir()) == []
