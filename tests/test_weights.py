"""Weights: the variance of an observation's noise is divided by its own."""

import numpy as np
import pytest
from test_cli import run

from noisewise import (
    AutoFactorizer,
    BayesianFactorizer,
    DataError,
    DeviationFactorizer,
    OUSmoother,
    SettingError,
    TemporalFactorizer,
    load,
    noisy_observations,
    observe,
    read,
)
from noisewise.engine.sgd import reference, strata
from noisewise.engine.sgd.layout import Params, initial_state
from noisewise.evaluation.ratings import evaluate, rating_task
from noisewise.metrics import nll
from noisewise.models.simple import ItemKNN, Popularity

SEED = {"random_state": 0, "n_jobs": 1}
MODELS = {
    "bayes": BayesianFactorizer(rank=2, sweeps=80, burn_in=30, **SEED),
    "bayes, constant noise": BayesianFactorizer(
        rank=2, sweeps=80, burn_in=30, deviation="constant", implicit=False, **SEED
    ),
    "dmf": DeviationFactorizer(rank=4, deviation_rank=2, epochs=40, patience=None, **SEED),
    "biased mf": DeviationFactorizer(rank=4, deviation_rank=0, epochs=40, patience=None, **SEED),
}
pytestmark = pytest.mark.filterwarnings("ignore:Predictions have not settled")


@pytest.fixture(scope="module")
def world():
    """Half of all values have sixteen times the variance, and a sixteenth of the weight."""
    rng = np.random.default_rng(0)
    X = np.column_stack(np.divmod(rng.permutation(60 * 40)[:1500], 40))
    user, item = rng.normal(0, 1.0, 60), rng.normal(0, 1.0, 40)
    truth = 3 + user[X[:, 0]] + item[X[:, 1]] + 0.7 * np.outer(item[:1], user)[0][X[:, 0]]
    weight = np.where(rng.random(len(X)) < 0.5, 1.0, 1 / 16)
    y = truth + 0.5 * rng.standard_normal(len(X)) / np.sqrt(weight)
    return X, y, weight, truth


def fresh(name):
    return MODELS[name].__class__(**MODELS[name].get_params())


@pytest.mark.parametrize("name", MODELS)
def test_values_of_more_weight_are_believed_more(world, name):
    X, y, weight, truth = world
    plain = fresh(name).fit(X, y).predict(X)
    model = fresh(name).fit(X, y, sample_weight=weight)
    mean, noise, _ = model.predict_parts(X)
    off = [np.sqrt(np.mean((told - truth) ** 2)) for told in (mean, plain)]
    assert off[0] < 0.8 * off[1]
    if "bayes" in name:
        assert np.median(noise) == pytest.approx(0.5, rel=0.12)  # of a value of weight 1


@pytest.mark.parametrize("name", MODELS)
def test_weights_of_one_change_nothing_and_those_of_zero_leave_out(world, name):
    X, y, _, _ = world
    plain, ones = fresh(name).fit(X, y), fresh(name).fit(X, y, sample_weight=np.ones(len(y)))
    np.testing.assert_allclose(
        ones.predict(X, return_std=True), plain.predict(X, return_std=True), atol=2e-2
    )
    some = np.arange(len(y)) % 5 > 0
    cut = fresh(name).fit(X[some], y[some])
    zero = fresh(name).fit(X, np.where(some, y, 100.0), sample_weight=some.astype(float))
    apart = zero.predict(X[some]) - cut.predict(X[some])
    assert np.sqrt(np.mean(apart**2)) < 0.15


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("worth", [1e-4, 1e4])
def test_weights_that_are_all_small_or_all_large_only_say_what_noise_is_worth(world, name, worth):
    X, y, _, truth = world
    plain, model = fresh(name).fit(X, y), fresh(name)
    model.fit(X, y, sample_weight=np.full(len(y), worth))
    (mean, noise, _), (usual, usual_noise, _) = model.predict_parts(X), plain.predict_parts(X)
    off = [np.sqrt(np.mean((told - truth) ** 2)) for told in (mean, usual)]
    assert off[0] == pytest.approx(off[1], rel=0.1)
    assert np.median(noise) / np.sqrt(worth) == pytest.approx(np.median(usual_noise), rel=0.1)


