"""Models that learn from features: new ids, explanations, files, and the same bits."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from noisewise import BayesianFactorizer, DataError, ModelFileError, SettingError, load, storage
from noisewise.cli.app import app
from noisewise.engine.gibbs import gpu

USERS, ITEMS, NEW = 40, 45, 15  # and new ones of each
GENRES = np.array(["noir", "farce", "western"])
pytestmark = pytest.mark.filterwarnings("ignore:Predictions have not settled")


class World:
    """Ratings in which age and genre matter: to the mean, to taste and to the noise."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        n, m = USERS + NEW, ITEMS + NEW
        self.age, self.genre = rng.uniform(10.0, 80.0, n), rng.integers(3, size=m)
        self.city = rng.integers(2, size=n)
        u, v = (
            0.03 * (self.age - 45.0) + 0.3 * rng.standard_normal(n),
            np.array([1.0, 0.0, -1.0])[self.genre],
        )
        taste = np.outer(np.where(self.city, 0.6, -0.6), self.genre == 1)
        noise = np.array([0.2, 0.6, 0.6])[self.genre]
        self.values = 5.0 + u[:, None] + v + taste + noise * rng.standard_normal((n, m))
        seen = rng.uniform(size=(n, m)) < 0.5
        self.known = seen & (np.arange(n) < USERS)[:, None] & (np.arange(m) < ITEMS)
        self.tables = {
            "user": {"user": np.arange(n), "age": self.age, "city": self.city * 5 + 1},
            "item": {"item": np.arange(m), "genre": GENRES[self.genre]},
        }

    def train(self):
        cells = np.argwhere(self.known)
        return cells, self.values[self.known]

    def some(self, mode, ids):
        return {name: np.asarray(column)[ids] for name, column in self.tables[mode].items()}


def build(**settings):
    usual = {"rank": 2, "sweeps": 60, "burn_in": 20, "samples": 20, "random_state": 0}
    return BayesianFactorizer(**{**usual, "n_jobs": 1, "verbose": False, **settings})


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture(scope="module")
def fitted(world):
    return build().fit(*world.train(), features=world.tables)


def errors_of_new(world, model, cells, **named):
    mean, std = model.predict(cells, return_std=True, **named)
    return world.values[tuple(cells.T)] - mean, std


NEW_ITEMS = np.array([(u, i) for u in range(USERS) for i in range(ITEMS, ITEMS + NEW)])
NEW_USERS = np.array([(u, i) for u in range(USERS, USERS + NEW) for i in range(ITEMS)])


@pytest.mark.parametrize("settings", [{}, {"implicit": False}, {"deviation": "constant"}])
def test_new_ids_are_predicted_by_their_features_with_an_honest_std(world, settings):
    model = build(**settings).fit(*world.train(), features=world.tables)
    plain = build(**settings).fit(*world.train())
    for asked in (NEW_ITEMS, NEW_USERS):
        error, std = errors_of_new(world, model, asked)
        worse, wider = errors_of_new(world, plain, asked)
        assert np.sqrt(np.mean(error**2)) < 0.75 * np.sqrt(np.mean(worse**2))
        assert std.mean() < 0.8 * wider.mean()
        assert 0.8 < np.mean(np.abs(error) < 1.645 * std) < 0.98


def test_features_may_come_when_they_are_asked_for(world, fitted):
    tables = {"user": world.tables["user"], "item": world.some("item", np.arange(ITEMS))}
    model = build().fit(*world.train(), features=tables)
    asked, later = NEW_ITEMS, {"item": world.some("item", np.arange(ITEMS, ITEMS + NEW))}
    for method in ("predict", "predict_parts", "predict_interval"):
        mine, theirs = (
            getattr(m, method)(asked, **named)
            for m, named in ((model, {"features": later}), (fitted, {}))
        )
        np.testing.assert_array_equal(mine, theirs)
    twin = model.with_features(later)
    np.testing.assert_array_equal(twin.predict(asked), fitted.predict(asked))
    assert len(model.features_[1].ids) == ITEMS
    assert not np.array_equal(model.predict(asked), fitted.predict(asked))


def test_ids_without_features_are_still_what_is_usual(world, fitted):
    mean, std = fitted.predict([(0, "nobody"), (0, 0)], return_std=True)
    assert np.isfinite(mean).all()
    assert std[0] > std[1]


