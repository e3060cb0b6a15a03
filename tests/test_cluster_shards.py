"""Models whose draws the workers of a cluster write as shards, and clusters of ``ray://``."""

import json
import os
import pickle
import socket
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import shared

import noisewise as nw
from noisewise import storage
from noisewise.cli import app
from noisewise.engine import workers
from noisewise.engine.sharded import Pieces, Sharded
from noisewise.engine.workers import Cluster
from noisewise.errors import DataError, ModelFileError, SettingError
from noisewise.models import lists
from noisewise.models.model_file import pack

os.environ |= shared.RAY

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'noisewise[cluster]'.")

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray leaves sockets and processes to others
BAYES = partial(nw.BayesianFactorizer, rank=4, sweeps=14, burn_in=8, random_state=0)
DMF = partial(nw.DeviationFactorizer, rank=4, epochs=6, random_state=0)
KINDS = {
    "everything": {"time": 2, "likelihood": "ordinal", "rank": 6},
    "every draw": {"tolerance": None, "samples": 4, "implicit": False, "deviation": "constant"},
}


@pytest.fixture(scope="module")
def port():
    """A Ray node on this machine, bound to loopback, which is connected to; where clients can."""
    from ray.cluster_utils import Cluster as Nodes

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nodes = Nodes(initialize_head=True, head_node_args={
        "node_ip_address": "127.0.0.1", "object_store_memory": 100 * 2**20, "num_cpus": 3,
        "include_dashboard": False, "ray_client_server_port": port,
    })  # fmt: skip
    try:
        ray.init(nodes.address, log_to_driver=False, logging_level="error")
        yield port
    finally:
        ray.shutdown()
        nodes.shutdown()


def table(n=6_000, seed=0):
    rng = np.random.default_rng(seed)
    cells = rng.choice(200 * 120, n, replace=False)
    users, items = np.unravel_index(cells, (200, 120))
    return np.column_stack([users, items, rng.integers(0, 10**6, n)]), rng.integers(1, 6, n)


def fitted(settings, shards=None, workers=2):
    cells, values = table()
    where = {}
    if shards is not None:
        where = {"cluster": Cluster("local", workers=workers, threads=1, shards=shards)}
    given = cells if "time" in settings else cells[:, :2]
    return BAYES(**settings).fit(given, values, **where), given


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_in_shards_is_that_of_one_machine(port, tmp_path, kind):
    one, cells = fitted(KINDS[kind])
    ours, _ = fitted(KINDS[kind], tmp_path)
    assert isinstance(ours.factors_.draws["factors"], Sharded)
    assert len(list(tmp_path.glob("shard-*.safetensors"))) == 2
    ours.save(tmp_path)
    loaded = nw.load(tmp_path)
    asked = np.vstack([cells[:300], cells[:2] + 10**7])  # ids never seen among them
    for model in (ours, loaded, pickle.loads(pickle.dumps(ours))):
        assert isinstance(model.factors_.draws["factors"], Sharded)
        for own, theirs in zip(model.moments(asked), one.moments(asked), strict=True):
            np.testing.assert_array_equal(own, theirs)
        assert model.recommend_many([1, 2, 10**6]) == one.recommend_many([1, 2, 10**6])
        assert model.similar(3) == one.similar(3)
        assert model.row(3, mode=1) == one.row(3, mode=1)
        new = ([1, 2, 3], [5, 4, 1])
        assert model.fold_in(*new).recommend() == one.fold_in(*new).recommend()
    header, tensors = pack(one)
    loaded.save(tmp_path / "one.nw")
    again, read = storage.read(tmp_path / "one.nw", "model")
    assert again["posterior"] == json.loads(json.dumps(header["posterior"]))
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(read[name], tensor)


def test_a_model_in_shards_explains_and_goes_on_learning(port, tmp_path):
    one, cells = fitted({})
    ours, _ = fitted({}, tmp_path)
    (user, item), *_ = cells.tolist()
    assert ours.explain(user, item) == one.explain(user, item)
    for model in (ours, one):
        model.partial_fit([(1, 10**6), (2, 10**6)], [5, 4])
    assert ours.predict([(3, 10**6)]) == one.predict([(3, 10**6)])
    with pytest.raises(DataError, match="it is a folder"):
        one.save(tmp_path)


