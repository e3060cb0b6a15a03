"""The command line as a person uses it: files in, files out, a sentence when something is wrong."""

import csv
import json
import sys

import numpy as np
import pytest

import noisewise
from noisewise.cli import main
from noisewise.data.synthetic import make_ratings

RATINGS = make_ratings(n_users=80, n_items=40, seed=0).observations
USER, ITEM = RATINGS.decode()[0]
QUICK = ["--model", "dmf", "--set", "rank=4", "--set", "deviation_rank=1", "--set", "epochs=6"]
SWEEPS = ["--set", "rank=4", "--set", "sweeps=30", "--set", "burn_in=10"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with ratings.csv and a model of it."""
    folder = tmp_path_factory.mktemp("cli")
    with (folder / "ratings.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "item", "rating"])
        for cell, value in zip(RATINGS.decode(), RATINGS.values.tolist(), strict=True):
            writer.writerow([*cell, value])
    run("fit", folder / "ratings.csv", "--out", folder / "model.nw", *QUICK)
    return folder


def run(*words):
    """Call the command line in this process; its exit status, 0 unless it says otherwise."""
    words, kept = ["noisewise", *map(str, words)], sys.argv
    try:
        sys.argv = words
        main()
    except SystemExit as end:
        return end.code or 0
    finally:
        sys.argv = kept
    return 0


def reported(path):
    return json.loads(path.read_text())


def test_fit_says_what_it_did_and_writes_a_model(folder, capsys):
    out = folder / "again.nw"
    report = folder / "fit.json"
    assert run("fit", folder / "ratings.csv", "--out", out, *QUICK, "--json", report) == 0
    assert out.exists()
    assert "The model is in" in capsys.readouterr().out
    assert reported(report)["shape"] == [len(np.unique(codes)) for codes in RATINGS.codes]


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
def test_without_a_name_the_model_is_bayesian_and_times_may_be_part_of_the_cells(folder, capsys):
    rows = (folder / "ratings.csv").read_text().splitlines()
    timed = [rows[0] + ",when", *(f"{row},{k % 977}" for k, row in enumerate(rows[1:]))]
    (folder / "timed.csv").write_text("\n".join(timed))
    out = folder / "bayes.nw"
    assert run("fit", folder / "timed.csv", "--out", out, *SWEEPS, "--set", "time=when") == 0
    assert "bayes, 30 epochs" in capsys.readouterr().out
    predicted = []
    for cells in ("timed.csv", "ratings.csv"):
        assert run("predict", out, folder / cells) == 0
        predicted.append(capsys.readouterr().out)
    assert predicted[0] != predicted[1]
    assert run("recommend", out, USER) == 0
    assert run("noise", out) == 0


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
def test_evaluate_has_the_log_loss_of_levels(folder):
    report = folder / "levels.json"
    words = ["--model", "bayes", *SWEEPS, "--set", "likelihood=ordinal", "--splits", 1]
    rows = (folder / "ratings.csv").read_text().splitlines()
    whole = [
        rows[0],
        *(
            ",".join([*row.split(",")[:2], str(round(float(row.split(",")[2])))])
            for row in rows[1:]
        ),
    ]
    (folder / "stars.csv").write_text("\n".join(whole))
    assert run("evaluate", folder / "stars.csv", *words, "--json", report) == 0
    assert {"auc", "log_loss", "spearman", "coverage90"} <= reported(report)["mean"].keys()


def test_the_same_seed_gives_the_same_file(folder):
    for name in ("a.nw", "b.nw"):
        run("fit", folder / "ratings.csv", "--out", folder / name, *QUICK, "--seed", 3)
    assert run("predict", folder / "a.nw", folder / "ratings.csv", "--out", folder / "a.csv") == 0
    assert run("predict", folder / "b.nw", folder / "ratings.csv", "--out", folder / "b.csv") == 0
    assert (folder / "a.csv").read_bytes() == (folder / "b.csv").read_bytes()


def test_predict_writes_mean_std_and_interval_for_every_row(folder):
    out = folder / "predicted.csv"
    assert run("predict", folder / "model.nw", folder / "ratings.csv", "--out", out) == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["user", "item", "mean", "std", "low", "high"]
    low, mean, high = (np.array([float(row[k]) for row in rows]) for k in ("low", "mean", "high"))
    assert (low <= mean).all()
    assert (mean <= high).all()


def test_predict_has_sets_of_levels_where_values_are_levels(folder, capsys):
    rows = (folder / "ratings.csv").read_text().splitlines()
    stars = [",".join([*r.split(",")[:2], str(round(float(r.split(",")[2])))]) for r in rows[1:]]
    (folder / "whole.csv").write_text("\n".join([rows[0], *stars]))
    out = folder / "stars.nw"
    assert run("fit", folder / "whole.csv", "--out", out, *QUICK) == 0
    found = []
    for coverage in (0.5, 0.95):
        words = ["--sets", "--coverage", coverage, "--json", "-"]
        capsys.readouterr()
        assert run("predict", out, folder / "whole.csv", *words) == 0
        found.append([one["set"].split() for one in json.loads(capsys.readouterr().out)])
    assert (
        np.mean([star.split(",")[2] in own for star, own in zip(stars, found[1], strict=True)])
        > 0.9
    )
    assert np.mean([len(own) for own in found[0]]) < np.mean([len(own) for own in found[1]])
    assert run("predict", folder / "model.nw", folder / "whole.csv", "--sets") != 0
    assert "--sets needs a model of values that are levels" in capsys.readouterr().err


def test_predict_takes_a_table_without_a_header_and_unknown_ids(folder, capsys):
    cells = folder / "cells.csv"
    cells.write_text(f"{USER},{ITEM}\nnobody,{ITEM}\n")
    assert run("predict", folder / "model.nw", cells, "--json", "-") == 0
    known, unknown = json.loads(capsys.readouterr().out)
    assert unknown["std"] > 0
    assert (known["user"], unknown["user"]) == (USER, "nobody")


def test_recommend_leaves_out_what_was_rated_unless_told_not_to(folder, capsys):
    run("recommend", folder / "model.nw", USER, "-n", 100, "--json", "-")
    fresh = {best["id"] for best in json.loads(capsys.readouterr().out)[0]["best"]}
    run("recommend", folder / "model.nw", USER, "-n", 100, "--seen", "--json", "-")
    every = {best["id"] for best in json.loads(capsys.readouterr().out)[0]["best"]}
    with (folder / "ratings.csv").open() as file:
        rated = {row["item"] for row in csv.DictReader(file) if row["user"] == USER}
    assert rated
    assert fresh == every - rated


def test_recommend_says_that_a_user_is_unknown(folder, capsys):
    assert run("recommend", folder / "model.nw", "nobody", "-n", 3) == 0
    assert "not seen in training" in capsys.readouterr().out


def test_noise_lists_the_noisiest_first(folder, capsys):
    run("noise", folder / "model.nw", "--mode", "item", "-n", 5, "--json", "-")
    noise = [row["noise_std"] for row in json.loads(capsys.readouterr().out)]
    assert noise == sorted(noise, reverse=True)
    assert len(noise) == 5


def test_noise_of_single_ratings_and_a_picture(folder, capsys):
    picture = folder / "noise.png"
    assert run("noise", folder / "model.nw", "--plot", picture) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    run("noise", folder / "model.nw", "--data", folder / "ratings.csv", "-n", 4, "--json", "-")
    rows = json.loads(capsys.readouterr().out)
    surprise = [abs(row["surprise"]) for row in rows]
    assert surprise == sorted(surprise, reverse=True)
    assert {"user", "item", "value", "predicted"} <= set(rows[0])


def test_evaluate_writes_every_split_and_tests_models_in_pairs(folder, capsys):
    first, second = folder / "biased-mf.json", folder / "dmf.json"
    data = folder / "ratings.csv"
    assert run("evaluate", data, "--model", "biased-mf", "--splits", 2, "--json", first) == 0
    words = ["--model", "dmf", "--splits", 2, "--against", first, "--json", second]
    assert run("evaluate", data, *words) == 0
    assert "paired t p" in capsys.readouterr().out
    result = reported(second)
    assert [row["seed"] for row in result["splits"]] == [0, 1]
    for key in ("rmse", "nll", "spearman", "coverage90", "epochs", "seconds"):
        expected = np.mean([row[key] for row in result["splits"]])
        assert result["mean"][key] == pytest.approx(expected)
    assert result["settings"]["unknown"] == "default"
    assert {"machine", "date", "data", "against"} <= set(result)


def test_settings_are_read_as_numbers_words_and_pairs(folder, capsys):
    words = ["--set", "value_range=[1, 5]", "--set", "penalty=row", "--set", "patience=null"]
    out = folder / "pairs.nw"
    assert run("fit", folder / "ratings.csv", "--out", out, *QUICK, *words) == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fit", "missing.csv", "--out", "x.nw"], "missing.csv: No such file or directory."),
        (["fit", "{ratings}", "--out", "x.nw", "--set", "rank=-1"], "rank must be"),
        (["fit", "{ratings}", "--out", "x.nw", "--set", "rnk=3"], "no setting 'rnk'"),
        (["fit", "{ratings}", "--out", "x.nw", "--set", "rank"], "NAME=VALUE"),
        (["fit", "{ratings}", "--out", "x.nw", "--model", "magic"], "model must be one of"),
        (["fit", "{ratings}", "--out", "x.nw", "--value", "stars"], "stars"),
        (["predict", "{ratings}", "{ratings}"], "not a noisewise file"),
        (["predict", "{model}", "missing.csv"], "no file"),
        (["predict", "{model}", "{strangers}"], "put a header user,item"),
        (["recommend", "{model}", "nobody", "-n", "0"], "n must be 1 or more"),
        (["noise", "{model}", "--mode", "planet"], "mode must be one of"),
        (["evaluate", "{ratings}", "--protocol", "magic"], "protocol must be one of"),
        (["evaluate", "{ratings}", "--splits", "0"], "splits must be a whole number, 1 or more"),
        (["evaluate", "{ratings}", "--seed", "-1"], "seed must be a whole number, 0 or more"),
        (["tune", "{ratings}", "--model", "dmf", "--seed", "-1"], "seed must be a whole number"),
    ],
)
def test_an_error_is_one_sentence_and_status_two(folder, capsys, words, sentence):
    (folder / "strangers.csv").write_text("who,what\n1,2\n")
    names = {"ratings": "ratings.csv", "model": "model.nw", "strangers": "strangers.csv"}
    places = {name: folder / file for name, file in names.items()}
    assert run(*(word.format(**places) for word in words)) == 2
    shown = capsys.readouterr().err
    assert sentence in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    "command",
    ["demo", "fit", "predict", "recommend", "impute", "noise", "evaluate", "compare"],
)
def test_every_command_has_help_with_an_example(capsys, command):
    assert run(command, "--help") == 0
    assert "Example: noisewise" in capsys.readouterr().out


def test_it_knows_its_version(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out.strip() == noisewise.__version__


def test_lists_for_everybody_go_into_a_table(folder, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    for name in ("top.csv", "top.parquet"):
        out = tmp_path / name
        assert run("recommend", folder / "model.nw", "--all", "-n", 3, "--out", out) == 0
        assert f"are in {out}" in capsys.readouterr().out
    written = (tmp_path / "top.csv").read_text().splitlines()
    assert len(written) == 1 + pq_length(tmp_path / "top.parquet")
    items = ("--mode", "item", "--out", tmp_path / "who.csv")
    assert run("recommend", folder / "model.nw", "--all", *items) == 0
    assert (tmp_path / "who.csv").read_text().startswith("item,rank,user,mean,std\n")
    for wrong in ([], ["--all", USER]):
        assert run("recommend", folder / "model.nw", *wrong) != 0


def pq_length(path):
    import pyarrow.parquet

    return pyarrow.parquet.read_metadata(path).num_rows
