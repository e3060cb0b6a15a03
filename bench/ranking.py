"""Lists of ten, leave-last-out: the Bayesian model, simple rivals, and SVD of Surprise.

    python bench/ranking.py run ml100k.npz --folder parts --model popularity --model svd
    python bench/ranking.py table parts --out bench/results/ranking.json

`run` measures models on one dataset as ``noisewise evaluate --protocol last --top 10`` does, with
ranking by value and, where a model has it, by utility; `table` tests them in pairs, user by user.
SVD needs scikit-surprise. What counts is all that was rated, and what was rated 4 or more.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import read, registry
from noisewise.evaluation import ranking, ratings
from noisewise.evaluation.comparison import paired_test
from noisewise.evaluation.ranking import Ranking
from noisewise.evaluation.records import where_and_when
from noisewise.models.new_row import Recommendation

TOP = 10
LIKED = 4.0
RIVALS = ("popularity", "svd", "item-knn")


class SurpriseSVD:
    """SVD of Surprise with its defaults, ranked by what it predicts, without what was seen."""

    def fit(self, seen: Any) -> "SurpriseSVD":
        from surprise import SVD, Dataset, Reader

        low, high = float(seen.values.min()), float(seen.values.max())
        self.seen, self.ids = seen, seen.ids
        triples = zip(*(codes.tolist() for codes in seen.codes), seen.values.tolist(), strict=True)
        data = Dataset(Reader(rating_scale=(low, high)))
        table = data.construct_trainset([(*one, None) for one in triples])
        self.model, self.table = SVD(random_state=0).fit(table), table
        return self

    def recommend_many(self, ids: Any, n: int) -> list[list[Recommendation]]:
        items = np.array([self.table.to_raw_iid(k) for k in self.table.all_items()])
        mine: dict[int, list[int]] = {}
        for user, item in zip(*(codes.tolist() for codes in self.seen.codes), strict=True):
            mine.setdefault(user, []).append(item)
        lists = []
        for user in self.ids[0].lookup(ids).tolist():
            inner = self.table.to_inner_uid(user)
            score = self.model.bi + self.model.qi @ self.model.pu[inner]
            score[np.isin(items, mine[user])] = -np.inf
            best = items[np.argsort(-score, kind="stable")[:n]]
            labels = self.ids[1].labels[best].tolist()
            lists.append([Recommendation(label, float("nan"), float("nan")) for label in labels])
        return lists


class Once:
    """A model whose lists are made once, for all users of the test part, and then looked up."""

    def __init__(self, model: Any) -> None:
        self.model, self.known = model, {}

    def recommend_many(self, ids: Any, n: int, **how: Any) -> list[list[Recommendation]]:
        own = self.known.setdefault(tuple(how.items()), {})
        new = [one for one in ids if one not in own]
        if new:
            own.update(zip(new, self.model.recommend_many(new, n, **how), strict=True))
        return [own[one] for one in ids]


def measure(path: Path, name: str, settings: dict[str, Any], folder: Path) -> None:
    """Fit a model, and keep the NDCG of every user."""
    seen = read(path, time="timestamp")
    split = ratings.split_of(seen, 0, "last")
    train, test = seen.take(split.fit), seen.take(split.test)
    model = (
        SurpriseSVD()
        if name == "svd"
        else registry.build("ratings", name, settings, random_state=0)
    )
    started = time.perf_counter()
    model.fit(train)
    fitted = time.perf_counter() - started
    ways: list[dict[str, Any]] = [{}]
    if name in ("bayes", "dmf"):
        ways = [{"by": "value"}, {"by": "value", "risk": 1.0}, {"by": "utility"}]
    once = Once(model)
    for how in ways:
        started = time.perf_counter()
        found = {}
        for kind, least in (("all", None), ("liked", LIKED)):
            asked = Ranking(top=TOP, relevant=least, how=tuple(how.items()))
            scores, users = ranking.judged(once, train, test, asked)
            found[kind] = {"scores": scores, "ndcg": np.round(users[f"ndcg{TOP}"], 6).tolist()}
        told = "" if not how else ", ".join(f"{k}={v}" for k, v in how.items())
        label = f"{name} ({told})" if told else name
        result = {
            "data": path.stem, "model": label, "settings": settings, "fit_seconds": fitted,
            "list_seconds": time.perf_counter() - started, "found": found, **where_and_when(),
        }  # fmt: skip
        place = folder / f"{path.stem}-{label.replace(' ', '-')}.json"
        place.write_text(json.dumps(result))
        print(label, {k: round(v["scores"][f"ndcg{TOP}"], 4) for k, v in found.items()}, flush=True)


def table(folder: Path) -> dict[str, Any]:
    """Put all results of a folder together, with tests in pairs."""
    parts = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    rows, tests = [], []
    for one in parts:
        scores = {kind: found["scores"] for kind, found in one["found"].items()}
        keys = ("data", "model", "settings", "fit_seconds", "list_seconds", "machine", "date")
        rows.append({**{key: one[key] for key in keys}, **scores})
        for other in parts:
            against = other["model"] in RIVALS or other["model"].endswith("(by=value)")
            if one is other or other["data"] != one["data"] or not against:
                continue
            for kind in one["found"]:
                pair = [part["found"][kind]["ndcg"] for part in (one, other)]
                test = paired_test(*pair)._asdict()
                higher = int(np.sum(np.subtract(*pair) > 0))
                about = {"data": one["data"], "model": one["model"], "against": other["model"]}
                tests.append({**about, "relevant": kind, **test, "higher_on": higher})
    return {"top": TOP, "liked": LIKED, "protocol": "last", "results": rows, "tests": tests}


def main() -> None:
    """Measure, or put together."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("data", type=Path)
    run.add_argument("--folder", type=Path, required=True)
    run.add_argument("--model", action="append", required=True)
    run.add_argument("--set", action="append", default=[])
    put = commands.add_parser("table")
    put.add_argument("folder", type=Path)
    put.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "table":
        given.out.write_text(json.dumps(table(given.folder), indent=1) + "\n")
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    settings = {name: json.loads(text) for name, _, text in (s.partition("=") for s in given.set)}
    for name in given.model:
        measure(given.data, name, {} if name in RIVALS else settings, given.folder)


if __name__ == "__main__":
    main()
