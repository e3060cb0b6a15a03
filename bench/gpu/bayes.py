"""Time BayesianFactorizer on a GPU: ``python bench/gpu/bayes.py [--data ml1m.npz] [--json FILE]``.

All figures come from one run, with the card, its copy bandwidth and the date. Rank 64; Netflix's
shape is 480,189 x 17,770 with 100 million ratings. ``--only splits_of_cpu --seeds 0`` fits a split
on the CPU, which takes minutes and needs no GPU; ``--cpu`` names what such runs wrote.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from run import all_but, header, machine, observations, timed
from world import World, make

from noisewise import BayesianFactorizer, read
from noisewise.data import Observations
from noisewise.engine import devices
from noisewise.engine.training import one_blas_thread
from noisewise.errors import NoisewiseError
from noisewise.models.bayesian import prepare
from noisewise.splits import rating_split

RANK = 64
SWEEPS = 16  # that are timed; all steps have joined in after ten
PAPER = {"samples": 250, "tolerance": None, "unknown": 3.0}  # as the CPU was judged
EVERYTHING = {"likelihood": "ordinal", "time": "timestamp"}
BOUNDS = {  # seconds, or a difference
    "movielens defaults, a sweep": 0.020,
    "movielens everything, a sweep": 0.035,
    "netflix without implicit sets, a sweep": 0.6,
    "netflix defaults, a sweep": 1.5,
    "netflix, gigabytes": 60.0,
    "movielens defaults, 300 sweeps": 12.0,
    "rmse above the CPU": 0.0005,
    "nll above the CPU": 0.003,
    "top 10 for all users, 100 draws": 90.0,
}


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="MovieLens-1M")
    parser.add_argument(
        "--cpu", type=Path, nargs="*", default=[], help="what --only splits_of_cpu wrote"
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[*range(5)], help="of splits")
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--only", nargs="*", help="some of the parts", choices=list(PARTS))
    chosen = parser.parse_args()
    device = None if chosen.only == ["splits_of_cpu"] else devices.chosen("cuda")
    report = (machine() if device is None else header(device)) | {"bounds": BOUNDS}
    for name in chosen.only or [name for name in PARTS if name != "splits_of_cpu"]:
        started = time.perf_counter()
        report[name] = PARTS[name](device, chosen)
        report["seconds"][name] = round(time.perf_counter() - started, 1)
        print(f"{name}: {json.dumps(report[name])}", flush=True)
        if device is not None:
            device.release()
        if chosen.json is not None:
            chosen.json.write_text(json.dumps(report, indent=1) + "\n")


def swept(device: Any, data: Observations, settings: dict[str, Any]) -> dict[str, Any]:
    """Sweep, and tell what a sweep and each of its steps take, in milliseconds."""
    device.release()
    model = BayesianFactorizer(RANK, **settings)
    made = []

    def arranged() -> None:
        spec = model._spec(data.n_modes, 0)
        made.append(prepare(spec, data, None, None, model._schedule, 1, device))

    found: dict[str, Any] = {"arranged_s": round(timed(device, arranged), 2)}
    (sampler,) = made
    chain = sampler.start()
    with one_blas_thread():  # as fits have it
        seconds = [timed(device, lambda: sampler.step(chain)) for _ in range(SWEEPS)]
        steps = [steps_of(device, sampler, chain.draw) for _ in range(3)]
    found["ms_per_sweep"] = round(1e3 * statistics.median(seconds[11:]), 2)
    pool = device.xp.get_default_memory_pool()
    found["gigabytes"] = round(pool.total_bytes() / 1e9, 2)
    found["train_rmse"] = round(float(np.sqrt(float((sampler.work.residual**2).mean()))), 5)
    medians = {name: statistics.median(one[name] for one in steps) for name in steps[0]}
    return found | {"steps_ms": {name: round(1e3 * taken, 2) for name, taken in medians.items()}}


def steps_of(device: Any, sampler: Any, draw: Any) -> dict[str, float]:
    """Sweep once more, and time every step."""
    taken: dict[str, float] = {}
    for step in sampler.sweep.steps:
        name = f"{type(step).__name__} {step.mode}"
        seconds = timed(device, lambda step=step: step(draw))
        taken[name] = taken.get(name, 0.0) + seconds
    return taken


def movielens_sweeps(device: Any, chosen: Any) -> dict[str, Any]:
    """Milliseconds a sweep on MovieLens-1M, with the defaults and with everything."""
    data = read(chosen.data, time="timestamp")
    return {
        "defaults": swept(device, data, {}),
        "everything": swept(device, data, EVERYTHING),
    }


def world_of(device: Any) -> World:
    """Make Netflix's shape once."""
    if not _worlds:
        _worlds.append(make(device.xp))
        device.release()
    return _worlds[0]


