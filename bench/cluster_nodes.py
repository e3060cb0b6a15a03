"""A Ray cluster of several nodes on this machine, on loopback, for the benches of clusters."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

STORE = 300 * 2**20  # bytes of shared memory of a node

# On a machine that is busy, parts of Ray may take long to start and to answer; one that refuses to
# is lost. Workers are no less important than others here.
os.environ |= {
    "RAY_agent_register_timeout_ms": "120000", "RAY_raylet_start_wait_time_s": "120",
    "RAY_health_check_period_ms": "500", "RAY_health_check_timeout_ms": "10000",
    "RAY_health_check_failure_threshold": "8", "RAY_worker_niceness": "0",
}  # fmt: skip
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else Ray listens to all networks


@contextmanager
def nodes(many: int) -> Iterator[Any]:
    """Start a head without cores, and nodes of one core each; stop them in the end."""
    import ray
    from ray.cluster_utils import Cluster

    alike = {"node_ip_address": "127.0.0.1", "object_store_memory": STORE}
    head = alike | {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(many):
            cluster.add_node(num_cpus=1, **alike)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def about() -> dict[str, Any]:
    """Describe this machine and this moment."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    cpu = names[0] if names else platform.processor()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "cpu": cpu,
        "cores": os.cpu_count(), "python": platform.python_version(),
    }  # fmt: skip


def digest(model: Any) -> str:
    """Hash all numbers that a model's file has, and its learning curve but for the time."""
    from noisewise.models.model_file import pack

    _, tensors = pack(model)
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode() + np.ascontiguousarray(tensors[name]).tobytes())
    curve = {name: own for name, own in model.learning_curve_.items() if name != "seconds"}
    found.update(repr(curve).encode())
    return found.hexdigest()[:16]
