"""Errors of models trained on a GPU, beside those of the CPU: MovieLens-1M, and a tensor."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from world import World

from noisewise import DeviationFactorizer, read
from noisewise.data import Ids, Observations
from noisewise.metrics import rmse
from noisewise.models import on_gpu
from noisewise.models.deviation import DTF, PTF
from noisewise.splits import rating_split


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
    on_gpu.RING_MODES = len(shape)  # else the CPU would be asked
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
