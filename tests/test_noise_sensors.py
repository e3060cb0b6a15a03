"""Which sensors are noisy: white noise and drift are told apart, and found on real data too."""

import numpy as np
import pytest

from noisewise.data import Observations, observe
from noisewise.errors import SettingError
from noisewise.noise import noise_model, noisy_places, noisy_series, unusual

PLACES, KINDS, STEPS = 9, 2, 240


def world(seed=0, places=PLACES):
    """Readings with a course that all share; one series scatters, another drifts away."""
    rng = np.random.default_rng(seed)
    day = np.sin(2 * np.pi * np.arange(STEPS) / 24)
    rows = []
    for place in range(places):
        for kind, unit in enumerate((1.0, 500.0)):
            wander = np.cumsum(rng.normal(0, 0.02, STEPS))
            course = (1 + 0.1 * place) * day + wander + rng.normal(0, 0.1, STEPS)
            if (place, kind) == (3, 0):
                course += rng.normal(0, 0.5, STEPS)
            if (place, kind) == (6, 1):
                course += np.maximum(np.arange(STEPS) - 150, 0) * 0.04
            kept = rng.random(STEPS) < 0.7
            rows += [
                (f"place {place}", f"kind {kind}", step, unit * (5 + course[step]))
                for step in np.flatnonzero(kept).tolist()
            ]
    return observe(rows)


@pytest.fixture(scope="module")
def model():
    return noise_model(world(), random_state=0, n_jobs=1)


def test_the_series_that_scatter_and_drift_come_first_each_for_its_own_reason(model):
    table = noisy_series(model, n=2)
    found = set(zip(table["mode0"], table["mode1"], strict=True))
    assert found == {("place 3", "kind 0"), ("place 6", "kind 1")}
    of = {place: row for row, place in enumerate(table["mode0"])}
    scatters, drifts = of["place 3"], of["place 6"]
    assert table["white"][scatters] > 3 > table["drift"][scatters]
    assert table["drift"][drifts] > 3 > table["white"][drifts]


def test_noise_is_in_units_of_the_values_too(model):
    table = noisy_series(model, n=None)
    at = next(row for row, place in enumerate(table["mode0"]) if place == "place 3")
    assert table["white_std"][at] == pytest.approx(np.hypot(0.1, 0.5), rel=0.15)
    others = (table["mode1"] == "kind 1") & (table["mode0"] != "place 6")
    assert np.median(table["white_std"][others]) == pytest.approx(500 * 0.1, rel=0.15)


def test_noise_is_parted_by_what_is_left_at_the_next_reading(model):
    known, table = model.noise_by_series_, noisy_series(model, n=None)
    first, second = (np.lexsort([one["mode1"], one["mode0"]]) for one in (known, table))
    known, table = (
        {name: column[order] for name, column in one.items()}
        for one, order in ((known, first), (table, second))
    )
    stays = np.exp(-1.0 / known["timescale"])  # readings are mostly one step apart
    np.testing.assert_allclose(table["drift_std"] ** 2, stays * known["drift_std"] ** 2)
    np.testing.assert_allclose(
        table["white_std"] ** 2 + table["drift_std"] ** 2,
        known["noise_std"] ** 2 + known["drift_std"] ** 2,
    )


def test_units_of_a_type_do_not_change_the_ranking(model):
    seen = world()
    scaled = seen.values * np.where(seen.codes[1] == 0, 64.0, 1.0).astype(np.float32)
    other = noise_model(Observations(seen.codes, scaled, seen.ids), random_state=0, n_jobs=1)
    a, b = (noisy_series(one, n=None)["noise"] for one in (model, other))
    np.testing.assert_allclose(a, b, rtol=0.05, atol=0.05)


def test_few_series_of_each_type_are_compared_in_units_of_their_type():
    seen = world(places=4)
    few = seen.take(seen.codes[0] > 0)  # three series of either type
    table = noisy_series(noise_model(few, random_state=0, n_jobs=1), n=1)
    assert (table["mode0"][0], table["mode1"][0]) == ("place 3", "kind 0")


def test_places_are_as_noisy_as_their_series_together(model):
    series, places = noisy_series(model, n=None), noisy_places(model, n=None)
    assert set(places["id"][:2]) == {"place 3", "place 6"}
    assert places["worst"][places["id"] == "place 3"] == ["kind 0"]
    own = series["noise"][series["mode0"] == "place 3"]
    expected = np.sqrt(np.mean(own**2))
    assert places["noise"][places["id"] == "place 3"] == pytest.approx(expected)
    assert places["series"].tolist() == [KINDS] * PLACES
    assert places["observations"].sum() == len(world())


def test_lists_are_as_long_as_asked_for_and_leave_out_what_was_hardly_seen(model):
    assert len(noisy_series(model, n=3)["noise"]) == 3
    assert len(noisy_places(model, n=4)["id"]) == 4
    counts = noisy_series(model, n=None)["observations"]
    fewest = int(np.median(counts)) + 1
    assert noisy_series(model, n=None, fewest=fewest)["observations"].min() >= fewest
    assert len(noisy_series(model, n=None, fewest=10**6)["noise"]) == 0


def test_what_cannot_be_ranked_is_refused(model):
    for n in (0, 2.5, "3"):
        with pytest.raises(SettingError, match="n must be a whole number, 1 or more"):
            noisy_series(model, n=n)
    with pytest.raises(SettingError, match="fewest must be a whole number"):
        noisy_series(model, fewest=None)
    with pytest.raises(SettingError, match="another one than that of time; got 2"):
        noisy_places(model, mode=2)
    with pytest.raises(SettingError, match="mode must be one of"):
        noisy_places(model, mode="planet")


def test_one_bad_sensor_does_not_hide_another():
    stds = np.r_[np.exp(np.random.default_rng(0).normal(0, 0.1, 20)), 3.0, 300.0]
    found = unusual(stds, np.zeros(22, dtype=int), np.full(22, 1000))
    assert (found[-2:] > 5).all()
    assert np.abs(found[:-2]).max() < 4


def test_a_std_that_few_readings_told_counts_less():
    stds = np.r_[np.full(10, 1.0), np.linspace(0.8, 1.2, 10), 2.0, 2.0]
    counts = np.r_[np.full(21, 1000), 3]
    often, seldom = unusual(stds, np.zeros(22, dtype=int), counts)[-2:]
    assert often > 2 * seldom > 0


def test_types_of_few_series_are_compared_with_all():
    stds = np.r_[np.full(10, 1.0) + np.linspace(-0.1, 0.1, 10), 5.0]
    types = np.r_[np.zeros(10, dtype=int), 1]
    assert unusual(stds, types, np.full(11, 1000))[-1] > 5
