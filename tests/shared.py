"""What all tests share: a patient hypothesis, worlds whose noise is known, and real data if any.

The tests of the reproduction share it too.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from noisewise import storage
from noisewise.engine import training

settings.register_profile("untimed", deadline=None)  # a busy machine is not a failure
settings.load_profile("untimed")

# On a machine that is busy, parts of Ray may take long to start and to answer; one that refuses to
# is lost. Workers are no less important than others here, start when they are needed, and stay.
RAY = {
    "RAY_agent_register_timeout_ms": "120000", "RAY_raylet_start_wait_time_s": "120",
    "RAY_health_check_period_ms": "500", "RAY_health_check_timeout_ms": "10000",
    "RAY_health_check_failure_threshold": "8", "RAY_worker_niceness": "0",
    "RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0",
    "RAY_idle_worker_killing_time_threshold_ms": "120000",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else it listens to all networks
    "GRPC_ENABLE_FORK_SUPPORT": "0",  # else the processes for clients die at birth now and then
}  # fmt: skip


@dataclass(frozen=True)
class World:
    """Cells, their values, and the truth behind them: mean and std of every value."""

    X: np.ndarray[Any, Any]
    y: np.ndarray[Any, Any]
    mean: np.ndarray[Any, Any]
    std: np.ndarray[Any, Any]

    def part(self, index: Any) -> "World":
        return World(self.X[index], self.y[index], self.mean[index], self.std[index])

    def halves(self) -> tuple["World", "World"]:
        """Three quarters to train on, and the rest."""
        n = len(self.y) * 3 // 4
        return self.part(slice(n)), self.part(slice(n, None))


def make_world(n_users: int, n_items: int, n: int, *, seed: int = 0, rank: int = 2) -> World:
    """Draw n different cells of a matrix with a low-rank mean and noise of rank one.

    Some users, and some items, are five times as noisy as others.
    """
    rng = np.random.default_rng(seed)
    users, items = np.divmod(rng.permutation(n_users * n_items)[:n], n_items)
    U, V = rng.normal(size=(n_users, rank)), rng.normal(size=(n_items, rank))
    u, v = rng.normal(0, 0.5, n_users), rng.normal(0, 0.5, n_items)
    p, q = rng.uniform(0.3, 1.5, n_users), rng.uniform(0.3, 1.5, n_items)
    mean = 3.0 + u[users] + v[items] + 0.5 * (U[users] * V[items]).sum(axis=1)
    std = p[users] * q[items]
    return World(np.column_stack([users, items]), rng.normal(mean, std), mean, std)


def tensors_of(model: Any, folder: Path) -> storage.Tensors:
    """All that a file keeps of what a model has learned."""
    model.save(folder / "model")
    return storage.read(folder / "model", "model")[1]


def assert_same_bits(got: storage.Tensors, expected: storage.Tensors) -> None:
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(got[name], tensor, err_msg=name)


def forkserver() -> Any:
    """Start processes that have imported already what a fit needs."""
    context = multiprocessing.get_context("forkserver")
    modules = ("noisewise.models.bayesian", "noisewise.models.deviation", "pandas", "pytest")
    context.set_forkserver_preload(list(modules))
    return context


@pytest.fixture(scope="session")
def world() -> World:
    """60 % of a matrix of 200 x 150: enough to learn mean and noise from."""
    return make_world(200, 150, 18_000)


@pytest.fixture(scope="session")
def small_world() -> World:
    """A few hundred cells, for what needs an answer and not a good one."""
    return make_world(30, 20, 400, seed=1)


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[], None]]:
    """Send SIGINT to this process, in which it is what it is in an interactive one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def press_in_epoch(
    monkeypatch: pytest.MonkeyPatch, ctrl_c: Callable[[], None]
) -> Callable[[int], list[int]]:
    """Press Ctrl-C in the middle of the epoch of that number, of all that are trained."""

    def prepare(number: int) -> list[int]:
        seen: list[int] = []
        left, check = iter(range(number - 1, -1, -1)), training._check_finite

        def counted(info: Any, state: Any, advice: str) -> None:
            seen.append(info.epoch)
            if next(left, None) == 0:
                ctrl_c()
            check(info, state, advice)

        monkeypatch.setattr(training, "_check_finite", counted)
        return seen

    return prepare


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of public datasets that NOISEWISE_DATA names."""
    named = os.environ.get("NOISEWISE_DATA")
    if not named:
        pytest.skip("NOISEWISE_DATA does not name a folder with public datasets")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"NOISEWISE_DATA is {named}, which is not a folder")
    return folder


def assert_standard_normal(z: Any) -> None:
    """Check mean and covariance of many rows."""
    n, D = z.shape
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=4.5 / np.sqrt(n))
    np.testing.assert_allclose(z.T @ z / n, np.eye(D), atol=4.5 * np.sqrt(2.0 / n))


def whitened(draws: Any, mean: Any, precision: Any) -> Any:
    """Return draws of a normal distribution as standard normals."""
    return (np.asarray(draws, dtype=np.float64) - mean) @ np.linalg.cholesky(precision)
