"""Time readers and DMF: ``python bench/readers.py [--quick] [--json FILE]``.

Ratings are synthetic, of the shape of MovieLens 10M and the Netflix Prize with fewer users, and are
written in the formats of these datasets: ``ratings.dat``, ``ratings.csv``, ``combined_data_1.txt``
to ``_4.txt``. Measured are, each in a process of its own,

1. reading: seconds (on a busy machine, look at ``cpu_seconds`` in the file), the peak of memory
   above what imports take, and bytes a rating in the end;
2. an epoch of DMF with its defaults, and the peak of memory above what imports and ratings take.

What the whole dataset would take is stated beside, for time and memory that grow in proportion to
the ratings. Movies are as many as in the whole dataset, and users in proportion.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from data import SHAPES, Ratings, Shape, ratings
from measure import _megabytes

from noisewise.evaluation.records import where_and_when

NETFLIX = Shape(480_189, 17_770, 100_480_507, 1.3, 2.0)
LAST_USER = 2_649_429
LINES = 200_000  # to write at a time
EPOCHS = 3  # timed, after one that is not
HANGS = 600  # seconds

Task = dict[str, Any]


class Dataset(NamedTuple):
    """A dataset, and the part of it that is made up here."""

    whole: Shape
    one_in: int

    @property
    def part(self) -> Shape:
        """The same with fewer users."""
        shape = self.whole
        return shape._replace(
            users=shape.users // self.one_in, ratings=shape.ratings // self.one_in
        )


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test on few ratings")
    parser.add_argument("--netflix", type=int, default=20, help="one user in so many (20)")
    parser.add_argument("--movielens", type=int, default=5, help="one user in so many (5)")
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)  # what the processes run
    chosen = parser.parse_args()
    if chosen.measure:
        task, out = chosen.measure
        Path(out).write_text(json.dumps(measured(**json.loads(task))))
        return
    if min(chosen.netflix, chosen.movielens) < 1:
        parser.error("One user in so many: the number must be 1 or more.")
    began, load_before = time.monotonic(), os.getloadavg()
    fewer = 20 if chosen.quick else 1
    movielens = Dataset(SHAPES["ml-10m"], fewer * chosen.movielens)
    netflix = Dataset(NETFLIX, fewer * chosen.netflix)
    rows = []
    with tempfile.TemporaryDirectory(prefix="noisewise-bench-") as name:
        folder = Path(name)
        for dataset, layouts in (
            (movielens, ("ratings.dat", "ratings.csv")),
            (netflix, ("netflix",)),
        ):
            drawn = ratings(dataset.part, seed=0)
            for layout in layouts:
                write(folder / layout, layout, drawn)
            del drawn
            rows += [run({"layout": layout, "task": "read"}, dataset, folder) for layout in layouts]
            rows += [run({"layout": layouts[0], "task": "train"}, dataset, folder)]
    print(as_text(rows))
    if chosen.quick:
        print(
            "\nA quick run is a smoke test: there are few ratings and these figures mean nothing."
        )
    if chosen.json is not None:
        report = where_and_when() | {
            "settings": {
                "quick": chosen.quick,
                "whole": {"ml-10m": movielens.whole._asdict(), "netflix": netflix.whole._asdict()},
                "one_user_in": {"ml-10m": movielens.one_in, "netflix": netflix.one_in},
                "epochs": EPOCHS,
            },
            "minutes": round((time.monotonic() - began) / 60, 1),
            "load_average": {"before": load_before, "after": os.getloadavg()},
            "measurements": rows,
        }
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(report, indent=1) + "\n")


def run(task: Task, dataset: Dataset, folder: Path) -> Task:
    """Measure in a process of its own, and say what the whole dataset would take."""
    out = folder / "out.json"
    arguments = task | {"folder": str(folder)}
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment |= {"NUMBA_CACHE_DIR": str(folder / "compiled"), "TQDM_DISABLE": "1"}
    command = [sys.executable, __file__, "--measure", json.dumps(arguments), str(out)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=HANGS, check=False
    )
    if done.returncode:
        raise SystemExit(f"{task} failed with status {done.returncode}:\n{done.stderr}")
    found: Task = json.loads(out.read_text())
    times = dataset.whole.ratings / found["ratings"]
    whole = {
        "ratings": dataset.whole.ratings,
        "seconds": found["seconds"] * times,
        "above_mb": found["above_mb"] * times,
    }
    print(f"{task}: {found['seconds']:.2f} s", file=sys.stderr)
    return task | found | {"whole": whole}


def measured(task: str, layout: str, folder: str) -> Task:
    """Read, and for "train" also train, once everything is imported and compiled."""
    from noisewise import DeviationFactorizer, read

    place = Path(folder) / layout
    rehearsal = Path(folder) / "rehearsal"
    if not rehearsal.exists():
        rehearsal.mkdir()
        (rehearsal / "combined_data_1.txt").write_text("1:\n1,5,2005-01-01\n2,4,2005-01-01\n")
    few = read(rehearsal)  # compiles
    before = _forget_peak()
    started, used = time.perf_counter(), time.process_time()
    seen = read(place)
    seconds, used = time.perf_counter() - started, time.process_time() - used
    n = len(seen)
    if task == "read":
        return {
            "ratings": n,
            "shape": seen.shape,
            "seconds": seconds,
            "cpu_seconds": used,
            "above_mb": _megabytes("VmHWM") - before,
            "bytes_a_rating": seen.nbytes / n,
            "resident_bytes_a_rating": (_megabytes("VmRSS") - before) * 1e6 / n,
        }
    ends: list[float] = []
    model = DeviationFactorizer(
        epochs=1 + EPOCHS, patience=None, warmup=0, keep_seen=False, random_state=0
    )
    DeviationFactorizer(epochs=1, patience=None, warmup=0, random_state=0).fit(few)  # compiles
    before = _forget_peak()
    model.fit(seen, callbacks=[lambda info, state: ends.append(time.perf_counter())])
    return {
        "ratings": n,
        "shape": seen.shape,
        "seconds": median(np.diff(ends)),
        "above_mb": _megabytes("VmHWM") - before,
        "train_rmse": model.learning_curve_["train_rmse"][-1],
    }


def _forget_peak() -> float:
    """Let the peak of memory begin anew; return what is taken now, in megabytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _megabytes("VmRSS")


