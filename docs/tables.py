"""Write the tables of README.md and docs/ from the committed results, between their markers.

python docs/tables.py            # write
python docs/tables.py --check    # say whether a page differs from the results
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from noisewise.evaluation.comparison import compare, paired_test, split_ratio
from noisewise.evaluation.records import read_results
from noisewise_reproduction.claims.claims import judge
from noisewise_reproduction.page.evidence import read_artefacts

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "reproduction" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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
                f"{mean['constant_nll']:.4f}" if "constant_std" in mean else "",
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


def promises(name: str = "speed.json") -> str:
    path = ROOT / "bench" / "results" / name
    if not path.exists():
        return NOTHING
    rows = []
    for figure in json.loads(path.read_text())["figures"]:
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
            texts.append(told(metric, compare(*results, metric).paired))
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
    lines = [table(["RMSE", *splits, "mean", "log-loss, mean"], rows), ""]
    for name, result in ours.items():
        label = BAYES[name].replace("**", "")
        lines.append(f"- {label}, against myFM: {against(result, peers['myfm'])}.")
    return "\n".join(lines)


def against(ours: Any, theirs: Any) -> str:
    """Paired tests on the splits that both have."""
    texts = []
    for metric in ("rmse", "log_loss"):
        both = [{row["seed"]: row[metric] for row in one["splits"]} for one in (ours, theirs)]
        seeds = sorted(both[0].keys() & both[1].keys())
        values = ([one[seed] for seed in seeds] for one in both)
        texts.append(told(metric, paired_test(*values, split_ratio(ours["protocol"], ours["data"]))))
    return "; ".join(texts)


def told(metric: str, test: Any) -> str:
    """A paired test in words."""
    return (
        f"{metric.replace('_', '-')} {test.difference:+.4f} (95 % {test.low:+.4f} to {test.high:+.4f}), "
        f"lower on {test.wins} of {test.n}, p = {test.t_pvalue:.1g}"
    )


def bayes_speed() -> str:
    path = ROOT / "bench" / "results" / "bayes.json"
    if not path.exists():
        return NOTHING
    rows = [
        [
            row["data"],
            row["sampler"],
            str(row["rank"]),
            f"{row['seconds_per_sweep']:.2f}",
            f"{row['fastest_s']:.2f}",
        ]
        for row in json.loads(path.read_text())["table"]
    ]
    return table(["ratings", "sampler", "rank", "seconds a sweep, median", "fastest"], rows)


def bayes_promises() -> str:
    return promises("bayes.json")


def bayes_small() -> str:
    path = ROOT / "bench" / "results" / "peers-ml100k.json"
    if not path.exists():
        return NOTHING
    systems = json.loads(path.read_text())["systems"]
    rows = []
    for name, system in sorted(systems.items(), key=lambda item: item[1]["mean"]["rmse"]):
        mean = system["mean"]
        loss = mean.get("log_loss")
        rows.append(
            [
                PEERS.get(name, name),
                f"{mean['rmse']:.4f}",
                "" if loss is None else f"{loss:.4f}",
                f"{mean['seconds']:.1f}",
                f"{mean['cpu_seconds']:.1f}",
            ]
        )
    return table(["", "RMSE", "log-loss of the level", "seconds", "CPU seconds"], rows)


PEERS = {
    "myfm": "myFM, ordered probit: day, sets both ways, rank 32, 200 iterations",
    "noisewise": "noisewise, as it comes: user, item, rating",
    "noisewise-time": "noisewise, as it comes, with times",
    "surprise": "Surprise, SVD++ as it comes",
    "cornac": "cornac, MF as it comes",
}

SENSORS = {"london": "London", "intel": "Intel"}
SENSOR_NAMES = {
    "knn": "kNN, nearest sites",
    "idw": "inverse distances",
    "knn-imputer": "`KNNImputer`",
    "iterative-imputer": "`IterativeImputer`",
    "tucker": "Tucker",
    "linear": "linear interpolation",
    "ou": "OU per series",
    "ptf": "PTF",
    "dtf": "DTF",
    "fast": "the fast version",
    "bayes": "**the flagship**",
    "auto": "`auto`",
}
MAIN_SHARES = {"london": 0.2, "intel": 0.4}
NOTHING = "Not measured yet."


def known_tables() -> str:
    rows = [
        [
            entry["signal"],
            " x ".join(map(str, entry["shape"])),
            f"{entry['noise']:g}",
            *(f"{entry[key]:.2g}" for key in ("rmse", "noise_std", "epistemic_std")),
            f"{100 * entry['coverage90']:.1f} %" if entry["noise"] else "",
            "kept" if entry["kept"] and entry["same_after_load"] else "missed",
        ]
        for entry in bench("known_truth.json")["tables"]
    ]
    head = ["signal", "table", "noise", "RMSE", "noise found", "epistemic", "90 % interval covers", ""]
    return table(head, rows)


def known_random() -> str:
    rows = [
        [
            f"{entry['users']} x {entry['items']}, {entry['each']} each",
            f"{entry['noise_std']:.3f}",
            f"{entry['epistemic_std']:.3f}",
            f"{entry['rmse_over_spread']:.4f}",
            "kept" if entry["kept"] else "missed",
        ]
        for entry in bench("known_truth.json")["random"]
    ]
    return table(["ratings", "noise found", "epistemic", "RMSE over spread", ""], rows)


def newcomers() -> str:
    rows = []
    for data in ("ml100k", "ml1m"):
        for model, measured_model in bench(f"newcomers-{data}.json")["models"].items():
            for line in measured_model["by_ratings"]:
                rows.append(
                    [
                        f"{data}, {model}",
                        str(line["ratings"]),
                        f"{line['rmse']:.4f}",
                        f"{line['mean_std']:.4f}",
                        f"{100 * line['coverage_90']:.1f} %",
                    ]
                )
    return table(["data, model", "ratings", "RMSE", "mean std", "90 % interval covers"], rows)


def bench(name: str) -> Any:
    return json.loads((ROOT / "bench" / "results" / name).read_text())


def of_sensors(place: str, model: str, kind: str) -> dict[float, Any]:
    """Results of a model under a protocol by share; a file holds one result or a list of them."""
    path = RESULTS / f"sensors-{place}-{model}.json"
    found = read_results(path) if path.exists() else []
    found = [result for result in found if result["protocol"]["kind"] == kind]
    return {
        result["protocol"]["share"]: result
        for result in sorted(found, key=lambda result: result["protocol"]["share"])
    }


def give_or_take(values: list[float]) -> str:
    """A mean and the standard deviation over splits, and how many if not five."""
    mean = statistics.fmean(values)
    digits = 4 if mean < 0.1 else 3
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    few = f" ({len(values)})" if len(values) != 5 else ""
    return f"{mean:.{digits}f}{spread}{few}"


def sensor_cells() -> str:
    parts = []
    for place, title in SENSORS.items():
        every = {model: of_sensors(place, model, "cells") for model in SENSOR_NAMES}
        shares = sorted({share for results in every.values() for share in results})
        rows = [
            [
                SENSOR_NAMES[model],
                *(
                    give_or_take([row["mse"] for row in results[share]["splits"]])
                    if share in results
                    else ""
                    for share in shares
                ),
            ]
            for model, results in every.items()
            if results
        ]
        if rows:
            parts.append(table([f"{title}, MSE", *(f"{share:.0%}" for share in shares)], rows))
    return "\n\n".join(parts) or NOTHING


def sensor_blocks() -> str:
    parts = []
    for place, title in SENSORS.items():
        rows = []
        for model, name in SENSOR_NAMES.items():
            for result in of_sensors(place, model, "blocks").values():
                mean = result["mean"]
                rows.append(
                    [
                        name,
                        give_or_take([row["mse"] for row in result["splits"]]),
                        f"{mean['median_se']:.4f}",
                        f"{mean['nll']:.2f}",
                        f"{100 * mean['coverage90']:.1f} %",
                        f"{mean['seconds']:.0f}",
                    ]
                )
        head = [
            f"{title}, outages",
            "MSE",
            "median",
            "NLL",
            "90 % interval covers",
            "seconds to fit",
        ]
        parts += [table(head, rows)] if rows else []
    return "\n\n".join(parts) or NOTHING


def sensor_coverage() -> str:
    """What intervals of the flagship cover, by place and protocol."""
    rows = []
    for place, title in SENSORS.items():
        for kind in ("cells", "blocks"):
            for share, result in of_sensors(place, "bayes", kind).items():
                covered = [row["coverage90"] for row in result["splits"]]
                rows.append(
                    [
                        f"{title}, {kind}, {share:.0%}",
                        f"{100 * statistics.fmean(covered):.1f} %",
                        f"{100 * min(covered):.1f} to {100 * max(covered):.1f} %",
                        f"{result['mean']['median_se']:.4f}",
                        f"{result['mean']['nll']:.2f}",
                        f"{result['mean']['seconds']:.0f}",
                    ]
                )
    head = ["the flagship", "90 % interval covers", "lowest to highest", "median", "NLL", "seconds to fit"]
    return table(head, rows) if rows else NOTHING


def glance() -> str:
    """The first page's table: what was hidden, a simple rival, the best one measured, and ours."""
    small = bench("peers-ml100k.json")["systems"]
    ours = {"defaults": read("ml1m-bayes-implicit.json"), "full": read("ml1m-bayes-full.json")}
    rows = [
        [
            "MovieLens-1M, a tenth of the ratings: RMSE",
            f"{read('ml1m-biased-mf.json')['mean']['rmse']:.3f} Biased MF",
            f"{bench('peers-ml1m.json')['systems']['myfm']['mean']['rmse']:.3f} myFM, with times",
            f"**{ours['defaults']['mean']['rmse']:.3f}**; with times and levels "
            f"**{ours['full']['mean']['rmse']:.3f}**",
            f"{ours['defaults']['mean']['coverage90']:.1%}",
        ],
        [
            "MovieLens-100K, a tenth of the ratings: RMSE",
            f"{small['surprise']['mean']['rmse']:.3f} Surprise's SVD++",
            f"{small['myfm']['mean']['rmse']:.3f} myFM, with times",
            f"**{small['noisewise']['mean']['rmse']:.3f}**; with times "
            f"**{small['noisewise-time']['mean']['rmse']:.3f}**",
            f"{read('ml100k-bayes.json')['mean']['coverage90']:.1%}",
        ],
    ]
    for place, title in {
        "london": "London air, 30 days of single sensors: MSE",
        "intel": "Intel lab, 2 hours of single sensors: MSE",
    }.items():
        found = {name: of_sensors(place, name, "blocks") for name in (*OTHERS, "bayes")}
        errors = {name: one[max(one)]["mean"]["mse"] for name, one in found.items() if one}
        best = min(OTHERS & errors.keys(), key=lambda name: errors[name])
        own = found["bayes"][max(found["bayes"])]["mean"]
        rows.append(
            [
                title,
                f"{errors['linear']:.3f} linear interpolation",
                f"{errors[best]:.3f} {SENSOR_NAMES[best]}",
                f"**{own['mse']:.3f}**",
                f"{own['coverage90']:.1%}",
            ]
        )
    head = ["what was hidden", "a simple way", "the best rival measured", "noisewise",
            "90 % intervals hold"]  # fmt: skip
    return table(head, rows)


