"""Workers of a Ray cluster: how they are started, called, lost and replaced.

A worker is a process (an actor of Ray) that hosts one object, whose methods are called. Calls to
one worker are carried out in their order. What a call returns stays where it was made until another
call, or the one who asked, takes it. Ray is imported only when a cluster is asked for.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from noisewise.engine.training import one_blas_thread
from noisewise.engine.versions import check_versions, versions
from noisewise.errors import MissingExtraError, NoisewiseError, SettingError, warn

STORE_BYTES = 200 * 2**20  # of shared memory for a cluster on this machine, at least
MOST_LOSSES = 20  # one after another, without a step in between, before it is given up
SHORT, PATIENCE = 10.0, 120.0  # seconds to wait for all cores, and for any at all
LOOPBACK = "127.0.0.1"
TRIES = 4  # to be let in by a cluster that is there
MAIL = "mail"  # a thread of every worker, that takes what others send

T = TypeVar("T")
Call = tuple[Any, ...]  # what a method is given


class WorkersLost(NoisewiseError):
    """A worker, or what it had made, is no more."""


class ClusterLostError(NoisewiseError):
    """Workers were lost one after another, too often to go on."""


@dataclass(frozen=True)
class Cluster:
    """Where to run, on how many workers, and with how many threads each.

    ``address`` is "local" (this machine alone), "auto" (the cluster that this machine is part of),
    or where a cluster is: "ray://host:10001", or "host:6379". Without a number, every machine has
    one worker, and a worker has its share of the cores. ``shards`` is a folder that all machines
    reach: every worker writes the kept draws of its rows there, and the model reads them there as
    it needs them; without it, draws are brought together.

    Examples
    --------
    >>> Cluster("ray://10.0.0.7:10001", workers=8)
    Cluster(address='ray://10.0.0.7:10001', workers=8, threads=None, shards=None)
    """

    address: str = "auto"
    workers: int | None = None
    threads: int | None = None
    shards: str | os.PathLike[str] | None = None

    @classmethod
    def wanted(cls, cluster: Any, model: Any) -> Cluster | None:
        """Return where a model is to be fitted, None if here; raise if it cannot be there."""
        if cluster is None:
            return None
        if not model._on_clusters:
            name = type(model).__name__
            raise SettingError(f"cluster must be left out: a {name} is fitted on one machine.")
        place = cls.of(cluster, model)
        if place.shards is not None:
            if getattr(model, "chains", None) != 1:
                raise SettingError(
                    "shards are of the draws of a BayesianFactorizer with chains=1; leave them out."
                )
            if not os.path.isdir(place.shards):
                raise SettingError(f"shards must be a folder that is there; got {place.shards}.")
        return place

    @classmethod
    def of(cls, wanted: Any, model: Any = None) -> Cluster:
        """Return what a user wants, of a model; raise for what cannot be meant."""
        if getattr(model, "device", "cpu") != "cpu":
            raise SettingError(f"device must be 'cpu' on a cluster; got {model.device!r}.")
        cluster = cls(wanted) if isinstance(wanted, str) else wanted
        if not isinstance(cluster, Cluster):
            raise SettingError(f"cluster must be an address or a Cluster; got {wanted!r}.")
        address = cluster.address
        if address not in ("auto", "local"):
            host, colon, port = str(address).removeprefix("ray://").rpartition(":")
            if not (host and colon and port.isascii() and port.isdigit()):
                raise SettingError(
                    "cluster must be 'auto', 'local', 'ray://host:port' or 'host:port'; got "
                    f"{address!r}."
                )
        for name in ("workers", "threads"):
            number = getattr(cluster, name)
            if number is not None and not (type(number) is int and number >= 1):
                raise SettingError(f"{name} must be a whole number of at least 1; got {number!r}.")
        return cluster


def library() -> Any:
    """Return Ray, or say how to get it."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise MissingExtraError("A cluster", "cluster") from None


