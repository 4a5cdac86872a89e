"""What becomes of a batch that cannot be stored, or of which nobody knows whether it was."""

from __future__ import annotations

import asyncio

import pytest

from messaging_adapter import NodeConfig, create_node
from reliable_channel import (
    ChannelFailedError,
    LeaseLostError,
    MessageDeliveredEvent,
    MessageSentEvent,
    RateLimitConfig,
    SdsConfig,
    SendOutcomeUnknownError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    create_reliable_channel,
)
from tests.support.failing_store import (
    TOPIC,
    FailingStore,
    assert_store_came_first,
    outcome,
    pair,
    settle,
    side,
    soon,
    virtual_clock,
)
from tests.support.virtual_loop import virtual_time

# --- A failing store -----------------------------------------------------------------------------


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
