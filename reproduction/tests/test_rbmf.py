"""RobustBayesianFactorizer: its bound only rises, its rows are exact, its doubts are honest."""

import json

import numpy as np
import pytest
from noisewise_reproduction.rivals.engine import als, variational
from noisewise_reproduction.rivals.engine.variational import Common, Posterior
from noisewise_reproduction.rivals.rbmf import RobustBayesianFactorizer
from scipy import stats

from noisewise import metrics, noisy_ids, storage
from noisewise.errors import ModelFileError, SettingError
from noisewise.models.deviation import DeviationFactorizer


def make_model(**settings):
    chosen = {"rank": 3, "epochs": 30, "random_state": 0, "n_jobs": 1, **settings}
    return RobustBayesianFactorizer(**chosen)


def make_data(world, extra=0):
    """Standardised observations by row; some more rows that nobody observed."""
    values = (world.y - world.y.mean()) / world.y.std()
    shape = tuple(int(n) + 1 + extra for n in world.X.max(axis=0))
    return als.grouped(tuple(world.X.T.astype(np.int32)), values, shape), shape


@pytest.fixture(scope="module")
def fitted(world):
    return make_model().fit(world.X, world.y)


# The engine.


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cap", [1.2, 10.0])
def test_no_step_lowers_the_bound_those_of_what_rows_share_included(small_world, seed, cap):
    data, shape = make_data(small_world, extra=2)
    state = variational.initial_posterior(shape, 3, seed)
    bounds = []
    for _ in range(60):
        for step in variational.steps(state, data, cap, 1):
            step()
            bounds.append(variational.bound(state, data))
    assert (np.diff(bounds) > -1e-9 * abs(bounds[-1])).all()
    assert bounds[-1] > bounds[0] + 50


def test_every_step_changes_what_it_is_for(small_world):
    data, shape = make_data(small_world)
    state = variational.initial_posterior(shape, 2, 0)

    def values():
        common = state.common
        parts = [*state.moments, *common.prior, np.array(common.shape), np.array([common.tau])]
        return [part.copy() for part in parts]

    changed = []
    for step in variational.steps(state, data, 10.0, 1):
        before = values()
        step()
        pairs = zip(before, values(), strict=True)
        changed.append([k for k, (a, b) in enumerate(pairs) if not np.array_equal(a, b)])
    assert changed == [[0], [2], [4], [5], [1], [3], [4], [5]]


def test_the_bound_is_the_expected_log_ratio_of_model_and_posterior():
    rng = np.random.default_rng(0)
    codes = tuple(np.array(c, dtype=np.int32) for c in ([0, 0, 1, 2, 2], [0, 1, 1, 0, 1]))
    y = rng.normal(size=5)
    data = als.grouped(codes, y, (3, 2))
    state = variational.initial_posterior((3, 2), 1, 0)
    for _ in range(3):
        variational.sweep(state, data, 5.0, 1)
    n, common = 200_000, state.common
    total = np.full(n, -0.5 * variational.LEAST_COVARIANCE)
    total *= 3 * np.trace(common.prior[0]) + 2 * np.trace(common.prior[1])
    drawn = []
    for m, rows in enumerate((3, 2)):
        z, a = np.empty((n, rows, 2)), np.empty((n, rows))
        for r in range(rows):
            shape, rate = state.shape[m][r], state.rate[m][r]
            A = np.linalg.inv(als.unpacked(state.covariance(m)[r][None] / state.noise(m)[r], 2)[0])
            mean = state.mean(m)[r]
            a[:, r] = rng.gamma(shape, 1 / rate, n)
            root = np.linalg.inv(np.linalg.cholesky(A)).T
            z[:, r] = mean + (rng.normal(size=(n, 2)) @ root.T) / np.sqrt(a[:, r, None])
            s, L = common.shape[m], common.prior[m]
            total += stats.gamma.logpdf(a[:, r], s, scale=1 / s)
            total -= stats.gamma.logpdf(a[:, r], shape, scale=1 / rate)
            for matrix, centre, sign in ((L, 0.0, 1), (A, mean, -1)):
                away = z[:, r] - centre
                energy = a[:, r] * np.einsum("ni,ij,nj->n", away, matrix, away)
                volume = np.log(a[:, r]) + 0.5 * np.linalg.slogdet(matrix)[1]
                total += sign * (volume - 0.5 * energy - np.log(2 * np.pi))
        drawn.append((z, a))
    (z, a), (w, b) = drawn
    for i, j, value in zip(*codes, y, strict=True):
        mean = z[:, i, 0] * w[:, j, 0] + z[:, i, 1] + w[:, j, 1]
        std = 1 / np.sqrt(common.tau * a[:, i] * b[:, j])
        total += stats.norm.logpdf(value, mean, std)
    spread = 5 * total.std() / np.sqrt(n)
    assert total.mean() == pytest.approx(variational.bound(state, data), abs=spread)


