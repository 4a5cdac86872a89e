"""The network in memory: parameters, faults, delivery, store, life cycle."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from messaging_adapter import (
    AutoShardingConfig,
    MessageEnvelope,
    NodeConfig,
    ProtocolsConfig,
    WakuNode,
    create_node,
)
from messaging_adapter.faults import LinkFaults
from messaging_adapter.memory import (
    MAX_SEEN_HASHES,
    MemoryNetwork,
    MessageArchive,
    NetworkParameters,
)
from reliable_channel.clock import LoopClock
from reliable_channel.core.wire import WakuMessage, waku_message_hash
from reliable_channel.errors import ConfigurationError
from reliable_channel.ports import IncomingMessage
from reliable_channel.types import MS, SECOND
from tests.support.virtual_loop import START_NS, run_virtual, virtual_time

TOPIC = "/app/1/room/proto"
OTHER = "/app/1/hall/proto"


async def open_node(transport: str = "memory://lab", **fields: Any) -> WakuNode:
    config = NodeConfig(transport=transport, **fields)
    return await create_node(config, clock=LoopClock(asyncio.get_running_loop(), START_NS))


@asynccontextmanager
async def open_nodes(count: int, transport: str = "memory://lab") -> AsyncIterator[list[WakuNode]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(await open_node(transport)) for _ in range(count)]


def envelope(number: int = 0, content_topic: str = TOPIC, **fields: Any) -> MessageEnvelope:
    return MessageEnvelope(content_topic=content_topic, payload=b"%d" % number, **fields)


async def listen(node: WakuNode, content_topic: str = TOPIC) -> list[int]:
    seen: list[int] = []
    await node.subscribe_topic(content_topic, lambda message: seen.append(int(message.payload)))
    return seen


# --- Parameters ----------------------------------------------------------------------------------


def test_parameters_are_read_from_the_url() -> None:
    url = "memory://lab?loss=0.2&duplicate=.05&reorder=0.1&delay_ms=50&jitter_ms=10&seed=7"
    faults = LinkFaults(loss=0.2, duplicate=0.05, reorder=0.1, delay_ms=50, jitter_ms=10)
    assert NetworkParameters.parse(url) == NetworkParameters(name="lab", faults=faults, seed=7)
    assert NetworkParameters.parse("memory://lab") == NetworkParameters(name="lab")


@pytest.mark.parametrize(
    "url", ["memory://lab", "memory://lab?loss=0.2&delay_ms=1.5&seed=7", "memory://a.b-c_1?seed=-3"]
)
def test_parameters_are_shown_as_a_url(url: str) -> None:
    assert str(NetworkParameters.parse(url)) == url
    assert str(NetworkParameters.parse(url + ("&" if "?" in url else "?") + "reorder=0")) == url


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("memory://", "needs a name"),
        ("memory://?loss=0.1", "needs a name"),
        ("memory://lab/room", "needs a name"),
        ("memory://lab#x", "needs a name"),
        ("memory://[lab", "unreadable name"),
        ("memory://lab?lose=0.1", "no parameter 'lose'; it has loss, duplicate, reorder"),
        ("memory://lab?loss=20%25", "loss must be a number, not '20%'"),
        ("memory://lab?loss=", "loss must be a number, not ''"),
        ("memory://lab?loss", "loss must be a number, not ''"),
        ("memory://lab?seed=1.5", "seed must be a whole number"),
        ("memory://lab?loss=1.5", "loss must be from 0.0 to 1.0"),
        ("memory://lab?delay_ms=nan", "delay_ms must be from"),
        ("memory://lab?loss=0.1&loss=0.2", "loss is given twice"),
    ],
)
@virtual_time
async def test_bad_parameters_are_refused(url: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem.replace("?", r"\?")):
        await open_node(url)


def test_all_bad_parameters_are_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        NetworkParameters.parse("memory://lab?a=1&b=2&loss=x")
    assert len(caught.value.problems) == 3


@virtual_time
async def test_other_parameters_for_an_open_network_are_refused_showing_both() -> None:
    async with await open_node("memory://lab?loss=0.2&seed=1"):
        async with await open_node("memory://lab?seed=1&loss=0.20"):
            pass
        with pytest.raises(ConfigurationError) as caught:
            await open_node("memory://lab?loss=0.3")
        assert "memory://lab?loss=0.2&seed=1" in str(caught.value)
        assert "memory://lab?loss=0.3" in str(caught.value)
    async with await open_node("memory://lab?loss=0.3"):
        pass


def test_a_network_belongs_to_one_event_loop() -> None:
    async def inner() -> None:
        with pytest.raises(ConfigurationError, match="another event loop"):
            await open_node()

    async def outer() -> None:
        async with await open_node():
            await asyncio.to_thread(asyncio.run, inner())

    asyncio.run(outer())


def test_a_network_whose_loop_is_gone_is_forgotten() -> None:
    async def leak() -> None:
        await open_node("memory://leak?loss=0.5")

    async def again() -> None:
        async with await open_node("memory://leak?loss=0.1"):
            pass

    run_virtual(leak)
    gc.collect()
    run_virtual(again)


# --- Delivery ------------------------------------------------------------------------------------


@virtual_time
async def test_all_but_the_publisher_hear_a_message() -> None:
    async with open_nodes(4) as nodes:
        heard = [await listen(node) for node in nodes]
        await nodes[1].publish("r", envelope(5))
        await asyncio.sleep(1)
    assert heard == [[5], [], [5], [5]]


@virtual_time
async def test_everything_of_a_message_arrives() -> None:
    async with open_nodes(2) as (alice, bob):
        seen: list[IncomingMessage] = []
        await bob.subscribe_topic(TOPIC, seen.append)
        await alice.publish("r", envelope(1, meta=b"RELIABLE-CHANNEL-API/1", ephemeral=True))
        message_hash = await alice.publish("r", envelope(2))
        await asyncio.sleep(1)
    assert seen[0].meta == b"RELIABLE-CHANNEL-API/1"
    assert seen[0].ephemeral
    assert seen[0].timestamp_ns == START_NS
    assert seen[1] == IncomingMessage(
        content_topic=TOPIC, payload=b"2", message_hash=message_hash, timestamp_ns=START_NS + 1
    )


@pytest.mark.parametrize("version", [None, 0])
@virtual_time
async def test_a_version_that_is_absent_is_0(version: int | None) -> None:
    """14/WAKU2-MESSAGE: no layer of ours asks for it, and ours leave it out."""
    async with open_nodes(2) as (alice, bob):
        seen: list[IncomingMessage] = []
        await bob.subscribe_topic(TOPIC, seen.append)
        message = WakuMessage(payload=b"1", content_topic=TOPIC, version=version, timestamp=5)
        message_hash = await alice._transmit(message, message.encode())
        await asyncio.sleep(1)
        assert await bob.lookup([message_hash]) == seen
    expected = IncomingMessage(
        content_topic=TOPIC, payload=b"1", message_hash=message_hash, timestamp_ns=5
    )
    assert seen == [expected]
    assert message_hash == waku_message_hash(
        bob.pubsub_topic(TOPIC), replace(message, version=None)
    )


@virtual_time
async def test_our_messages_leave_the_version_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []

    def broadcast(_network: MemoryNetwork, _node: WakuNode, _topic: str, data: bytes) -> bytes:
        sent.append(data)
        return bytes(32)

    monkeypatch.setattr(MemoryNetwork, "broadcast", broadcast)
    async with open_nodes(1) as (alice,):
        await alice.publish("r", envelope(1))
    assert [WakuMessage.decode(data).version for data in sent] == [None]


@pytest.mark.parametrize("timestamp", [None, 0])
@virtual_time
async def test_a_timestamp_that_is_absent_is_0(timestamp: int | None) -> None:
    async with open_nodes(2) as (alice, bob):
        seen: list[IncomingMessage] = []
        await bob.subscribe_topic(TOPIC, seen.append)
        message = WakuMessage(payload=b"1", content_topic=TOPIC, timestamp=timestamp)
        await alice._transmit(message, message.encode())
        await asyncio.sleep(1)
        assert await bob.query(TOPIC, 0) == seen
    assert [message.timestamp_ns for message in seen] == [0]


@virtual_time
async def test_delivery_is_never_a_nested_call() -> None:
    async with open_nodes(2) as (alice, bob):
        heard = await listen(bob)
        await alice.publish("r", envelope())
        assert heard == []
        await asyncio.sleep(0.001)
        assert heard == [0]


@virtual_time
async def test_topics_shards_and_clusters_are_apart() -> None:
    clusters = [
        ProtocolsConfig(),
        ProtocolsConfig(cluster_id=2),
        ProtocolsConfig(auto_sharding_config=AutoShardingConfig(num_shards_in_cluster=1)),
    ]
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(await open_node(protocols_config=cluster))
            for cluster in [*clusters, *clusters]
        ]
        topic = next(
            name
            for name in (f"/app{number}/1/room/proto" for number in range(99))
            if not nodes[0].pubsub_topic(name).endswith("/0")
        )
        heard = [await listen(node, topic) for node in nodes[3:]]
        elsewhere = await listen(nodes[3], OTHER)
        for number, node in enumerate(nodes[:3]):
            await node.publish("r", envelope(number, topic))
            assert len(await node.query(topic, 0)) == 1
        await asyncio.sleep(1)
    assert heard == [[0], [1], [2]]
    assert elsewhere == []


@virtual_time
async def test_unsubscribed_nodes_hear_nothing_even_of_what_is_under_way() -> None:
    async with open_nodes(2, "memory://lab?delay_ms=100") as (alice, bob):
        seen: list[IncomingMessage] = []
        held = await bob.subscribe_topic(TOPIC, seen.append)
        await alice.publish("r", envelope())
        await held.close()
        await alice.publish("r", envelope())
        await asyncio.sleep(1)
    assert seen == []


@virtual_time
async def test_messages_arrive_in_order_without_faults() -> None:
    async with open_nodes(2, "memory://lab?delay_ms=5") as (alice, bob):
        heard = await listen(bob)
        for number in range(100):
            await alice.publish("r", envelope(number))
        await asyncio.sleep(1)
    assert heard == list(range(100))


@virtual_time
async def test_delay_and_jitter_take_their_time() -> None:
    loop = asyncio.get_running_loop()
    async with open_nodes(2, "memory://lab?delay_ms=300&jitter_ms=50&seed=1") as (alice, bob):
        took: list[float] = []
        started = loop.time()
        await bob.subscribe_topic(TOPIC, lambda _: took.append(loop.time() - started))
        for number in range(500):
            await alice.publish("r", envelope(number))
        await asyncio.sleep(1)
    assert 0.300 <= min(took) < 0.305
    assert 0.345 < max(took) <= 0.350001


@virtual_time
async def test_faults_have_their_rates_and_are_drawn_for_each_receiver() -> None:
    url = "memory://lab?loss=0.2&duplicate=0.05&reorder=0.1&seed=1"
    async with open_nodes(4, url) as (alice, *others):
        heard = [await listen(node) for node in others]
        for number in range(4_000):
            await alice.publish("r", envelope(number))
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)
    counts = [Counter(numbers) for numbers in heard]
    for numbers, count in zip(heard, counts, strict=True):
        assert len(count) == pytest.approx(3_200, rel=0.03)
        assert sum(n == 2 for n in count.values()) == pytest.approx(160, rel=0.25)
        assert numbers != sorted(numbers)
    missed_by_all = 4_000 - len(counts[0] | counts[1] | counts[2])
    assert missed_by_all == pytest.approx(4_000 * 0.2**3, rel=0.5)


@pytest.mark.parametrize("rate", [0, 1])
@virtual_time
async def test_extreme_losses(rate: int) -> None:
    async with open_nodes(2, f"memory://lab?loss={rate}") as (alice, bob):
        heard = await listen(bob)
        message_hash = await alice.publish("r", envelope(3))
        await asyncio.sleep(1)
        assert heard == [3] * (1 - rate)
        assert len(await bob.lookup([message_hash])) == 1


def test_the_same_seed_gives_the_same_run() -> None:
    async def run(seed: int) -> list[list[int]]:
        url = f"memory://lab?loss=0.3&duplicate=0.1&reorder=0.1&jitter_ms=9&seed={seed}"
        async with open_nodes(3, url) as nodes:
            heard = [await listen(node) for node in nodes]
            for number in range(300):
                await nodes[number % 3].publish("r", envelope(number))
                await asyncio.sleep(0.002)
            await asyncio.sleep(1)
            return heard

    first = run_virtual(run, 1)
    assert run_virtual(run, 1) == first
    assert run_virtual(run, 2) != first


@virtual_time
async def test_request_ids_follow_the_seed_too() -> None:
    ids = []
    for _ in range(2):
        async with open_nodes(2) as nodes:
            ids.append([await node.send(envelope()) for node in nodes])
    assert ids[0] == ids[1]
    assert ids[0][0] != ids[0][1]


@virtual_time
async def test_an_equal_message_of_another_node_is_a_repetition() -> None:
    """Relays drop what they have seen, by hash; only the link doubles messages."""
    async with open_nodes(3) as (alice, bob, carol):
        heard = await listen(carol)
        hashes = {await node.publish("r", envelope(1)) for node in (alice, bob)}
        await asyncio.sleep(1)
        assert len(hashes) == 1
        assert heard == [1]
        assert len(await carol.query(TOPIC, 0)) == 1


@virtual_time
async def test_repetitions_are_known_for_a_bounded_number_of_messages() -> None:
    async with open_nodes(3) as (alice, bob, carol):
        heard = await listen(carol)
        await alice.publish("r", envelope(1, ephemeral=True))
        for _ in range(MAX_SEEN_HASHES):
            await alice.publish("r", envelope(2, OTHER, ephemeral=True))
        await bob.publish("r", envelope(1, ephemeral=True))
        await asyncio.sleep(1)
    assert heard == [1, 1]


# --- Life cycle ----------------------------------------------------------------------------------


@virtual_time
async def test_after_close_nothing_under_way_arrives() -> None:
    async with open_nodes(3, "memory://lab?delay_ms=100") as (alice, bob, carol):
        heard = await listen(bob), await listen(carol)
        await alice.publish("r", envelope(1))
        await bob.close()
        await asyncio.sleep(1)
        await alice.publish("r", envelope(2))
        await asyncio.sleep(1)
    assert heard == ([], [1, 2])


@virtual_time
async def test_what_is_under_way_survives_its_publisher() -> None:
    async with open_nodes(2, "memory://lab?delay_ms=100") as (alice, bob):
        heard = await listen(bob)
        await alice.publish("r", envelope(1))
        await alice.close()
        await asyncio.sleep(1)
    assert heard == [1]


@virtual_time
async def test_the_store_lasts_as_long_as_a_node() -> None:
    async with await open_node() as alice:
        message_hash = await alice.publish("r", envelope(1))
        async with await open_node() as bob:
            await alice.close()
            assert len(await bob.lookup([message_hash])) == 1
            async with await open_node() as carol:
                assert len(await carol.query(TOPIC, 0)) == 1
    async with await open_node() as alice:
        assert await alice.query(TOPIC, 0) == []


@virtual_time
async def test_networks_of_other_names_are_apart() -> None:
    async with await open_node("memory://a") as alice, await open_node("memory://b") as bob:
        heard = await listen(bob)
        message_hash = await alice.publish("r", envelope(1))
        await asyncio.sleep(1)
        assert heard == []
        assert await bob.lookup([message_hash]) == []


# --- Store ---------------------------------------------------------------------------------------


@virtual_time
async def test_the_store_is_queried_by_topic_and_time_and_looked_up_by_hash() -> None:
    async with open_nodes(2) as (alice, bob):
        hashes = []
        for number in range(5):
            hashes.append(await alice.publish("r", envelope(number)))
            await alice.publish("r", envelope(number, OTHER))
            await asyncio.sleep(1)
        since = await bob.query(TOPIC, START_NS + 2 * SECOND)
        assert [int(message.payload) for message in since] == [2, 3, 4]
        found = await bob.lookup([hashes[3], bytes(32), hashes[1], hashes[3]])
        assert [int(message.payload) for message in found] == [3, 1]
        assert await bob.query("/app/1/empty/proto", 0) == []


@virtual_time
async def test_ephemeral_messages_are_delivered_but_not_stored() -> None:
    async with open_nodes(2) as (alice, bob):
        heard = await listen(bob)
        message_hash = await alice.publish("r", envelope(1, ephemeral=True))
        await asyncio.sleep(1)
        assert heard == [1]
        assert await bob.lookup([message_hash]) == []
        assert await bob.query(TOPIC, 0) == []


def stored(number: int, content_topic: str = TOPIC) -> IncomingMessage:
    return IncomingMessage(
        content_topic=content_topic,
        payload=b"%d" % number,
        message_hash=number.to_bytes(32, "big"),
        timestamp_ns=number * MS,
    )


def numbers(archive: MessageArchive, content_topic: str = TOPIC) -> list[int]:
    return [int(message.payload) for message in archive.query("p", content_topic, 0)]


def test_the_store_is_bounded_by_count() -> None:
    archive = MessageArchive(max_messages=3)
    for number in range(5):
        archive.add(stored(number, TOPIC if number % 2 else OTHER), "p", 1)
    assert numbers(archive) == [3]
    assert numbers(archive, OTHER) == [2, 4]
    assert archive.lookup([stored(1).message_hash]) == []


def test_the_store_is_bounded_by_bytes() -> None:
    archive = MessageArchive(max_bytes=100)
    for number in range(5):
        archive.add(stored(number), "p", 40)
    assert numbers(archive) == [3, 4]
    archive.add(stored(9), "p", 1_000)
    assert numbers(archive) == [9]


def test_an_emptied_topic_leaves_the_store() -> None:
    archive = MessageArchive(max_messages=1)
    archive.add(stored(1), "p", 1)
    archive.add(stored(2, OTHER), "p", 1)
    assert (numbers(archive), numbers(archive, OTHER)) == ([], [2])


def test_the_store_answers_by_time_not_by_arrival() -> None:
    archive = MessageArchive()
    for number in (2, 0, 1):
        archive.add(stored(number), "p", 1)
    assert numbers(archive) == [0, 1, 2]
    assert archive.query("another", TOPIC, 0) == []
