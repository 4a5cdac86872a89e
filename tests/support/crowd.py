"""Clients of a service under load: posters that repeat themselves, and readers that come and go.

All of them are asyncio tasks. What they were answered is in a `Ledger`, what they read in a `Log` of each service, and
both refuse what contradicts what they have. Moments are drawn from a seed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import websockets

from benchmarks.http_load import Connection
from tests.support.streaming import EventClient

CHANNEL: Final = "/v1/channels/room"

FINAL: Final = frozenset(
    {
        "reliable:message:delivered",
        "reliable:message:send-error",
        "reliable:message:delivery-error",
    }
)
"""Events that end a request."""

LONGEST_VISIT_SEC: Final = 1.5
"""How long a reader stays, at most."""

LARGEST_PAYLOAD: Final = 1_024

Entry = tuple[str, str | None, str | None]
"""Of a durable event: name, request id, and payload of what was received, which is its key."""


def payload_of(key: str) -> bytes:
    """Return the message that goes with a key: the key, and as many dots as its seed says."""
    return key.encode().ljust(random.Random(key).randint(1, LARGEST_PAYLOAD), b".")


def http(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a request; ``content_type="a/b"`` is a header."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def post_of(key: str) -> bytes:
    """Return the request that sends the message of a key."""
    headers = {"content_type": "application/octet-stream", "idempotency_key": key}
    return http("POST", f"{CHANNEL}/messages", payload_of(key), **headers)


@dataclass(slots=True)
class Ledger:
    """What a service has accepted.

    Attributes:
        accepted: Request ids by key.
        answers: How many posts were answered with 202, repeats included.
    """

    accepted: dict[str, str] = field(default_factory=dict)
    answers: int = 0

    def accept(self, key: str, request_id: str) -> None:
        """Note an accepted send; a repeat has the id of the first."""
        assert self.accepted.setdefault(key, request_id) == request_id, key


class Log:
    """The durable events of a channel, as all its readers have seen them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.ended: set[str] = set()
        self.received: set[str] = set()
        self._news = asyncio.Event()

    def saw(self, sequence: int, entry: Entry) -> None:
        """Note what a reader saw; the others have seen the same or nothing yet."""
        if sequence <= len(self.entries):
            assert self.entries[sequence - 1] == entry, sequence
            return
        assert sequence == len(self.entries) + 1
        self.entries.append(entry)
        name, request_id, key = entry
        if name in FINAL:
            self.ended.add(str(request_id))
        if key is not None:
            self.received.add(key)

    def notify(self) -> None:
        """Wake whoever waits for something that readers see."""
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when something is so."""
        while not condition():
            self._news.clear()
            await self._news.wait()


def entry_of(event: dict[str, Any]) -> Entry:
    """Return what the log keeps of an event."""
    payload = event.get("payload")
    key = None if payload is None else base64.b64decode(payload).decode().rstrip(".")
    return event["name"], event.get("requestId"), key


class Reader:
    """Somebody who reads all events of a channel in many visits, each from where the last one ended.

    Args:
        port: Of the service.
        log: Of the channel.
        rng: Chooses how long it stays.
    """

    def __init__(self, port: int, log: Log, rng: random.Random) -> None:
        self.port = port
        self.cursor = 0
        self.visits = 0
        self.log = log
        self._rng = rng

    async def run(self) -> None:
        """Come and go until cancelled."""
        while True:
            self.visits += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rng.uniform(0.01, LONGEST_VISIT_SEC)):
                    await self.visit()

    async def visit(self) -> None:
        """Read for as long as one may stay."""
        raise NotImplementedError

    def take(self, event: dict[str, Any]) -> None:
        """Take an event; a durable one is the next after the last."""
        sequence = event["sequence"]
        if not sequence:
            return
        assert sequence == self.cursor + 1
        self.log.saw(sequence, entry_of(event))
        self.cursor = sequence
        self.log.notify()

    async def reached(self, sequence: int) -> None:
        """Return when it has come this far."""
        await self.log.until(lambda: self.cursor >= sequence)


class StreamReader(Reader):
    """Reads Server-Sent Events and resumes with ``Last-Event-ID``."""

    async def visit(self) -> None:
        """Read one stream; one that ends is resumed by the next."""
        headers = {"Last-Event-ID": str(self.cursor)}
        async with EventClient(self.port, headers=headers) as client:
            if client.status == 503:  # closing
                return
            assert client.status == 200, client.body
            async for frame in client.frames():
                if not frame.event.startswith("stream:"):
                    assert frame.id == (str(frame.data["sequence"]) if frame.id else None)
                    self.take(frame.data)


class Poller(Reader):
    """Reads pages of events."""

    async def visit(self) -> None:
        """Read pages; whoever leaves in the middle of one hangs up."""
        connection = await Connection.open(self.port)
        try:
            while True:
                limit = self._rng.choice([1, 10, 100, 1000])
                query = f"after={self.cursor}&limit={limit}&wait=5"
                status, body = await connection.ask(http("GET", f"{CHANNEL}/events?{query}"))
                page = json.loads(body)
                assert status == 200, page
                for event in page["events"]:
                    self.take(event)
                assert page["next"] == self.cursor
        finally:
            connection.abort()


class SocketReader(Reader):
    """Reads a WebSocket, and sends a message with each visit.

    Args:
        name: Of its keys.
        ledger: Of the service.
    """

    def __init__(self, port: int, log: Log, rng: random.Random, name: str, ledger: Ledger) -> None:
        super().__init__(port, log, rng)
        self.keys = KeyMaker(name)
        self.open_keys: list[str] = []
        """Those of sends whose answer it has not waited for."""
        self.may_send = True
        self._ledger = ledger

    async def visit(self) -> None:
        """Send what was not answered, or something new, and read."""
        url = f"ws://127.0.0.1:{self.port}{CHANNEL}/ws?after={self.cursor}"
        async with websockets.connect(url, close_timeout=0, max_size=None) as socket:
            if self.may_send:
                key = self.open_keys[0] if self.open_keys else self.keys.next()
                self.open_keys = [key]
                payload = base64.b64encode(payload_of(key)).decode()
                frame = {"type": "send", "id": key, "payload": payload, "idempotencyKey": key}
                await socket.send(json.dumps(frame))
            async for text in socket:
                message = json.loads(text)
                match message.get("type"):
                    case None if "sequence" in message:
                        self.take(message)
                    case "accepted":
                        self._ledger.accept(message["id"], message["requestId"])
                        self.open_keys = []
                    case _:
                        assert message.get("name", "").startswith("stream:"), message


class KeyMaker:
    """Makes keys that nobody else makes.

    Args:
        name: Of whom they are.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0

    def next(self) -> str:
        """Return a new one."""
        self._count += 1
        return f"{self._name}-{self._count}"


