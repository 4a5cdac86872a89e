"""Whether a message costs more with more channels open, and with more messages before it.

*Channels*: the public library, two nodes in one process and one event loop, stores in memory, a filter for 500 ids.
Each turn carries the same number of messages: all through one pair of channels, or spread over all pairs. Channels that
were given one message each have to acknowledge one each, where a single one names many in one sync; so the time until
all is received is told apart from the time until all is acknowledged.

*Messages*: two exchanges of machines in turns, one with 2,000 and one with 100,000 messages behind it.

Nothing here asserts a speed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.figures import Part, Table, figure
from benchmarks.machine_speed import Exchange, Turn
from messaging_adapter import NodeConfig, create_node
from reliable_channel import ReliableChannel, SdsConfig, create_reliable_channel
from reliable_channel.events import MessageDeliveredEvent, MessageReceivedEvent

CHANNELS: Final = 1_000
MESSAGES: Final = 1_000
ROUNDS: Final = 5
BLOOM_CAPACITY: Final = 500
PAYLOAD_BYTES: Final = 1024
WAIT_SEC: Final = 60.0

YOUNG: Final = 2_000
OLD: Final = 100_000
TURN: Final = 500
TURNS: Final = 8


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds of one turn.

    Attributes:
        received: Until all messages were received.
        acknowledged: Until all were acknowledged, too.
    """

    received: float
    acknowledged: float


class Pairs:
    """Channels of two participants each.

    Args:
        senders: One of each pair.
        receivers: The others.
    """

    def __init__(self, senders: list[ReliableChannel], receivers: list[ReliableChannel]) -> None:
        self.senders = senders
        self._received = Countdown()
        self._acknowledged = Countdown()
        for channel in receivers:
            channel.on(MessageReceivedEvent.name, self._received.count)
        for channel in senders:
            channel.on(MessageDeliveredEvent.name, self._acknowledged.count)

    @classmethod
    async def open(cls, stack: AsyncExitStack, count: int) -> Pairs:
        """Open so many pairs on two nodes of their own."""
        sides = []
        for who in ("alice", "bob"):
            config = NodeConfig(
                transport=f"memory://growth-{count}",
                sds_config=SdsConfig(bloom_capacity=BLOOM_CAPACITY),
            )
            node = await stack.enter_async_context(await create_node(config))
            channels = [
                await stack.enter_async_context(
                    await create_reliable_channel(
                        node, f"pair-{number}", f"/bench/1/pair-{number}/proto", who
                    )
                )
                for number in range(count)
            ]
            sides.append(channels)
        return cls(*sides)

    async def turn(self, messages: int) -> Spent:
        """Carry so many messages, spread over the pairs.

        Raises:
            TimeoutError: Not all came.
        """
        self._received.start(messages)
        self._acknowledged.start(messages)
        async with asyncio.timeout(WAIT_SEC):
            began = time.process_time()
            for number in range(messages):
                payload = number.to_bytes(8, "big") * (PAYLOAD_BYTES // 8)
                await self.senders[number % len(self.senders)].send(payload)
            await self._received.done.wait()
            received = time.process_time() - began
            await self._acknowledged.done.wait()
            return Spent(received, time.process_time() - began)


class Countdown:
    """Counts events down, and says when all have come."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self._left = 0

    def start(self, count: int) -> None:
        """Wait for so many."""
        self._left = count
        self.done.clear()

    def count(self, _: Any) -> None:
        """Note one."""
        self._left -= 1
        if not self._left:
            self.done.set()


async def measure_channels(
    channels: int, messages: int, rounds: int
) -> tuple[list[Spent], list[Spent]]:
    """Let many pairs and a single one take turns; one round before is not counted.

    Returns:
        The turns of many, and of one.
    """
    many: list[Spent] = []
    one: list[Spent] = []
    async with AsyncExitStack() as stack:
        several = await Pairs.open(stack, channels)
        single = await Pairs.open(stack, 1)
        for number in range(rounds + 1):
            found = await several.turn(messages), await single.turn(messages)
            if number:
                many.append(found[0])
                one.append(found[1])
    return many, one


def measure_messages(young: int, old: int, turn: int, turns: int) -> tuple[list[Turn], list[Turn]]:
    """Let an exchange with many messages behind it and one with few take turns.

    Returns:
        The turns of the old one, and of the young one, which is at ``young`` messages in the middle of them.
    """
    late, early = Exchange(), Exchange()
    late.turn(old - turn * turns // 2)
    early.turn(max(0, young - turn * turns // 2))
    pairs = [(late.turn(turn), early.turn(turn)) for _ in range(turns)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def channel_table(many: list[Spent], one: list[Spent], channels: int, messages: int) -> Table:
    """Return what a message costs with many channels, beside one."""

    def costs(found: list[Spent], of: Callable[[Spent], float]) -> list[float]:
        return [1e6 * of(item) / messages for item in found]

    return Table(
        f"CPU of a message with {channels:,} pairs of channels open beside one pair",
        tuple(
            figure(
                f"until {name}",
                "µs a message",
                costs(many, of),
                better="less",
                peer="one pair",
                theirs=costs(one, of),
            )
            for name, of in (
                ("received", lambda item: item.received),
                ("acknowledged", lambda item: item.acknowledged),
            )
        ),
        (
            f"{messages:,} messages a turn; with one each, each channel also acknowledges by a sync of its own",
        ),
    )


def message_table(late: list[Turn], early: list[Turn], young: int, old: int) -> Table:
    """Return what a message costs after many, beside after few."""

    def costs(found: list[Turn], name: str) -> list[float]:
        return [1e6 * float(getattr(item, name)) / item.messages for item in found]

    return Table(
        f"CPU of the {old:,}th message beside the {young:,}th",
        tuple(
            figure(
                name,
                "µs a message",
                costs(late, field),
                better="less",
                peer=f"{young:,}th",
                theirs=costs(early, field),
            )
            for name, field in (("send", "send"), ("receive with delivery", "receive"))
        ),
        ("both in one process, in turns; a turn of the garbage collector goes through both",),
    )


def tables() -> Iterator[Part]:
    """Measure both."""
    many, one = asyncio.run(measure_channels(CHANNELS, MESSAGES, ROUNDS))
    yield channel_table(many, one, CHANNELS, MESSAGES)
    late, early = measure_messages(YOUNG, OLD, TURN, TURNS)
    yield message_table(late, early, YOUNG, OLD)
