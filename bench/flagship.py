"""Time models of sensors: ``python bench/flagship.py LONDON INTEL [--rounds N] [--json FILE]``.

1. Seconds that a sweep of the flagship takes on the London tensor, a fifth of whose cells trains.
2. Seconds until the fast version is fitted on the Intel tensor, by the share of cells that trains.

Both have two threads, rank 32 and are told the type of sensor. What numba compiles is rehearsed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

from noisewise_reproduction.declared import SHARES
from table import Promise

from noisewise.data import Observations
from noisewise.data.panel import named_panel
from noisewise.evaluation.records import where_and_when
from noisewise.models.residual import ResidualFactorizer
from noisewise.models.temporal import TemporalFactorizer
from noisewise.splits import share_split

LONDON, INTEL = "london-paper-size", "intel-2epoch"
SWEEPS, WARM = 60, 20  # courses have joined long before the first that counts
SWEEP_AIM, FAST_AIM = 0.4, 60.0  # seconds
SETTINGS: dict[str, Any] = {"sensor": "sensor", "random_state": 0, "n_jobs": 2}


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("london", type=Path, help="the London data, as noisewise reads it")
    parser.add_argument("intel", type=Path, help="the Intel data, as noisewise reads it")
    parser.add_argument("--rounds", type=int, default=3, help="repeats (default: 3)")
    parser.add_argument("--json", type=Path, help="file to write")
    chosen = parser.parse_args()
    if chosen.rounds < 1:
        parser.error(f"--rounds must be 1 or more; got {chosen.rounds}.")
    load_before = os.getloadavg()
    london = readings(LONDON, chosen.london, 0.2)
    intel = {share: readings(INTEL, chosen.intel, share) for share in SHARES[INTEL]}
    few = london.take(slice(0, 20_000))
    seconds_of_a_sweep(few)
    seconds_to_fit(few)
    sweeps = [seconds_of_a_sweep(london) for _ in range(chosen.rounds)]
    fits = {
        share: [seconds_to_fit(part) for _ in range(chosen.rounds)] for share, part in intel.items()
    }
    figures = [Promise("flagship, London 20 %: seconds a sweep", median(sweeps), SWEEP_AIM)]
    for share, seconds in fits.items():
        what = f"fast version, Intel {share:.0%}: seconds to fit"
        figures.append(Promise(what, median(seconds), FAST_AIM))
    for figure in figures:
        print(f"{figure.figure:48}{figure.value:8.2f}   aim <= {figure.bound:g}")
    if chosen.json is not None:
        report = where_and_when() | {
            "settings": {"rounds": chosen.rounds, "sweeps": SWEEPS, "warm": WARM, **SETTINGS},
            "load_average": {"before": load_before, "after": os.getloadavg()},
            "figures": [figure._asdict() | {"kept": figure.kept} for figure in figures],
            "measurements": {"sweeps": sweeps, "fits": {f"{k:.0%}": v for k, v in fits.items()}},
        }
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(report, indent=1) + "\n")


def readings(name: str, path: Path, share: float) -> Observations:
    """Return all that is not test in split 0."""
    seen = named_panel(name, path).observations
    return seen.take(share_split(seen.shape, seen.codes, share, 0).fit)


def seconds_of_a_sweep(seen: Observations) -> float:
    """Return the median over the sweeps that count."""
    model = TemporalFactorizer(32, sweeps=SWEEPS, tolerance=None, **SETTINGS).fit(seen)
    return median(model.learning_curve_["seconds"][WARM:])


def seconds_to_fit(seen: Observations) -> float:
    """Return what a user waits for, held-out cells and the second training included."""
    started = time.perf_counter()
    ResidualFactorizer(**SETTINGS).fit(seen)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
