"""New ids folded in many at a time, lists for everybody, and devices named on the command line."""

import sys
import warnings

import numpy as np
import pytest
from host_device import COMPILER, Host
from sklearn.base import clone
from test_cli import run

import noisewise
from noisewise import (
    BayesianFactorizer,
    DataError,
    DeviationFactorizer,
    LinearInterpolator,
    recommend,
)
from noisewise.cli import options
from noisewise.data.files import read
from noisewise.engine import devices, ragged
from noisewise.evaluation.records import where_and_when
from noisewise.models import on_gpu

USERS, ITEMS = 60, 40


@pytest.fixture
def host(monkeypatch):
    """Let device="cuda" mean a GPU that is none."""
    device = Host()
    monkeypatch.setattr(devices, "chosen", lambda name: None if name == "cpu" else device)
    monkeypatch.setattr(on_gpu, "MANY_NEW", 2)
    return device


def ratings(n=1200):
    rng = np.random.default_rng(1)
    cells = rng.choice(USERS * ITEMS, n, replace=False)
    user, item = cells // ITEMS, cells % ITEMS
    taste = rng.normal(size=USERS)[user] * rng.normal(size=ITEMS)[item]
    values = np.clip(np.rint(3 + taste + rng.normal(size=n)), 1, 5)
    return np.column_stack([user, item]), values


def newcomers(mode):
    """Of 30 new ids, what each was seen with, some of it unknown, and the values."""
    rng = np.random.default_rng(2)
    size = (ITEMS, USERS)[mode]
    others = [rng.permutation(size + 2)[: rng.integers(1, 30)].tolist() for _ in range(30)]
    return others, [rng.integers(1, 6, len(own)).astype(float) for own in others]


SMALL = {"sweeps": 30, "burn_in": 10, "samples": 6, "verbose": False}
MODELS = {
    "dmf": DeviationFactorizer(6, deviation_rank=3, patience=None, epochs=8, random_state=0),
    "biased mf": DeviationFactorizer(6, deviation_rank=0, patience=None, epochs=8, random_state=0),
    "no biases": DeviationFactorizer(4, biases=False, patience=None, epochs=8, random_state=0),
    "bayes": BayesianFactorizer(4, random_state=0, **SMALL),
    "one noise": BayesianFactorizer(
        3, deviation="constant", implicit=False, random_state=0, **SMALL
    ),
    "levels": BayesianFactorizer(3, likelihood="ordinal", random_state=0, **SMALL),
}


