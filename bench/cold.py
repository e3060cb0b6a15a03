"""How well ids are predicted that have no ratings: ``python bench/cold.py DATA FEATURES``.

In every split a tenth of all users and a tenth of all items are held out whole, and a tenth of the
ratings that are left. A model learns from the rest, and is asked for ratings of new items by known
users, of known items by new users, of new items by new users, and for the last tenth, which is of
known users and known items. There are three systems: noisewise with its defaults without features,
the same with features, and myFM with a feature for each id and the very same features beside.

Promises: on every split, for new items and for new users, RMSE and NLL are lower with features than
without, RMSE is lower than myFM's, and 90 % intervals hold 88 to 92 %; for known ids the mean RMSE
is not higher with features.

``--join`` puts files together that were measured apart, such as one system each.

``--fold 1`` asks for one thing only: the error on that fold of FEATURES (``u1.test`` of
MovieLens-100K), with features, time and levels.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise import BayesianFactorizer, metrics, observe, read_features
from noisewise.data import Observations
from noisewise.data.features import SideTable
from noisewise.data.files import read
from noisewise.evaluation.records import where_and_when

COVERAGE, LOWEST, HIGHEST = 0.9, 0.88, 0.92
RIVAL = {"rank": 32, "iterations": 300, "burn_in": 50}  # of myFM: as many as noisewise has sweeps
FULL = {"likelihood": "ordinal", "time": "timestamp"}
FULL_AIM = 0.8735
NEW = ("new items", "new users")
COLUMNS = {"user": ("age", "gender", "occupation", "zip"), "item": ("year", "genre")}

Array = npt.NDArray[Any]


class ColdSplit(NamedTuple):
    """What is trained on, and the groups of ratings that are asked for."""

    train: Observations
    asked: dict[str, Observations]


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="ratings, an npz file")
    parser.add_argument("features", type=Path, help="features of their users and items, another")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first split; of the chain, with --fold"
    )
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER",
                        help="a setting of noisewise, other than its default")  # fmt: skip
    parser.add_argument("--device", default="cpu", help="where to fit without features")
    parser.add_argument("--join", nargs="+", type=Path, help="put these files together instead")
    parser.add_argument("--fold", type=int, help="measure this fold instead")
    parser.add_argument("--n-jobs", type=int, default=-1, help="threads (default: all cores)")
    parser.add_argument("--json", type=Path, help="file to write; what it has is kept")
    chosen = parser.parse_args()
    if chosen.join:
        _write(joined([json.loads(path.read_text()) for path in chosen.join]), chosen.json)
        return
    changed = {name: int(number) for name, number in (one.split("=") for one in chosen.set)}
    settings = {"n_jobs": chosen.n_jobs, "verbose": False, **changed}
    tables = {
        mode: {name: column for name, column in read_features(
            chosen.features, mode, ids=chosen.data).items() if name in (mode, *COLUMNS[mode])}
        for mode in COLUMNS
    }  # fmt: skip
    report = _kept(chosen.json) or {
        "data": chosen.data.stem,
        "features": {mode: list(columns) for mode, columns in COLUMNS.items()},
        "settings": {"noisewise": changed or "defaults", "myfm": RIVAL, "full": FULL},
        "splits": {},
    }
    if chosen.fold is not None:
        given = chosen.data, chosen.features, chosen.fold, tables, settings, chosen.seed
        report[f"fold {chosen.fold}"] = on_fold(*given)
        _write(report, chosen.json)
        print(json.dumps(report[f"fold {chosen.fold}"], indent=1))
        return
    observations = read(chosen.data)
    for seed in range(chosen.seed, chosen.seed + chosen.splits):
        split, found = cold_split(observations, seed), report["splits"].setdefault(str(seed), {})
        for name in chosen.systems:
            if name not in found:
                device = {"device": chosen.device} if name == "none" else {}
                found[name] = SYSTEMS[name](split, tables, settings | device, seed)
                found[name]["device"] = device.get("device", "cpu")
                report["promises"] = promises(report["splits"])
                _write(report, chosen.json)
                print(seed, name, json.dumps(found[name]), flush=True)
    print(json.dumps(report["promises"], indent=1))


def joined(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Put results of the same data together: of other splits, or of other systems."""
    first = reports[0]
    splits: dict[str, Any] = {}
    for one in reports:
        if any(one[key] != first[key] for key in ("data", "features", "settings")):
            raise SystemExit("Files of other data or other settings cannot be joined.")
        for seed, found in one["splits"].items():
            here = {name: own | {"machine": one["machine"]["cpu"]} for name, own in found.items()}
            splits.setdefault(seed, {}).update(here)
    ordered = {seed: splits[seed] for seed in sorted(splits, key=int)}
    folds = {key: own for one in reports for key, own in one.items() if key.startswith("fold")}
    return first | {"splits": ordered, "promises": promises(ordered), **folds}


