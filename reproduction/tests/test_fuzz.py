"""Whatever the fuzzer ever found is used or refused, and the fuzzer finds what it should."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from fuzz.harness import Limits, Target, fuzz, replay  # noqa: E402
from noisewise.errors import DataError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def test_what_was_ever_found_is_used_or_refused():
    command = [sys.executable, "-m", "fuzz.run", "--replay", "--jobs", "2"]
    paths = os.pathsep.join(map(str, (ROOT / "src", ROOT / "reproduction" / "src", ROOT)))
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def behave(path: Path) -> None:
    """Do what the first byte of a file says."""
    kind = path.read_bytes()[0]
    if kind == 1:
        raise DataError("No.")
    if kind == 2:
        raise KeyError("lost")
    if kind == 3:
        np.ones(2**28)
    if kind == 4:
        while True:
            pass
    if kind == 5:
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == 6:
        time.sleep(60)


OUTCOMES = ["ok", "refused", "foreign", "memory", "hang", "crash", "hang"]


@pytest.fixture
def limits():
    return Limits(seconds=0.2, waiting=2.0, memory=2**30)


@pytest.mark.skipif(sys.platform != "linux", reason="limits on memory are Linux's")
@pytest.mark.parametrize(("kind", "outcome"), list(enumerate(OUTCOMES)))
def test_the_fuzzer_tells_every_outcome_and_keeps_what_it_found(kind, outcome, limits, tmp_path):
    target = Target("toy", lambda rng: bytes([kind]), ".toy", behave)
    report = fuzz([target], 2, limits=limits, corpus=tmp_path, tell=lambda text: None)
    assert report.counts["toy"] == {outcome: 2}
    kept = list(tmp_path.rglob("*.toy"))
    assert report.clean == (kept == []) == (outcome in ("ok", "refused"))
    if kept:
        again = replay([target], tmp_path, limits=limits, tell=lambda text: None)
        assert again.counts["toy"] == {outcome: len(kept)}
        assert kept[0].name.startswith(outcome)


def test_the_same_seed_makes_the_same_inputs(tmp_path):
    def run(path: Path) -> None:
        raise KeyError(path.read_bytes().hex())

    target = Target("toy", lambda rng: rng.bytes(4), ".toy", run)
    first, second, other = (
        fuzz([target], 5, seed=seed, jobs=jobs, tell=lambda text: None).findings
        for seed, jobs in ((1, 1), (1, 2), (2, 1))
    )
    assert set(first.values()) == set(second.values()) != set(other.values())


def test_valid_inputs_come_first_and_must_be_fine():
    target = Target("toy", lambda rng: b"\x00", ".toy", behave, valid=[b"\x02"])
    with pytest.raises(KeyError):
        fuzz([target], 1)


def test_results_have_counts_of_every_target():
    results = json.loads((ROOT / "fuzz" / "results.json").read_text())
    names = {folder.name for folder in (ROOT / "fuzz" / "corpus").iterdir()}
    assert names <= results["targets"].keys()
    assert all(set(count) == set(OUTCOMES) for count in results["targets"].values())
