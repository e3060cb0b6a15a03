"""The model that is served now, threads that ask it, and a watch on its file."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from noisewise.errors import NoisewiseError, heard
from noisewise.serve import answers, schemas
from noisewise.serve.allocator import give_all_back
from noisewise.serve.answers import Refused, Served
from noisewise.serve.limits import Limits
from noisewise.serve.logs import log
from noisewise.serve.meters import Meters
from noisewise.serve.spool import Changing, Loaded, Spool, Version


class State:
    """What a worker has: one version of the model at a time, and threads that ask it."""

    spool: Spool
    limits: Limits
    meters: Meters
    every: float
    served: Served
    since: float

    def __init__(
        self,
        spool: Spool,
        limits: Limits,
        meters: Meters,
        *,
        threads: int = 2,
        every: float = 1.0,
    ) -> None:
        self.spool, self.limits, self.meters = spool, limits, meters
        self.every, self._threads = every, threads
        self.served: Served
        self.first = spool.load(self._check).digest
        self.since = time.time()
        self.reload_error: str | None = None
        self._tried: Version | None = None
        self._jobs = 0
        self._stop = threading.Event()

    def start(self) -> None:
        """Map the last version that could be read, and start the threads.

        Both in the worker: no thread lives on in a process that is forked, and the one that only
        starts workers would keep its first version mapped for as long as it lives.
        """
        latest = self.spool.latest()
        self.served, self._tried = Served(latest, self.limits), latest.version
        self._quick = ThreadPoolExecutor(self._threads, "quick")
        self._long = ThreadPoolExecutor(1, "long")
        self._stop.clear()
        self._watch = threading.Thread(target=self._watching, name="watch", daemon=True)
        self._watch.start()
        self.meters.loaded.set(self.since)
        self.meters.stale.set(0)

    def stop(self) -> None:
        """Stop the threads; what is being answered is finished first."""
        self._stop.set()
        self._watch.join()
        self._quick.shutdown(wait=True, cancel_futures=True)
        self._long.shutdown(wait=False, cancel_futures=True)

    def _watching(self) -> None:
        while not self._stop.wait(self.every):
            self.look()

    def look(self) -> bool:
        """Load the file if it has changed; tell whether another version is served now.

        A file that is broken or gone leaves what is served as it is.
        """
        version = Version.of(self.spool.path)
        if version == self._tried:
            return False
        try:
            loaded = self.spool.load(self._check)
        except Changing:
            return False  # and look again
        except (NoisewiseError, OSError, MemoryError) as error:
            self._tried, self.reload_error = version, str(error)
            self.meters.reloads.labels("failed").inc()
            self.meters.stale.set(1)
            log("reload failed", logging.ERROR, error=str(error), serving=self.served.loaded.digest)
            return False
        self._tried, self.reload_error = loaded.version, None
        changed = loaded.digest != self.served.loaded.digest
        if changed:
            self.served, self.since = Served(loaded, self.limits), time.time()
        self.meters.reloads.labels("done").inc()
        self.meters.stale.set(0)
        self.meters.loaded.set(self.since)
        log("reloaded", model=loaded.digest, changed=changed)
        give_all_back()
        return changed

    def _check(self, loaded: Loaded) -> None:
        """Ask a new version what everybody asks: one that cannot answer is not served."""
        warm_up(Served(loaded, self.limits))

    async def ask(
        self, endpoint: str, question: Callable[[Served], dict[str, Any]], *, is_long: bool = False
    ) -> tuple[dict[str, Any], str, float]:
        """Ask the model as it is now; return answer, version, and the seconds it took."""
        served = self.served  # one version for the whole of an answer

        def work() -> tuple[dict[str, Any], float]:
            started = time.perf_counter()
            with heard() as told:
                answer = question(served)
            return answer | {"warnings": told}, time.perf_counter() - started

        answer, seconds = await (self._slowly(work) if is_long else self._run(self._quick, work))
        self.meters.model_seconds.labels(endpoint).observe(seconds)
        digest = served.loaded.digest
        return answer | {"model": digest}, digest, seconds

    def _run(self, pool: ThreadPoolExecutor, work: Callable[[], Any]) -> asyncio.Future[Any]:
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(pool, context.run, work)

    async def _slowly(self, work: Callable[[], Any]) -> Any:
        """Run a job that takes seconds, one at a time; others wait, but not too many."""
        if self._jobs >= self.limits.jobs:
            raise Refused(503, "Other tables are being worked on; try again.", {"Retry-After": "5"})
        self._jobs += 1
        job = self._run(self._long, work)

        def done(_: Any) -> None:
            self._jobs -= 1

        job.add_done_callback(done)
        try:
            return await asyncio.wait_for(asyncio.shield(job), self.limits.job)
        except TimeoutError:
            # What nobody waits for any more may fail in silence.
            job.add_done_callback(lambda late: late.cancelled() or late.exception())
            told = f"This takes more than {self.limits.job:g} seconds; send less at a time."
            raise Refused(503, told) from None


def warm_up(served: Served) -> None:
    """Ask what everybody asks, so that kernels are compiled before the first client comes."""
    if served.kind == answers.IMPUTER:
        return
    cell = [answers.listed(ids.labels[:1])[0] for ids in served.ids]
    with heard():
        answers.interval(served, schemas.CellsWithin(cells=[cell]))
        answers.predict(served, schemas.Cells(cells=[cell]))
        if served.kind == answers.RATINGS:
            if served.model.seen_ is not None:
                answers.recommend(served, schemas.Lists(ids=[cell[0]], n=1))
            row = schemas.NewRow(others=[cell[1]], values=[0.0], n=1, exclude_seen=False)
            answers.fold_in(served, row)
