"""What a client may ask of a server: how much, how often, how slowly; and who may ask at all."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import mmap
import multiprocessing
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from noisewise.errors import SettingError

TOKEN = "NOISEWISE_TOKEN"  # the variable of the environment that has it
SHORTEST_TOKEN = 16
SLOTS = 2**16  # buckets; two clients share one by chance, and what they may ask with it


@dataclass(frozen=True)
class Limits:
    """What is refused, so that no request takes a server down.

    Examples
    --------
    >>> Limits(body=1000).body
    1000
    """

    body: int = 16 * 2**20  # bytes of a request
    cells: int = 10_000  # predicted at once, and ids that lists are made for or learned from
    readings: int = 1_000_000  # cells of a table of readings
    series: int = 2_000  # columns of a table of readings
    receive: float = 20.0  # seconds in which a request must have arrived as a whole
    rate: float = 0.0  # requests a second of one client, in the long run; 0 sets no limit
    burst: int = 100  # requests that one client may have saved up
    waiting: int = 256  # requests that a worker has at a time
    jobs: int = 4  # tables of readings and the like that a worker has at a time
    job: float = 300.0  # seconds that one of these may take

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 0 if name == "rate" else 1
            if not (math.isfinite(value) and value >= least):
                raise SettingError(f"The limit {name} must be {least} or more; got {value}.")


def token_for(host: str) -> str | None:
    """Return the token that clients must know; None where there is none, on loopback alone."""
    token = os.environ.get(TOKEN)
    if token is None:
        if is_loopback(host):
            return None
        raise SettingError(
            f"On {host} others can reach this server: set {TOKEN} in the environment to a secret "
            "that clients send as a bearer token, or serve on 127.0.0.1."
        )
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise SettingError(
            f"{TOKEN} must have {SHORTEST_TOKEN} or more plain characters, as from "
            "`python -c 'import secrets; print(secrets.token_urlsafe(32))'`."
        )
    return token


def is_loopback(host: str) -> bool:
    """Tell whether an address is of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Bearer:
    """The token that clients must send; comparing takes as long for a wrong one."""

    token: str | None

    def admits(self, header: bytes | None) -> bool:
        """Tell whether an ``Authorization`` header has the token."""
        if self.token is None:
            return True
        scheme, _, given = (header or b"").strip().partition(b" ")
        known = hashlib.sha256(self.token.encode()).digest()
        right = hmac.compare_digest(hashlib.sha256(given.strip()).digest(), known)
        return right and scheme.lower() == b"bearer"


@dataclass(frozen=True, eq=False)
class Buckets:
    """A token bucket for every client, in memory that all workers of a server share.

    Examples
    --------
    >>> now = [0.0]
    >>> buckets = Buckets(rate=2.0, burst=3, clock=lambda: now[0])
    >>> [buckets.wait("10.0.0.1") for _ in range(4)]
    [0.0, 0.0, 0.0, 0.5]
    >>> buckets.wait("10.0.0.2")
    0.0
    """

    rate: float
    burst: int
    clock: Callable[[], float] = time.monotonic
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def __post_init__(self) -> None:
        if not self.rate:
            return
        memory = mmap.mmap(-1, SLOTS * 16)  # shared with processes that are forked later
        slots = np.ndarray((SLOTS, 2), np.float64, memory)  # what is in a bucket, and since when
        slots[:] = self.burst, self.clock()
        object.__setattr__(self, "_slots", slots)
        object.__setattr__(self, "_lock", multiprocessing.get_context().Lock())

    def wait(self, client: str) -> float:
        """Take one out of a client's bucket; return the seconds to wait where it is empty."""
        if not self.rate:
            return 0.0
        name = hashlib.blake2b(client.encode(), key=self.salt, digest_size=4).digest()
        slot = self._slots[int.from_bytes(name, "little") % SLOTS]  # type: ignore[attr-defined]
        # A worker that was killed may have kept the lock: then counts are a little off.
        held = self._lock.acquire(timeout=0.1)  # type: ignore[attr-defined]
        try:
            now = self.clock()
            level = min(float(self.burst), slot[0] + self.rate * max(0.0, now - slot[1]))
            slot[1] = now
            enough = level >= 1.0
            slot[0] = level - 1.0 if enough else level
            return 0.0 if enough else float((1.0 - level) / self.rate)
        finally:
            if held:
                self._lock.release()  # type: ignore[attr-defined]
