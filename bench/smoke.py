"""What must work wherever noisewise is installed; ``bench/package.py`` runs it.

``python smoke.py core`` needs the library and nothing else, ``python smoke.py cli`` also the extra
``cli``. What it prints is a line of JSON with the versions that it ran with.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np

import noisewise

COMMAND = str(Path(sysconfig.get_path("scripts")) / ("noisewise" + ".exe" * (os.name == "nt")))
RNG = np.random.default_rng(0)
TASTE, APPEAL = RNG.normal(size=40), RNG.normal(size=30)
RATINGS = [
    (f"user {i}", f"item {j}", 3.0 + TASTE[i] * APPEAL[j] + RNG.normal(0, 0.3))
    for i in range(40)
    for j in range(30)
    if RNG.random() < 0.6
]


def models(folder: Path) -> None:
    """Fit both models of ratings; ask, save and load them."""
    asked = [row[:2] for row in RATINGS[:200]]
    truth = np.array([row[2] for row in RATINGS[:200]])
    for model in (
        noisewise.DeviationFactorizer(rank=4, random_state=0),
        noisewise.BayesianFactorizer(rank=4, sweeps=60, burn_in=20, random_state=0),
    ):
        model.fit(RATINGS)
        mean, std = model.predict(asked, return_std=True)
        low, high = model.predict_interval(asked, coverage=0.9)
        assert np.corrcoef(mean, truth)[0, 1] > 0.7
        assert (std > 0).all()
        assert ((low <= mean) & (mean <= high)).all()
        assert np.mean((low <= truth) & (truth <= high)) > 0.8
        assert len(model.recommend("user 0", n=3)) == 3
        model.save(folder / "model.nw")
        assert (noisewise.load(folder / "model.nw").predict(asked) == mean).all()


def imputer(folder: Path) -> None:
    """Fill a table with a gap, and keep what was learned."""
    day = np.sin(np.arange(240) / 24 * 2 * np.pi)[:, None]
    whole = 20 + day * np.array([1.0, 2.0, 3.0]) + RNG.normal(0, 0.1, (240, 3))
    table = whole.copy()
    table[100:124, 1] = np.nan
    made = noisewise.DeviationImputer("fast", random_state=0).fit(table)
    filled, std = made.transform(table, return_std=True)
    assert np.abs(filled - whole)[100:124, 1].mean() < 0.5
    assert ((std > 0) == np.isnan(table)).all()
    made.save(folder / "imputer.nw")
    again = noisewise.DeviationImputer.load(folder / "imputer.nw")
    assert (again.transform(table) == filled).all()


def without_extras() -> None:
    """What an extra is needed for must say which."""
    done = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "noisewise[cli]" in done.stderr, done.stderr


def command_line(folder: Path) -> None:
    """Run the command line on files."""

    def run(*words: str) -> str:
        done = subprocess.run(
            [COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("--version").strip() == noisewise.__version__
    lines = ["user,item,rating", *(f"{u},{i},{y:.2f}" for u, i, y in RATINGS)]
    (folder / "ratings.csv").write_text("\n".join(lines) + "\n")
    run("fit", "ratings.csv", "--out", "model.nw", "--model", "dmf", "--set", "rank=4")
    run("predict", "model.nw", "ratings.csv", "--out", "predicted.csv")
    assert len((folder / "predicted.csv").read_text().splitlines()) == len(lines)
    assert "item " in run("recommend", "model.nw", "user 3", "-n", "2")


def main() -> None:
    assert noisewise.__version__ == version("noisewise")
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Predictions have not settled")
        if sys.argv[1] == "core":
            models(Path(name))
            imputer(Path(name))
            without_extras()
        else:
            command_line(Path(name))
    parts = ("noisewise", "numpy", "scipy", "numba", "scikit-learn")
    print(json.dumps({"python": sys.version.split()[0]} | {part: version(part) for part in parts}))


if __name__ == "__main__":
    main()
