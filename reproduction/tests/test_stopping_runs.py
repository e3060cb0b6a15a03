"""Ctrl-C ends a reproduction: runs that are finished are kept, processes end with it."""

import json
import os
import time
from functools import partial

import pytest
from noisewise_reproduction.runs.run import Run
from test_reproduce import write_ratings
from test_stopping import COMMAND, done, stopped, windows

REPRODUCE = COMMAND.replace("len(seen) == number", "len(list(folder.glob('out/runs/*'))) == number")


@windows
def test_the_command_reproduce_keeps_finished_cells_and_goes_on(tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    write_ratings(data)
    words = ["reproduce", "curves", "--data", data, "--out", out, "--quick"]
    code, told = stopped(REPRODUCE, tmp_path, 1, *words)
    assert code == 130, told
    assert "Traceback" not in told
    assert f"finished runs are in {out}" in told
    (first,) = (out / "runs").iterdir()
    written = first.stat().st_mtime_ns
    assert not (out / "curves.json").exists()
    done(*words)
    assert len(list((out / "runs").iterdir())) > 1
    assert first.stat().st_mtime_ns == written
    assert json.loads((out / "curves.json").read_text())["left_out"] == []


PROCESSES = """
import pathlib, signal, sys
from noisewise_reproduction.runs.run import Store
from noisewise_reproduction.runs.running import measure_all
from test_stopping_runs import slow_runs

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = pathlib.Path(sys.argv[1])
    try:
        measure_all(slow_runs(folder), Store(folder / "runs"), jobs=2)
    except KeyboardInterrupt:
        sys.exit(130)
"""


def at_once(n_jobs):
    return {"value": 1}


def for_ever(folder, n_jobs):
    (folder / str(os.getpid())).touch()
    while not any((folder / "runs").glob("*.json")):  # the run that ends at once is kept first
        time.sleep(0.01)
    (folder / "ready").touch()
    time.sleep(3600)


def slow_runs(folder):
    measures = [at_once, partial(for_ever, folder), partial(for_ever, folder)]
    about = {"task": "test", "dataset": "none", "model": "none"}
    return [Run({**about, "seed": k}, {}, measure) for k, measure in enumerate(measures)]


@windows
def test_processes_of_a_run_are_ended_with_it(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    code, told = stopped(PROCESSES, folder, 0, group=True)  # as a terminal does
    assert code == 130, told
    (kept,) = (folder / "runs").iterdir()
    assert json.loads(kept.read_text())["about"]["seed"] == 0
    workers = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
    assert workers
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
