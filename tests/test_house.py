"""The tree is held to the limits of ``bench/house.py``, and the Makefile names files that exist."""

import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))
from house import MOST, OF_THE_WHOLE, PARTS, measure  # noqa: E402

# How large the whole may be is for people to decide: features come. Its parts stay small.
LIMITS = [(part, name) for part in PARTS for name in MOST if name not in OF_THE_WHOLE]


@pytest.fixture(scope="module")
def measured():
    return {part: measure(source) for part, source in PARTS.items()}


@pytest.mark.parametrize(("part", "name"), LIMITS, ids=str)
def test_nothing_is_over_its_limit(measured, part, name):
    found = measured[part][name]
    assert found.most > 0  # there was something to measure
    assert found.over == []


def test_what_is_too_much_is_found(tmp_path):
    long = "def f(" + ", ".join(f"a{k}" for k in range(13)) + "):\n" + "    pass\n" * 60
    kernel = "from numba import njit\n\n\n@njit\n" + long.replace("f(", "g(")
    deep = "class A: pass\n" + "".join(f"class {b}({a}): pass\n" for a, b in pairwise("ABCDE"))
    for folder in "abcd":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text("x = 1\n")
    (tmp_path / "many.py").write_text(long + kernel + deep + "x = 1\n" * 300)
    found = {name: one.over for name, one in measure(tmp_path).items()}
    assert [size for size, _ in found["lines of a function"]] == [61]
    assert [size for size, _ in found["arguments of a function"]] == [13]
    assert found["depth of a class"] == [(5, "many.E")]
    assert found["files of one name"] == [(4, "same.py")]
    assert [where for _, where in found["lines of a file"]] == [str(tmp_path / "many.py")]


def test_the_makefile_names_tests_that_exist():
    text = (ROOT / "Makefile").read_text()
    for folder, names in re.findall(r"addprefix (\S+)/test_,\$\(addsuffix .py,([^)]*)\)", text):
        missing = [n for n in names.split() if not (ROOT / folder / f"test_{n}.py").exists()]
        assert missing == []
