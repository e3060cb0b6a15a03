"""Splits: the paper's formula to the row, past and future, whole users, and too little data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisewise.errors import DataError
from noisewise.splits import Split, random_split, rating_split, split_by_time, split_by_user

shares = st.floats(0.05, 0.6)


def assert_parts_are_disjoint_and_complete(split: Split, n: int) -> None:
    parts = (split.train, split.validation, split.test)
    assert all(part.dtype == np.int64 and len(part) for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    np.testing.assert_array_equal(
        np.sort(split.fit), np.sort(np.concatenate([split.train, split.validation]))
    )


@given(n=st.integers(11, 3000), seed=st.integers(0, 2**32))
def test_rating_split_is_the_formula_of_the_paper(n, seed):
    split = rating_split(n, seed)
    order = np.random.default_rng(seed).permutation(n)
    rest = order[n // 10 :]
    np.testing.assert_array_equal(split.test, order[: n // 10])
    np.testing.assert_array_equal(split.validation, rest[: len(rest) // 10])
    np.testing.assert_array_equal(split.train, rest[len(rest) // 10 :])
    np.testing.assert_array_equal(split.fit, rest)
    assert split.seed == seed
    assert_parts_are_disjoint_and_complete(split, n)


def test_rating_split_of_movielens_1m_has_the_known_sizes():
    split = rating_split(1_000_209, seed=0)
    assert (len(split.test), len(split.validation), len(split.train)) == (100_020, 90_018, 810_171)


def test_another_seed_draws_another_split():
    assert not np.array_equal(rating_split(100, 0).test, rating_split(100, 1).test)


@given(times=st.lists(st.integers(0, 20), min_size=40, max_size=200), test=shares)
def test_time_split_puts_nothing_later_than_test_into_train(times, test):
    split = split_by_time(times, test=test, validation=0.2)
    time = np.array(times)
    assert_parts_are_disjoint_and_complete(split, len(time))
    assert time[split.train].max() <= time[split.validation].min()
    assert time[split.validation].max() <= time[split.test].min()
    assert split.seed is None


def test_of_equal_times_the_upper_row_is_the_earlier_one():
    split = split_by_time(np.zeros(100))
    np.testing.assert_array_equal(split.train, np.arange(81))
    np.testing.assert_array_equal(split.validation, np.arange(81, 90))
    np.testing.assert_array_equal(split.test, np.arange(90, 100))


def test_time_may_be_datetime64():
    days = np.datetime64("2000-01-01") + np.arange(20)[::-1]
    split = split_by_time(days, test=0.1, validation=0.5)
    np.testing.assert_array_equal(split.test, [0, 1])
    np.testing.assert_array_equal(split.validation, np.arange(2, 11))


@given(seed=st.integers(0, 1000), test=shares, validation=shares)
def test_each_user_is_tested_on_their_own_future(seed, test, validation):
    rng = np.random.default_rng(seed)
    users = np.repeat([7, -3, 12, 4], [60, 45, 50, 2])
    rng.shuffle(users)
    time = rng.integers(0, 30, len(users))
    split = split_by_time(time, test=test, validation=validation, users=users)
    assert_parts_are_disjoint_and_complete(split, len(users))
    for user in np.unique(users):
        train, later, last = (
            rows[users[rows] == user] for rows in (split.train, split.validation, split.test)
        )
        n = len(train) + len(later) + len(last)
        assert len(last) == int(test * n + 1e-6)
        assert len(later) == int(validation * (n - len(last)) + 1e-6)
        # Rows of one user in order of time, then of the table, are train, validation, test.
        own = np.flatnonzero(users == user)
        in_time = own[np.argsort(time[own], kind="stable")]
        assert set(in_time[: len(train)]) == set(train)
        assert set(in_time[n - len(last) :]) == set(last)


def test_a_user_with_one_row_stays_in_train():
    users = np.array([0] * 20 + [1])
    split = split_by_time(np.arange(21), users=users)
    assert 20 in split.train


def test_one_user_is_split_like_the_whole_table():
    time = np.random.default_rng(0).integers(0, 9, 300)
    whole, one = split_by_time(time), split_by_time(time, users=np.full(300, 5))
    np.testing.assert_array_equal(whole.train, one.train)
    np.testing.assert_array_equal(whole.validation, one.validation)
    np.testing.assert_array_equal(whole.test, one.test)


@given(seed=st.integers(0, 1000), n_users=st.integers(60, 90), test=shares, validation=shares)
def test_no_user_is_in_two_parts(seed, n_users, test, validation):
    users = np.random.default_rng(seed).permutation(np.arange(500) % n_users) * 3 - 40
    split = split_by_user(users, test=test, validation=validation, seed=seed)
    assert_parts_are_disjoint_and_complete(split, len(users))
    train, held, last = (
        np.unique(users[rows]) for rows in (split.train, split.validation, split.test)
    )
    n = len(np.unique(users))
    assert len(train) + len(held) + len(last) == n
    assert len(last) == int(test * n + 1e-6)
    assert len(held) == int(validation * (n - len(last)) + 1e-6)
    assert split.seed == seed


def test_split_by_user_depends_on_the_seed_alone():
    users = np.repeat(np.arange(100), 3)
    first, again = split_by_user(users, seed=1), split_by_user(users, seed=1)
    np.testing.assert_array_equal(first.test, again.test)
    assert not np.array_equal(first.test, split_by_user(users, seed=2).test)


@given(n=st.integers(20, 500), fraction=shares, seed=st.integers(0, 99))
def test_random_split_parts_are_disjoint_and_complete(n, fraction, seed):
    train, held_out = random_split(n, fraction, np.random.default_rng(seed))
    np.testing.assert_array_equal(np.sort(np.r_[train, held_out]), np.arange(n))
    assert len(held_out) == int(fraction * n + 1e-6)


def test_random_split_does_not_lose_a_row_to_rounding():
    assert 0.29 * 100 < 29
    assert len(random_split(100, 0.29, np.random.default_rng(0))[1]) == 29


def test_random_split_moves_the_generator_on():
    rng = np.random.default_rng(0)
    first, second = random_split(50, 0.1, rng), random_split(50, 0.1, rng)
    assert not np.array_equal(first[1], second[1])


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.5, 0.99, 0.99999999, 1e-6])
def test_the_number_of_rows_asked_for_is_the_smallest_that_works(fraction):
    with pytest.raises(DataError, match="at least") as error:
        random_split(1, fraction, np.random.default_rng(0))
    needed = int(str(error.value).split("at least ")[1].split()[0])
    train, held_out = random_split(needed, fraction, np.random.default_rng(0))
    assert len(train) >= 1
    assert len(held_out) == 1
    with pytest.raises(DataError, match=f"at least {needed} rows; got {needed - 1}"):
        random_split(needed - 1, fraction, np.random.default_rng(0))


@pytest.mark.parametrize("n", [-1, 0, 1, 10])
def test_too_few_ratings_say_how_many_are_needed(n):
    with pytest.raises(DataError, match=f"needs at least 11 ratings; got {n}"):
        rating_split(n, seed=0)
    assert len(rating_split(11, seed=0).validation) == 1


@given(test=st.floats(0.001, 0.99), validation=st.floats(0.001, 0.99))
def test_the_number_of_users_asked_for_is_the_smallest_that_works(test, validation):
    with pytest.raises(DataError, match="users; got 1") as error:
        split_by_user([4, 4], test=test, validation=validation, seed=0)
    needed = int(str(error.value).split("at least ")[1].split()[0])
    shares = {"test": test, "validation": validation, "seed": 0}
    assert_parts_are_disjoint_and_complete(split_by_user(np.arange(needed), **shares), needed)
    with pytest.raises(DataError, match=f"got {needed - 1}"):
        split_by_user(np.arange(needed - 1), **shares)


def test_short_histories_say_how_long_one_must_be():
    with pytest.raises(DataError, match="at least 11 rows of one user; got 10"):
        split_by_time(np.arange(50), users=np.repeat(np.arange(5), 10))
    with pytest.raises(DataError, match="at least 11 rows; got 0"):
        split_by_time([])


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan")])
def test_a_share_lies_between_0_and_1(share):
    with pytest.raises(DataError, match=f"test is a share .* got {share}"):
        split_by_time(np.arange(50), test=share)
    with pytest.raises(DataError, match="validation is a share"):
        split_by_user(np.arange(50), validation=share, seed=0)
    with pytest.raises(DataError, match="fraction is a share"):
        random_split(50, share, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ([1.0, float("nan"), 2.0], "got nan in row 1"),
        (np.array(["2000-01-01", "NaT"], "datetime64[D]"), "got NaT in row 1"),
        (["2000-01-01", "2000-01-02"], "got dtype <U10"),
        (np.zeros((3, 2)), r"shape \(3, 2\)"),
    ],
)
def test_time_without_an_order_is_refused(time, message):
    with pytest.raises(DataError, match=message):
        split_by_time(time)


def test_codes_that_are_not_integers_or_not_one_per_row_are_refused():
    with pytest.raises(DataError, match=r"user_codes needs one integer code.*np\.unique"):
        split_by_user(["ann", "bob"], seed=0)
    with pytest.raises(DataError, match="users needs one integer code"):
        split_by_time(np.arange(3), users=[0.0, 1.0, 2.0])
    with pytest.raises(DataError, match="users needs one code per row, 3; got 2"):
        split_by_time(np.arange(3), users=[0, 1])
