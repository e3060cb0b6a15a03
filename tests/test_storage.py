"""Files: what comes back is what went in, and every broken file gets a sentence of its own."""

import datetime
import decimal
import json
import os
import pickle
import struct
import uuid
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from noisewise import (
    BayesianFactorizer,
    LinearInterpolator,
    OUSmoother,
    ResidualFactorizer,
    load,
    storage,
)
from noisewise.data.ids import Ids
from noisewise.errors import DataError, ModelFileError
from noisewise.models import model_file
from noisewise.models.deviation import DeviationFactorizer
from noisewise.schema import Source


def quick(**settings):
    return DeviationFactorizer(
        **{"rank": 2, "deviation_rank": 1, "random_state": 0, "n_jobs": 1, "epochs": 8, **settings}
    )


@pytest.fixture(scope="module")
def model(small_world):
    return quick().fit(small_world.X, small_world.y)


@pytest.fixture(scope="module")
def good(model, tmp_path_factory):
    """The bytes of a good file."""
    path = tmp_path_factory.mktemp("good") / "model"
    model.save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def some_models():
    """Models whose files have indices that compiled code uses."""
    readings = [
        (place, kind, float(hour), np.sin(hour / 3) + hour % 2)
        for place in ("hall", "attic", "cellar")
        for kind in ("heat", "light")
        for hour in range(8)
    ]
    ratings = [(f"u{k % 7}", f"i{k % 5}", 10.0 * k, float(k % 4)) for k in range(30)]
    inside = DeviationFactorizer(rank=1, epochs=2)
    sweeps = {"rank": 1, "sweeps": 6, "burn_in": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "deviation": quick().fit([(u, i, v) for u, i, _, v in ratings]),
            "bayes-time": BayesianFactorizer(time=2, random_state=0, **sweeps).fit(ratings),
            "ou": OUSmoother().fit(readings),
            "linear": LinearInterpolator().fit(readings),
            "residual": ResidualFactorizer(inside, random_state=0).fit(readings),
        }


@pytest.fixture
def rewrite(good, tmp_path):
    """Change header and tensors of a good file, and write it anew with a right checksum."""

    def rewritten(change):
        path = tmp_path / "model"
        path.write_bytes(good)
        header, tensors = storage.read(path, "model")
        change(header, tensors)
        header = {k: v for k, v in header.items() if k not in ("version", "kind")}
        storage.write(path, "model", header, tensors)
        return path

    return rewritten


def assert_same(model, other, X):
    for got, expected in zip(
        other.predict(X, return_std=True), model.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(got, expected)
    assert other.ids_ == model.ids_
    assert other.learning_curve_ == model.learning_curve_
    assert (other.n_epochs_, other.seconds_) == (model.n_epochs_, model.seconds_)


def test_a_model_comes_back_with_the_same_bits(model, small_world, tmp_path):
    model.save(tmp_path / "model")
    for loaded in (DeviationFactorizer.load(tmp_path / "model"), load(tmp_path / "model")):
        assert_same(model, loaded, small_world.X)
        assert loaded.get_params() == model.get_params()
        for low, high in zip(
            loaded.predict_interval(small_world.X), model.predict_interval(small_world.X),
            strict=True,
        ):  # fmt: skip
            np.testing.assert_array_equal(low, high)


@pytest.mark.parametrize(
    "settings",
    [
        {"deviation_rank": 0},
        {"rank": 0},
        {"adagrad": "row", "penalty": "row"},
        {"patience": None, "keep_seen": False},
        {"value_range": [1, 5]},
        {"value_range": (np.float32(1), np.int64(5)), "l2": np.float64(0.5)},
        {"value_range": None, "unknown": 3},
        {"random_state": np.random.RandomState(0)},
        {"rank": 20, "deviation_rank": 17},
    ],
    ids=", ".join,
)
def test_models_of_all_settings_come_back_and_learn_on_alike(settings, small_world, tmp_path):
    first, more = small_world.part(slice(300)), small_world.part(slice(300, None))
    model = quick(**settings).fit(first.X, first.y)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert_same(model, loaded, small_world.X)
    for either in (model, loaded):
        either.partial_fit(more.X, more.y, epochs=2)
    np.testing.assert_array_equal(loaded.predict(more.X), model.predict(more.X))


IDS = {
    "int": [5, 3, -(2**63)],
    "text": ["ann", "bob", ""],
    "text of all the world": ["日本", "é", "\N{WINKING FACE}", "a\x00b", "\ud800"],
    "large int": [2**70, 1, -(2**65)],
    "float": [0.1, 1e300, -0.5],
    "bool": [True, False],
    "bytes": [b"\x00\xff", b"", b"a"],
    "date": [datetime.date(2024, 2, 29), datetime.date(1, 1, 1)],
    "datetime": [datetime.datetime(2024, 1, 2, 3, 4, 5, 6), datetime.datetime(1999, 1, 1)],
    "datetime with zone": [
        datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC),
        datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    ],
    "time": [datetime.time(1, 2, 3), datetime.time(0)],
    "uuid": [uuid.UUID(int=7), uuid.UUID(int=2**127)],
    "decimal": [decimal.Decimal("0.10"), decimal.Decimal("1e30")],
    "tuple with numpy numbers": [("a", np.int64(1)), ("b", np.float32(0.5))],
    "numpy date": list(np.array(["2024-01-01", "2024-01-02"], "M8[D]")),
    "numpy time": list(np.array([1, 2], "M8[ns]")),
    "pandas time": [pd.Timestamp("2024-01-01 12:30"), pd.Timestamp("2024-01-02", tz="UTC")],
    "tuple": [("a", 1), ("a", 2), (("nested", 0.5), datetime.date(2024, 1, 1))],
    "mixed": [1, "1", 2.5, (1,)],
}