@contextmanager
def connected(cluster: Cluster) -> Iterator[None]:
    """Be connected to a cluster for a while; one that is there already stays as it is."""
    ray = library()
    if ray.is_initialized():
        yield
        return
    # Workers find the package where this process does, and print nothing beside its progress.
    quiet: dict[str, Any] = {
        "address": cluster.address, "log_to_driver": False, "logging_level": "error",
    }  # fmt: skip
    if cluster.address == "local":
        many = (cluster.workers or 1) * (cluster.threads or 1)
        quiet |= {
            "num_cpus": max(many, os.cpu_count() or 1), "include_dashboard": False,
            "object_store_memory": STORE_BYTES, "_node_ip_address": LOOPBACK,
        }  # fmt: skip
    try:
        with _only_loopback() if cluster.address == "local" else nullcontext():
            _knock(ray, quiet)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise SettingError(
            f"There is no cluster at {cluster.address!r}, or it lets nobody in ({error})."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(ray: Any, quiet: dict[str, Any]) -> Any:
    """Connect; again where a cluster's process for this client, forked from a thread, dies."""
    for _ in range(TRIES - 1):
        with suppress(ConnectionAbortedError):
            return ray.init(**quiet)
        time.sleep(1.0)
    return ray.init(**quiet)


@contextmanager
def _only_loopback() -> Iterator[None]:
    """Let Ray take 127.0.0.1 as it is, as on macOS, instead of listening to all networks."""
    constants, name = importlib.import_module("ray._private.ray_constants"), "ENABLE_RAY_CLUSTER"
    before, key = getattr(constants, name), constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    kept = os.environ.get(key)
    setattr(constants, name, False)
    os.environ[key] = "0"  # for the processes that it starts
    try:
        yield
    finally:
        setattr(constants, name, before)
        os.environ.pop(key)
        os.environ |= {} if kept is None else {key: kept}


class Host:
    """What a worker runs: it hosts one object at a time."""

    def __init__(self) -> None:
        self.hosted: Any = None

    def about(self, wanted: dict[str, str]) -> tuple[str, int, str]:
        """Name of the CPU, process, and machine, if it has the versions that are wanted."""
        cpu = check_versions(wanted)
        return cpu, os.getpid(), str(library().get_runtime_context().get_node_id())

    def make(self, factory: Callable[..., Any], *given: Any) -> None:
        """Make the object."""
        self.hosted = None  # first, as there may be no room for two
        with one_blas_thread():
            self.hosted = factory(*given)

    def call(self, method: str, *given: Any) -> Any:
        """Call a method of it."""
        with one_blas_thread():
            return getattr(self.hosted, method)(*given)

    def deliver(self, *given: Any) -> None:
        """Give it what another worker sent, whatever it does meanwhile."""
        self.hosted.deliver(*given)


@dataclass(frozen=True)
class Peers:
    """All workers of a team, as one of them knows them."""

    hosts: list[Any]
    machines: list[str]  # on which each is

    def first(self, worker: int) -> int:
        """Return the first worker on the machine of one."""
        return self.machines.index(self.machines[worker])

    def send(self, worker: int, *given: Any) -> None:
        """Send something to what a worker hosts; who waits for it is told when it is lost."""
        deliver = self.hosts[worker].deliver.options(concurrency_group=MAIL, num_returns=0)
        deliver.remote(*given)


class Team:
    """All workers of a training."""

    threads: int

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.hosts: list[Any] = []
        self.machines: list[str] = []  # of each
        self.threads = 1

    def __len__(self) -> int:
        return len(self.hosts)

    @property
    def peers(self) -> Peers:
        """All workers, for each of them to send to."""
        return Peers(self.hosts, self.machines)

    def start(self) -> None:
        """Start workers, unless there are some."""
        if not self.hosts:
            persistently(self.restart, lambda: None)

    def restart(self) -> None:
        """Start new workers; wait a while for cores that are taken, or for lost machines."""
        self.stop()
        many, self.threads = self._room()
        kind = library().remote(concurrency_groups={MAIL: 1})(Host)
        actor = kind.options(num_cpus=self.threads, scheduling_strategy="SPREAD")
        self.hosts = [actor.remote() for _ in range(many)]
        about = self.get([host.about.remote(versions()) for host in self.hosts])
        self.machines = [machine for _, _, machine in about]
        kinds = sorted({cpu for cpu, _, _ in about})
        if len(kinds) > 1:
            warn(f"Workers have CPUs of several kinds ({', '.join(kinds)}), whose bits differ.")

    def _room(self) -> tuple[int, int]:
        """Return how many workers of how many threads to start: as wanted, or as many as fit."""
        started = time.monotonic()
        while True:
            many, threads = self._wanted()
            free = int(library().available_resources().get("CPU", 0))
            waited = time.monotonic() - started
            if 0 < many * threads <= free:
                return many, threads
            if many and waited > SHORT and free >= threads:
                return min(many, free // threads), threads
            if waited > PATIENCE:
                raise SettingError(
                    f"The cluster has {free} free cores, and a worker needs {threads}: start more "
                    "machines with `ray start`, or ask for fewer threads."
                )
            time.sleep(0.2)

    def stop(self) -> None:
        """End all workers."""
        ray, hosts = library(), self.hosts
        self.hosts = []
        for host in hosts:
            ray.kill(host)

    def _wanted(self) -> tuple[int, int]:
        """Return how many workers of how many threads there is room for; none, if too little."""
        ray, cluster = library(), self.cluster
        cores = [
            int(node["Resources"].get("CPU", 0)) for node in ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
        ]  # fmt: skip
        if not cores:
            return 0, 1
        many = cluster.workers or len(cores)
        threads = cluster.threads
        if threads is None:
            free = int(ray.available_resources().get("CPU", 0))
            threads = max(1, min(min(cores), free // many))
        room = sum(one // threads for one in cores)
        return min(many, room), threads

    def get(self, refs: Any) -> Any:
        """Return what calls have returned; raise what they raised, or ``WorkersLost``."""
        errors = library().exceptions
        lost = (
            errors.RayActorError, errors.WorkerCrashedError, errors.NodeDiedError,
            errors.ObjectLostError, errors.LocalRayletDiedError,
        )  # fmt: skip
        try:
            return library().get(refs)
        except errors.RayTaskError as error:
            if isinstance(error.cause, lost):
                raise WorkersLost(f"A worker was lost ({error.cause}).") from error
            raise error.cause from error
        except lost as error:
            raise WorkersLost(f"A worker was lost ({type(error).__name__}).") from error

    def make(self, factory: Callable[..., Any], each: Sequence[Call]) -> None:
        """Let every worker make the object that it is to host."""
        hosts = zip(self.hosts, each, strict=True)
        self.get([host.make.remote(factory, *given) for host, given in hosts])

    def call(self, worker: int, method: str, *given: Any, returns: int = 1) -> Any:
        """Call a method of one worker; return a list of references, as many as it returns."""
        options = self.hosts[worker].call.options(num_returns=returns)
        found = options.remote(method, *given)
        return [] if returns == 0 else [found] if returns == 1 else found

    def ask(self, method: str, *given: Any, each: Sequence[Call] | None = None) -> list[Any]:
        """Call a method of all workers, with the same or each with its own; return references."""
        calls = [given] * len(self) if each is None else each
        pairs = enumerate(calls)
        return [self.call(worker, method, *own)[0] for worker, own in pairs]

    def all(self, method: str, *given: Any, each: Sequence[Call] | None = None) -> list[Any]:
        """Do the same, and wait for what they return."""
        return list(self.get(self.ask(method, *given, each=each)))


_current: ContextVar[Team | None] = ContextVar("team", default=None)


@contextmanager
def working(cluster: Cluster | None) -> Iterator[None]:
    """Let what is trained be trained by the workers of a cluster, if one is given, for a while."""
    if cluster is None:
        yield
        return
    with connected(cluster):
        team = Team(cluster)
        token = _current.set(team)
        try:
            yield
        finally:
            _current.reset(token)
            team.stop()


def current() -> Team | None:
    """Return the workers that are to train; None where this process does."""
    return _current.get()


def put(value: Any) -> Any:
    """Put an array, or anything else, where all workers can take it from; return a reference."""
    return library().put(value)


def take(refs: Sequence[Any]) -> list[Any]:
    """Return what references stand for, within a worker; arrays cannot be written to."""
    return list(library().get(list(refs)))


def persistently(work: Callable[[], T], mend: Callable[[], None]) -> T:
    """Do something on workers; where some are lost, mend that and do it again."""
    for _ in range(MOST_LOSSES):
        try:
            return work()
        except WorkersLost as lost:
            last: Exception = lost
        for _ in range(MOST_LOSSES):
            try:
                mend()
                break
            except WorkersLost as lost:
                last = lost
        else:
            break
    raise ClusterLostError(f"{MOST_LOSSES} workers were lost one after another. {last}") from last


def cut_evenly(weights: Any, parts: int) -> list[int]:
    """Cut a line of weights into so many parts of about the same weight; return where.

    Examples
    --------
    >>> cut_evenly([5, 1, 1, 1, 1, 1], 2)
    [0, 1, 6]
    """
    total = np.cumsum(np.asarray(weights, dtype=np.float64))
    n = len(total)
    goals = total[-1] * np.arange(1, parts) / parts
    cuts = [0, *(np.searchsorted(total, goals) + 1).tolist(), n]
    for k in range(1, parts):  # none is empty as long as there is enough
        cuts[k] = max(min(cuts[k - 1] + 1, n), min(int(cuts[k]), max(n - (parts - k), 0)))
    return cuts