@pytest.mark.parametrize("name", ["dmf", "biased mf"])
def test_updates_keep_the_units_of_weights(world, tmp_path, name):
    X, y, weight, _ = world
    plain = fresh(name).fit(X[:1200], y[:1200], sample_weight=weight[:1200])
    model = fresh(name).fit(X[:1200], y[:1200], sample_weight=64 * weight[:1200])
    assert model.factors_.worth == 64 * plain.factors_.worth
    model.save(tmp_path / "model.nw")
    other = load(tmp_path / "model.nw")
    np.testing.assert_array_equal(model.predict_parts(X), other.predict_parts(X))
    plain.partial_fit(X[1200:], y[1200:], sample_weight=weight[1200:], epochs=3)
    for one in (model, other):
        one.partial_fit(X[1200:], y[1200:], sample_weight=64 * weight[1200:], epochs=3)
    np.testing.assert_array_equal(model.predict_parts(X), other.predict_parts(X))
    (mean, noise, _), (usual, usual_noise, _) = model.predict_parts(X), plain.predict_parts(X)
    np.testing.assert_allclose(mean, usual, rtol=1e-3)
    np.testing.assert_allclose(noise, 8 * usual_noise, rtol=1e-3)
    model.partial_fit(X[:3], y[:3], epochs=1)  # of weight 1, which is little
    assert np.abs(model.predict(X) - mean).max() < 0.1


@pytest.mark.parametrize("shape", [(6, 5), (5, 4, 3), (4, 3, 3, 2)])
def test_an_epoch_with_weights_is_that_of_the_equations(shape):
    rng = np.random.default_rng(1)
    codes = tuple(rng.integers(n, size=20).astype(np.int32) for n in shape)
    values = rng.normal(size=20).astype(np.float32)
    weight = rng.uniform(0.2, 4.0, 20).astype(np.float32)
    settings = {"rank": 3, "deviation_rank": 2, "warmup": 0, "seed": 0}
    rest = DeviationFactorizer().get_params()
    names = ("learning_rate", "deviation_learning_rate", "biases", "l2", "bias_l2", "deviation_l1",
             "penalty", "delta", "beta", "adagrad")  # fmt: skip
    params = Params(**settings, **{name: rest[name] for name in names})
    blocks = strata.arrange(codes, values, shape, params.layout.width, weight)
    counts = tuple(np.bincount(c, minlength=n) for c, n in zip(codes, shape, strict=True))
    fast = initial_state(params, blocks.placed(counts))
    slow = initial_state(params, blocks.placed(counts))
    if blocks.side > 1 or len(shape) == 2:
        order = np.random.default_rng([0, 2, 0]).permutation(blocks.n_strata)
    else:
        order = np.arange(blocks.n_strata)
    strata.epoch(fast, blocks, params, 1)
    strata.release_deviation(slow, params)
    for stratum in order.tolist():
        for block in range(stratum * blocks.side, (stratum + 1) * blocks.side):
            for n in range(blocks.starts[block], blocks.starts[block + 1]):
                cell = tuple(int(code[n]) for code in blocks.codes)
                worth = float(blocks.weight[n])
                reference.step(slow, cell, float(blocks.values[n]), params, True, worth)
    for mine, other in zip(fast.rows, slow.rows, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-3, atol=2e-4)


def test_weights_are_kept_and_used_by_updates_and_explanations(world, tmp_path):
    X, y, weight, _ = world
    old = X[:, 0] < 55
    model = fresh("bayes").fit(X[old], y[old], sample_weight=weight[old])
    model.save(tmp_path / "model.nw")
    other = load(tmp_path / "model.nw")
    np.testing.assert_array_equal(other.weight_, model.weight_)
    for one in (model, other):
        one.partial_fit(X[~old], y[~old], sample_weight=weight[~old])
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    assert sorted(model.weight_) == pytest.approx(sorted(weight.astype(np.float32)))
    why = model.explain(57, X[0, 1], n=100)
    light = [abs(p.by_value) for p in why.pulls if weight[(X[:, 0] == 57) & (X[:, 1] == p.id)] < 1]
    heavy = [abs(p.by_value) for p in why.pulls if weight[(X[:, 0] == 57) & (X[:, 1] == p.id)] == 1]
    assert np.mean(light) < np.mean(heavy)
    plain = fresh("bayes").fit(X[old], y[old])
    plain.partial_fit(X[~old], y[~old], sample_weight=weight[~old])  # all before count as 1
    assert sorted(set(plain.weight_.tolist())) == [1 / 16, 1.0]


