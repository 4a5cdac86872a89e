"""Reliable channels over REST adapters on stand-in nodes: whatever breaks, each message once and in order.

Most of it runs in virtual time over the stand-ins' HTTP application; the rest over sockets.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from api.devnode.node import Node
from messaging_adapter import NodeConfig, WakuNode, create_node
from persistence import open_store
from reliable_channel import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    ReliableChannel,
    SdsConfig,
    SegmentationConfig,
    create_reliable_channel,
)
from reliable_channel.ports import MessageEnvelope
from tests.support.devnode import run_devnode
from tests.support.rest import TOPIC, StandIn, stand_in, until
from tests.support.virtual_loop import run_virtual, virtual_time

LIGHT = "publish=lightpush&receive=filter"
WAYS = ["", "publish=static&receive=static", LIGHT]
ALL_WAYS = [*WAYS, "publish=messaging&receive=messaging"]

SDS = SdsConfig(acknowledgement_timeout_ms=2_000, max_retransmissions=10, bloom_capacity=1_000)

MOST_IN_A_SECOND = 60
"""Requests of one adapter with one channel: polls, publications, questions to the store."""


class Listener:
    """What a channel tells, by kind."""

    def __init__(self, channel: ReliableChannel) -> None:
        self.received: list[bytes] = []
        self.delivered: list[str] = []
        self.ended: list[str] = []
        """Requests that were delivered, or whose acknowledgements did not get through in all their time."""
        self.errors: list[str] = []
        channel.on(MessageReceivedEvent.name, self._on_received)
        channel.on(MessageDeliveredEvent.name, self._on_delivered)
        channel.on(MessageDeliveryErrorEvent.name, self._on_unacknowledged)
        channel.on(MessageSendErrorEvent.name, self._on_error)

    def _on_received(self, event: Any) -> None:
        self.received.append(event.message)

    def _on_delivered(self, event: Any) -> None:
        self.delivered.append(event.request_id)
        self.ended.append(event.request_id)

    def _on_unacknowledged(self, event: Any) -> None:
        self.ended.append(event.request_id)

    def _on_error(self, event: Any) -> None:
        self.errors.append(event.error)


async def open_channel(
    node: WakuNode, sender: str, channel: str = "room", seed: int = 0
) -> ReliableChannel:
    return await create_reliable_channel(
        node, channel_id=channel, content_topic=TOPIC, sender_id=sender, seed=seed
    )


@asynccontextmanager
async def talk(
    network: StandIn, query: str = "", seed: int = 0
) -> AsyncIterator[tuple[ReliableChannel, Listener, ReliableChannel, Listener]]:
    async with AsyncExitStack() as stack:
        found: list[Any] = []
        for number, sender in enumerate(("alice", "bob")):
            node = await network.open(number, query=query, sds_config=SDS)
            await stack.enter_async_context(node)
            channel = await stack.enter_async_context(
                await open_channel(node, sender, seed=10 * seed + number)
            )
            found += [channel, Listener(channel)]
        yield found[0], found[1], found[2], found[3]


def named(count: int, prefix: str = "m") -> list[bytes]:
    return [b"%s%d" % (prefix.encode(), number) for number in range(count)]


FAULTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "loss": {"loss": 0.3},
    "duplicates": {"duplicate": 0.5},
    "disorder": {"reorder": 0.4, "delay_ms": 100, "jitter_ms": 500},
    "every third": {"drop_every": 3},
    "slow": {"answer_delay_ms": 900},
    "time-outs": {"timeout_rate": 0.1},
    "half-written": {"cut_rate": 0.3},
    "store lag": {"store_lag_s": 10.0, "loss": 0.3},
    "store loses": {"store_loss": 0.5, "loss": 0.2},
    "small cache": {"cache_capacity": 3},
    "old messaging API": {"messaging_api": "2026-08", "loss": 0.2},
    "everything": {
        "loss": 0.2,
        "duplicate": 0.2,
        "reorder": 0.2,
        "jitter_ms": 200,
        "cut_rate": 0.1,
        "timeout_rate": 0.05,
        "answer_delay_ms": 50,
        "store_lag_s": 3.0,
    },
}


@pytest.mark.parametrize("query", ALL_WAYS, ids=lambda query: query or "auto")
@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.timeout(120)
def test_every_message_arrives_once_and_in_order(faults: str, query: str) -> None:
    run_virtual(a_talk_is_heard_whole_and_in_order, faults, query)


@pytest.mark.parametrize("seed", [37, 365])
@pytest.mark.timeout(120)
def test_what_is_lost_in_the_first_moments_keeps_its_order(seed: int) -> None:
    """Seeds whose new channels once took a lost message for one from before their time, though its sender was heard."""
    run_virtual(a_talk_is_heard_whole_and_in_order, "everything", LIGHT, seed)


async def a_talk_is_heard_whole_and_in_order(faults: str, query: str, seed: int = 0) -> None:
    async with stand_in(**{"store_lag_s": 3.0, **FAULTS[faults]}) as network:
        async with talk(network, query, seed) as (alice, at_alice, bob, at_bob):
            for name in named(15):
                await alice.send(name)
                await bob.send(b"re " + name)
                await asyncio.sleep(0.3)
            await until(lambda: len(at_bob.received) == len(at_alice.received) == 15, 900)
            await until(lambda: len(at_bob.ended) >= 15 and len(at_alice.ended) >= 15, 900)
            await asyncio.sleep(30)
            assert len(set(at_bob.ended)) == len(at_bob.ended) == 15
            assert len(set(at_alice.ended)) == len(at_alice.ended) == 15
            assert at_bob.received == named(15)
            assert at_alice.received == [b"re " + name for name in named(15)]
            assert at_alice.errors == at_bob.errors == []
        for wire in network.wires:
            assert wire.most_in_a_second() <= MOST_IN_A_SECOND
        assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("query", ALL_WAYS, ids=lambda query: query or "auto")
@pytest.mark.timeout(120)
@virtual_time
async def test_nodes_that_are_restarted_again_and_again_lose_nothing(query: str) -> None:
    async with stand_in(store_lag_s=3.0) as network:
        async with talk(network, query) as (alice, at_alice, bob, at_bob):
            for number, name in enumerate(named(20)):
                await alice.send(name)
                await bob.send(b"re " + name)
                wire, node = network.wires[number % 2], network.nodes[number % 2]
                wire.down = True
                node.restart()
                await asyncio.sleep(number)
                wire.down = False
                await asyncio.sleep(1.5)
            await until(lambda: len(at_bob.received) == len(at_alice.received) == 20, 900)
            await asyncio.sleep(60)
            assert at_bob.received == named(20)
            assert at_alice.received == [b"re " + name for name in named(20)]
        for wire in network.wires:
            assert wire.most_in_a_second() <= MOST_IN_A_SECOND


@pytest.mark.parametrize("query", WAYS, ids=lambda query: query or "auto")
@pytest.mark.timeout(120)
@virtual_time
async def test_a_burst_beyond_the_cache_of_the_node_arrives(query: str) -> None:
    async with stand_in(store_lag_s=3.0) as network, talk(network, query) as (alice, _, _, at_bob):
        network.wires[1].hangs = True  # the cache fills meanwhile
        await asyncio.sleep(0.3)
        for name in named(120):
            await alice.send(name)
        await asyncio.sleep(20)
        network.wires[1].hangs = False
        await until(lambda: len(at_bob.received) == 120, 300)
        assert at_bob.received == named(120)


@virtual_time
async def test_large_messages_arrive_whole() -> None:
    async with (
        stand_in(loss=0.1, store_lag_s=3.0) as network,
        talk(network) as (alice, _, _, at_bob),
    ):
        payload = bytes(range(256)) * 2_000
        await alice.send(payload)
        await until(lambda: at_bob.received == [payload], 300)


def fails(node: Node) -> None:
    node.faults.answer("/relay/v1/auto/messages", 500, "oh no", times=10_000, method="POST")


def refuses(node: Node) -> None:
    node.faults.answer("/relay/v1/auto/messages", 400, "Failed to publish: bad", times=10_000)


def lonely(node: Node) -> None:
    node.faults.isolated = True


def busy(node: Node) -> None:
    node.faults.answer("/relay/v1/auto/messages", 429, "slowly", times=10_000, method="POST")


@pytest.mark.parametrize(
    ("break_it", "words", "within_s"),
    [
        (fails, "oh no", 200),
        (refuses, "Failed to publish: bad", 1),
        (lonely, "no peers", 200),
        (busy, "slowly", 200),
    ],
)
@virtual_time
async def test_what_cannot_be_sent_ends_in_an_error(
    break_it: Callable[[Node], None], words: str, within_s: float
) -> None:
    async with stand_in() as network, talk(network) as (alice, at_alice, _, _):
        break_it(network.nodes[0])
        await alice.send(b"hello")
        await until(lambda: bool(at_alice.errors), within_s)
        assert len(at_alice.errors) == 1
        assert words in at_alice.errors[0]
        assert network.wires[0].most_in_a_second() <= MOST_IN_A_SECOND


@virtual_time
async def test_a_service_that_starts_before_its_node_has_everything_in_the_end() -> None:
    store = open_store("memory://")
    async with stand_in() as network, await network.open(1, sds_config=SDS) as there:
        talking = await open_channel(there, "bob")
        async with (
            await network.open(0, store=store, sds_config=SDS) as node,
            await open_channel(node, "alice"),
        ):
            await talking.send(b"one")
            await asyncio.sleep(5)
        for name in named(30):
            await talking.send(name)
        await asyncio.sleep(100)
        network.wires[0].down = True
        async with (
            await network.open(0, store=store, sds_config=SDS) as node,
            await open_channel(node, "alice") as channel,
        ):
            heard = Listener(channel)
            await asyncio.sleep(60)
            network.wires[0].down = False
            await until(lambda: len(heard.received) == 30, 60)
            assert heard.received == named(30)
        await talking.close()


# --- Over sockets --------------------------------------------------------------------------------


async def over_http(url: str, query: str = "") -> WakuNode:
    speed = "poll_ms=50&confirm_ms=200&check_ms=300"
    transport = f"waku+{url}?{speed}" + (f"&{query}" if query else "")
    config = NodeConfig(
        transport=transport,
        sds_config=SDS,
        segmentation_config=SegmentationConfig(enable_reed_solomon=True),
    )
    return await create_node(config)


@pytest.mark.parametrize("query", ALL_WAYS, ids=lambda query: query or "auto")
async def test_two_nodes_over_sockets_with_loss(query: str) -> None:
    async with run_devnode(nodes=2, loss=0.2, store_lag_s=0.5) as devnode:
        async with AsyncExitStack() as stack:
            a = await stack.enter_async_context(await over_http(devnode.urls[0], query))
            b = await stack.enter_async_context(await over_http(devnode.urls[1], query))
            alice = await stack.enter_async_context(await open_channel(a, "alice"))
            bob = await stack.enter_async_context(await open_channel(b, "bob"))
            heard = Listener(bob)
            for name in named(10):
                await alice.send(name)
            await until(lambda: len(heard.received) == 10, 15)
            assert heard.received == named(10)
        assert [
            task.get_name() for task in asyncio.all_tasks() if "waku rest" in task.get_name()
        ] == []


@pytest.mark.timeout(60)
async def test_a_node_that_goes_and_comes_back_over_sockets() -> None:
    async with run_devnode(nodes=2) as devnode, AsyncExitStack() as stack:
        a = await stack.enter_async_context(await over_http(devnode.urls[0]))
        b = await stack.enter_async_context(await over_http(devnode.urls[1]))
        alice = await stack.enter_async_context(await open_channel(a, "alice"))
        bob = await stack.enter_async_context(await open_channel(b, "bob"))
        heard = Listener(bob)
        names = named(12)
        for number, name in enumerate(names):
            await alice.send(name)
            if number % 4 == 1:
                await devnode.stop()
                await alice.send(b"during " + name)
                await devnode.start()
        await until(lambda: len(heard.received) == 15, 40)
        assert [name for name in heard.received if not name.startswith(b"during")] == names
        assert len(set(heard.received)) == 15


async def test_half_written_answers_over_sockets() -> None:
    async with run_devnode(nodes=2, cut_rate=0.3) as devnode, AsyncExitStack() as stack:
        a = await stack.enter_async_context(await over_http(devnode.urls[0]))
        b = await stack.enter_async_context(await over_http(devnode.urls[1]))
        alice = await stack.enter_async_context(await open_channel(a, "alice"))
        bob = await stack.enter_async_context(await open_channel(b, "bob"))
        heard = Listener(bob)
        for name in named(5):
            await alice.send(name)
        await until(lambda: heard.received == named(5), 15)


async def test_two_adapters_on_one_node_steal_from_each_other_and_lose_nothing() -> None:
    async with run_devnode(nodes=1) as devnode, AsyncExitStack() as stack:
        a = await stack.enter_async_context(await over_http(devnode.url))
        b = await stack.enter_async_context(await over_http(devnode.url))
        alice = await stack.enter_async_context(await open_channel(a, "alice"))
        bob = await stack.enter_async_context(await open_channel(b, "bob"))
        at_alice, at_bob = Listener(alice), Listener(bob)
        for name in named(8):
            await alice.send(name)
            await bob.send(b"re " + name)
        await until(lambda: len(at_bob.received) == len(at_alice.received) == 8, 15)
        assert at_bob.received == named(8)


async def test_password_and_payload_are_in_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async with run_devnode() as devnode:
        with caplog.at_level(logging.DEBUG):
            url = devnode.url.replace("http://", "http://user:hunter2@")
            async with await over_http(url) as node:
                await node.subscribe([TOPIC])
                await node.send(MessageEnvelope(content_topic=TOPIC, payload=b"secret payload"))
                await asyncio.sleep(0.5)
                await devnode.stop()
                await asyncio.sleep(0.5)
    lines = "\n".join(record.getMessage() for record in caplog.records)
    assert "user:***@" in lines
    assert "hunter2" not in lines
    assert "secret" not in lines
    assert base64.b64encode(b"secret payload").decode() not in lines
