"""What stands before the answers: who may ask, how often, how much and how slowly; logs, counts."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from noisewise.serve.limits import Bearer, Buckets, Limits, is_loopback
from noisewise.serve.logs import log
from noisewise.serve.meters import Meters

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PROBES = ("/health", "/ready")
OPEN = (*PROBES, "/", "/page.js", "/page.css", "/openapi.json")  # which say nothing of the model
LINGER = 3.0  # seconds in which a client that was refused may go on sending, to read the answer
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


class Guard:
    """An ASGI application around another one."""

    app: Any
    limits: Limits
    bearer: Bearer
    buckets: Buckets
    meters: Meters
    inside: int

    def __init__(
        self, app: Any, *, limits: Limits, bearer: Bearer, buckets: Buckets, meters: Meters
    ) -> None:
        self.app, self.limits, self.bearer = app, limits, bearer
        self.buckets, self.meters = buckets, meters
        self.inside = 0  # requests that are being answered

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)  # type: ignore[no-any-return]
        if scope["type"] != "http":  # a web socket: none is spoken here
            return await send({"type": "websocket.close", "code": 1000})
        visit = Visit(self, scope, receive, send)
        self.inside += 1
        try:
            await visit.answer()
        finally:
            self.inside -= 1
            visit.note()
        return None


class Visit:
    """One request on its way."""

    guard: Guard
    scope: Message
    send_on: Send
    started: float
    status: int
    size: int
    number: str

    def __init__(self, guard: Guard, scope: Message, receive: Receive, send: Send) -> None:
        self.guard, self.scope, self.send_on = guard, scope, send
        self.receive = receive
        self.started, self.status, self.size = time.perf_counter(), 0, 0
        self.number = secrets.token_hex(8)
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        client = scope.get("client")
        self.client = client[0] if client else "unknown"
        scope["state"] = {**scope.get("state", {}), "number": self.number}

    async def answer(self) -> None:
        """Answer, or refuse."""
        refusal = self.refusal()
        if refusal is not None:
            return await self.refuse(*refusal)
        limits = self.guard.limits
        announced = self.headers.get(b"content-length", b"0")
        if not announced.isdigit() or int(announced[:20]) > limits.body:
            return await self.refuse(413, f"A request may have {limits.body:,} bytes.")
        try:
            async with asyncio.timeout(limits.receive):
                body = await self.read(limits.body)
        except TimeoutError:
            told = f"The request was not here as a whole after {limits.receive:g} seconds."
            return await self.refuse(408, told, linger=False)
        if body is None:
            return None  # the client is gone
        if len(body) > limits.body:
            return await self.refuse(413, f"A request may have {limits.body:,} bytes.")
        self.size = len(body)
        await self.guard.app(self.scope, self.replay(body), self.send)
        return None

    def refusal(self) -> tuple[int, str, dict[str, str]] | None:
        """Return why a request is refused by its head alone, if it is."""
        guard = self.guard
        path = self.scope["path"].removeprefix(self.scope.get("root_path", ""))
        if guard.inside > guard.limits.waiting:
            return 503, "Too many requests are being answered; try again.", {"Retry-After": "1"}
        if path in PROBES:
            return None
        if guard.bearer.token is None and not is_loopback(self.host()):
            return 421, "Without a token this server answers to names of this machine alone.", {}
        wait = guard.buckets.wait(neighbourhood(self.client))
        if wait:
            told = f"That is too often: {guard.limits.rate:g} requests a second are allowed."
            return 429, told, {"Retry-After": str(math.ceil(wait))}
        if path not in OPEN and not guard.bearer.admits(self.headers.get(b"authorization")):
            told = "A bearer token is needed in the Authorization header, and this is not it."
            return 401, told, {"WWW-Authenticate": "Bearer"}
        return None

    def host(self) -> str:
        """Return the name by which the server was called."""
        name = self.headers.get(b"host", b"").decode("latin-1").lower()
        if name.startswith("["):
            return name[1:].partition("]")[0]
        return name.partition(":")[0]

    async def read(self, most: int) -> bytes | None:
        """Return the body, or a little more than is allowed; None if the client is gone."""
        parts, size = [], 0
        while size <= most:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if not message.get("more_body", False):
                break
        return b"".join(parts)

    def replay(self, body: bytes) -> Receive:
        """Return what gives the application the body that has been read."""
        waiting = [body]

        async def receive() -> Message:
            if waiting:
                return {"type": "http.request", "body": waiting.pop(), "more_body": False}
            return await self.receive()

        return receive

    async def send(self, message: Message) -> None:
        """Send on, with the headers that all answers have."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = [*HEADERS, (b"x-request-id", self.number.encode())]
            message = {**message, "headers": [*message.get("headers", []), *own]}
        await self.send_on(message)

    async def refuse(
        self, status: int, told: str, headers: dict[str, str] | None = None, linger: bool = True
    ) -> None:
        """Answer with a sentence, and read on for a while: who is still sending reads it later."""
        body = json.dumps({"error": told}).encode()
        given = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        given |= {"Connection": "close", **(headers or {})}
        pairs = [(name.lower().encode(), value.encode()) for name, value in given.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": body, "more_body": linger})
        if linger:
            try:
                async with asyncio.timeout(LINGER):
                    while (await self.receive()).get("more_body", False):
                        pass
            except TimeoutError:
                pass
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    def note(self) -> None:
        """Count and log the request."""
        seconds = time.perf_counter() - self.started
        route = self.scope.get("route")
        endpoint = getattr(route, "name", "refused" if self.status in (401, 429) else "other")
        self.guard.meters.requests.labels(endpoint, str(self.status)).inc()
        self.guard.meters.seconds.labels(endpoint).observe(seconds)
        log(
            "request",
            request=self.number,
            client=self.client,
            method=self.scope["method"],
            path=self.scope["path"],
            status=self.status,
            bytes=self.size,
            ms=round(1000 * seconds, 3),
        )


def neighbourhood(client: str) -> str:
    """Return who shares a bucket: an address, or for IPv6 the 64 bits that one customer has."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if address.version == 4:
        return client
    return str(ipaddress.ip_network((int(address), 128)).supernet(new_prefix=64))
