"""A server of one process, or of several workers that share a socket and the memory of the model.

The first process loads the model and what answers need, asks it a few questions, and then forks:
workers share all of its memory that nobody writes to, and each version of the model that comes
later is mapped from one file. Workers that die are replaced.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noisewise.errors import MissingExtraError, SettingError
from noisewise.serve.allocator import give_large_pieces_back
from noisewise.serve.limits import Bearer, Buckets, Limits, token_for
from noisewise.serve.logs import log, set_up

GRACE = 30  # seconds in which requests are finished after SIGTERM
KEEP_ALIVE = 75  # seconds that an idle connection is kept, longer than proxies keep theirs
BACKLOG = 1024  # connections that wait to be accepted
SOON, LATER = 0.5, 30.0  # seconds before a worker that died is replaced: at first, and at most
COUNTS = "PROMETHEUS_MULTIPROC_DIR"


@dataclass(frozen=True)
class Settings:
    """How a model is served."""

    model: Path
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int = 2  # of each worker, that ask the model
    every: float = 1.0  # seconds between looks at the file
    proxies: str = ""  # addresses of proxies that say who the client is, with commas between them
    root: str = ""  # path below which a proxy shows the server
    log: str = "info"
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name, least, most in (("workers", 1, 256), ("threads", 1, 256), ("port", 0, 65535)):
            if not least <= getattr(self, name) <= most:
                raise SettingError(f"{name} must be {least} to {most}; got {getattr(self, name)}.")
        if not 0.05 <= self.every <= 86400:
            raise SettingError(f"every must be 0.05 seconds or more; got {self.every}.")
        if self.log not in ("debug", "info", "warning", "error"):
            raise SettingError(f"log must be debug, info, warning or error; got {self.log!r}.")
        if self.root and (not self.root.startswith("/") or self.root.endswith("/")):
            raise SettingError(f"root must begin with / and not end with it; got {self.root!r}.")
        if self.workers > 1 and not hasattr(os, "fork"):
            raise SettingError("Several workers need a system that can fork, which this is not.")


def serve(settings: Settings, started: Callable[[str], None] | None = None) -> None:
    """Serve a model until SIGTERM or Ctrl-C; ``started`` is called with the address.

    Requests that are being answered then are finished first.
    """
    bearer = Bearer(token_for(settings.host))
    set_up(settings.log)
    give_large_pieces_back()
    with tempfile.TemporaryDirectory(prefix="noisewise-serve-") as folder:
        room = Path(folder)
        for name in ("versions", "counts"):
            (room / name).mkdir()
        if settings.workers > 1:
            os.environ[COUNTS] = str(room / "counts")  # before the library is imported
        try:
            _serve(settings, bearer, room, started)
        finally:
            os.environ.pop(COUNTS, None)


def _serve(
    settings: Settings, bearer: Bearer, room: Path, started: Callable[[str], None] | None
) -> None:
    try:
        import uvicorn

        from noisewise.serve.app import create_app
        from noisewise.serve.heads import patient_for
        from noisewise.serve.meters import Meters
        from noisewise.serve.spool import Spool
        from noisewise.serve.state import State
    except ImportError as error:
        raise MissingExtraError(f"Serving a model ({error.name} is missing)", "serve") from None
    limits, several = settings.limits, settings.workers > 1
    spool = Spool(settings.model.absolute(), room / "versions")
    meters = Meters(room / "counts" if several else None)
    with bound(settings.host, settings.port) as listening:
        state = State(spool, limits, meters, threads=settings.threads, every=settings.every)
        app = create_app(state, bearer, Buckets(limits.rate, limits.burst))
        config = uvicorn.Config(
            app, http=patient_for(limits.receive), ws="none", log_config=None, access_log=False,
            server_header=False, proxy_headers=bool(settings.proxies), root_path=settings.root,
            forwarded_allow_ips=settings.proxies or None, timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=GRACE, backlog=BACKLOG, lifespan="on",
        )  # fmt: skip
        config.load()
        host, port = listening.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        log(
            "serving", model=state.first, path=settings.model, address=address,
            workers=settings.workers, token=bearer.token is not None,
        )  # fmt: skip
        if started is not None:
            started(address)
        if several:
            Workers(config, listening, settings.workers, room / "counts").run()
        else:
            with suppress(KeyboardInterrupt):
                _until_told(uvicorn.Server(config), listening)
    log("stopped")


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise SettingError(f"{host} port {port} cannot be served on: {error.strerror}.") from error


def _until_told(server: Any, listening: socket.socket) -> None:
    """Run until a signal comes, from now on, and do not die of it."""
    before = signal.signal(signal.SIGTERM, server.handle_exit)
    try:
        server.run(sockets=[listening])
    finally:
        signal.signal(signal.SIGTERM, before)


class Workers:
    """Processes that answer on one socket; who dies is replaced, until a signal ends all."""

    config: Any
    listening: socket.socket
    many: int
    counts: Path
    stopping: bool

    def __init__(self, config: Any, listening: socket.socket, many: int, counts: Path) -> None:
        self.config, self.listening, self.many, self.counts = config, listening, many, counts
        self.alive: set[int] = set()
        self.stopping = False

    def run(self) -> None:
        """Start workers and keep them running; return after a signal, when all are done."""
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(os.getpid(), str(self.counts))
        gc.collect()
        gc.freeze()  # so that looking for garbage writes to none of the memory that is shared
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        wait = SOON
        born = 0.0
        while not self.stopping or self.alive:
            while len(self.alive) < self.many and not self.stopping:
                born = time.monotonic()
                self._fork()
            with suppress(InterruptedError):
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    time.sleep(0.05)
                    continue
                self.alive.discard(pid)
                mark_process_dead(pid, str(self.counts))
                if not self.stopping:
                    code = os.waitstatus_to_exitcode(status)
                    log("a worker died", logging.ERROR, worker=pid, code=code)
                    wait = SOON if time.monotonic() - born > LATER else min(2 * wait, LATER)
                    self._pause(wait)

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.stopping:
            time.sleep(0.05)

    def _stop(self, *_: Any) -> None:
        self.stopping = True
        for pid in self.alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _fork(self) -> None:
        """Start a worker. A signal waits until both sides know what to do about it."""
        import uvicorn

        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        with warnings.catch_warnings():
            # Threads of BLAS are idle, and made anew where they are needed.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            self.alive.add(pid)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return
        code = 1
        try:
            server = uvicorn.Server(self.config)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, server.handle_exit)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            _until_told(server, self.listening)
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)  # nothing of the first process is cleaned up here
