"""The registry: what packages add is there, what is broken is told, all else is left alone."""

import sys
from contextlib import suppress

import numpy as np
import pytest
from test_cli import run

from noisewise import OUSmoother, load, registry, storage
from noisewise.data.files import read
from noisewise.errors import DataError, ModelFileError, PluginError, SettingError
from noisewise.models.simple import Popularity

GOOD = """
from noisewise.registry import Datasets, Format, Model, Models, Tensor
MODELS = Models(
    models=(
        Model("lines", "sensors", "extra_models:lines", {"sensor": None}, about="lines"),
        Model("bayes", "sensors", "extra_models:nothing", about="a name that is taken"),
        Model("lost", "ratings", "extra_models:lost"),
    ),
    classes={
        "Lines": "extra_models:Lines",
        "OUSmoother": "extra_models:Lines",
        "Chair": "extra_models:Chair",
    },
    ranges="extra:ranges.toml",
)
DATASETS = Datasets(
    formats=(Format("pipes", "ratings", "extra_data:recognise", "extra_data:read"),),
    tensors=(Tensor("tiny", "extra_data:tiny", 4, 3600.0, (0.5,)),),
    sources="extra:sources.toml",
)
"""
EXTRA_MODELS = """
from noisewise.models.series import LinearInterpolator

class Lines(LinearInterpolator):
    pass

class Chair:
    pass

def lines(**settings):
    return Lines(**settings)
"""
EXTRA_DATA = """
from noisewise.data import observe

def recognise(path):
    return path.is_file() and path.read_text().startswith("|")

def read(path, *, time=None, duplicates="error"):
    rows = [line.strip("|").split("|") for line in path.read_text().splitlines()]
    return observe([(user, item, float(stars)) for user, item, stars in rows])
"""
COMMAND = '''
def greet(name: str = "you") -> None:
    """Say hello to somebody."""
    print(f"Hello, {name}.")
'''
ENTRIES = """
[noisewise.models]
extra = extra:MODELS
[noisewise.datasets]
extra = extra:DATASETS
[noisewise.commands]
greet = extra_cli:greet
fit = extra_cli:greet
"""
BROKEN = """
[noisewise.models]
bad = bad_extra:MODELS
[noisewise.datasets]
bad = bad_extra:DATASETS
[noisewise.commands]
crash = bad_extra:crash
"""


