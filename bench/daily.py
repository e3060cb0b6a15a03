"""A day's ratings at a time: partial_fit beside a full fit of every day.

    python bench/daily.py ml1m.npz --first 220 --days 30 --out bench/results/daily.json

The model is fitted to all ratings before day ``--first`` (days are counted from the first rating).
Then every day it takes in that day's ratings by ``partial_fit``, another is fitted anew to all
ratings so far, and both predict the ratings of the next day: RMSE, coverage of 90 % intervals, and
the seconds that each took. The file is written after every day. ``--refit-every 3`` fits anew on
every third day only, and compares those.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import BayesianFactorizer, metrics, read
from noisewise.errors import UnknownIdsWarning
from noisewise.evaluation.records import where_and_when

DAY = 86_400


def scored(model: Any, test: Any) -> dict[str, float]:
    """Measure a model on ratings of the next day, and on those of known users alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownIdsWarning)
        mean, std = model.predict(test.decode(), return_std=True)
        low, high = model.predict_interval(test.decode(), coverage=0.9)
    known = model.ids_[0].lookup(test.ids[0].labels[test.codes[0]].tolist()) >= 0
    found = {
        "squared": float(np.sum((test.values - mean) ** 2)),
        "covered": float(np.sum((low <= test.values) & (test.values <= high))),
        "nll": metrics.nll(test.values, mean, std), "n": len(test), "n_known": int(known.sum()),
    }  # fmt: skip
    return found | {"squared_known": float(np.sum((test.values - mean)[known] ** 2))}


def summary(days: list[dict[str, Any]], name: str) -> dict[str, float]:
    """Put days together."""
    parts = [day[name] for day in days if name in day]
    total = {key: sum(part[key] for part in parts) for key in parts[0]}
    return {
        "days": len(parts), "ratings": total["n"], "rmse": (total["squared"] / total["n"]) ** 0.5,
        "rmse_known_users": (total["squared_known"] / max(total["n_known"], 1)) ** 0.5,
        "coverage90": total["covered"] / total["n"],
        "seconds": total["seconds"] / len(parts),
    }  # fmt: skip


def main() -> None:
    """Go from day to day."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--refit-every", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    settings = {name: json.loads(text) for name, _, text in (s.partition("=") for s in given.set)}
    seen = read(given.data, time="timestamp")
    day = np.floor((seen.time - seen.time.min()) / DAY).astype(int)

    def upto(last: int) -> tuple[Any, Any]:
        part = seen.take(day <= last)
        return part.decode(), part.values

    def fresh() -> Any:
        return BayesianFactorizer(random_state=0, verbose=False, **settings)

    warnings.filterwarnings("ignore", "Predictions have not settled")
    started = time.perf_counter()
    model = fresh().fit(*upto(given.first - 1))
    first_fit = time.perf_counter() - started
    days: list[dict[str, Any]] = []
    for number in range(given.first, given.first + given.days):
        new, test = seen.take(day == number), seen.take(day == number + 1)
        one: dict[str, Any] = {"day": number, "new": len(new), "test": len(test)}
        started = time.perf_counter()
        if len(new):
            model.partial_fit(new.decode(), new.values)
        took = time.perf_counter() - started
        if not len(test):
            continue
        one["partial"] = scored(model, test) | {"seconds": took}
        if len(new):
            one["drift"] = model.drift_._asdict()
        if (number - given.first) % given.refit_every == given.refit_every - 1:
            started = time.perf_counter()
            again = fresh().fit(*upto(number))
            took = time.perf_counter() - started
            one["refit"] = scored(again, test) | {"seconds": took}
        days.append(one)
        both = [d for d in days if "refit" in d]
        result = {"first_fit_seconds": first_fit, "settings": settings, "first": given.first}
        result["partial"] = summary(days, "partial")
        if both:
            result["on_days_of_refits"] = {n: summary(both, n) for n in ("partial", "refit")}
        result |= {"days": days, "data": given.data.name, **where_and_when()}
        given.out.write_text(json.dumps(result, indent=1) + "\n")
        told = {
            n: round((one[n]["squared"] / one[n]["n"]) ** 0.5, 4)
            for n in one
            if n in ("partial", "refit")
        }
        print(number, one["new"], told, round(one["partial"]["seconds"], 1), flush=True)


if __name__ == "__main__":
    main()
