"""One page of evidence: what the paper says, what was measured here, and the verdict.

It is made of what ``noisewise reproduce`` wrote, and trains nothing.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from noisewise.errors import DataError
from noisewise.evaluation.records import read_json
from noisewise.report.page import Picture, Section, Table, page
from noisewise.storage import write_bytes
from noisewise_reproduction.claims import claims
from noisewise_reproduction.claims.paper import paper
from noisewise_reproduction.claims.verdicts import Result
from noisewise_reproduction.page import evidence_tables
from noisewise_reproduction.page.evidence_figures import drawings

ARTEFACTS = (
    "datasets", "ratings", "time", "regression", "sensors", "curves", "noise", "future", "claims",
)  # fmt: skip
PARTS = {"artefact", "quick", "splits", "models", "left_out", "machines", "dates", "adopted"}
TITLE = "Deviation-driven factorization, reproduced"
# Names of rows may be long here, and on paper a table must not be cut off.
STYLE = """
tbody th { white-space: normal; min-width: 9rem; }
@media print { td { white-space: normal; } table { font-size: 8pt; } .wide { overflow: visible; } }
"""

Blocks = list[str | Table | Picture]


def report(results: str | Path, out: str | Path) -> Path:
    """Write the page of a folder that ``noisewise reproduce`` wrote.

    Parameters
    ----------
    results : path
        The folder; artefacts that it lacks are named as not measured.
    out : path
        The page to write.

    Returns
    -------
    Path
        The page.
    """
    html = evidence_page(read_artefacts(results))
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, html.encode())
    return path


def read_artefacts(folder: str | Path) -> dict[str, Result]:
    """Read the artefacts of a folder; a broken or foreign file is a ``DataError``."""
    folder = Path(folder)
    found = {}
    for name in ARTEFACTS:
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        artefact = read_json(path, "results")
        if (
            not isinstance(artefact, dict)
            or not artefact.keys() >= PARTS
            or artefact["artefact"] != name
        ):
            raise DataError(f"{path} is no result of `noisewise reproduce {name}`: run it again.")
        found[name] = artefact
    if not found:
        raise DataError(
            f"{folder} holds no results: `noisewise reproduce all --out {folder}` writes them."
        )
    return found


def evidence_page(artefacts: dict[str, Result]) -> str:
    """Return the page.

    Parameters
    ----------
    artefacts : dict
        Results by artefact, as ``read_artefacts`` gives them.
    """
    judged = claims.judge(artefacts)
    quick = any(artefact["quick"] for artefact in artefacts.values())
    sections = [
        _claims(judged),
        *(
            SECTIONS[name](artefacts[name])
            for name in ARTEFACTS
            if name in artefacts and artefacts[name]["machines"]
        ),
        _rules(judged),
        _runs(artefacts),
    ]
    counts = Counter(claim.verdict for claim in judged)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    lead = f"Claims of the paper: {words}."
    if quick:
        lead = (
            "A quick run: one split, small ranks, few epochs, short series. It shows that "
            "everything works, and says nothing about the paper, so nothing is judged."
        )
    return page(TITLE, sections, lead=lead, foot=_foot(artefacts), style=STYLE)


def _claims(judged: list[claims.Judged]) -> Section:
    rows = [[one.claim, one.verdict, one.number or "\N{EN DASH}", one.paper] for one in judged]
    source = (
        "Lee, Yang and Lin: Toward Implicit Sample Noise Modeling: Deviation-driven Matrix "
        "Factorization, AAAI 2017. Its authors published neither code nor settings. How each claim "
        "is judged stands below."
    )
    return Section(
        "What the paper claims",
        [source, Table(["claim", "verdict", "here", "the paper"], rows, words=True)],
    )


def _datasets(artefact: Result) -> Section:
    return Section("Table 1: datasets", [evidence_tables.datasets(artefact)])


def _ratings(artefact: Result) -> Section:
    blocks: Blocks = [
        "For each split a random tenth is test and a tenth of the rest validation; the number of "
        "epochs is chosen there, and the model trained again on all but the test part. A pair with "
        "an id that was not trained on gets a 3."
    ]
    known = [name for name in paper()["ratings"] if name != "reach"]
    there = [name for name in known if any(row["dataset"] == name for row in artefact["summary"])]
    for dataset in there:
        blocks += [evidence_tables.ratings(artefact, dataset)]
    blocks += [*_pictures(artefact), evidence_tables.comparisons(artefact)]
    for dataset in known:
        if dataset not in there:
            blocks += [
                f"{paper()['datasets'][dataset]['title']} was not measured: there was no copy."
            ]
            blocks += [evidence_tables.ratings(artefact, dataset)]
    return Section("Table 2: accuracy on ratings", blocks)


def _time(artefact: Result) -> Section:
    return Section("Table 3: time", [evidence_tables.time(artefact), *_pictures(artefact)])


def _regression(artefact: Result) -> Section:
    words = (
        "In the figure every point was moved by the same noise, and deviation-driven regression is "
        "told how far: what could be gained at best. Two more worlds have nobody to tell."
    )
    blocks: Blocks = [words, *_pictures(artefact), evidence_tables.worlds(artefact)]
    return Section("Figure 2: regression", blocks)


def _sensors(artefact: Result) -> Section:
    blocks: Blocks = [*_pictures(artefact)]
    found = list(dict.fromkeys(row["dataset"] for row in artefact["summary"]))
    blocks += [evidence_tables.sensors(artefact, dataset) for dataset in found]
    blocks += [evidence_tables.outages(artefact, dataset) for dataset in found]
    blocks += [evidence_tables.comparisons(artefact, ("dataset", "protocol", "share"))]
    return Section("Figure 3: sensors", blocks)


def _curves(artefact: Result) -> Section:
    words = "On the validation part of the first split. Axes of epochs and time are logarithmic."
    return Section("Figure 4: learning curves", [words, *_pictures(artefact)])


def _noise(artefact: Result) -> Section:
    blocks: Blocks = [
        "Beyond the paper: is the learned deviation any good? Four rows put another std to the "
        f"predictions of {evidence_tables.called(artefact, artefact['mean_of'])}: the learned one, "
        "the same for all, one that follows from how often user and item were seen, and the "
        "learned ones dealt to other cells. The variance of rank 1 is a model of its own."
    ]
    for dataset in dict.fromkeys(row["dataset"] for row in artefact["summary"]):
        blocks += [evidence_tables.honesty(artefact, dataset)]
    return Section(
        "Honest deviations", [*blocks, *_pictures(artefact), evidence_tables.comparisons(artefact)]
    )


def _future(artefact: Result) -> Section:
    blocks: Blocks = [
        "Beyond the paper: models are trained on each user's past and tested on their last tenth. "
        "There is one such split; intervals are over random starts of the models alone."
    ]
    for dataset in dict.fromkeys(row["dataset"] for row in artefact["summary"]):
        blocks += [evidence_tables.honesty(artefact, dataset)]
    return Section(
        "Later ratings", [*blocks, *_pictures(artefact), evidence_tables.comparisons(artefact)]
    )


def _single(artefact: Result) -> Section:
    words = (
        "Seconds of an epoch are those of one thread, with the same rank for mean and deviation. "
        "Made-up ratings are drawn anew for every repeat."
    )
    return Section(
        "Single claims", [words, *_pictures(artefact), evidence_tables.experiments(artefact)]
    )


SECTIONS = {
    "datasets": _datasets,
    "ratings": _ratings,
    "time": _time,
    "regression": _regression,
    "sensors": _sensors,
    "curves": _curves,
    "noise": _noise,
    "future": _future,
    "claims": _single,
}


def _pictures(artefact: Result) -> list[Picture]:
    return [Picture(drawing.svg(), drawing.alt) for drawing in drawings(artefact).values()]


def _rules(judged: list[claims.Judged]) -> Section:
    numbers = (
        "A number is better if our whole 95 % interval over splits is below the paper's, "
        "reproduced if the two overlap, and else not reproduced. Intervals and paired tests know "
        "that splits of the same data share most of their training parts (Nadeau and Bengio, "
        "2003). Without an interval, and in a "
        "quick run, it is not judged."
    )
    rows = [[one.claim, one.rule] for one in judged]
    return Section("How it is judged", [numbers, Table(["claim", "rule"], rows, words=True)])


def _runs(artefacts: dict[str, Result]) -> Section:
    models = {
        name: model for artefact in artefacts.values() for name, model in artefact["models"].items()
    }
    rows = [
        [model["title"], _settings(model["changed"]), model["chosen"]] for model in models.values()
    ]
    missing = Counter(
        (name, str(one.get("model", one.get("experiment", ""))), one["why"])
        for name, artefact in artefacts.items()
        for one in artefact["left_out"]
    )
    blocks: Blocks = [
        "A model has the settings of the library but for these; all settings, and every number of "
        "every split, are in the JSON files.",
        Table(["model", "settings that differ", "how they were chosen"], rows, words=True),
    ]
    if missing:
        left_out = [[f"{artefact}: {n}", name, why] for (artefact, name, why), n in missing.items()]
        blocks += [
            "Runs that are missing:",
            Table(["artefact", "model", "why"], left_out, words=True),
        ]
    adopted = sorted({name for artefact in artefacts.values() for name in artefact["adopted"]})
    if adopted:
        blocks += [f"Taken over from earlier results: {', '.join(adopted)}."]
    return Section("How it was run", blocks)


def _settings(changed: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in changed.items()) or "none"


def _foot(artefacts: dict[str, Result]) -> str:
    machines: list[str] = []
    for artefact in artefacts.values():
        machines += [_machine(machine) for machine in artefact["machines"]]
    dates = sorted({date for artefact in artefacts.values() for date in artefact["dates"]})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}" if dates else "never"
    versions = sorted(
        {artefact["noisewise"] for artefact in artefacts.values() if "noisewise" in artefact}
    )
    return (
        f"Measured {when} on {'; '.join(dict.fromkeys(machines))}. noisewise "
        f"{', '.join(versions)}. Made from the results alone: nothing was trained for this page."
    )


def _machine(machine: Result) -> str:
    card = f", {machine['gpu']}" if "gpu" in machine else ""
    return f"{machine['cpu']}, {machine['cores']} cores{card}, Python {machine['python']}"
