"""HTTP as the REST adapter needs it: bounded answers, kinds of errors, back-off, refusals counted.

It knows neither routes nor messages. Every request ends within its time, every answer has a bounded
size, and while a node asks for a pause (429) nothing is sent to that part of it.

Spec: P2P-RELIABILITY, Retransmit on failure (from 1 s, growing); RFC 9110, Retry-After.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final

import httpx

from messaging_adapter.rest_url import RestParameters
from reliable_channel.errors import DecodeError, NodeClosedError, NodeUnavailableError
from reliable_channel.ports import Clock
from reliable_channel.types import SECOND

MAX_BODY_BYTES: Final = 16 << 20
"""Largest answer that is read: 50 messages of 150 KiB in base64 take 10 MiB."""

MAX_CONNECTIONS: Final = 8
"""Connections to a node at once."""

MAX_SHOWN: Final = 200
"""Characters of a node's words in an error or a log line."""

THREAD_BYTES: Final = 256 << 10
"""Longer answers are parsed in a thread, bytes: parsing must not hold up the event loop."""

MAX_PAUSE_SEC: Final = 300.0
"""Longest Retry-After that is believed, seconds."""

logger = logging.getLogger("reliable_channel.messaging_adapter")


class Trouble(StrEnum):
    """Why a request failed, as far as it matters for when to try again."""

    REFUSED = "refused"
    """Nobody listens, or the name is unknown: nothing was transmitted."""
    TIMEOUT = "timeout"
    """No answer in time; the node may have done what was asked."""
    BROKEN = "broken"
    """The connection broke, or the answer is not what it should be."""
    BUSY = "busy"
    """429."""
    FAILED = "failed"
    """5xx, or another answer that may be different later."""
    FORGOTTEN = "forgotten"
    """The node does not know the subscription: it was restarted."""


BACKOFF_SEC: Final[Mapping[Trouble, tuple[float, float]]] = {
    Trouble.REFUSED: (0.2, 5.0),
    Trouble.TIMEOUT: (1.0, 15.0),
    Trouble.BROKEN: (1.0, 10.0),
    Trouble.BUSY: (1.0, 30.0),
    Trouble.FAILED: (0.5, 10.0),
    Trouble.FORGOTTEN: (0.1, 5.0),
}
"""First and longest distance of tries, seconds; each is twice the one before."""


class RestError(NodeUnavailableError):
    """A request failed; the same may work later.

    Args:
        trouble: Which kind of failure.
        text: What happened, for people.
        retry_after_sec: How long the node asked to wait; 0 when it did not.
    """

    def __init__(self, trouble: Trouble, text: str, retry_after_sec: float = 0.0) -> None:
        self.trouble = trouble
        self.retry_after_sec = retry_after_sec
        super().__init__(text)


class Backoff:
    """How long to wait before the next try: longer with each failure of a kind, until a success.

    Args:
        jitter: Draws from [0, 1): up to a fifth is added, so that clients of a node spread.
    """

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter
        self._failures: Counter[Trouble] = Counter()

    def after(self, error: Exception) -> float:
        """Return the seconds to wait after a failure; anything unexpected is as if broken."""
        trouble = error.trouble if isinstance(error, RestError) else Trouble.BROKEN
        first, longest = BACKOFF_SEC[trouble]
        wait = min(longest, first * 2.0 ** min(self._failures[trouble], 16))
        self._failures[trouble] += 1
        asked = error.retry_after_sec if isinstance(error, RestError) else 0.0
        return max(asked, wait) * (1 + self._jitter() / 5)

    def reset(self) -> None:
        """Begin anew: something worked."""
        self._failures.clear()


class Refusals:
    """Counts what a node answered and we could not use; logs at most one line a second.

    Args:
        clock: Says when the last line was logged.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until_ns = 0
        self.counts: Counter[str] = Counter()
        """By reason."""

    def count(self, reason: str, detail: object = "") -> None:
        """Count one refusal.

        Args:
            reason: A short snake_case word.
            detail: For the log; cut to a line.
        """
        self.counts[reason] += 1
        now = self._clock.now_ns()
        if now >= self._quiet_until_ns:
            self._quiet_until_ns = now + SECOND
            logger.warning(
                "the node's answer was refused (%s: %s); so far %s",
                reason,
                shown(str(detail)),
                dict(sorted(self.counts.items())),
            )


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node answered."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether it is a success."""
        return 200 <= self.status < 300

    @property
    def words(self) -> str:
        """What an error says, one line: the text, or what a JSON answer describes."""
        text = self.body[: 4 * MAX_SHOWN].decode("utf-8", "replace")
        if text.lstrip().startswith("{"):
            try:
                described = json.loads(self.body).get("statusDesc")
            except (ValueError, RecursionError):
                described = None
            text = described if isinstance(described, str) else text
        return shown(text) or f"HTTP {self.status} without a reason"

    @property
    def is_no_route(self) -> bool:
        """Whether the node does not have, or not yet, what was asked for at this path."""
        text = self.body[: 4 * MAX_SHOWN]
        missing = self.status == 404 and b"endpoints are not available" in text
        return missing or (self.status == 400 and b"Invalid path or method used" in text)

    async def json(self) -> Any:
        """Return the parsed body.

        Raises:
            DecodeError: It is not JSON.
        """
        try:
            if len(self.body) > THREAD_BYTES:
                return await asyncio.to_thread(json.loads, self.body)
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise DecodeError("JSON answer", shown(str(error))) from error