def test_calibration_takes_weights_into_account(world):
    X, y, weight, _ = world
    model = fresh("bayes").fit(X[:1000], y[:1000], sample_weight=weight[:1000])
    held_out = observe(X[1000:], y[1000:], ids=model.ids_, weight=weight[1000:])
    assert model.calibrate(held_out).std_scale_ == pytest.approx(1.0, abs=0.15)
    assert model.calibrate(X[1000:], y[1000:]).std_scale_ > 2


@pytest.mark.parametrize("name", ["bayes", "dmf"])
def test_values_are_judged_by_the_weight_that_they_have(world, name):
    X, y, weight, _ = world
    observations = observe(X, y, weight=1e4 * weight)
    settings = {key: value for key, value in MODELS[name].get_params().items() if key != "n_jobs"}
    settings |= {"patience": 5} if "patience" in settings else {}
    found = evaluate(observations, name, settings, splits=1)["splits"][0]
    assert found["coverage90"] < 0.98  # by the std of a value of weight 1 it is 1
    assert found["width90"] < 8 * found["rmse"]
    assert found["nll"] < found["constant_nll"]
    task = rating_task(observations)
    model = fresh(name).fit(task.train)
    plain = rating_task(observe(X, y, weight=weight))
    same = fresh(name).fit(plain.train)
    told = task.score(model, task.validation)["nll"]
    assert told == pytest.approx(plain.score(same, plain.validation)["nll"], abs=0.1)
    light, heavy = (
        noisy_observations(same, observe(X[:9], y[:9], weight=np.full(9, own))) for own in (1, 9)
    )
    assert np.abs(heavy["surprise"]).max() > 1.2 * np.abs(light["surprise"]).max()


def test_the_likelihood_of_values_held_out_has_their_weights(world):
    X, y, weight, _ = world
    weight = 64 * weight
    held_out = observe(X[1000:], y[1000:], weight=weight[1000:])
    model = DeviationFactorizer(rank=2, epochs=8, patience=8, refit=False, **SEED)
    model.fit(X[:1000], y[:1000], sample_weight=weight[:1000], validation=held_out)
    mean, noise, _ = model.cells(held_out).moments
    std = np.sqrt(noise / held_out.weight)
    expected = nll(held_out.values, mean.clip(*model.value_range_), std)
    told = model.learning_curve_["validation_nll"][model.n_epochs_ - 1]
    assert told == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["bayes", "dmf"])
def test_weights_that_make_no_sense_are_refused(world, name):
    X, y, weight, _ = world
    bad = {
        "one number per row, 1500; got 3": [1.0, 2.0, 3.0],
        "must not be below 0; got -1 in row 2": np.where(np.arange(len(y)) == 2, -1.0, 1.0),
        "at least one non-zero number": np.zeros(len(y)),
        "Row 0 of sample_weight is NaN": np.where(np.arange(len(y)) == 0, np.nan, 1.0),
    }
    for message, given in bad.items():
        with pytest.raises(DataError, match=message):
            fresh(name).fit(X, y, sample_weight=given)
    with pytest.raises(SettingError, match='sample_weight needs device="cpu"'):
        fresh(name).set_params(device="cuda").fit(X, y, sample_weight=weight)


def test_models_that_take_no_weights_say_so():
    cells = [("a", "x", 1.0), ("a", "y", 2.0), ("b", "x", 3.0), ("b", "y", 4.0)]
    weighted = observe(cells, weight=[1, 2, 1, 1])
    short = {"sweeps": 6, "burn_in": 2, **SEED}
    for model in (Popularity(), ItemKNN()):
        with pytest.raises(SettingError, match=f"a {type(model).__name__} takes all values"):
            model.fit(weighted)
    times = [("a", 1.0, 1.0), ("a", 2.0, 2.0), ("b", 1.0, 3.0), ("b", 2.0, 4.0)]
    weighted = observe(times, weight=[1, 2, 1, 1])
    for model in (OUSmoother(), TemporalFactorizer(**short), AutoFactorizer(**SEED)):
        with pytest.raises(SettingError, match="sample_weight must be left out"):
            model.fit(weighted)


