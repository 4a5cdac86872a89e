"""Counted subscriptions: join with the first holder, leave with the last, whatever overlaps."""

from __future__ import annotations

import asyncio

import pytest

from messaging_adapter.events import HandlerGuard
from messaging_adapter.subscriptions import Subscriptions
from reliable_channel.clock import LoopClock
from reliable_channel.errors import NodeUnavailableError
from reliable_channel.ports import IncomingMessage
from tests.support.virtual_loop import START_NS, virtual_time

A, B = "/app/1/a/proto", "/app/1/b/proto"


class Network:
    """Notes joins and leaves, a second each; fails on demand."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failing = False
        self.guard = HandlerGuard(LoopClock(asyncio.get_running_loop(), START_NS))
        self.table = Subscriptions(join=self.join, leave=self.leave, guard=self.guard)

    async def join(self, content_topic: str) -> None:
        await asyncio.sleep(1)
        if self.failing:
            raise NodeUnavailableError
        self.calls.append(f"+{content_topic[7]}")

    async def leave(self, content_topic: str) -> None:
        await asyncio.sleep(1)
        self.calls.append(f"-{content_topic[7]}")


def message(content_topic: str = A) -> IncomingMessage:
    return IncomingMessage(content_topic=content_topic, payload=b"p", message_hash=bytes(32))


def ignore(_: IncomingMessage) -> None:
    pass


@virtual_time
async def test_first_joins_last_leaves() -> None:
    network = Network()
    first = await network.table.hold(A, ignore)
    second = await network.table.hold(A, ignore)
    await first.close()
    assert network.calls == ["+a"]
    await second.close()
    assert network.calls == ["+a", "-a"]


@virtual_time
async def test_closing_twice_counts_once() -> None:
    network = Network()
    first = await network.table.hold(A, ignore)
    await network.table.hold(A, ignore)
    await first.close()
    await first.close()
    assert network.calls == ["+a"]


@virtual_time
async def test_holders_that_come_together_join_once_and_both_wait_for_it() -> None:
    network = Network()
    await asyncio.gather(network.table.hold(A, ignore), network.table.hold(A, ignore))
    assert network.calls == ["+a"]


@virtual_time
async def test_a_topic_held_again_while_it_is_left_ends_up_joined() -> None:
    network = Network()
    held = await network.table.hold(A, ignore)
    leaving = asyncio.create_task(held.close())
    await asyncio.sleep(0.5)
    await network.table.hold(A, ignore)
    await leaving
    assert network.calls == ["+a", "-a", "+a"]


@virtual_time
async def test_a_topic_held_again_before_it_is_left_stays_joined() -> None:
    network = Network()
    held = await network.table.hold(A, ignore)
    other = asyncio.create_task(network.table.hold(B, ignore))
    await asyncio.sleep(0.5)
    leaving = asyncio.create_task(held.close())
    again = asyncio.create_task(network.table.hold(A, ignore))
    await asyncio.gather(other, leaving, again)
    assert network.calls == ["+a", "+b"]


@virtual_time
async def test_a_join_that_fails_changes_nothing() -> None:
    network = Network()
    network.failing = True
    seen: list[IncomingMessage] = []
    with pytest.raises(NodeUnavailableError):
        await network.table.hold(A, seen.append)
    network.table.dispatch(message())
    network.failing = False
    await network.table.hold(A, seen.append)
    assert (seen, network.calls) == ([], ["+a"])


@virtual_time
async def test_a_cancelled_join_changes_nothing() -> None:
    network = Network()
    holding = asyncio.create_task(network.table.hold(A, ignore))
    await asyncio.sleep(0.5)
    holding.cancel()
    await asyncio.wait([holding])
    await (await network.table.hold(A, ignore)).close()
    assert network.calls == ["+a", "-a"]


@virtual_time
async def test_messages_go_to_the_holders_of_their_topic() -> None:
    network = Network()
    seen: list[str] = []
    first = await network.table.hold(A, lambda m: seen.append(f"1 {m.content_topic[7]}"))
    await network.table.hold(A, lambda m: seen.append(f"2 {m.content_topic[7]}"))
    await network.table.hold(B, lambda m: seen.append(f"3 {m.content_topic[7]}"))
    network.table.dispatch(message(A))
    network.table.dispatch(message(B))
    network.table.dispatch(message("/app/1/c/proto"))
    assert seen == ["1 a", "2 a", "3 b"]
    closing = asyncio.create_task(first.close())
    await asyncio.sleep(0)
    network.table.dispatch(message(A))
    await closing
    assert seen == ["1 a", "2 a", "3 b", "2 a"]


@virtual_time
async def test_what_arrives_while_joining_is_not_missed() -> None:
    network = Network()
    seen: list[IncomingMessage] = []
    holding = asyncio.create_task(network.table.hold(A, seen.append))
    await asyncio.sleep(0.5)
    network.table.dispatch(message())
    await holding
    assert seen == [message()]


@virtual_time
async def test_a_handler_that_raises_keeps_nothing_from_the_others() -> None:
    network = Network()
    seen: list[IncomingMessage] = []

    def fail(_: IncomingMessage) -> None:
        raise RuntimeError

    await network.table.hold(A, fail)
    await network.table.hold(A, seen.append)
    network.table.dispatch(message())
    assert (seen, network.guard.errors) == ([message()], 1)


@virtual_time
async def test_after_clear_nobody_is_called_and_nothing_is_left() -> None:
    network = Network()
    seen: list[IncomingMessage] = []
    held = await network.table.hold(A, seen.append)
    network.table.clear()
    network.table.dispatch(message())
    await held.close()
    assert (seen, network.calls) == ([], ["+a"])