def fitted(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few sweeps settle nothing
        return clone(MODELS[name]).fit(*ratings())


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_many_new_ids_are_learned_as_each_alone(name, mode, host, monkeypatch):
    monkeypatch.setattr(ragged, "MOST", 40_000)  # several batches
    model, (others, values) = fitted(name), newcomers(mode)
    asked = range((ITEMS, USERS)[mode])
    alone = [model.fold_in(o, v, mode=mode) for o, v in zip(others, values, strict=True)]
    model.device = "cuda"
    before = host.sent
    together = model.fold_in_many(others, values, mode=mode)
    assert (host.sent > before) == (name != "levels")
    for one, other in zip(alone, together, strict=True):
        assert (one.seen == other.seen).all()
        assert repr(one) == repr(other)
        for a, b in zip(one.predict_parts(asked), other.predict_parts(asked), strict=True):
            assert b == pytest.approx(a, rel=2e-4, abs=2e-4)


def test_few_new_ids_are_learned_on_the_cpu(host, monkeypatch):
    monkeypatch.setattr(on_gpu, "MANY_NEW", 100)
    model, (others, values) = fitted("dmf").set_params(device="cuda"), newcomers(0)
    before = host.sent
    rows = model.fold_in_many(others, values)
    assert host.sent == before
    assert (rows[3].predict([1, 2]) == model.fold_in(others[3], values[3]).predict([1, 2])).all()
    assert model.fold_in_many([], []) == []


@pytest.mark.parametrize("values", [[[1.0, 2.0]], [[1.0], [2.0, 3.0]], [[1.0, 2.0], []]])
def test_new_ids_need_a_value_for_each_id(values):
    with pytest.raises(DataError, match="fold_in_many needs ids, and a value for each of them"):
        fitted("dmf").fold_in_many([[1, 2], [3]], values)


def test_a_row_that_is_not_finite_is_said_in_a_sentence(host):
    model = fitted("dmf").set_params(device="cuda")
    for own in model.factors_.populations:
        own.covariance[...] = np.diag(np.full(len(own.covariance), 1e300))
    with (
        pytest.raises(noisewise.DivergedError, match="too far apart to learn a new row"),
        np.errstate(all="ignore"),
    ):
        model.fold_in_many(*newcomers(0))


def test_batches_have_every_entry_once_and_little_padding():
    rng = np.random.default_rng(0)
    starts = np.cumsum([0, *(1 + rng.integers(300, size=200))])
    found, padding = [], 0
    for batch in ragged.batches(starts, 2_000, fixed=10):
        assert batch.at.size + 10 * len(batch.rows) <= 2_000 or len(batch.rows) == 1
        found += batch.at[batch.valid].tolist()
        padding += int((~batch.valid).sum())
        assert (np.diff(starts)[batch.rows] == batch.lengths).all()
    assert sorted(found) == list(range(starts[-1]))
    assert padding < 0.25 * starts[-1]


@pytest.fixture
def table(tmp_path):
    X, y = ratings()
    path = tmp_path / "ratings.csv"
    np.savetxt(path, np.column_stack([X, y]), "%g", ",", header="user,item,rating", comments="")
    return path


SHORT = ["--set", "rank=4", "--set", "epochs=3", "--device", "cuda"]


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_commands_compute_on_a_device(host, table, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(on_gpu, "MANY_ROWS", 1)
    monkeypatch.setattr(on_gpu, "MANY_CELLS", 1)
    model, lists = tmp_path / "m.nw", tmp_path / "lists.csv"
    tuned = tmp_path / "tuned.json"
    commands = [
        ["fit", table, "--model", "dmf", "--out", model, *SHORT],
        ["evaluate", table, "--model", "dmf", "--splits", "1", *SHORT],
        ["tune", table, "--model", "dmf", "--trials", "1", "--out", tuned, *SHORT],
        ["predict", model, table, "--out", tmp_path / "p.csv", "--device", "cuda"],
        ["recommend", model, "--all", "-n", "3", "--out", lists, "--device", "cuda"],
    ]
    for command in commands:
        before = host.sent
        assert run(*command) == 0, capsys.readouterr().err
        assert host.sent > before, command
    assert "cuda" not in tuned.read_text()
    rows = np.genfromtxt(lists, delimiter=",", skip_header=1)
    assert lists.read_text().splitlines()[0] == "user,rank,item,mean,std"
    assert len(rows) == 3 * len(np.unique(ratings()[0][:, 0]))
    own = noisewise.load(model).recommend(7, 3)
    assert rows[rows[:, 0] == 7][:, 2].tolist() == [one.id for one in own]
    assert len(read(lists, ids=["user", "item"], value="mean")) == len(rows)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["recommend", "m.nw"], "recommend takes ids, or --all; got neither"),
        (["recommend", "m.nw", "1", "--all"], "recommend takes ids, or --all; got both"),
        (["recommend", "m.nw", "1", "--device", "gpu"], "device must be 'cpu', 'auto', 'cuda'"),
    ],
)
def test_a_device_or_a_choice_that_makes_no_sense_is_refused(
    command, says, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    fitted("dmf").save("m.nw")
    assert run(*command) != 0
    assert says in capsys.readouterr().err


def test_a_model_that_uses_no_gpu_is_given_no_device():
    with pytest.raises(noisewise.SettingError, match="--device is not for a LinearInterpolator"):
        options.on_device(LinearInterpolator(), "cuda")
    assert options.on_device(MODELS["dmf"], None).device == "cpu"


class _Card:
    """As much of CuPy as it takes to name a card."""

    id, OutOfMemoryError, CUDARuntimeError = 0, MemoryError, RuntimeError

    def __init__(self):
        self.cuda = self.runtime = self.memory = self
        self.Device = lambda: self

    def getDeviceCount(self):
        return 1

    def getDeviceProperties(self, number):
        return {"name": b"a card"}


def test_a_result_names_the_card_that_was_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", _Card())
    devices._cuda.cache_clear()
    try:
        assert devices.card() is None
        devices.chosen("cuda")
        assert where_and_when()["machine"]["gpu"] == "a card"
    finally:
        devices._cuda.cache_clear()


def test_a_tensor_that_must_have_the_same_bits_is_trained_on_the_cpu(host):
    rng = np.random.default_rng(0)
    X, y = np.column_stack([rng.permutation(200) % n for n in (9, 7, 5)]), rng.normal(size=200)
    settings = {"rank": 2, "deviation_rank": 0, "epochs": 2, "patience": None, "random_state": 0}
    settings |= {"duplicates": "mean"}
    with pytest.warns(UserWarning, match="deterministic=True trains 3 id columns on the CPU"):
        model = DeviationFactorizer(**settings, deterministic=True, device="cuda").fit(X, y)
    assert host.sent == 0
    assert (model.predict(X) == DeviationFactorizer(**settings).fit(X, y).predict(X)).all()


def test_lists_of_one_length_are_ordered_as_any_others():
    rng = np.random.default_rng(0)
    codes, worse = rng.integers(9, size=60).astype(np.int32), rng.integers(3, size=60) / 2.0
    at = np.repeat(np.arange(12), 5)
    order = recommend._order(12, at, codes, worse)
    assert (order == np.lexsort((codes, worse, at))).all()
    assert (recommend._order(13, at, codes, worse) == order).all()  # the last has none
    assert len(recommend._order(0, at[:0], codes[:0], worse[:0])) == 0
    assert len(recommend._order(4, at[:0], codes[:0], worse[:0])) == 0
