"""The command line on sensors: models measured and compared, noisy sensors found."""

import json

import numpy as np
import pytest
from test_cli import reported, run
from test_noise_sensors import world

from noisewise import registry

COLUMNS = ["--id", "site", "--id", "kind", "--id", "step", "--value", "value"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with readings.csv, in which one series scatters and another drifts."""
    folder = tmp_path_factory.mktemp("sensors")
    seen = world()
    cells = zip(seen.decode(), seen.values.tolist(), strict=True)
    lines = ["site,kind,step,value", *(f"{a},{b},{t},{y}" for (a, b, t), y in cells)]
    (folder / "readings.csv").write_text("\n".join(lines))
    return folder


def evaluate(folder, *words):
    return run("evaluate", folder / "readings.csv", *COLUMNS, *words)


def test_evaluate_measures_single_cells(folder, capsys):
    report = folder / "linear.json"
    words = ["--model", "linear", "--protocol", "cells", "--share", 30, "--repeats", 2]
    assert evaluate(folder, *words, "--json", report) == 0
    shown = capsys.readouterr().out
    assert "cells 30 %" in shown
    assert "mean" in shown
    result = reported(report)
    assert result["model"] == "linear"
    assert result["protocol"] == {"kind": "cells", "share": 0.3, "outage_seconds": None}
    assert [row["seed"] for row in result["splits"]] == [0, 1]
    keys = {"mse", "median_se", "nll", "coverage90", "seconds"}
    assert keys <= result["splits"][0].keys()
    assert keys <= result["mean"].keys()
    assert "settings" in result


def test_several_shares_and_outages_are_kept_in_one_file(folder):
    report = folder / "ou.json"
    words = ["--model", "ou", "--repeats", 1, "--json", report]
    assert evaluate(folder, "--protocol", "cells", "--share", "20,40", *words) == 0
    assert evaluate(folder, "--protocol", "blocks", "--outage", 24, *words) == 0
    protocols = [one["protocol"] for one in reported(report)]
    assert [(one["kind"], one["share"]) for one in protocols] == [
        ("cells", 0.2), ("cells", 0.4), ("blocks", 0.2),
    ]  # fmt: skip
    assert protocols[2]["outage_seconds"] == 24.0


def test_a_run_is_taken_up_where_it_stopped(folder, monkeypatch):
    report = folder / "resumed.json"
    words = ["--model", "linear", "--protocol", "cells", "--share", "20,30", "--json", report]
    whole, build, left = folder / "whole.json", registry.build, [3]
    assert evaluate(folder, *words[:-1], whole, "--repeats", 2) == 0

    def until_killed(*args, **options):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return build(*args, **options)

    monkeypatch.setattr(registry, "build", until_killed)
    assert evaluate(folder, *words, "--repeats", 2) != 0
    stopped = reported(report)
    assert [len(one["splits"]) for one in stopped] == [2, 1]
    monkeypatch.setattr(registry, "build", build)
    assert evaluate(folder, *words, "--repeats", 2) == 0
    again = reported(report)
    assert [one["splits"][0] for one in again] == [one["splits"][0] for one in stopped]
    for one, other in zip(again, reported(whole), strict=True):
        assert [row["mse"] for row in one["splits"]] == [row["mse"] for row in other["splits"]]


def test_results_of_another_model_are_not_overwritten(folder, capsys):
    report = folder / "mine.json"
    words = ["--protocol", "cells", "--share", 20, "--repeats", 1, "--json", report]
    assert evaluate(folder, "--model", "linear", *words) == 0
    before = report.read_bytes()
    assert evaluate(folder, "--model", "ou", *words) == 2
    assert "another model, linear and not ou" in capsys.readouterr().err
    assert evaluate(folder, "--model", "linear", "--set", "unknown=3", *words) == 2
    assert "with the same settings" in capsys.readouterr().err
    assert report.read_bytes() == before


def test_two_models_are_compared_under_every_protocol_that_both_have(folder, capsys):
    files = []
    for model, shares in (("linear", "20,30"), ("ou", "30,40")):
        files.append(folder / f"compared-{model}.json")
        words = ["--protocol", "cells", "--share", shares, "--repeats", 3, "--json", files[-1]]
        assert evaluate(folder, "--model", model, *words) == 0
    capsys.readouterr()
    assert run("compare", *files, "--json", "-") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["protocol"] == "cells 30 %"
    assert row["difference"] == pytest.approx(row["linear"] - row["ou"])
    assert 0 <= row["unpaired p"] <= 1
    assert 0 <= row["paired p"] <= 1
    words = ["--model", "linear", "--protocol", "cells", "--share", "30", "--repeats", 3]
    assert evaluate(folder, *words, "--against", files[1]) == 0
    assert "unpaired p" in capsys.readouterr().out


def test_a_model_is_compared_with_itself_under_another_name(folder, capsys):
    path = folder / "same.json"
    words = ["--model", "linear", "--protocol", "cells", "--share", "30", "--repeats", 2]
    assert evaluate(folder, *words, "--json", path) == 0
    capsys.readouterr()
    assert run("compare", path, path, "--metric", "nll", "--json", "-") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["linear"] == row["linear (2)"]
    assert row["difference"] == 0


def test_noise_ranks_locations_and_series_of_readings(folder, capsys):
    picture, model = folder / "noise.png", folder / "judge.nw"
    words = ["-n", 3, "--save", model, "--plot", picture, "--json", "-"]
    assert run("noise", folder / "readings.csv", *COLUMNS, *words) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["id"] for row in found["places"][:2]} == {"place 3", "place 6"}
    assert {(row["site"], row["kind"]) for row in found["series"][:2]} == {
        ("place 3", "kind 0"), ("place 6", "kind 1"),
    }  # fmt: skip
    noise = [row["noise"] for row in found["series"]]
    assert noise == sorted(noise, reverse=True)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert run("noise", model, "-n", 3, "--json", "-") == 0
    again = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in again["places"]] == [row["id"] for row in found["places"]]
    np.testing.assert_allclose([row["noise"] for row in again["series"]], noise, rtol=1e-4)


def test_noise_of_sensors_is_a_table_to_read(folder, capsys):
    assert run("noise", folder / "readings.csv", *COLUMNS, "-n", 2) == 0
    places, series = capsys.readouterr().out.split("\n\n")
    assert places.split()[:4] == ["id", "noise", "white", "drift"]
    assert series.split()[:5] == ["site", "kind", "noise", "white", "drift"]


def test_noise_of_one_type_of_sensor_needs_no_column_for_it(folder, capsys):
    rows = (folder / "readings.csv").read_text().splitlines()
    heat = [row.replace(",kind 0", "") for row in rows[1:] if ",kind 0," in row]
    (folder / "heat.csv").write_text("\n".join(["site,step,value", *heat]))
    assert run("noise", folder / "heat.csv", "-n", 1, "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["series"][0]["site"] == "place 3"


def test_noise_reads_what_impute_reads(folder, capsys):
    rows = [row.split(",") for row in (folder / "readings.csv").read_text().splitlines()[1:]]
    by_id = {(site, kind, step): value for site, kind, step, value in rows}
    series = list(dict.fromkeys((site, kind) for site, kind, _, _ in rows))
    steps = list(dict.fromkeys(step for _, _, step, _ in rows))
    layouts = {
        "order.csv": "value;step;kind;site\n"
        + "".join(f"{v};{t};{k};{s}\n" for s, k, t, v in rows)
        + f";99999;{rows[0][1]};{rows[0][0]}\n",
        "wide.csv": "step,"
        + ",".join("/".join(one) for one in series)
        + "\n"
        + "".join(
            f"{t}," + ",".join(by_id.get((*one, t), "") for one in series) + "\n" for t in steps
        ),
    }
    found = []
    for name, content in layouts.items():
        (folder / name).write_text(content)
        words = ["--separator", "/"] if name == "wide.csv" else []
        assert run("noise", folder / name, *words, "-n", 3, "--json", "-") == 0, name
        found.append(json.loads(capsys.readouterr().out))
    for one in found:
        assert {row["id"] for row in one["places"][:2]} == {"place 3", "place 6"}
    assert [row["series"] for row in found[0]["places"]] == [
        row["series"] for row in found[1]["places"]
    ]


def test_options_of_noise_that_would_do_nothing_are_refused(folder, capsys):
    assert run("noise", folder / "readings.csv", *COLUMNS, "--location", "site") == 2
    assert "--location is not for readings with --id" in capsys.readouterr().err


def test_noise_of_ratings_needs_a_model(folder, capsys):
    (folder / "ratings.csv").write_text("user,item,rating\n1,2,3\n1,3,4\n")
    assert run("noise", folder / "ratings.csv") == 2
    assert "holds ratings: fit a model to them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model", "magic", "--protocol", "cells", "--share", "20"], "--model must be one of"),
        (["--protocol", "cells"], "--share takes percentages"),
        (["--protocol", "cells", "--share", "many"], "--share takes percentages"),
        (["--protocol", "cells", "--share", "150"], "share must lie between 0 and 1"),
        (["--protocol", "blocks"], "--protocol blocks needs --outage"),
        (["--protocol", "cells", "--share", "20", "--outage", "9"], "has no outages"),
        (["--protocol", "cells", "--share", "20", "--time", "step"], "--time is for ratings"),
        (["--share", "20"], "--share is for sensors"),
    ],
)
def test_an_error_on_sensors_is_one_sentence_and_status_two(folder, capsys, words, sentence):
    assert evaluate(folder, *words) == 2
    shown = capsys.readouterr().err
    assert sentence in shown
    assert "Traceback" not in shown


def test_files_that_hold_no_results_are_not_compared(folder, capsys):
    assert run("compare", folder / "readings.csv", folder / "readings.csv") == 2
    assert "must hold results as JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["forecast", "--out"],
        ["anomalies", "--json"],
        ["anomalies", "--out"],
        ["gaps", "--json"],
        ["noise", "--save"],
        ["impute", "--method", "linear", "--out"],
        ["fit", "--out"],
    ],
)
def test_no_command_replaces_the_file_that_it_reads(tmp_path, capsys, words):
    path = tmp_path / "heat.csv"
    rows = "".join(f"2024-02-{1 + k // 24:02} {k % 24:02}:00,{k % 7 or ''}\n" for k in range(60))
    path.write_text("time,heat\n" + rows)
    link = tmp_path / "link.csv"
    link.symlink_to(path)
    for other in (path, link):
        assert run(words[0], path, *words[1:], other) == 2
        assert "heat.csv is kept as it is: write to another file than" in capsys.readouterr().err
    assert path.read_text() == "time,heat\n" + rows


def test_an_updated_model_may_be_written_in_its_place_but_not_over_what_is_new(tmp_path, capsys):
    path, model = tmp_path / "ratings.csv", tmp_path / "model.nw"
    cells = [(f"u{k % 9}", f"i{k % 7}", 1 + k % 5) for k in range(60)]
    path.write_text("user,item,rating\n" + "".join(f"{u},{i},{r}\n" for u, i, r in cells))
    assert run("fit", path, "--model", "dmf", "--set", "epochs=2", "--out", model) == 0
    assert run("update", model, path, "--out", model) == 0
    assert run("update", model, path, "--out", path) == 2
    assert "ratings.csv is kept as it is" in capsys.readouterr().err


def test_stds_are_not_written_over_the_file_that_is_filled(tmp_path, capsys):
    path = tmp_path / "out.std.csv"
    path.write_text("time,heat\n" + "".join(f"{k},{k % 7 or ''}\n" for k in range(60)))
    assert run("impute", path, "--out", tmp_path / "out.csv", "--method", "linear") == 2
    assert "out.std.csv is kept as it is" in capsys.readouterr().err
