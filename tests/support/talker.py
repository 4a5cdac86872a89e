"""An application that sends numbered messages and writes down what it was told: what it cannot lose by being killed.

Its notebook is a file of JSON lines, each on the disk before the application goes on. Started again with the same
notebook, it goes on with the next number and with the event after the last one that it noted.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from reliable_channel import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    ReliableChannel,
)

FINAL: Final = (
    MessageDeliveredEvent.name,
    MessageSendErrorEvent.name,
    MessageDeliveryErrorEvent.name,
)
"""Names of the events that end a request."""

MAX_OPEN: Final = 12
"""Requests under way before the application waits for one to end."""

SEGMENT_BYTES: Final = 600
"""Segment size that makes messages of one and of several segments."""

MAX_MESSAGE_BYTES: Final = 4_000


def payload_of(sender: str, number: int) -> bytes:
    """Return the message of a number: anybody can tell whether it is whole."""
    rng = random.Random(f"{sender}/{number}")
    size = rng.choice([20, SEGMENT_BYTES // 2, rng.randrange(MAX_MESSAGE_BYTES)])
    return b"%s/%d/" % (sender.encode(), number) + rng.randbytes(size)


def number_of(sender: str, payload: bytes) -> int:
    """Return the number of a sender's message; -1 where it is not what that sender sent."""
    name, _, rest = payload.partition(b"/")
    number = int(rest.partition(b"/")[0]) if name == sender.encode() else -1
    return number if payload == payload_of(sender, number) else -1


class Notebook:
    """Lines that outlive their writer.

    Args:
        path: Where they are; a line that its writer did not finish is removed.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        whole = path.read_bytes().rpartition(b"\n")
        os.ftruncate(self._file, len(whole[0] + whole[1]))
        self.lines: list[list[Any]] = [json.loads(line) for line in whole[0].splitlines()]
        """What was noted, by this writer and those before it."""

    def add(self, *line: Any) -> None:
        """Write a line; it is on the disk when this returns."""
        os.write(self._file, json.dumps(line).encode() + b"\n")
        os.fsync(self._file)
        self.lines.append(list(line))

    def of(self, kind: str) -> list[list[Any]]:
        """Return the lines of a kind, in order, without it."""
        return [line[1:] for line in self.lines if line[0] == kind]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class Talker:
    """The application on one side.

    Its notes are

    * ``begun NUMBER``: messages up to this number may have been sent,
    * ``sent NUMBER REQUEST``: ``send`` has returned,
    * ``event SEQUENCE NAME REQUEST SENDER NUMBER``: a durable event, of a message or a request.

    Args:
        channel: Open.
        notebook: Its own, and that of those before it.
        seed: Chooses how many messages it sends at once.
    """

    def __init__(self, channel: ReliableChannel, notebook: Notebook, seed: object) -> None:
        self._channel = channel
        self._notebook = notebook
        self._rng = random.Random(str(seed))
        self._noted = asyncio.Event()
        self._begun: int = max((number for (number,) in notebook.of("begun")), default=0)
        self._cursor: int = max((event[0] for event in notebook.of("event")), default=0)
        self._ended: set[str] = {event[2] for event in notebook.of("event") if event[1] in FINAL}
        self._sent: set[str] = {request for _, request in notebook.of("sent")}

    async def send_for_ever(self) -> None:
        """Send a few messages at once, again and again, as soon as not too much is under way."""
        while True:
            await self._until(lambda: len(self._sent - self._ended) < MAX_OPEN)
            await self.send(self._rng.randint(1, 5))

    async def send(self, count: int) -> None:
        """Send the next messages at once."""
        first = self._begun + 1
        self._begun += count
        self._notebook.add("begun", self._begun)
        async with asyncio.TaskGroup() as group:
            for number in range(first, first + count):
                group.create_task(self._send(number))

    async def _send(self, number: int) -> None:
        request_id = await self._channel.send(payload_of(self._channel.sender_id, number))
        self._notebook.add("sent", number, request_id)
        self._sent.add(request_id)

    async def listen(self) -> None:
        """Note each event after the last one noted, until the channel closes."""
        async with self._channel.events(after=self._cursor) as stream:
            async for event in stream:
                if not event.sequence:
                    continue
                request_id, sender, number = getattr(event, "request_id", None), None, None
                if isinstance(event, MessageReceivedEvent):
                    sender = event.sender_id
                    number = number_of(sender, event.message)
                self._notebook.add("event", event.sequence, event.name, request_id, sender, number)
                self._cursor = event.sequence
                if event.name in FINAL:
                    self._ended.add(str(request_id))
                self._noted.set()

    async def ended(self, count: int) -> None:
        """Wait until so many requests have ended, ever."""
        await self._until(lambda: len(self._ended) >= count)

    async def finish(self) -> None:
        """Wait until all requests have ended, those of sends that were cut short included, and that is noted.

        The end of one more message says so: events come in order.
        """
        await self._until(lambda: not self._channel.status().open_requests)
        await self.send(1)
        await self._until(lambda: self._sent <= self._ended)

    async def note_all(self) -> None:
        """Wait until all events so far are noted."""
        async with self._channel.events() as so_far:
            await self._until(lambda: self._cursor >= so_far.last_sequence)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._noted.clear()
            await self._noted.wait()
