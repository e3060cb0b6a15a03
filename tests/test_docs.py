"""Pages say what the committed results say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_tables_of_every_page_come_from_the_committed_results():
    words = [sys.executable, str(ROOT / "docs" / "tables.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_means_intervals_and_tests_follow_from_the_rows_of_the_committed_results():
    words = [sys.executable, str(ROOT / "docs" / "summaries.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target
