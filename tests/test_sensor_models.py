"""The registry of sensor models: every name builds, fits and predicts; settings reach inside."""

from functools import partial

import numpy as np
import pytest

from noisewise import load, registry
from noisewise.errors import SettingError
from noisewise.models.base import Factorizer

NAMES = (
    "auto", "bayes", "fast", "ou", "seasonal", "linear", "pchip", "nearest", "nearest-lagged",
    "regression", "lagged", "forest", "soft", "svd", "dtf", "ptf",
)  # fmt: skip
build = partial(registry.build, "sensors")
QUICK = {
    "auto": {"candidates": ("linear", "ou")},
    "bayes": {"sweeps": 10, "burn_in": 4, "rank": 2},
    "fast": {"sweeps": 10, "burn_in": 4, "rank": 2},
    "dtf": {"rank": 2, "epochs": 3},
    "ptf": {"rank": 2, "epochs": 3},
}

pytestmark = pytest.mark.filterwarnings("ignore:Predictions have not settled")


@pytest.fixture(scope="module", name="readings")
def _readings():
    return readings()


def readings():
    """Cells (place, type, hour) and values, where types are fewest but the hours are in front."""
    rng = np.random.default_rng(0)
    cells = np.array(list(np.ndindex(4, 3, 40)))
    rng.shuffle(cells)
    cells = cells[:300]
    y = np.sin(cells[:, 2] / 5) + cells[:, 0] + 10.0 ** cells[:, 1] + rng.normal(0, 0.1, 300)
    return [(t, f"k{j}", f"p{i}") for i, j, t in cells.tolist()], y


def test_names_are_those_that_the_rest_of_the_library_relies_on():
    models = registry.models("sensors")
    assert tuple(models)[: len(NAMES)] == NAMES  # those of other packages come after them
    assert all(one.about and not one.about.endswith(".") for one in models.values())


def assert_fits_predicts_and_is_filed(name, readings, folder, settings=None, coordinates=None):
    shared = {"time": 0, "sensor": 1, "random_state": 0, "n_jobs": 1}
    model = build(name, settings, coordinates=coordinates, **shared)
    assert isinstance(model, Factorizer)
    model.fit(*readings)
    asked = [(39, "k1", "p2"), (0, "k0", "p0")]
    mean, std = model.predict(asked, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    model.save(folder / "model")
    again = load(folder / "model").predict(asked, return_std=True)
    np.testing.assert_array_equal(again, [mean, std])


@pytest.mark.parametrize("name", NAMES)
def test_every_model_fits_predicts_and_is_filed(name, readings, tmp_path):
    assert_fits_predicts_and_is_filed(name, readings, tmp_path, QUICK.get(name))


def assert_shared_settings_reach(name, coordinates=None):
    shared = {"time": "t", "sensor": "k", "random_state": 3, "n_jobs": 2}
    params = build(name, coordinates=coordinates, **shared).get_params(deep=False)
    assert shared.items() & params.items() == {(k, v) for k, v in shared.items() if k in params}
    assert {"time"} <= params.keys()


@pytest.mark.parametrize("name", NAMES)
def test_shared_settings_reach_every_model_that_has_them(name):
    assert_shared_settings_reach(name)


def test_no_two_builds_share_a_thing():
    first, second = build("dtf"), build("dtf")
    first.set_params(factorizer__rank=77)
    assert second.factorizer.rank != 77
    assert build("dtf").factorizer.rank != 77


def test_settings_reach_the_model_and_the_factorization_inside():
    model = build("ptf", settings={"rank": 7, "value_range": (0, 1)})
    assert (model.factorizer.rank, model.value_range) == (7, (0, 1))


def test_dtf_and_ptf_differ_in_their_noise_alone():
    assert build("ptf").factorizer.deviation_rank == 0
    assert build("dtf").factorizer.deviation_rank > 0
    assert build("dtf").base == build("ptf").base == "type"


def test_candidates_of_auto_may_be_any_names():
    model = build("auto", time=1, settings={"candidates": ["linear", "ptf"]})
    names = [name for name, _ in model.candidates]
    assert names == ["linear", "ptf"]
    assert [one.time for _, one in model.candidates] == [1, 1]


BAD = {
    "no such model": (("kriging", {}), "model must be one of auto, .*ptf.*; got 'kriging'"),
    "no such setting": (("ou", {"settings": {"rank": 3}}), "'ou' has no setting 'rank'; it has"),
    "nor inside": (("dtf", {"settings": {"ranks": 3}}), "'dtf' has no setting 'ranks'.* rank"),
}


@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_built_is_refused_with_a_reason(given, message):
    name, options = given
    with pytest.raises(SettingError, match=message):
        build(name, **options)
