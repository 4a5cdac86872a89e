"""Counted subscriptions: who holds which content topic, and when it is joined and left.

The network is reached through two functions of the node; nothing here knows how, or what an
application is.

Spec: MESSAGING-API, Subscriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from messaging_adapter.events import HandlerGuard
from reliable_channel.ports import IncomingMessage, MessageHandler


class Holding:
    """One holder's interest in a content topic; implements ``Subscription``.

    Args:
        owner: Where it is held.
        content_topic: What is held.
        handler: Gets the messages.
    """

    __slots__ = ("_owner", "content_topic", "handler")

    def __init__(self, owner: Subscriptions, content_topic: str, handler: MessageHandler) -> None:
        self._owner = owner
        self.content_topic = content_topic
        self.handler = handler

    async def close(self) -> None:
        """Stop receiving; harmless when repeated."""
        await self._owner.release(self)


class Subscriptions:
    """The holders of each content topic: the first one joins it, the last one leaves it.

    Joins and leaves happen one after another, so that a topic which is held again while it is being
    left ends up joined.

    Args:
        join: Makes the network deliver a content topic.
        leave: Ends that; must not raise.
        guard: Calls the handlers.
    """

    def __init__(
        self,
        *,
        join: Callable[[str], Awaitable[None]],
        leave: Callable[[str], Awaitable[None]],
        guard: HandlerGuard,
    ) -> None:
        self._join = join
        self._leave = leave
        self._guard = guard
        self._holders: dict[str, dict[Holding, None]] = {}
        self._joined: set[str] = set()
        self._turn = asyncio.Lock()

    async def hold(self, content_topic: str, handler: MessageHandler) -> Holding:
        """Give a handler the messages of a content topic from now on.

        Raises:
            NodeError: The topic could not be joined; nothing was changed.
        """
        holding = Holding(self, content_topic, handler)
        # Held before it is joined: nothing that comes in between is missed.
        self._holders.setdefault(content_topic, {})[holding] = None
        try:
            async with self._turn:
                if content_topic not in self._joined:
                    await self._join(content_topic)
                    self._joined.add(content_topic)
        except BaseException:
            self._remove(holding)
            raise
        return holding

    async def release(self, holding: Holding) -> None:
        """Give a handler nothing more, and leave the topic when it has no other holder."""
        self._remove(holding)
        topic = holding.content_topic
        async with self._turn:
            if topic in self._joined and topic not in self._holders:
                self._joined.discard(topic)
                await self._leave(topic)

    def dispatch(self, message: IncomingMessage) -> None:
        """Call the handlers of the message's content topic."""
        for holding in tuple(self._holders.get(message.content_topic, ())):
            self._guard.call(holding.handler, message)

    def clear(self) -> None:
        """Forget all holders without leaving anything: the network is gone."""
        self._holders.clear()
        self._joined.clear()

    def _remove(self, holding: Holding) -> None:
        holders = self._holders.get(holding.content_topic, {})
        holders.pop(holding, None)
        if not holders:
            self._holders.pop(holding.content_topic, None)
