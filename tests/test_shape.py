"""How far a std reaches over the scale of values, and sets of levels."""

import numpy as np
import pytest

from noisewise import BayesianFactorizer, Calibration, DataError, DeviationFactorizer, load
from noisewise.calibration import (
    COVERAGES,
    FEWEST_SHAPED,
    MOST_FACTOR,
    kept_sets,
    level_chances,
    up_to,
)
from noisewise.engine.gibbs.schedule import Thinned
from noisewise.engine.rounding import coded, decoded, rounded
from noisewise.models.levels import levels_of, smallest_sets

LEVELS = np.arange(1.0, 6.0)


def stars(n, seed=0):
    """Means, stds that do not know of the ends of the scale, and stars."""
    rng = np.random.default_rng(seed)
    mean = np.clip(rng.normal(3.6, 0.8, n), 1.0, 5.0)
    true = 1.3 * np.sqrt((mean - 0.5) * (5.5 - mean)) / 2.5
    std = np.exp(rng.normal(0.0, 0.2, n))
    return mean, std, np.clip(np.rint(rng.normal(mean, true * std)), 1.0, 5.0)


@pytest.fixture(scope="module")
def calibrated():
    mean, std, truth = stars(20_000)
    return Calibration.measure(truth - mean, std, mean)


def by_tenths(key, hit):
    return np.array([part.mean() for part in np.array_split(hit[np.argsort(key)], 10)])


def test_every_tenth_of_the_scale_is_covered_as_often_as_promised(calibrated):
    mean, std, truth = stars(40_000, seed=1)
    plain = Calibration.measure(*(lambda m, s, t: (t - m, s))(*stars(20_000)))
    reach = plain.half_width(0.9) * plain.scale * std
    uneven = by_tenths(mean, np.abs(truth - mean) <= reach)
    assert np.ptp(uneven) > 0.1
    own = std * np.sqrt(calibrated.factor(mean, std))
    for coverage in (0.6, 0.9, 0.975):
        hit = np.abs(truth - mean) <= calibrated.half_width(coverage, mean, own) * own
        assert hit.mean() == pytest.approx(coverage, abs=0.01)
        for key in (mean, own) if coverage >= 0.9 else ():  # whole stars allow no finer steps
            assert np.abs(by_tenths(key, hit) - coverage).max() < 0.035
    ratio = np.sqrt(by_tenths(mean, ((truth - mean) / own) ** 2))
    assert np.abs(ratio - 1.0).max() < 0.07


def test_more_coverage_never_takes_less_width_anywhere(calibrated):
    mean, std, _ = stars(300, seed=2)
    mean = np.append(mean, [-9.0, 99.0])
    std = np.append(std, [0.0, 1e9])
    widths = [
        calibrated.half_width(coverage, mean, std)
        for coverage in (0.001, 0.01, 0.033, 0.5, 0.9, 0.91, 0.999, 0.9999)
    ]
    assert (np.diff(widths, axis=0) >= 0).all()
    assert np.isfinite(widths).all()


def test_a_factor_is_bounded_whatever_the_errors():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=2_000)
    error = np.where(mean > 0, 1e3, 1e-6) * rng.standard_cauchy(2_000)
    shape = Calibration.measure(error, np.ones(2_000), mean).shape
    factor = shape.factor(np.linspace(-5, 5, 99), np.ones(99))
    assert factor.min() >= 1 / MOST_FACTOR - 1e-9
    assert factor.max() <= MOST_FACTOR + 1e-9


def test_few_or_equal_cells_fall_back_on_all():
    mean, std, truth = stars(FEWEST_SHAPED - 1)
    few = Calibration.measure(truth - mean, std, mean)
    assert few.shape is None
    assert few.half_width(0.9, mean, std) == few.half_width(0.9)
    mean, std, truth = stars(1_000)
    same = Calibration.measure(truth - 3.0, np.ones(1_000), np.full(1_000, 3.0))
    assert same.shape.widths.shape == (len(COVERAGES), 1, 1)
    none = Calibration.measure(np.zeros(1_000), std, mean)
    assert none.shape is None
    assert Calibration.left_out(truth[:9], mean[:9], std[:9], LEVELS) is None


def test_cells_left_out_tell_the_shape_and_not_the_level():
    mean, std, truth = stars(20_000)
    found = Calibration.left_out(truth, mean, 0.7 * std, LEVELS)
    assert found.scale == 1.0
    assert np.mean(found.factor(mean, std)) == pytest.approx(1.0, abs=0.1)
    ends, middle = (found.factor(np.array([at]), np.ones(1))[0] for at in (4.9, 3.0))
    assert ends < 0.8 * middle


def test_a_short_chain_does_not_make_intervals_narrower():
    mean, std, truth = stars(20_000)
    usual, *others = (
        Calibration.left_out(truth, mean, by * std, LEVELS).half_width(0.9, mean, std).mean()
        for by in (1.0, 3.0, 0.5)
    )
    assert usual == pytest.approx(others[0], rel=0.1)  # stds that were far too large
    assert others[1] > 1.5 * usual  # far too small: errors tell
    scaled = Calibration.left_out(truth, mean, std, LEVELS, None, 1.1)
    assert scaled.factor(mean, std).mean() == pytest.approx(1.21, rel=0.1)
    assert 1.1 * scaled.half_width(0.9, mean, std).mean() == pytest.approx(usual, rel=0.01)