@pytest.mark.parametrize("labels", IDS.values(), ids=IDS.keys())
def test_ids_of_many_types_survive(labels, tmp_path):
    rows = [(label, k % 2) for k, label in enumerate(labels)] + [(labels[0], 9)]
    values = np.arange(len(rows))
    model = quick(patience=None).fit(rows, values)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.ids_ == model.ids_
    np.testing.assert_array_equal(loaded.predict(rows), model.predict(rows))
    assert loaded.row(labels[-1]).observations == 1


@pytest.mark.parametrize("library", [pd, pl], ids=lambda library: library.__name__)
def test_dates_of_frames_survive(library, tmp_path):
    days = [datetime.datetime(2024, 1, day) for day in range(1, 7)]
    frame = library.DataFrame({"day": days, "sensor": list("aabbcc")})
    model = quick(patience=None).fit(frame, np.arange(6))
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(frame), model.predict(frame))


@pytest.mark.parametrize(
    "label", [frozenset({1}), 1j, pd.Timestamp("2024-01-01") + pd.Timedelta(1, "ns")], ids=repr
)
def test_ids_that_no_file_can_hold_are_refused_by_save(label, tmp_path):
    model = quick(patience=None).fit([(label, 0), ("other", 1)], [1.0, 2.0])
    with pytest.raises(DataError, match=r"Ids of type \w+ cannot be saved, e\.g\."):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@given(
    st.lists(
        st.integers() | st.text() | st.binary() | st.dates() | st.datetimes() | st.booleans()
        | st.floats(allow_nan=False, allow_infinity=False),
        unique=True, min_size=1,
    )
)  # fmt: skip
def test_any_ids_are_packed_and_unpacked(labels):
    ids, _ = Ids.encode(labels, "user")
    entry, tensors = model_file.pack_ids(ids, "mode0")
    unpacked = model_file.unpack_ids(json.loads(json.dumps(entry)), Source({}, tensors), "mode0")
    assert unpacked == ids
    assert list(map(type, unpacked.labels.tolist())) == list(map(type, ids.labels.tolist()))