def write(place: Path, layout: str, drawn: Ratings) -> None:
    """Write ratings in the format of a dataset."""
    place.mkdir()
    user, item = drawn.cells.T.astype(np.int64)
    stars = drawn.values.astype(np.int64)
    rng = np.random.default_rng(0)
    if layout == "netflix":
        order = np.argsort(item, kind="stable")
        ids = 1 + user * (LAST_USER // (int(user.max()) + 1))
        quarters = np.array_split(order, 4)
        for k in range(3):  # a movie is in one file only
            last = item[quarters[k][-1]]
            more = int(np.searchsorted(item[quarters[k + 1]], last, side="right"))
            quarters[k] = np.append(quarters[k], quarters[k + 1][:more])
            quarters[k + 1] = quarters[k + 1][more:]
        for k, rows in enumerate(quarters, 1):
            lines = netflix_lines(ids[rows], 1 + item[rows], stars[rows], rng)
            write_lines(place / f"combined_data_{k}.txt", lines)
        return
    times = rng.integers(789_652_009, 1_231_131_736, len(user))
    order = np.lexsort((item, user))
    columns = [column[order] for column in (1 + user, 1 + item, stars, times)]
    delimiter = "::" if layout == "ratings.dat" else ","
    head = [] if layout == "ratings.dat" else ["userId,movieId,rating,timestamp\n"]
    write_lines(place / layout, plain_lines(columns, delimiter), head)


def plain_lines(columns: list[npt.NDArray[np.int64]], delimiter: str) -> Iterator[str]:
    """Yield a line for every rating."""
    for start in range(0, len(columns[0]), LINES):
        parts = [map(str, column[start : start + LINES].tolist()) for column in columns]
        yield "\n".join(map(delimiter.join, zip(*parts, strict=True))) + "\n"


def netflix_lines(
    user: npt.NDArray[np.int64],
    item: npt.NDArray[np.int64],
    stars: npt.NDArray[np.int64],
    rng: np.random.Generator,
) -> Iterator[str]:
    """Yield the lines of ratings that are sorted by movie."""
    days = np.arange("1999-11-11", "2006-01-01", dtype="datetime64[D]").astype(str).tolist()
    starts = np.flatnonzero(np.diff(item, prepend=0))
    for start, stop in zip(starts, [*starts[1:], len(item)], strict=True):
        when = rng.integers(len(days), size=stop - start).tolist()
        rows = zip(user[start:stop].tolist(), stars[start:stop].tolist(), when, strict=True)
        yield f"{item[start]}:\n" + "".join(f"{u},{s},{days[d]}\n" for u, s, d in rows)


def write_lines(path: Path, lines: Iterator[str], head: list[str] | None = None) -> None:
    """Write pieces of text."""
    with path.open("w") as file:
        file.writelines(head or [])
        file.writelines(lines)


def as_text(rows: list[Task]) -> str:
    """Return the table, with the whole dataset beside."""
    lines = [
        f"{'':30}{'M ratings':>10}{'seconds':>9}{'above MB':>10}{'bytes':>7}"
        f"{'whole: M ratings':>19}{'seconds':>9}{'above MB':>10}"
    ]
    for row in rows:
        what = {"read": "read", "train": "an epoch of DMF,"}[row["task"]]
        whole, size = row["whole"], row.get("bytes_a_rating")
        lines.append(
            f"{what + ' ' + row['layout']:30}{row['ratings'] / 1e6:10.1f}{row['seconds']:9.2f}"
            f"{row['above_mb']:10.0f}{'' if size is None else f'{size:.1f}':>7}"
            f"{whole['ratings'] / 1e6:19.1f}{whole['seconds']:9.0f}{whole['above_mb']:10.0f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
