"""The driver of one channel: sending, waiting, a failing node or store, strangers, closing, dying."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from messaging_adapter import NodeConfig, create_node
from messaging_adapter.memory import MemoryNode
from reliable_channel import (
    ChannelClosedError,
    ChannelFailedError,
    ChannelFullError,
    ConfigurationError,
    EmptyPayloadError,
    IdempotencyConflictError,
    InvalidPayloadError,
    LeaseLostError,
    MessageDeliveredEvent,
    MessageEnvelope,
    MessageSendErrorEvent,
    MessageSentEvent,
    MessageTooLargeError,
    NodeUnavailableError,
    PublishRejectedError,
    RateLimitConfig,
    ReliableChannelError,
    RequestFailedError,
    RequestNotFoundError,
    SdsConfig,
    SegmentationConfig,
    SenderIdConflictEvent,
    SendOutcomeUnknownError,
    StoreClosedError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    create_reliable_channel,
)
from reliable_channel.channel import (
    CLOSE_COMMIT_SEC,
    CLOSE_RELEASE_SEC,
    MAX_BATCH,
    MAX_INBOX_MESSAGES,
    WIRE_MARKER,
)
from reliable_channel.core.wire import SdsMessage
from reliable_channel.records import RequestRecord
from tests.support.failing_store import (
    TOPIC,
    Committed,
    FailingStore,
    Published,
    assert_store_came_first,
    outcome,
    pair,
    settle,
    side,
    soon,
    virtual_clock,
)
from tests.support.virtual_loop import START_NS, virtual_time


def our_tasks() -> list[str]:
    return [
        task.get_name()
        for task in asyncio.all_tasks()
        if task.get_name().startswith("reliable-channel")
    ]


def now_sec() -> float:
    return asyncio.get_running_loop().time()


# --- send ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ephemeral", [False, True])
@virtual_time
async def test_a_send_returns_an_id_of_its_own_at_once(*, ephemeral: bool) -> None:
    async with pair() as (alice, _):
        ids = [await alice.channel.send(b"same", ephemeral=ephemeral) for _ in range(5)]
        assert now_sec() == 0
    assert len(set(ids)) == 5
    assert all(ids)


@pytest.mark.parametrize("ephemeral", [False, True])
@virtual_time
async def test_a_request_ends_in_exactly_one_final_event(*, ephemeral: bool) -> None:
    async with pair() as (alice, bob):
        request_id = await alice.channel.send(b"hello", ephemeral=ephemeral)
        await asyncio.sleep(120)
    assert bob.received == [b"hello"]
    assert bob.seen[0].sender_id == "alice"
    assert bob.seen[0].ephemeral is ephemeral
    names = [event.name for event in alice.seen if event.sequence]
    sent, delivered = "reliable:message:sent", "reliable:message:delivered"
    assert names == ([sent] if ephemeral else [sent, delivered])
    assert {event.request_id for event in alice.seen} == {request_id}


@virtual_time
async def test_messages_arrive_whole_and_in_the_order_of_their_sends() -> None:
    payloads = [random.Random(number).randbytes(1 + number * 20_000) for number in range(20)]
    async with pair() as (alice, bob):
        await asyncio.gather(*(alice.channel.send(payload) for payload in payloads))
        await asyncio.sleep(30)
    assert bob.received == payloads


@pytest.mark.parametrize("kind", [bytearray, memoryview])
@virtual_time
async def test_anything_like_bytes_is_copied_when_it_is_sent(kind: Callable[..., Any]) -> None:
    buffer = bytearray(b"hello")
    async with pair() as (alice, bob):
        alice.store.before_commit_sec = 1.0
        sending = asyncio.create_task(alice.channel.send(kind(buffer)))
        await settle()
        buffer[:] = b"later"
        await sending
        await asyncio.sleep(1)
    assert bob.received == [b"hello"]


BAD_PAYLOADS = [
    (b"", EmptyPayloadError),
    (bytearray(), EmptyPayloadError),
    ("text", InvalidPayloadError),
    (None, InvalidPayloadError),
    (5, InvalidPayloadError),
    ([104, 105], InvalidPayloadError),
    (bytes(27 << 20), MessageTooLargeError),
]


@pytest.mark.parametrize(
    ("payload", "error"),
    BAD_PAYLOADS,
    ids=["empty", "empty-array", "text", "none", "number", "list", "large"],
)
@pytest.mark.parametrize("ephemeral", [False, True])
@virtual_time
async def test_an_unusable_payload_is_refused_and_changes_nothing(
    payload: Any, error: type[Exception], *, ephemeral: bool
) -> None:
    async with pair() as (alice, _):
        before, commits = alice.channel.status(), alice.store.commits
        for send in (alice.channel.send, alice.channel.send_nowait):
            with pytest.raises(error) as caught:
                await send(payload, ephemeral=ephemeral)
            assert isinstance(caught.value, ReliableChannelError)
            assert str(caught.value).isprintable()
            assert 10 < len(str(caught.value)) < 200
        await settle()
        assert alice.channel.status() == before
        assert alice.store.commits == commits
        assert (alice.seen, alice.node.published) == ([], [])


@virtual_time
async def test_the_largest_payload_is_what_the_channel_says() -> None:
    small = SegmentationConfig(segment_size_bytes=64)
    async with pair(segmentation=small, bloom_capacity=100) as (alice, bob):
        limit = alice.channel.max_payload_bytes
        with pytest.raises(MessageTooLargeError) as caught:
            await alice.channel.send(bytes(limit + 1))
        assert (caught.value.size, caught.value.limit) == (limit + 1, limit)
        payload = random.Random(1).randbytes(limit)
        request_id = await alice.channel.send(payload)
        assert await soon(alice.channel.wait_delivered(request_id)) == ("bob",)
    assert bob.received == [payload]


@virtual_time
async def test_a_payload_that_will_never_have_room_is_refused_at_once() -> None:
    async with pair(max_outgoing_bytes=100) as (alice, _):
        assert alice.channel.max_payload_bytes == 100
        with pytest.raises(MessageTooLargeError, match=r"101.*100"):
            await soon(alice.channel.send(bytes(101)), 1)


# --- Back-pressure -------------------------------------------------------------------------------


@virtual_time
async def test_a_send_waits_while_the_channel_is_full() -> None:
    async with side("alice", max_outgoing_messages=2, max_retransmissions=1) as alice:
        for _ in range(2):
            await alice.channel.send(b"x")
        sending = asyncio.create_task(alice.channel.send(b"y"))
        await asyncio.sleep(9.9)
        assert not sending.done()
        assert alice.channel.status().open_requests == 2
        await asyncio.sleep(0.2)  # nobody hears: both end in a delivery error after 10 s
        assert sending.done()
        assert alice.channel.status().open_requests == 1


@virtual_time
async def test_waiting_sends_go_on_in_their_order() -> None:
    async with pair(max_outgoing_bytes=100) as (alice, bob):
        sizes = [60, 90, 10, 10, 80, 5, 5, 100, 1]
        payloads = [b"%d" % number * size for number, size in enumerate(sizes)]
        order: list[int] = []

        async def send(number: int) -> None:
            await alice.channel.send(payloads[number])
            order.append(number)

        await soon(asyncio.gather(*(send(number) for number in range(len(sizes)))), 300)
        await asyncio.sleep(10)
        assert alice.channel.status().open_bytes == 0
    assert order == list(range(len(sizes)))
    assert bob.received == payloads


@virtual_time
async def test_bytes_and_messages_both_fill_a_channel() -> None:
    async with side("alice", max_outgoing_messages=3, max_outgoing_bytes=100) as alice:
        await alice.channel.send(bytes(90))
        with pytest.raises(ChannelFullError):
            await alice.channel.send_nowait(bytes(11))
        await alice.channel.send_nowait(bytes(5))
        await alice.channel.send_nowait(bytes(5))
        with pytest.raises(ChannelFullError) as caught:
            await alice.channel.send_nowait(b"x")
        assert (caught.value.messages, caught.value.octets) == (3, 100)


@virtual_time
async def test_sending_without_waiting_stores_nothing_when_full() -> None:
    async with side("alice", max_outgoing_messages=1) as alice:
        await alice.channel.send_nowait(b"x")
        await settle()
        before, commits = alice.channel.status(), alice.store.commits
        with pytest.raises(ChannelFullError, match="full") as caught:
            await alice.channel.send_nowait(b"y")
        assert str(caught.value).isprintable()
        assert "wait" in str(caught.value)
        await settle()
        assert alice.channel.status() == before
        assert alice.store.commits == commits
        assert len(alice.node.published) == 1


@virtual_time
async def test_sending_without_waiting_does_not_overtake_those_who_wait() -> None:
    async with side("alice", max_outgoing_bytes=100) as alice:
        await alice.channel.send(bytes(60))
        waiting = asyncio.create_task(alice.channel.send(bytes(50)))
        await settle()
        with pytest.raises(ChannelFullError):
            await alice.channel.send_nowait(bytes(10))
        waiting.cancel()
        await settle()
        assert await soon(alice.channel.send_nowait(bytes(10)), 1)


@virtual_time
async def test_of_sends_without_waiting_at_once_those_that_fit_are_taken() -> None:
    async with side("alice", max_outgoing_messages=3) as alice:
        outcomes = await asyncio.gather(
            *(alice.channel.send_nowait(b"x") for _ in range(5)), return_exceptions=True
        )
        assert [type(item) for item in outcomes] == [str] * 3 + [ChannelFullError] * 2
        assert alice.channel.status().open_requests == 3


@virtual_time
async def test_a_cancelled_wait_for_room_sends_nothing() -> None:
    async with pair(max_outgoing_messages=1) as (alice, bob):
        first = await alice.channel.send(b"first")
        second = asyncio.create_task(alice.channel.send(b"second"))
        third = asyncio.create_task(alice.channel.send(b"third"))
        await settle()
        before = alice.channel.status()
        second.cancel()
        await settle()
        assert alice.channel.status() == before
        await soon(alice.channel.wait_delivered(first))
        await soon(alice.channel.wait_delivered(await third))
        assert second.cancelled()
        assert set(alice.finals()) == {first, third.result()}
    assert bob.received == [b"first", b"third"]


@virtual_time
async def test_a_cancelled_wait_for_room_lets_the_next_one_pass() -> None:
    async with side("alice", max_outgoing_bytes=100) as alice:
        await alice.channel.send(bytes(60))
        large = asyncio.create_task(alice.channel.send(bytes(50)))
        small = asyncio.create_task(alice.channel.send(bytes(30)))
        await settle()
        assert not small.done()
        large.cancel()
        await settle()
        assert small.done()


@pytest.mark.parametrize("after_sec", [0.0, 0.5, 1.0, 1.5])
@virtual_time
async def test_a_send_that_is_cancelled_at_any_time_is_sent_whole_or_not_at_all(
    after_sec: float,
) -> None:
    async with pair() as (alice, bob):
        alice.store.before_commit_sec = 1.0
        sending = asyncio.create_task(alice.channel.send(bytes(250_000)))
        await asyncio.sleep(after_sec)
        sending.cancel()
        await asyncio.sleep(30)
        assert alice.channel.status().open_requests == 0
        assert [len(payload) for payload in bob.received] in ([], [250_000])
        assert list(alice.finals().values()) == [["delivered"]] * len(bob.received)


# --- wait_delivered ------------------------------------------------------------------------------


@virtual_time
async def test_waiting_for_delivery_returns_who_has_it() -> None:
    async with pair() as (alice, _), side("carol"):
        request_id = await alice.channel.send(b"hello")
        first = await soon(alice.channel.wait_delivered(request_id))
        assert set(first) <= {"bob", "carol"}
        assert len(first) > 0
        await asyncio.sleep(30)
        later = await soon(alice.channel.wait_delivered(request_id))
        assert later[: len(first)] == first


@virtual_time
async def test_many_may_wait_for_one_delivery() -> None:
    async with pair() as (alice, _):
        request_id = await alice.channel.send(b"hello")
        waits = [alice.channel.wait_delivered(request_id, timeout=30) for _ in range(5)]
        assert await soon(asyncio.gather(*waits)) == [("bob",)] * 5


@pytest.mark.parametrize("when", ["before", "after"])
@virtual_time
async def test_waiting_for_a_delivery_that_fails_raises_why(when: str) -> None:
    async with side("alice", max_retransmissions=0) as alice:
        request_id = await alice.channel.send(b"hello")
        if when == "after":
            await asyncio.sleep(10)
        with pytest.raises(RequestFailedError) as caught:
            await soon(alice.channel.wait_delivered(request_id))
        assert caught.value.request_id == request_id
        assert caught.value.event_name == "reliable:message:delivery-error"
        assert caught.value.error == alice.seen[-1].error
        assert str(caught.value).isprintable()


@virtual_time
async def test_waiting_may_end_before_the_request_does() -> None:
    async with side("alice") as alice:
        request_id = await alice.channel.send(b"hello")
        for seconds in (0, 3):
            with pytest.raises(TimeoutError):
                await alice.channel.wait_delivered(request_id, timeout=seconds)
        assert now_sec() == 3
        assert not alice.channel.request_status(request_id).is_final
        waiting = asyncio.create_task(alice.channel.wait_delivered(request_id))
        await settle()
        waiting.cancel()
        async with side("bob"):
            assert await soon(alice.channel.wait_delivered(request_id)) == ("bob",)
        assert waiting.cancelled()


@virtual_time
async def test_an_unknown_request_is_an_error() -> None:
    async with side("alice") as alice:
        with pytest.raises(RequestNotFoundError, match="'nothing'"):
            await alice.channel.wait_delivered("nothing")
        with pytest.raises(RequestNotFoundError, match="'nothing'"):
            alice.channel.request_status("nothing")


@virtual_time
async def test_waiting_ends_when_the_channel_closes() -> None:
    async with side("alice") as alice:
        request_id = await alice.channel.send(b"hello")
        waiting = asyncio.create_task(alice.channel.wait_delivered(request_id))
        await settle()
        await alice.channel.close()
        for wait in (waiting, alice.channel.wait_delivered(request_id)):
            with pytest.raises(ChannelClosedError):
                await soon(wait)


@virtual_time
async def test_an_ephemeral_request_ends_when_it_is_sent() -> None:
    async with side("alice") as alice:
        alice.node.publish_sec = 2.0
        request_id = await alice.channel.send(b"hello", ephemeral=True)
        for _ in range(2):
            assert await soon(alice.channel.wait_delivered(request_id)) == ()
            assert now_sec() == 2


@virtual_time
async def test_waiting_returns_the_recipients_also_when_sent_and_delivered_come_together() -> None:
    """Both are in one transaction when the store is slow and the acknowledgement quick."""
    async with pair(acknowledgement_timeout_ms=200) as (alice, _):
        alice.store.before_commit_sec = 1.0
        alice.node.publish_sec = 0.5
        request_id = await alice.channel.send(b"one")
        waiting = asyncio.create_task(alice.channel.wait_delivered(request_id))
        await alice.channel.send(b"two")
        assert await soon(waiting) == ("bob",)


@virtual_time
async def test_waiting_for_requests_that_are_soon_forgotten_harms_nobody() -> None:
    async with side("alice", max_finished_requests=1) as alice:
        alice.store.before_commit_sec = 1.0
        alice.node.publish_sec = 0.1
        ids = await asyncio.gather(
            *(alice.channel.send(b"x", ephemeral=True) for _ in range(3)),
        )
        waits = [asyncio.create_task(alice.channel.wait_delivered(item)) for item in ids]
        assert [await outcome(wait) for wait in waits] == [()] * 3
        assert await soon(alice.channel.send(b"still working"))


@virtual_time
async def test_a_delivery_is_not_told_before_it_is_durable() -> None:
    async with pair() as (alice, _):
        request_id = await alice.channel.send(b"hello")
        await settle()
        alice.store.fail()
        await asyncio.sleep(10)
        assert isinstance(await outcome(alice.channel.wait_delivered(request_id), 1), TimeoutError)
        alice.store.recover()
        assert await soon(alice.channel.wait_delivered(request_id)) == ("bob",)


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


# --- A failing store -----------------------------------------------------------------------------


@virtual_time
async def test_nothing_is_published_or_shown_before_its_commit() -> None:
    """Effects are carried out in the order persist, publish, fetch, emit."""
    async with pair() as (alice, bob):
        for item in (alice, bob):
            item.store.before_commit_sec = 0.2
        await asyncio.gather(
            *(item.channel.send(bytes(150_000)) for item in (alice, bob) for _ in range(5))
        )
        await asyncio.sleep(60)
        for item in (alice, bob):
            assert len(item.received) == 5
            assert len([entry for entry in item.trace if isinstance(entry, Published)]) > 10
            assert_store_came_first(item.trace)


@virtual_time
async def test_a_send_that_cannot_be_stored_was_never_made() -> None:
    async with pair() as (alice, bob):
        before, published = alice.channel.status(), len(alice.node.published)
        alice.store.fail()
        for ephemeral in (False, True):
            for send in (alice.channel.send, alice.channel.send_nowait):
                with pytest.raises(StoreUnavailableError, match="disk full"):
                    await soon(send(bytes(250_000), ephemeral=ephemeral))
        await asyncio.sleep(20)
        alice.store.recover()
        await asyncio.sleep(20)
        after = alice.channel.status()
        for name in ("open_requests", "open_bytes", "waiting", "in_flight", "known_messages"):
            assert getattr(after, name) == getattr(before, name), name
        assert len(alice.node.published) == published
        assert alice.seen == []
        rows = await alice.store.kept.read_events("room", after=0, limit=10)
        assert rows == []
        assert bob.received == []


@virtual_time
async def test_a_channel_recovers_with_its_store() -> None:
    async with pair() as (alice, bob):
        await soon(alice.channel.wait_delivered(await alice.channel.send(b"before")))
        alice.store.fail()
        assert isinstance(await outcome(alice.channel.send(b"lost")), StoreUnavailableError)
        await asyncio.sleep(30)
        alice.store.recover()
        await asyncio.sleep(6)
        request_id = await soon(alice.channel.send(b"after"), 1)
        assert await soon(alice.channel.wait_delivered(request_id)) == ("bob",)
        assert alice.sequences == [1, 2, 3, 4]
        assert [event.sequence for event in await alice.log()] == [1, 2, 3, 4]
        assert list(alice.finals().values()) == [["delivered"]] * 2
    assert bob.received == [b"before", b"after"]


@virtual_time
async def test_causal_order_survives_sends_that_could_not_be_stored() -> None:
    """What follows a withdrawn message must not name it: nobody could ever deliver it."""
    async with pair() as (alice, bob):
        for number in range(6):
            if number % 2:
                alice.store.fail()
            result = await outcome(alice.channel.send(b"%d" % number))
            assert isinstance(result, StoreUnavailableError if number % 2 else str)
            alice.store.recover()
            await asyncio.sleep(6)
        assert bob.received == [b"0", b"2", b"4"]
        assert bob.channel.status().missing_messages == 0
        assert bob.channel.status().parked_messages == 0


@virtual_time
async def test_what_comes_in_while_the_store_fails_is_delivered_once_it_works() -> None:
    payloads = [b"%d" % number for number in range(30)]
    async with pair() as (alice, bob):
        bob.store.fail()
        for payload in payloads:
            await alice.channel.send(payload)
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)
        assert bob.seen == []
        assert alice.finals() == {}, "what is not durable must not be acknowledged"
        bob.store.recover()
        await asyncio.sleep(30)
        assert bob.received == payloads
        assert bob.sequences == list(range(1, 31))
        assert [event.message for event in await bob.log()] == payloads
        assert list(alice.finals().values()) == [["delivered"]] * 30


@virtual_time
async def test_what_the_node_reports_while_the_store_fails_is_shown_once_it_works() -> None:
    async with pair() as (alice, _):
        alice.node.publish_sec = 1.0
        await alice.channel.send(b"hello")
        alice.store.fail()
        await asyncio.sleep(20)
        assert alice.seen == []
        alice.store.recover()
        await asyncio.sleep(20)
        names = [type(event) for event in alice.seen if event.sequence]
        assert names == [MessageSentEvent, MessageDeliveredEvent]


@virtual_time
async def test_the_log_holds_no_event_of_a_send_that_was_not_stored() -> None:
    """Also where it would have had to wait for the epoch budget."""
    limit = RateLimitConfig(enabled=True, epoch_period_sec=600, messages_per_epoch=2)
    async with side("alice", rate_limit=limit) as alice:
        for _ in range(4):
            await alice.channel.send(b"x")
        await settle()
        alice.store.fail()
        assert isinstance(await outcome(alice.channel.send(b"lost")), StoreUnavailableError)
        alice.store.recover()
        await asyncio.sleep(6)
        await alice.channel.send(b"after")
        await asyncio.sleep(1)
        log = await alice.log()
        assert log == [event for event in alice.seen if event.sequence]
        assert alice.sequences == list(range(1, len(log) + 1))
        for event in log:
            assert alice.channel.request_status(event.request_id)


# --- A store whose answer is lost ----------------------------------------------------------------

UNKNOWN = StoreOutcomeUnknownError("hung up")
APPLIED = pytest.mark.parametrize("call", ["answer", "commit"], ids=["applied", "not applied"])


@APPLIED
@virtual_time
async def test_a_send_whose_outcome_is_unknown_waits_until_it_is_stored(call: str) -> None:
    async with pair() as (alice, bob):
        alice.store.fail(call, UNKNOWN)
        sending = asyncio.create_task(alice.channel.send(b"hello"))
        await settle()
        alice.store.fail()  # and then plainly: that says nothing of the first attempt
        waiting = asyncio.create_task(alice.channel.send(b"refused"))
        await asyncio.sleep(20)
        assert not sending.done()
        refused = await outcome(waiting)
        assert type(refused) is StoreUnavailableError
        assert len(alice.node.published) == 0
        alice.store.recover()
        request_id = await soon(sending)
        assert await soon(alice.channel.wait_delivered(request_id)) == ("bob",)
        assert list(alice.finals()) == [request_id]
    assert bob.received == [b"hello"]
    assert_store_came_first(alice.trace)


@virtual_time
async def test_who_waits_for_a_turn_while_an_outcome_is_unknown_is_refused_plainly() -> None:
    async with side("alice") as alice:
        alice.store.fail("answer", UNKNOWN)
        first = asyncio.create_task(alice.channel.send(b"first"))
        await settle()
        second = await outcome(alice.channel.send(b"second"))
        assert type(second) is StoreUnavailableError
        assert str(second) == "hung up"
        alice.store.recover()
        await soon(first)
        assert alice.channel.status().open_requests == 1


@APPLIED
@virtual_time
async def test_a_close_while_the_outcome_is_unknown_says_so(call: str) -> None:
    """What is sent after the next opening was not reported as not sent."""
    async with pair() as (alice, bob):
        alice.store.fail(call, UNKNOWN)
        sends = [
            asyncio.create_task(alice.channel.send(b"hello", idempotency_key="k")) for _ in range(2)
        ]
        await settle()
        alice.store.fail()
        await asyncio.sleep(3)
        await soon(alice.channel.close(), 1)
        assert [type(await outcome(task)) for task in sends] == [SendOutcomeUnknownError] * 2
        alice.store.recover()
        await alice.open()
        assert alice.channel.status().open_requests == (call == "answer")
        request_id = await soon(alice.channel.send(b"hello", idempotency_key="k"))
        assert await soon(alice.channel.wait_delivered(request_id)) == ("bob",)
    assert bob.received == [b"hello"]


@virtual_time
async def test_a_channel_that_dies_while_the_outcome_is_unknown_says_so() -> None:
    async with side("alice") as alice:
        alice.store.fail("answer", UNKNOWN)
        sending = asyncio.create_task(alice.channel.send(b"hello"))
        await settle()
        alice.store.fail("commit", LeaseLostError("room"))
        assert isinstance(await outcome(sending), SendOutcomeUnknownError)
        assert isinstance(await outcome(alice.channel.send(b"x")), ChannelFailedError)


@virtual_time
async def test_a_send_that_is_being_stored_when_the_node_closes_is_told_the_truth() -> None:
    async with side("alice") as alice:
        alice.store.before_commit_sec = 1.0
        sending = asyncio.create_task(alice.channel.send(b"hello"))
        await asyncio.sleep(0.5)
        await alice.node.close()
        assert isinstance(await outcome(alice.channel.send(b"x")), ChannelFailedError)
        assert isinstance(await outcome(sending), str), "it is stored, and goes out later"


@virtual_time
async def test_an_unknown_outcome_of_the_nodes_ledger_sends_nothing() -> None:
    """Only what was counted may be stored there, never the message."""
    node_store, own_store = FailingStore(), FailingStore()
    limit = RateLimitConfig(enabled=True, epoch_period_sec=600, messages_per_epoch=9)
    config = NodeConfig(
        transport="memory://lab",
        sds_config=SdsConfig(persistence=node_store),
        rate_limit_config=limit,
    )
    async with await create_node(config, clock=virtual_clock()) as node:
        channel = await create_reliable_channel(
            node, "room", TOPIC, "alice", sds_config=SdsConfig(persistence=own_store)
        )
        node_store.fail("answer", UNKNOWN)
        assert type(await outcome(channel.send(b"hello"))) is StoreUnavailableError
        node_store.recover()
        await channel.close()
        assert channel.status().open_requests == 0


# --- Idempotency keys ----------------------------------------------------------------------------


@pytest.mark.parametrize("ephemeral", [False, True])
@virtual_time
async def test_a_repeat_returns_the_first_id_and_stores_and_sends_nothing(
    *, ephemeral: bool
) -> None:
    async with pair() as (alice, bob):
        first = await alice.channel.send(b"hello", ephemeral=ephemeral, idempotency_key="k")
        await asyncio.sleep(120)
        commits, published = alice.store.commits, len(alice.node.published)
        for send in (alice.channel.send, alice.channel.send_nowait):
            assert await send(b"hello", ephemeral=ephemeral, idempotency_key="k") == first
        assert now_sec() == 120
        await settle()
        assert (alice.store.commits, len(alice.node.published)) == (commits, published)
        assert await soon(alice.channel.wait_delivered(first)) == (() if ephemeral else ("bob",))
    assert bob.received == [b"hello"]


@virtual_time
async def test_another_message_under_a_known_key_is_refused() -> None:
    async with pair() as (alice, bob):
        first = await alice.channel.send(b"hello", idempotency_key="k")
        for send in (alice.channel.send, alice.channel.send_nowait):
            for payload, ephemeral in ((b"other", False), (b"hello", True)):
                with pytest.raises(IdempotencyConflictError, match="'k'"):
                    await send(payload, ephemeral=ephemeral, idempotency_key="k")
            for key in ("", "x" * 256, "a\n", 5):
                bad: Any = key
                with pytest.raises(ConfigurationError, match=r"^idempotency_key"):
                    await send(b"hello", idempotency_key=bad)
        assert await alice.channel.send(b"hello", idempotency_key="k") == first
        await asyncio.sleep(10)
    assert bob.received == [b"hello"]


@pytest.mark.parametrize("after_sec", [0.0, 0.5, 1.0])
@virtual_time
async def test_repeats_at_any_time_return_once_the_first_is_stored(after_sec: float) -> None:
    """Together with it, while it is being stored, and while its transaction ends."""
    async with pair() as (alice, bob):
        alice.store.before_commit_sec = 1.0
        sends = [asyncio.create_task(alice.channel.send(b"hello", idempotency_key="k"))]
        await asyncio.sleep(after_sec)
        sends += [
            asyncio.create_task(send(b"hello", idempotency_key="k"))
            for send in (alice.channel.send, alice.channel.send_nowait)
        ]
        other = asyncio.create_task(alice.channel.send(b"other", idempotency_key="k"))
        assert isinstance(await outcome(other), IdempotencyConflictError)
        assert after_sec == 1.0 or not any(task.done() for task in sends)
        ids = [await task for task in sends]
        assert now_sec() == pytest.approx(1.0)
        assert len(set(ids)) == 1
        alice.store.before_commit_sec = 0.0
        await asyncio.sleep(10)
        assert list(alice.finals().items()) == [(ids[0], ["delivered"])]
        assert_store_came_first(alice.trace)
    assert bob.received == [b"hello"]


@pytest.mark.parametrize("after_sec", [0.0, 0.5])
@virtual_time
async def test_a_send_and_its_repeats_fail_together_and_the_key_is_free_again(
    after_sec: float,
) -> None:
    async with pair() as (alice, bob):
        alice.store.fail()
        alice.store.before_commit_sec = 1.0
        sends = [asyncio.create_task(alice.channel.send(b"hello", idempotency_key="k"))]
        await asyncio.sleep(after_sec)
        sends += [
            asyncio.create_task(alice.channel.send(b"hello", idempotency_key="k")) for _ in range(3)
        ]
        outcomes = [await outcome(task) for task in sends]
        assert [type(item) for item in outcomes] == [StoreUnavailableError] * 4
        assert now_sec() == pytest.approx(1.0)
        alice.store.recover()
        await asyncio.sleep(20)
        request_id = await soon(alice.channel.send(b"other", idempotency_key="k"))
        assert await soon(alice.channel.wait_delivered(request_id)) == ("bob",)
        assert set(alice.finals()) == {request_id}
    assert bob.received == [b"other"]


@virtual_time
async def test_a_failing_store_does_not_take_back_what_a_repeat_repeats() -> None:
    """The repeats come with the transaction after that of the first, together with a send that fails."""
    async with pair() as (alice, bob):
        first = asyncio.create_task(alice.channel.send(b"hello", idempotency_key="k"))
        rest = [asyncio.create_task(alice.channel.send(b"x")) for _ in range(MAX_BATCH - 1)]
        repeats = [
            asyncio.create_task(alice.channel.send(b"hello", idempotency_key="k")) for _ in range(3)
        ]
        new = asyncio.create_task(alice.channel.send(b"new"))
        alice.store.before_commit_sec = 1.0
        await asyncio.sleep(1.5)
        assert all(task.done() for task in (first, *rest))
        assert not new.done()
        alice.store.fail()
        assert isinstance(await outcome(new), StoreUnavailableError)
        assert [await task for task in repeats] == [first.result()] * 3
        alice.store.recover()
        alice.store.before_commit_sec = 0.0
        await asyncio.sleep(60)
        assert alice.finals()[first.result()] == ["delivered"]
    assert bob.received == [b"hello"] + [b"x"] * (MAX_BATCH - 1)


@virtual_time
async def test_a_repeat_succeeds_at_once_while_the_channel_is_full() -> None:
    async with side("alice", max_outgoing_messages=1) as alice:
        first = await alice.channel.send(b"hello", idempotency_key="k")
        waiting = asyncio.create_task(alice.channel.send(b"x"))
        await settle()
        commits, at = alice.store.commits, now_sec()
        for send in (alice.channel.send, alice.channel.send_nowait):
            assert await soon(send(b"hello", idempotency_key="k"), 1) == first
        assert (alice.store.commits, now_sec()) == (commits, at)
        assert not waiting.done()
        waiting.cancel()


@virtual_time
async def test_the_repeat_of_what_waits_for_room_needs_no_room_of_its_own() -> None:
    async with pair(max_outgoing_messages=1) as (alice, bob):
        first = asyncio.create_task(alice.channel.send(b"first"))
        second = asyncio.create_task(alice.channel.send(b"second", idempotency_key="k"))
        repeat = asyncio.create_task(alice.channel.send(b"second", idempotency_key="k"))
        other = asyncio.create_task(alice.channel.send(b"other", idempotency_key="k"))
        await settle()
        assert first.done()
        assert not any(task.done() for task in (second, repeat, other))
        assert await soon(repeat) == await soon(second)
        assert isinstance(await outcome(other), IdempotencyConflictError)
        assert alice.channel.status().open_requests == 1
        await soon(alice.channel.wait_delivered(second.result()))
    assert bob.received == [b"first", b"second"]


@pytest.mark.parametrize("after_sec", [0.0, 0.5])
@virtual_time
async def test_a_cancelled_first_send_leaves_its_repeats_alone(after_sec: float) -> None:
    """Cancelled before it is applied, the repeat takes its place."""
    async with pair() as (alice, bob):
        alice.store.before_commit_sec = 1.0
        first = asyncio.create_task(alice.channel.send(b"hello", idempotency_key="k"))
        repeat = asyncio.create_task(alice.channel.send(b"hello", idempotency_key="k"))
        await asyncio.sleep(after_sec)
        first.cancel()
        request_id = await soon(repeat)
        assert first.cancelled()
        alice.store.before_commit_sec = 0.0
        assert await soon(alice.channel.wait_delivered(request_id)) == ("bob",)
    assert bob.received == [b"hello"]


@virtual_time
async def test_a_repeat_of_what_is_being_stored_ends_with_the_channel() -> None:
    async with side("alice") as alice:
        alice.store.before_commit_sec = 1.0
        alice.store.fail()
        sends = [asyncio.create_task(alice.channel.send(b"hello", idempotency_key="k"))]
        await asyncio.sleep(0.5)
        sends.append(asyncio.create_task(alice.channel.send(b"hello", idempotency_key="k")))
        await settle()
        await alice.channel.close()
        assert [type(await outcome(task)) for task in sends] == [StoreUnavailableError] * 2


# --- Group commit --------------------------------------------------------------------------------


@virtual_time
async def test_sends_that_come_during_a_commit_share_the_next_one() -> None:
    async with side("alice") as alice:
        alice.store.before_commit_sec = 1.0
        commits = alice.store.commits
        first = asyncio.create_task(alice.channel.send(b"first"))
        await asyncio.sleep(0.5)
        rest = [asyncio.create_task(alice.channel.send(b"%d" % number)) for number in range(100)]
        await asyncio.sleep(1.0)
        assert first.done()
        assert not any(task.done() for task in rest)
        await asyncio.sleep(1.0)
        assert all(task.done() for task in rest)
        assert alice.store.commits == commits + 3  # the next one has begun


@virtual_time
async def test_messages_that_come_during_a_commit_share_the_next_one() -> None:
    async with pair() as (alice, bob):
        bob.store.before_commit_sec = 1.0
        commits = bob.store.commits
        for number in range(100):
            await alice.channel.send(b"%d" % number)
        await asyncio.sleep(4.5)
        assert len(bob.received) == 100
        assert bob.store.commits <= commits + 5


@virtual_time
async def test_more_sends_than_one_transaction_takes_keep_their_order() -> None:
    payloads = [b"%d" % number for number in range(2 * MAX_BATCH + 50)]
    async with pair() as (alice, bob):
        commits = alice.store.commits
        alice.store.before_commit_sec = 1.0
        sends = asyncio.gather(*(alice.channel.send(payload) for payload in payloads))
        assert len(set(await soon(sends, 5))) == len(payloads)
        assert alice.store.commits <= commits + 4
        alice.store.before_commit_sec = 0.0
        await asyncio.sleep(60)
        assert bob.received == payloads


@virtual_time
async def test_an_idle_channel_does_not_write() -> None:
    async with side("alice") as alice:
        await settle()
        commits = alice.store.commits
        await asyncio.sleep(20)
        assert alice.store.commits == commits


# --- Close ---------------------------------------------------------------------------------------


@virtual_time
async def test_nothing_is_shown_after_close() -> None:
    """Also when the application itself listens to the topic."""
    async with pair() as (alice, bob):
        stream = bob.channel.events()

        async def talk() -> None:
            while True:
                await alice.channel.send(b"x")
                await asyncio.sleep(0.01)

        talking = asyncio.create_task(talk())
        await asyncio.sleep(1)
        await bob.channel.close()
        shown = len(bob.seen)
        assert shown > 10
        await bob.node.inner.subscribe([TOPIC])
        await asyncio.sleep(10)
        assert len(bob.seen) == shown
        assert len([event async for event in stream]) == shown
        talking.cancel()


@pytest.mark.parametrize("call", ["encrypt", "decrypt", "publish", "commit", "handler"])
@virtual_time
async def test_close_stops_what_is_under_way(call: str) -> None:
    """It waits for the transaction that has begun, and for nothing else."""

    class Slow:
        async def encrypt(self, content: bytes, /) -> bytes:
            await asyncio.sleep(100 if call == "encrypt" else 0)
            return content

        async def decrypt(self, payload: bytes, /) -> bytes:
            await asyncio.sleep(100 if call == "decrypt" else 0)
            return payload

    async with side("bob") as bob, side("alice", encryption=Slow()) as alice:

        async def wait(event: Any) -> None:
            await asyncio.sleep(100)

        if call == "handler":
            alice.channel.on("reliable:message:received", wait)
        if call == "publish":
            alice.node.publish_sec = 100.0
        if call == "commit":
            alice.store.before_commit_sec = 5.0
        sending = asyncio.create_task(alice.channel.send(b"hello"))
        await bob.channel.send(b"hello")
        await asyncio.sleep(1)
        shown = len(alice.seen)
        await soon(alice.channel.close(), 10)
        assert now_sec() == (5 if call == "commit" else 1)
        assert len(our_tasks()) == 4, "those of bob"
        assert len(await sending) > 0
        if call != "commit":
            assert len(alice.seen) == shown
        shown, published = len(alice.seen), len(alice.node.published)
        await asyncio.sleep(200)
        assert (len(alice.seen), len(alice.node.published)) == (shown, published)


@virtual_time
async def test_close_may_be_repeated_and_called_by_many() -> None:
    async with side("alice") as alice:
        alice.store.before_commit_sec = 1.0
        sending = asyncio.create_task(alice.channel.send(b"x"))
        await settle()
        await soon(asyncio.gather(*(alice.channel.close() for _ in range(3))))
        assert now_sec() == pytest.approx(1)
        await alice.channel.close()
        assert await sending


@virtual_time
async def test_a_closed_channel_refuses_work_and_still_tells_its_state() -> None:
    async with side("alice") as alice:
        request_id = await alice.channel.send(b"x")
        await settle()
        await alice.channel.close()
        before = alice.channel.status()
        for call in (
            alice.channel.send(b"x"),
            alice.channel.send_nowait(b"x"),
            alice.channel.send(b""),
        ):
            with pytest.raises(ChannelClosedError, match="'room' is closed"):
                await call
        with pytest.raises(ChannelClosedError):
            alice.channel.events()
        assert alice.channel.status() == before
        assert not alice.channel.request_status(request_id).is_final


@virtual_time
async def test_a_send_that_waits_for_room_ends_with_the_channel() -> None:
    async with side("alice", max_outgoing_messages=1) as alice:
        await alice.channel.send(b"x")
        waiting = [asyncio.create_task(alice.channel.send(b"y")) for _ in range(3)]
        await settle()
        await alice.channel.close()
        for wait in waiting:
            assert isinstance(await outcome(wait), ChannelClosedError)
        await alice.open()
        assert alice.channel.status().open_requests == 1


@virtual_time
async def test_a_send_during_close_is_stored_or_refused() -> None:
    async with side("alice") as alice:
        alice.store.before_commit_sec = 1.0
        first = asyncio.create_task(alice.channel.send(b"1"))
        await asyncio.sleep(0.5)
        second = asyncio.create_task(alice.channel.send(b"2"))
        await settle()
        closing = asyncio.create_task(alice.channel.close())
        await settle()
        third = asyncio.create_task(alice.channel.send(b"3"))
        await soon(closing)
        results = [await outcome(task) for task in (first, second, third)]
        stored = [item for item in results if isinstance(item, str)]
        assert results[0] in stored
        assert isinstance(results[2], ChannelClosedError)
        await alice.open()
        assert alice.channel.status().open_requests == len(stored)


@virtual_time
async def test_the_users_store_and_node_stay_open() -> None:
    async with pair() as (alice, bob):
        await alice.channel.close()
        assert await alice.store.load_ledger("node:600") is None
        heard: list[bytes] = []
        await bob.node.subscribe_topic(TOPIC, lambda message: heard.append(message.payload))
        envelope = MessageEnvelope(content_topic=TOPIC, payload=b"raw")
        await alice.node.inner.send(envelope)
        await settle()
        assert heard == [b"raw"]


@virtual_time
async def test_closing_a_channel_leaves_the_applications_own_subscription() -> None:
    async with pair() as (alice, bob):
        heard: list[bytes] = []
        await bob.node.subscribe_topic(TOPIC, lambda message: heard.append(message.payload))
        await bob.channel.close()
        await alice.channel.send(b"hello")
        await settle()
        assert len(heard) == 1


@virtual_time
async def test_closing_unsubscribes_from_the_topic_at_the_node() -> None:
    async with pair() as (alice, bob):
        assert bob.node.subscriptions == 1
        await bob.channel.close()
        assert bob.node.subscriptions == 0
        node = bob.node.inner
        assert isinstance(node, MemoryNode)
        assert not node.hears(node.pubsub_topic(TOPIC), TOPIC), "and the node from the network"
        await alice.channel.send(b"hello")
        await settle()
        await bob.open()
        assert bob.node.subscriptions == 1
        await bob.channel.close()
        await bob.channel.close()
        assert bob.node.subscriptions == 0


@virtual_time
async def test_a_channel_closes_although_its_store_fails() -> None:
    async with side("alice") as alice:
        await alice.channel.send(b"x")
        alice.store.fail()
        sending = asyncio.create_task(alice.channel.send(b"y"))
        await asyncio.sleep(7)
        await soon(alice.channel.close(), 10)
        assert isinstance(await outcome(sending), StoreUnavailableError)
        alice.store.recover()
        await alice.open()
        assert alice.channel.status().open_requests == 1


@virtual_time
async def test_a_close_does_not_wait_for_ever_for_a_commit() -> None:
    """Which may be applied all the same: the sender is told so, and everything is released."""
    async with side("alice") as alice:
        alice.store.before_commit_sec = 1e9
        sending = asyncio.create_task(alice.channel.send(b"x"))
        await settle()
        closed = await outcome(alice.channel.close())
        assert isinstance(closed, StoreOutcomeUnknownError)
        assert now_sec() == pytest.approx(CLOSE_COMMIT_SEC, abs=1)
        assert isinstance(await outcome(sending), SendOutcomeUnknownError)
        assert our_tasks() == []
        alice.store.before_commit_sec = 0.0
        await alice.open()


@virtual_time
async def test_a_close_does_not_wait_for_ever_for_the_store_to_take_the_channel_back() -> None:
    async with side("alice") as alice:
        alice.store.release_sec = 1e9
        closed = await outcome(alice.channel.close())
        assert isinstance(closed, StoreUnavailableError)
        assert now_sec() == pytest.approx(CLOSE_RELEASE_SEC, abs=1)
        assert our_tasks() == []


@virtual_time
async def test_what_came_in_before_a_close_while_the_store_failed_comes_again() -> None:
    async with pair() as (alice, bob):
        bob.store.fail()
        request_id = await alice.channel.send(b"hello")
        await asyncio.sleep(3)
        await soon(bob.channel.close(), 10)
        assert bob.seen == []
        bob.store.recover()
        await bob.open()
        assert await soon(alice.channel.wait_delivered(request_id)) == ("bob",)
        await asyncio.sleep(20)
        assert [event.message for event in await bob.log()] == [b"hello"]


@pytest.mark.parametrize("call", ["release_channel", "unsubscribe"])
@virtual_time
async def test_a_close_that_fails_somewhere_releases_everything_all_the_same(call: str) -> None:
    async with side("alice") as alice:
        stream = alice.channel.events()
        if call == "unsubscribe":
            alice.node.fail(call, NodeUnavailableError("gone"))
        else:
            alice.store.fail(call)
        first = await outcome(alice.channel.close())
        assert first is None or isinstance(first, ReliableChannelError)
        assert await outcome(alice.channel.close()) is None
        assert our_tasks() == []
        assert not isinstance(await outcome(anext(stream), 1), TimeoutError)
        alice.node.recover()
        alice.store.recover()
        await alice.open()


@virtual_time
async def test_a_close_that_was_cancelled_can_be_finished() -> None:
    async with side("alice") as alice:
        alice.store.before_commit_sec = 5.0
        sending = asyncio.create_task(alice.channel.send(b"x"))
        await asyncio.sleep(1)
        with pytest.raises(TimeoutError):
            await soon(alice.channel.close(), 1)
        await soon(alice.channel.close())
        assert our_tasks() == []
        assert isinstance(await outcome(sending), str | ChannelClosedError)
        alice.store.before_commit_sec = 0.0
        await alice.open()
        await soon(alice.channel.send(b"y"))


# --- A task that dies ----------------------------------------------------------------------------

FATAL = [RuntimeError("a bug"), StoreClosedError()]


@pytest.mark.parametrize("error", FATAL, ids=["bug", "closed"])
@virtual_time
async def test_a_send_during_which_the_channel_dies_says_so(error: Exception) -> None:
    async with side("alice") as alice:
        alice.store.fail("commit", error)
        found = await outcome(alice.channel.send(b"x"))
        assert isinstance(found, ChannelFailedError)
        assert found.__cause__ is error
        assert str(found).isprintable()
        assert "'room'" in str(found)


@pytest.mark.parametrize("error", FATAL, ids=["bug", "closed"])
@virtual_time
async def test_the_death_of_a_task_is_known_to_everybody(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with side("alice", max_outgoing_messages=1) as alice:
        request_id = await alice.channel.send(b"x")
        await settle()
        streams = [alice.channel.events() for _ in range(2)]
        reading = asyncio.create_task(outcome(anext(streams[0])))
        waiting = asyncio.create_task(outcome(alice.channel.wait_delivered(request_id)))
        blocked = asyncio.create_task(outcome(alice.channel.send(b"y")))
        await settle()
        alice.store.fail("commit", error)
        await asyncio.sleep(6)  # a retransmission is due
        found = [
            *[await outcome(task, 1) for task in (reading, waiting, blocked)],
            await outcome(anext(streams[1])),
            await outcome(alice.channel.send(b"x")),
            await outcome(alice.channel.send_nowait(b"x")),
            await outcome(alice.channel.wait_delivered(request_id)),
        ]
        assert [type(item) for item in found] == [ChannelFailedError] * 7
        with pytest.raises(ChannelFailedError):
            alice.channel.events()
    deaths = [item for item in caplog.records if item.levelno == logging.ERROR]
    assert len(deaths) == 1
    assert "room" in deaths[0].getMessage()


@virtual_time
async def test_a_task_that_is_cancelled_from_inside_is_dead_as_well() -> None:
    """As when the store cancels what it was waiting for; nobody may wait for ever."""
    async with side("alice") as alice:
        alice.store.fail("commit", asyncio.CancelledError())  # type: ignore[arg-type]
        first = asyncio.create_task(outcome(alice.channel.send(b"x")))
        await asyncio.sleep(1)
        alice.store.recover()
        second = await outcome(alice.channel.send(b"y"))
        assert not isinstance(second, TimeoutError)
        assert not isinstance(await first, TimeoutError)


@virtual_time
async def test_the_death_of_one_channel_leaves_the_others_of_its_node_alone() -> None:
    async with pair() as (alice, bob):
        other = await create_reliable_channel(
            alice.node, "hall", TOPIC, "alice", sds_config=SdsConfig()
        )
        alice.node.fail("publish", KeyError("bug"))
        await other.send(b"x")
        await settle()
        alice.node.recover()
        assert isinstance(await outcome(other.send(b"x")), ChannelFailedError)
        await soon(alice.channel.wait_delivered(await alice.channel.send(b"hello")))
        await soon(other.close())
    assert bob.received == [b"hello"]


@virtual_time
async def test_a_failing_node_adapter_is_known_to_everybody() -> None:
    """Exceptions that are no NodeError are bugs of the adapter."""
    async with side("alice") as alice:
        alice.node.fail("publish", KeyError("bug"))
        stream = alice.channel.events()
        await alice.channel.send(b"x")
        await settle()
        for call in (alice.channel.send(b"y"), anext(stream)):
            found = await outcome(call)
            assert isinstance(found, ChannelFailedError)
            assert isinstance(found.__cause__, KeyError)


@virtual_time
async def test_a_channel_that_died_is_closed_and_opened_again() -> None:
    async with pair() as (alice, bob):
        await alice.channel.send(b"kept")
        alice.store.fail("commit", RuntimeError("a bug"))
        lost = asyncio.create_task(outcome(alice.channel.send(b"lost")))
        await asyncio.sleep(1)
        await soon(alice.channel.close())
        assert isinstance(await lost, ReliableChannelError)
        assert len(our_tasks()) == 4, "those of bob"
        alice.store.recover()
        await alice.open()
        await soon(alice.channel.wait_delivered(await alice.channel.send(b"after")))
    assert bob.received == [b"kept", b"after"]


# --- Questions -----------------------------------------------------------------------------------


@virtual_time
async def test_the_state_of_a_request_is_kept_for_questions() -> None:
    async with pair() as (alice, _):
        request_id = await alice.channel.send(bytes(250_000))
        await soon(alice.channel.wait_delivered(request_id))
        await asyncio.sleep(10)
        status = alice.channel.request_status(request_id)
        assert (status.state, status.is_final, status.sent) == ("delivered", True, True)
        assert (status.recipients, status.acknowledged) == (("bob",), (("bob", 3),))
        assert [segment.segment_id for segment in status.segments] == [
            f"{request_id}:{number}" for number in (1, 2, 3)
        ]
        rows = [
            record
            for entry in alice.trace
            if isinstance(entry, Committed)
            for record in entry.changes.values()
            if isinstance(record, RequestRecord)
        ]
        assert rows[-1].state == "delivered"