def test_a_new_row_is_learned_from_features_and_values_together(world, fitted):
    items, told, untold = np.arange(ITEMS).tolist(), [], []
    for user in range(USERS, USERS + NEW):
        features = {"age": world.age[user], "city": int(world.city[user]) * 5 + 1}
        by_features = fitted.fold_in([], [], features=features)
        cells = [(user, item) for item in items]
        np.testing.assert_allclose(by_features.predict(items), fitted.predict(cells), atol=0.1)
        row = fitted.fold_in(items[:15], world.values[user, :15], features=features)
        for who, errors in ((by_features, untold), (row, told)):
            errors.append(world.values[user, 15:ITEMS] - who.predict(items[15:]))
    assert np.mean(np.square(told)) < 0.95 * np.mean(np.square(untold))
    surer, sure = (one.predict_parts(items[15:])[2].mean() for one in (row, by_features))
    assert surer < sure
    assert len(row.recommend(3)) == 3
    noir, western = (
        fitted.fold_in([], [], mode="item", features={"genre": genre}).predict([0])
        for genre in ("noir", "western")
    )
    assert noir > western + 1
    with pytest.raises(DataError, match="need columns age, city; found shoe"):
        fitted.fold_in([], [], features={"shoe": 43})
    with pytest.raises(DataError, match="features of one id are a dict"):
        fitted.fold_in([], [], features=[43])


def test_new_users_get_recommendations_by_their_features(world, fitted):
    young, old = (USERS + int(np.argmin(age)) for age in (world.age[USERS:], -world.age[USERS:]))
    lists = fitted.recommend_many([young, old], 5)
    means = [np.mean([best.mean for best in one]) for one in lists]
    assert means[1] > means[0] + 0.3


def test_new_items_are_recommended_where_they_are_candidates(world, fitted):
    new = list(range(ITEMS, ITEMS + NEW))
    best = fitted.recommend(0, 5, candidates=new)
    assert {GENRES[world.genre[one.id]] for one in best} <= {"noir", "farce"}
    mean, std = fitted.predict([(0, one.id) for one in best], return_std=True)
    np.testing.assert_allclose([one[1:] for one in best], np.column_stack([mean, std]), rtol=1e-4)
    both = fitted.recommend(0, 100, candidates=[0, 1, *new, "nobody"], exclude_seen=False)
    assert {one.id for one in both} == {0, 1, *new}
    table = fitted.recommend_all(3, candidates=new, mode="user")
    assert set(table["item"].tolist()) <= set(new)
    assert fitted.recommend(0, candidates=new, by="utility") == []
    row = fitted.fold_in([], [], features={"age": 30})
    assert len(row.recommend(3, candidates=new)) == 3
    assert set(new).isdisjoint(one.id for one in fitted.recommend(0, 100))


def test_features_are_explained_with_intervals(fitted):
    effects = {(e.feature, e.level): e for e in fitted.explain_features()}
    noir, western = effects["genre", "noir"], effects["genre", "western"]
    assert noir.mean_low > 0.3
    assert western.mean_high < -0.3
    assert noir.noise_high < 1.0 < western.noise
    assert effects["genre", "farce"].taste > 1.2 * noir.taste
    ages = [e.mean for (feature, _), e in effects.items() if feature == "age"]
    assert ages[-1] > 0.5
    assert ages[0] < -0.5
    assert (noir.mode, noir.ids) == ("item", (World().genre[:ITEMS] == 0).sum())
    wide = {(e.feature, e.level): e for e in fitted.explain_features(coverage=0.99)}
    assert wide["genre", "noir"].mean_low < noir.mean_low
    with pytest.raises(DataError, match="coverage"):
        fitted.explain_features(coverage=2.0)


def test_a_file_keeps_features(world, fitted, tmp_path):
    path = tmp_path / "model.nw"
    fitted.save(path)
    again = load(path)
    asked = np.concatenate([NEW_ITEMS, NEW_USERS])
    np.testing.assert_array_equal(again.predict(asked), fitted.predict(asked))
    assert again.explain_features() == fitted.explain_features()
    assert again.features_[0].fields == fitted.features_[0].fields


