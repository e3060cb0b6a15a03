"""Pages say what the committed results say, and what they tell people to type can be typed.

Commands of pages that are not run (``tests/test_pages.py`` runs the others) are parsed: commands
and options must be there, and words must be among the choices.
"""

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from outputs import blocks, pages

from noisewise.cli import app

ROOT = Path(__file__).parents[2]
TYPED = ("noisewise ", "python ", "make ")


def test_the_tables_of_every_page_come_from_the_committed_results():
    words = [sys.executable, str(ROOT / "docs" / "tables.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_means_intervals_and_tests_follow_from_the_rows_of_the_committed_results():
    words = [sys.executable, str(ROOT / "docs" / "summaries.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def commands(page):
    """Command lines of a page, from blocks and from the text."""
    text = page.read_text()
    shell = (block.text for block in blocks(text) if block.kind in ("", "bash"))
    inside = "\n".join(shell).replace("\\\n", " ")
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
    for page in pages()
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
