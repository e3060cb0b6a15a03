"""Each claim of the paper: what was measured here, and the verdict.

What a claim says, and the rule that judges it, is in ``paper.toml``; here is a function per claim
that looks the numbers up. It returns them as text, and whether the rule is kept: None if that
cannot be said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from noisewise_reproduction.claims import verdicts
from noisewise_reproduction.claims.paper import paper
from noisewise_reproduction.claims.verdicts import Result, is_above, is_below, together

DMF, BASE = "dmf-paper", "biased-mf"
SMALL, LARGE = "ml1m", ("ml10m", "netflix")
MOST_EXPONENT = 1.1
MANY_ZEROS = 0.33
ALMOST_EVERY = 0.8
NEAR_ZERO = 0.1
SHARED = 0.5


class Found(NamedTuple):
    """What was measured: in words, and whether it keeps the rule; or the verdict itself."""

    number: str
    kept: bool | str | None


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict.

    Attributes
    ----------
    name : str
        Its name in ``paper.toml``.
    claim, paper, rule : str
        What the paper says, its number, and what makes it reproduced.
    number, verdict : str
        What was measured here, and the verdict.
    """

    name: str
    claim: str
    paper: str
    rule: str
    number: str
    verdict: str


class Evidence:
    """The results of a run, by artefact."""

    def __init__(self, artefacts: dict[str, Result]) -> None:
        self.artefacts = artefacts

    def test(self, artefact: str, a: str, b: str, **where: Any) -> Result | None:
        """Return the test of two models."""
        return self._first(artefact, "tests", {"a": a, "b": b, **where})

    def summary(self, artefact: str, model: str, **where: Any) -> Result | None:
        """Return means over splits of a model."""
        return self._first(artefact, "summary", {"model": model, **where})

    def small(self, name: str) -> Result | None:
        """Return what a small experiment found."""
        found: Result | None = self.artefacts.get("claims", {}).get("small", {}).get(name)
        return found

    def _first(self, artefact: str, part: str, like: dict[str, Any]) -> Result | None:
        rows = self.artefacts.get(artefact, {}).get(part, [])
        return next((row for row in rows if like.items() <= row.items()), None)


def judge(artefacts: dict[str, Result]) -> list[Judged]:
    """Judge every claim by the results of a run.

    Parameters
    ----------
    artefacts : dict
        Results by artefact, as ``noisewise reproduce`` writes them; artefacts may be missing.
    """
    evidence = Evidence(artefacts)
    quick = any(artefact["quick"] for artefact in artefacts.values())
    judged = []
    for name, words in paper()["claims"].items():
        found = CLAIMS[name](evidence)
        if found is None:
            number, verdict = "", verdicts.MISSING
        else:
            number = found.number
            verdict = found.kept if isinstance(found.kept, str) else verdicts.of_rule(found.kept)
            verdict = verdicts.OPEN if quick else verdict
        judged.append(Judged(name, words["claim"], words["paper"], words["rule"], number, verdict))
    return judged


def dmf_beats_biased_mf(evidence: Evidence) -> Found | None:
    """Look at table 2."""
    return _tested(evidence.test("ratings", DMF, BASE, dataset=SMALL), is_below)


def rcf_is_worse(evidence: Evidence) -> Found | None:
    """Look at table 2."""
    return _tested(evidence.test("ratings", "rcf", BASE, dataset=SMALL), is_above)


def rbmf_is_better_on_small_data(evidence: Evidence) -> Found | None:
    """Look at table 2."""
    return _tested(evidence.test("ratings", DMF, "rbmf", dataset=SMALL), is_above)


def small_data_is_the_exception(evidence: Evidence) -> Found | None:
    """Look at table 2."""
    tests = [evidence.test("ratings", DMF, name, dataset=SMALL) for name in ("llorma", "autorec")]
    there = [test for test in tests if test is not None]
    if len(there) < len(tests):
        return None
    return Found("; ".join(map(difference, there)), together([is_above(test) for test in there]))


