"""Time of ``import noisewise`` beside that of the libraries it stands on, in one run, in turns.

``python bench/imports.py`` starts fresh processes, first one statement and then the other, for
several rounds, and prints the median of each and their ratio. A process without either is started
too, and its time taken off both. ``--json FILE`` also writes them to a file.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

NEEDED = "import numpy, scipy.linalg, sklearn.base, numba"
OURS = "import noisewise"
MOST = 1.3  # times the libraries alone


def seconds(statement: str) -> float:
    """Time of a fresh process that runs a statement."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - started


def main() -> int:
    """Print medians and their ratio; the exit status says whether it is too much."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write what was measured to this file")
    asked = parser.parse_args()
    statements = ("pass", NEEDED, OURS)
    for statement in statements:
        seconds(statement)  # once to read files from the disk
    times = [[seconds(statement) for statement in statements] for _ in range(asked.rounds)]
    nothing, needed, ours = (median(column) for column in zip(*times, strict=True))
    ratio = (ours - nothing) / (needed - nothing)
    print(f"{NEEDED}: {needed - nothing:.3f} s")
    print(f"{OURS}: {ours - nothing:.3f} s")
    print(f"ratio {ratio:.2f} (at most {MOST})")
    if asked.json is not None:
        from noisewise.evaluation.records import as_json, where_and_when
        from noisewise.storage import write_bytes

        medians = {NEEDED: needed - nothing, OURS: ours - nothing}
        report = {"seconds": medians, "ratio": ratio, "at_most": MOST, "rounds": asked.rounds}
        write_bytes(asked.json, (as_json({**report, **where_and_when()}) + "\n").encode())
    return int(ratio > MOST)


if __name__ == "__main__":
    sys.exit(main())
