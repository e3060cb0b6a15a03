"""Fuzz every reader: ``python -m fuzz.run --n 200000``; with ``--replay``, what was ever found."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path

from fuzz import alone  # noqa: F401
from fuzz.harness import OUTCOMES, Limits, Report, Target, fuzz, replay

CORPUS = Path(__file__).parent / "corpus"
MODULES = ("models", "checkpoints", "readers", "loggers")  # each has targets() -> list[Target]


def main() -> int:
    """Run, print a table, and return 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=20_000, help="inputs, of all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="targets whose name has this in it")
    parser.add_argument("--json", type=Path, help="write counts to this file")
    parser.add_argument("--replay", action="store_true", help="run the corpus, and nothing new")
    parser.add_argument("--keep", type=Path, default=CORPUS, help="where findings are kept")
    options = parser.parse_args()
    started = time.perf_counter()
    targets = [t for t in every_target() if options.only in t.name]
    if options.replay:
        patient = Limits(seconds=60.0, waiting=300.0)  # a slow machine is not a finding
        report = replay(targets, CORPUS, jobs=options.jobs, limits=patient)
    else:
        report = fuzz(targets, options.n, seed=options.seed, jobs=options.jobs, corpus=options.keep)
    seconds = time.perf_counter() - started
    print(table(report))
    total = sum(count.total() for count in report.counts.values())
    print(f"{total:,} inputs in {seconds:.0f} s")
    if options.json is not None:
        options.json.write_text(json.dumps(summary(report, options.seed, seconds), indent=1) + "\n")
    return 0 if report.clean else 1


def every_target() -> list[Target]:
    """Collect the targets of all modules."""
    modules = [importlib.import_module(f"fuzz.{name}") for name in MODULES]
    return [target for module in modules for target in module.targets()]


def table(report: Report) -> str:
    """Lay the counts out in columns."""
    width = max((len(name) for name in report.counts), default=0)
    lines = [f"{'':{width}}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES)]
    for name, count in report.counts.items():
        lines.append(f"{name:{width}}" + "".join(f"{count[o]:>9,}" for o in OUTCOMES))
    totals = (sum(count[o] for count in report.counts.values()) for o in OUTCOMES)
    lines.append(f"{'all':{width}}" + "".join(f"{total:>9,}" for total in totals))
    return "\n".join(lines)


def summary(report: Report, seed: int, seconds: float) -> dict[str, object]:
    """Return what the file of results has."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "seed": seed,
        "seconds": round(seconds),
        "limits": Limits()._asdict(),
        "targets": {
            name: {outcome: count[outcome] for outcome in OUTCOMES}
            for name, count in report.counts.items()
        },
        "findings": [" ".join(cause) for cause in report.findings],
    }


if __name__ == "__main__":
    sys.exit(main())
