"""The racing kernel of DMF once more, in Triton: the same rows, runs and steps, to be timed.

AdaGrad per coordinate, two modes, a penalty per rating and ``beta`` of a quarter, as the defaults
have it; no warm-up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from noisewise.engine.sgd import gpu, gpu_plan
from noisewise.engine.sgd.gpu_state import GpuState, release_deviation
from noisewise.engine.sgd.layout import LINE

RESIDENT = (4, 8, 16)  # programs of one warp on each scheduler of a multiprocessor: tried in turn


@triton.jit
def race(
    rows0, rows1, codes0, codes1, values, starts, sums, runs, stride, offset, workers,
    rate, deviation_rate, l2, bias_l2, l1, delta,
    STRIDE: tl.constexpr, LINE: tl.constexpr, RANK: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    worker = tl.program_id(0)
    k = tl.arange(0, RANK)
    at_p, at_u_sums, at_p_sums = LINE + RANK, SUMS, SUMS + RANK
    squared = 0.0
    start = worker.to(tl.int64)  # so that products are of 64 bits
    for n in range(worker, runs, workers):
        run = ((start + (n - worker)) * stride + offset) % runs
        first, last = tl.load(starts + run), tl.load(starts + run + 1)
        a = rows0 + tl.load(codes0 + first).to(tl.int64) * STRIDE
        bias, bias_sum = tl.load(a), tl.load(a + 1)
        U, P = tl.load(a + LINE + k), tl.load(a + at_p + k)
        gU, gP = tl.load(a + at_u_sums + k), tl.load(a + at_p_sums + k)
        for t in range(first, last):
            b = rows1 + tl.load(codes1 + t).to(tl.int64) * STRIDE
            value = tl.load(values + t)
            other = tl.load(b, cache_modifier=".cg")
            other_sum = tl.load(b + 1, cache_modifier=".cg")
            V = tl.load(b + LINE + k, cache_modifier=".cg")
            Q = tl.load(b + at_p + k, cache_modifier=".cg")
            gV = tl.load(b + at_u_sums + k, cache_modifier=".cg")
            gQ = tl.load(b + at_p_sums + k, cache_modifier=".cg")
            variance = tl.sum(P * Q) + delta
            e = value - (bias + other + tl.sum(U * V))
            precision = 1.0 / variance
            weight = tl.sqrt(tl.sqrt(variance)) * precision
            g = weight * e
            h = weight * 0.5 * (1.0 - tl.minimum(e * e * precision, 50.0))
            squared += e * e
            slope, other_slope = bias_l2 * bias - g, bias_l2 * other - g
            bias_sum += slope * slope
            other_sum += other_slope * other_slope
            bias -= rate * slope * tl.rsqrt(bias_sum)
            other -= rate * other_slope * tl.rsqrt(other_sum)
            sU, sV = l2 * U - g * V, l2 * V - g * U
            sP, sQ = h * Q + l1, h * P + l1
            gU += sU * sU
            gV += sV * sV
            gP += sP * sP
            gQ += sQ * sQ
            U -= rate * sU * tl.rsqrt(gU)
            V -= rate * sV * tl.rsqrt(gV)
            P = tl.maximum(P - deviation_rate * sP * tl.rsqrt(gP), 0.0)
            Q = tl.maximum(Q - deviation_rate * sQ * tl.rsqrt(gQ), 0.0)
            tl.store(b, other, cache_modifier=".cg")
            tl.store(b + 1, other_sum, cache_modifier=".cg")
            tl.store(b + LINE + k, V, cache_modifier=".cg")
            tl.store(b + at_p + k, Q, cache_modifier=".cg")
            tl.store(b + at_u_sums + k, gV, cache_modifier=".cg")
            tl.store(b + at_p_sums + k, gQ, cache_modifier=".cg")
        tl.store(a, bias)
        tl.store(a + 1, bias_sum)
        tl.store(a + LINE + k, U)
        tl.store(a + at_p + k, P)
        tl.store(a + at_u_sums + k, gU)
        tl.store(a + at_p_sums + k, gP)
    tl.store(sums + worker, squared)


def epoch(ratings: gpu.Ratings, state: GpuState, workers: int) -> float:
    """Visit every observation once, as ``Ratings.epoch`` does; return the training error."""
    params, layout = ratings.params, state.layout
    if state.epoch == params.warmup:
        release_deviation(state, params)
    (order,) = ratings.pieces()
    rng = np.random.default_rng([params.seed, 2, state.epoch])
    runs = len(order.starts) - 1
    stride, offset = gpu_plan.affine(runs, rng)
    rows = [torch.as_tensor(state.rows[m]) for m in order.modes]
    codes = [torch.as_tensor(code) for code in order.codes]
    starts = torch.as_tensor(order.starts.view(np.int32))
    sums = torch.zeros(workers, dtype=torch.float32, device=rows[0].device)
    race[(workers,)](
        *rows, *codes, torch.as_tensor(order.values), starts, sums, runs, stride, offset, workers,
        params.learning_rate, params.deviation_learning_rate, params.l2, params.bias_l2,
        params.deviation_l1, params.delta,
        STRIDE=rows[0].stride(0), LINE=LINE, RANK=params.rank, SUMS=layout.sums_start,
        num_warps=1,
    )  # fmt: skip
    state.epoch += 1
    return float(torch.sqrt(sums.double().sum() / ratings.n))


def compared(device: Any, ratings: gpu.Ratings, state: GpuState, epochs: int, timed: Any) -> Any:
    """Train with every number of programs; return milliseconds an epoch and the training error."""
    found: dict[str, Any] = {}
    processors = device.xp.cuda.Device().attributes["MultiProcessorCount"]
    for each in RESIDENT:
        own, errors = state.copy(), []
        visit = lambda own=own, errors=errors, each=each: errors.append(  # noqa: E731
            epoch(ratings, own, 4 * each * processors)
        )
        seconds = [timed(device, visit) for _ in range(epochs)]
        found[f"{4 * each} warps on a multiprocessor"] = {
            "ms_per_epoch": round(1e3 * float(np.median(seconds[2:])), 1),
            "train_rmse": round(errors[-1] * ratings.scale, 5),
        }
    return found