@pytest.mark.parametrize("likelihood", ["gaussian", "ordinal"])
def test_the_same_bits_for_any_number_of_threads_and_after_a_checkpoint(
    world, tmp_path, likelihood
):
    cells, values = world.train()
    values = np.clip(np.round(values), 3, 7)
    named = {"features": world.tables}
    settings = {"likelihood": likelihood, "sweeps": 24, "burn_in": 10}
    one, two = (build(**settings, n_jobs=n).fit(cells, values, **named) for n in (1, 2))
    asked = NEW_ITEMS
    np.testing.assert_array_equal(one.predict(asked), two.predict(asked))

    def stop(info, state):
        if info.epoch == 15:
            raise RuntimeError("killed")

    path = tmp_path / "kept"
    given = {**named, "checkpoint": path, "checkpoint_epochs": 5}
    with pytest.raises(RuntimeError, match="killed"):
        build(**settings).fit(cells, values, callbacks=[stop], **given)
    with pytest.raises(ModelFileError, match="belongs to other data"):
        build(**settings).fit(
            cells, values, checkpoint=path, features={"user": world.tables["user"]}
        )
    resumed = build(**settings).fit(cells, values, **given)
    np.testing.assert_array_equal(one.predict(asked), resumed.predict(asked))
    if likelihood == "ordinal":
        assert resumed.predict_proba(asked).sum(axis=1) == pytest.approx(1.0)


def test_models_of_three_modes_and_of_times_take_features(world):
    cells, values = world.train()
    third = np.column_stack([cells, np.arange(len(cells)) % 3])
    tables = {"item": world.tables["item"], 0: world.tables["user"]}
    timed = build(time=2).fit(third, values, features=tables)
    asked = NEW_ITEMS
    assert timed.predict(np.column_stack([asked, asked[:, 0]])).std() > 0.3
    three = build().fit(
        third, values, features={"mode1": world.tables["item"] | {"id": np.arange(ITEMS + NEW)}}
    )
    assert three.predict(np.column_stack([asked, asked[:, 0] % 3])).std() > 0.3


def test_new_ratings_of_new_ids_with_features_are_learned_from(world, fitted, tmp_path):
    path = tmp_path / "model.nw"
    fitted.save(path)
    users = np.arange(USERS, USERS + NEW)
    known, asked = ([(u, i) for u in users for i in range(start, ITEMS, 3)] for start in (0, 1))
    told, truth = (world.values[tuple(np.transpose(cells))] for cells in (known, asked))
    off = [np.sqrt(np.mean((load(path).predict(asked) - truth) ** 2))]
    model = load(path).partial_fit(known, told)
    off.append(np.sqrt(np.mean((model.predict(asked) - truth) ** 2)))
    cells, values = world.train()
    everything = np.vstack([cells, known]), np.append(values, told)
    refit = build().fit(*everything, features=world.tables)
    off.append(np.sqrt(np.mean((refit.predict(asked) - truth) ** 2)))
    assert off[1] < 0.95 * off[0]
    assert off[1] < 1.06 * off[2]
    model.save(path)
    np.testing.assert_array_equal(load(path).predict(asked), model.predict(asked))


def test_a_single_rating_leaves_a_new_id_near_what_its_features_say(world, fitted, tmp_path):
    fitted.save(tmp_path / "model.nw")
    model = load(tmp_path / "model.nw")
    later = {"item": {"item": ["farce", "noir"], "genre": ["farce", "noir"]}}
    rows = [(u, name) for u in range(USERS) for name in ("farce", "noir")]
    before = model.predict(rows, features=later)
    typical = model.predict([(0, "farce"), (0, "noir")], features=later)
    model.partial_fit([(0, "farce"), (0, "noir")], typical, features=later)
    after = model.predict(rows)
    assert np.corrcoef(before, after)[0, 1] > 0.8
    assert np.sqrt(np.mean((after - before) ** 2)) < 0.5 * before.std()
    with pytest.raises(DataError, match="fitted without features of item"):
        build(sweeps=4, burn_in=1).fit(*world.train()).partial_fit([(0, 50)], [3.0], features=later)


