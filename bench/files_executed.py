"""Which files of the library a rating, and a reading, pass through from a CSV file to an interval.

``python bench/files_executed.py`` prints, for each way, how many files of ``src/noisewise`` ran and
which, in the order in which they were first entered. A way is run twice in a process of its own:
once to import, to compile and to fill caches, and once watched. What counts is a file of which a
function or a method is called while it is watched, in any thread:

- a function in Python, seen by the interpreter's profiler; the top level of a module and the body
  of a class do not count;
- a compiled function that is called from Python: its dispatcher is wrapped where modules name it.
  What compiled functions call among themselves is inlined, and cannot be seen.

``--source DIR`` measures another tree.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
LIMITS = {"ratings": 24, "readings": 32}


def ratings(folder: Path) -> Path:
    """Write ratings by users of items."""
    path = folder / "ratings.csv"
    lines = (f"u{k % 23},i{k * 7 % 17},{1 + (k * k) % 5}" for k in range(23 * 17))
    path.write_text("\n".join(["user,item,rating", *dict.fromkeys(lines)]) + "\n")
    return path


def readings(folder: Path) -> Path:
    """Write a wide table of three sensors by hour, with holes."""
    path = folder / "readings.csv"
    rows = ["time,a,b,c"]
    for hour in range(60):
        stamp = f"2024-01-{1 + hour // 24:02d} {hour % 24:02d}:00"
        cells = (str((hour * (k + 3)) % 11 + k) if (hour + k) % 5 else "" for k in range(3))
        rows.append(",".join([stamp, *cells]))
    path.write_text("\n".join(rows) + "\n")
    return path


def rating_way(model: str, **settings: Any) -> Callable[[Path], None]:
    """Return the way of a rating: read, fit, predict an interval."""

    def way(folder: Path) -> None:
        import noisewise

        seen = noisewise.read(folder / "ratings.csv")
        fitted = getattr(noisewise, model)(random_state=0, **settings).fit(seen)
        fitted.predict_interval([["u1", "i2"], ["u3", "nobody"]])

    return way


def reading_way(**settings: Any) -> Callable[[Path], None]:
    """Return the way of a reading: read a file with gaps, fit, fill it, predict an interval."""

    def way(folder: Path) -> None:
        import noisewise
        from noisewise.data.gapped import read_gapped

        gapped = read_gapped(folder / "readings.csv")
        imputer = noisewise.DeviationImputer(random_state=0, **settings, **gapped.options)
        imputer.fit(gapped.table).transform(gapped.table, return_std=True)
        cell = [ids.labels[0] for ids in imputer.model_.ids_]
        imputer.model_.predict_interval([cell])

    return way


WAYS = {
    "ratings: DeviationFactorizer": (ratings, rating_way("DeviationFactorizer", rank=2)),
    "ratings: BayesianFactorizer": (
        ratings,
        rating_way("BayesianFactorizer", rank=2, sweeps=6, burn_in=2),
    ),
    "readings: fast": (readings, reading_way(method="fast")),
    "readings: bayes": (
        readings,
        reading_way(method="bayes", settings={"rank": 2, "sweeps": 6, "burn_in": 2}),
    ),
    "readings: auto": (readings, reading_way()),  # which compares four models
}


class Watch:
    """Files below a folder of which a function is called, in the order of their first call."""

    def __init__(self, source: Path) -> None:
        self.root = str(source / "noisewise") + os.sep
        self.files: dict[str, None] = {}

    def __enter__(self) -> "Watch":
        self._wrap_compiled()
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            self.note(frame.f_code.co_filename)

    def note(self, file: str) -> None:
        """Take note of a file, if it is one of the library."""
        if file.startswith(self.root):
            self.files.setdefault(file.removeprefix(self.root))

    def _wrap_compiled(self) -> None:
        from numba.core.dispatcher import Dispatcher

        for name, module in list(sys.modules.items()):
            if name.split(".")[0] == "noisewise":
                for own, value in list(vars(module).items()):
                    if isinstance(value, Dispatcher):
                        setattr(module, own, self._noted(value))

    def _noted(self, compiled: Any) -> Callable[..., Any]:
        @wraps(compiled.py_func)
        def call(*args: Any, **named: Any) -> Any:
            self.note(compiled.py_func.__code__.co_filename)
            return compiled(*args, **named)

        return call


def watched(name: str, source: Path) -> list[str]:
    """Run a way twice in this process, and return the files of the second time."""
    write, way = WAYS[name]
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        way(Path(folder))
        with Watch(source) as watch:
            way(Path(folder))
    return list(watch.files)


def executed(name: str, source: Path) -> list[str]:
    """Return the files of a way, from a process of its own."""
    command = [sys.executable, __file__, "--source", str(source), "--way", name]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    files: list[str] = json.loads(done.stdout)
    return files


def counts(source: Path) -> dict[str, int]:
    """Return how many files every way passes."""
    return {name: len(executed(name, source)) for name in WAYS}


def main() -> int:
    """Print the files of every way; the exit status says whether one has too many."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=SOURCE, help="the folder that has noisewise")
    parser.add_argument("--way", choices=WAYS, help="one way alone, as JSON, in this process")
    asked = parser.parse_args()
    source = asked.source.resolve()
    if asked.way:
        print(json.dumps(watched(asked.way, source)))
        return 0
    too_many = False
    for name in WAYS:
        files, limit = executed(name, source), LIMITS[name.split(":")[0]]
        too_many |= len(files) > limit
        print(f"{name}: {len(files)} files (at most {limit})")
        print("".join(f"  {file}\n" for file in files))
    return int(too_many)


if __name__ == "__main__":
    sys.exit(main())
