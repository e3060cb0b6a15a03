"""Targets, workers and findings: what every fuzzer of this folder shares.

A target makes inputs from random numbers and uses them. Worker processes run many inputs each; the
parent notices when one dies or hangs, keeps the input, and starts another worker. An input is

ok        used without an error
refused   one of the errors of ``noisewise.errors``
foreign   any other exception
memory    more memory than the limit
hang      more time than the limit
crash     the end of the process

and all but the first two are findings. The same seed makes the same inputs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import hashlib
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisewise.errors import NoisewiseError

OUTCOMES = ("ok", "refused", "foreign", "memory", "hang", "crash")
FINE = ("ok", "refused")
CHUNK = 200  # inputs that a worker is given at a time
TRACE = "trace"  # a file in a worker's folder: where it was when it crashed
FORK = multiprocessing.get_context("fork")  # so that workers start with all that is compiled


@dataclass(frozen=True)
class Target:
    """Something that reads files.

    Attributes
    ----------
    name
        Also the folder of its findings in the corpus.
    make
        Returns an input; all that is random in it comes from the generator.
    suffix
        How the names of its files end.
    run
        Reads the file and uses what was read. It may write into the folder of the file.
    valid
        Inputs that must be fine. They are run once before all others, so that everything is
        compiled by then and no input has to wait for it.
    """

    name: str
    make: Callable[[np.random.Generator], bytes]
    suffix: str
    run: Callable[[Path], None]
    valid: Sequence[bytes] = ()


COMPILER = "numba/core/compiler"  # in a trace


class Limits(NamedTuple):
    """What one input may take."""

    seconds: float = 2.0  # of computing
    waiting: float = 20.0  # seconds by the clock: a busy machine is not a finding
    memory: int = 2**30  # bytes on top of what an idle worker has


COMPILING = Limits(seconds=60.0, waiting=300.0)


class Result(NamedTuple):
    """What became of one input."""

    number: int
    outcome: str
    place: str = ""  # where it went wrong: the same for findings of one cause
    detail: str = ""


class Chunk(NamedTuple):
    """Inputs to run: numbers of a target, or files."""

    target: int
    items: Sequence[int | Path]
    compiles: bool = False  # a kernel first: that takes its time, and is no fault of the input


@dataclass
class Report:
    """Counts of outcomes per target, and the findings, one of each kind and place."""

    counts: dict[str, Counter[str]]
    findings: dict[tuple[str, str, str], str] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not any(count[bad] for count in self.counts.values() for bad in OUTCOMES[2:])


def generator(seed: int, target: Target, number: int) -> np.random.Generator:
    """Return the random numbers of one input."""
    return np.random.default_rng([seed, zlib.crc32(target.name.encode()), number])


def fuzz(
    targets: Sequence[Target],
    n: int,
    *,
    seed: int = 0,
    jobs: int = 1,
    limits: Limits = Limits(),  # noqa: B008
    corpus: Path | None = None,
    tell: Callable[[str], None] = print,
) -> Report:
    """Run ``n`` inputs, the same number of every target; keep in ``corpus`` what was found."""
    each = -(-n // max(len(targets), 1))
    starts = range(0, each, CHUNK)
    chunks = [
        Chunk(t, range(start, min(start + CHUNK, each)))
        for start in starts
        for t in range(len(targets))
    ]
    for target in targets:
        _warm(target)
    return _Pool(targets, seed, limits, corpus, tell).run(chunks, jobs)


def replay(
    targets: Sequence[Target],
    corpus: Path,
    *,
    jobs: int = 1,
    limits: Limits = Limits(),  # noqa: B008
    tell: Callable[[str], None] = print,
) -> Report:
    """Run every file that was ever found."""
    chunks = [
        Chunk(t, files)
        for t, target in enumerate(targets)
        if (files := sorted((corpus / target.name).glob(f"*{target.suffix}")))
    ]
    for chunk in chunks:
        _warm(targets[chunk.target])
    return _Pool(targets, 0, limits, None, tell).run(chunks, jobs)


def _warm(target: Target) -> None:
    """Run the valid inputs of a target here, so that workers begin with everything compiled."""
    with tempfile.TemporaryDirectory() as folder, _quiet():
        for number, content in enumerate(target.valid):
            path = Path(folder) / f"valid{number}{target.suffix}"
            path.write_bytes(content)
            target.run(path)


@contextlib.contextmanager
def _quiet() -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


class _Worker:
    """A process that runs chunks, as the parent sees it."""

    def __init__(self, pool: _Pool, folder: Path, compiles: bool) -> None:
        folder.mkdir()
        self.folder = folder
        self.connection, theirs = FORK.Pipe()
        limits = COMPILING if compiles else pool.limits
        self.waiting = limits.waiting
        args = (theirs, self.connection, folder, pool.targets, pool.seed, limits)
        self.process = FORK.Process(target=_work, args=args, daemon=True)
        self.process.start()
        theirs.close()
        self.chunk: Chunk | None = None
        self.done = 0
        self.heard = time.monotonic()

    def give(self, chunk: Chunk) -> None:
        self.chunk, self.done, self.heard = chunk, 0, time.monotonic()
        self.connection.send(chunk)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class _Pool:
    """Workers, what they still have to do, and what they found."""

    def __init__(
        self,
        targets: Sequence[Target],
        seed: int,
        limits: Limits,
        corpus: Path | None,
        tell: Callable[[str], None],
    ) -> None:
        self.targets, self.seed, self.limits = targets, seed, limits
        self.corpus, self.tell = corpus, tell
        self.report = Report({target.name: Counter() for target in targets})
        self.started = 0

    def run(self, chunks: Iterable[Chunk], jobs: int) -> Report:
        """Run all chunks."""
        todo = deque(chunks)
        quick = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="noisewise-fuzz-", dir=quick) as folder:
            workers: list[_Worker] = []
            try:
                while todo or workers:
                    while todo and len(workers) < jobs:
                        workers.append(self._start(Path(folder), todo[0].compiles))
                        workers[-1].give(todo.popleft())
                    for worker in self._waited(workers):
                        self._listen(worker, workers, todo)
            finally:
                for worker in workers:
                    worker.end()
        return self.report

    def _start(self, folder: Path, compiles: bool) -> _Worker:
        self.started += 1
        return _Worker(self, folder / str(self.started), compiles)

    def _waited(self, workers: list[_Worker]) -> list[_Worker]:
        """Workers that have something to say, or have been silent for too long."""
        ready = wait([worker.connection for worker in workers], timeout=1.0)
        now = time.monotonic()
        return [w for w in workers if w.connection in ready or now - w.heard > w.waiting]

    def _listen(self, worker: _Worker, workers: list[_Worker], todo: deque[Chunk]) -> None:
        chunk = worker.chunk
        assert chunk is not None
        try:
            silent = not worker.connection.poll()
            result = None if silent else worker.connection.recv()
        except (EOFError, OSError):
            result = None
        if result is not None:
            self._count(worker, chunk, result)
            worker.done, worker.heard = worker.done + 1, time.monotonic()
            if worker.done < len(chunk.items):
                return
            if todo and not (chunk.compiles or todo[0].compiles):
                worker.give(todo.popleft())
                return
        else:
            death = _death(worker)
            if death.outcome == "hang" and COMPILER in death.detail and not chunk.compiles:
                again = [chunk.items[worker.done]]
                todo.appendleft(Chunk(chunk.target, again, compiles=True))
            else:
                self._count(worker, chunk, death)
            rest = chunk.items[worker.done + 1 :]
            if rest:
                todo.appendleft(Chunk(chunk.target, rest))
        workers.remove(worker)
        worker.end()

    def _count(self, worker: _Worker, chunk: Chunk, result: Result) -> None:
        target = self.targets[chunk.target]
        self.report.counts[target.name][result.outcome] += 1
        if result.outcome in FINE:
            return
        cause = (target.name, result.outcome, result.place)
        if cause in self.report.findings:
            return
        self.report.findings[cause] = result.detail
        item = chunk.items[worker.done]
        self.tell(f"{result.outcome} in {target.name}, {item}: {result.place}\n{result.detail}")
        if self.corpus is not None and isinstance(item, int):
            digest = hashlib.sha256(result.place.encode()).hexdigest()[:10]
            kept = self.corpus / target.name / f"{result.outcome}-{digest}{target.suffix}"
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(target.make(generator(self.seed, target, item)))


def _death(worker: _Worker) -> Result:
    """Say why a worker ended, or why it is ended now."""
    worker.process.join(0.5)
    code = worker.process.exitcode
    trace = worker.folder / TRACE
    detail = trace.read_text(errors="replace") if trace.exists() else ""
    lines = [line.strip() for line in detail.splitlines() if "noisewise" in line]
    place = lines[0] if lines else ""
    if code is None or code == -signal.SIGPROF:
        return Result(worker.done, "hang", place, detail)
    if code == -signal.SIGKILL:
        return Result(worker.done, "memory", place, detail)
    return Result(worker.done, "crash", place or f"exit code {code}", detail)


def _work(
    theirs: Connection,
    parent: Connection,
    folder: Path,
    targets: Sequence[Target],
    seed: int,
    limits: Limits,
) -> None:
    """Run chunks until the parent hangs up."""
    parent.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_memory(limits.memory)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    with open(folder / TRACE, "w") as trace, _quiet():
        faulthandler.enable(trace)
        faulthandler.register(signal.SIGPROF, trace, chain=True)
        while True:
            try:
                chunk = theirs.recv()
            except EOFError:
                return
            target = targets[chunk.target]
            for number, item in enumerate(chunk.items):
                path = folder / f"input{target.suffix}"
                if isinstance(item, int):
                    path.write_bytes(target.make(generator(seed, target, item)))
                else:
                    shutil.copyfile(item, path)
                theirs.send(_outcome(number, target, path, limits))
                if number % 50 == 49:
                    gc.collect()


def _outcome(number: int, target: Target, path: Path, limits: Limits) -> Result:
    signal.setitimer(signal.ITIMER_PROF, limits.seconds)
    try:
        target.run(path)
        return Result(number, "ok")
    except NoisewiseError as error:
        return Result(number, "refused", "", str(error))
    except MemoryError as error:
        return Result(number, "memory", _place(error), traceback.format_exc())
    except Exception as error:
        return Result(number, "foreign", _place(error), traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _place(error: BaseException) -> str:
    """Return the kind of an error and the innermost line of noisewise that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/noisewise/" in frame.filename] or list(frames)
    name = own[-1].filename.rpartition("/noisewise/")[2]
    return f"{type(error).__name__} in {name}: {own[-1].line}"


def _limit_memory(extra: int) -> None:
    """Allow this process so many bytes on top of what it has, where the system can tell."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        size = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + extra, size + extra))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (extra, extra))
