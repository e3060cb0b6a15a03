"""What people install: one version everywhere, a wheel with the library and nothing else."""

import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import noisewise

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))
import package  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_there_is_one_version():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)[1]
    assert {PROJECT["version"], cited} == {noisewise.__version__}
    assert f"## [{noisewise.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_python_that_is_promised_is_tried():
    promised = {
        line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)
    }
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert promised == set(package.VERSIONS)
    assert set(re.findall(r'"(3\.1\d)"', workflow)) == promised
    assert PROJECT["requires-python"] == f">={min(promised, key=lambda v: int(v[2:]))}"


def test_the_citation_can_be_read():
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "license"} <= cited.keys()
    assert cited["license"] == PROJECT["license"]
    assert cited["repository-code"] == PROJECT["urls"]["Source"]


@pytest.fixture
def wheel(tmp_path):
    """A wheel of a small package, to which a test adds what should not be there."""
    source = tmp_path / "noisewise"
    (source / "data").mkdir(parents=True)
    for name in ("__init__.py", "py.typed", "data/sources.toml"):
        (source / name).write_text("x")

    def make(*more, without=()):
        path = tmp_path / "noisewise-0.1.0-py3-none-any.whl"
        names = ["__init__.py", "py.typed", "data/sources.toml"]
        with zipfile.ZipFile(path, "w") as archive:
            for name in [f"noisewise/{n}" for n in names if n not in without] + list(more):
                archive.writestr(name, "x")
            archive.writestr("noisewise-0.1.0.dist-info/licenses/LICENSE", "x")
        return package.faults(path, source)

    return make


def test_a_sound_wheel_has_no_faults(wheel):
    assert wheel() == []


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("tests/test_cli.py", "does not belong"),
        ("noisewise/test_cli.py", "does not belong"),
        ("noisewise/rivals/rbm.py", "does not belong"),
        ("noisewise_reproduction/claims.py", "does not belong"),
        ("bench/run.py", "does not belong"),
        ("setup.py", "outside of the package"),
        ("noisewise/stale.py", "is in the wheel alone"),
    ],
)
def test_what_does_not_belong_into_a_wheel_is_found(wheel, more, fault):
    found, *_ = wheel(more)
    assert found.startswith(more)
    assert fault in found


def test_what_is_missing_in_a_wheel_is_found(wheel):
    assert wheel(without=["data/sources.toml"]) == [
        "noisewise/data/sources.toml is not in the wheel."
    ]


def test_a_wheel_that_is_too_large_is_found(wheel, monkeypatch):
    monkeypatch.setattr(package, "MOST_BYTES", 10)
    (found,) = wheel()
    assert "10 is too many" in found


def test_pythons_that_are_not_there_are_told(tmp_path):
    broken = tmp_path / "python3.99"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    found, lacking = package.found_pythons([sys.executable, str(broken), "no-such-python"])
    assert found == {f"3.{sys.version_info.minor}": sys.executable}
    assert lacking == {str(broken): "does not run", "no-such-python": "is not on the path"}
