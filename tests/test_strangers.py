"""Intervals of cells with an id never seen: they cover as often as they say, and stay in files."""

from dataclasses import replace

import numpy as np
import pytest

from noisewise import BayesianFactorizer, storage
from noisewise.calibration import Calibration

KNOWN, NEW, ITEMS = 500, 1_500, 40
NOISE, OF_USERS, OF_ITEMS, MIDDLE = 0.3, 0.4, 0.8, 3.7
pytestmark = pytest.mark.filterwarnings("ignore:Predictions have not settled")


def stars(seed=0):
    """Return cells of users and items, and their whole stars."""
    rng = np.random.default_rng(seed)
    users, items = rng.normal(0, OF_USERS, KNOWN + NEW), rng.normal(0, OF_ITEMS, ITEMS)
    share = np.where(np.arange(KNOWN + NEW) < KNOWN, 0.25, 0.1)[:, None]
    cells = np.argwhere(rng.uniform(size=(KNOWN + NEW, ITEMS)) < share)
    values = MIDDLE + users[cells[:, 0]] + items[cells[:, 1]] + rng.normal(0, NOISE, len(cells))
    return cells, np.clip(np.rint(values), 1, 5)


CELLS, STARS = stars()
COLD = CELLS[:, 0] >= KNOWN


def build(**settings):
    usual = {"rank": 2, "sweeps": 60, "burn_in": 20, "random_state": 0, "verbose": False}
    return BayesianFactorizer(**{**usual, "n_jobs": 1, **settings})


@pytest.fixture(scope="module")
def model():
    return build().fit(CELLS[~COLD], STARS[~COLD])


def as_before(model):
    """Return the model without half-widths of strangers."""
    twin = build().set_params(**model.get_params())
    vars(twin).update(vars(model))
    twin.calibration_ = replace(model.calibration_, strangers=None)
    return twin


def covered(model):
    low, high = model.predict_interval(CELLS[COLD])
    return np.mean((low <= STARS[COLD]) & (STARS[COLD] <= high))


@pytest.mark.filterwarnings("ignore:.*never trained on")
def test_intervals_of_new_users_cover_as_often_as_they_say(model):
    assert 0.87 <= covered(model) <= 0.93


def test_intervals_of_known_cells_are_as_they_were(model):
    some = CELLS[~COLD][::7]
    np.testing.assert_array_equal(
        model.predict_interval(some), as_before(model).predict_interval(some)
    )
    assert not model.strangers(some).any()


def test_any_number_of_threads_has_the_same_half_widths(model):
    other = build(n_jobs=3).fit(CELLS[~COLD], STARS[~COLD])
    for mine, theirs in zip(
        model.calibration_.strangers, other.calibration_.strangers, strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_features_make_no_id_a_known_one():
    table = {"user": np.arange(KNOWN + NEW), "group": np.arange(KNOWN + NEW) % 3}
    model = build().fit(CELLS[~COLD], STARS[~COLD], features={"user": table})
    assert model.strangers(CELLS).tolist() == COLD.tolist()


def test_a_new_row_knows_with_whom_it_is_a_stranger(model):
    row = model.fold_in([0, 1, 2], [4, 5, 3])
    assert row.strangers([0, 999]).tolist() == [False, True]
    low, high = row.predict_interval([0, 999])
    assert (low < high).all()


@pytest.mark.filterwarnings("ignore:.*never trained on")
def test_files_keep_half_widths_and_older_ones_have_none(model, tmp_path):
    path, old = tmp_path / "model.nw", tmp_path / "old.nw"
    model.save(path)
    cells = CELLS[::11]
    again = BayesianFactorizer.load(path)
    np.testing.assert_array_equal(again.predict_interval(cells), model.predict_interval(cells))
    as_before(model).save(old)
    assert not [name for name in storage.read(old, "model")[1] if "strangers" in name]
    own = model.calibration_.strangers
    one = own._replace(std_groups=own.std_groups[:1], widths=own.widths[..., :1])
    earlier, between = as_before(model), tmp_path / "between.nw"
    earlier.calibration_ = replace(model.calibration_, strangers=one)
    earlier.save(between)
    np.testing.assert_array_equal(
        BayesianFactorizer.load(between).predict_interval(cells), model.predict_interval(cells)
    )
    older = BayesianFactorizer.load(old)
    assert older.strangers(cells) is None
    np.testing.assert_array_equal(
        older.predict_interval(cells), as_before(model).predict_interval(cells)
    )


def test_two_new_ids_have_half_widths_of_their_own():
    rng = np.random.default_rng(0)
    error, mean, std = rng.normal(size=6_000), rng.normal(size=6_000), np.ones(6_000)
    unseen = np.repeat([1.0, 2.0], 3_000)
    known = Calibration.left_out(mean + 1.2 * error, mean, 1.2 * std, np.empty(0))
    found = known.with_strangers(mean + np.where(unseen == 2, 0.7, 1.0) * error, mean, std, unseen)
    wide, one, two = (
        np.mean(found.half_width(0.9, mean, std, np.full(6_000, many))) for many in (0, 1, 2)
    )
    assert one == pytest.approx(np.sqrt(wide * 1.645), rel=0.05)
    assert two == pytest.approx(0.7 * 1.645, rel=0.05)


@pytest.mark.filterwarnings("ignore:.*never trained on")
def test_cells_know_how_many_of_their_ids_are_new(model):
    cells = [(0, 0), (9_999, 0), (9_999, 999)]
    assert model.strangers(cells).tolist() == [0, 1, 2]
    low, high = model.predict_interval(cells)
    assert (low < high).all()


def test_few_cells_and_errors_that_are_no_numbers_leave_all_as_it_is():
    rng = np.random.default_rng(0)
    truth, mean = rng.normal(size=(2, 1_000))
    found = Calibration.left_out(truth, mean, np.ones(1_000), np.empty(0))
    unseen = np.tile([1.0, 2.0], 500)
    assert found.with_strangers(truth[:99], mean[:99], np.ones(99), unseen[:99]) is found
    assert found.with_strangers(truth, mean, np.ones(1_000), np.ones(1_000)) is found
    assert found.with_strangers(truth, mean, np.zeros(1_000), unseen) is found
    assert found.with_strangers(truth, truth, np.ones(1_000), unseen) is found
    assert found.with_strangers(truth, mean, np.ones(1_000), unseen).strangers is not None
