"""Handing a message over: each way's request, hash, refusals, and what may be tried again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from messaging_adapter.rest_client import Refusals, RestClient, RestError, Trouble
from messaging_adapter.rest_publishers import PUBLISHERS, Publisher, StaleProofError
from messaging_adapter.rest_url import RestParameters
from messaging_adapter.rest_ways import Ways
from messaging_adapter.rest_wire import MessageReader
from reliable_channel.core.wire import WakuMessage, waku_message_hash
from reliable_channel.errors import PublishRejectedError
from tests.support.rest import TOPIC, StandIn, stand_in
from tests.support.virtual_loop import START_NS, virtual_time

MESSAGE = WakuMessage(b"hello", TOPIC, timestamp=START_NS, meta=b"mark")
ALL = ["relay", "static", "lightpush", "messaging"]
HASHED = ["relay", "static", "lightpush"]


@asynccontextmanager
async def publisher(way: str, **settings: Any) -> AsyncIterator[tuple[Publisher, StandIn]]:
    async with stand_in(**settings) as network:
        parameters = RestParameters.parse("waku+http://node:1")
        client = RestClient(parameters, clock=network.clock, transport=network.wires[0])
        carrier_of = network.network.shard_topic
        reader = MessageReader(carrier_of, 200_000, Refusals(network.clock))
        yield PUBLISHERS[way](Ways(client, reader, carrier_of)), network
        await client.close()


@pytest.mark.parametrize("way", ALL)
@virtual_time
async def test_a_message_arrives_as_it_is_under_the_hash_that_is_told(way: str) -> None:
    async with publisher(way) as (out, network):
        listener = network.nodes[1].relay
        listener.subscribe(("content", TOPIC))
        told = await out.publish(MESSAGE)
        (found,) = listener.take(("content", TOPIC)) or []
        assert (found.payload, found.meta) == (MESSAGE.payload, MESSAGE.meta)
        assert told == waku_message_hash(network.network.shard_topic(TOPIC), found)
        if way in HASHED:
            assert out.hash_of(MESSAGE) == told
            assert found.timestamp == START_NS
        else:
            assert out.hash_of(MESSAGE) is None
            assert not out.republishes


@virtual_time
async def test_a_shard_is_subscribed_to_where_publishing_needs_it() -> None:
    async with publisher("static") as (out, network):
        await out.publish(MESSAGE)
        await out.publish(MESSAGE)
        assert network.wires[0].paths["POST /relay/v1/subscriptions"] == 1


@pytest.mark.parametrize("way", ALL)
@virtual_time
async def test_what_is_too_large_is_rejected_in_the_nodes_words(way: str) -> None:
    async with publisher(way) as (out, _):
        large = WakuMessage(bytes(160_000), TOPIC, timestamp=START_NS)
        with pytest.raises(PublishRejectedError, match=r"(?i)size|large|exceed"):
            await out.publish(large)


@pytest.mark.parametrize("way", ["relay", "lightpush"])
@virtual_time
async def test_without_peers_it_may_work_later(way: str) -> None:
    async with publisher(way) as (out, network):
        network.nodes[0].faults.isolated = True
        with pytest.raises(RestError, match=r"peer") as caught:
            await out.publish(MESSAGE)
        assert caught.value.trouble is Trouble.FAILED


@pytest.mark.parametrize("way", HASHED)
@virtual_time
async def test_a_request_that_times_out_at_the_node_may_work_later(way: str) -> None:
    async with publisher(way) as (out, network):
        network.nodes[0].faults.stalled.update({"relay", "lightpush"})
        with pytest.raises(RestError, match=r"timed ?out"):
            await out.publish(MESSAGE)


@pytest.mark.parametrize("way", ["relay", "static"])
@virtual_time
async def test_a_stale_proof_is_told_apart(way: str) -> None:
    async with publisher(way) as (out, network):
        words = "Failed to publish: stale RLN proof suspected; refresh scheduled, retry"
        await out.publish(MESSAGE)
        network.nodes[0].faults.answer("/relay/v1", 503, words)
        with pytest.raises(StaleProofError, match="refresh scheduled"):
            await out.publish(MESSAGE)


@virtual_time
async def test_a_duplicate_is_a_success() -> None:
    async with publisher("relay") as (out, network):
        network.nodes[0].faults.answer("/relay/v1", 400, "Failed to publish: DuplicateMessage")
        assert await out.publish(MESSAGE) == out.hash_of(MESSAGE)


@pytest.mark.parametrize(
    ("status", "words", "rejected"),
    [
        (400, "Invalid message! no", True),
        (413, "too large", True),
        (421, "unsupported", True),
        (500, "INVALID MESSAGE: proof", True),  # 420, which the node's HTTP library does not know
        (500, "internal", False),
        (503, "no peer", False),
        (504, "out of proofs", False),
        (505, "nobody", False),
    ],
)
@virtual_time
async def test_codes_of_light_push_decide(status: int, words: str, rejected: bool) -> None:
    async with publisher("lightpush") as (out, network):
        body = f'{{"statusDesc": "{words}"}}'
        network.nodes[0].faults.answer("/lightpush", status, body)
        with pytest.raises(PublishRejectedError if rejected else RestError, match=words):
            await out.publish(MESSAGE)


@virtual_time
async def test_without_auto_sharding_publishing_by_content_topic_says_so() -> None:
    async with publisher("relay", auto_sharding=False) as (out, _):
        with pytest.raises(RestError, match="does not shard"):
            await out.publish(MESSAGE)


@pytest.mark.parametrize("generation", ["2026-08", "2026-09"])
@virtual_time
async def test_the_messaging_api_is_waited_for_until_it_has_sent(generation: str) -> None:
    async with publisher("messaging", messaging_api=generation, queue_s=20.0) as (out, network):
        loop_time = network.clock.now_ns()
        assert len(await out.publish(MESSAGE)) == 32
        waited = (network.clock.now_ns() - loop_time) / 1e9
        assert 20.0 <= waited < 23.0
        assert network.wires[0].most_in_a_second() <= 10


@virtual_time
async def test_what_the_messaging_api_gives_up_may_work_later() -> None:
    async with publisher("messaging") as (out, network):
        network.nodes[0].faults.isolated = True
        with pytest.raises(RestError, match=r"retry time window|does not say"):
            await out.publish(MESSAGE)
        assert network.wires[0].most_in_a_second() <= 10


@pytest.mark.parametrize("status", [400, 422, 500])
@virtual_time
async def test_a_refused_question_for_the_outcome_does_not_reject_the_message(status: int) -> None:
    async with publisher("messaging") as (out, network):
        network.nodes[0].faults.answer("/messaging/v1/events", status, "what?")
        with pytest.raises(RestError, match=r"what\?"):
            await out.publish(MESSAGE)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/messaging/v1/messages", "{}"),
        ("/messaging/v1/messages", '{"requestId": "a'),
        ("/messaging/v1/events", '{"events": 5}'),
    ],
)
@virtual_time
async def test_an_unreadable_answer_of_the_messaging_api_is_an_error(path: str, body: str) -> None:
    async with publisher("messaging") as (out, network):
        network.nodes[0].faults.answer(path, 200, body)
        with pytest.raises(RestError) as caught:
            await out.publish(MESSAGE)
        assert caught.value.trouble is Trouble.BROKEN
