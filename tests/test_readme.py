"""README stays short, and says one thing once: one picture, one table, figures from the records."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
OUTSIDE = re.sub(r"```.*?```", "", TEXT, flags=re.S)


def test_it_is_at_most_120_lines_with_one_picture_and_one_table():
    assert len(TEXT.splitlines()) <= 120
    assert len(re.findall(r"!\[", OUTSIDE)) == 1
    assert len(re.findall(r"^\| ?-", OUTSIDE, re.M)) == 1


def test_both_audiences_have_five_lines_of_python_each():
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    lines = [
        [line for line in block.splitlines() if line and not line.startswith("import ")]
        for block in blocks
    ]
    assert [len(block) for block in lines] == [5, 5]


def test_figures_stand_in_the_table_that_records_write():
    table = re.search(r"<!-- glance -->.*<!-- /glance -->", OUTSIDE, re.S)[0]
    left = OUTSIDE.replace(table, "").replace("Python 3.11", "")  # else they would grow stale
    assert not re.findall(r"\d\.\d{2,}", left)
    assert set(re.findall(r"(\d+(?:\.\d+)?) ?%", left)) <= {"90"}


@pytest.mark.parametrize(
    "page",
    ["README.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md", "CODE_OF_CONDUCT.md"],
)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    assert targets
    for target in targets:
        assert target.startswith("http") or (ROOT / target).exists(), target


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "RELEASING.md"])
def test_targets_of_make_are_there(page):
    known = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", (ROOT / page).read_text(), re.M))
    assert named
    assert named <= known
