"""What was published and is not known to be stored: asked for, published again, at last given up.

It neither knows how a message is published nor what it costs: both are functions it is given. A
store that cannot be asked proves nothing, so nothing is repeated because of it.

Spec: P2P-RELIABILITY, Store-based reliability for publishing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from messaging_adapter.rest_client import Backoff
from messaging_adapter.rest_store import HASH_PAGE
from reliable_channel.core.wire import WakuMessage
from reliable_channel.errors import (
    NodeClosedError,
    NodeError,
    NodeUnavailableError,
    PublishRejectedError,
    ReliableChannelError,
)

MAX_OUTGOING: Final = 4_096
"""Messages held; the oldest is let go unconfirmed."""

MAX_OUTGOING_BYTES: Final = 32 << 20
"""Payload bytes of those."""

MAX_OUTCOMES: Final = 8_192
"""Outcomes kept for whoever asks."""

VALID_SEC: Final = 20.0
"""Relays that check proofs refuse a message that is older."""

logger = logging.getLogger("reliable_channel.messaging_adapter")


@dataclass(slots=True, eq=False)
class Outgoing:
    """A published message that no store is known to have."""

    message_hash: bytes
    message: WakuMessage
    since: float
    """When it was published first, by the loop's clock."""
    misses: int = 0
    """Answers of a store that did not name it."""
    outcome: asyncio.Future[bool] = field(repr=False, kw_only=True)


class Outbox:
    """Sees messages into a store. Run `run` and `run_again` as tasks.

    Args:
        present: Which of at most 100 hashes a store has.
        publish_again: Publishes a message once more, after waiting for the budget; false where
            that is not possible.
        period: Distance of questions, seconds.
        patience: When to give up, seconds.
        expires: Messages are worthless after 20 s: publish none again later.
    """

    def __init__(
        self,
        present: Callable[[Sequence[bytes]], Awaitable[set[bytes]]],
        publish_again: Callable[[WakuMessage], Awaitable[bool]],
        *,
        period: float,
        patience: float,
        expires: bool,
    ) -> None:
        self._present = present
        self._publish_again = publish_again
        self._period = period
        self._patience = patience
        self._expires = expires
        self._entries: OrderedDict[bytes, Outgoing] = OrderedDict()
        self._bytes = 0
        self._outcomes: OrderedDict[bytes, asyncio.Future[bool]] = OrderedDict()
        self._filled = asyncio.Event()
        self._again: OrderedDict[bytes, Outgoing] = OrderedDict()
        self._again_filled = asyncio.Event()
        self._closed = False
        self.confirmed = 0
        """Messages that a store has."""
        self.republished = 0
        """Messages handed over again."""
        self.given_up = 0
        """Messages that no store had in time."""
        self.dropped = 0
        """Messages let go because there were too many."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, message: WakuMessage, message_hash: bytes) -> None:
        """Hold a message that was published."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[bool] = loop.create_future()
        entry = Outgoing(message_hash, message, loop.time(), outcome=outcome)
        if self._closed or message_hash in self._entries:
            return
        self._entries[message_hash] = entry
        self._bytes += len(message.payload)
        self._outcomes[message_hash] = outcome
        if len(self._outcomes) > MAX_OUTCOMES:
            self._outcomes.popitem(last=False)
        while len(self._entries) > MAX_OUTGOING or self._bytes > MAX_OUTGOING_BYTES:
            if len(self._entries) == 1:
                break
            self.dropped += 1
            oldest = next(iter(self._entries.values()))
            unknown = "too much was waiting for a store to confirm it"
            self._settle(oldest, NodeUnavailableError(unknown))
        self._filled.set()

    async def outcome(self, message_hash: bytes) -> bool:
        """Wait until a store has a message, and return true.

        Raises:
            PublishRejectedError: No store had it in time: it is given up.
            NodeUnavailableError: No store could be asked; nothing is known.
            NodeClosedError: The node was closed.
        """
        outcome = self._outcomes.pop(message_hash, None)
        return await asyncio.shield(outcome) if outcome is not None else False

    def close(self) -> None:
        """Tell everybody who waits that nothing more will come."""
        self._closed = True
        for entry in tuple(self._entries.values()):
            self._settle(entry, NodeClosedError())

    async def run(self) -> None:
        """Ask the store, again and again, while there is something to ask for."""
        backoff = Backoff()
        while True:
            await self._filled.wait()
            await asyncio.sleep(self._period)
            try:
                await self._ask()
                backoff.reset()
            except Exception as error:
                unexpected = not isinstance(error, NodeError)
                logger.log(
                    logging.ERROR if unexpected else logging.DEBUG,
                    "messages cannot be confirmed: %s",
                    error,
                    exc_info=unexpected,
                )
                self._give_up(certain=False)
                await asyncio.sleep(backoff.after(error))
            if not self._entries:
                self._filled.clear()

    async def run_again(self) -> None:
        """Publish again what was found missing, one after the other."""
        while True:
            await self._again_filled.wait()
            while self._again:
                _, entry = self._again.popitem(last=False)
                if entry.outcome.done():
                    continue
                try:
                    self.republished += await self._publish_again(entry.message)
                except Exception as error:
                    unexpected = not isinstance(error, ReliableChannelError)
                    words = "a message was not published again: %s"
                    logger.log(
                        logging.ERROR if unexpected else logging.DEBUG,
                        words,
                        error,
                        exc_info=unexpected,
                    )
            self._again_filled.clear()

    async def _ask(self) -> None:
        # One that is younger than a period may be on its way to the store.
        old = asyncio.get_running_loop().time() - self._period * 0.9
        due = [entry for entry in self._entries.values() if entry.since <= old]
        for first in range(0, len(due), HASH_PAGE):
            part = due[first : first + HASH_PAGE]
            found = await self._present([entry.message_hash for entry in part])
            for entry in part:
                if entry.outcome.done():
                    continue
                if entry.message_hash in found:
                    self.confirmed += 1
                    self._settle(entry)
                else:
                    self._missed(entry)
        self._give_up(certain=True)

    def _missed(self, entry: Outgoing) -> None:
        """Publish again at the misses 1, 2, 4, 8 …: a store lags, and the budget is finite."""
        entry.misses += 1
        age = asyncio.get_running_loop().time() - entry.since
        useful = age < (min(VALID_SEC, self._patience) if self._expires else self._patience)
        if useful and entry.misses & (entry.misses - 1) == 0:
            self._again[entry.message_hash] = entry
            self._again_filled.set()

    def _give_up(self, *, certain: bool) -> None:
        old = asyncio.get_running_loop().time() - self._patience
        for entry in [entry for entry in self._entries.values() if entry.since <= old]:
            if certain or entry.misses:
                self.given_up += 1
                text = f"no store had the message within {self._patience:g} s"
                self._settle(entry, PublishRejectedError(text))
            else:
                text = f"no store could be asked within {self._patience:g} s"
                self._settle(entry, NodeUnavailableError(text))

    def _settle(self, entry: Outgoing, error: NodeError | None = None) -> None:
        del self._entries[entry.message_hash]
        self._bytes -= len(entry.message.payload)
        self._again.pop(entry.message_hash, None)
        if entry.outcome.done():
            return
        if error is None:
            entry.outcome.set_result(True)
        else:
            entry.outcome.set_exception(error)
            entry.outcome.exception()  # nobody has to ask