# Ways to fill sensors that are not of noisewise.
OTHERS = {"knn", "idw", "knn-imputer", "iterative-imputer", "tucker", "linear", "ptf", "dtf"}


def sensor_paired() -> str:
    return sensor_pairs("dtf", "ptf")


def sensor_gain() -> str:
    return sensor_pairs("bayes", "linear")


def on_same_splits(*results: Any) -> list[Any]:
    """Return results with the splits that all of them have."""
    common = set.intersection(*({row["seed"] for row in one["splits"]} for one in results))
    return [
        one | {"splits": [row for row in one["splits"] if row["seed"] in common]} for one in results
    ]


def sensor_pairs(first: str, second: str) -> str:
    rows = []
    for place, title in SENSORS.items():
        for kind in ("cells", "blocks"):
            one, other = (of_sensors(place, model, kind) for model in (first, second))
            for share in sorted(one.keys() & other.keys()):
                test = compare(*on_same_splits(one[share], other[share]))
                paired = test.paired
                rows.append(
                    [
                        f"{title}, {kind}, {share:.0%}",
                        f"{paired.difference:+.4f}",
                        f"{paired.low:+.4f} to {paired.high:+.4f}",
                        f"{paired.wins} of {paired.n}",
                        f"{paired.t_pvalue:.2g}",
                        f"{paired.wilcoxon_pvalue:.2g}",
                        f"{test.unpaired_pvalue:.2g}",
                    ]
                )
    a, b = (SENSOR_NAMES[model].strip("*") for model in (first, second))
    head = [f"{a} minus {b}, MSE", "mean", "95 %", f"{a} is lower on", "paired t, p", "Wilcoxon, p",
            "the paper's test, p"]  # fmt: skip
    return table(head, rows) if rows else NOTHING