def test_rows_are_those_of_the_equations(small_world):
    """Slow and obvious: the structured scheme, with the bias as a coordinate of its own."""
    data, shape = make_data(small_world)
    state = variational.initial_posterior(shape, 2, 0)
    for _ in range(3):
        variational.sweep(state, data, 10.0, 1)
    common = state.common
    tau, L, s = common.tau, common.prior[0], common.shape[0]
    for n in (0, 7, 29):
        part = slice(data[0].starts[n], data[0].starts[n + 1])
        A, pull, energy = L.copy(), np.zeros(3), 0.0
        for m, y in zip(data[0].others[part], data[0].values[part], strict=True):
            eb, k = state.precision(1)[m], state.mean(1)[m]
            C = als.unpacked(state.covariance(1)[m][None], 3)[0] / state.noise(1)[m]
            x, bias = np.array([k[0], k[1], 1.0]), k[2]
            outer = eb * np.outer(x, x)
            outer[:2, :2] += C[:2, :2]
            both = eb * bias * x
            both[:2] += C[:2, 2]
            A += tau * outer
            pull += tau * (eb * y * x - both)
            energy += tau * (eb * y**2 - 2 * y * eb * bias + eb * bias**2 + C[2, 2])
        mean = np.linalg.solve(A, pull)
        rate = s + 0.5 * (energy - mean @ A @ mean)
        seen = als.gathered(data[0], slice(n, n + 1), state.moments[1])
        got = Posterior(
            *((array,) for array in variational.posterior_rows(common, 0, seen, 10.0)[:4]), common
        )
        np.testing.assert_allclose(got.mean(0)[0], mean, rtol=1e-8)
        assert got.shape[0][0] == s + 0.5 * (part.stop - part.start)
        assert got.rate[0][0] == pytest.approx(rate, rel=1e-8)
        assert got.log_det[0][0] == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-10)
        covariance = als.unpacked(got.covariance(0) / got.noise(0)[:, None], 3)[0]
        np.testing.assert_allclose(covariance, np.linalg.inv(A), rtol=1e-6, atol=1e-12)


