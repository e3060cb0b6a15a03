"""A cluster of several Ray nodes on this machine, of which one is lost in the middle of a fit."""

import os
import threading

import numpy as np
import pytest

import noisewise as nw
from noisewise.engine.workers import Cluster

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'noisewise[cluster]'.")

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray leaves sockets and processes to others

# On a machine that is busy, parts of Ray may take long to start.
for name in ("agent_register_timeout_ms", "health_check_timeout_ms"):
    os.environ.setdefault(f"RAY_{name}", "120000")
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")


@pytest.fixture(scope="module")
def nodes():
    """Three nodes bound to loopback; the driver is on the first, which has no workers."""
    from ray.cluster_utils import Cluster as Nodes

    common = {"object_store_memory": 100 * 2**20, "node_ip_address": "127.0.0.1"}
    started = Nodes(
        initialize_head=True, head_node_args={**common, "num_cpus": 0, "include_dashboard": False}
    )
    others = [started.add_node(**common, num_cpus=1) for _ in range(2)]
    ray.init(address=started.address, log_to_driver=False, logging_level="error")
    yield started, others
    ray.shutdown()
    started.shutdown()


def test_a_node_that_is_lost_changes_no_bit(nodes):
    started, others = nodes
    rng = np.random.default_rng(4)
    cells = rng.choice(300 * 200, 12_000, replace=False)
    table = np.column_stack(np.unravel_index(cells, (300, 200)))
    values, lost = rng.normal(size=12_000), []

    def attack(info, state):
        if info.epoch == 3 and not lost:
            lost.append(threading.Thread(target=started.remove_node, args=(others[1], False)))
            lost[0].start()

    for build in (
        lambda: nw.DeviationFactorizer(rank=8, epochs=8, patience=None, random_state=0),
        lambda: nw.BayesianFactorizer(rank=4, sweeps=12, burn_in=8, random_state=0),
    ):
        lost.clear()
        one = build().fit(table, values)
        ours = build().fit(
            table, values, cluster=Cluster("auto", workers=2, threads=1), callbacks=[attack]
        )
        lost[0].join()
        np.testing.assert_array_equal(ours.predict(table), one.predict(table))
        others[1] = started.add_node(
            num_cpus=1, object_store_memory=100 * 2**20, node_ip_address="127.0.0.1"
        )
