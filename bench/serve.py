"""A served model under load: how fast it answers, reloads in the middle, and the memory of workers.

    python bench/serve.py ml1m.npz --models /tmp/models --json bench/results/serve.json

Models are fitted once and kept in ``--models``: of each two versions, which reloads go to and fro
between. Requests go to 127.0.0.1 alone, ``--requests`` of them, ``--at-once`` at a time, half of
them lists of ten for one user, half predictions of one cell. Whoever asks runs on the same cores as
who answers. An answer is right if it is what the version that it names says in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import BayesianFactorizer, DeviationFactorizer, load, read
from noisewise.evaluation.records import where_and_when

LONGEST = 1500.0  # seconds that one run of requests may take
MOST_OFF = 1e-5


def fitted(ratings: Path, folder: Path, only: str | None = None) -> dict[str, list[Path]]:
    """Return files of two versions of each model: the second has taken in new ratings."""
    made: dict[str, Any] = {
        "dmf": DeviationFactorizer(random_state=0),
        # As many draws as by default, of a short chain: only speed is measured.
        "bayes": BayesianFactorizer(random_state=0, sweeps=63, burn_in=20),
    }
    made = {name: model for name, model in made.items() if only in (None, name)}
    paths = {name: [folder / f"{name}{k}.nw" for k in (0, 1)] for name in made}
    for name, model in made.items():
        first, second = paths[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # short chains, and values that are made up
            if not first.exists():
                print(f"Fitting {first.name}", flush=True)
                model.fit(read(ratings)).save(first)
            if not second.exists():
                newer: Any = load(first)
                users, items = (ids.labels[:500].tolist() for ids in newer.ids_)
                rows = [(user, item, 3.0) for user, item in zip(users, items, strict=True)]
                newer.partial_fit(rows).save(second)
    return paths


@contextmanager
def serving(path: Path, workers: int, *more: str) -> Any:
    """Serve a file; yield the process and its port."""
    command = [sys.executable, "-m", "noisewise", "serve", str(path), "--port", "0", "--workers"]
    process = subprocess.Popen(
        [*command, str(workers), "--log", "warning", *more],
        stderr=subprocess.PIPE, text=True, env=os.environ | {"NUMBA_NUM_THREADS": "1"},
    )  # fmt: skip
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "Ctrl-C ends it" in line:
            break
    else:
        raise SystemExit("".join(lines))
    try:
        yield process, int(re.search(r":(\d+);", line)[1])
    finally:
        process.terminate()
        process.wait(60)
        process.stderr.close()


def questions(path: Path, many: int) -> list[tuple[str, bytes]]:
    """Return different requests, lists and predictions in turns."""
    users, items = load(path).ids_
    rng = np.random.default_rng(0)
    found = []
    for k in range(many):
        user = users.labels[rng.integers(len(users))].item()
        item = items.labels[rng.integers(len(items))].item()
        asked = {"ids": [user], "n": 10} if k % 2 == 0 else {"cells": [[user, item]]}
        found.append(("recommend" if k % 2 == 0 else "predict", json.dumps(asked).encode()))
    return found


def numbers(kind: str, answer: dict[str, Any]) -> list[Any]:
    """Return what an answer says, to be compared."""
    if kind == "predict":
        return [*answer["mean"], *answer["std"]]
    return [value for item in answer["lists"][0]["items"] for value in (item["mean"], item["std"])]


def truth(paths: list[Path], asked: list[tuple[str, bytes]]) -> dict[str, list[list[float]]]:
    """Return what each version says to every question, by the first digits of its SHA-256."""
    import hashlib

    found = {}
    for path in paths:
        model: Any = load(path)
        model.n_jobs = 1
        said = []
        for kind, body in asked:
            given = json.loads(body)
            if kind == "predict":
                mean, std = model.predict([tuple(given["cells"][0])], return_std=True)
                said.append([float(mean[0]), float(std[0])])
            else:
                best = model.recommend(given["ids"][0], 10)
                said.append([value for row in best for value in (row.mean, row.std)])
        found[hashlib.sha256(path.read_bytes()).hexdigest()[:16]] = said
    return found


class Load:
    """Requests, some at a time, and what came of them."""

    def __init__(self, port: int, asked: list[tuple[str, bytes]], right: dict[str, Any]) -> None:
        self.port, self.asked, self.right = port, asked, right
        self.took: dict[str, list[float]] = {"recommend": [], "predict": []}
        self.inside: dict[str, list[float]] = {"recommend": [], "predict": []}
        self.failed, self.mixed, self.versions = 0, 0, Counter[str]()
        self.sent, self.most = 0, 0

    async def run(self, most: int, at_once: int) -> float:
        """Send requests; return the seconds they took."""
        self.most = most
        started = time.perf_counter()
        async with asyncio.timeout(LONGEST):
            await asyncio.gather(*(self._client() for _ in range(at_once)))
        return time.perf_counter() - started

    async def _client(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while self.sent < self.most:
            number = self.sent % len(self.asked)
            self.sent += 1
            kind, body = self.asked[number]
            head = (
                f"POST /v1/{kind} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            started = time.perf_counter()
            writer.write(head.encode() + body)
            try:
                top = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                size = int(re.search(r"content-length: (\d+)", top)[1])
                answer = json.loads(await reader.readexactly(size))
            except (asyncio.IncompleteReadError, ConnectionError):
                self.failed += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                continue
            self.took[kind].append(time.perf_counter() - started)
            if not top.startswith("http/1.1 200"):
                self.failed += 1
                continue
            self.inside[kind].append(float(re.search(r"model;dur=([\d.]+)", top)[1]) / 1000)
            self._check(number, kind, answer)
        writer.close()

    def _check(self, number: int, kind: str, answer: dict[str, Any]) -> None:
        self.versions[answer["model"]] += 1
        want = self.right.get(answer["model"])
        got = numbers(kind, answer)
        if (
            want is None
            or len(got) != len(want[number])
            or not np.allclose(got, want[number], atol=MOST_OFF)
        ):
            self.mixed += 1

    def report(self, seconds: float) -> dict[str, Any]:
        """Put a run together."""
        found: dict[str, Any] = {
            "requests": self.sent, "failed": self.failed, "not_of_one_version": self.mixed,
            "seconds": seconds, "requests_per_second": self.sent / seconds,
        }  # fmt: skip
        for kind, took in self.took.items():
            inside = self.inside[kind]
            found[kind] = {
                "median_ms": 1000 * float(np.median(took)),
                "p99_ms": 1000 * float(np.quantile(took, 0.99)),
                "model_median_ms": 1000 * float(np.median(inside)),
                "share_in_model": sum(inside) / sum(took),
            }
        return found


async def reloads(port: int, path: Path, versions: list[Path], many: int, workers: int) -> int:
    """Change the file many times; each waits until all workers have seen the one before."""
    done = 0
    for k in range(many):
        beside = path.with_suffix(".beside")
        beside.write_bytes(versions[(k + 1) % 2].read_bytes())
        os.replace(beside, path)
        for _ in range(600):
            await asyncio.sleep(0.1)
            done = await counted(port)
            if done >= workers * (k + 1):
                break
    return done


async def counted(port: int) -> int:
    """Return how many reloads workers have done."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    found = re.search(r'noisewise_reloads_total\{outcome="done"\} ([\d.]+)', text)
    return int(float(found[1])) if found else 0


