"""Artefacts of a reproduction: their numbers, and a whole run on data so small that it is quick."""

import copy
import dataclasses
import json
import re

import numpy as np
import pytest
from noisewise_reproduction.page.evidence import evidence_page, read_artefacts
from noisewise_reproduction.runs import command, small_worlds, sources
from noisewise_reproduction.runs import plan as planning
from noisewise_reproduction.runs.adopting import adopt
from noisewise_reproduction.runs.artefacts import noise
from noisewise_reproduction.runs.command import ARTEFACTS, chosen, reproduce
from noisewise_reproduction.runs.run import Store
from noisewise_reproduction.runs.sensor_runs import sensor_run
from noisewise_reproduction.runs.sources import Source, busiest
from noisewise_reproduction.runs.summaries import holm, paired, summarised
from test_reproduce import write_ratings

from noisewise import registry
from noisewise.cli import main
from noisewise.data import observe
from noisewise.data.panel import Panel
from noisewise.errors import SettingError
from noisewise.evaluation import comparison
from noisewise.evaluation.records import as_json
from noisewise.evaluation.sensors import evaluate as evaluate_sensors


def test_holm_multiplies_by_what_is_left_and_never_falls():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_does_not_count_what_is_unknown():
    corrected = holm([0.02, float("nan"), 0.5])
    assert corrected[0] == pytest.approx(0.04)
    assert np.isnan(corrected[1])


def rows(**errors):
    return [
        {"dataset": "d", "model": model, "seed": seed, "rmse": value}
        for model, values in errors.items()
        for seed, value in enumerate(values)
    ]


def test_means_have_the_interval_of_student():
    (row,) = summarised(rows(a=[1.0, 2.0, 3.0]), ["dataset", "model"])
    expected = comparison.summarise([1.0, 2.0, 3.0])
    assert row["mean"] == {"rmse": 2.0}
    assert row["interval95"]["rmse"] == [expected.low, expected.high]
    assert row["splits"] == 3


def test_a_number_that_some_rows_lack_is_left_out_of_the_mean():
    found = rows(a=[1.0, 2.0])
    found[0]["log_loss"] = 1.0
    (row,) = summarised(found, ["model"])
    assert "log_loss" not in row["mean"]


def test_pairs_are_tested_on_the_splits_that_both_have():
    found = rows(a=[0.8, 0.7, 0.9], b=[0.9, 0.9])
    (test,) = paired(found, [("a", "b"), ("a", "c")], ["dataset"], "rmse")
    assert (test["n"], test["wins"]) == (2, 2)
    assert test["difference"] == pytest.approx(-0.15)
    assert test["t_pvalue_holm"] == test["t_pvalue"]


def test_the_busiest_stretch_of_time_is_cut_out():
    seen = observe([("a", "heat", t, float(t)) for t in (0, 5, 6, 7, 8, 20)])
    seen = Panel(seen, None, 60.0)  # six times, of which none has two readings
    more = observe(
        [("a", "heat", t, 1.0) for t in range(10)] + [("b", "heat", t, 2.0) for t in (6, 7, 8)]
    )
    cut = busiest(Panel(more, None, 60.0), 3)
    assert cut.observations.ids[2].labels.tolist() == [6, 7, 8]
    assert cut.observations.shape == (2, 1, 3)
    assert len(cut.observations) == 6
    assert busiest(seen, 100) is seen


def test_the_exponent_is_that_of_a_power():
    found = small_worlds._scaling([1, 2, 4], [3.0, 12.0, 48.0])
    assert found["exponent"] == pytest.approx(2.0)


def test_a_tensor_as_a_matrix_has_the_same_cells():
    tensor = small_worlds.drawn_cells([3, 4, 5], 30, seed=0)
    matrix = small_worlds.as_matrix(tensor)
    assert matrix.shape == (12, 5)
    runs = {(i * 4 + j, t): v for (i, j, t), v in zip(tensor.decode(), tensor.values, strict=True)}
    assert runs == dict(zip(matrix.decode(), matrix.values, strict=True))
    assert len(runs) == 30


def test_rarity_is_one_over_the_number_of_ratings():
    seen = observe([("ann", "x", 1), ("ann", "y", 2), ("bob", "x", 3), ("cat", "z", 3)])
    train = seen.take(np.array([0, 1, 2]))
    assert noise.rarity(train, seen).tolist() == [[0.5, 0.5], [0.5, 1.0], [1.0, 0.5], [1.0, 1.0]]