def test_matrices_are_inverted_and_left_as_they_were():
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(7, 5, 9))
    A = roots @ roots.transpose(0, 2, 1)
    before = A.copy()
    inverse, log_det = als.inverted(A)
    np.testing.assert_array_equal(A, before)
    np.testing.assert_allclose(inverse, np.linalg.inv(A), rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(inverse, inverse.transpose(0, 2, 1))
    np.testing.assert_allclose(log_det, np.linalg.slogdet(A)[1])


@pytest.mark.parametrize("true", [2.0, 5.0, 40.0])
def test_the_shape_of_precisions_is_the_likeliest(true):
    precision = np.random.default_rng(0).gamma(true, 1 / true, 4000)
    shape = np.full(4000, 1e7)  # precisions that are known all but exactly
    common = Common([np.eye(1)] * 2, [5.0, 5.0])
    state = Posterior(
        (np.zeros((4000, 3)),) * 2, (shape,) * 2, (shape / precision,) * 2, (), common
    )
    variational.update_shape(state, 0, np.ones(4000, dtype=np.int64))
    assert common.shape[0] == pytest.approx(true, rel=0.1)
    assert common.shape[1] == 5.0


@pytest.mark.parametrize(("spread", "expected"), [(0.0, variational.SHAPES[1]), (3.0, 1.5)])
def test_the_shape_of_precisions_stays_where_it_has_a_meaning(spread, expected):
    shape = np.full(100, 1e7)
    precision = np.exp(spread * np.random.default_rng(0).normal(size=100))
    common = Common([np.eye(1)] * 2, [5.0, 5.0])
    state = Posterior((), (shape,), (shape / precision,), (), common)
    variational.update_shape(state, 0, np.ones(100, dtype=np.int64))
    assert common.shape[0] == pytest.approx(expected)


def test_no_row_is_believed_more_than_the_cap_allows(small_world):
    rng = np.random.default_rng(0)
    y = rng.normal(size=len(small_world.y)) * np.where(small_world.X[:, 0] < 10, 0.05, 1.0)
    data = als.grouped(tuple(small_world.X.T.astype(np.int32)), y, (30, 20))
    precisions = {}
    for cap in (2.0, 1e9):
        state = variational.initial_posterior((30, 20), 2, 0)
        for _ in range(40):
            variational.sweep(state, data, cap, 1)
        precisions[cap] = state.precision(0)
    assert precisions[2.0].max() <= 2.0 * (1 + 1e-12)
    assert (np.sort(np.argsort(-precisions[1e9])[:10]) == np.arange(10)).all()
    assert precisions[1e9].max() > 3.0


# The model.


def test_it_predicts_better_than_biased_mf_and_knows_its_noise(world):
    train, test = world.halves()
    model = make_model().fit(train.X, train.y)
    plain = DeviationFactorizer(rank=3, deviation_rank=0, random_state=0, n_jobs=1)
    errors = [
        metrics.rmse(test.mean, m.predict(test.X)) for m in (model, plain.fit(train.X, train.y))
    ]
    assert errors[0] < errors[1]
    _, noise, _ = model.predict_parts(test.X)
    assert np.corrcoef(np.log(noise), np.log(test.std))[0, 1] > 0.9
    assert noise.mean() == pytest.approx(test.std.mean(), rel=0.1)


def test_ninety_percent_interval_covers_ninety_percent_of_quiet_and_noisy_cells(world):
    train, test = world.halves()
    low, high = make_model(value_range=None).fit(train.X, train.y).predict_interval(test.X)
    inside = (low <= test.y) & (test.y <= high)
    quiet = test.std < np.median(test.std)
    for part in (inside[quiet], inside[~quiet]):
        assert part.mean() == pytest.approx(0.9, abs=0.05)


def test_unneeded_factors_vanish(world):
    model = make_model(rank=6, epochs=100, patience=None).fit(world.X, world.y)
    first, second = (np.linalg.inv(L)[:6, :6] for L in model.common_.prior)
    strength = np.sort(np.linalg.eigvals(first @ second).real)[::-1]  # however factors are turned
    assert strength[1] > 0.03
    assert strength[2] < 0.1 * strength[1]  # the world has two


def test_the_doubt_that_is_kept_is_close_to_that_of_the_posterior(world):
    part = world.part(slice(4000))
    captured = []
    model = make_model(patience=None, epochs=20, value_range=None)
    model.fit(part.X, part.y, callbacks=[lambda info, state: captured.append(state)])
    state = captured[-1]
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 200, 500), rng.integers(0, 150, 500)
    i, j = (ids.lookup(c) for ids, c in zip(model.ids_, (users, items), strict=True))
    f, g = (als.unpacked(state.covariance(m)[c], 4) for m, c in enumerate((i, j)))
    x, w = (np.column_stack([state.mean(m)[c][:, :3], np.ones(500)]) for m, c in ((0, i), (1, j)))
    exact = np.einsum("ni,nij,nj->n", w, f, w) + np.einsum("ni,nij,nj->n", x, g, x)
    exact += np.einsum("nij,nij->n", f[:, :3, :3], g[:, :3, :3])
    kept = (model.predict_parts(np.column_stack([users, items]))[2] / model.factors_.scale) ** 2
    assert np.corrcoef(np.log(kept), np.log(exact))[0, 1] > 0.9
    assert kept.mean() == pytest.approx(exact.mean(), rel=0.2)


def test_more_observations_leave_less_epistemic(world):
    few, many = (
        make_model().fit(world.X[:n], world.y[:n]).predict_parts(world.X) for n in (3000, 18_000)
    )
    assert many[2].mean() < 0.7 * few[2].mean()


def test_the_bound_is_recorded_and_never_falls(fitted):
    assert len(fitted.elbo_) == len(fitted.learning_curve_["epoch"])
    assert (np.diff(fitted.elbo_) > 0).all()


def test_noisy_ids_are_those_that_add_most_noise(fitted, world):
    table = noisy_ids(fitted, n=None)
    order = np.argsort(table["id"])
    mine = np.bincount(world.X[:, 0], world.std**2) / np.bincount(world.X[:, 0])
    assert np.corrcoef(table["noise_std"][order], np.sqrt(mine))[0, 1] > 0.9


@pytest.mark.parametrize("mode", [0, 1])
def test_fold_in_comes_close_to_a_full_fit(world, mode):
    late = world.X[:, mode] < 10
    old, new = world.part(~late), world.part(late)
    train, test = new.halves()
    whole = make_model().fit(np.concatenate([old.X, train.X]), np.append(old.y, train.y))
    model = make_model().fit(old.X, old.y)
    folded, full, unknown, truth = [], [], [], []
    for id in range(10):
        mine, ask = (part.X[:, mode] == id for part in (train, test))
        row = model.fold_in(train.X[mine, 1 - mode], train.y[mine], mode=mode)
        others = test.X[ask, 1 - mode]
        folded.append(row.predict(others, return_std=True))
        full.append(whole.predict(test.X[ask], return_std=True))
        unknown.append(model.predict(test.X[ask]))
        truth.append(test.mean[ask])
    mean, std = (np.concatenate(part) for part in zip(*folded, strict=True))
    full_mean, full_std = (np.concatenate(part) for part in zip(*full, strict=True))
    truth, guess = np.concatenate(truth), np.concatenate(unknown)
    errors = [metrics.rmse(truth, got) for got in (mean, full_mean, guess)]
    assert errors[0] < 1.15 * errors[1]
    assert errors[0] < 0.7 * errors[2]
    assert np.corrcoef(std, full_std)[0, 1] > 0.95
    assert std.mean() == pytest.approx(full_std.mean(), rel=0.1)