def dmf_is_best_on_large_data(evidence: Evidence) -> Found | None:
    """Look at table 2."""
    words, kept = [], []
    for dataset in LARGE:
        rows = [
            (row["mean"]["rmse"], row["model"])
            for row in evidence.artefacts.get("ratings", {}).get("summary", [])
            if row["dataset"] == dataset and row["model"] in paper()["ratings"][dataset]
        ]
        if rows:
            words.append(f"{dataset}: the lowest is {min(rows)[1]} with {min(rows)[0]:.4f}")
            kept.append(min(rows)[1] == DMF)
    return Found("; ".join(words), together([*kept])) if words else None


def fewer_epochs(evidence: Evidence) -> Found | None:
    """Look at table 3."""
    return _ratio(evidence, "epochs")


def less_time(evidence: Evidence) -> Found | None:
    """Look at table 3."""
    return _ratio(evidence, "seconds")


def zeros(evidence: Evidence) -> Found | None:
    """Look at the deviation factors of the fits of table 3."""
    rows = evidence.artefacts.get("claims", {}).get("zeros", {}).get("summary", [])
    row = next((row for row in rows if row["model"] == DMF), None)
    if row is None:
        return None
    others = [f"{one['mean']['both']:.1%} ({one['model']})" for one in rows if one is not row]
    share = row["mean"]["both"]
    return Found(", ".join([f"{share:.1%}", *others]), share >= MANY_ZEROS)


def linear_in_observations(evidence: Evidence) -> Found | None:
    """Look at the exponent."""
    return _exponent(evidence.small("cost of observations"))


def linear_in_rank(evidence: Evidence) -> Found | None:
    """Look at the exponent."""
    return _exponent(evidence.small("cost of rank"))


def dtf_costs_half_as_much_again(evidence: Evidence) -> Found | None:
    """Look at the ratio."""
    found = evidence.small("cost of modes")
    if found is None:
        return None
    low, high = found["interval95"]["ratio"]
    return Found(interval(found["mean"]["ratio"], low, high), verdicts.of_interval(low, high, 1.5))


def dtf_beats_ptf(evidence: Evidence) -> Found | None:
    """Look at figure 3."""
    return _wins(evidence, ["ptf"])


def dtf_beats_the_others(evidence: Evidence) -> Found | None:
    """Look at figure 3."""
    return _wins(evidence, ["knn", "idw", "tucker"])


def drmf_gets_worse(evidence: Evidence) -> Found | None:
    """Look at the rounds."""
    rows = evidence.artefacts.get("claims", {}).get("rounds", {}).get("summary", [])
    shares = {row["model"]: row["mean"] for row in rows}
    trimmed = [mean for name, mean in shares.items() if name != "drmf-0"]
    if not trimmed:
        return None
    parts = ("train_rmse_rose", "validation_rmse_rose")
    rose = [sum(mean[part] for mean in trimmed) / len(trimmed) for part in parts]
    words = f"rose in {rose[0]:.0%} of the steps (training) and {rose[1]:.0%} (held-out)"
    if "drmf-0" in shares:
        words += f"; {shares['drmf-0'][parts[1]]:.0%} with nothing left out (held-out)"
    return Found(words, min(rose) >= ALMOST_EVERY)


def helps_on_clean_data(evidence: Evidence) -> Found | None:
    """Look at table 2, and at made-up ratings with the same noise everywhere."""
    test, small = evidence.test("ratings", DMF, BASE, dataset=SMALL), evidence.small("equal noise")
    if test is None or small is None:
        return None
    name = "the same noise everywhere: difference"
    low, high = small["interval95"][name]
    words = f"{difference(test)}; same noise: {interval(small['mean'][name], low, high, '+.4f')}"
    nothing = None if high is None else high >= 0
    return Found(words, together([is_below(test), nothing]))


