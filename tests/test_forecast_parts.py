"""What forecasts are made of: series that tell others, weights by series, rows without readings."""

import numpy as np
import pandas as pd
import pytest

from noisewise import DeviationImputer
from noisewise.errors import DataError
from noisewise.forecast_widths import Widths
from noisewise.forecasting import Forecaster, _mixed
from noisewise.simple_forecasts import (
    AROUND,
    FARTHEST,
    FEWEST_ROWS,
    LAGS,
    NAMES,
    Grid,
    Learned,
    _learned,
    moving,
    near,
)


def test_a_series_that_follows_another_is_told_by_it():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(1201, 8))
    follows = np.hstack([first[1:], first[:-1] + 0.1 * rng.normal(size=(1200, 8))])
    grid = Grid(follows[:800], np.arange(800.0))
    model = Forecaster.of(grid, 2)
    origins = np.arange(800, 1190)
    found = model._mean(Grid(follows, np.arange(1200.0)), origins)
    away = np.sqrt(((found[:, 0] - follows[origins + 1]) ** 2).mean(axis=0))
    assert away[8:].max() < 0.5
    assert away[:8].min() > 0.9  # these come without a sign


def told_by(one, other, origins):
    """Errors of two methods, each near for half of the series; all others are far off."""
    rng = np.random.default_rng(0)
    error = rng.normal(size=(len(NAMES), origins, 3, 4)) * 3.0
    error[NAMES.index(one), ..., :2] *= 0.2
    error[NAMES.index(other), ..., 2:] *= 0.2
    return error


def test_weights_are_those_of_a_series_where_it_has_told_them_often():
    many = _mixed(told_by("slot", "moves", 20_000), np.ones(20_000))
    few = _mixed(told_by("slot", "moves", 60), np.ones(60))
    assert many.shape == (3, len(NAMES), 4)
    np.testing.assert_allclose(many.sum(axis=1), 1.0)
    slot, moves = NAMES.index("slot"), NAMES.index("moves")
    assert many[:, slot, :2].min() > 0.7
    assert many[:, moves, 2:].min() > 0.7
    assert few[:, slot, :2].max() < 0.6
    assert (few >= 0).all()


def test_a_series_that_was_never_judged_has_the_weights_of_all():
    error = told_by("slot", "slot", 500)
    alone = error.copy()
    alone[..., 3] = np.nan
    weights = _mixed(alone, np.ones(500))
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights[..., 3], weights[..., :3].mean(axis=2), atol=0.05)


def test_what_a_lone_reading_counts_at_most_is_told_by_the_median_of_five():
    z = np.random.default_rng(0).normal(size=(300, 2)) * 8
    before = np.vstack([np.repeat(z[:1], AROUND - 1, axis=0), z])
    middle = np.median([before[k : k + 300] for k in range(AROUND)], axis=0)
    np.testing.assert_array_equal(near(z), np.clip(z, middle - FARTHEST, middle + FARTHEST))


def test_moving_means_forget():
    values = np.random.default_rng(0).normal(size=(50, 3))
    for start in (None, 1.0):
        level = values[0] if start is None else np.ones(3)
        for row, found in zip(values, moving(values, 12, start), strict=True):
            level = level + (row - level) / 12
            np.testing.assert_allclose(found, level, atol=1e-12)


def test_regressions_of_many_series_learn_from_the_last_rows():
    assert len(_learned(20_000, 10, 3)) == 20_000 - LAGS - 3
    assert len(_learned(20_000, 100, 3)) == 4_000
    assert len(_learned(20_000, 10_000, 3)) == FEWEST_ROWS
    assert _learned(20_000, 100, 3)[-1] == 20_000 - 4
    assert not len(_learned(4, 100, 3))


def test_widths_are_learned_where_all_that_tells_them_is_alike():
    left = np.ones((60, 2, 3)) * np.where(np.arange(60) % 2, 1.0, -1.0)[:, None, None]
    assert np.isfinite(Widths.of(left, np.ones(60), np.ones(3)).now()).all()