RIVALS = {  # name, the paper's RMSE and how far its interval may reach
    "rbm": ("RBM, a case per user", 0.881, 0.003),
    "rbm-item": ("RBM, a case per item", None, 0.0),
    "rcf": ("RCF", 0.867, 0.005),
    "rbmf": ("RBMF", 0.837, 0.003),
    "llorma": ("LLORMA", 0.833, 0.003),
    "autorec": ("AutoRec", 0.831, 0.003),
    "drmf": ("DRMF", None, 0.0),
}
LEFT_OUT = {"0": "one cell", "1": "1 %", "5": "5 %", "10": "10 %"}
ERRORS = "train_rmse", "validation_rmse"


def rivals() -> str:
    biased = read("ml1m-biased-mf.json")
    rows = []
    for name, (label, paper, reach) in RIVALS.items():
        if not (RESULTS / f"ml1m-{name}.json").exists():
            continue
        result = read(f"ml1m-{name}.json")
        mean, (low, high) = result["mean"], result["interval95"]["rmse"]
        test = compare(result, biased).paired
        machine = result["machine"]
        rows.append(
            [
                label,
                "" if paper is None else f"{paper:.3f}",
                f"{mean['rmse']:.4f}",
                " ".join(f"{row['rmse']:.4f}" for row in result["splits"]),
                f"{low:.4f} to {high:.4f}",
                f"{test.difference:+.4f}, lower on {test.wins} of {test.n}",
                f"{mean['nll']:.4f}",
                f"{mean['epochs']:.0f}",
                f"{mean['seconds_per_epoch']:.2g}" if "seconds_per_epoch" in mean else "",
                f"{mean['seconds']:.0f}, {'GPU' if 'gpu' in machine else 'CPU'}",
                _against_the_paper(paper, reach, low, high),
            ]
        )
    head = ["", "the paper", "RMSE", "five splits", "95 % interval", "minus Biased MF's", "NLL", "epochs",
            "seconds an epoch", "seconds a split", "against the paper"]  # fmt: skip
    return table(head, rows) if rows else NOTHING