def cold_split(observations: Observations, seed: int) -> ColdSplit:
    """Hold out a tenth of all users, of all items, and of the ratings that are left."""
    rng = np.random.default_rng(seed)
    held_out = []
    for codes, n in zip(observations.codes, observations.shape, strict=True):
        late = np.zeros(n, dtype=bool)
        late[rng.permutation(n)[: n // 10]] = True
        held_out.append(late[codes])
    user, item = held_out
    tenth = rng.uniform(size=len(observations)) < 0.1
    known = ~user & ~item
    groups = {
        "new items": ~user & item,
        "new users": user & ~item,
        "both new": user & item,
        "known": known & tenth,
    }
    asked = {name: observations.take(np.flatnonzero(which)) for name, which in groups.items()}
    return ColdSplit(_only_seen(observations.take(np.flatnonzero(known & ~tenth))), asked)


def _only_seen(train: Observations) -> Observations:
    """Return observations whose ids are those that they have."""
    columns = [ids.labels[c] for ids, c in zip(train.ids, train.codes, strict=True)]
    return observe(np.column_stack(columns), train.values)


def cells_of(asked: Observations) -> Array:
    """Return the ids of ratings that are asked for."""
    return np.column_stack(
        [ids.labels[codes] for ids, codes in zip(asked.ids, asked.codes, strict=True)]
    )


def ours(split: ColdSplit, settings: dict[str, Any], seed: int, **named: Any) -> dict[str, Any]:
    """Train noisewise, and measure it on every group."""
    started = time.perf_counter()
    model = BayesianFactorizer(random_state=seed, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # new ids are asked for on purpose
        model.fit(split.train, **named)
        took = time.perf_counter() - started
        found = {name: scores(model, asked) for name, asked in split.asked.items()}
    return found | {"seconds": round(took, 1), "load_average": round(os.getloadavg()[0], 1)}


def scores(model: Any, asked: Observations) -> dict[str, float]:
    """RMSE, NLL and coverage."""
    cells = cells_of(asked)
    mean, std = model.predict(cells, return_std=True)
    low, high = model.predict_interval(cells, coverage=COVERAGE)
    return {
        "n": len(asked),
        "rmse": metrics.rmse(asked.values, mean),
        "nll": metrics.nll(asked.values, mean, std),
        "coverage90": metrics.coverage(asked.values, low, high),
        "width90": metrics.width(low, high),
    }


def without(split: ColdSplit, tables: Any, settings: Any, seed: int) -> dict[str, Any]:
    """Measure noisewise without features."""
    return ours(split, settings, seed)


def with_features(split: ColdSplit, tables: Any, settings: Any, seed: int) -> dict[str, Any]:
    """Measure noisewise with features."""
    return ours(split, settings, seed, features=tables)


def myfm(split: ColdSplit, tables: Any, settings: Any, seed: int) -> dict[str, Any]:
    """Measure myFM with ids and features, each column of a table a group of its own."""
    from fm import Described
    from myfm import MyFMRegressor

    started, train = time.perf_counter(), split.train
    counts = [np.bincount(c, minlength=n) for c, n in zip(train.codes, train.shape, strict=True)]
    sides = [
        SideTable.learn(tables[mode], ids, count)
        for mode, ids, count in zip(COLUMNS, train.ids, counts, strict=True)
    ]
    described = Described(sides, train.ids)
    known = described.of(cells_of(train))
    model = MyFMRegressor(RIVAL["rank"], random_seed=seed)
    model.fit(
        None, train.values.astype(np.float64), X_rel=known.blocks, group_shapes=known.groups,
        n_iter=RIVAL["iterations"], n_kept_samples=RIVAL["iterations"] - RIVAL["burn_in"],
    )  # fmt: skip
    took = time.perf_counter() - started
    low, high = train.values.min(), train.values.max()
    found: dict[str, Any] = {}
    for name, asked in split.asked.items():
        mean = model.predict(None, X_rel=described.of(cells_of(asked)).blocks).clip(low, high)
        found[name] = {"n": len(asked), "rmse": metrics.rmse(asked.values, mean)}
    return found | {"seconds": round(took, 1), "load_average": round(os.getloadavg()[0], 1)}


SYSTEMS = {"none": without, "features": with_features, "myfm": myfm}


def promises(splits: dict[str, Any]) -> dict[str, Any]:
    """Return on how many splits each promise is kept, of those that have what it compares."""
    found: dict[str, Any] = {}
    for group in NEW:
        ours, plain, rival = ([s.get(n, {}).get(group) for s in splits.values()] for n in (
            "features", "none", "myfm"))  # fmt: skip
        for key in ("rmse", "nll"):
            found[f"{group}: {key} lower than without"] = _wins(ours, plain, key)
        found[f"{group}: rmse lower than myFM's"] = _wins(ours, rival, "rmse")
        covered = [one["coverage90"] for one in ours if one]
        held = sum(LOWEST <= share <= HIGHEST for share in covered)
        found[f"{group}: 90 % covers 88 to 92 %"] = f"{held} of {len(covered)}"
    pairs = [(s["features"]["known"], s["none"]["known"]) for s in splits.values()
             if "features" in s and "none" in s]  # fmt: skip
    for key in ("rmse", "nll"):
        apart = [a[key] - b[key] for a, b in pairs]
        found[f"known ids: mean change of {key}"] = float(np.mean(apart)) if apart else None
    return found


def _wins(ours: list[Any], theirs: list[Any], key: str) -> str:
    pairs = [(a[key], b[key]) for a, b in zip(ours, theirs, strict=True) if a and b]
    return f"{sum(a < b for a, b in pairs)} of {len(pairs)}"


def on_fold(
    data: Path, features: Path, fold: int, tables: Any, settings: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Measure the full model on one fold, with features and without."""
    observations = read(data, time="timestamp")
    test = np.load(features)["fold"] == fold
    if len(test) != len(observations):
        raise SystemExit(f"{features} has {len(test)} folds, {data} {len(observations)} ratings.")
    train, asked = (observations.take(np.flatnonzero(which)) for which in (~test, test))
    found: dict[str, Any] = {}
    for name, named in (("features and time", {"features": tables}), ("time", {})):
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = BayesianFactorizer(random_state=seed, **FULL, **settings).fit(train, **named)
            mean, std = model.predict(asked, return_std=True)
        found[name] = {
            "rmse": metrics.rmse(asked.values, mean),
            "nll": metrics.nll(asked.values, mean, std),
            "seconds": round(time.perf_counter() - started, 1),
        }
    return found | {
        "seed": seed,
        "kept": found["features and time"]["rmse"] <= FULL_AIM,
        **where_and_when(),
    }


def _kept(path: Path | None) -> dict[str, Any]:
    return json.loads(path.read_text()) if path is not None and path.exists() else {}


def _write(report: dict[str, Any], path: Path | None) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report | where_and_when(), indent=1) + "\n")


if __name__ == "__main__":
    main()