def test_controls_have_the_same_mean_and_another_std(tmp_path):
    source = Source("ml1m", write_ratings(tmp_path) / "ml1m.npz")
    found = noise.controlled(source, "dmf", {"rank": 4, "deviation_rank": 2, "epochs": 4}, 0, 1)
    assert list(found) == ["learned", "constant", "counts", "shuffled"]
    assert len({scores["rmse"] for scores in found.values()}) == 1
    assert found["shuffled"]["sharpness"] == pytest.approx(found["learned"]["sharpness"])
    assert found["shuffled"]["nll"] != found["learned"]["nll"]
    assert np.isnan(found["constant"]["spearman"])
    assert not np.isnan(found["counts"]["spearman"])


def test_deviations_vanish_where_there_is_no_noise_and_stay_where_there_is():
    clean = planning.settings()["artefacts"]["claims"]["quick"]["clean"]
    found = small_worlds.clean_data(clean, seed=0, n_jobs=1)
    assert found["without noise"]["level"] < 0.5 * found["with noise"]["level"]
    assert found["with noise"]["level"] == pytest.approx(
        found["with noise"]["true_level"], rel=0.25
    )


def test_items_come_in_the_order_of_the_paper():
    assert chosen(["all"]) == list(ARTEFACTS) == chosen([])
    assert chosen(["claims", "time"]) == ["time", "claims"]
    with pytest.raises(
        SettingError, match=r"An artefact is one of datasets, .* or all; got 'tables'"
    ):
        chosen(["tables"])


def tiny_settings():
    """The quick settings, with less of everything."""
    tiny = copy.deepcopy(planning.settings())
    for entry in tiny["ratings"].values():
        quick = entry["quick"]
        quick |= {name: 3 for name in ("rank", "epochs") if name in quick}
        quick |= {name: 2 for name in ("deviation_rank", "warmup") if name in quick}
        if "sweeps" in quick:
            quick |= {"sweeps": 4, "burn_in": 2, "samples": 2}
    for entry in tiny["sensors"].values():
        quick = entry.setdefault("quick", {})
        quick |= {name: 2 for name in ("rank", "epochs") if name in quick}
    artefacts = tiny["artefacts"]
    artefacts["ratings"]["models"] = ["biased-mf", "rcf", "dmf-paper", "dmf"]
    artefacts["time"]["models"] = artefacts["curves"]["models"] = ["biased-mf", "dmf-paper"]
    artefacts["sensors"]["models"] = ["idw", "ptf", "dtf", "linear"]
    artefacts["noise"]["quick"]["models"] = ["dmf-rank1", "dmf"]
    artefacts["future"]["quick"]["models"] = ["biased-mf", "dmf"]
    artefacts["regression"]["quick"] = {"seeds": 3}
    claims = artefacts["claims"]["quick"]
    claims["cost"] |= {"shape": [60, 50], "observations": [500, 1000], "ranks": [16, 32], "at": 500}
    claims["modes"] |= {"shape": [4, 5, 60], "observations": 600}
    for name in ("equal", "clean"):
        claims[name]["world"] |= {"n_users": 40, "n_items": 30}
        claims[name]["settings"]["epochs"] = 3
    return tiny


