"""The bits of one machine on 1, 2, 3 and 4 workers, each on a Ray node of its own.

    NOISEWISE_DATA=... python bench/cluster_bits.py --out bench/results/cluster-bits.json

DMF on MovieLens-1M, DTF on a tensor of sensors, and the Bayesian model on MovieLens-100K with the
defaults and with everything (time, implicit sets, levels): digests of all that the model's file
has, and of the learning curve. Nodes are processes on loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cluster_nodes import about, digest, nodes

MOST = 4
EVERYTHING = {"time": "timestamp", "implicit": True, "likelihood": "ordinal"}


def cases() -> dict[str, Any]:
    """Return for every case its data, and what makes its model."""
    import noisewise as nw

    folder = Path(os.environ["NOISEWISE_DATA"])
    ml1m, ml100k = (nw.read(folder / f"{name}.npz") for name in ("ml1m", "ml100k"))
    timed = nw.read(folder / "ml100k.npz", time="timestamp")
    tensor = z_scores(folder / "intel_lab_5days.npz")
    bayes = partial(nw.BayesianFactorizer, random_state=0)
    return {
        "DMF, MovieLens-1M": (ml1m, partial(nw.DeviationFactorizer, random_state=0)),
        "DTF, Intel Lab": (
            tensor,
            partial(nw.DeviationFactorizer, rank=16, epochs=15, patience=None, random_state=0),
        ),
        "Bayesian, defaults, MovieLens-100K": (ml100k, bayes),
        "Bayesian, everything, MovieLens-100K": (
            timed, partial(bayes, **EVERYTHING, sweeps=30, burn_in=15),
        ),
    }  # fmt: skip


def z_scores(path: Path) -> Any:
    """Return readings of locations, sensors and times, every sensor centred and scaled."""
    import noisewise as nw

    with np.load(path, allow_pickle=False) as found:
        ids = [found[name] for name in ("loc", "sensor", "time")]
        values = found["value"].astype(np.float64)
    for sensor in np.unique(ids[1]):
        own = ids[1] == sensor
        values[own] = (values[own] - values[own].mean()) / values[own].std()
    return nw.observe(np.column_stack(ids), values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="cases that have this in their name")
    chosen = parser.parse_args()
    from noisewise.engine.workers import Cluster

    found: dict[str, Any] = {"machine": about(), "cases": {}}
    if chosen.out.exists():
        found["cases"] = json.loads(chosen.out.read_text())["cases"]
    warnings.simplefilter("ignore")  # that a short chain has not settled
    with nodes(MOST) as cluster:
        for name, (seen, build) in cases().items():
            if chosen.only not in name:
                continue
            started = time.perf_counter()
            one = digest(build().fit(seen))
            row: dict[str, Any] = {
                "ratings": len(seen), "shape": list(seen.shape), "one_machine": one,
                "seconds": {"one machine": round(time.perf_counter() - started, 1)},
            }  # fmt: skip
            for many in range(1, MOST + 1):
                started = time.perf_counter()
                place = Cluster(cluster.address, workers=many, threads=1)
                row[f"{many}_workers"] = digest(build().fit(seen, cluster=place))
                row["seconds"][f"{many} workers"] = round(time.perf_counter() - started, 1)
                print(name, many, row[f"{many}_workers"] == one, flush=True)
            row["same"] = all(row[f"{many}_workers"] == one for many in range(1, MOST + 1))
            found["cases"][name] = row
            chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
