"""The benchmark of imputation: holes as they are meant, scores and verdicts that can be checked."""

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "bench"))
pytest.importorskip("fcntl")  # its file of records is locked as Unix does it

from imputation import Results  # noqa: E402
from imputation_cases import ROWS, SIX, Case, holes, lost_rows  # noqa: E402
from imputation_peers import PEERS  # noqa: E402
from imputation_table import as_text, beside, by_place, coverage  # noqa: E402
from imputation_unseen import LOST, UNSEEN_HOLES, unseen_holes  # noqa: E402
from imputation_worker import Filled, scores  # noqa: E402

SHAPE = (1000, 10)


@pytest.mark.parametrize("scenario", [*SIX, *ROWS])
def test_same_mask_has_same_holes_and_every_series_keeps_readings(scenario):
    first = holes(SHAPE, scenario, 1)
    assert np.array_equal(first, holes(SHAPE, scenario, 1))
    assert not np.array_equal(first, holes(SHAPE, scenario, 2))
    assert first.any()
    assert (~first).any(axis=0).all()


def test_scenarios_hide_what_they_say():
    dark = holes(SHAPE, "blackout", 1).all(axis=1)
    assert dark.sum() == 30
    assert (np.diff(np.flatnonzero(dark)) == 1).all()
    one = holes(SHAPE, "one", 0)
    assert sorted(one.sum(axis=0))[-2:] == [0, 100]
    assert (holes(SHAPE, "disjoint", 0).sum(axis=1) == 1).all()
    assert holes(SHAPE, "overlap", 0).sum(axis=1).max() == 2


@pytest.mark.parametrize("scenario", UNSEEN_HOLES)
def test_unseen_tables_lose_what_their_scenario_says(scenario):
    first = unseen_holes(SHAPE, scenario, 1)
    assert np.array_equal(first, unseen_holes(SHAPE, scenario, 1))
    assert not np.array_equal(first, unseen_holes(SHAPE, scenario, 2))
    by_series, by_time = first.mean(axis=0), first.mean(axis=1)
    if scenario == "quarter":
        assert first.mean() == pytest.approx(0.25, abs=0.02)
    elif scenario == "outages":
        assert (by_series >= 0.04).all()
        assert (by_series <= 0.08).all()
    else:
        assert set(by_time) == {0.0, 1.0}
        assert by_time.mean() == pytest.approx(LOST, abs=0.02)


@pytest.mark.parametrize("length", [1, 6])
def test_lost_rows_come_in_stretches_that_do_not_touch(length):
    lost = lost_rows(1000, length, 0)
    edges = np.flatnonzero(np.diff(lost.astype(int)))
    assert not lost[[0, -1]].any()
    assert set(np.diff(edges)[::2]) == {length}
    assert lost.mean() == pytest.approx(0.05, abs=0.005)


def test_scores_are_those_of_asked_cells_alone():
    truth = np.arange(8.0).reshape(4, 2)
    asked = np.array([[True, False], [True, False], [False, True], [False, False]])
    filled = truth + np.array([[1, 50], [3, 50], [50, -2], [50, 50]])
    one = Case(np.where(asked, np.nan, truth), truth, asked, np.array([1.0, 2.0]))
    found = scores(one, Filled(filled, filled - 2.0, filled + 2.0))
    assert found["mse"] == pytest.approx((1 + 9 + 1) / 3)
    assert (found["asked"], found["covered"]) == ([2, 1], [1, 1])
    assert found["coverage90"] == pytest.approx(2 / 3)
    filled[0, 0] = np.nan
    assert "failed" in scores(one, Filled(filled))


def record(method, mask, rmse, **more):
    place = {"dataset": "airq", "scenario": "cells", "mask": mask, "method": method}
    return place | {"rmse": rmse} | more


def test_rival_is_compared_on_the_masks_it_has():
    runs = by_place(
        [record("noisewise-auto", k, 1.0 + k) for k in range(3)]
        + [record("pandas-linear", k, 4.0) for k in range(3)]
        + [record("pypots-saits", 0, 0.5), record("pypots-saits", 1, 9.0, failed="stopped")]
    )
    found = beside(runs["airq", "cells"], "noisewise-auto", tuple(PEERS))
    assert (found.rival, found.ratio, found.masks) == ("pypots-saits", 2.0, 1)


def test_coverage_pools_masks_of_a_series():
    held = {"coverage90": 0.5, "series": [3, 5], "asked": [40, 60], "covered": [30, 20]}
    more = {"coverage90": 0.7, "series": [3], "asked": [60], "covered": [60]}
    found = coverage([record("a", 0, 1.0, **held), record("a", 1, 1.0, **more)])
    assert (found.share, found.series) == (pytest.approx(0.6), 5)
    assert found.worst == pytest.approx(20 / 60)


def test_verdicts_name_what_is_missed():
    told = as_text(
        [record("noisewise-auto", 0, 2.0), record("pandas-linear", 0, 1.0)], "noisewise-auto"
    )
    assert "1 of 42 cells: largest ratio to the best rival" in told
    assert "MISSED" in told


def test_records_are_kept_merged_and_replaced(tmp_path):
    here, there = Results(tmp_path / "here.json"), Results(tmp_path / "there.json")
    here.keep({"python": "3.11"}, record("a", 0, 1.0))
    there.keep({"python": "3.12"}, record("b", 0, 1.0))
    there.keep({"python": "3.12"}, record("a", 0, 3.0))
    here.merge(there)
    assert {one["method"]: one["rmse"] for one in here.records()} == {"a": 3.0, "b": 1.0}
    assert [one["environment"] for one in here.records()] == [1, 1]