def parquet(folder):
    """Write ratings as a folder of Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    cells, values = table()
    names = {"user": [f"u{u}" for u in cells[:, 0]], "item": [f"i{i}" for i in cells[:, 1]]}
    folder.mkdir()
    whole = pa.table(names | {"rating": values})
    for k in range(2):
        parquet.write_table(whole.slice(3_000 * k, 3_000), folder / f"{k}.parquet")


SETTINGS = [
    f"--set={key}={value}" for key, value in {"rank": 4, "sweeps": 14, "burn_in": 8}.items()
]


def test_commands_write_shards_and_read_them(port, tmp_path, monkeypatch):
    parquet(tmp_path / "ratings")
    out = tmp_path / "large"
    out.mkdir()
    (out / "shard-01234567-00000.safetensors").touch()  # of a fit before
    where = ["--cluster", "local", "--workers", "2"]
    monkeypatch.chdir(tmp_path)  # which is not where workers are
    app(["fit", "ratings", "--out", "large", *where, *SETTINGS],
        standalone_mode=False)  # fmt: skip
    assert len(list(out.glob("shard-*"))) == 2
    one = BAYES().fit(nw.read(joined(tmp_path)))
    monkeypatch.setattr(lists, "ROWS_AT_ONCE", 60)
    one.recommend_all(5, out=tmp_path / "one.parquet")
    app(["recommend", str(out), "--all", "-n", "5", *where, "--out",
         str(tmp_path / "ours.parquet")], standalone_mode=False)  # fmt: skip
    both = [(tmp_path / f"{name}.parquet").read_bytes() for name in ("one", "ours")]
    assert both[0] == both[1]
    found = []
    for more in ([], [*where, "--shards", str(tmp_path)]):
        report = tmp_path / f"{len(found)}.json"
        app(["evaluate", str(joined(tmp_path)), "--model", "bayes", "--splits", "1", *SETTINGS,
             *more, "--json", str(report)], standalone_mode=False)  # fmt: skip
        found.append(json.loads(report.read_text())["splits"][0])
    timed = {"seconds": 0, "seconds_per_epoch": 0}
    assert found[0] | timed == found[1] | timed
    assert not list(tmp_path.glob("noisewise-*"))
    for words, told in [
        (["recommend", str(out), "--all", *where, "--shards", str(out)], "is for evaluate"),
        (["fit", str(tmp_path / "ratings"), "--out", str(out)], "it is a folder"),
        (["fit", str(tmp_path / "ratings"), "--out", str(out), *where, "--model", "dmf"],
         "draws of a BayesianFactorizer"),
    ]:  # fmt: skip
        with pytest.raises((DataError, SettingError), match=told):
            app(words, standalone_mode=False)


def test_shards_that_are_broken_or_of_others_are_refused(port, tmp_path):
    model, _ = fitted({"rank": 2}, tmp_path)
    with pytest.raises(ModelFileError, match=r"There is no file .*model\.nw"):
        nw.load(tmp_path)
    model.save(tmp_path)
    with pytest.raises(ModelFileError, match="name its folder"):
        nw.load(tmp_path / "model.nw")
    first, second = sorted(tmp_path.glob("shard-*"))
    good = first.read_bytes()
    for broken, told in [
        (good[:-9], "cut short or damaged"),
        (good[:-1] + bytes([good[-1] ^ 1]), "does not match its checksum"),
        (second.read_bytes(), "shard of another model"),
    ]:
        first.write_bytes(broken)
        with pytest.raises(ModelFileError, match=told):
            nw.load(tmp_path)
    header, tensors = read_shard(second)
    cut = {name: array[:, :-1] for name, array in tensors.items()}
    first.write_bytes(good)
    storage.write(second, "shard", header, cut)
    with pytest.raises(ModelFileError, match="must be float16 of shape"):
        nw.load(tmp_path)
    storage.write(second, "shard", header, tensors | {"noise.0": -tensors["noise.0"]})
    with pytest.raises(ModelFileError, match="must be above 0"):
        nw.load(tmp_path)
    head = tmp_path / "model.nw"
    header, tensors = storage.read(head, "model")
    for fit in ("../../etc", 3, None):
        forged = plain(header) | {"shards": header["shards"] | {"fit": fit}}
        storage.write(head, "model", forged, tensors)
        with pytest.raises(ModelFileError, match="makes no sense"):
            nw.load(tmp_path)
    with pytest.raises(SettingError, match="a folder that is there"):
        fitted({}, tmp_path / "nowhere")
    with pytest.raises(SettingError, match="with chains=1"):
        fitted({"chains": 2}, tmp_path)


def read_shard(path):
    header, tensors = storage.read(path, "shard")
    return plain(header), tensors


def plain(header):
    return {key: value for key, value in header.items() if key not in ("kind", "version")}


def test_chains_one_after_another_keep_their_draws(port):
    cells, values = table()
    place = Cluster("local", workers=2, threads=1)
    settings = {"chains": 2, "samples": 6}
    one = BAYES(**settings).fit(cells[:, :2], values)
    ours = BAYES(**settings).fit(cells[:, :2], values, cluster=place)
    for name, array in one.factors_.draws.items():
        np.testing.assert_array_equal(ours.factors_.draws[name], array)


def test_pieces_are_written_as_one_tensor(tmp_path):
    whole = np.arange(24, dtype=np.float16).reshape(4, 3, 2)
    pieces = Pieces(whole.dtype, whole.shape, lambda: iter(whole))
    storage.write(tmp_path / "pieces", "model", {}, {"a": pieces, "b": np.arange(3)})
    storage.write(tmp_path / "whole", "model", {}, {"a": whole, "b": np.arange(3)})
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()
    np.testing.assert_array_equal(np.asarray(pieces), whole)
    short = pieces._replace(make=lambda: iter(whole[:3]))
    with pytest.raises(ValueError, match="do not have the shape"):
        storage.write(tmp_path / "short", "model", {}, {"a": short})
    assert not (tmp_path / "short").exists()


CLIENT = """
import sys
import numpy as np
import noisewise as nw
from noisewise.engine.workers import Cluster