def forget():
    registry._installed.cache_clear()
    registry._entries.cache_clear()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a package with these entry points and modules where Python finds it."""

    def prepare(name, entries, **modules):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entries)
        for module, source in modules.items():
            (tmp_path / f"{module}.py").write_text(source)
            monkeypatch.delitem(sys.modules, module, raising=False)
        forget()
        return tmp_path

    monkeypatch.syspath_prepend(tmp_path)
    yield prepare
    for name in [name for name in sys.modules if name.startswith(("extra", "bad_extra"))]:
        del sys.modules[name]
    monkeypatch.undo()
    forget()


@pytest.fixture
def extra(install):
    folder = install(
        "noisewise-extra", ENTRIES, extra_models=EXTRA_MODELS, extra_data=EXTRA_DATA,
        extra_cli=COMMAND,
    )  # fmt: skip
    (folder / "extra").mkdir()
    (folder / "extra" / "__init__.py").write_text(GOOD)
    (folder / "extra" / "ranges.toml").write_text("[sensors.lines]\ntime = { choices = [0, 1] }\n")
    (folder / "extra" / "sources.toml").write_text(
        '[pipes]\nwhat = "w"\nlicence = "l"\nterms = "t"\nread = "r"\nfiles = []\n'
        '[ml-1m]\nwhat = "not this"\nlicence = "l"\nterms = "t"\nread = "r"\nfiles = []\n'
    )
    return folder


@pytest.fixture
def bad(install):
    return install("noisewise-bad", BROKEN, bad_extra="raise ArithmeticError('half written')\n")


READINGS = [(place, hour, float(hour)) for place in ("hall", "attic") for hour in range(9)]


def test_a_model_of_a_package_is_built_filed_and_loaded_like_any_other(extra, tmp_path):
    assert registry.models("sensors")["lines"].about == "lines"
    model = registry.build("sensors", "lines", time=1, n_jobs=1).fit(READINGS)
    assert type(model).__name__ == "Lines"
    assert model.sensor is None
    model.save(tmp_path / "lines.nw")
    again = load(tmp_path / "lines.nw")
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict([("hall", 3.5)]), model.predict([("hall", 3.5)]))


def test_a_model_without_checkpoints_says_so_if_one_is_named(tmp_path, monkeypatch, capsys):
    data, kept = tmp_path / "ratings.csv", tmp_path / "kept"
    data.write_text("user,item,rating\n1,1,5\n1,2,4\n2,1,3\n")
    monkeypatch.setattr(
        registry, "build", lambda *_, **__: OUSmoother()
    )  # as a package may have one
    given = ["fit", data, "--model", "dmf", "--out", tmp_path / "model.nw"]
    assert run(*given, "--checkpoint", kept) == 2
    assert "must be left out: the model 'dmf' does not keep any" in capsys.readouterr().err
    assert not kept.exists()


def test_ranges_of_a_package_are_found(extra):
    assert registry.ranges("sensors", "lines") == {"time": {"choices": [0, 1]}}
    assert "choices" in registry.ranges("sensors", "fast")["sweeps"]
    assert registry.ranges("sensors", "no such model") == {}


def test_no_package_takes_a_name_of_noisewise(extra, capsys):
    assert registry.class_named("OUSmoother") is OUSmoother
    assert "posterior" in registry.models("sensors")["bayes"].about
    assert registry.sources()["ml-1m"]["what"].startswith("MovieLens")
    assert registry.sources()["pipes"]["what"] == "w"
    assert run("fit", "--help") == 0
    assert "Say hello" not in capsys.readouterr().out


def test_nothing_of_a_package_but_its_declaration_is_imported_before_it_is_asked_for(extra):
    registry.models("sensors")
    registry.tensors()
    registry.commands()
    with suppress(SettingError):
        registry.build("sensors", "no such model")
    assert registry.class_named("no such class") is None
    load_own = registry.class_named("OUSmoother")
    assert load_own is OUSmoother
    assert "extra" in sys.modules
    assert not {"extra_models", "extra_data", "extra_cli"} & set(sys.modules)
    registry.build("sensors", "lines")
    assert "extra_models" in sys.modules


def test_a_class_of_noisewise_is_found_without_looking_for_packages(extra):
    registry.class_named("OUSmoother")
    assert "extra" not in sys.modules


def test_a_file_makes_no_class_that_is_not_declared(extra, tmp_path):
    model = OUSmoother(time=1, n_jobs=1).fit(READINGS)
    model.save(tmp_path / "model.nw")
    header, tensors = storage.read(tmp_path / "model.nw", "model")
    for name in ("Chair", "Lines2", "extra_models:Lines", "BaseEstimator", "os.system", 7, None):
        storage.write(tmp_path / "forged.nw", "model", {**header, "model": name}, tensors)
        with pytest.raises(ModelFileError, match="holds a model that no installed package has"):
            load(tmp_path / "forged.nw")


def test_a_format_of_a_package_is_read_as_it_comes(extra, tmp_path):
    (tmp_path / "ratings.txt").write_text("|ann|Alien|5|\n|bob|Alien|3|\n|bob|Brazil|4|\n")
    seen = read(tmp_path / "ratings.txt")
    assert seen.shape == (2, 2)
    assert "pipes" in registry.formats("ratings")
    (tmp_path / "ratings.pipes").write_text("|ann|Alien|5|\n|bob|Alien|3|\n|bob|Brazil|4|\n")
    assert read(tmp_path / "ratings.pipes").shape == (2, 2)
    (tmp_path / "ratings.pipes").write_text("ann|Alien|5\n")
    with pytest.raises(DataError, match="does not tell the format"):
        read(tmp_path / "ratings.pipes")


def test_a_model_of_a_package_need_not_tell_its_time(tmp_path, monkeypatch, capsys):
    class Untimed(Popularity):
        def fit(self, X, y=None):
            super().fit(X, y)
            del self.seconds_
            return self

        def save(self, path):
            path.write_text("a model")

    data = tmp_path / "ratings.csv"
    rows = [f"{user},{item},{1 + (user + item) % 5}" for user in range(9) for item in range(5)]
    data.write_text("\n".join(["user,item,rating", *rows]))
    monkeypatch.setattr(registry, "build", lambda *_, **__: Untimed())
    assert run("fit", data, "--model", "dmf", "--out", tmp_path / "model.nw") == 0
    assert run("evaluate", data, "--model", "dmf", "--splits", "1") == 0
    assert "rmse" in capsys.readouterr().out


def test_an_unknown_name_is_told_what_there_is(extra):
    with pytest.raises(SettingError, match=r"model must be one of .*lines.*; got 'kriging'\.$"):
        registry.build("sensors", "kriging")
    with pytest.raises(SettingError, match=r"dataset must be one of .*tiny.*; got 'paris'\.$"):
        registry.tensor("paris")


def test_without_packages_an_unknown_tensor_is_told_so(monkeypatch):
    monkeypatch.setattr(registry, "_entries", lambda group: [])
    registry._installed.cache_clear()
    try:
        with pytest.raises(SettingError, match="must be that of an installed package; got 'tiny'"):
            registry.tensor("tiny")
        assert list(registry.models("ratings")) == [
            *("bayes", "dmf", "biased-mf", "biases", "popularity", "item-knn")
        ]
    finally:
        registry._installed.cache_clear()


def test_a_model_that_cannot_be_imported_names_its_package(extra):
    with pytest.raises(PluginError, match=r"package noisewise-extra .* extra_models:lost cannot"):
        registry.build("ratings", "lost")


def test_a_broken_package_breaks_nothing_else(bad):
    assert "ou" in registry.models("sensors")
    assert registry.build("sensors", "ou", time=1).time == 1
    sentence = r"got 'kriging'\. The package noisewise-bad adds .*ArithmeticError: half written"
    with pytest.raises(SettingError, match=sentence):
        registry.build("sensors", "kriging")


def test_a_broken_package_is_warned_of_where_files_are_read(bad, tmp_path):
    (tmp_path / "ratings.csv").write_text("user,item,rating\nann,Alien,5\nbob,Alien,3\n")
    with pytest.warns(UserWarning, match="package noisewise-bad adds to noisewise, but"):
        assert len(read(tmp_path / "ratings.csv")) == 2


def test_a_declaration_must_be_one(install):
    install("noisewise-odd", "[noisewise.models]\nodd = extra_odd:MODELS\n", extra_odd="MODELS = 7")
    with pytest.raises(SettingError, match=r"odd:MODELS cannot be used: .* is a int, not a M"):
        registry.build("ratings", "kriging")


def test_a_command_of_a_package_is_one_of_noisewise(extra, capsys):
    assert run("--help") == 0
    assert "Say hello to somebody." in capsys.readouterr().out
    assert run("greet", "--name", "ann") == 0
    assert capsys.readouterr().out == "Hello, ann.\n"


def test_a_broken_command_is_a_sentence_and_leaves_the_others_alone(bad, capsys):
    assert run("--help") == 0
    said = capsys.readouterr().out
    assert "crash" in said
    assert "recommend" in said
    assert run("crash") == 2
    sentence = "The package noisewise-bad adds to noisewise, but bad_extra:crash cannot be used"
    assert sentence in capsys.readouterr().err
    assert run("data", "list") == 0
