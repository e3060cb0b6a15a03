"""Write the tables of README.md and docs/ from the committed results, between their markers.

python docs/tables.py            # write
python docs/tables.py --check    # say whether a page differs from the results
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from noisewise.experiments.ratings import compare

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = {
    "biased-mf": "Biased MF (`deviation_rank=0`)",
    "dmf-paper": "DMF, the paper's likelihood (`beta=0`)",
    "dmf": "**DMF, the defaults**",
}
BEST = {
    "bayes-implicit": "**Bayesian, the defaults**",
    "bayes-full": "Bayesian, with time and levels",
}
PAPER = {"biased-mf": 0.845, "dmf-paper": 0.841}


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def results() -> str:
    rows = []
    for model, name in (NAMES | BEST).items():
        if model in BEST and not measured(model.removeprefix("bayes-")):
            continue
        result = read(f"ml1m-{model}.json")
        mean, (low, high) = result["mean"], result["interval95"]["rmse"]
        rows.append(
            [
                name,
                f"{mean['rmse']:.4f} ± {(high - low) / 2:.4f}",
                f"{PAPER[model]:.3f}" if model in PAPER else "",
                f"{mean['nll']:.4f}",
                f"{mean['constant_nll']:.4f}",
                f"{mean['spearman']:.3f}",
                f"{100 * mean['coverage90']:.1f} %",
                f"{mean['epochs']:.0f}",
            ]
        )
    head = ["", "RMSE", "the paper", "NLL", "NLL, one std for all", "rank corr. of abs. error and std",
            "90 % interval covers", "epochs"]  # fmt: skip
    return table(head, rows)


def paired() -> str:
    lines = []
    for model in ("dmf", "dmf-paper"):
        test = read(f"ml1m-{model}.json")["against"]
        lines.append(
            f"- {NAMES[model].replace('**', '')} against Biased MF, RMSE: {test['difference']:+.4f} "
            f"(95 % {test['low']:+.4f} to {test['high']:+.4f}), lower on {test['wins']} of "
            f"{test['n']} splits, paired t p = {test['t_pvalue']:.2g}, "
            f"Wilcoxon p = {test['wilcoxon_pvalue']:.2g}."
        )
    return "\n".join(lines)


def time() -> str:
    result = read("ml1m-time.json")
    rows = [
        [
            NAMES[name],
            f"{row['seconds']:.1f}",
            f"{row['epochs']:.0f}",
            f"{row['seconds_per_epoch']:.3f}",
            f"{row['ratio']:.2f}",
            row["faster_on"] if name != "biased-mf" else "",
            f"{row['ratio_to_reach_biased_mf']:.2f}",
        ]
        for name, row in result["summary"].items()
    ]
    head = ["", "seconds, fit and refit", "epochs", "seconds an epoch", "time over Biased MF",
            "faster on", "time to Biased MF's best validation RMSE, over its own"]  # fmt: skip
    return table(head, rows)


def search() -> str:
    trials = read("search-ml1m.json")["trials"]
    rows = []
    for name, label in NAMES.items():
        best = min(trials[name], key=lambda trial: trial["validation_rmse"])
        settings = ", ".join(
            f"{key} {value:.3g}" for key, value in best["settings"].items() if key != "rank"
        )
        rows.append(
            [
                label.replace("**DMF, the defaults**", "DMF, `beta` .25 or .5"),
                str(len(trials[name])),
                f"{best['validation_rmse']:.4f}",
                str(best["epochs"]),
                settings,
            ]
        )
    return table(["", "trials", "validation RMSE", "epochs", "settings (rank 128)"], rows)


def deviation_ranks() -> str:
    trials = read("search-ml1m.json")["trials"]["dmf"]
    rows = []
    for rank in sorted({trial["settings"]["deviation_rank"] for trial in trials}):
        own = [trial for trial in trials if trial["settings"]["deviation_rank"] == rank]
        best = min(own, key=lambda trial: trial["validation_rmse"])
        likely = min(trial["validation_nll"] for trial in own)
        rows.append([str(rank), str(len(own)), f"{best['validation_rmse']:.4f}", f"{likely:.4f}"])
    return table(
        ["deviation rank", "trials", "lowest validation RMSE", "lowest validation NLL"], rows
    )


def variants() -> str:
    rows = []
    for name, label in {
        "biased-mf": "Biased MF",
        "biased-mf-row": 'Biased MF, `adagrad="row"`',
        "dmf": "DMF, the defaults (`rank=128`)",
        "dmf-rank64": "DMF, `rank=64`",
        "dmf-rank32": "DMF, `rank=32`",
        "dmf-row": 'DMF, `adagrad="row"`',
    }.items():
        mean = read(f"ml1m-{name}.json")["mean"]
        rows.append([label, f"{mean['rmse']:.4f}", f"{mean['nll']:.4f}", f"{mean['epochs']:.0f}"])
    return table(["", "RMSE", "NLL", "epochs"], rows)


def speed() -> str:
    result = json.loads((ROOT / "bench" / "results" / "speed.json").read_text())
    rows = {}
    for row in result["table"]:
        if row["shape"] == "ml-1m" and (row["threads"] == 2 or row["system"] == "Surprise SVD"):
            if row["system"] == "Surprise SVD" and row["threads"] == 2:
                continue
            spread = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
            cell = f"{row['updates_per_second'] / 1e6:.1f} ({row['ratio_to_cornac']:.2f}: {spread})"
            rows.setdefault(row["system"], {})[row["rank"]] = cell
    rows = dict(sorted(rows.items(), key=lambda item: not item[0].startswith("noisewise")))
    body = [[name, cells.get(32, ""), cells.get(100, "")] for name, cells in rows.items()]
    return table(["", "rank 32", "rank 100"], body)


def promises() -> str:
    result = json.loads((ROOT / "bench" / "results" / "speed.json").read_text())
    rows = []
    for figure in result["figures"]:
        sign = "≥" if figure["at_least"] else "≤"
        bound = "" if figure["bound"] is None else f"{sign} {figure['bound']:g}"
        verdict = {True: "kept", False: "**missed**", None: ""}[figure["kept"]]
        rows.append([figure["figure"].strip(), f"{figure['value']:.2f}", bound, verdict])
    return table(["figure", "measured", "aim", ""], rows)


BAYES = {
    "constant": 'ratings only, `deviation="constant"`',
    "rank1": 'ratings only, `deviation="rank1"`',
    "lowrank": "ratings only (`implicit=False`)",
    "implicit": "**the defaults**: ratings and sets",
    "time": "sets and `time`",
    "full": 'sets, `time` and `likelihood="ordinal"`',
}
STEPS = [("lowrank", "constant"), ("implicit", "lowrank"), ("time", "implicit"), ("full", "time")]


def measured(name: str) -> bool:
    """Whether a row has been run."""
    return (RESULTS / f"ml1m-bayes-{name}.json").exists()


def bayes() -> str:
    rows = []
    for name, label in BAYES.items():
        if not measured(name):
            continue
        result = read(f"ml1m-bayes-{name}.json")
        mean, (low, high) = result["mean"], result["interval95"]["rmse"]
        rows.append(
            [
                label,
                f"{mean['rmse']:.4f} ± {(high - low) / 2:.4f}",
                *(f"{mean[key]:.4f}" for key in ("nll", "log_loss")),
                *(f"{mean[key]:.3f}" for key in ("spearman", "auc")),
                f"{100 * mean['coverage90']:.1f} %",
            ]
        )
    head = ["", "RMSE", "NLL", "log-loss of the level", "rank corr. of abs. error and std",
            "AUC, abs. error > 1", "90 % interval covers"]  # fmt: skip
    return table(head, rows)


def bayes_paired() -> str:
    lines = []
    for one, other in STEPS:
        if not (measured(one) and measured(other)):
            continue
        results = [read(f"ml1m-bayes-{name}.json") for name in (one, other)]
        texts = []
        for metric in ("rmse", "nll", "log_loss"):
            test = compare(*results, metric)
            texts.append(
                f"{metric.replace('_', '-')} {test.difference:+.4f} (95 % {test.low:+.4f} to "
                f"{test.high:+.4f}), lower on {test.wins} of {test.n}, p = {test.t_pvalue:.1g}"
            )
        names = [BAYES[name].replace("**", "") for name in (one, other)]
        lines.append(f"- {names[0]}, against {names[1]}: {'; '.join(texts)}.")
    return "\n".join(lines)


def bayes_peers() -> str:
    peers = json.loads((ROOT / "bench" / "results" / "peers-ml1m.json").read_text())["systems"]
    names = [name for name in ("implicit", "time", "full") if measured(name)]
    ours = {name: read(f"ml1m-bayes-{name}.json") for name in names}
    rows = []
    for name, result in ours.items():
        each = [f"{row['rmse']:.4f}" for row in result["splits"]]
        mean = result["mean"]
        rows.append(
            [f"noisewise, {BAYES[name].replace('**', '')}", *each, f"{mean['rmse']:.4f}",
             f"{mean['log_loss']:.4f}"]
        )  # fmt: skip
    for name, system in peers.items():
        each = [f"{row['rmse']:.4f}" for row in system["splits"]]
        each += [""] * (len(ours["full"]["splits"]) - len(each))
        rows.append([PEERS.get(name, name), *each, f"{system['mean']['rmse']:.4f}",
                     f"{system['mean']['log_loss']:.4f}"])  # fmt: skip
    splits = [f"split {row['seed']}" for row in ours["full"]["splits"]]
    return table(["RMSE", *splits, "mean", "log-loss, mean"], rows)


PEERS = {"myfm": "myFM, ordered probit: day, sets both ways, rank 32, 200 iterations"}

BLOCKS = {
    f.__name__: f
    for f in (
        results, paired, time, search, deviation_ranks, variants, speed, promises,
        bayes, bayes_paired, bayes_peers,
    )
}  # fmt: skip


def filled(text: str) -> str:
    """Replace what stands between each pair of markers."""

    def block(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- {name} -->\n{BLOCKS[name]()}\n<!-- /{name} -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- /\1 -->", block, text, flags=re.DOTALL)


def main() -> None:
    stale = [page for page in PAGES if filled(page.read_text()) != page.read_text()]
    if "--check" in sys.argv:
        sys.exit(f"{', '.join(p.name for p in stale)}: run python docs/tables.py" if stale else 0)
    for page in stale:
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
