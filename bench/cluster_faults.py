"""Workers, nodes, and the command itself killed with -9 in the middle of a fit: the same bits.

    NOISEWISE_DATA=... python bench/cluster_faults.py --out bench/results/cluster-faults.json

On a Ray cluster of three nodes, processes on loopback, two workers fit DMF and the Bayesian model
to MovieLens-100K. In each of ten fits a worker is killed at a random moment between the first call
and the usual end, in every second one with a checkpoint to return to; in one more a whole node. The
command `noisewise fit --cluster`, which reads a folder of Parquet, is killed twice, and its lead
once; `--resume` goes on. Digests are of all numbers in the model, and of the curve.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cluster_nodes import about, digest, nodes

NODES, WORKERS, KILLS = 3, 2, 10
SETTINGS: dict[str, dict[str, Any]] = {
    "dmf": {"rank": 32, "epochs": 20, "patience": 5},
    "bayes": {"rank": 16, "sweeps": 40, "burn_in": 20, "tolerance": None},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=KILLS, help="of workers")
    parser.add_argument("--commands", type=int, default=2, help="how often the command is killed")
    parser.add_argument("--only", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    found: dict[str, Any] = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    found |= {"machine": about(), "nodes": NODES, "workers": WORKERS, "settings": SETTINGS}
    fits = found.setdefault("fits", {})

    def keep(name: str, fit: dict[str, Any]) -> None:
        fits[name] = fit
        found["same"] = all(all(f["same"] for f in one["faults"]) for one in fits.values())
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")

    warnings.simplefilter("ignore")  # that a short chain has not settled
    with tempfile.TemporaryDirectory() as folder, nodes(NODES) as cluster:
        seen, many = written(Path(folder)), (chosen.kills, chosen.commands)
        for name in chosen.only:
            faults(name, seen, cluster, Path(folder), rng, many, partial(keep, name))


def written(folder: Path) -> Any:
    """Write MovieLens-100K as a folder of Parquet; return it as one machine reads it."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    import noisewise as nw

    seen = nw.read(Path(os.environ["NOISEWISE_DATA"]) / "ml100k.npz")
    columns = {ids.name: ids.labels[c] for ids, c in zip(seen.ids, seen.codes, strict=True)}
    table = pa.table(columns | {"rating": seen.values})
    (folder / "ratings").mkdir()
    for k in range(4):
        parquet.write_table(table.slice(k * 25_000, 25_000), folder / f"ratings/part-{k}.parquet")
    parquet.write_table(table, folder / "all.parquet")
    return nw.read(folder / "all.parquet")


def faults(
    name: str, seen: Any, cluster: Any, folder: Path, rng: random.Random, many: tuple[int, int],
    keep: Callable[[dict[str, Any]], None],
) -> None:  # fmt: skip
    """Fit undisturbed, then with every fault; keep what came of each."""
    from noisewise import registry
    from noisewise.engine.workers import Cluster

    build = partial(registry.build, "ratings", name, SETTINGS[name], random_state=0)
    place = Cluster(cluster.address, workers=WORKERS, threads=1)
    one = digest(build().fit(seen))
    started = time.perf_counter()
    assert digest(build().fit(seen, cluster=place)) == one
    usual = time.perf_counter() - started
    rows: list[dict[str, Any]] = []

    def told() -> None:
        keep({"one_machine": one, "seconds_undisturbed": round(usual, 1), "faults": rows})
        print(name, rows[-1], flush=True)

    def trial(fault: str, kill: Callable[[Callable[[], bool]], bool], **kept: Any) -> bool:
        """Fit, and kill at a random moment; return whether that was before the end."""
        moment, ended, hits = rng.uniform(0.0, usual), threading.Event(), list[bool]()
        timer = threading.Timer(moment, lambda: hits.append(kill(ended.is_set)))
        timer.start()
        begun = time.perf_counter()
        model = build().fit(seen, cluster=place, **kept)
        seconds = time.perf_counter() - begun
        ended.set()
        timer.join()
        if hits[0]:
            rows.append({"fault": fault, "after_s": round(moment, 2), "seconds": round(seconds, 1),
                         "checkpoint": bool(kept), "same": digest(model) == one})  # fmt: skip
            told()
        return hits[0]

    for k in range(many[0]):
        kept = {"checkpoint": folder / f"{name}-{k}", "checkpoint_epochs": 5} if k % 2 else {}
        while not trial("worker", partial(kill_one, "ray::Host", rng), **kept):
            pass  # it had ended before
    while not trial("node", partial(kill_node, cluster, rng)):
        pass
    cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    for victim in ["command"] * many[1] + ["lead"] * bool(many[1]):
        row = command(name, victim, cluster, folder, usual, rng)
        rows.append(row | {"same": row.pop("digest") == one})
        told()


def kill_one(title: str, rng: random.Random, ended: Callable[[], bool]) -> bool:
    """Kill a process of this cluster, by its title; wait for one if there is none yet."""
    import psutil  # which Ray brings along

    while not ended():
        children = psutil.Process().children(recursive=True)
        found = [p for p in children if p.is_running() and " ".join(p.cmdline()).startswith(title)]
        if found:
            os.kill(rng.choice(found).pid, signal.SIGKILL)
            return True
        time.sleep(0.05)
    return False


def kill_node(cluster: Any, rng: random.Random, ended: Callable[[], bool]) -> bool:
    """Kill all processes of a node, but of the head."""
    if ended():
        return False
    cluster.remove_node(rng.choice(sorted(cluster.worker_nodes, key=id)), allow_graceful=False)
    return True


def command(
    name: str, victim: str, cluster: Any, folder: Path, usual: float, rng: random.Random
) -> dict[str, Any]:
    """Fit by the command line, kill it or its lead once there is a checkpoint, and go on."""
    import noisewise as nw

    out, kept = folder / f"{name}-{victim}.nw", folder / f"{name}-{victim}-kept"
    words = [sys.executable, "-m", "noisewise", "fit", str(folder / "ratings"), "--model", name]
    words += ["--out", str(out), "--cluster", cluster.address, "--workers", str(WORKERS)]
    for key, value in SETTINGS[name].items():
        words += ["--set", f"{key}={value}"]
    moment, begun = rng.uniform(0.0, 0.5 * usual), time.perf_counter()
    running = subprocess.Popen([*words, "--checkpoint", str(kept)], stderr=subprocess.DEVNULL)
    while not kept.exists() and running.poll() is None:
        time.sleep(0.02)
    time.sleep(moment)
    ended = running.poll() is not None
    if victim == "command":
        running.kill()
    elif not ended:
        kill_one("ray::Lead", rng, lambda: running.poll() is not None)
    running.wait()
    if victim == "command" and not ended:
        there = [p for p in (kept, kept.with_name(f"{kept.name}.refit")) if p.exists()]
        again = ["--resume", str(kept)] if kept in there else ["--checkpoint", str(kept)]
        subprocess.run([*words, *again], check=True, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - begun
    found = digest(nw.load(out))
    for path in (out, kept):
        path.unlink(missing_ok=True)
    return {"fault": victim, "after_s": round(moment, 2), "seconds": round(seconds, 1),
            "checkpoint": True, "in_the_middle": not ended, "digest": found}  # fmt: skip


if __name__ == "__main__":
    main()
