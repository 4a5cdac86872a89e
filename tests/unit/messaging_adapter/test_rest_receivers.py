"""Getting messages: subscribe, ask, forget, renew, leave, each way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from api.devnode.node import Node
from messaging_adapter.rest_client import Refusals, RestClient, RestError, Trouble
from messaging_adapter.rest_receivers import RECEIVERS, ForgottenError, Receiver
from messaging_adapter.rest_url import RestParameters
from messaging_adapter.rest_ways import Ways
from messaging_adapter.rest_wire import MessageReader
from reliable_channel.core.wire import WakuMessage, waku_message_hash
from tests.support.rest import OTHER, TOPIC, StandIn, stand_in
from tests.support.virtual_loop import START_NS, virtual_time

ALL = ["relay", "static", "filter", "messaging"]
FOREIGN = "/app/1/elsewhere/proto"
"""On the same shard: application and version are the same."""


@asynccontextmanager
async def receiver(way: str, **settings: Any) -> AsyncIterator[tuple[Receiver, StandIn]]:
    async with stand_in(**settings) as network:
        parameters = RestParameters.parse("waku+http://node:1")
        client = RestClient(parameters, clock=network.clock, transport=network.wires[0])
        carrier_of = network.network.shard_topic
        reader = MessageReader(carrier_of, 200_000, Refusals(network.clock))
        yield RECEIVERS[way](Ways(client, reader, carrier_of), lambda: "id"), network
        await client.close()


def say(network: StandIn, payload: bytes, topic: str = TOPIC) -> bytes:
    message = WakuMessage(payload, topic, timestamp=START_NS + len(payload))
    carrier = network.network.shard_topic(topic)
    network.nodes[1].publish(carrier, message)
    return waku_message_hash(carrier, message)


async def poll(incoming: Receiver, *topics: str) -> dict[bytes, bytes]:
    return {
        message.payload: message.message_hash
        for target in incoming.targets(topics)
        for message in await incoming.poll(target)
    }


@pytest.mark.parametrize("generation", ["2026-08", "2026-09"])
@pytest.mark.parametrize("way", ALL)
@virtual_time
async def test_messages_come_once_under_their_hashes(way: str, generation: str) -> None:
    async with receiver(way, messaging_api=generation) as (incoming, network):
        await incoming.join([TOPIC, OTHER])
        await incoming.join([TOPIC])
        expected = {b"a": say(network, b"a"), b"bb": say(network, b"bb", OTHER)}
        found = await poll(incoming, TOPIC, OTHER)
        assert {name: found[name] for name in expected} == expected
        assert await poll(incoming, TOPIC, OTHER) == {}
        assert await poll(incoming) == {}


@pytest.mark.parametrize("way", ["relay", "filter", "messaging"])
@virtual_time
async def test_other_topics_stay_away_where_the_node_can_tell(way: str) -> None:
    async with receiver(way) as (incoming, network):
        await incoming.join([TOPIC])
        say(network, b"a", FOREIGN)
        assert await poll(incoming, TOPIC) == {}


@virtual_time
async def test_a_shard_is_asked_once_for_all_its_topics_and_left_with_the_last() -> None:
    async with receiver("static") as (incoming, network):
        shard = network.network.shard_topic(TOPIC)
        assert incoming.targets([TOPIC, FOREIGN]) == [shard]
        await incoming.join([TOPIC, FOREIGN])
        await incoming.leave([TOPIC], [FOREIGN])
        assert ("pubsub", shard) in network.nodes[0].relay.places
        await incoming.leave([FOREIGN], [])
        assert not network.nodes[0].relay.places


def subscribed(node: Node) -> bool:
    return bool(node.relay.places or node.filtered or node.messaging.topics)


@pytest.mark.parametrize("way", ALL)
@virtual_time
async def test_leaving_ends_it_at_the_node(way: str) -> None:
    async with receiver(way) as (incoming, network):
        await incoming.join([TOPIC])
        assert subscribed(network.nodes[0])
        await incoming.leave([TOPIC], [])
        assert not subscribed(network.nodes[0])


@pytest.mark.parametrize("way", ["relay", "static", "filter"])
@virtual_time
async def test_a_node_that_was_restarted_has_forgotten(way: str) -> None:
    async with receiver(way) as (incoming, network):
        await incoming.join([TOPIC])
        network.nodes[0].restart()
        with pytest.raises(ForgottenError) as caught:
            await poll(incoming, TOPIC)
        assert caught.value.trouble is Trouble.FORGOTTEN


def forget_at_peer(node: Node) -> None:
    node.forget_filter()


@pytest.mark.parametrize(
    ("way", "forget"), [("filter", forget_at_peer), ("messaging", Node.restart)]
)
@virtual_time
async def test_what_asking_does_not_show_renewing_finds_or_mends(
    way: str, forget: Callable[[Node], None]
) -> None:
    async with receiver(way) as (incoming, network):
        await incoming.join([TOPIC])
        await incoming.renew([TOPIC])
        forget(network.nodes[0])
        assert await poll(incoming, TOPIC) == {}
        if way == "filter":
            with pytest.raises(ForgottenError):
                await incoming.renew([TOPIC])
            await incoming.join([TOPIC])
        else:
            await incoming.renew([TOPIC])
        say(network, b"a")
        assert list(await poll(incoming, TOPIC)) == [b"a"]


@pytest.mark.parametrize("way", ALL)
@pytest.mark.parametrize(
    ("status", "body", "trouble"),
    [
        (200, '[{"payload": "aG', Trouble.BROKEN),
        (200, "", Trouble.BROKEN),
        (200, "{}", Trouble.BROKEN),
        (500, "oh no", Trouble.FAILED),
        (503, "later", Trouble.FAILED),
        (429, "slowly", Trouble.BUSY),
    ],
)
@virtual_time
async def test_answers_of_no_use_are_errors_with_a_kind(
    way: str, status: int, body: str, trouble: Trouble
) -> None:
    async with receiver(way) as (incoming, network):
        await incoming.join([TOPIC])
        network.nodes[0].faults.answer("/", status, body)
        with pytest.raises(RestError) as caught:
            await poll(incoming, TOPIC)
        assert caught.value.trouble is trouble


@pytest.mark.parametrize("way", ALL)
@virtual_time
async def test_what_is_no_message_among_others_is_left_out(way: str) -> None:
    async with receiver(way) as (incoming, network):
        await incoming.join([TOPIC])
        network.nodes[0].faults.answer("/", 200, '[5, {"payload": "!"}, null]')
        assert await poll(incoming, TOPIC) == {}
