"""The most memory that the command itself has, while a cluster reads and fits ratings.

    python bench/cluster_memory.py --out bench/results/cluster-memory.json [--ratings 20000000]

Ratings with text for ids are written as a folder of Parquet, and fitted by ``noisewise fit
--cluster local --workers 2``: a process of its own, whose peak of resident memory is noted. DMF is
written to one file, the Bayesian model to a folder, with the draws as shards of the workers; for
it, the private memory of the lead and of the workers is looked at every two seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from cluster_nodes import about
from data import ratings, sized

SETTINGS: dict[str, dict[str, Any]] = {
    "dmf": {"epochs": 2, "patience": None},
    "bayes": {"rank": 32, "sweeps": 36, "burn_in": 4, "samples": 32, "tolerance": None},
}
# VmHWM is of this program alone; the peak of getrusage is also that of who started it.
COMMAND = (
    "import pathlib; from noisewise.cli import main\n"
    "try: main()\n"
    "finally: print(pathlib.Path('/proc/self/status').read_text())"
)
TITLES = {"ray::Lead": "lead", "ray::Host": "workers"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ratings", type=int, default=20_000_000)
    parser.add_argument("--only", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    chosen = parser.parse_args()
    shape = sized(chosen.ratings)
    found: dict[str, Any] = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder, "ratings"), chosen.ratings)
        for name in chosen.only:
            known = {"ratings": chosen.ratings, "users": shape.users, "items": shape.items}
            fitted = by_command(name, Path(folder))
            found[name] = known | {"settings": SETTINGS[name]} | fitted | {"machine": about()}
            chosen.out.write_text(json.dumps(found, indent=1) + "\n")
            print(name, json.dumps(found[name]), flush=True)


def written(folder: Path, n: int) -> None:
    """Write ratings with text for ids as a folder of Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    drawn = ratings(sized(n), seed=1)
    folder.mkdir()
    for k, rows in enumerate(np.array_split(np.arange(n), 20)):
        users, items = drawn.cells[rows].T
        table = pa.table({
            "user": pa.array([f"user-{u:012d}" for u in users.tolist()]),
            "item": pa.array([f"item-{i:012d}" for i in items.tolist()]),
            "rating": drawn.values[rows],
        })  # fmt: skip
        parquet.write_table(table, folder / f"part-{k:03d}.parquet")


def by_command(name: str, folder: Path) -> dict[str, Any]:
    """Fit ratings by the command line; return the most memory it had, and what others have."""
    out = folder / name
    if name == "bayes":
        out.mkdir()
    command = ["fit", str(folder / "ratings"), "--out", str(out), "--model", name, "--cluster",
               "local", "--workers", "2"]  # fmt: skip
    command += [f"--set={key}={value}" for key, value in SETTINGS[name].items()]
    ended, seen = threading.Event(), dict[str, list[int]]()
    watcher = threading.Thread(target=watch, args=(ended, seen))
    watcher.start()
    started = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", COMMAND, *command], capture_output=True, text=True)
    seconds = time.perf_counter() - started
    ended.set()
    watcher.join()
    peaks = [line for line in run.stdout.splitlines() if line.startswith("VmHWM")]
    if run.returncode or not peaks:
        raise SystemExit(f"The command failed: {run.stdout}{run.stderr}")
    files = [out] if out.is_file() else sorted(out.iterdir())
    return {
        "peak_mb": int(peaks[0].split()[1]) / 1024, "seconds": seconds,
        "files_mb": {file.name: file.stat().st_size / 1e6 for file in files},
        "private_mb_every_two_seconds": seen,
    }  # fmt: skip


def watch(ended: threading.Event, seen: dict[str, list[int]]) -> None:
    """Note the private memory of the lead and of all workers together, again and again."""
    import ray  # which brings psutil along

    del ray
    import psutil

    while not ended.wait(2.0):
        now = dict.fromkeys(TITLES.values(), 0)
        for process in psutil.Process().children(recursive=True):
            try:
                title = " ".join(process.cmdline())
                status = Path(f"/proc/{process.pid}/status").read_text()
            except (psutil.Error, OSError):
                continue
            for start, name in TITLES.items():
                if title.startswith(start):
                    lines = [one for one in status.splitlines() if one.startswith("RssAnon")]
                    now[name] += sum(int(line.split()[1]) for line in lines) // 1024
        for name, private in now.items():
            seen.setdefault(name, []).append(private)


if __name__ == "__main__":
    main()
