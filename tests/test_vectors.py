"""Vectors inside compiled loops: wide ones and narrow ones give the same models."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from shared import make_world

from noisewise.engine.sgd import vectors, wide
from noisewise.models.deviation import DeviationFactorizer

FITS = """
import json
from noisewise.engine.sgd import vectors
from test_vectors import fits
print(json.dumps([vectors.STEP, *fits()]))
"""


def fits():
    """Mean and std that models of two and three modes predict after a few epochs."""
    world, rng = make_world(40, 30, 700), np.random.default_rng(0)
    more = rng.integers(0, 5, len(world.y))
    for modes in (2, 3):
        X = np.column_stack([world.X, more])[:, :modes]
        model = DeviationFactorizer(
            rank=20, deviation_rank=3, epochs=4, warmup=1, patience=None,
            random_state=0, n_jobs=1,
        )  # fmt: skip
        mean, std = model.fit(X, world.y).predict(X[:50], return_std=True)
        yield [mean.tolist(), std.tolist()]


def test_narrow_vectors_give_the_models_of_wide_ones():
    here, there = ("wide", "narrow") if vectors.STEP == wide.STEP else ("narrow", "wide")
    folder = os.path.dirname(__file__)
    path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "NOISEWISE_VECTORS": there, "PYTHONPATH": path}
    words = [sys.executable, "-W", "error", "-c", FITS]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    step, *fitted = json.loads(done.stdout)
    assert {here: vectors.STEP, there: step} == {"wide": 16, "narrow": 1}
    expected = np.array(list(fits()))
    assert np.ptp(expected, axis=-1).min() > 0.1
    np.testing.assert_allclose(np.array(fitted), expected, rtol=1e-3)


@pytest.mark.parametrize("error", [AttributeError("no such thing"), TypeError("other arguments")])
def test_where_wide_vectors_fail_narrow_ones_are_used_and_a_warning_says_so(error, monkeypatch):
    def fail():
        raise error

    monkeypatch.delenv("NOISEWISE_VECTORS", raising=False)
    monkeypatch.setattr(wide, "check", fail)
    with pytest.warns(RuntimeWarning, match=f"Vectors do not work with numba .*{error}"):
        assert vectors.choose() is vectors.NARROW


def test_wide_vectors_that_give_wrong_numbers_are_not_used(monkeypatch):
    monkeypatch.delenv("NOISEWISE_VECTORS", raising=False)
    monkeypatch.setattr(wide, "_run", lambda x, out, two: 0.0)
    with pytest.warns(RuntimeWarning, match="wrong numbers"):
        assert vectors.choose() is vectors.NARROW


def test_vectors_can_be_chosen_by_name(monkeypatch):
    for name, kind in (("wide", wide), ("narrow", vectors.NARROW)):
        monkeypatch.setenv("NOISEWISE_VECTORS", name)
        assert vectors.choose() is kind
    monkeypatch.setenv("NOISEWISE_VECTORS", "tall")
    with pytest.raises(ImportError, match="one of wide, narrow; got 'tall'"):
        vectors.choose()
