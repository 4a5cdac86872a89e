"""The relay of tests: it passes messages on, keeps them, and outlives nodes that go within a frame."""

from __future__ import annotations

import asyncio

from reliable_channel import MessageEnvelope
from reliable_channel.ports import IncomingMessage
from reliable_channel.volatile import VolatileStore
from tests.support.failing_store import TOPIC, soon
from tests.support.relay import Relay, RelayNode, relay_node


def envelope(payload: bytes, *, ephemeral: bool = False) -> MessageEnvelope:
    return MessageEnvelope(content_topic=TOPIC, payload=payload, ephemeral=ephemeral)


async def node_of(relay: Relay, name: str) -> RelayNode:
    store = VolatileStore()
    await store.open()
    return await relay_node(relay.path, name, store)


async def test_messages_are_passed_on_kept_and_found() -> None:
    got: asyncio.Queue[IncomingMessage] = asyncio.Queue()
    async with (
        Relay() as relay,
        await node_of(relay, "alice") as alice,
        await node_of(relay, "bob") as bob,
    ):
        await bob.subscribe_topic(TOPIC, got.put_nowait)
        await alice.subscribe_topic(TOPIC, got.put_nowait)
        key = await alice.publish("1", envelope(b"kept"))
        await alice.publish("2", envelope(b"gone", ephemeral=True))
        first, second = await soon(got.get()), await soon(got.get())
        assert (first.payload, second.payload) == (b"kept", b"gone")
        assert got.empty()
        assert await bob.lookup([key, bytes(32)]) == [first]
        assert await bob.query(TOPIC, first.timestamp_ns) == [first]
        assert await bob.query(TOPIC, first.timestamp_ns + 1) == []
        assert [(name, message.payload) for name, message in relay.published] == [
            ("alice", b"kept"),
            ("alice", b"gone"),
        ]


async def test_what_is_lost_on_its_way_is_kept() -> None:
    got: asyncio.Queue[IncomingMessage] = asyncio.Queue()
    async with (
        Relay(loss=1.0) as relay,
        await node_of(relay, "alice") as alice,
        await node_of(relay, "bob") as bob,
    ):
        await bob.subscribe_topic(TOPIC, got.put_nowait)
        key = await alice.publish("1", envelope(b"kept"))
        assert [item.payload for item in await bob.lookup([key])] == [b"kept"]
        assert got.empty()


async def test_a_node_that_dies_within_a_frame_and_one_that_is_left_alone() -> None:
    async with Relay() as relay:
        _, writer = await asyncio.open_unix_connection(relay.path)
        writer.write(b"\0\0\1\0half")
        writer.close()
        await writer.wait_closed()
        node = await node_of(relay, "alice")
        reached = asyncio.Event()
        relay.when("alice", "publish", 2, reached.set)
        await node.publish("1", envelope(b"a"))
        assert not reached.is_set()
        await node.publish("2", envelope(b"b"))
        assert reached.is_set()
    await soon(node.lost.wait())
    await node.close()