def shown(text: str) -> str:
    """Return a node's words as they may be shown: printable, one line, cut."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * MAX_SHOWN]).split())
    return line if len(line) <= MAX_SHOWN else line[: MAX_SHOWN - 3] + "..."


class RestClient:
    """Sends requests to one node.

    Args:
        parameters: Where it is, how long an answer may take.
        clock: Unix time, for dates in Retry-After.
        transport: Another way to the node than the network, for tests.
    """

    def __init__(
        self,
        parameters: RestParameters,
        *,
        clock: Clock,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._timeout = parameters.timeout_ms / 1_000
        self._base_url = parameters.base_url
        self._clock = clock
        self._held_until: dict[str, float] = {}
        self.requests: Counter[str] = Counter()
        """Requests made, by the first part of their path."""
        secure = parameters.base_url.startswith("https:")
        # Neither proxies nor passwords from the environment: the URL says all.
        self._http = httpx.AsyncClient(
            auth=httpx.BasicAuth(*parameters.auth) if parameters.auth else None,
            headers={"Accept-Encoding": "identity"},  # a small answer stays a small one
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
            timeout=None,  # `request` has one of its own, for the whole of it
            transport=transport,
            trust_env=False,
            verify=ssl.create_default_context() if secure and transport is None else False,
        )

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request and return the answer, whatever its status but 429.

        Args:
            method: The HTTP method.
            path: With its parts percent-encoded already.
            body: Sent as JSON unless None.
            query: Parameters; they are encoded here.

        Raises:
            RestError: No whole answer came, or the node wants a pause.
            NodeClosedError: The client is closed.
        """
        if self._http.is_closed:
            raise NodeClosedError
        area = path.split("/", 2)[1]
        loop = asyncio.get_running_loop()
        pause = self._held_until.get(area, 0.0) - loop.time()
        if pause > 0:
            text = f"the node asked for a pause of {area} requests; {pause:.1f} s are left"
            raise RestError(Trouble.BUSY, text, pause)
        self.requests[area] += 1
        request = self._http.build_request(method, self._base_url + path, json=body, params=query)
        try:
            async with asyncio.timeout(self._timeout):
                status, headers, content = await self._exchange(request)
        except TimeoutError as error:
            text = f"no answer to {method} /{area} within {self._timeout:g} s"
            raise RestError(Trouble.TIMEOUT, text) from error
        except httpx.ConnectError as error:
            text = f"the node at {self._base_url} cannot be reached ({shown(str(error))})"
            raise RestError(Trouble.REFUSED, text) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            text = f"the answer to {method} /{area} broke off ({shown(str(error))})"
            raise RestError(Trouble.BROKEN, text) from error
        answer = Answer(status, content)
        if status == 429:
            pause = self._retry_after(headers.get("Retry-After"))
            self._held_until[area] = loop.time() + pause
            raise RestError(Trouble.BUSY, answer.words, pause)
        return answer

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _exchange(self, request: httpx.Request) -> tuple[int, httpx.Headers, bytes]:
        response = await self._http.send(request, stream=True)
        try:
            content = bytearray()
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > MAX_BODY_BYTES:
                    text = f"the answer is above {MAX_BODY_BYTES} bytes"
                    raise RestError(Trouble.BROKEN, text)
        finally:
            await response.aclose()
        return response.status_code, response.headers, bytes(content)

    def _retry_after(self, value: str | None) -> float:
        """Return the seconds that a node asks to wait, 0 when it does not say."""
        if value is None:
            return 0.0
        try:
            seconds = float(value)
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - self._clock.now_ns() / SECOND
            except (ValueError, OverflowError):
                return 0.0
        return min(MAX_PAUSE_SEC, max(0.0, seconds)) if seconds == seconds else 0.0
