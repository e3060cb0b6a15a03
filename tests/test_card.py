"""A model card says what a model is, and nothing of its ids can act in it."""

import numpy as np
import pytest
from serve_models import imputer, readings
from typer.testing import CliRunner

pytest.importorskip("matplotlib")

from noisewise import DataError, DeviationFactorizer
from noisewise.card import card, html, markdown
from noisewise.cli.app import app
from noisewise.data.synthetic import make_ratings


@pytest.fixture(scope="module")
def model():
    ratings = make_ratings(n_users=60, n_items=40, seed=0).observations
    return DeviationFactorizer(rank=2, random_state=0).fit(ratings)


def test_a_card_has_all_that_the_file_knows(model):
    text = markdown(card(model, title="films"))
    assert "| ids of user | 60 |" in text
    assert "| rank | 2 |" in text
    assert "What it must not be used for" in text
    assert f"Of {model.calibration_.n:,} values held out" in text
    assert "<svg" in text
    assert "who was seen with what" in text


def test_figures_on_given_data_are_those_of_the_metrics(model):
    ratings = make_ratings(n_users=60, n_items=40, seed=0).observations
    text = markdown(card(model, ratings))
    error = ratings.values - model.predict(ratings)
    assert f"| RMSE | {np.sqrt(np.mean(error**2)):.4f} |" in text
    assert "share inside 90% intervals" in text


def test_titles_and_names_of_columns_are_text(model):
    evil = "<script>alert(1)</script>|\x1b[2J`x`"
    for text in (markdown(card(model, title=evil), evil), html(card(model, title=evil), evil)):
        assert "<script" not in text
        assert "\x1b" not in text


def test_an_imputer_has_a_card(tmp_path):
    fitted = imputer()
    text = markdown(card(fitted))
    assert "method | ou" in text
    assert "Alarms and safety systems" in text
    with pytest.raises(DataError, match="imputer is measured by"):
        card(fitted, readings())


def test_the_command_line_writes_cards_and_exports(model, tmp_path):
    model.save(tmp_path / "films.nw")
    for command in (
        ["card", "films.nw", "--out", "card.html"], ["card", "films.nw", "--out", "card.md"],
        ["export", "films.nw", "v.npz"], ["export", "films.nw", "v.parquet", "--mode", "item"],
    ):  # fmt: skip
        given = [str(tmp_path / word) if "." in word else word for word in command]
        run = CliRunner().invoke(app, given)
        assert run.exit_code == 0, run.output
        (path,) = [word for word in given if word.endswith((".html", ".md", ".npz", ".parquet"))]
        assert (tmp_path / path).stat().st_size > 1000
    run = CliRunner().invoke(app, ["card", str(tmp_path / "films.nw")])
    assert run.output.startswith("# Model card of films")
