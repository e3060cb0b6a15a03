"""Pages: their code runs and prints what they say, their links lead somewhere, no name is left out.

``docs/outputs.py`` finds and runs the code, and writes outputs into pages.
"""

import difflib
import importlib
import inspect
import re

import pytest
from outputs import ROOT, blocks, pages, run

import noisewise
from noisewise import BayesianFactorizer, DeviationFactorizer, DeviationImputer

REFERENCE = ROOT / "docs" / "reference" / "index.rst"
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")


def name_of(page):
    return str(page.relative_to(ROOT))


def alike(said, written):
    """Whether two outputs are the same but for digits, and for an id here and there.

    Another machine rounds otherwise, and may rank two films that are close the other way around.
    """
    first, second = (re.sub(r"[\d.]+|-(?=\d)|\s+", " ", text).split() for text in (said, written))
    return difflib.SequenceMatcher(None, first, second, autojunk=False).ratio() >= 0.8


def runs(page):
    return any(block.why is None and block.kind in ("python", "bash")
               for block in blocks(page.read_text()))  # fmt: skip


@pytest.mark.parametrize("page", [page for page in pages() if runs(page)], ids=name_of)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for model in (BayesianFactorizer, DeviationFactorizer, DeviationImputer):
        monkeypatch.setitem(model.__init__.__kwdefaults__, "n_jobs", 1)  # the bits are the same
    text = page.read_text()
    for block, said in run(page):
        if block.output is not None:
            written = text[slice(*block.output)]
            assert alike(said, written), f"{page}:{block.line}: python docs/outputs.py {page}"


def test_outputs_that_differ_in_more_than_digits_are_told_apart():
    assert alike("user ann\n 1. Alien 4.51 ± 0.64\n", "user ann\n 1. Alien 4.49 ± 0.7\n")
    assert not alike("user ann\n 1. Alien 4.5\n", "The model is in films.nw.\n")
    assert not alike("", "True\n")


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)
    for target, anchor in LINK.findall(re.sub(r"`[^`\n]*`(?!\])", "", text)):
        if target.startswith(("http", "mailto")):
            continue
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{page}: {target}"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{page}: {target}#{anchor}"


def anchors(page):
    """Anchors of the headings of a page, of those that it includes, too."""
    text = page.read_text()
    for other in re.findall(r"```\{include\} (\S+)", text):
        text += (page.parent / other).read_text()
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def listed():
    """Names of the reference, with the modules that they are imported from."""
    module, found = "noisewise", []
    for line in REFERENCE.read_text().splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   [A-Za-z][\w.]*", line) and line.strip() not in ("commands", "files"):
            found.append(f"{module}.{line.strip()}")
    return found


def test_every_public_name_is_in_the_reference():
    names = set(listed())
    assert {f"noisewise.{name}" for name in noisewise.__all__} <= names
    for module in ("metrics", "export"):
        home = importlib.import_module(f"noisewise.{module}")
        own = getattr(home, "__all__", None) or [
            name for name, thing in vars(home).items()
            if inspect.isfunction(thing) and thing.__module__ == home.__name__ and name[0] != "_"
        ]  # fmt: skip
        own = set(own) - {"one_column", "columns"}  # which check arguments
        assert {f"noisewise.{module}.{name}" for name in own} <= names


@pytest.mark.parametrize("name", listed())
def test_a_name_of_the_reference_has_an_example(name):
    module, _, last = name.rpartition(".")
    thing = getattr(importlib.import_module(module), last)
    assert ">>>" in inspect.getdoc(thing)
