"""Pages: their code runs and prints what they say, their links lead somewhere, no name is left out.

``docs/outputs.py`` finds and runs the code, and writes outputs into pages.
"""

import difflib
import importlib
import inspect
import math
import re

import pytest
from outputs import ROOT, blocks, pages, run

import noisewise
from noisewise import BayesianFactorizer, DeviationFactorizer, DeviationImputer

REFERENCE = ROOT / "docs" / "reference" / "index.rst"
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
NUMBER_OR_WORD = re.compile(rf"{NUMBER.pattern}|[^\s\d+-]+|[+-]")
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")


def name_of(page):
    return str(page.relative_to(ROOT))


def timeless(text):
    """Leave out how long things took: "0.3 s", and the column of seconds of a table."""
    lines, timed = [], False
    for line in re.sub(r"[\d.]+ s\b", "", text).splitlines():
        timed |= line.rstrip().endswith("seconds")
        lines.append(re.sub(r"\s[\d.]+\s*$", "", line) if timed else line)
    return "\n".join(lines)


def alike(said, written, near=0.1):
    """Whether two outputs have the same words, but for an id here and there, and numbers as large.

    Another machine rounds otherwise: a sampler then draws other numbers, and may rank two films
    that are close the other way around. Numbers may differ by a tenth of their size or by a tenth.
    """
    first, second = (NUMBER_OR_WORD.findall(timeless(text)) for text in (said, written))
    words = [["0" if NUMBER.fullmatch(one) else one for one in text] for text in (first, second)]
    same = difflib.SequenceMatcher(None, *words, autojunk=False)
    pairs = [
        (float(first[a + k].replace(",", "")), float(second[b + k].replace(",", "")))
        for a, b, n in same.get_matching_blocks() for k in range(n) if words[0][a + k] == "0"
    ]  # fmt: skip
    close = all(math.isclose(a, b, rel_tol=near, abs_tol=near) for a, b in pairs)
    return same.ratio() >= 0.8 and close


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


def test_outputs_that_differ_in_words_or_in_numbers_are_told_apart():
    assert alike("user ann\n 1. Alien 4.51 ± 0.64\n", "user ann\n 1. Alien 4.49 ± 0.7\n")
    assert alike("1,556 of 78 in 0.3 s\n", "1,556 of 78 in 27.5 s\n")
    assert alike("rmse  seconds\n0.91  0.1\n", "rmse  seconds\n0.91  7.2\n")
    assert not alike("rmse  seconds\n0.91  0.1\n", "rmse  seconds\n0.71  0.1\n")
    assert not alike("user ann\n 1. Alien 4.51 ± 0.64\n", "user ann\n 1. Alien 3.9 ± 0.64\n")
    assert not alike("array([-0.7, 0.5])\n", "array([0.7, 0.5])\n")
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
