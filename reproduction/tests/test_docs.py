"""Pages say what the committed results say, and what they tell people to type works.

The Python of a page is run from top to bottom, as a reader would, on a small ``ratings.csv`` and
what else a page takes for granted (``GIVEN``). A block that cannot be run here has a comment above
it that says why: ``<!-- not run: reason -->``. Command lines are parsed, not run: the commands and
options must be there, and words must be among the choices.
"""

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer

from noisewise import BayesianFactorizer, observe
from noisewise.cli import app
from noisewise.data.samples import write_samples

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "reproduction" / "README.md",
    *sorted((ROOT / "docs").glob("[!_]*/*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<why>[^>]+) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)```", re.S
)
TYPED = ("noisewise ", "python ", "make ")
MOVIES = ["Alien", "Brazil", "Solaris", "M", "Ran", *(f"movie {k}" for k in range(20))]
PEOPLE = ["ann", "bob", *(f"user {k}" for k in range(38))]


def sensors():
    """Readings of two places with two sensors each, with holes."""
    rng = np.random.default_rng(0)
    day = np.sin(np.arange(120) / 4)
    names = ["hall/heat", "hall/light", "attic/heat", "attic/light"]
    table = pd.DataFrame({name: k + day + rng.normal(0, 0.2, 120) for k, name in enumerate(names)})
    return table.mask(rng.random(table.shape) < 0.1)


def readings():
    long = sensors().melt(ignore_index=False).dropna().reset_index()
    places = long["variable"].str.split("/", expand=True)
    rows = zip(places[0], places[1], long["index"], long["value"], strict=True)
    return observe([tuple(row) for row in rows])


def films(*more):
    """Genres of all movies, and of some that nobody has rated."""
    names = [*MOVIES, *more]
    genres = ["horror", "comedy", "drama"]
    return pd.DataFrame({"item": names, "genre": [genres[k % 3] for k in range(len(names))]})


def people():
    return pd.DataFrame({"user": PEOPLE, "age": [20 + k for k in range(len(PEOPLE))]})


# What a page takes for granted beside ratings.csv: what you have.
GIVEN = {
    "bayesian.md": lambda: {
        "films": films("a new film"),
        "later_films": films("a later film"),
        "people": people(),
        "cells": [("ann", "a new film")],
    },
    "sensors.md": lambda: {"table": sensors(), "readings": readings()},
}


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


def blocks(page, kind):
    """Blocks of a page: the line that each begins in, its text, and why it is not run, if so."""
    text = page.read_text()
    return [
        (text.count("\n", 0, found.start("text")), found["text"], found["why"])
        for found in BLOCK.finditer(text)
        if found["kind"] == kind
    ]


@pytest.fixture(scope="module")
def ratings():
    """A file of ratings, sorted by user as such files are: everyone has rated most movies."""
    rng = np.random.default_rng(0)
    taste, appeal = rng.normal(size=len(PEOPLE)), rng.normal(size=len(MOVIES))
    lines = ["user,item,rating,timestamp"]
    for i, who in enumerate(PEOPLE):
        for j, movie in enumerate(MOVIES):
            if rng.random() < 0.7:
                stars = np.clip(np.rint(3 + taste[i] * appeal[j] + rng.normal(0, 0.7)), 1, 5)
                lines.append(f"{who},{movie},{stars:.0f},{978300000 + rng.integers(10**7)}")
    return "\n".join(lines)


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(why is None for *_, why in blocks(page, "python"))],
    ids=lambda page: page.name,
)  # fmt: skip
def test_the_python_of_a_page_runs(page, ratings, tmp_path, monkeypatch):
    write_samples(tmp_path)
    (tmp_path / "ratings.csv").write_text(ratings)
    monkeypatch.chdir(tmp_path)
    for name, quick in {"sweeps": 60, "burn_in": 20}.items():
        monkeypatch.setitem(BayesianFactorizer.__init__.__kwdefaults__, name, quick)
    names = GIVEN.get(page.name, dict)()
    for line, text, why in blocks(page, "python"):
        if why is None:
            exec(compile("\n" * line + text, str(page), "exec"), names)  # a fault names its line


def commands(page):
    """Command lines of a page, from blocks and from the text."""
    text = page.read_text()
    inside = "\n".join(block for _, block, _ in blocks(page, "")).replace("\\\n", " ")
    lines = [line.strip() for line in inside.splitlines() if line.strip().startswith(TYPED)]
    lines += [" ".join(found.split()) for found in re.findall(r"`(noisewise [^`]+)`", text)]
    return [shlex.split(line, comments=True) for line in lines]


def examples():
    """Command lines in the help of commands."""
    reproduction = ROOT / "reproduction" / "src" / "noisewise_reproduction" / "cli.py"
    for source in [*sorted((ROOT / "src" / "noisewise" / "cli").glob("*.py")), reproduction]:
        for found in re.findall(r"Example: `(noisewise [^`]+)`", source.read_text()):
            yield shlex.split(found)


def parse(words, monkeypatch):
    """Parse a command line at the root of the project, with all checks of its options."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("noisewise.cli.options.os.access", lambda *_: True)
    monkeypatch.setattr("noisewise.storage.check_writable", lambda path: None)
    command = typer.main.get_command(app)
    shared = {name for option in command.params for name in option.opts + option.secondary_opts}
    while words and words[0].startswith("-"):  # some of these act at once: they are not parsed
        assert words[0] in shared, f"There is no such option as {words[0]}."
        words = words[1:]
    while hasattr(command, "commands") and words:
        found = command.get_command(None, words[0])
        assert found is not None, f"There is no command {words[0]}."
        command, *words = found, *words[1:]
    if words:  # else it is only spoken of
        command.make_context("noisewise", list(words))


ALL = [
    pytest.param(words, id=f"{page.name}: {' '.join(words)[:60]}")
    for page in PAGES
    for words in commands(page)
]


@pytest.mark.parametrize("words", [case for case in ALL if case.values[0][0] == "noisewise"])
def test_a_command_line_of_a_page_parses(words, monkeypatch):
    words = [word for word in words[1:] if word != "..."]
    parse(words, monkeypatch)


def test_shares_are_given_as_percentages():
    given = [
        float(part)
        for words in (case.values[0] for case in ALL)
        for option, text in pairwise(words)
        if option == "--share"
        for part in text.split(",")
    ]
    assert given
    assert min(given) >= 1


@pytest.mark.parametrize("words", list(examples()), ids=" ".join)
def test_an_example_of_the_help_parses(words, monkeypatch):
    parse(words[1:], monkeypatch)


@pytest.mark.parametrize("words", [case for case in ALL if case.values[0][0] in ("python", "make")])
def test_scripts_and_targets_of_a_page_are_there(words):
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
        assert words[1] in targets
        return
    module = words[1] == "-m"
    script = words[2].replace(".", "/") + ".py" if module else words[1]
    places = [ROOT / "src", ROOT / "reproduction" / "src"] if module else [ROOT]
    (source,) = (at.joinpath(script).read_text() for at in places if (at / script).exists())
    for option in (word for word in words[2:] if word.startswith("--")):
        assert f'"{option}"' in source, option


def test_faulty_command_lines_would_be_found(monkeypatch):
    faults = {
        "fit a.csv --uot b.nw": "(?i)no such option",
        "fit a.csv": "(?i)missing",
        "evaluate a.csv --protocol sideways": "--protocol must be one of",
        "fitt a.csv": "no command",
        "--quiet fit a.csv --out b.nw": "no such option",
    }
    for line, fault in faults.items():
        with pytest.raises(Exception, match=fault):
            parse(line.split(), monkeypatch)
