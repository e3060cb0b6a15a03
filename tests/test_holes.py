"""Holes like those of the table, where there are readings."""

import numpy as np
import pytest

from noisewise.data import Ids, Observations
from noisewise.models import holes
from noisewise.models.holes import Readings, likeness, outages, trials
from noisewise.models.nearness import Timed, reach
from noisewise.models.weighing import Hidden, by_holes, usual_errors


def observed(mask):
    """Cells of a table of times by series where a mask is true."""
    times, series = np.nonzero(mask)
    ids = Ids(np.arange(mask.shape[1]), "series"), Ids(np.arange(mask.shape[0]), "time")
    codes = series.astype(np.int32), times.astype(np.int32)
    return Observations(codes, np.zeros(len(times), np.float32), ids)


def arranged(missing):
    return Readings.of(observed(~missing), 1, observed(missing))


def hidden_by(missing, like="table", seed=0, n=3):
    """Masks of what is hidden and of what is left, trial by trial."""
    readings, seen = arranged(missing), observed(~missing)
    drawn = trials(readings, like, np.random.default_rng(seed))
    found = []
    for _ in range(n):
        trial = next(drawn)
        masks = []
        for rows in (trial.hidden, trial.train):
            mask = np.zeros(missing.shape, dtype=bool)
            mask[seen.codes[1][rows], seen.codes[0][rows]] = True
            masks.append(mask)
        assert not (masks[0] & masks[1]).any()
        assert not (masks[0] & missing).any()
        found.append(masks)
    return found


def runs(lost):
    """Lengths of stretches where something is lost."""
    return np.diff(np.flatnonzero(np.diff(np.pad(lost, 1).astype(int))))[::2]


def test_an_outage_is_moved_as_it_is_and_comes_in_other_series():
    missing = np.zeros((300, 5), dtype=bool)
    missing[100:120, 2] = True
    for hidden, _ in hidden_by(missing):
        assert hidden.sum() <= 1.1 * holes.SHARE * missing.size
        assert 2 <= hidden.any(axis=0).sum() <= 5
        for series in np.flatnonzero(hidden.any(axis=0)):
            longest = 20 * (2 if series != 2 else 3)  # where they touch, or lie around the hole
            assert 1 <= runs(hidden[:, series] | missing[:, series]).max() <= longest


def test_cells_of_series_with_holes_count_more():
    missing = np.zeros((300, 10), dtype=bool)
    missing[100:145, 2] = True
    readings = arranged(missing)
    drawn = trials(readings, "table", np.random.default_rng(0))
    found = [next(drawn) for _ in range(3)]
    which = readings.seen.which[np.concatenate([trial.hidden for trial in found])]
    alike = np.concatenate(likeness(readings, found))
    cells = Hidden(which, outages(readings, found), alike)
    own, counts = which == 2, np.bincount(readings.holes.which, minlength=10)
    weights = by_holes(cells, counts, np.ones(10))
    assert weights.mean() == pytest.approx(1.0)
    assert weights[own].sum() / weights.sum() > 0.7 > own.mean()
    harder = np.where(np.arange(10) == 2, 1.0, 25.0)  # squared errors there
    losses = by_holes(cells, counts, harder) * harder[which]
    assert losses[own].sum() / losses.sum() > 0.7


def test_a_single_outage_comes_again_in_its_own_series_and_seldom_in_others():
    missing = np.zeros((600, 9), dtype=bool)
    missing[100:160, 4] = True
    for hidden, left in hidden_by(missing):
        assert hidden[:, 4].sum() > 60  # more than once
        assert left[:, 4].sum() > 300
        assert hidden.any(axis=0).sum() <= 4
        assert hidden.sum() <= 6 * 60


def test_series_without_holes_count_by_how_models_compare_there():
    """Of an easy series and one that is ten times as hard neither decides alone."""
    which = np.repeat([0, 1, 2], 50)
    squared = np.array([[1.0, 2.0, 400.0], [2.0, 1.0, 100.0]])[:, which]
    cells = Hidden(which, np.arange(150) // 50, np.ones(150))
    usual = usual_errors(squared, cells, 3)
    np.testing.assert_allclose(usual, [2**0.5, 2**0.5, 200.0])
    losses = by_holes(cells, np.array([40, 0, 0]), usual) * usual[which]
    assert losses[which == 1].sum() == pytest.approx(losses[which == 2].sum())
    assert losses[which == 0].sum() > losses[which == 1].sum()


def test_moments_at_which_nobody_read_stay_so():
    missing = np.zeros((400, 6), dtype=bool)
    missing[50:60] = True
    for hidden, left in hidden_by(missing):
        rows = hidden.any(axis=1)
        assert 10 <= rows.sum() <= 40
        assert 10 <= runs(rows).max() <= 20
        assert hidden[rows].all()
        assert not left[rows].any()


def test_what_is_missing_at_the_end_is_at_the_end_of_a_shorter_table():
    missing = np.zeros((200, 3), dtype=bool)
    missing[180:] = True
    for hidden, left in hidden_by(missing):
        rows = np.flatnonzero(hidden.any(axis=1))
        assert np.flatnonzero(left.any(axis=1)).max() < rows.min()
        assert len(rows) == pytest.approx(20, abs=1)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.7])