def test_smallest_sets_hold_as_many_as_promised():
    mean, std, truth = stars(20_000)
    fitted = Calibration.left_out(truth, mean, std, LEVELS)
    mean, std, truth = stars(20_000, seed=1)
    chances = level_chances(LEVELS, mean, std * np.sqrt(fitted.factor(mean, std)))
    for coverage in (0.7, 0.9, 0.95):
        sets = smallest_sets(LEVELS, chances, fitted, coverage)
        assert sets[np.arange(20_000), truth.astype(int) - 1].mean() == pytest.approx(
            coverage, abs=0.03
        )
    assert sets.any(axis=1).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


def test_sets_of_known_chances_are_the_least_that_have_enough():
    chances = np.array([[0.1, 0.2, 0.4, 0.25, 0.05], [0.96, 0.01, 0.01, 0.01, 0.01]])
    np.testing.assert_allclose(up_to(chances)[0], [0.95, 0.85, 0.4, 0.65, 1.0])
    sets = smallest_sets(LEVELS, chances, None, 0.8)
    assert sets.tolist() == [[False, True, True, True, False], [True, False, False, False, False]]
    assert kept_sets(chances, LEVELS, [2.0000001, 0.9999]).tolist() == pytest.approx([0.85, 0.96])
    with pytest.raises(DataError, match="predict_set needs a model of values that are levels"):
        smallest_sets(LEVELS[:0], chances, None, 0.9)
    with pytest.raises(DataError, match="coverage must be between 0 and 1"):
        smallest_sets(LEVELS, chances, None, 1.0)


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    users, items = np.divmod(rng.permutation(80 * 70), 70)
    a, b = rng.normal(0, 0.7, 80), rng.normal(0, 0.7, 70)
    values = np.clip(np.rint(3.6 + a[users] + b[items] + rng.normal(0, 0.9, 5_600)), 1, 5)
    return np.column_stack([users, items]), values


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
@pytest.mark.parametrize(
    "model",
    [
        DeviationFactorizer(rank=2, epochs=8, validation_fraction=0.2, random_state=0, n_jobs=1),
        BayesianFactorizer(2, sweeps=80, burn_in=20, samples=15, random_state=0, n_jobs=1),
        BayesianFactorizer(
            2, sweeps=80, burn_in=20, samples=15, likelihood="ordinal", random_state=0, n_jobs=1
        ),
    ],
    ids=["dmf", "bayes", "levels"],
)
def test_models_calibrate_along_the_scale_and_files_keep_it(model, ratings, tmp_path):
    X, y = ratings
    model.fit(X[:4_000], y[:4_000])
    assert model.calibration_.shape is not None
    assert model.levels_.tolist() == [1, 2, 3, 4, 5]
    low, high = model.predict_interval(X[4_000:])
    sets = model.predict_set(X[4_000:])
    assert np.mean((y[4_000:] >= low) & (y[4_000:] <= high)) == pytest.approx(0.9, abs=0.04)
    place = y[4_000:].astype(int) - 1
    assert sets[np.arange(len(sets)), place].mean() == pytest.approx(0.9, abs=0.04)
    model.save(tmp_path / "m.nw")
    again = load(tmp_path / "m.nw")
    np.testing.assert_array_equal(again.predict_interval(X[4_000:]), (low, high))
    np.testing.assert_array_equal(again.predict_set(X[4_000:]), sets)
    new = model.fold_in([1, 2, 3], [5.0, 4.0, 5.0])
    assert (np.diff(new.predict_interval([4, 5]), axis=0) > 0).all()


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
def test_levels_themselves_predict_sets(ratings):
    X, y = ratings
    chosen = {"sweeps": 30, "burn_in": 10, "samples": 6, "random_state": 0, "n_jobs": 1}
    model = BayesianFactorizer(1, likelihood="ordinal", **chosen).fit(X[:400], y[:400])
    assert model.calibration_ is None  # of so few
    chances, sets = model.predict_proba(X[:50]), model.predict_set(X[:50], 0.8)
    assert ((chances * sets).sum(axis=1) >= 0.8 - 1e-9).all()


def test_values_that_are_no_levels_have_no_sets(small_world):
    model = DeviationFactorizer(rank=1, epochs=2, random_state=0, n_jobs=1)
    model.fit(small_world.X, small_world.y + np.arange(len(small_world.y)) * 1e-3)
    with pytest.raises(DataError, match="predict_set needs a model of values that are levels"):
        model.predict_set(small_world.X[:2])
    assert not len(levels_of(np.arange(51.0)))


def test_rounded_rows_come_back_from_bytes_as_they_were():
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(3, 40, 9)) * 10.0 ** rng.uniform(-8, 2, (3, 40, 1))).astype("f2")
    rows[0, 0] = 0.0
    assert coded(rows) is None
    own = rounded(rows)
    np.testing.assert_array_equal(rounded(own), own)
    np.testing.assert_array_equal(decoded(*coded(own)), own)
    largest = np.abs(rows).max(axis=-1, keepdims=True)
    assert (np.abs(own - rows) <= np.maximum(largest / 120, 2.0**-24)).all()
    multiples, powers = coded(own)
    assert decoded(multiples, np.full_like(powers, 255)) is None


@pytest.mark.parametrize("keep", [1, 3, 40])
def test_a_chain_of_any_length_keeps_draws_that_are_evenly_apart(keep):
    schedule = Thinned(sweeps=400, burn_in=13, keep=keep)
    before = []
    for epoch in range(401):
        kept = schedule.kept_by(epoch)
        assert set(kept) <= {*before, epoch}  # nothing comes back
        assert len(kept) <= schedule.room
        assert len(kept) >= min(keep, epoch - 13)
        assert len(set(np.diff(kept))) <= 1
        chosen = schedule.chosen(len(kept))
        assert len(chosen) == min(keep, len(kept))
        before = kept