async def under_reloads(
    load_: Load, asked: Any, port: int, path: Path, versions: list[Path], workers: int
) -> dict[str, Any]:
    """Send requests until all are sent, and all reloads are done."""
    changes = asyncio.create_task(reloads(port, path, versions, asked.reloads, workers))
    seconds = await load_.run(asked.requests, asked.at_once)
    while not changes.done():
        seconds += await load_.run(load_.most + 10 * asked.at_once, asked.at_once)
    return load_.report(seconds) | {
        "reloads": asked.reloads,
        "reloads_done_by_workers": await changes,
        "answers_by_version": dict(load_.versions),
    }


def proportional(process: Any) -> float:
    """Return the megabytes of a process and its children, what they share counted once (Pss)."""
    pids, found = [process.pid], 0
    for pid in pids:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pids += map(int, children)
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        found += int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1])
    return found / 1024


def memory(
    path: Path, versions: list[Path], asked: list[Any], right: Any, many: int
) -> dict[str, Any]:
    """Measure one worker and four, that have answered, and again after a reload."""
    found: dict[str, Any] = {}
    for workers in (1, 4):
        path.write_bytes(versions[0].read_bytes())
        with serving(path, workers, "--every", "0.2") as (process, port):
            own = {}
            for when in ("after_requests", "after_a_reload"):
                if when == "after_a_reload":
                    asyncio.run(reloads(port, path, versions, 1, workers))
                load_ = Load(port, asked, right)
                asyncio.run(load_.run(many, 16))
                own[when] = proportional(process)
            found[f"{workers}_workers_mb"] = own
    found["ratio"] = {
        when: found["4_workers_mb"][when] / found["1_workers_mb"][when]
        for when in found["1_workers_mb"]
    }
    return found


def under_load(
    name: str, path: Path, versions: list[Path], given: list[Any], right: Any, asked: Any
) -> dict[str, Any]:
    """Send requests, and again with reloads in the middle."""
    found: dict[str, Any] = {}
    with serving(path, asked.workers, "--every", "0.2") as (_, port):
        asyncio.run(Load(port, given, right).run(16, 8))  # to warm up
        load_ = Load(port, given, right)
        found["load"] = load_.report(asyncio.run(load_.run(asked.requests, asked.at_once)))
        print(name, json.dumps(found["load"]), flush=True)
        load_ = Load(port, given, right)
        given_to = (load_, asked, port, path, versions, asked.workers)
        found["load_with_reloads"] = asyncio.run(under_reloads(*given_to))
        print(name, json.dumps(found["load_with_reloads"]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ratings", type=Path)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--only", choices=("dmf", "bayes"))
    parser.add_argument("--requests", type=int, default=10_000, help="0 for memory alone")
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--reloads", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-requests", type=int, default=400)
    parser.add_argument("--questions", type=int, default=400, help="different requests")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    asked.models.mkdir(exist_ok=True)
    report: dict[str, Any] = {"workers": asked.workers, "at_once": asked.at_once}
    if asked.json is not None and asked.json.exists():
        report = json.loads(asked.json.read_text())
    for name, versions in fitted(asked.ratings, asked.models, asked.only).items():
        path = asked.models / "served.nw"
        path.write_bytes(versions[0].read_bytes())
        given = questions(versions[0], asked.questions)
        right = truth(versions, given)
        found: dict[str, Any] = {"file_mb": versions[0].stat().st_size / 2**20}
        if asked.requests:
            found |= under_load(name, path, versions, given, right, asked)
        found["memory"] = memory(path, versions, given, right, asked.memory_requests)
        print(name, json.dumps(found["memory"]), flush=True)
        found["load_average_of_the_machine"] = os.getloadavg()
        report[name] = report.get(name, {}) | found | where_and_when()
        if asked.json is not None:
            asked.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