def test_fold_in_of_what_a_row_was_trained_on_gives_the_row(world):
    model = make_model(patience=None, epochs=60, value_range=None).fit(world.X, world.y)
    for user in (3, 50):
        mine = world.X[:, 0] == user
        new = model.fold_in(world.X[mine, 1], world.y[mine])
        cells = [(user, item) for item in range(150)]
        mean, std = new.predict(range(150), return_std=True)
        expected, expected_std = model.predict(cells, return_std=True)
        np.testing.assert_allclose(mean, expected, atol=0.05)
        np.testing.assert_allclose(std, expected_std, rtol=0.05)


def test_fold_in_takes_items_that_nobody_knows_and_leaves_the_model_alone(fitted, world):
    before = fitted.predict(world.X)
    new = fitted.fold_in(["nothing", 5], [4.0, 3.0])
    assert np.isfinite(new.predict(["nothing", 7], return_std=True)).all()
    assert len(new.recommend(3)) == 3
    np.testing.assert_array_equal(fitted.predict(world.X), before)


def test_one_far_off_value_moves_a_row_less_than_many_near_ones(world):
    """Heavy tails: a row that fits badly is a noisy one."""
    y = world.y.copy()
    mine = np.flatnonzero(world.X[:, 0] == 7)
    y[mine[::3]] += 25.0
    clean, noisy = (make_model(value_range=None).fit(world.X, v) for v in (world.y, y))
    others = world.X[:, 0] != 7
    moved = np.abs(clean.predict(world.X) - noisy.predict(world.X))
    assert moved[others].mean() < 0.1
    assert noisy.row(7).deviation[0] > 5 * clean.row(7).deviation[0]


@pytest.mark.parametrize("value", [0.0, -3.5, 1e6])
@pytest.mark.filterwarnings("ignore:All .* values are")
def test_values_that_are_all_alike_are_predicted(value):
    X = [(user, item) for user in range(5) for item in range(4)]
    mean, std = make_model(patience=None).fit(X, [value] * 20).predict(X, return_std=True)
    np.testing.assert_allclose(mean, value, atol=1e-3)
    assert np.isfinite(std).all()


def test_without_factors_the_mean_is_a_sum_of_biases(world):
    model = make_model(rank=0, value_range=None).fit(world.X, world.y)
    a, b, c, d = model.predict([(3, 5), (3, 6), (4, 5), (4, 6)]).tolist()
    assert a - b == pytest.approx(c - d, abs=1e-5)


def test_threads_and_files_keep_every_bit(world, tmp_path, monkeypatch):
    monkeypatch.setattr(variational, "CHUNK", 16)  # so that there is work for each of them
    one, four = (make_model(n_jobs=n, epochs=5).fit(world.X, world.y) for n in (1, 4))
    one.save(tmp_path / "model")
    expected = one.predict(world.X, return_std=True)
    for other in (four, RobustBayesianFactorizer.load(tmp_path / "model")):
        np.testing.assert_array_equal(other.predict(world.X, return_std=True), expected)
        assert other.elbo_ == one.elbo_
        assert other.recommend(3, risk=1.0) == one.recommend(3, risk=1.0)
        new, other_new = (m.fold_in([1, 2, 3], [5.0, 4.0, 3.0]) for m in (one, other))
        np.testing.assert_array_equal(
            other_new.predict([7, 8], return_std=True), new.predict([7, 8], return_std=True)
        )


DAMAGE = {
    "tau": lambda header, tensors: header["common"].update(tau=0.0),
    "shape": lambda header, tensors: header["common"].update(shape=[5.0, 1.0]),
    "prior": lambda header, tensors: tensors.update(prior0=-tensors["prior0"]),
    "its size": lambda header, tensors: tensors.update(prior1=tensors["prior1"][:2]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_refused(small_world, tmp_path, damage):
    make_model(epochs=2).fit(small_world.X, small_world.y).save(tmp_path / "model")
    header, tensors = storage.read(tmp_path / "model", "model")
    header = json.loads(json.dumps(header))
    damage(header, tensors)
    for key in ("version", "kind"):
        del header[key]
    storage.write(tmp_path / "model", "model", header, tensors)
    with pytest.raises(ModelFileError, match="is damaged"):
        RobustBayesianFactorizer.load(tmp_path / "model")


@pytest.mark.parametrize("setting", [{"rank": -1}, {"max_precision": 0.5}])
def test_a_bad_setting_is_named(small_world, setting):
    with pytest.raises(SettingError, match=next(iter(setting))):
        make_model(**setting).fit(small_world.X, small_world.y)
