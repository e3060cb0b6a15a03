"""Connections whose requests do not begin, or have no end of headers, are closed."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

MOST = 32 * 2**10  # bytes of the head of a request


def patient_for(seconds: float) -> type:
    """Return a protocol of uvicorn that gives the head of a request some seconds to arrive."""

    class Patient(AutoHTTPProtocol):  # type: ignore[misc]
        """HTTP, with an end to waiting for the head of a request."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._head, self._timer = 0, self.loop.call_later(seconds, self._close)

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            is_in_head = self.cycle is before and (before is None or before.response_complete)
            if not is_in_head:
                self._timer.cancel()
                self._head = 0
                return
            if not self._head:
                self._timer.cancel()
                self._timer = self.loop.call_later(seconds, self._close)
            self._head += len(data)
            if self._head > MOST:
                self._close()

        def _close(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return Patient