def _against_the_paper(paper: float | None, reach: float, low: float, high: float) -> str:
    if paper is None:
        return "not in its table"
    if high < paper - reach:
        return "**lower**"
    return "**higher**" if low > paper + reach else "the same, within the intervals"


def rivals_rounds() -> str:
    """DRMF's errors after every round, training and held-out, mean over splits."""
    found = {
        label: read(f"ml1m-drmf-rounds-{share}.json")["rounds"]
        for share, label in LEFT_OUT.items()
        if (RESULTS / f"ml1m-drmf-rounds-{share}.json").exists()
    }
    many = min((len(split["round"]) for splits in found.values() for split in splits), default=0)
    rows = []
    for k in range(many):
        errors = [
            " / ".join(f"{statistics.fmean(s[name][k] for s in splits):.4f}" for name in ERRORS)
            for splits in found.values()
        ]
        rows.append([str(k + 1), str(next(iter(found.values()))[0]["epoch"][k]), *errors])
    head = ["round", "epochs", *(f"{label} left out" for label in found)]
    return table(head, rows) if rows else NOTHING


def rivals_search() -> str:
    found = read("search-rivals.json")
    rows = []
    for name, trials in found["trials"].items():
        chosen = found["chosen"][name]
        rows.append(
            [
                RIVALS[name][0].split(",")[0],
                str(len(trials)),
                chosen["machine"],
                f"{found['best'][name]['validation_rmse']:.4f}",
                f"{chosen['validation_rmse']:.4f}",
                ", ".join(f"`{key}` {value}" for key, value in chosen["settings"].items()),
            ]
        )
    return table(["", "trials", "on", "best validation RMSE", "that of the chosen", "chosen"], rows)


def regression() -> str:
    rows = [
        [
            name,
            str(world["points"]),
            f"{world['lr_error']:.4f}",
            f"{world['dlr_error']:.4f}",
            "{:+.4f} ({:+.4f} to {:+.4f})".format(world["difference"], *world["interval95"]),
            f"{world['wins']} of {read('regression.json')['seeds']}",
            f"{world['t_pvalue']:.1g}",
            f"{world['wilcoxon_pvalue']:.1g}",
        ]
        for name, world in read("regression.json")["worlds"].items()
    ]
    head = ["", "points", "LR off by", "DLR off by", "difference, 95 %", "DLR closer in", "p, paired t",
            "p, Wilcoxon"]  # fmt: skip
    return table(head, rows)


