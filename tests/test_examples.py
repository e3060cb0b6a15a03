"""Examples run without a warning, draw something, and find what their words say they find."""

import json
import os
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("plot_*.py"))
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


def near(share, aim, slack=0.05):
    return abs(share - aim) <= slack


def calibration(found):
    one, every = found["overall"].values()
    assert near(one[0], 0.9, 0.02)
    assert near(every[0], 0.9, 0.02)
    assert every[1] < one[1] - 0.05  # the NLL
    one, every = found["worst"].values()
    assert one > 0.2 > 0.08 > every


def lists(found):
    value, safe, useful = found["lists"].values()
    assert np.mean([one.std for one in safe]) < np.mean([one.std for one in value])
    many = found["many"]
    assert np.mean([many[one.id] for one in useful]) > np.mean([many[one.id] for one in value])
    why = found["why"]
    assert near(why.average + sum(pull.pull for pull in why.pulls) + why.rest, why.mean, 1e-4)


def daily(found):
    frozen, updated = (np.array(found[name]) for name in ("frozen", "updated"))
    assert frozen[0] == updated[0]
    assert updated[2:].mean() < 0.95 * frozen[2:].mean()
    assert max(found["seconds"]) < found["seconds_to_fit"]


def cold_start(found):
    assert found["rmse"] < 0.8 * found["rmse_plain"]
    assert near(found["covered"], 0.9)
    assert found["names"] == ["horror", "comedy", "documentary"]


def noisy_users(found):
    assert found["found"] > 0.75
    assert found["rank_correlation"] > 0.6


def outages(found):
    assert found["rmse_gap"] < 0.5 * found["rmse_line"]
    assert near(found["covered"], 0.9, 0.08)
    assert found["table"].notna().equals(found["filled"].eq(found["table"]))  # readings stay


def blackout(found):
    without, knowing = found["rmse"].values()
    assert knowing < 0.6 * without
    assert found["covered"]['seasons=["day"]'] > 0.85


def forecast(found):
    assert found["rmse"] < 0.4 * found["rmse_last"]
    assert found["covered"] > 0.85
    assert found["later"].mean.index[-1] == found["coming"].index[-1]


def odd_readings(found):
    faults = {"probe 1": "spike", "probe 3": "stuck", "probe 5": "unit", "probe 6": "dead"}
    assert found["kinds"] == faults


CHECKS = {
    "plot_first_interval": lambda found: near(found["covered"], 0.9) or pytest.fail("coverage"),
    "plot_calibration": calibration,
    "plot_noisy_users": noisy_users,
    "plot_cold_start": cold_start,
    "plot_daily_update": daily,
    "plot_lists_and_reasons": lists,
    "plot_outages": outages,
    "plot_blackout": blackout,
    "plot_forecast": forecast,
    "plot_odd_readings": odd_readings,
}


def test_every_example_has_a_check():
    assert {script.stem for script in SCRIPTS} == set(CHECKS)
    assert len(SCRIPTS) >= 10
    assert len(NOTEBOOKS) == 2


@pytest.fixture
def pyplot(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg", force=True)
    from matplotlib import pyplot

    monkeypatch.setattr(pyplot, "show", lambda: None)  # which would warn where there is a screen
    yield pyplot
    pyplot.close("all")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_draws_and_finds_what_it_says(script, pyplot):
    found = runpy.run_path(str(script))
    assert pyplot.get_fignums()
    title, line, *_ = found["__doc__"].strip().splitlines()
    assert line == "=" * len(title)  # the gallery takes it for the title
    CHECKS[script.stem](found)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_is_kept_without_outputs(path, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLBACKEND", "agg")  # no inline figures: they would need IPython's backend
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": tmp_path}}
    ).execute()
    said = json.dumps([cell.outputs for cell in cells])
    assert {"ratings_in_ten_minutes": "intervals hold", "multiple_imputation": "times as wide"}[
        path.stem
    ] in said
