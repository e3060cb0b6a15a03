"""Time training on a GPU: ``python bench/gpu/run.py [--data ml1m.npz] [--json FILE] [--only ...]``.

All figures come from one run, with the card, its copy bandwidth and the date. Netflix's shape is
480,189 x 17,770 with 100 million ratings; D = K = 128.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import accuracy
import numpy as np
from world import SKEWED, World, make

from noisewise import DeviationFactorizer
from noisewise.data import Ids, Observations
from noisewise.engine import devices
from noisewise.engine.sgd import gpu, gpu_plan
from noisewise.engine.sgd.gpu_factors import OnGpu
from noisewise.engine.sgd.gpu_state import initial_state
from noisewise.errors import NoisewiseError
from noisewise.metrics import rmse

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
    report = machine() | {
        "card": card["name"].decode(),
        "copy_gb_per_s": round(2 * 4 * 2**29 / statistics.median(seconds) / 1e9),
        "cuda": cupy.cuda.runtime.runtimeGetVersion(),
        "bounds": BOUNDS,
    }
    report["versions"] |= {"cupy": cupy.__version__}
    print(json.dumps(report), flush=True)
    return report


def machine() -> dict[str, Any]:
    """What is true of any machine."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "versions": {name: version(name) for name in ("noisewise", "numpy", "numba")},
        "seconds": {},
    }


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
    _models.append(model)
    for name in ("top_10_codes_first_s", "top_10_codes_s"):  # the first also compiles
        started = time.perf_counter()
        codes = OnGpu(device, model.factors_).top(np.arange(world.shape[0], dtype=np.int32), 10)
        found[name] = round(time.perf_counter() - started, 2)
    gc.collect()
    started = time.perf_counter()
    lists = model.recommend_many(range(world.shape[0]), 10, exclude_seen=False)
    found["top_10_lists_s"] = round(time.perf_counter() - started, 2)
    assert [r.id for r in lists[-1]] == codes[-1].tolist()
    return found


_models: list[Any] = []  # that ``whole`` has fitted


def fold_in(_: Any, world: World, __: Any) -> dict[str, Any]:
    """Fold 20,000 new users into the model of ``whole``, and 100 of them on the CPU."""
    (model,), rng = _models, np.random.default_rng(0)
    lengths = 1 + rng.lognormal(4.5, 1.0, 20_000).astype(int).clip(max=2_000)
    ends = np.cumsum(lengths)
    others, values = (
        np.split(part[: ends[-1]], ends[:-1]) for part in (world.codes[1], world.values)
    )
    started = time.perf_counter()
    _ = model.factors_.populations
    found: dict[str, Any] = {
        "users": len(lengths), "ratings": int(ends[-1]),
        "measuring_the_population_once_s": round(time.perf_counter() - started, 2),
    }  # fmt: skip
    for name in ("gpu_first_s", "gpu_s"):  # the first also compiles
        started = time.perf_counter()
        rows = model.fold_in_many(others, values)
        found[name] = round(time.perf_counter() - started, 2)
    model.device = "cpu"
    started = time.perf_counter()
    same = model.fold_in_many(others[:100], values[:100])
    found["cpu_ms_per_user"] = round(10 * (time.perf_counter() - started), 2)
    model.device = "cuda"
    items = np.arange(1_000)
    pairs = list(zip(rows, same, strict=False))
    apart = [np.abs(a.predict(items) - b.predict(items)).max() for a, b in pairs]
    return found | {"farthest_prediction_from_the_cpu": float(f"{max(apart):.2g}")}


def memory(device: Any, world: World, _: Any) -> dict[str, Any]:
    """What is said where memory is too small; nearly all of it is taken before."""
    data = observations(world)
    settings = FULL | {"patience": None, "keep_seen": False, "random_state": 0, "verbose": False}
    found: dict[str, Any] = {}

    def fitted(where: str, seen: Observations, epochs: int) -> str:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                model = DeviationFactorizer(**settings, epochs=epochs, device=where).fit(seen)
            except NoisewiseError as error:
                return f"{type(error).__name__}: {error}"
        said = [str(one.message) for one in warned]
        return " ".join([*said, f"Fitted, {model.learning_curve_['train_rmse'][-1]:.4f}."])

    with all_but(device, 5.0):
        found["5 GB are free: ratings are streamed"] = fitted("cuda", data, 3)
    with all_but(device, 0.6):
        found["0.6 GB are free"] = fitted("cuda", data, 1)
        found["0.6 GB are free, auto"] = fitted("auto", data.take(slice(200_000)), 1)
        free, device.free_bytes = device.free_bytes, lambda: 10**12
        try:
            found["0.6 GB are free, and nobody knows"] = fitted("cuda", data, 1)
        finally:
            device.free_bytes = free
    return found


@contextmanager
def all_but(device: Any, gigabytes: float) -> Iterator[None]:
    """Take all memory but a rest, for a while."""
    device.release()
    free, _ = device.xp.cuda.runtime.memGetInfo()
    taken = device.xp.empty(int(free - 1e9 * gigabytes), dtype=np.uint8)
    try:
        yield
    finally:
        del taken
        device.release()


def triton(device: Any, world: World, _: Any) -> dict[str, Any]:
    """The same kernel of DMF in Triton, beside that in CUDA C++: one grouping, one start."""
    rival = importlib.import_module("triton_dmf")
    params = DeviationFactorizer(**FULL)._params(seed=0)
    ratings = gpu.Ratings(device, params, gpu.Options(), world.codes, world.values, world.shape)
    state = initial_state(device, params, ratings.counts)
    own, infos = state.copy(), []
    seconds = [timed(device, lambda: infos.append(ratings.epoch(own))) for _ in range(EPOCHS)]
    return {
        "triton": version("triton"),
        "cuda c++": {
            "ms_per_epoch": round(1e3 * statistics.median(seconds[2:]), 1),
            "train_rmse": round(infos[-1].train_rmse * ratings.scale, 5),
        },
    } | rival.compared(device, ratings, state, EPOCHS, timed)


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


PARTS = {
    "epochs": epochs,
    "bits": bits,
    "whole": whole,
    "movielens": accuracy.movielens,
    "skew": skew,
    "streaming": streaming,
    "cpu": cpu,
    "tensor": accuracy.tensor,
    "fold_in": fold_in,
    "triton": triton,
    "memory": memory,
}

if __name__ == "__main__":
    main()
