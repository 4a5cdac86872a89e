"""One connection of the server: a request has only so long to arrive, and what is no HTTP gets a problem document.

Who opens many connections and says little on each would keep them for ever. Nothing here reads what is asked for.

Spec: RFC 9110, section 15.5.9 (408); RFC 9112, section 9.5 (Failures and timeouts).
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.problems import Problem, make_problem, problem_response

logger = logging.getLogger("reliable_channel.connections")

ARRIVING: Final = (h11.IDLE, h11.SEND_BODY)
"""A client in these states owes the rest of a head or of a body."""

ANSWERABLE: Final = (h11.IDLE, h11.SEND_RESPONSE)
"""In these states we have not begun to answer."""


class Connection(H11Protocol):
    """A connection whose requests must arrive in time.

    The time of the first request begins with the connection, that of a later one with its first bytes; in between the
    server's own limit for idle connections holds. It ends when a WebSocket takes over.

    Args:
        request_timeout_sec: How long head and body may take together, seconds.
        given: What the server gives to each connection.
    """

    def __init__(self, *, request_timeout_sec: float, **given: Any) -> None:
        super().__init__(**given)
        self._timeout = request_timeout_sec
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self._timeout, self._expire)

    def data_received(self, data: bytes) -> None:
        """Read on; the clock runs while a request is incomplete."""
        super().data_received(data)
        incomplete = (
            self.conn.their_state in ARRIVING
            and not self.transport.is_closing()
            and self.transport.get_protocol() is self
        )
        if not incomplete:
            self._stop_clock()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._timeout, self._expire)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_clock()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(make_problem("bad-request", msg))

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        """End a connection whose request is late; one that never said anything is closed without a word."""
        self._deadline = None
        if self.transport.is_closing():
            return
        began = self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]
        if not began:
            self.transport.close()
            return
        client = self.client[0] if self.client else "unknown"
        logger.warning("a request of %s did not arrive within %g s", client, self._timeout)
        detail = f"a request may take {self._timeout:g} s (setting request_timeout_sec)"
        self._refuse(make_problem("request-timeout", detail))

    def _refuse(self, problem: Problem) -> None:
        """Answer if nothing was answered yet, and close; a route that waits for more hears that the client left."""
        if self.conn.our_state in ANSWERABLE:
            response = problem_response(problem)
            events = (
                h11.Response(
                    status_code=problem.status,
                    headers=[*response.raw_headers, (b"connection", b"close")],
                    reason=HTTPStatus(problem.status).phrase.encode(),
                ),
                h11.Data(data=bytes(response.body)),
                h11.EndOfMessage(),
            )
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