def test_no_file_is_named():
    with pytest.raises(ModelFileError, match=r"There is no file nowhere\.nw"):
        load("nowhere.nw")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ModelFileError, match="There is no file"):
        load(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_a_file_cut_short_is_refused(good, tmp_path, share):
    path = tmp_path / "model"
    path.write_bytes(good[: int(share * len(good))])
    with pytest.raises(ModelFileError, match="not a noisewise file, or it is cut short or damaged"):
        load(path)


def test_a_text_file_is_refused(tmp_path):
    path = tmp_path / "model"
    path.write_text("user,item,rating\nann,Alien,5\n" * 9)
    with pytest.raises(ModelFileError, match="not a noisewise file"):
        load(path)


class Trap:
    """Runs when it is unpickled."""

    def __reduce__(self):
        return os._exit, (13,)


def test_a_pickle_is_refused_and_never_run(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ModelFileError, match="not a noisewise file"):
        load(path)


def test_a_header_said_to_be_huge_is_refused(good, tmp_path):
    path = tmp_path / "model"
    path.write_bytes(struct.pack("<Q", 2**62) + good[8:])
    with pytest.raises(ModelFileError, match="not a noisewise file"):
        load(path)


def test_a_header_that_is_huge_is_refused(good, tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.write_bytes(good)
    monkeypatch.setattr(storage, "MAX_HEADER_BYTES", 100)
    with pytest.raises(ModelFileError, match=r"has a header of [\d,]+ bytes"):
        load(path)


def test_a_safetensors_file_of_others_is_refused(tmp_path):
    path = tmp_path / "model"
    save_file({"weight": np.zeros(3)}, path)
    with pytest.raises(ModelFileError, match="noisewise did not write it"):
        load(path)


@pytest.mark.parametrize(
    "document", ["{", "[]", "7", '{"kind": "model"}', "[" * 100_000], ids=lambda d: d[:20]
)
def test_a_header_that_is_no_header_is_refused(document, tmp_path):
    path = tmp_path / "model"
    save_file({"weight": np.zeros(3)}, path, metadata={"noisewise": document})
    with pytest.raises(ModelFileError, match="its header cannot be read"):
        load(path)


@pytest.mark.parametrize("version", [1, 0, -5])
def test_a_file_of_an_older_format_is_refused_in_a_sentence(tmp_path, version):
    document = json.dumps({"version": version, "kind": "model"})
    save_file({"weight": np.zeros(3)}, tmp_path / "old", metadata={"noisewise": document})
    with pytest.raises(ModelFileError, match=r"older noisewise .*: fit and save it again"):
        load(tmp_path / "old")


@pytest.mark.parametrize("version", [3, 999, "1.5", None])
def test_a_newer_format_asks_for_an_upgrade(version, tmp_path):
    path = tmp_path / "model"
    document = json.dumps({"version": version, "kind": "model"})
    save_file({"weight": np.zeros(3)}, path, metadata={"noisewise": document})
    with pytest.raises(ModelFileError, match=r"newer noisewise .*pip install --upgrade noisewise"):
        load(path)


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "I16", "BOOL"])
def test_numbers_of_a_type_that_noisewise_never_writes_are_refused(kind, tmp_path):
    size = {"BF16": 2, "I16": 2}.get(kind, 1)
    document = json.dumps({"version": 2, "kind": "model", "model": "DeviationFactorizer"})
    tensor = {"dtype": kind, "shape": [1], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": {"noisewise": document}, "weight": tensor}).encode()
    path = tmp_path / "model"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
    with pytest.raises(ModelFileError, match=f"weight has numbers of the type {kind}"):
        load(path)


def test_a_checkpoint_is_not_a_model(tmp_path):
    storage.write(tmp_path / "file", "checkpoint", {}, {})
    with pytest.raises(ModelFileError, match="holds a 'checkpoint', not a 'model'"):
        load(tmp_path / "file")


def test_a_model_of_a_kind_that_is_not_there_is_refused(rewrite):
    path = rewrite(lambda header, _: header.update(model="Oracle"))
    with pytest.raises(ModelFileError, match="package has: 'Oracle'"):
        load(path)
    with pytest.raises(ModelFileError, match="holds a Oracle, not a DeviationFactorizer"):
        DeviationFactorizer.load(path)


def drop(name):
    return lambda header, tensors: tensors.pop(name)


def put(name, change):
    return lambda header, tensors: tensors.update({name: change(tensors[name].copy())})


def into(value, *keys):
    def change(header, _):
        for key in keys[:-1]:
            header = header[key]
        header[keys[-1]] = value

    return change


def with_first(value):
    def change(tensor):
        tensor.reshape(-1)[0] = value
        return tensor

    return change


FORGED = {
    "a tensor is missing": (drop("mode0.mean"), r"mode0\.mean is missing"),
    "ids are missing": (drop("mode1.ids"), r"mode1\.ids is missing"),
    "counts are missing": (drop("mode1.counts"), r"mode1\.counts is missing"),
    "scores are missing": (drop("calibration.scores"), r"calibration\.scores is missing"),
    "seen is half there": (drop("seen.columns"), r"seen\.columns is missing"),
    "a wrong shape": (put("mode0.mean", lambda t: t[:, :1]), r"must be float32 of shape \(30, 2\)"),
    "a wrong type": (put("mode0.mean", lambda t: t.astype("f8")), "got float64 of shape"),
    "NaN": (put("mode0.mean", with_first(np.nan)), r"mode0\.mean holds numbers that are not fin"),
    "infinity": (put("mode1.bias", with_first(np.inf)), r"mode1\.bias holds numbers that are not"),
    "a negative deviation": (put("mode1.deviation", with_first(-1)), "deviation must not be neg"),
    "negative counts": (put("mode0.counts", with_first(-1)), r"mode0\.counts makes no sense"),
    "no counts": (put("mode0.counts", lambda t: 0 * t), r"mode0\.counts makes no sense"),
    "a negative spread": (put("mode0.spread", with_first(-1)), r"mode0\.spread must not be neg"),
    "too few ids": (put("mode0.ids", lambda t: t[1:]), r"mode0\.ids must be int64 of shape"),
    "ids twice": (put("mode0.ids", lambda t: 0 * t), "30 ids, but only 1 different"),
    "seen beyond the end": (put("seen.columns", with_first(99)), r"seen\.columns is out of"),
    "seen before the start": (put("seen.starts", with_first(-9)), r"seen\.starts makes no sense"),
    "scores out of order": (put("calibration.scores", with_first(99)), "calibration makes no"),
    "a negative scale": (into(-1.0, "calibration", "scale"), "calibration makes no sense"),
    "a record of no sense": (into(-1, "factors", "epoch"), "epoch is -1"),
    "no variance": (into(0.0, "factors", "variance"), r"variance is 0\.0"),
    "a range upside down": (into([5, 1], "value_range"), r"value_range is \[5, 1\]"),
    "a setting out of range": (into(-1, "settings", "rank"), "rank must be a whole number"),
    "an unknown setting": (into(1, "settings", "speed"), "speed"),
    "settings of another shape": (into(4, "settings", "rank"), r"must be float32 of shape"),
    "no settings": (lambda header, _: header.pop("settings"), "settings"),
    "settings that are a list": (into([1], "settings"), "is damaged"),
    "any number of ids": (into(-1, "ids", 0, "length"), "length is -1"),
    "no ids": (into(0, "ids", 0, "length"), "length is 0"),
    "a rank beyond all memory": (into(2**31, "settings", "rank"), r"must be float32 of shape"),
    "a model of no name": (into([], "model"), r"package has: \[\]"),
    "a base class inside": (
        into({"model": "Factorizer", "settings": {}}, "settings", "unknown"), "package has: 'Fac",
    ),
    "a single mode": (lambda header, _: header["ids"].pop(), "must have 2 modes, but has 1"),
    "ids of an unknown type": (into("pickle", "ids", 0, "type"), "ids of the unknown type"),
    "a length that is no number": (into("many", "ids", 0, "length"), "length is 'many'"),
    "a huge number": (into(10**400, "factors", "variance"), r"variance is 10+\.\.\.0+"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), FORGED.values(), ids=FORGED.keys())
def test_a_forged_file_is_refused_with_its_own_sentence(rewrite, change, message):
    with pytest.raises(ModelFileError, match=message):
        load(rewrite(change))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (['{"tuple": [' * 3000 + "]}" * 3000], "its ids cannot be read"),
        (['{"Timestamp": "2024"}'], "KeyError"),
        (['{"float": "0x1p99999"}'], "OverflowError"),
        (['{"int": "1", "str": "2"}'], "its ids cannot be read"),
        (["[1]"], "its ids cannot be read"),
        (["nonsense"], "its ids cannot be read"),
        (["true", "true"], "2 ids, but only 1 different"),
    ],
)
def test_ids_that_are_no_ids_are_refused(texts, message):
    tensors = model_file._pack_texts(texts, "mode0")
    entry = {"name": "user", "length": len(texts), "type": "json"}
    with pytest.raises(storage.Damaged, match=message):
        model_file.unpack_ids(entry, Source({}, tensors), "mode0")


