"""Time training on a GPU: ``python bench/gpu/run.py [--data ml1m.npz] [--json FILE] [--only ...]``.

All figures come from one run, with the card, its copy bandwidth and the date. Netflix's shape is
480,189 x 17,770 with 100 million ratings; D = K = 128.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from world import SKEWED, World, make

from noisewise import DeviationFactorizer, read
from noisewise.data import Ids, Observations
from noisewise.engine import devices
from noisewise.engine.sgd import gpu, gpu_plan
from noisewise.engine.sgd.gpu_factors import OnGpu
from noisewise.engine.sgd.gpu_state import initial_state
from noisewise.metrics import rmse
from noisewise.models.deviation import DTF, PTF
from noisewise.splits import rating_split

EPOCHS = 8  # of a training whose error is told
FULL = {"rank": 128, "deviation_rank": 128, "warmup": 0}
VARIANTS: dict[str, dict[str, Any]] = {
    "dmf coordinate": FULL,
    "dmf row": FULL | {"adagrad": "row"},
    "biased mf coordinate": FULL | {"deviation_rank": 0},
}
WAYS = {
    "racing": gpu.Options(),
    "half": gpu.Options("half"),
    "deterministic": gpu.Options(deterministic=True),
}
BOUNDS = {  # seconds, or a ratio
    "dmf coordinate": 0.090,
    "dmf row": 0.072,
    "biased mf coordinate": 0.060,
    "deterministic": 2.0,
    "whole fit": 5.0,
    "top 10 for all users": 5.0,
}


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="MovieLens-1M, for accuracy beside the CPU")
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--only", nargs="*", help="some of the parts", choices=list(PARTS))
    chosen = parser.parse_args()
    device = devices.chosen("cuda")
    measure(device, make(device.xp), chosen.data, chosen.json, chosen.only or list(PARTS))


def measure(
    device: Any, world: World, data: Path | None, out: Path | None, names: list[str]
) -> None:
    """Measure some parts; the file is written after each."""
    report = header(device)
    for name in names:
        started = time.perf_counter()
        report[name] = PARTS[name](device, world, data)
        report["seconds"][name] = round(time.perf_counter() - started, 1)
        print(f"{name}: {json.dumps(report[name])}", flush=True)
        device.xp.get_default_memory_pool().free_all_blocks()
        if out is not None:
            out.write_text(json.dumps(report, indent=1) + "\n")


def header(device: Any) -> dict[str, Any]:
    cupy = device.xp
    card = cupy.cuda.runtime.getDeviceProperties(device.number)
    seconds = [_copied(device) for _ in range(5)]
    report = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "card": card["name"].decode(),
        "copy_gb_per_s": round(2 * 4 * 2**29 / statistics.median(seconds) / 1e9),
        "cuda": cupy.cuda.runtime.runtimeGetVersion(),
        "python": sys.version.split()[0],
        "versions": {"cupy": cupy.__version__}
        | {name: version(name) for name in ("noisewise", "numpy", "numba")},
        "bounds": BOUNDS,
        "seconds": {},
    }
    print(json.dumps(report), flush=True)
    return report


def _copied(device: Any) -> float:
    x, y = (device.xp.zeros(2**29, dtype=np.float32) for _ in "xy")
    return timed(device, lambda: device.xp.copyto(y, x))


def timed(device: Any, work: Any) -> float:
    device.xp.cuda.Device().synchronize()
    started = time.perf_counter()
    work()
    device.xp.cuda.Device().synchronize()
    return time.perf_counter() - started


def trained(
    device: Any, world: World, settings: dict[str, Any], options: gpu.Options, epochs: int
) -> tuple[dict[str, Any], Any]:
    """Train at the level of the engine: what it took, and the state."""
    params = DeviationFactorizer(**settings)._params(seed=0)
    found: dict[str, Any] = {}
    made = []

    def arrange() -> None:
        made.append(gpu.Ratings(device, params, options, world.codes, world.values, world.shape))

    found["grouping_s"] = round(timed(device, arrange), 3)
    (ratings,) = made
    state = initial_state(device, params, ratings.counts)
    infos: list[Any] = []
    seconds = [timed(device, lambda: infos.append(ratings.epoch(state))) for _ in range(epochs)]
    mean, _ = ratings.kernels.predict(state, tuple(map(device.on_device, world.test)))
    error = device.on_host(mean) * ratings.scale + ratings.location - world.truth
    found |= {
        "ms_per_epoch": round(1e3 * statistics.median(seconds[2:]), 1),
        "fastest_ms": round(1e3 * min(seconds), 1),
        "epochs": epochs,
        "train_rmse": round(infos[-1].train_rmse * ratings.scale, 5),
        "rmse_to_truth": round(float(np.sqrt(np.mean(error**2))), 5),
    }
    return found, state


def epochs(device: Any, world: World, _: Any) -> dict[str, Any]:
    """Milliseconds an epoch of every variant, and how near to the truth it comes."""
    found: dict[str, Any] = {}
    for name, settings in VARIANTS.items():
        for way, options in WAYS.items():
            found[f"{name}, {way}"], _ = trained(device, world, settings, options, EPOCHS)
            print(name, way, found[f"{name}, {way}"], flush=True)
    return found


def bits(device: Any, world: World, _: Any) -> dict[str, Any]:
    """Whether two deterministic trainings have the same bits."""
    states = [trained(device, world, FULL, WAYS["deterministic"], 3)[1] for _ in range(2)]
    first, second = (state.rows for state in states)
    return {"same": all(bool((a == b).all()) for a, b in zip(first, second, strict=True))}


def skew(device: Any, _: World, __: Any) -> dict[str, Any]:
    """The same where one item has 3.8 % of all ratings."""
    world = make(device.xp, top=SKEWED)
    ways = ("racing", "deterministic")
    return {way: trained(device, world, FULL, WAYS[way], EPOCHS)[0] for way in ways}


def streaming(device: Any, world: World, _: Any) -> dict[str, Any]:
    """Ratings in pieces, as if the card had not the memory for them."""
    params = DeviationFactorizer(**FULL)._params(seed=0)
    rows = int(gpu.COPIES * 4 * params.layout.width * sum(world.shape))
    free = device.free_bytes
    device.free_bytes = lambda: rows + 30_000_000 * gpu_plan.SORTING_BYTES
    try:
        found = trained(device, world, FULL, WAYS["racing"], EPOCHS)[0]
    finally:
        device.free_bytes = free
    return found


def observations(world: World) -> Observations:
    names = ("user", "item")
    ids = tuple(Ids(np.arange(n), name) for n, name in zip(world.shape, names, strict=True))
    return Observations(world.codes, world.values, ids)


def whole(device: Any, world: World, _: Any) -> dict[str, Any]:
    """From ratings in memory to a finished DMF of 20 epochs; then top 10 for everybody."""
    data = observations(world)
    settings = FULL | {"patience": None, "keep_seen": False, "random_state": 0, "verbose": False}
    found: dict[str, Any] = {"fit_s": []}
    for _ in range(2):  # the first also compiles
        model = DeviationFactorizer(**settings, epochs=20, device="cuda")
        started = time.perf_counter()
        model.fit(data)
        found["fit_s"].append(round(time.perf_counter() - started, 2))
    found["epochs_s"] = round(sum(model.learning_curve_["seconds"]), 2)
    cells = np.column_stack(world.test)
    found["rmse_to_truth"] = round(rmse(world.truth, model.predict(cells)), 5)
    started = time.perf_counter()
    codes = OnGpu(device, model.factors_).top(np.arange(world.shape[0], dtype=np.int32), 10)
    found["top_10_codes_s"] = round(time.perf_counter() - started, 2)
    gc.collect()
    started = time.perf_counter()
    lists = model.recommend_many(range(world.shape[0]), 10, exclude_seen=False)
    found["top_10_lists_s"] = round(time.perf_counter() - started, 2)
    assert [r.id for r in lists[-1]] == codes[-1].tolist()
    return found


def cpu(_: Any, world: World, __: Any) -> dict[str, Any]:
    """The CPU engine beside it, on a tenth of the ratings."""
    settings = FULL | {"patience": None, "keep_seen": False, "random_state": 0, "verbose": False}
    everything = observations(world)
    DeviationFactorizer(**settings, epochs=1).fit(everything.take(slice(10_000)))  # compiles
    some = everything.take(slice(len(everything) // 10))
    started = time.perf_counter()
    model = DeviationFactorizer(**settings, epochs=2).fit(some)
    return {
        "threads": model._threads(),
        "ratings": len(some),
        "fit_of_2_epochs_s": round(time.perf_counter() - started, 1),
        "ms_per_epoch": round(1e3 * min(model.learning_curve_["seconds"]), 1),
    }


def movielens(device: Any, _: World, path: Path | None) -> dict[str, Any]:
    """RMSE and NLL on MovieLens-1M, five splits, beside the CPU."""
    if path is None:
        return {}
    data = read(path)
    found: dict[str, Any] = {}
    models = {"dmf": {}, "biased mf": {"deviation_rank": 0}}
    ways = {
        "cpu": {},
        "gpu": {"device": "cuda"},
        "gpu half": {"device": "cuda", "precision": "half"},
    }
    for name, settings in models.items():
        for way, chosen in ways.items():
            errors, likelihoods, seconds = [], [], []
            for seed in range(5):
                split = rating_split(len(data), seed)
                train, held = data.take(split.fit), data.take(split.test)
                model = DeviationFactorizer(
                    **settings, **chosen, random_state=seed, keep_seen=False, verbose=False
                )
                started = time.perf_counter()
                model.fit(train)
                seconds.append(time.perf_counter() - started)
                mean, std = model.predict(held, return_std=True)
                error = held.values - mean
                errors.append(float(np.sqrt(np.mean(error**2))))
                nll = 0.5 * np.log(2 * np.pi * std**2) + error**2 / (2 * std**2)
                likelihoods.append(float(np.mean(nll)))
            found[f"{name}, {way}"] = {
                "rmse": round(statistics.mean(errors), 5),
                "nll": round(statistics.mean(likelihoods), 5),
                "rmse_by_split": [round(e, 5) for e in errors],
                "nll_by_split": [round(e, 5) for e in likelihoods],
                "fit_s": round(statistics.median(seconds), 2),
            }
        for way in ("gpu", "gpu half"):
            for metric in ("rmse", "nll"):
                own, cpu = found[f"{name}, {way}"], found[f"{name}, cpu"]
                own[f"{metric}_above_cpu"] = round(own[metric] - cpu[metric], 5)
    return found


def tensor(device: Any, _: World, __: Any) -> dict[str, Any]:
    """DTF and PTF on readings of Intel's shape whose truth is known, beside the CPU."""
    shape, n, rng = (52, 14_400, 4), 1_900_000, np.random.default_rng(0)
    codes = np.unravel_index(rng.permutation(np.prod(shape))[:n], shape)
    rows = [rng.normal(size=(size, 4)) for size in shape]
    truth = np.prod([own[code] for own, code in zip(rows, codes, strict=True)], axis=0).sum(axis=1)
    noise = 0.2 + rng.random(shape[0])
    values = (truth + noise[codes[0]] * rng.normal(size=n)).astype(np.float32)
    ids = tuple(Ids(np.arange(size), f"mode{m}") for m, size in enumerate(shape))
    data = Observations(tuple(code.astype(np.int32) for code in codes), values, ids)
    test, cells = slice(0, n, 20), np.column_stack(codes)[::20]
    kept = np.setdiff1d(np.arange(n), np.arange(n)[test])
    found: dict[str, Any] = {}
    ways = {
        "cpu": {},
        "racing": {"device": "cuda"},
        "deterministic": {"device": "cuda", "deterministic": True},
    }
    for name, settings in (("dtf", DTF), ("ptf", PTF)):
        for way, chosen in ways.items():
            own = settings | chosen | {"patience": None, "epochs": 10, "random_state": 0}
            model = DeviationFactorizer(**own, verbose=False).fit(data.take(kept))
            seconds = statistics.median(model.learning_curve_["seconds"])
            found[f"{name}, {way}"] = {
                "ms_per_epoch": round(1e3 * seconds, 2),
                "rmse_to_truth": round(rmse(truth[test], model.predict(cells)), 5),
            }
    return found


PARTS = {
    "epochs": epochs,
    "bits": bits,
    "whole": whole,
    "movielens": movielens,
    "skew": skew,
    "streaming": streaming,
    "cpu": cpu,
    "tensor": tensor,
}

if __name__ == "__main__":
    main()
