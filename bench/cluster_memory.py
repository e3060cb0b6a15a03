"""The most memory that the command itself has, while a cluster reads and fits ratings.

    python bench/cluster_memory.py --out bench/results/cluster-memory.json [--ratings 20000000]

Ratings with text for ids are written as a folder of Parquet, and fitted by ``noisewise fit
--cluster local --workers 2``: a process of its own, whose peak of resident memory is noted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from cluster_nodes import about
from data import ratings, sized


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ratings", type=int, default=20_000_000)
    chosen = parser.parse_args()
    found = {"machine": about()} | by_command(chosen.ratings)
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def by_command(n: int) -> dict[str, Any]:
    """Fit ratings with text for ids by the command line; return the most memory it had."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    shape = sized(n)
    drawn = ratings(shape, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        for k, rows in enumerate(np.array_split(np.arange(n), 20)):
            users, items = drawn.cells[rows].T
            table = pa.table({
                "user": pa.array([f"user-{u:012d}" for u in users.tolist()]),
                "item": pa.array([f"item-{i:012d}" for i in items.tolist()]),
                "rating": drawn.values[rows],
            })  # fmt: skip
            parquet.write_table(table, f"{folder}/part-{k:03d}.parquet")
        del drawn
        out = f"{folder}/model.nw"
        command = ["fit", folder, "--out", out, "--model", "dmf", "--cluster", "local"]
        command += ["--workers", "2", "--set", "epochs=2", "--set", "patience=None"]
        # VmHWM is of this program alone; the peak of getrusage is also that of who started it.
        code = (
            "import pathlib; from noisewise.cli import main\n"
            "try: main()\n"
            "finally: print(pathlib.Path('/proc/self/status').read_text())"
        )
        started = time.perf_counter()
        run = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
        peaks = [line for line in run.stdout.splitlines() if line.startswith("VmHWM")]
        if run.returncode or not peaks:
            raise SystemExit(f"The command failed: {run.stdout}{run.stderr}")
        return {"ratings": n, "users": shape.users, "items": shape.items,
                "peak_mb": int(peaks[0].split()[1]) / 1024, "model_mb": os.path.getsize(out) / 1e6,
                "seconds": time.perf_counter() - started}  # fmt: skip


if __name__ == "__main__":
    main()