def fake_sensors(name, path):
    rng = np.random.default_rng(len(name))
    cells = [(f"p{i}", s, t) for i in range(4) for s in ("heat", "light") for t in range(90)]
    kept = [cell for cell in cells if rng.random() < 0.9]
    values = [np.sin(t / 9) + len(s) + 0.1 * rng.normal() for _, s, t in kept]
    seen = observe([(*cell, value) for cell, value in zip(kept, values, strict=True)])
    places = {f"p{i}": (float(i), 0.0) for i in range(4)}
    return Panel(seen, places, seconds=86_400.0 if "london" in name else 600.0)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A quick run of all artefacts on tiny data: the folder, and what was said."""
    settings = tiny_settings()
    folder = write_ratings(tmp_path_factory.mktemp("data"))
    for name in ("london_laqn_daily.npz", "intel_lab_5days.npz"):
        (folder / name).touch()
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "settings", lambda: settings)
        patch.setattr(sources, "named_panel", fake_sensors)
        out = tmp_path_factory.mktemp("out")
        written = reproduce(data=folder, out=out, quick=True, splits=2, say=lines.append)
        yield out, lines, written, folder


def test_every_artefact_is_written_with_all_its_runs(tiny):
    _, lines, written, _ = tiny
    assert list(written) == list(ARTEFACTS)
    for name, path in written.items():
        artefact = json.loads(path.read_text())
        assert (artefact["artefact"], artefact["quick"], artefact["splits"]) == (name, True, 2)
        assert artefact["left_out"] == []
        assert artefact["machine"]["cpu"]
        assert artefact["date"]
    assert all(re.search(r"(\d+) of \1 runs", line) for line in lines)


def test_every_figure_of_the_paper_is_drawn(tiny):
    out, *_ = tiny
    for name in ("regression", "sensors", "curves", "ratings-ml1m", "time", "claims"):
        assert (out / f"{name}.svg").read_text().rstrip().endswith("</svg>")
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_settings_stand_beside_the_numbers_with_how_they_were_chosen(tiny):
    artefact = json.loads((tiny[0] / "ratings.json").read_text())
    model = artefact["models"]["dmf-paper"]
    assert model["settings"]["beta"] == 0.0
    assert "validation" in model["chosen"]
    assert model["changed"]["rank"] == 3


def test_a_second_run_measures_nothing_and_writes_the_same(tiny, monkeypatch):
    out, _, written, folder = tiny
    before = {name: json.loads(path.read_text()) for name, path in written.items()}
    monkeypatch.setattr(command, "measure_all", lambda runs, store, jobs: _refuse(runs, store))
    reproduce(data=folder, out=out, quick=True, splits=2)
    assert before == {name: json.loads(path.read_text()) for name, path in written.items()}


def _refuse(runs, store):
    assert all(store.has(run) for run in runs)
    return {}


def test_without_measuring_what_is_missing_is_named(tiny, tmp_path):
    *_, folder = tiny
    reproduce(["future"], data=folder, out=tmp_path, quick=True, splits=1, measure=False)
    artefact = json.loads((tmp_path / "future.json").read_text())
    assert [one["why"] for one in artefact["left_out"]] == ["it was not run"] * 2
    assert (
        "later ratings" not in evidence_page(read_artefacts(tmp_path)).lower().split("how it is")[0]
    )


def test_time_is_compared_with_biased_mf_on_the_same_split(tiny):
    artefact = json.loads((tiny[0] / "time.json").read_text())
    by = {(row["model"], row["seed"]): row for row in artefact["rows"]}
    assert by["biased-mf", 1]["seconds_ratio"] == 1.0
    ratio = by["dmf-paper", 1]["seconds"] / by["biased-mf", 1]["seconds"]
    assert by["dmf-paper", 1]["seconds_ratio"] == pytest.approx(ratio)


def test_sensors_are_tested_as_the_paper_does_and_in_pairs(tiny):
    artefact = json.loads((tiny[0] / "sensors.json").read_text())
    test = next(t for t in artefact["tests"] if t["b"] == "ptf" and t["protocol"] == "blocks")
    assert {"unpaired_pvalue", "unpaired_pvalue_holm", "t_pvalue_holm"} <= test.keys()
    assert {row["protocol"] for row in artefact["rows"]} == {"cells", "blocks"}


def test_the_page_of_a_run_has_every_item(tiny):
    html = evidence_page(read_artefacts(tiny[0]))
    for heading in ("Table 1", "Table 2", "Table 3", "Figure 2", "Figure 3", "Figure 4"):
        assert f"<h2>{heading}" in html
    assert "A quick run" in html
    assert "not reproduced" not in html.split("How it is judged")[0]


def test_the_commands_run_it_and_make_the_page(tiny, tmp_path, capsys, monkeypatch):
    out, *_, folder = tiny
    words = ["reproduce", "datasets", "--data", folder, "--out", out, "--quick", "--splits", "2"]
    monkeypatch.setattr("sys.argv", ["noisewise", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert f"{out / 'datasets.json'}: 3 of 3 runs." in capsys.readouterr().out
    words = ["report", out, "--out", tmp_path / "page.html"]
    monkeypatch.setattr("sys.argv", ["noisewise", *map(str, words)])
    with pytest.raises(SystemExit):
        main()
    assert (tmp_path / "page.html").read_text() == evidence_page(read_artefacts(out))


def test_results_of_sensors_are_adopted(tiny, tmp_path):
    *_, folder = tiny
    source = Source("intel-2epoch", folder / "intel_lab_5days.npz")
    data = source.sensors()
    plan = planning.Plan.of(folder, quick=True)
    result = evaluate_sensors(
        data,
        lambda seed: registry.build(
            "sensors",
            "idw",
            sensor="sensor",
            coordinates=data.coordinates,
            random_state=seed,
            settings={"n_neighbours": 2},
        ),
        share=0.2,
        repeats=2,
        name="idw",
    )
    (tmp_path / "sensors.json").write_text(as_json([result]))
    (tmp_path / "out").mkdir()
    store = Store(tmp_path / "out")
    other = sensor_run(source, plan.model("idw", "sensors"), 0, 0.2)
    like = dataclasses.replace(plan.model("idw", "sensors"), settings={"n_neighbours": 2})
    same, outage = (sensor_run(source, like, 1, 0.2, length) for length in (None, 7200.0))
    assert adopt([other, same, outage], store, tmp_path).runs == 1
    assert store.read(same)["numbers"]["scores"]["mse"] == result["splits"][1]["mse"]