def steady(rows=480, seed=0):
    """A clear day in hourly rows, and a walk."""
    rng = np.random.default_rng(seed)
    hours = np.arange(rows)
    day = 5 * np.sin(hours / 24 * 2 * np.pi) + 0.2 * rng.normal(size=rows)
    return np.column_stack([day, np.cumsum(rng.normal(size=rows))])


def test_forecasts_come_after_rows_without_readings():
    table = steady()
    holed = table.copy()
    holed[-7:] = np.nan
    imputer = DeviationImputer("linear", n_jobs=1)
    told, short = imputer.fit(holed).forecast(3), imputer.fit(table[:-7]).forecast(10)
    for one, other in zip(told, short, strict=True):
        np.testing.assert_array_equal(one, other[7:])
    assert np.abs(told.mean[:, 0] - 5 * np.sin(np.arange(480, 483) / 24 * 2 * np.pi)).max() < 0.7
    near_by = imputer.fit(table).forecast(3)
    assert (told.high - told.low)[0, 1] > 1.7 * (near_by.high - near_by.low)[0, 1]


def test_newer_rows_without_readings_are_passed_over():
    hours = pd.date_range("2024-05-01", periods=480, freq="h", name="when")
    frame = pd.DataFrame(steady(), index=hours, columns=["day", "walk"])
    frame.iloc[-7:] = np.nan
    early = DeviationImputer("linear", n_jobs=1).fit(frame[:470])
    told = early.forecast(2, frame[470:])
    assert told.mean.index[0] == hours[-1] + pd.Timedelta(hours=1)
    assert (told.mean["day"] - 5 * np.sin(np.array([480, 481]) / 24 * 2 * np.pi)).abs().max() < 0.7
    updated = early.update(frame[470:]).forecast(2)
    pd.testing.assert_frame_equal(updated.mean, told.mean)


def test_too_many_rows_without_readings_are_said():
    hours = pd.date_range("2024-05-01", periods=1_300, freq="h", name="when")
    frame = pd.DataFrame({"day": np.nan}, index=hours)
    frame.iloc[:200, 0] = steady(200)[:, 0]
    with pytest.raises(DataError, match=r"last 1,100 rows.*at most 1,000 from the last"):
        DeviationImputer("linear", n_jobs=1).fit(frame).forecast(2)


def test_learning_from_a_handful_of_rows_says_something():
    for rows in range(2, 9):
        grid = Grid(steady(rows), np.arange(float(rows)))
        assert np.isfinite(Learned.of(grid, 6).ahead(grid, np.array([rows - 1]), 6)).all()


def test_intervals_are_wider_for_series_that_ended_before_others():
    inside, widths = [], []
    for seed in range(12):
        walk = np.cumsum(np.random.default_rng(seed).normal(size=(306, 4)), axis=0)
        past = walk[:300].copy()
        past[-12:, :2] = np.nan
        grid = Grid(past, np.arange(300.0))
        model = Forecaster.of(grid, 6)
        mean, std = model.ahead(grid)
        low, high = model.ends(0.9)[:, :, None]
        away = walk[300:] - mean
        inside.append((away > low * std) & (away < high * std))
        widths.append(std)
    assert np.mean(inside, axis=(0, 1))[:2].min() > 0.8
    assert 0.8 < np.mean(inside, axis=(0, 1))[2:].mean() < 0.97
    wider = np.mean(widths, axis=0)
    assert (wider[:, :2].mean(axis=1) > 1.3 * wider[:, 2:].mean(axis=1)).all()


def test_intervals_are_as_they_were_where_many_readings_are_missing():
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(size=(600, 3)), axis=0)
    values = np.where(rng.random((600, 3)) < 0.6, np.nan, walk)
    values[-3:] = walk[-3:]
    values[-2:, 0] = np.nan
    model = Forecaster.of(Grid(values, np.arange(600.0)), 6)
    std = model.widths.now()
    np.testing.assert_allclose(model._silent(values, std), std)
