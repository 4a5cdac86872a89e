"""What all nodes share, on memory nodes: the Messaging API, subscriptions, budget, closing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from messaging_adapter import (
    ConnectionStatus,
    MessageEnvelope,
    MessageValidation,
    NodeConfig,
    NodeMessageErrorEvent,
    NodeMessagePropagatedEvent,
    NodeMessageReceivedEvent,
    NodeMessageSentEvent,
    ProtocolsConfig,
    WakuNode,
    create_node,
)
from messaging_adapter.base import MAX_OPEN_SENDS
from messaging_adapter.events import NODE_EVENTS
from messaging_adapter.memory import MemoryNode
from reliable_channel.budget import restore_budget
from reliable_channel.clock import LoopClock
from reliable_channel.config import RateLimitConfig, SdsConfig
from reliable_channel.core.wire import WakuMessage, waku_message_hash
from reliable_channel.errors import (
    ConfigurationError,
    InvalidContentTopicError,
    InvalidPayloadError,
    LocalProtocolError,
    MessageTooLargeError,
    NodeClosedError,
    NodeUnavailableError,
    PublishRejectedError,
    StoreUnavailableError,
)
from reliable_channel.ports import IncomingMessage
from reliable_channel.records import Changes
from reliable_channel.volatile import VolatileStore
from tests.support.virtual_loop import START_NS, virtual_time

TOPIC = "/app/1/room/proto"
OTHER = "/app/1/hall/proto"
BAD_TOPICS = ["", "room", "/app/1/room", "/x/app/1/room/proto", "/app//room/proto", "/1/a/1/r/p", 5]


async def open_node(**fields: Any) -> WakuNode:
    config = NodeConfig(**{"transport": "memory://base?seed=1", **fields})
    return await create_node(config, clock=LoopClock(asyncio.get_running_loop(), START_NS))


def envelope(payload: bytes = b"hello", **fields: Any) -> MessageEnvelope:
    return MessageEnvelope(**{"content_topic": TOPIC, "payload": payload, **fields})


def limited(messages: int) -> RateLimitConfig:
    return RateLimitConfig(enabled=True, epoch_period_sec=600, messages_per_epoch=messages)


def record_events(node: WakuNode) -> list[Any]:
    seen: list[Any] = []
    for kind in NODE_EVENTS:
        node.on(kind, seen.append)
    return seen


class BrokenStore(VolatileStore):
    """Loses its disk when told to."""

    broken = False
    bug = False

    async def commit(self, channel_id: str, changes: Changes) -> None:
        if self.bug:
            raise KeyError("bug")
        if self.broken:
            raise StoreUnavailableError("disk full")
        await super().commit(channel_id, changes)


class Unconfirmed(MemoryNode):
    """Its store lacks what was published, or cannot be asked."""

    stored: bool | None = None

    async def _is_stored(self, message_hash: bytes) -> bool:
        if self.stored is None:
            raise NodeUnavailableError
        return self.stored


# --- send ----------------------------------------------------------------------------------------


@virtual_time
async def test_a_message_is_propagated_then_sent() -> None:
    async with await open_node() as node:
        events = record_events(node)
        request_id = await node.send(envelope())
        await asyncio.sleep(1)
    assert [type(event) for event in events] == [NodeMessagePropagatedEvent, NodeMessageSentEvent]
    assert {event.request_id for event in events} == {request_id}
    assert len({event.message_hash for event in events}) == 1


@virtual_time
async def test_an_ephemeral_message_is_never_sent_only_propagated() -> None:
    async with await open_node() as node:
        events = record_events(node)
        await node.send(envelope(ephemeral=True))
        await asyncio.sleep(1)
    assert [type(event) for event in events] == [NodeMessagePropagatedEvent]


@pytest.mark.parametrize("stored", [False, None])
@virtual_time
async def test_what_no_store_confirms_is_propagated_only(stored: bool | None) -> None:
    """Where there is no store, propagated is the end."""
    store = VolatileStore()
    await store.open()
    config = NodeConfig(transport="memory://base")
    budget = await restore_budget(config.rate_limit_config, store)
    clock = LoopClock(asyncio.get_running_loop(), START_NS)
    async with Unconfirmed(config, clock=clock, store=store, budget=budget) as node:
        await node.start()
        node.stored = stored
        events = record_events(node)
        await node.send(envelope())
        await asyncio.sleep(1)
    assert [type(event) for event in events] == [NodeMessagePropagatedEvent]


@virtual_time
async def test_send_subscribes_to_the_topic() -> None:
    """A first message sent with a certain contentTopic SHOULD trigger a subscription."""
    async with await open_node() as alice, await open_node() as bob:
        events = record_events(alice)
        await alice.send(envelope())
        await bob.send(envelope(b"answer", meta=b"m", ephemeral=True))
        await asyncio.sleep(1)
        received = [event for event in events if isinstance(event, NodeMessageReceivedEvent)]
    (event,) = received
    assert event.message == envelope(b"answer", meta=b"m", ephemeral=True)
    assert len(event.message_hash) == 32


@virtual_time
async def test_requests_have_different_ids_and_go_out_in_order() -> None:
    async with await open_node() as alice, await open_node() as bob:
        await bob.subscribe([TOPIC])
        events = record_events(bob)
        ids = [await alice.send(envelope(str(number).encode())) for number in range(50)]
        await asyncio.sleep(1)
    assert len(set(ids)) == 50
    assert [int(event.message.payload) for event in events] == list(range(50))


@pytest.mark.parametrize("topic", BAD_TOPICS)
@virtual_time
async def test_a_bad_topic_fails_at_once_everywhere(topic: Any) -> None:
    async with await open_node() as node:
        events = record_events(node)
        bad = envelope(content_topic=topic)
        for call in (
            node.send(bad),
            node.subscribe([TOPIC, topic]),
            node.unsubscribe([topic]),
            node.subscribe_topic(topic, lambda _: None),
            node.query(topic, 0),
        ):
            with pytest.raises(InvalidContentTopicError):
                await call
        with pytest.raises(PublishRejectedError, match="content topic"):
            await node.publish("r", bad)
        with pytest.raises(LocalProtocolError, match="not subscribed"):
            await node.unsubscribe([TOPIC])
        await asyncio.sleep(1)
    assert events == []


@virtual_time
async def test_a_message_above_the_limit_fails_at_once_naming_both_sizes() -> None:
    validation = MessageValidation(max_message_size="2 KiB")
    protocols = ProtocolsConfig(message_validation=validation)
    async with await open_node(protocols_config=protocols) as node:
        events = record_events(node)
        room = 2_048 - len(WakuMessage(bytes(200), TOPIC, timestamp=START_NS).encode()) + 200
        await node.send(envelope(bytes(room)))
        with pytest.raises(MessageTooLargeError, match=r"of 2049 bytes .* 2048 bytes"):
            await node.send(envelope(bytes(room + 1)))
        with pytest.raises(PublishRejectedError, match=r"of 2049 bytes .* 2048 bytes"):
            await node.publish("r", envelope(bytes(room + 1)))
        await asyncio.sleep(1)
    assert [type(event) for event in events] == [NodeMessagePropagatedEvent, NodeMessageSentEvent]


@virtual_time
async def test_meta_has_at_most_64_bytes() -> None:
    async with await open_node() as node:
        await node.publish("r", envelope(meta=bytes(64)))
        with pytest.raises(PublishRejectedError, match="meta of 65 bytes"):
            await node.publish("r", envelope(meta=bytes(65)))
        with pytest.raises(MessageTooLargeError, match="meta of 65 bytes"):
            await node.send(envelope(meta=bytes(65)))


@pytest.mark.parametrize("payload", ["text", None, 5, bytearray(b"x")])
@virtual_time
async def test_a_payload_that_is_not_bytes_fails_at_once(payload: Any) -> None:
    async with await open_node() as node:
        with pytest.raises(InvalidPayloadError):
            await node.send(envelope(payload))
        with pytest.raises(PublishRejectedError, match="must be bytes"):
            await node.publish("r", envelope(payload))


@virtual_time
async def test_send_draws_from_the_epoch_budget_and_waits_for_it() -> None:
    async with await open_node(rate_limit_config=limited(4)) as node:
        events = record_events(node)
        for _ in range(6):
            await node.send(envelope(ephemeral=True))
        await asyncio.sleep(1)
        in_first = len(events)
        await asyncio.sleep(700)
        assert in_first == 4
        assert len(events) == 6
        assert node.epoch_budget.used == 2


@virtual_time
async def test_publish_leaves_counting_to_the_caller() -> None:
    async with await open_node(rate_limit_config=limited(4)) as node:
        for _ in range(10):
            await node.publish("r", envelope())
        assert node.epoch_budget.used == 0


@virtual_time
async def test_what_cannot_be_counted_ends_in_an_error_and_is_not_transmitted() -> None:
    store = BrokenStore()
    config = {"rate_limit_config": limited(4), "sds_config": SdsConfig(persistence=store)}
    async with await open_node(**config) as node:
        events = record_events(node)
        store.broken = True
        request_id = await node.send(envelope())
        await asyncio.sleep(1)
        assert events == [NodeMessageErrorEvent(request_id=request_id, error="disk full")]
        assert await node.query(TOPIC, 0) == []


@virtual_time
async def test_an_unforeseen_failure_ends_in_an_error_too(caplog: pytest.LogCaptureFixture) -> None:
    store = BrokenStore()
    config = {"rate_limit_config": limited(4), "sds_config": SdsConfig(persistence=store)}
    async with await open_node(**config) as node:
        events = record_events(node)
        store.bug = True
        with caplog.at_level(logging.ERROR):
            await node.send(envelope())
            await asyncio.sleep(1)
    (event,) = events
    assert isinstance(event, NodeMessageErrorEvent)
    assert event.error == "KeyError: 'bug'"
    assert event.request_id in caplog.text


@virtual_time
async def test_send_itself_waits_while_too_much_is_under_way() -> None:
    async with await open_node(rate_limit_config=limited(1)) as node:
        events = record_events(node)
        for _ in range(MAX_OPEN_SENDS + 1):
            await node.send(envelope(ephemeral=True))
            await asyncio.sleep(0)
        full = asyncio.create_task(node.send(envelope()))
        await asyncio.sleep(1)
        assert not full.done()
        full.cancel()
        await asyncio.wait([full])
        following = asyncio.create_task(node.send(envelope()))
        await asyncio.sleep(1_200)
        assert following.done()
    propagated = [event for event in events if isinstance(event, NodeMessagePropagatedEvent)]
    failed = [event for event in events if isinstance(event, NodeMessageErrorEvent)]
    assert len(propagated) + len(failed) == MAX_OPEN_SENDS + 2


# --- subscriptions -------------------------------------------------------------------------------


@virtual_time
async def test_received_events_are_for_the_applications_own_topics() -> None:
    """Only messages on subscribed content topics SHOULD be emitted."""
    async with await open_node() as alice, await open_node() as bob:
        events = record_events(bob)
        await bob.subscribe_topic(OTHER, lambda _: None)
        await bob.subscribe([TOPIC])
        await bob.subscribe([TOPIC])
        await alice.publish("r", envelope())
        await alice.publish("r", envelope(content_topic=OTHER))
        await asyncio.sleep(1)
    assert [event.message.content_topic for event in events] == [TOPIC]


@virtual_time
async def test_a_channels_end_does_not_end_the_applications_subscription() -> None:
    async with await open_node() as alice, await open_node() as bob:
        events = record_events(bob)
        await bob.subscribe([TOPIC])
        channel = await bob.subscribe_topic(TOPIC, lambda _: None)
        await channel.close()
        await alice.publish("r", envelope())
        await asyncio.sleep(1)
    assert len(events) == 1


@virtual_time
async def test_the_applications_end_does_not_end_a_channels_subscription() -> None:
    async with await open_node() as alice, await open_node() as bob:
        events = record_events(bob)
        seen: list[IncomingMessage] = []
        await bob.subscribe([TOPIC])
        await bob.subscribe_topic(TOPIC, seen.append)
        await bob.unsubscribe([TOPIC])
        await alice.publish("r", envelope())
        await asyncio.sleep(1)
    assert (len(events), len(seen)) == (0, 1)


@virtual_time
async def test_unsubscribing_what_is_not_subscribed_changes_nothing() -> None:
    async with await open_node() as alice, await open_node() as bob:
        events = record_events(bob)
        await bob.subscribe([TOPIC])
        with pytest.raises(LocalProtocolError, match=f"not subscribed to {OTHER}"):
            await bob.unsubscribe([TOPIC, OTHER])
        await alice.publish("r", envelope())
        await asyncio.sleep(1)
    assert len(events) == 1


@virtual_time
async def test_one_string_is_no_list_of_topics() -> None:
    async with await open_node() as node:
        with pytest.raises(ConfigurationError, match="must be a list"):
            await node.subscribe(TOPIC)


@virtual_time
async def test_a_handler_that_raises_is_counted_and_hurts_nobody() -> None:
    async with await open_node() as alice, await open_node() as bob:
        seen: list[IncomingMessage] = []

        def fail(_: IncomingMessage) -> None:
            raise RuntimeError

        await bob.subscribe_topic(TOPIC, fail)
        await bob.subscribe_topic(TOPIC, seen.append)
        await alice.publish("r", envelope())
        await alice.publish("r", envelope())
        await asyncio.sleep(1)
        assert (len(seen), bob.handler_errors, alice.handler_errors) == (2, 2, 0)


# --- publish, lookup, query ----------------------------------------------------------------------


@virtual_time
async def test_each_publish_is_a_new_message_with_the_real_hash() -> None:
    async with await open_node() as node:
        hashes = [await node.publish("r", envelope(meta=b"m")) for _ in range(3)]
        found = await node.query(TOPIC, 0)
        assert node.pubsub_topic(TOPIC).startswith("/waku/2/rs/1/")
        for number, message in enumerate(found):
            assert message.timestamp_ns == START_NS + number
            raw = WakuMessage(b"hello", TOPIC, timestamp=message.timestamp_ns, meta=b"m")
            assert message.message_hash == waku_message_hash(node.pubsub_topic(TOPIC), raw)
    assert [message.message_hash for message in found] == hashes
    assert len(set(hashes)) == 3


@virtual_time
async def test_a_lookup_takes_at_most_100_hashes() -> None:
    async with await open_node() as node:
        assert await node.lookup([bytes(32)] * 100) == []
        with pytest.raises(LocalProtocolError, match="101 hashes"):
            await node.lookup([bytes(32)] * 101)


# --- closing -------------------------------------------------------------------------------------


@virtual_time
async def test_a_closed_node_refuses_everything() -> None:
    node = await open_node()
    held = await node.subscribe_topic(TOPIC, lambda _: None)
    off = node.on(NodeMessageErrorEvent, lambda _: None)
    assert node.connection_status is ConnectionStatus.CONNECTED
    await node.close()
    await node.close()
    await held.close()
    off()
    assert node.connection_status is ConnectionStatus.DISCONNECTED
    for call in (
        node.send(envelope()),
        node.subscribe([TOPIC]),
        node.unsubscribe([TOPIC]),
        node.subscribe_topic(TOPIC, lambda _: None),
        node.publish("r", envelope()),
        node.lookup([]),
        node.query(TOPIC, 0),
        node.__aenter__(),
    ):
        with pytest.raises(NodeClosedError):
            await call
    with pytest.raises(NodeClosedError):
        node.on(NodeMessageErrorEvent, lambda _: None)


@virtual_time
async def test_closing_ends_waiting_messages_in_an_error() -> None:
    node = await open_node(rate_limit_config=limited(1))
    events = record_events(node)
    first, second = [await node.send(envelope(ephemeral=True)) for _ in range(2)]
    await asyncio.sleep(1)
    third = await node.send(envelope())
    await node.close()
    outcome = {event.request_id: type(event) for event in events}
    assert outcome == {
        first: NodeMessagePropagatedEvent,
        second: NodeMessageErrorEvent,
        third: NodeMessageErrorEvent,
    }
    seen = len(events)
    await asyncio.sleep(1_000)
    assert len(events) == seen


@virtual_time
async def test_closing_ends_sends_that_wait_for_room() -> None:
    node = await open_node(rate_limit_config=limited(1))
    for _ in range(MAX_OPEN_SENDS):
        await node.send(envelope())
    waiting = [asyncio.create_task(node.send(envelope())) for _ in range(MAX_OPEN_SENDS + 5)]
    await asyncio.sleep(1)
    await node.close()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {NodeClosedError, str}
    assert sum(isinstance(outcome, NodeClosedError) for outcome in outcomes) >= MAX_OPEN_SENDS


@virtual_time
async def test_a_second_close_while_the_first_is_under_way_is_harmless() -> None:
    node = await open_node(rate_limit_config=limited(1))
    for _ in range(3):
        await node.send(envelope())
    await asyncio.gather(node.close(), node.close())