def test_cells_given_twice_are_merged_by_their_weights():
    cells = [("a", "x", 1.0), ("a", "x", 4.0), ("b", "x", 3.0)]
    merged = observe(cells, duplicates="mean", weight=[1.0, 2.0, 5.0])
    assert merged.values.tolist() == [3.0, 3.0]
    assert merged.weight.tolist() == [1.5, 5.0]
    last = observe(cells, duplicates="last", weight=[1.0, 2.0, 5.0])
    assert last.weight.tolist() == [2.0, 5.0]
    three = observe([("a", "x", 1.0), ("a", "y", 4.0), ("b", "x", 3.0)])
    assert observe(three, weight=[3.0, 0.0, 1.0]).decode() == [("a", "x"), ("b", "x")]
    with pytest.raises(DataError, match="single observation"):
        observe(last, weight=[3.0, 0.0])


CELLS = [("a", "x", 1.0, 2.0), ("a", "y", 2.0, 0.5), ("b", "x", 3.0, 0.0), ("b", "y", 4.0, 1.0)]


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.parquet", "rows.npz"])
def test_files_have_a_column_of_weights(tmp_path, name):
    path, columns = tmp_path / name, list(zip(*CELLS, strict=True))
    names = {"user": 0, "item": 1, "worth": 3, "rating": 2}
    named = {key: columns[k] for key, k in names.items()}
    if name.endswith("parquet"):
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(named), path)
    elif name.endswith("npz"):
        np.savez(path, **{key: np.array(column) for key, column in named.items()})
    else:
        mark = "," if name.endswith("csv") else "\t"
        rows = [named, *zip(*named.values(), strict=True)]
        path.write_text("\n".join(mark.join(map(str, row)) for row in rows))
    ids = {"ids": ["user", "item"], "value": "rating"}
    seen = read(path, weight="worth", **ids)
    assert seen.decode() == [("a", "x"), ("a", "y"), ("b", "y")]  # one is worth nothing
    assert seen.values.tolist() == [1.0, 2.0, 4.0]
    assert seen.weight.tolist() == [2.0, 0.5, 1.0]
    if not name.endswith("npz"):
        assert read(path, weight="worth").decode() == seen.decode()  # which is no id then
    with pytest.raises(DataError, match="weigh"):
        read(path, weight="weigh", **ids)


def test_weights_of_a_file_that_cannot_be_are_a_sentence_with_the_line(tmp_path):
    path = tmp_path / "rows.csv"
    for text in ("-1", "heavy", "inf"):
        path.write_text(f"user,item,rating,worth\na,x,1,2\na,y,2,{text}\n")
        with pytest.raises(DataError, match=rf"line 3: worth '{text}' is"):
            read(path, weight="worth")
    with pytest.raises(DataError, match="The column 'rating' has weights, and can be nothing else"):
        read(path, ids=["user", "item"], value="rating", weight="rating")


def test_weights_on_the_command_line(tmp_path, capsys, world):
    X, y, weight, _ = world
    path, model = tmp_path / "rows.csv", tmp_path / "model.nw"
    rows = zip(X[:, 0], X[:, 1], y, weight, strict=True)
    path.write_text("user,item,rating,worth\n" + "\n".join(",".join(map(str, r)) for r in rows))
    quick = ["--set", "rank=2", "--set", "sweeps=30", "--set", "burn_in=10"]
    assert run("fit", path, "--weight", "worth", *quick, "--out", model) == 0
    assert load(model).weight_ is not None
    (tmp_path / "new.csv").write_text("user,item,rating,worth\n0,99,3.5,0.25\n1,99,3,4\n")
    assert run("update", model, tmp_path / "new.csv", "--weight", "worth") == 0
    assert 0.25 in load(model).weight_.tolist()
    capsys.readouterr()
    words = ["--model", "popularity", "--splits", 1]
    assert run("evaluate", path, "--weight", "worth", *words) != 0
    assert "a Popularity takes all values to be worth the same" in capsys.readouterr().err
