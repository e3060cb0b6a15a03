"""A day's ratings at a time: partial_fit beside a full fit of every day.

    python bench/daily.py ml1m.npz --first 220 --days 30 --out bench/results/daily.json

The model is fitted to all ratings before day ``--first`` (days are counted from the first rating).
Then every day it takes in that day's ratings by ``partial_fit``, another is fitted anew to all
ratings so far, and both predict the ratings of the next day: RMSE, coverage of 90 % intervals, and
the seconds that each took. The file is written after every day. ``--refit-every 3`` fits anew on
every third day only, and compares those.

The two ways can be measured apart, at the same time or on other devices, and be put together:

    python bench/daily.py ml1m.npz --first 220 --only partial --device cuda --out partial.json
    python bench/daily.py ml1m.npz --first 220 --only refit --device cuda --out refit.json
    python bench/daily.py ml1m.npz --first 220 --only refit --days 1 --out slow.json
    python bench/daily.py ml1m.npz --first 220 --join partial.json refit.json slow.json --out FILE

``--device`` is where models are fitted; ``partial_fit`` runs on the CPU whatever it is. Files that
are joined have the seconds of refits by device; those on the CPU are what ``partial_fit`` compares
to.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import BayesianFactorizer, metrics, read
from noisewise.errors import UnknownIdsWarning
from noisewise.evaluation.records import where_and_when

DAY = 86_400
WAYS = ("partial", "refit")


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
    """Go from day to day, one way or both; or put files together."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--refit-every", type=int, default=1)
    parser.add_argument("--only", choices=WAYS, help="measure one way")
    parser.add_argument("--device", default="cpu", help="where to fit")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--join", nargs="+", type=Path, help="put these files together")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", "Predictions have not settled")
    if given.join:
        parts = [json.loads(path.read_text()) for path in given.join]
        result = told(joined(parts), parts[0])
        result["refit_seconds"] = {part["device"]: part["refit_seconds"] for part in parts}
        given.out.write_text(json.dumps(result, indent=1) + "\n")
        return
    settings = {name: json.loads(text) for name, _, text in (s.partition("=") for s in given.set)}
    ways = [given.only] if given.only else list(WAYS)
    about = {"settings": settings, "first": given.first, "device": given.device}
    about |= {"data": given.data.name, **where_and_when()}
    days: list[dict[str, Any]] = []
    for one in measured(given, ways, settings):
        days.append(one)
        given.out.write_text(json.dumps(told(days, about), indent=1) + "\n")
        errors = {n: round((one[n]["squared"] / one[n]["n"]) ** 0.5, 4) for n in ways if n in one}
        seconds = {n: round(one[n]["seconds"], 1) for n in ways if n in one}
        print(one["day"], one["new"], errors, seconds, flush=True)


def measured(given: Any, ways: list[str], settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Go from day to day, and measure each."""
    seen = read(given.data, time="timestamp")
    day = np.floor((seen.time - seen.time.min()) / DAY).astype(int)

    def fitted(last: int) -> tuple[Any, float]:
        part, started = seen.take(day <= last), time.perf_counter()
        model = BayesianFactorizer(random_state=0, verbose=False, device=given.device, **settings)
        model.fit(part.decode(), part.values)
        return model.set_params(device="cpu"), time.perf_counter() - started

    if "partial" in ways:
        model, _ = fitted(given.first - 1)
    for number in range(given.first, given.first + given.days):
        new, test = seen.take(day == number), seen.take(day == number + 1)
        one: dict[str, Any] = {"day": number, "new": len(new), "test": len(test)}
        if "partial" in ways and len(new):
            started = time.perf_counter()
            model.partial_fit(new.decode(), new.values)
            one |= {"took": time.perf_counter() - started, "drift": model.drift_._asdict()}
        if not len(test):
            continue
        if "partial" in ways:
            one["partial"] = scored(model, test) | {"seconds": one.pop("took", 0.0)}
        if "refit" in ways and (number - given.first + 1) % given.refit_every == 0:
            again, took = fitted(number)
            one["refit"] = scored(again, test) | {"seconds": took}
        yield one


def told(days: list[dict[str, Any]], about: dict[str, Any]) -> dict[str, Any]:
    """Return days and what they come to."""
    result = about | {way: summary(days, way) for way in WAYS if any(way in d for d in days)}
    both = [d for d in days if all(way in d for way in WAYS)]
    if both:
        result["on_days_of_refits"] = {way: summary(both, way) for way in WAYS}
    refits = [d["refit"]["seconds"] for d in days if "refit" in d]
    return result | {"refit_seconds": sum(refits) / len(refits) if refits else None, "days": days}


def joined(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put days together; where a file repeats a way, the first counts."""
    days: dict[int, dict[str, Any]] = {}
    for part in parts:
        if any(part[key] != parts[0][key] for key in ("settings", "first", "data")):
            raise SystemExit("Files of other data or other settings cannot be joined.")
        for one in part["days"]:
            days[one["day"]] = one | days.get(one["day"], {})
    return [days[number] for number in sorted(days)]


if __name__ == "__main__":
    main()