def sensor_noise() -> str:
    path = RESULTS / "sensors-intel-noise.json"
    if not path.exists():
        return NOTHING
    rows = [
        [
            f"mote {row['id']}",
            *(f"{row[part]:.1f}" for part in ("noise", "white", "drift")),
            row["worst"],
        ]
        for row in json.loads(path.read_text())["places"]
    ]
    return table(["", "noise", "white noise", "drift", "noisiest sensor"], rows)


def tensor_promises() -> str:
    return promises("tensor.json")


def flagship_promises() -> str:
    return promises("flagship.json")


def imputed() -> Any:
    """Return the records of filled tables by place, and the module that judges them."""
    sys.path.insert(0, str(ROOT / "bench"))
    import imputation_table

    return imputation_table, imputation_table.by_place(bench("imputation.json")["records"])


def imputation_ratios() -> str:
    """The error of the defaults over that of the best rival, by table and kind of hole."""
    judge_of, runs = imputed()
    return ratios_to_rivals(judge_of.TABLES, judge_of.SIX, judge_of.RIVALS, judge_of, runs)


def imputation_unseen() -> str:
    """The same for tables on which nothing was chosen; rivals are simple ways."""
    judge_of, runs = imputed()
    rivals = judge_of.SIMPLE_RIVALS
    return ratios_to_rivals(judge_of.UNSEEN, judge_of.UNSEEN_HOLES, rivals, judge_of, runs)


def ratios_to_rivals(tables: Any, scenarios: Any, rivals: Any, judge_of: Any, runs: Any) -> str:
    rows = []
    for name in tables:
        row = [name]
        for scenario in scenarios:
            one = judge_of.beside(runs[name, scenario], "noisewise-auto", rivals)
            told = "" if one is None else f"{one.ratio:.2f} ({one.rival.split('-', 1)[1]})"
            row.append(f"**{told}**" if one is not None and one.ratio > 1.05 else told)
        rows.append(row)
    return table(["table", *scenarios], rows)


def imputation_promises() -> str:
    """What was promised of filled tables, and whether it was kept."""
    judge_of, runs = imputed()
    rows = []
    for one in judge_of.promises(runs, "noisewise-auto"):
        bound = f"{'at least' if one.at_least else 'at most'} {one.bound:g}"
        rows.append([one.figure, f"{one.value:.4g}", bound, "kept" if one.kept else "**missed**"])
    return table(["figure", "measured", "promised", ""], rows)


def claims() -> str:
    """What the paper claims, what was measured, and the verdict."""
    folder = RESULTS / "reproduced"
    if not folder.exists():
        return NOTHING
    rows = [[one.claim, one.paper, one.number, f"**{one.verdict}**"] for one in judge(read_artefacts(folder))]
    return table(["the paper claims", "its number", "measured here", "verdict"], rows)


def readers() -> str:
    path = ROOT / "bench" / "results" / "readers.json"
    if not path.exists():
        return NOTHING
    rows = []
    for row in json.loads(path.read_text())["measurements"]:
        files = {"netflix": "combined_data_1.txt to _4.txt"}.get(row["layout"], row["layout"])
        what = f"read `{files}`" if row["task"] == "read" else f"an epoch of DMF on `{files}`"
        size = f"{row['bytes_a_rating']:.1f}" if row["task"] == "read" else ""
        rows.append(
            [
                what,
                f"{row['ratings'] / 1e6:.1f} M",
                f"{row['seconds']:.1f} s",
                f"{row['above_mb']:.0f} MB",
                size,
                f"{row['whole']['ratings'] / 1e6:.1f} M",
                f"{row['whole']['seconds']:.0f} s",
                f"{row['whole']['above_mb'] / 1000:.1f} GB",
            ]
        )
    head = ["", "ratings", "time", "above", "bytes a rating in the end", "whole: ratings", "time", "above"]
    return table(head, rows)


BLOCKS = {
    f.__name__: f
    for f in (
        results, paired, time, search, deviation_ranks, variants, speed, promises,
        bayes, bayes_paired, bayes_peers, bayes_speed, bayes_promises, bayes_small, known_tables, known_random, newcomers, sensor_cells, sensor_blocks, sensor_paired,
        sensor_coverage, glance, sensor_gain, sensor_noise, tensor_promises, flagship_promises,
        rivals, rivals_rounds, rivals_search, regression, readers, claims,
        imputation_ratios, imputation_unseen, imputation_promises,
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
