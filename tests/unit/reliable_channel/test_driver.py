"""The machine's task: sends, room, repeats under a key, what shares a transaction."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from reliable_channel import (
    ChannelFullError,
    ConfigurationError,
    EmptyPayloadError,
    IdempotencyConflictError,
    InvalidPayloadError,
    MessageTooLargeError,
    ReliableChannelError,
    SegmentationConfig,
    StoreUnavailableError,
)
from reliable_channel.inputs import MAX_BATCH
from tests.support.failing_store import (
    Published,
    assert_store_came_first,
    outcome,
    pair,
    settle,
    side,
    soon,
)
from tests.support.virtual_loop import virtual_time


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
async def test_who_no_longer_waits_makes_nothing_full() -> None:
    async with side("alice", max_outgoing_bytes=100) as alice:
        await alice.channel.send(bytes(60))
        waiting = asyncio.create_task(alice.channel.send(bytes(50)))
        await settle()
        waiting.cancel()
        assert await soon(alice.channel.send_nowait(bytes(10)), 1)


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
            for key in ("", "x" * 256, "a\n", b"k", 5):
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


@virtual_time
async def test_a_send_that_failed_is_forgotten_without_the_garbage_collector(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "reliable_channel.channel")  # records would hold the error
    async with pair() as (alice, _):
        alice.store.fail()
        gc.collect()
        gc.disable()
        try:
            try:
                await alice.channel.send(b"hello")
            except StoreUnavailableError as error:
                failed = weakref.ref(error)
            alice.store.recover()
            await asyncio.sleep(20)  # the driver has no use for it any more
            assert failed() is None, "its frames hold the payload"
        finally:
            gc.enable()


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