def test_models_without_features_say_so(world):
    model = build(sweeps=4, burn_in=1).fit(*world.train())
    with pytest.raises(DataError, match="fitted without features of item"):
        model.predict([(0, 0)], features={"item": world.tables["item"]})
    with pytest.raises(DataError, match="fitted without features of user"):
        model.fold_in([0], [1.0], features={"age": 3})
    assert model.explain_features() == []


def test_a_gpu_refuses_features_in_a_sentence(world):
    spec = build()._spec(2, 0)
    with pytest.raises(SettingError, match="On a GPU, features are not supported"):
        gpu.check(None, spec, (3, 3), 9, features=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h["features"][0].update(mode=9), "modes that it does not have"),
        (lambda h: h["features"][0]["fields"][0].update(kind="magic"), "a field of its features"),
        (lambda h: h["features"][0]["fields"][0].update(knots=[3, 2]), "a field of its features"),
        (lambda h: h["features"][1]["fields"][0].update(words=["a"]), "damaged"),
        (lambda h: h["features"][1]["fields"][0].update(words=["a", "a", "b"]), "a field of"),
        (lambda h: h.update(features=3), "features is 3"),
        (lambda h: h.pop("features"), "damaged"),
    ],
)
def test_a_file_that_was_tampered_with_is_refused(fitted, tmp_path, change, words):
    path = tmp_path / "model.nw"
    fitted.save(path)
    header, tensors = storage.read(path, "model")
    header = json.loads(json.dumps(header))
    change(header)
    storage.write(path, "model", header, dict(tensors))
    with pytest.raises(ModelFileError, match=words):
        load(path)


@pytest.mark.parametrize("name", ["features1.columns", "features0.starts"])
def test_indices_of_a_file_are_held_to_their_bounds(fitted, tmp_path, name):
    path = tmp_path / "model.nw"
    fitted.save(path)
    header, tensors = storage.read(path, "model")
    for number in (2**31 - 1, -1):
        forged = tensors[name].copy()
        forged[1] = number
        storage.write(path, "model", dict(header), dict(tensors) | {name: forged})
        with pytest.raises(ModelFileError):
            load(path)


def test_the_command_line_reads_features(world, tmp_path):
    cells, values = world.train()
    ratings, people, films = (tmp_path / f"{name}.csv" for name in ("ratings", "people", "films"))
    lines = [f"{u},{i},{v:.3f}" for (u, i), v in zip(cells, values, strict=True)]
    ratings.write_text("\n".join(["user,item,rating", *lines]))
    people.write_text("\n".join(["user,age", *(f"{u},{a:.1f}" for u, a in enumerate(world.age))]))
    films.write_text(
        "\n".join(["item,genre", *(f"{i},{GENRES[g]}" for i, g in enumerate(world.genre))])
    )
    model, asked = tmp_path / "m.nw", tmp_path / "asked.csv"
    asked.write_text(f"user,item\n0,{ITEMS}\n0,later\n77,0\n")
    few = ["--set", "rank=2", "--set", "sweeps=30", "--set", "burn_in=10", "--set", "verbose=false"]
    both = ["--user-features", str(people), "--item-features", str(films)]

    def run(*words, code=0):
        result = CliRunner().invoke(app, list(map(str, words)))
        assert result.exit_code == code, result.output
        return result

    run("fit", ratings, "--out", model, *few, *both)
    later = tmp_path / "later.csv"
    later.write_text("item,genre\nlater,western\n")
    out = tmp_path / "out.csv"
    run("predict", model, asked, "--item-features", later, "--out", out)
    rows = out.read_text().splitlines()
    assert len(rows) == 4
    assert "not seen in training: by features" in run("recommend", model, USERS + 1).output
    new = tmp_path / "new.csv"
    new.write_text("user,age\n500,30\n")
    said = run("recommend", model, 500, "--user-features", new).output
    assert "by features" in said
    report = tmp_path / "r.json"
    run("evaluate", ratings, "--model", "bayes", "--splits", 1, *few, *both, "--json", report)
    assert json.loads(report.read_text())["features"] == {
        "0": ["age", "user"],
        "1": ["genre", "item"],
    }
    wrong = run("fit", ratings, "--out", model, "--model", "dmf", *both, code=1)
    assert "learns from values alone" in str(wrong.output) + str(wrong.exception)
