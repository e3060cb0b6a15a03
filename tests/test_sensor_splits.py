"""Splits of tensors: the share of all cells to the row, outages of single series, and errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisewise.errors import DataError
from noisewise.splits import block_split, share_split

SHAPE = (4, 3, 50)


def observed(n=400, seed=0):
    """Return the codes of n different cells, in random order."""
    cells = np.random.default_rng(seed).permutation(np.prod(SHAPE))[:n]
    return [column.astype(np.int32) for column in np.unravel_index(cells, SHAPE)]


def cells_of(codes, rows):
    return np.ravel_multi_index([column[rows] for column in codes], SHAPE)


def assert_parts_are_disjoint_and_complete(split, n):
    parts = (split.train, split.validation, split.test)
    assert all(len(part) for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))


@given(seed=st.integers(0, 2**32), share=st.floats(0.02, 0.6))
def test_share_split_is_its_formula(seed, share):
    codes = observed()
    split = share_split(SHAPE, codes, share, seed)
    assert_parts_are_disjoint_and_complete(split, 400)
    drawn = np.sort(cells_of(codes, slice(None)))[np.random.default_rng(seed).permutation(400)]
    n_fit = int(share * 600 + 1e-6)
    np.testing.assert_array_equal(cells_of(codes, split.fit), drawn[:n_fit])
    np.testing.assert_array_equal(cells_of(codes, split.test), drawn[n_fit:])
    assert len(split.validation) == n_fit // 10
    assert split.seed == seed


def test_share_is_of_all_cells_and_not_of_the_observed():
    assert len(share_split(SHAPE, observed(), 0.5, 0).fit) == 300
    assert len(share_split((8, 3, 50), observed(), 0.25, 0).fit) == 300


def test_the_same_cells_are_drawn_whatever_their_order():
    codes = observed()
    order = np.random.default_rng(1).permutation(400)
    shuffled = [column[order] for column in codes]
    a, b = share_split(SHAPE, codes, 0.3, 7), share_split(SHAPE, shuffled, 0.3, 7)
    np.testing.assert_array_equal(cells_of(codes, a.test), cells_of(shuffled, b.test))
    np.testing.assert_array_equal(cells_of(codes, a.train), cells_of(shuffled, b.train))


def test_a_smaller_share_is_a_part_of_a_larger_one():
    small, large = (share_split(SHAPE, observed(), share, 3) for share in (0.2, 0.4))
    assert set(small.fit) < set(large.fit)


def test_another_seed_draws_other_cells():
    a, b = (share_split(SHAPE, observed(), 0.3, seed) for seed in (0, 1))
    assert not np.array_equal(a.test, b.test)


def test_more_than_what_is_observed_cannot_train():
    with pytest.raises(DataError, match=r"0.7 is 420 of 600 cells, but only 400 are observed"):
        share_split(SHAPE, observed(), 0.7, 0)
    with pytest.raises(DataError, match=r"one at least must be left for test"):
        share_split((20, 20, 1), np.unravel_index(np.arange(200), (20, 20, 1)), 0.5, 0)


@pytest.mark.parametrize(
    ("shape", "codes", "share", "message"),
    [
        (SHAPE, observed(), 0.01, "0.01 is 6 of 600 cells; at least 10 are needed"),
        (SHAPE, observed(), 0.0, "share must lie between 0 and 1; got 0.0"),
        (SHAPE, observed(), 5, "share must lie between 0 and 1; got 5"),
        (SHAPE, observed()[:2], 0.3, "codes needs one array per mode, 3; got 2"),
        ((4, 3, 9), observed(), 0.3, "codes of mode 2 must lie in 0 to 8; got 49"),
        (SHAPE, [c - 1 for c in observed()], 0.3, "mode 0 must lie in 0 to 3; got -1"),
        (
            SHAPE,
            [c.astype(float) for c in observed()],
            0.3,
            "codes of mode 0 needs one integer code per row",
        ),
        (SHAPE, [np.zeros(0, int)] * 3, 0.3, "the same rows in every mode, one or more; got"),
    ],
)
def test_share_split_refuses_what_makes_no_sense(shape, codes, share, message):
    with pytest.raises(DataError, match=message):
        share_split(shape, codes, share, 0)


@given(seed=st.integers(0, 1000), length=st.integers(2, 9), share=st.floats(0.1, 0.6))
def test_a_block_of_a_series_is_in_one_part_only(seed, length, share):
    codes = observed(seed=seed)
    split = block_split(codes[:2], codes[2], length, share, seed)
    assert_parts_are_disjoint_and_complete(split, 400)
    stretch = (codes[2] - codes[2].min()) // length
    blocks = [
        set(zip(codes[0][part], codes[1][part], stretch[part], strict=True))
        for part in (split.train, split.validation, split.test)
    ]
    n = sum(map(len, blocks))
    assert n == len(set.union(*blocks))
    assert len(blocks[2]) == int(share * n + 1e-6)
    assert len(blocks[1]) == (n - len(blocks[2])) // 10


def test_blocks_are_hidden_in_single_series_and_not_in_all_at_once():
    codes = np.unravel_index(np.arange(600), SHAPE)
    split = block_split(codes[:2], codes[2], 10, 0.2, 0)
    hidden = np.zeros(SHAPE, bool)
    hidden[tuple(column[split.test] for column in codes)] = True
    assert hidden.sum() == 120
    assert not hidden.all(axis=(0, 1)).any()
    assert hidden.reshape(12, 5, 10).all(axis=2).sum() == 12


def test_the_same_blocks_are_hidden_whatever_the_order_of_rows():
    codes = observed()
    order = np.random.default_rng(1).permutation(400)
    shuffled = [column[order] for column in codes]
    a, b = (block_split(c[:2], c[2], 6, 0.2, 7) for c in (codes, shuffled))
    assert set(cells_of(codes, a.test)) == set(cells_of(shuffled, b.test))
    assert set(cells_of(codes, a.validation)) == set(cells_of(shuffled, b.validation))


def test_stretches_go_by_time_and_not_by_its_rank():
    time = np.tile(np.r_[0:10, 1000:1010], 30).astype(float)
    series = np.repeat(np.arange(30), 20)
    split = block_split([series], time, 10.0, 0.5, 0)
    assert len(split.test) == 300
    for part in (split.train, split.test):
        assert set(np.unique(series[part] * 2 + (time[part] >= 1000), return_counts=True)[1]) == {
            10
        }


@pytest.mark.parametrize(
    ("time", "length", "share", "message"),
    [
        (np.arange(40), 0, 0.2, "length must be above 0, in units of time; got 0"),
        (np.arange(40), np.inf, 0.2, "length must be above 0"),
        (np.arange(40), 30, 0.2, "of 2 blocks leaves 0 for test and 0 for validation"),
        (np.arange(40), 1, 1.5, "share must lie between 0 and 1; got 1.5"),
        (
            np.arange(39),
            1,
            0.2,
            r"one finite number per row, 40; got dtype int64 and shape \(39,\)",
        ),
        (np.full(40, np.nan), 1, 0.2, "one finite number per row"),
    ],
)
def test_block_split_refuses_what_makes_no_sense(time, length, share, message):
    with pytest.raises(DataError, match=message):
        block_split([np.zeros(40, int)], time, length, share, 0)