_worlds: list[World] = []


def netflix_sweeps(device: Any, _: Any) -> dict[str, Any]:
    """Milliseconds a sweep of Netflix's shape, without implicit sets and with them."""
    data = observations(world_of(device))
    return {
        "without implicit sets": swept(device, data, {"implicit": False}),
        "defaults": swept(device, data, {}),
    }


def fit(device: Any, chosen: Any) -> dict[str, Any]:
    """Fits of MovieLens-1M, start to finish; and whether bits are the same.

    With the defaults, which may stop when predictions have settled; and with all 300 sweeps.
    """
    data = read(chosen.data)
    found: dict[str, Any] = {}
    for name, own in (("300 sweeps", {"tolerance": None}), ("defaults", {})):
        models, seconds = [], []
        for _ in range(2):  # the very first also compiles
            model = BayesianFactorizer(device="cuda", random_state=0, verbose=False, **own)
            started = time.perf_counter()
            models.append(model.fit(data))
            seconds.append(round(time.perf_counter() - started, 2))
        first, second = (model.factors_.draws for model in models)
        same = all(bool((first[name] == second[name]).all()) for name in first)
        found[name] = {"fit_s": seconds, "sweeps": models[-1].n_epochs_, "same_bits": same}
    _fitted.append(models[-1])
    return found


_fitted: list[Any] = []  # the model of ``fit``


def fold_in(_: Any, chosen: Any) -> dict[str, Any]:
    """Fold 1,000 new users into the model of ``fit``, and 20 of them on the CPU."""
    (model,), data = _fitted, read(chosen.data)
    users = [np.flatnonzero(data.codes[0] == user) for user in range(1_000)]
    others = [data.ids[1].labels[data.codes[1][own]] for own in users]
    values = [data.values[own] for own in users]
    found: dict[str, Any] = {"users": len(users), "draws": len(model.factors_)}
    for name in ("gpu_first_s", "gpu_s"):
        started = time.perf_counter()
        rows = model.fold_in_many(others, values)
        found[name] = round(time.perf_counter() - started, 2)
    model.device = "cpu"
    for name in ("cpu_first_s", "cpu_ms_per_user"):
        started = time.perf_counter()
        same = model.fold_in_many(others[:20], values[:20])
        found[name] = round(time.perf_counter() - started, 2)
    found["cpu_ms_per_user"] = round(50 * found["cpu_ms_per_user"], 1)
    model.device = "cuda"
    items = data.ids[1].labels[:500]
    pairs = list(zip(rows, same, strict=False))
    apart = [np.abs(a.predict(items) - b.predict(items)).max() for a, b in pairs]
    return found | {"farthest_prediction_from_the_cpu": float(f"{max(apart):.2g}")}


def memory(device: Any, _: Any) -> dict[str, Any]:
    """What is said where memory is too small; nearly all of it is taken before."""
    data, found = observations(world_of(device)), {}
    model = BayesianFactorizer(RANK, sweeps=2, burn_in=0, device="cuda", verbose=False)
    for gigabytes in (5.0, 0.5):
        with all_but(device, gigabytes):
            try:
                model.fit(data)
            except NoisewiseError as error:
                found[f"{gigabytes} GB are free"] = f"{type(error).__name__}: {error}"
    with all_but(device, 3.0):
        free, device.free_bytes = device.free_bytes, lambda: 10**12
        try:
            model.fit(data)
        except NoisewiseError as error:
            found["3 GB are free, and nobody knows"] = f"{type(error).__name__}: {error}"
        finally:
            device.free_bytes = free
    return found


def scores_by_split(chosen: Any, where: str) -> dict[str, Any]:
    """RMSE and NLL on splits of MovieLens-1M, and the seconds of fits."""
    data = read(chosen.data)
    found: dict[str, Any] = {"seeds": chosen.seeds, "rmse": [], "nll": [], "fit_s": []}
    for seed in chosen.seeds:
        split = rating_split(len(data), seed)
        model = BayesianFactorizer(device=where, random_state=seed, verbose=False, **PAPER)
        started = time.perf_counter()
        model.fit(data.take(split.fit))
        found["fit_s"].append(round(time.perf_counter() - started, 2))
        held = data.take(split.test)
        mean, std = model.predict(held, return_std=True)
        error = held.values.astype(np.float64) - mean
        nll = 0.5 * np.log(2 * np.pi * std**2) + error**2 / (2 * std**2)
        found["rmse"].append(round(float(np.sqrt(np.mean(error**2))), 5))
        found["nll"].append(round(float(np.mean(nll)), 5))
    return found