def test_something_is_left_of_every_series(share):
    missing = np.random.default_rng(1).random((120, 8)) < share
    for hidden, left in hidden_by(missing):
        assert hidden.sum() <= holes.MOST_HIDDEN * (~missing).sum() + 1
        many = (~missing).sum(axis=0)
        assert (hidden.sum(axis=0) <= holes.MOST_OF_SERIES * many).all()
        assert (left.sum(axis=0) >= 2).all()


def test_a_large_table_is_judged_in_windows_with_something_hidden():
    missing = np.zeros((3000, 200), dtype=bool)
    missing[1000:1050, 7] = True
    for hidden, left in hidden_by(missing):
        assert hidden.sum() >= 10
        assert (left | hidden).any(axis=0).sum() == holes.MOST_SERIES
        assert (left | hidden).sum() <= holes.MOST_CELLS * 1.05


@pytest.mark.parametrize("like", ["cells", "blocks", "blackout", "end"])
def test_holes_can_be_like_what_a_user_says(like):
    for hidden, left in hidden_by(np.zeros((400, 5), dtype=bool), like):
        assert 0.05 < hidden.sum() / (hidden | left).sum() < 0.2
        whole_rows = hidden.all(axis=1).sum() / hidden.any(axis=1).sum()
        lengths = np.diff(np.flatnonzero(np.diff(np.pad(hidden[:, 0], 1).astype(int))))[::2]
        if like == "cells":
            assert np.median(lengths) <= 2
        if like in ("blackout", "end"):
            assert whole_rows == 1.0
        if like == "blocks":
            assert whole_rows < 0.5
            assert lengths.max(initial=10) >= 5
        if like == "end":
            assert np.flatnonzero(left.any(axis=1)).max() < np.flatnonzero(hidden[:, 0]).min()


def test_holes_of_irregular_times_move_in_time():
    """A gap of an hour hides an hour, however many readings that is."""
    rng = np.random.default_rng(0)
    when = np.sort(rng.uniform(0, 1000, 600))
    lost = (when > 400) & (when < 450)
    ids = Ids(np.array(["a"], dtype=object), "series"), Ids(when, "time")

    def cells(rows):
        codes = np.zeros(len(rows), np.int32), rows.astype(np.int32)
        return Observations(codes, np.zeros(len(rows), np.float32), ids)

    readings = Readings.of(cells(np.flatnonzero(~lost)), 1, cells(np.flatnonzero(lost)))
    trial = next(trials(readings, "table", rng))
    hidden, left = (np.sort(when[~lost][rows]) for rows in (trial.hidden, trial.train))
    outage = np.searchsorted(left, hidden)  # readings that are left lie between outages
    for number in np.unique(outage):
        assert np.ptp(hidden[outage == number]) <= 110  # it may lie around what is missing
    assert len(hidden) > 5


def test_reach_is_half_the_harmonic_mean():
    seen = Timed(np.array([0, 0]), np.array([0.0, 8.0]))
    asked = Timed(np.zeros(3, int), np.array([4.0, 2.0, 11.0]))
    assert reach(seen, asked, 1).tolist() == [2.0, 1.5, 3.0]


def test_hidden_cells_count_as_often_as_holes_like_them():
    """Where holes meet others they are longer than those of the table, and count less."""
    missing = np.zeros((500, 4), dtype=bool)
    missing[::5] = False
    missing[2::7, :2] = True
    readings = arranged(missing)
    drawn = trials(readings, "table", np.random.default_rng(0))
    taken = [next(drawn) for _ in range(6)]
    weights = np.concatenate(likeness(readings, taken))
    assert weights.mean() == pytest.approx(1.0)
    seen, far = readings.seen, []
    for train, hidden in taken:
        own = Timed(seen.which[train], seen.when[train])
        far.append(reach(own, Timed(seen.which[hidden], seen.when[hidden]), 4))
    reached = np.concatenate(far)
    assert weights[reached == 0.5].mean() > 1.0
    assert np.all(weights[reached > 0.6] < 1.0)
