"""Work out again what follows from the rows of committed results: means, intervals and tests.

python docs/summaries.py            # write
python docs/summaries.py --check    # say which file says otherwise than its rows

What was measured, the rows of every split, is never touched. Figures and the page of evidence are
drawn anew where numbers behind them changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from noisewise.evaluation import comparison, sensors
from noisewise.evaluation.comparison import split_ratio, summarise
from noisewise.evaluation.records import as_json
from noisewise.evaluation.trials import same_settings
from noisewise.report.figures import render
from noisewise.storage import write_bytes
from noisewise_reproduction.page.evidence import evidence_page, read_artefacts
from noisewise_reproduction.page.evidence_figures import drawings
from noisewise_reproduction.runs import command
from noisewise_reproduction.runs import training_time as time
from noisewise_reproduction.runs.plan import Plan
from noisewise_reproduction.runs.summaries import RATIO

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "reproduction" / "results"
REPRODUCED = RESULTS / "reproduced"
PEERS = sorted((ROOT / "bench" / "results").glob("peers-*.json"))
UNMEASURED = ("seed", "choice", "load_average")


def over_splits(result: Any, protocol: Any, data: Any) -> Any:
    """Return a result with mean and interval of all that its splits have in common."""
    rows = result["splits"]
    keys = [key for key in rows[0] if key not in UNMEASURED and all(key in row for row in rows)]
    ratio = split_ratio(protocol, data)
    found = {key: summarise([_number(row[key]) for row in rows], ratio) for key in keys}
    return {
        **result,
        "mean": {key: one.mean for key, one in found.items()},
        "interval95": {key: [one.low, one.high] for key, one in found.items()},
    }


def evaluated(content: Any) -> Any:
    """Return what a file of ``noisewise evaluate`` holds, worked out again."""
    if isinstance(content, list):
        return [evaluated(one) for one in content]
    if "splits" not in content or "protocol" not in content:
        return content
    again = over_splits(content, content["protocol"], content["data"])
    if "against" in content:
        other = json.loads((RESULTS / f"ml1m-{content['against']['model']}.json").read_text())
        metric = content["against"]["metric"]
        test = comparison.compare(again, other, metric).paired
        again["against"] = {**content["against"], **test._asdict()}
    return again


def timed(content: Any) -> Any:
    """Return what ``noisewise_reproduction.runs.training_time`` wrote, worked out again."""
    return {**content, "summary": time.summary(content["fits"])}


def of_peers(content: Any) -> Any:
    """Return what ``bench/peers.py`` wrote, worked out again."""
    systems = {
        name: over_splits(entry, "paper", content["data"])
        for name, entry in content["systems"].items()
    }
    return {**content, "systems": systems}


def reproduced(content: Any) -> Any:
    """Return an artefact of ``noisewise reproduce``, worked out again."""
    module = command.ARTEFACTS[content["artefact"]]
    if not hasattr(module, "derived"):
        return content
    artefact = Plan({}, content["quick"], content["splits"]).artefact(content["artefact"])
    parts = [content, *(content[name] for name in ("zeros", "rounds") if name in content)]
    for row in (row for part in parts for row in part.get("rows", ())):
        row[RATIO] = _ratio_of_row(content["artefact"], row)
    return {**content, **module.derived(content, artefact)}


def _ratio_of_row(artefact: str, row: Any) -> float:
    """Return the ratio of test part to training part of a row that may not have it yet."""
    if RATIO in row:
        return float(row[RATIO])
    if artefact == "future":
        return 0.0
    if artefact != "sensors":
        return split_ratio("paper", {})
    known = json.loads((REPRODUCED / "datasets.json").read_text())["rows"]
    sizes = {one["dataset"]: one for one in known}
    protocol = sensors.protocol_of(row["protocol"], row["share"])
    return split_ratio(protocol, sizes[row["dataset"]])


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def files() -> dict[Path, Any]:
    """Every committed file that has numbers which follow from others, with the way to them."""
    found: dict[Path, Any] = {
        path: evaluated
        for path in sorted(RESULTS.glob("*.json"))
        if path.name.startswith(("ml1m-", "sensors-")) and path.name != "ml1m-time.json"
    }
    found[RESULTS / "ml1m-time.json"] = timed
    found |= dict.fromkeys(PEERS, of_peers)
    return found | dict.fromkeys(sorted(REPRODUCED.glob("*.json")), reproduced)


def main() -> None:
    """Write what changed, or say what would."""
    stale = []
    for path, work_out in files().items():
        before = json.loads(path.read_text())
        after = json.loads(as_json(work_out(json.loads(path.read_text()))))
        if not same_settings(before, after):
            stale.append(path)
            if "--check" not in sys.argv:
                write_bytes(path, as_json(after).encode())
    if "--check" in sys.argv:
        names = ", ".join(path.name for path in stale)
        sys.exit(f"{names}: run python docs/summaries.py" if stale else 0)
    for path in stale:
        print(path.relative_to(ROOT))
        if path.parent == REPRODUCED:
            for place, drawing in drawings(json.loads(path.read_text())).items():
                write_bytes(REPRODUCED / f"{place}.png", render(drawing, "png"))
    if any(path.parent == REPRODUCED for path in stale):
        (RESULTS / "evidence.html").write_text(evidence_page(read_artefacts(REPRODUCED)))


if __name__ == "__main__":
    main()