def clean_data_have_no_deviation(evidence: Evidence) -> Found | None:
    """Look at made-up ratings without noise."""
    found = evidence.small("clean data")
    if found is None:
        return None
    level, spread = (found["mean"][f"without noise: {name}"] for name in ("level", "spread"))
    noisy = found["mean"]["with noise: level"]
    words = f"noise {level:.1%} of the spread of ratings, its variance differs by {spread:.0%}"
    kept = level <= NEAR_ZERO and spread <= SHARED
    return Found(f"{words} of its mean (noisy ratings: noise {noisy:.0%})", kept)


def told_deviations_help(evidence: Evidence) -> Found | None:
    """Look at figure 2."""
    world = evidence.artefacts.get("regression", {}).get("worlds", {}).get("deviations told")
    if world is None:
        return None
    words = f"off by {world['dlr_error']:.4f} against {world['lr_error']:.4f}"
    words += f", closer in {world['wins']} of {evidence.artefacts['regression']['seeds']} draws"
    return Found(words, world["difference"] < 0 and world["t_pvalue"] < verdicts.LEVEL)


CLAIMS: dict[str, Callable[[Evidence], Found | None]] = {
    function.__name__: function
    for function in (
        dmf_beats_biased_mf, rcf_is_worse, rbmf_is_better_on_small_data,
        small_data_is_the_exception, dmf_is_best_on_large_data, fewer_epochs, less_time, zeros,
        linear_in_observations, linear_in_rank, dtf_costs_half_as_much_again, dtf_beats_ptf,
        dtf_beats_the_others, drmf_gets_worse, helps_on_clean_data, clean_data_have_no_deviation,
        told_deviations_help,
    )
}  # fmt: skip


def difference(test: Result) -> str:
    """Return a test in words: difference, interval, wins and corrected p."""
    words = interval(test["difference"], test["low"], test["high"], "+.4f")
    p = test["t_pvalue_holm"]
    chance = "" if p is None else f", p = {p:.1g}"
    return f"{words}, lower on {test['wins']} of {test['n']}{chance}"


def interval(mean: float, low: float | None, high: float | None, form: str = ".2f") -> str:
    """Return a mean and its interval in words.

    Examples
    --------
    >>> interval(1.5, 1.25, 1.75), interval(1.5, None, None)
    ('1.50 (1.25 to 1.75)', '1.50')
    """
    number = format(mean, form)
    return number if low is None or high is None else f"{number} ({low:{form}} to {high:{form}})"


def _tested(test: Result | None, rule: Callable[[Result], bool | None]) -> Found | None:
    return None if test is None else Found(difference(test), rule(test))


def _ratio(evidence: Evidence, measure: str) -> Found | None:
    row = evidence.summary("time", DMF, dataset=SMALL)
    name = f"{measure}_ratio"
    if row is None or name not in row["mean"]:
        return None
    low, high = row["interval95"][name]
    kept = None if high is None else high < 1.0
    return Found(f"ratio {interval(row['mean'][name], low, high)}", kept)


def _exponent(found: Result | None) -> Found | None:
    if found is None:
        return None
    mean, (low, high) = found["mean"]["exponent"], found["interval95"]["exponent"]
    return Found(f"exponent {interval(mean, low, high)}", mean <= MOST_EXPONENT)


def _wins(evidence: Evidence, rivals: list[str]) -> Found | None:
    tests = [
        test
        for test in evidence.artefacts.get("sensors", {}).get("tests", [])
        if test["protocol"] == "cells" and test["b"] in rivals
    ]
    sparsest: dict[str, float] = {}
    for test in tests:
        sparsest[test["dataset"]] = min(sparsest.get(test["dataset"], 1.0), test["share"])
    counted = [test for test in tests if test["share"] > sparsest[test["dataset"]]]
    if not counted:
        return None
    lower = sum(test["difference"] < 0 for test in counted)
    sure = sum(bool(is_below(test)) for test in counted)
    words = f"lower in {lower} of {len(counted)} settings, {sure} of them with p < .05"
    first = [test for test in tests if test not in counted]
    words += f"; sparsest: lower in {sum(t['difference'] < 0 for t in first)} of {len(first)}"
    return Found(words, together([is_below(test) for test in counted]))