def splits(_: Any, chosen: Any) -> dict[str, Any]:
    """Five splits on the GPU, beside what the CPU came to."""
    found = scores_by_split(chosen, "cuda")
    known = [json.loads(file.read_text())["splits_of_cpu"] for file in chosen.cpu]
    for metric in ("rmse", "nll"):
        cpu = {seed: one for k in known for seed, one in zip(k["seeds"], k[metric], strict=True)}
        both = [
            (own, cpu[s]) for s, own in zip(found["seeds"], found[metric], strict=True) if s in cpu
        ]
        found[f"{metric}_of_cpu"] = [other for _, other in both]
        found[f"{metric}_above_cpu"] = [round(own - other, 5) for own, other in both]
    return found


def splits_of_cpu(_: Any, chosen: Any) -> dict[str, Any]:
    """The same splits on the CPU, whose draws are the same up to rounding."""
    return scores_by_split(chosen, "cpu")


def top(device: Any, _: Any) -> dict[str, Any]:
    """Top 10 for all users of Netflix's shape, of 100 draws: 4 of a short chain, 25 times over."""
    data = observations(world_of(device))
    model = BayesianFactorizer(
        RANK, sweeps=16, burn_in=12, samples=4, implicit=False, device="cuda", random_state=0,
        keep_seen=False, verbose=False,
    )  # fmt: skip
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few sweeps settle nothing
        model.fit(data)
    found: dict[str, Any] = {"fit_of_16_sweeps_s": round(time.perf_counter() - started, 1)}
    draws = {name: np.tile(one, (25, *[1] * (one.ndim - 1))) for name, one in drawn(model)}
    model.factors_ = replace(model.factors_, draws=draws)
    started = time.perf_counter()
    lists = model.recommend_many(range(data.shape[0]), 10, exclude_seen=False)
    found["top_10_lists_s"] = round(time.perf_counter() - started, 1)
    assert len(lists) == data.shape[0]
    return found | {"draws": len(model.factors_)}


def drawn(model: Any) -> Any:
    return model.factors_.draws.items()


def geweke(device: Any, _: Any) -> dict[str, Any]:
    """The joint-distribution tests of tests/test_geweke.py, with sweeps on the GPU."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    tests, ours = importlib.import_module("test_geweke"), importlib.import_module("test_gpu_bayes")
    tests.swept, tests.temporal.EFFECT_VARIANCE = ours.swept_on(device), 1.0
    found: dict[str, Any] = {"farthest": tests.FARTHEST}
    for name in ("noise of rank two", "implicit", "everything"):
        scores = tests.z_scores(tests.CASES[name]._replace(features=False))  # not on a GPU
        worst = max(scores, key=lambda key: abs(scores[key]))
        found[name] = {"summaries": len(scores), worst: round(scores[worst], 2)}
    return found


def agreement(_: Any, chosen: Any) -> dict[str, Any]:
    """How far means and stds of all cells are from the CPU's, as shares of the std.

    The chains have the same random numbers: draws are the same up to rounding.
    """
    data = read(chosen.data, time="timestamp").take(slice(20_000))
    found: dict[str, Any] = {}
    for name, own in (("defaults", {}), ("everything", EVERYTHING)):
        for sweeps, burn_in in ((12, 10), (400, 100)):
            both = []
            for where in ("cpu", "cuda"):
                model = BayesianFactorizer(
                    8, sweeps=sweeps, burn_in=burn_in, device=where, random_state=0, verbose=False,
                    **own,
                )  # fmt: skip
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    both.append(model.fit(data).predict(data, return_std=True))
            (mean, std), (other, other_std) = both
            found[f"{name}, {sweeps} sweeps"] = {
                "mean": float(f"{np.sqrt(np.mean(((mean - other) / std) ** 2)):.2g}"),
                "std": float(f"{np.sqrt(np.mean((other_std / std - 1) ** 2)):.2g}"),
            }
    return found


PARTS = {
    "fit": fit,
    "movielens_sweeps": movielens_sweeps,
    "netflix_sweeps": netflix_sweeps,
    "splits": splits,
    "splits_of_cpu": splits_of_cpu,
    "top": top,
    "geweke": geweke,
    "agreement": agreement,
    "fold_in": fold_in,
    "memory": memory,
}

if __name__ == "__main__":
    main()
