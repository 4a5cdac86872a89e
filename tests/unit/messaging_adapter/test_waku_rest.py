"""The node as a whole: sending, confirming, budget, queries, configuration, closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from messaging_adapter import (
    MessageEnvelope,
    NetworkingConfig,
    NodeConfig,
    NodeMessageErrorEvent,
    NodeMessagePropagatedEvent,
    NodeMessageSentEvent,
    ProtocolsConfig,
    create_node,
)
from messaging_adapter.waku_rest import WakuRestNode
from reliable_channel.config import RateLimitConfig
from reliable_channel.errors import (
    ConfigurationError,
    InvalidContentTopicError,
    NodeClosedError,
    NodeUnavailableError,
    PublishRejectedError,
)
from reliable_channel.types import SECOND
from tests.support.rest import OTHER, TOPIC, OverWire, StandIn, listen, stand_in, until
from tests.support.virtual_loop import START_NS, virtual_time

WAYS = ["relay", "static", "lightpush", "messaging"]


def envelope(payload: bytes = b"hello", **fields: Any) -> MessageEnvelope:
    return MessageEnvelope(**{"content_topic": TOPIC, "payload": payload, **fields})


def events_of(node: WakuRestNode) -> list[str]:
    told: list[str] = []
    node.on(NodeMessagePropagatedEvent, lambda _: told.append("propagated"))
    node.on(NodeMessageSentEvent, lambda _: told.append("sent"))
    node.on(NodeMessageErrorEvent, lambda event: told.append(f"error: {event.error}"))
    return told


# --- Configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"networking_config": NetworkingConfig(p2p_tcp_port=1)}, "p2p_tcp_port cannot be"),
        ({"eth_rpc_endpoints": ["http://x"]}, "eth_rpc_endpoints cannot be honoured"),
        ({"protocols_config": ProtocolsConfig(entry_nodes=("x",))}, "entry_nodes cannot be"),
        ({"transport": "waku+http://node:1?x=1"}, "no parameter 'x'"),
        ({"transport": "waku+https://"}, "cannot be read"),
    ],
)
@virtual_time
async def test_what_cannot_be_honoured_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        await create_node(NodeConfig(**{"transport": "waku+http://node:1", **fields}))


@virtual_time
async def test_an_edge_node_neither_relays_nor_asks_another_store_than_it_was_told() -> None:
    async with stand_in() as network:
        protocols = ProtocolsConfig(static_store_nodes=("/dns/store/tcp/1/p2p/x",))
        node = await network.open(mode="edge", protocols_config=protocols)
        await listen(node)
        await node.publish("x", envelope())
        assert network.nodes[0].filtered
        assert not network.nodes[0].relay.places
        assert network.wires[0].paths["POST /lightpush/v3/message"] == 2  # and one to find out
        await node.close()


@virtual_time
async def test_the_wrong_number_of_shards_shows_in_other_topics() -> None:
    async with stand_in(cluster_id=5) as network:
        node = await network.open(protocols_config=ProtocolsConfig(cluster_id=5))
        assert node.pubsub_topic(TOPIC).startswith("/waku/2/rs/5/")
        assert node.pubsub_topic(TOPIC) == network.network.shard_topic(TOPIC)
        await node.close()


# --- Sending -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@virtual_time
async def test_a_message_is_propagated_then_sent_and_its_echo_is_not_heard(way: str) -> None:
    async with stand_in(store_lag_s=3.0) as network:
        node, other = await network.open(query=f"publish={way}"), await network.open(1)
        heard, own, told = await listen(other), await listen(node), events_of(node)
        for ephemeral in (False, False, True):
            await node.send(envelope(ephemeral=ephemeral))
            await asyncio.sleep(
                0.5
            )  # a node's clock tells equal payloads apart, virtual ones stand still
        await asyncio.sleep(30)
        assert told.count("propagated") == 3
        assert told.count("sent") == 2
        assert len(told) == 5
        assert heard == [b"hello"] * 3
        assert own == []
        await node.close()
        await other.close()


@virtual_time
async def test_a_message_that_no_store_gets_is_repeated_unchanged_and_ends_in_an_error() -> None:
    async with stand_in(store_loss=1.0) as network:
        node, other = await network.open(), await network.open(1)
        heard, told = await listen(other), events_of(node)
        await node.send(envelope())
        await asyncio.sleep(70)
        assert told == ["propagated", "error: no store had the message within 60 s"]
        assert heard == [b"hello"]
        assert node.outbox.republished == 5
        await node.close()
        await other.close()


@virtual_time
async def test_a_message_that_was_lost_on_its_way_out_is_repeated_until_it_is_there() -> None:
    async with stand_in() as network:
        node = await network.open(query="publish=static")
        other = await network.open(1)
        heard, told = await listen(other), events_of(node)
        network.nodes[0].faults.isolated = True
        await node.send(envelope())
        await asyncio.sleep(10)
        assert told == ["propagated"]
        network.nodes[0].faults.isolated = False
        await asyncio.sleep(20)
        assert told == ["propagated", "sent"]
        assert heard == [b"hello"]
        await node.close()
        await other.close()


@pytest.mark.parametrize("query", ["", "store=off"])
@virtual_time
async def test_without_a_store_propagated_is_the_end(query: str) -> None:
    async with stand_in(without=() if query else ("store",)) as network:
        node = await network.open(query=query)
        told = events_of(node)
        await node.send(envelope())
        await asyncio.sleep(100)
        assert told == ["propagated"]
        with pytest.raises(NodeUnavailableError, match="no store"):
            await node.lookup([bytes(32)])
        with pytest.raises(NodeUnavailableError, match="no store"):
            await node.query(TOPIC, START_NS)
        assert network.wires[0].paths["GET /store/v3/messages"] == 1  # to find out
        await node.close()


def down(network: StandIn) -> None:
    network.wires[0].down = True


def lonely(network: StandIn) -> None:
    network.nodes[0].faults.isolated = True


def failing(network: StandIn) -> None:
    faults = network.nodes[0].faults
    faults.answer("/relay/v1/auto/messages", 500, "oh no", times=10_000, method="POST")


def hanging(network: StandIn) -> None:
    network.nodes[0].faults.stalled.add("relay")


@pytest.mark.parametrize("break_it", [down, lonely, failing, hanging])
@virtual_time
async def test_what_cannot_be_sent_ends_in_an_error_after_a_minute(
    break_it: Callable[[StandIn], None],
) -> None:
    async with stand_in() as network:
        node = await network.open()
        told = events_of(node)
        await listen(node)
        break_it(network)
        await node.send(envelope())
        await asyncio.sleep(50)
        assert told == []
        await asyncio.sleep(35)
        assert len(told) == 1
        assert told[0].startswith("error: not ")
        assert network.wires[0].most_in_a_second() <= 20
        await node.close()


@pytest.mark.parametrize("break_it", [down, lonely, failing, hanging])
@virtual_time
async def test_what_can_be_sent_again_in_time_is_sent_once(
    break_it: Callable[[StandIn], None],
) -> None:
    async with stand_in() as network:
        node, other = await network.open(), await network.open(1)
        heard, told = await listen(other), events_of(node)
        break_it(network)
        await node.send(envelope())
        await asyncio.sleep(30)
        network.wires[0].down = False
        network.nodes[0].faults = network.network.settings.faults()
        await asyncio.sleep(40)
        assert told == ["propagated", "sent"]
        assert heard == [b"hello"]
        await node.close()
        await other.close()


@virtual_time
async def test_what_went_out_though_the_node_says_otherwise_is_heard_once() -> None:
    async with stand_in() as network:
        node, other = await network.open(), await network.open(1)
        heard, told = await listen(other), events_of(node)
        await listen(node)
        faults = network.nodes[0].faults
        faults.answer("/relay/v1/auto/messages", 500, "oh no", method="POST", after=True, times=3)
        await node.send(envelope())
        await asyncio.sleep(10)
        assert heard == [b"hello"]
        assert told == ["propagated", "sent"]
        await node.close()
        await other.close()


@virtual_time
async def test_what_the_node_refuses_is_an_error_at_once_in_its_words() -> None:
    async with stand_in() as network:
        node = await network.open()
        told = events_of(node)
        network.nodes[0].faults.answer("/relay/v1/auto/messages", 400, "Failed to publish: because")
        await node.send(envelope())
        await asyncio.sleep(0.1)
        assert told == ["error: Failed to publish: because"]
        network.nodes[0].faults.answer("/relay/v1/auto/messages", 400, "Failed to publish: because")
        with pytest.raises(PublishRejectedError, match="because"):
            await node.publish("x", envelope())
        await node.close()


STALE = "Failed to publish: stale RLN proof suspected; refresh scheduled, retry the publish: x"


@virtual_time
async def test_a_stale_proof_is_tried_once_more() -> None:
    async with stand_in() as network:
        node = await network.open()
        faults = network.nodes[0].faults
        faults.answer("/relay/v1/auto/messages", 503, STALE)
        assert len(await node.publish("x", envelope())) == 32
        faults.answer("/relay/v1/auto/messages", 503, STALE, times=3)
        before = network.wires[0].paths["POST /relay/v1/auto"]
        with pytest.raises(NodeUnavailableError, match="stale"):
            await node.publish("x", envelope())
        assert network.wires[0].paths["POST /relay/v1/auto"] - before == 2
        await node.close()


@virtual_time
async def test_a_pause_that_the_node_asks_for_is_waited() -> None:
    async with stand_in() as network:
        node = await network.open(query="receive=filter")
        network.nodes[0].faults.answer("/relay/v1/auto/messages", 429, "slowly", times=3)
        began = asyncio.get_running_loop().time()
        await node.publish("x", envelope())
        assert asyncio.get_running_loop().time() - began == pytest.approx(3.0, abs=0.2)
        await node.close()


@virtual_time
async def test_repetitions_are_counted_in_the_budget() -> None:
    async with stand_in(store_loss=1.0) as network:
        limit = RateLimitConfig(enabled=True, epoch_period_sec=600, messages_per_epoch=3)
        node = await network.open(rate_limit_config=limit)
        told = events_of(node)
        await node.send(envelope())
        await asyncio.sleep(100)
        posts = network.wires[0].paths["POST /relay/v1/auto"] - 1 - 1  # finding out, subscribing
        assert posts == 3
        assert node.epoch_budget.remaining(network.clock.now_ns()) == 0
        assert told[-1] == "error: no store had the message within 60 s"
        await node.close()


@virtual_time
async def test_while_there_is_no_connection_nothing_is_counted() -> None:
    async with stand_in() as network:
        limit = RateLimitConfig(enabled=True, epoch_period_sec=600, messages_per_epoch=3)
        node = await network.open(rate_limit_config=limit)
        await listen(node)
        network.wires[0].down = True
        await asyncio.sleep(5)
        await node.send(envelope())
        await asyncio.sleep(50)
        assert node.epoch_budget.remaining(network.clock.now_ns()) == 3
        await node.close()


# --- Questions -----------------------------------------------------------------------------------


@virtual_time
async def test_the_store_is_asked_by_hash_and_by_time() -> None:
    async with stand_in() as network:
        node, other = await network.open(), await network.open(1)
        hashes = [await other.publish("x", envelope(b"%d" % n)) for n in range(45)]
        await other.publish("x", envelope(b"other", content_topic=OTHER))
        found = await node.query(TOPIC, START_NS - SECOND)
        assert [item.message_hash for item in found] == hashes
        assert [item.payload for item in await node.lookup([hashes[4], bytes(32)])] == [b"4"]
        await node.close()
        await other.close()


@virtual_time
async def test_a_query_that_failed_is_made_up_for_when_the_node_is_back() -> None:
    async with stand_in() as network:
        other = await network.open(1)
        for number in range(30):
            await other.publish("x", envelope(b"%d" % number))
        await asyncio.sleep(500)
        network.wires[0].down = True
        node = await network.open()
        heard = await listen(node)
        with pytest.raises(NodeUnavailableError):
            await node.query(TOPIC, START_NS - SECOND)
        network.wires[0].down = False
        await until(lambda: len(heard) == 30, 15)
        assert heard == [b"%d" % number for number in range(30)]
        await node.close()
        await other.close()


@virtual_time
async def test_what_was_on_its_way_to_the_store_when_it_was_asked_comes_later_and_nothing_twice() -> (
    None
):
    async with stand_in(store_lag_s=3.0) as network:
        other = await network.open(1)
        for payload in (b"stored", b"under way"):
            await other.publish("x", envelope(payload))
            await asyncio.sleep(2)
        node = await network.open()
        heard = await listen(node)
        found = await node.query(TOPIC, START_NS)
        assert [item.payload for item in found] == [b"stored"]
        await other.publish("x", envelope(b"live"))
        await asyncio.sleep(40)
        assert heard == [b"live", b"under way"]
        await node.close()
        await other.close()


@virtual_time
@pytest.mark.parametrize("bound", ["MAX_QUERY_BYTES", "MAX_QUERY_MESSAGES"])
async def test_a_query_returns_a_bounded_amount_and_the_rest_comes_by_itself(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"messaging_adapter.waku_rest.{bound}", 15)
    async with stand_in() as network:
        other = await network.open(1)
        names = [b"%d" % number for number in range(50)]
        for name in names:
            await other.publish("x", envelope(name))
        await asyncio.sleep(500)
        node = await network.open()
        heard = await listen(node)
        found = [item.payload for item in await node.query(TOPIC, START_NS)]
        assert found == names[:20]  # a page
        await until(lambda: found + heard == names, 30)
        await asyncio.sleep(60)
        assert found + heard == names
        await node.close()
        await other.close()


@pytest.mark.parametrize(
    "topic", ["/a b/1/room/proto", "/app/1/ü%2F?#&=+/proto", "/app/1/a,b/proto"]
)
@virtual_time
async def test_topics_of_all_characters_are_made_up_for_or_refused(topic: str) -> None:
    async with stand_in() as network:
        other, node = await network.open(1), await network.open()
        if "," in topic:  # it separates topics in a question to a store
            with pytest.raises(InvalidContentTopicError, match="has a comma"):
                await node.subscribe([topic])
        else:
            heard = await listen(node, topic)
            network.wires[0].down = True
            network.nodes[0].restart()
            await other.publish("x", envelope(b"missed", content_topic=topic))
            await asyncio.sleep(3)
            network.wires[0].down = False
            await until(lambda: heard == [b"missed"], 30)
        await node.close()
        await other.close()


@virtual_time
async def test_why_there_is_no_connection_is_logged_when_it_changes_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with stand_in() as network:
        network.wires[0].down = True
        node = await network.open()
        await asyncio.sleep(60)
        network.wires[0].down = False
        network.nodes[0].faults.starting = True
        await asyncio.sleep(60)
        lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(lines) == 2
        assert "not connected yet, it is tried again" in lines[0]
        assert "connection refused" in lines[0]
        assert "while initializing" in lines[1]
        network.nodes[0].faults.starting = False
        await node.link.until_connected(20)
        assert node.link.failure == ""
        await node.close()


# --- The end -------------------------------------------------------------------------------------


def nothing(network: StandIn) -> None:
    """Leave all as it is."""


def hang(network: StandIn) -> None:
    network.wires[0].hangs = True


@pytest.mark.parametrize("break_it", [nothing, down, hang, hanging])
@virtual_time
async def test_closing_is_quick_and_leaves_no_task(break_it: Callable[[StandIn], None]) -> None:
    async with stand_in() as network:
        node = await network.open()
        told = events_of(node)
        await listen(node)
        break_it(network)
        await node.send(envelope())
        await asyncio.sleep(4)
        began = asyncio.get_running_loop().time()
        await node.close()
        assert asyncio.get_running_loop().time() - began <= 1.0
        assert len(asyncio.all_tasks()) == 1
        assert len(told) in (1, 2)
        requests = len(network.wires[0].times)
        await asyncio.sleep(60)
        assert len(network.wires[0].times) == requests
        with pytest.raises(NodeClosedError):
            await node.publish("x", envelope())


@virtual_time
async def test_the_store_of_the_node_is_closed_with_it_when_it_is_the_nodes() -> None:
    async with stand_in() as network:
        node: OverWire = await network.open()
        await node.close()
        await node.close()
