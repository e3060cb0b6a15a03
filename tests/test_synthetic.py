"""Made-up ratings: reproducible, shaped as promised, and their noise is what it says it is."""

import numpy as np
import pytest

from noisewise.data.synthetic import SyntheticRatings, make_ratings
from noisewise.errors import SettingError


@pytest.fixture(scope="module")
def ratings() -> SyntheticRatings:
    return make_ratings(1200, 400, seed=3)


def table_of(ratings: SyntheticRatings, column: np.ndarray) -> np.ndarray:
    """The column as a matrix of the users who rated everything, and all items."""
    users, items = ratings.observations.codes
    matrix = np.full(ratings.observations.shape, np.nan)
    matrix[users, items] = column
    return matrix[~np.isnan(matrix).any(axis=1)]


def test_same_seed_gives_the_same_ratings(ratings):
    again = make_ratings(1200, 400, seed=3)
    for mode in range(2):
        assert np.array_equal(again.observations.codes[mode], ratings.observations.codes[mode])
    assert np.array_equal(again.observations.values, ratings.observations.values)
    assert np.array_equal(again.true_mean, ratings.true_mean)
    assert np.array_equal(again.true_std, ratings.true_std)


def test_another_seed_gives_other_ratings(ratings):
    other = make_ratings(1200, 400, seed=4)
    assert len(other.observations) != len(ratings.observations)


def test_ids_are_text_with_leading_zeros(ratings):
    users, items = ratings.observations.ids
    assert users.labels[17] == "user0017"
    assert items.labels[3] == "item003"
    assert ratings.observations.names == ("user", "item")


def test_no_cell_is_rated_twice(ratings):
    cells = np.column_stack(ratings.observations.codes)
    assert len(np.unique(cells, axis=0)) == len(cells)


@pytest.mark.parametrize("density", [0.1, 0.2, 0.7])
def test_density_is_the_share_of_rated_cells(density):
    n = len(make_ratings(2000, 400, density=density, seed=0).observations)
    assert n / (2000 * 400) == pytest.approx(density, rel=0.06)


def test_some_users_rate_much_and_some_little(ratings):
    counts = np.bincount(ratings.observations.codes[0], minlength=1200)
    assert counts.min() >= 3
    assert np.quantile(counts, 0.1) < 0.25 * np.median(counts)
    assert np.quantile(counts, 0.95) > 2 * np.median(counts)


def test_some_items_are_popular(ratings):
    counts = np.bincount(ratings.observations.codes[1], minlength=400)
    assert np.quantile(counts, 0.95) > 2 * np.median(counts)


def test_ratings_are_around_one_to_five_stars_and_not_rounded(ratings):
    values = ratings.observations.values
    low, high = np.quantile(values, [0.05, 0.95])
    assert 0.5 < low < 2.0
    assert 4.5 < high < 6.0
    assert len(np.unique(values)) > 0.9 * len(values)


def test_true_mean_and_std_are_those_of_the_ratings(ratings):
    z = (ratings.observations.values - ratings.true_mean) / ratings.true_std
    for part in np.array_split(np.argsort(ratings.true_std), 5):
        assert z[part].mean() == pytest.approx(0.0, abs=0.03)
        assert z[part].std() == pytest.approx(1.0, abs=0.02)
        assert np.mean(np.abs(z[part]) < 1.645) == pytest.approx(0.9, abs=0.01)


def test_noise_is_the_root_mean_square_of_the_std():
    ratings = make_ratings(200, 100, noise=1.3, seed=0)
    assert np.sqrt(np.mean(ratings.true_std**2)) == pytest.approx(1.3)


def test_a_fifth_of_the_users_is_clearly_noisier(ratings):
    users = ratings.observations.codes[0]
    noise = np.sqrt(np.bincount(users, ratings.true_std**2) / np.bincount(users))
    ordinary, careless = np.quantile(noise, [0.75, 0.9])
    assert careless > 2 * ordinary


def test_mean_and_variance_are_low_rank():
    ratings = make_ratings(300, 30, density=0.95, rank=3, deviation_rank=2, seed=0)
    mean, variance = (table_of(ratings, c) for c in (ratings.true_mean, ratings.true_std**2))
    assert len(mean) > 30
    assert np.linalg.matrix_rank(mean, tol=1e-8) == 3 + 2  # factors, and the biases
    assert np.linalg.matrix_rank(variance, tol=1e-8) == 2 + 1  # factors, and the floor


def test_deviation_rank_zero_gives_all_the_same_noise():
    ratings = make_ratings(50, 40, deviation_rank=0, noise=0.5, seed=0)
    assert np.all(ratings.true_std == 0.5)


def test_rank_zero_leaves_only_biases():
    ratings = make_ratings(300, 30, density=0.95, rank=0, seed=0)
    assert np.linalg.matrix_rank(table_of(ratings, ratings.true_mean), tol=1e-8) == 2


def test_a_single_user_and_item_is_a_table():
    ratings = make_ratings(1, 1, seed=0)
    assert ratings.observations.decode() == [("user0", "item0")]


def test_take_keeps_rows_together(ratings):
    part = ratings.take(np.array([5, 2]))
    assert part.observations.values.tolist() == ratings.observations.values[[5, 2]].tolist()
    assert part.true_mean.tolist() == ratings.true_mean[[5, 2]].tolist()
    assert part.true_std.tolist() == ratings.true_std[[5, 2]].tolist()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("n_users", 0),
        ("n_items", 1.5),
        ("density", 0.0),
        ("density", 1.0),
        ("rank", -1),
        ("deviation_rank", -1),
        ("noise", 0.0),
        ("noise", float("nan")),
        ("seed", -1),
    ],
)
def test_a_setting_out_of_range_is_named(setting, value):
    with pytest.raises(SettingError, match=rf"^{setting} must be .*; got {value!r}\.$"):
        make_ratings(**{setting: value})
