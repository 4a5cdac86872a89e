"""What strangers send, what the network carries, and a node that fails."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from reliable_channel import (
    MessageEnvelope,
    MessageSendErrorEvent,
    MessageSentEvent,
    NodeUnavailableError,
    PublishRejectedError,
    SegmentationConfig,
    SenderIdConflictEvent,
    create_reliable_channel,
)
from reliable_channel.core.wire import SdsMessage
from reliable_channel.traffic import MAX_INBOX_MESSAGES, WIRE_MARKER
from tests.support.failing_store import (
    TOPIC,
    pair,
    settle,
    side,
    soon,
)
from tests.support.virtual_loop import START_NS, virtual_time

# --- Strangers on the topic ----------------------------------------------------------------------


def sds(**fields: Any) -> bytes:
    usual: dict[str, Any] = {
        "sender_id": "mallory",
        "message_id": "m1",
        "channel_id": "room",
        "lamport_timestamp": START_NS // 1_000_000,
        "content": b"content",
    }
    return SdsMessage(**(usual | fields)).encode()


STRANGE = {
    "nothing": (b"", None),
    "bits": (b"\xff\xff\xff\xff", "malformed"),
    "text": (b"hello, is anybody there?", "malformed"),
    "foreign channel": (sds(channel_id="hall"), "foreign_channel"),
    "no channel": (sds(channel_id=""), "foreign_channel"),
    "no sender": (sds(sender_id=""), "invalid_sender_id"),
    "strange sender": (sds(sender_id="a\nb"), "invalid_sender_id"),
    "no message id": (sds(message_id=""), "invalid_message_id"),
    "long message id": (sds(message_id="m" * 1000), "invalid_message_id"),
    "far future": (sds(lamport_timestamp=1 << 63), "invalid_lamport_timestamp"),
    "truncated": (sds()[:-3], "malformed"),
}


@pytest.mark.parametrize("name", STRANGE)
@virtual_time
async def test_strange_bytes_are_counted_by_reason_and_harm_nobody(name: str) -> None:
    data, reason = STRANGE[name]
    async with pair() as (alice, bob):
        before = bob.channel.status()
        await alice.node.publish("strange", MessageEnvelope(content_topic=TOPIC, payload=data))
        await settle()
        dropped = bob.channel.status().dropped
        assert sum(dropped.values()) == 1
        if reason is not None:
            assert dropped == {reason: 1}
        assert bob.channel.status().known_messages == before.known_messages
        assert bob.seen == []
        assert await bob.log() == []
        await soon(alice.channel.wait_delivered(await alice.channel.send(b"hello")))
    assert bob.received == [b"hello"]


@virtual_time
async def test_random_bytes_never_stop_a_channel() -> None:
    rng = random.Random(1)
    whole = sds()
    async with pair() as (alice, bob):
        for _ in range(500):
            data = bytearray(whole if rng.random() < 0.7 else rng.randbytes(rng.randrange(200)))
            for _ in range(rng.randrange(1, 5)):
                if data:
                    data[rng.randrange(len(data))] = rng.randrange(256)
            envelope = MessageEnvelope(content_topic=TOPIC, payload=bytes(data))
            await alice.node.publish("strange", envelope)
        await settle()
        assert sum(bob.channel.status().dropped.values()) > 100
        await soon(alice.channel.wait_delivered(await alice.channel.send(b"hello")))
        assert b"hello" in bob.received


@virtual_time
async def test_channels_that_share_a_topic_do_not_hear_each_other() -> None:
    async with pair() as (alice, bob):
        halls = [
            await create_reliable_channel(item.node, "hall", TOPIC, item.sender_id)
            for item in (alice, bob)
        ]
        in_hall: list[Any] = []
        halls[1].on("reliable:message:received", in_hall.append)
        sends = [await alice.channel.send(b"room"), await halls[0].send(b"hall")]
        assert await soon(alice.channel.wait_delivered(sends[0])) == ("bob",)
        assert await soon(halls[0].wait_delivered(sends[1])) == ("bob",)
        assert [event.message for event in in_hall] == [b"hall"]
        assert halls[1].status().dropped["foreign_channel"] > 0
        await halls[0].close()
        await halls[1].close()
        await soon(alice.channel.wait_delivered(await alice.channel.send(b"room again")))
    assert bob.received == [b"room", b"room again"]


@virtual_time
async def test_messages_are_marked_and_unmarked_ones_accepted() -> None:
    async with pair() as (alice, bob):
        await alice.channel.send(b"marked")
        alice.node.is_marking = False
        await alice.channel.send(b"unmarked")
        await asyncio.sleep(10)
        assert {item.envelope.meta for item in alice.node.published} == {WIRE_MARKER}
    assert WIRE_MARKER == b"RELIABLE-CHANNEL-API/1"
    assert bob.received == [b"marked", b"unmarked"]


@virtual_time
async def test_more_than_the_inbox_holds_is_dropped_and_counted() -> None:
    async with pair() as (alice, bob):
        bob.store.before_commit_sec = 5.0
        for number in range(2 * MAX_INBOX_MESSAGES):
            envelope = MessageEnvelope(content_topic=TOPIC, payload=b"garbage %d" % number)
            await alice.node.publish("flood", envelope)
        await asyncio.sleep(30)
        dropped = bob.channel.status().dropped
        assert dropped["inbox_full"] > 0
        assert sum(dropped.values()) == 2 * MAX_INBOX_MESSAGES
        bob.store.before_commit_sec = 0.0
        await soon(alice.channel.wait_delivered(await alice.channel.send(b"hello")))
    assert bob.received == [b"hello"]


@virtual_time
async def test_somebody_with_our_sender_id_is_reported_once() -> None:
    async with side("alice") as alice, side("alice") as twin:
        for number in range(3):
            await twin.channel.send(b"%d" % number)
        await asyncio.sleep(10)
        conflicts = [item for item in alice.seen if isinstance(item, SenderIdConflictEvent)]
        assert len(conflicts) == 1
        assert conflicts[0].sender_id == "alice"


# --- A failing node ------------------------------------------------------------------------------


@virtual_time
async def test_what_the_node_cannot_take_now_is_tried_again() -> None:
    async with pair() as (alice, bob):
        alice.node.fail("publish", NodeUnavailableError("no peers"))
        request_id = await alice.channel.send(b"hello")
        await asyncio.sleep(20)
        assert alice.finals() == {}
        assert len(alice.node.published) > 2
        alice.node.recover()
        assert await soon(alice.channel.wait_delivered(request_id)) == ("bob",)
    assert bob.received == [b"hello"]


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(PublishRejectedError("invalid proof"), 1), (NodeUnavailableError("no peers"), 120)],
    ids=["rejected", "unavailable for long"],
)
@virtual_time
async def test_what_the_node_does_not_take_ends_in_a_send_error(
    error: Exception, seconds: float
) -> None:
    async with side("alice") as alice:
        alice.node.fail("publish", error)
        await alice.channel.send(b"hello")
        await asyncio.sleep(seconds)
        assert [type(event) for event in await alice.log()] == [MessageSendErrorEvent]
        assert str(error) in alice.seen[-1].error


@virtual_time
async def test_a_message_of_which_the_node_takes_only_a_part_ends_in_one_send_error() -> None:
    """A delivery error would say that it reached the network."""
    small = SegmentationConfig(segment_size_bytes=64)
    async with side("alice", segmentation=small, max_retransmissions=1) as alice:
        publish = alice.node.publish

        async def take_the_first(request_id: str, envelope: MessageEnvelope) -> bytes:
            if request_id.endswith(":2"):
                raise NodeUnavailableError("no peers")
            return await publish(request_id, envelope)

        alice.node.publish = take_the_first  # type: ignore[method-assign]
        request_id = await alice.channel.send(bytes(128))
        await asyncio.sleep(600)
    assert alice.finals() == {request_id: ["send-error"]}
    assert not any(isinstance(event, MessageSentEvent) for event in alice.seen)


@virtual_time
async def test_tries_that_the_node_cannot_take_use_up_no_retransmission() -> None:
    async with side("alice", max_retransmissions=3) as alice:
        request_id = await alice.channel.send(b"hello")
        await asyncio.sleep(4)
        alice.node.fail("publish", NodeUnavailableError("no peers"))
        await asyncio.sleep(20)
        tries = len(alice.node.published)
        assert tries > 4
        alice.node.recover()
        await asyncio.sleep(13)
        again = [item.request_id for item in alice.node.published[tries:]]
        # The silence may end in these 13 s, too: its sync is none of the tries.
        assert [item for item in again if not item.startswith("sync:")] == [f"{request_id}:1"]
        async with side("bob") as bob:  # late for this one, so he hears the next
            assert await soon(alice.channel.wait_delivered(request_id)) == ("bob",)
    assert bob.received == [b"hello"]
