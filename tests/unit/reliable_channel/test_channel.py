"""The handle of one channel: waiting, closing, dying, questions."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from messaging_adapter.memory import MemoryNode
from reliable_channel import (
    ChannelClosedError,
    ChannelFailedError,
    MessageEnvelope,
    NodeUnavailableError,
    RateLimitConfig,
    ReliableChannelError,
    RequestFailedError,
    RequestNotFoundError,
    SdsConfig,
    SendOutcomeUnknownError,
    StoreClosedError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    create_reliable_channel,
)
from reliable_channel.channel import CLOSE_COMMIT_SEC, CLOSE_RELEASE_SEC
from reliable_channel.records import RequestRecord
from tests.support.failing_store import (
    TOPIC,
    Committed,
    outcome,
    pair,
    settle,
    side,
    soon,
)
from tests.support.virtual_loop import virtual_time


def our_tasks() -> list[str]:
    return [
        task.get_name()
        for task in asyncio.all_tasks()
        if task.get_name().startswith("reliable-channel")
    ]


def now_sec() -> float:
    return asyncio.get_running_loop().time()


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
async def test_a_close_ends_in_time_and_first_says_what_may_have_been_stored() -> None:
    """The store hangs in all that a close does, and there is a budget to settle."""
    async with side("alice", rate_limit=RateLimitConfig(enabled=True)) as alice:
        await alice.channel.send(b"x")
        await asyncio.sleep(0.01)
        alice.store.before_commit_sec = alice.store.release_sec = 1e9
        sending = asyncio.create_task(alice.channel.send(b"y"))
        await settle()
        began = now_sec()
        closed = await outcome(alice.channel.close())
        assert isinstance(closed, StoreOutcomeUnknownError)
        assert now_sec() - began <= 35
        assert isinstance(await outcome(sending), SendOutcomeUnknownError)
        assert our_tasks() == []
        alice.store.before_commit_sec = alice.store.release_sec = 0.0


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