def test_text_ids_that_do_not_match_their_lengths_are_refused():
    tensors = model_file._pack_texts(["ann", "bob"], "mode0")
    tensors["mode0.id_ends"][1] += 1
    entry = {"name": "user", "length": 2, "type": "str"}
    with pytest.raises(storage.Damaged, match="its ids do not match their lengths"):
        model_file.unpack_ids(entry, Source({}, tensors), "mode0")


def test_a_flipped_bit_in_a_number_is_found(good, tmp_path):
    path = tmp_path / "model"
    decayed = bytearray(good)
    decayed[-1] ^= 1  # the file stays well-formed, and every number finite
    path.write_bytes(decayed)
    with pytest.raises(ModelFileError, match="does not match its checksum"):
        load(path)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_either_loads_the_same_or_is_refused(
    good, model, small_world, tmp_path, data
):
    path = tmp_path / "model"
    damaged = bytearray(good)
    header_end = 8 + struct.unpack("<Q", good[:8])[0]
    for _ in range(data.draw(st.integers(0, 3))):
        region = data.draw(st.sampled_from([8, header_end, len(good)]))
        place = data.draw(st.integers(0, region - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    end = data.draw(st.just(len(good)) | st.integers(0, len(good)))
    path.write_bytes(damaged[:end])
    try:
        loaded = load(path)
    except ModelFileError:
        assert bytes(damaged[:end]) != good
    else:
        assert_same(model, loaded, small_world.X)


def overflowing(starts):
    """Starts whose differences are all positive to a computer, and which point everywhere."""
    forged = starts.copy()
    forged[1:4] = 2**63 - 1, -(2**63), -1
    assert (np.diff(forged) > 0).all()
    return forged


STARTS = {
    "seen": ("deviation", "seen.starts"),
    "a timeline": ("bayes-time", "timeline0.starts"),
    "series": ("ou", "series.starts"),
    "series between lines": ("linear", "series.starts"),
    "series inside a model": ("residual", "near.base.series.starts"),
}


@pytest.mark.parametrize(("kind", "name"), STARTS.values(), ids=STARTS.keys())
def test_starts_whose_differences_overflow_are_refused(kind, name, some_models, tmp_path):
    path = tmp_path / "model"
    some_models[kind].save(path)
    header, tensors = storage.read(path, "model")
    tensors[name] = overflowing(tensors[name])
    storage.write(path, "model", {k: v for k, v in header.items() if k != "kind"}, tensors)
    with pytest.raises(ModelFileError, match=rf"{name.rpartition('.')[0][-6:]}.*makes no sense"):
        load(path)


def test_keys_whose_differences_overflow_are_refused(some_models, tmp_path):
    path = tmp_path / "model"
    some_models["ou"].save(path)
    header, tensors = storage.read(path, "model")
    name = next(name for name in tensors if name.endswith("keys"))
    tensors[name] = overflowing(tensors[name])
    storage.write(path, "model", {k: v for k, v in header.items() if k != "kind"}, tensors)
    with pytest.raises(ModelFileError, match=rf"{name} makes no sense"):
        load(path)


def test_a_model_whose_values_were_all_the_same_can_be_loaded(some_models, tmp_path):
    path = tmp_path / "model"
    some_models["bayes-time"].save(path)
    header, tensors = storage.read(path, "model")
    header["posterior"]["range"] = [0.0, 0.0]  # both ends, in standardised units
    storage.write(path, "model", {k: v for k, v in header.items() if k != "kind"}, tensors)
    scale = load(path).factors_.scale
    assert (scale.low, scale.high) == (0.0, 0.0)


def test_text_ids_whose_lengths_overflow_are_refused():
    tensors = model_file._pack_texts(["ann", "bob", "cat", "dan"], "mode0")
    tensors["mode0.id_ends"][:] = [2**63 - 1, -(2**63), -1, 12]
    entry = {"name": "user", "length": 4, "type": "str"}
    with pytest.raises(storage.Damaged, match=r"mode0\.id_ends makes no sense"):
        model_file.unpack_ids(entry, Source({}, tensors), "mode0")


def test_a_header_of_nothing_but_brackets_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "model"
    document = json.dumps({"version": 2, "kind": "model", "more": [{}] * 200_000})
    save_file({"weight": np.zeros(3)}, path, metadata={"noisewise": document})
    with pytest.raises(ModelFileError, match="200,002 brackets in its header"):
        load(path)


def test_a_long_header_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "model"
    save_file({"weight": np.zeros(3)}, path, metadata={"noisewise": "x" * 3000})
    monkeypatch.setattr(storage, "MAX_HEADER_BYTES", 1000)
    monkeypatch.setattr(storage, "safe_open", None)
    with pytest.raises(ModelFileError, match=r"has a header of 3,\d+ bytes"):
        load(path)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_header_with_numbers_that_are_not_finite_is_refused(number, tmp_path):
    path = tmp_path / "model"
    document = f'{{"version": 2, "kind": "model", "more": {number}}}'
    save_file({"weight": np.zeros(3)}, path, metadata={"noisewise": document})
    with pytest.raises(ModelFileError, match=r"its header cannot be read.*not a finite number"):
        load(path)


def test_a_file_does_not_say_what_a_fit_does(small_world, tmp_path):
    quick().fit(small_world.X, small_world.y).save(tmp_path / "model")
    header, tensors = storage.read(tmp_path / "model", "model")
    header["settings"]["checkpoint"] = str(tmp_path / "elsewhere")
    del header["kind"]
    storage.write(tmp_path / "model", "model", header, tensors)
    with pytest.raises(ModelFileError, match="checkpoint"):
        load(tmp_path / "model")


@pytest.mark.parametrize("broken", ["fsync", "replace", "chmod"])
def test_a_save_that_fails_leaves_the_old_file_and_no_other(
    broken, good, model, small_world, tmp_path, monkeypatch
):
    def fail(*_):
        raise OSError(28, "No space left on device")

    path = tmp_path / "model"
    path.write_bytes(good)
    changed = quick(epochs=2).fit(small_world.X, small_world.y)
    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match=r"No space left on device: '.*model'"):
        changed.save(path)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == good


def test_a_save_into_a_folder_that_is_not_there_says_so(model, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        model.save(tmp_path / "nowhere" / "model")


def test_a_saved_file_is_as_readable_as_any_other(model, tmp_path):
    model.save(tmp_path / "model")
    (tmp_path / "other").touch()
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660])
def test_a_file_keeps_its_mode(mode, tmp_path):
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    storage.write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == mode