place, folder = Cluster(f"ray://127.0.0.1:{sys.argv[1]}", workers=2, threads=1), sys.argv[2]
settings = {"rank": 4, "random_state": 0}
bayes = nw.BayesianFactorizer(**settings, sweeps=14, burn_in=8)
dmf = nw.DeviationFactorizer(**settings, epochs=6)
bayes.fit(f"{folder}/ratings", cluster=place).save(f"{folder}/bayes.nw")
dmf.fit(nw.read(f"{folder}/all.parquet"), cluster=place).save(f"{folder}/dmf.nw")
"""


def test_a_cluster_is_worked_with_from_elsewhere(port, tmp_path):
    parquet(tmp_path / "ratings")
    seen = nw.read(joined(tmp_path))
    subprocess.run([sys.executable, "-c", CLIENT, str(port), str(tmp_path)], check=True)
    for name, build in {"bayes": BAYES, "dmf": DMF}.items():
        ours, one = nw.load(tmp_path / f"{name}.nw"), build().fit(seen)
        for own, theirs in zip(ours.moments(seen), one.moments(seen), strict=True):
            np.testing.assert_array_equal(own, theirs)


@pytest.mark.parametrize(("failures", "tries"), [(0, 1), (2, 3), (9, workers.TRIES)])
def test_a_client_that_is_not_let_in_asks_again(monkeypatch, failures, tries):
    calls = []

    def init(**_):
        calls.append(1)
        if len(calls) <= failures:
            raise ConnectionAbortedError("Starting Ray client server failed.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(workers.time, "sleep", lambda _: None)
    refused = pytest.raises(SettingError, match="lets nobody in") if failures >= tries else None
    with refused or nullcontext(), workers.connected(Cluster("ray://127.0.0.1:1")):
        pass
    assert len(calls) == tries


def joined(folder) -> Path:
    """Return all ratings of a folder as one file."""
    import pyarrow.parquet as parquet

    parquet.write_table(parquet.read_table(folder / "ratings"), folder / "all.parquet")
    return folder / "all.parquet"