Outcome = Literal["accepted", "refused", "unknown"]


class Poster:
    """Sends messages, each with a key, and some of them twice.

    Args:
        name: Of its keys.
        ledger: Of the service.
        rng: Chooses what is repeated.
    """

    def __init__(self, name: str, ledger: Ledger, rng: random.Random) -> None:
        self.keys = KeyMaker(name)
        self.ledger = ledger
        self.rng = rng
        self._connection: Connection | None = None

    @cached_property
    def twin(self) -> Poster:
        """Another connection of the same client, for the same message at the same time."""
        return Poster("twin", self.ledger, self.rng)

    async def insist(self, port: int, key: str) -> None:
        """Send the message of a key to a service that takes it; idle connections it may have closed."""
        while (outcome := await self.post(port, key)) == "unknown":
            pass
        assert outcome == "accepted"

    async def post(self, port: int, key: str) -> Outcome:
        """Send the message of a key; ``unknown`` where the connection ended before the answer."""
        try:
            if self._connection is None:
                self._connection = await Connection.open(port)
            status, body = await self._connection.ask(post_of(key))
        except (OSError, EOFError):
            self.hang_up()
            return "unknown"
        if status != 202:
            assert status == 503, body  # starting or closing
            return "refused"
        self.ledger.accept(key, json.loads(body)["requestId"])
        self.ledger.answers += 1
        return "accepted"

    def hang_up(self) -> None:
        """End the connection, where there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