def test_the_umask_is_obeyed_and_never_changed(tmp_path, monkeypatch):
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", None)
            storage.write_bytes(tmp_path / "file", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("there", [True, False], ids=["there", "not there yet"])
def test_a_link_is_written_through(there, tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    if there:
        target.write_bytes(b"old")
    link.symlink_to(target)
    storage.write_bytes(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert list((tmp_path / "folder").iterdir()) == [target]


def test_a_pipe_is_refused_and_left_alone(model, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match="it is a device, a pipe or a socket"):
        model.save(pipe)
    assert pipe.is_fifo()


def test_a_device_is_refused(model):
    with pytest.raises(DataError, match="/dev/null cannot be written: it is a device"):
        model.save("/dev/null")
    assert os.path.exists("/dev/null")


def test_what_killed_writers_left_is_removed_by_the_next(tmp_path):
    path = tmp_path / "model[1]"
    old, fresh, other = (
        tmp_path / name
        for name in (".model[1].00ff00ff.saving", ".model[1].11ff00ff.saving", ".other.0f.saving")
    )
    for left in (old, fresh, other):
        left.touch()
    for left in (old, other):
        os.utime(left, (0, 0))
    storage.write_bytes(path, b"new")
    assert sorted(tmp_path.iterdir()) == sorted([path, fresh, other])


def test_a_file_with_a_long_name_can_be_written(tmp_path):
    path = tmp_path / ("é" * 127)
    storage.write_bytes(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_place_that_cannot_be_written_is_known_before(tmp_path):
    storage.check_writable(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match=r"cannot be written: there is no folder .*nowhere"):
        storage.check_writable(tmp_path / "nowhere" / "file")
    with pytest.raises(DataError, match="cannot be written: it is a folder"):
        storage.check_writable(tmp_path)


def test_numbers_that_are_not_finite_are_never_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        storage.write(tmp_path / "file", "model", {"number": float("nan")}, {})
    assert list(tmp_path.iterdir()) == []
