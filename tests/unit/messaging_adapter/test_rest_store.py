"""Questions to a store: presence, lookup, pages, stores that answer nonsense."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx
import pytest

from api.devnode.network import Network
from messaging_adapter.rest_client import Refusals, RestClient, RestError
from messaging_adapter.rest_store import MAX_PAGES, RestStore
from messaging_adapter.rest_url import RestParameters
from messaging_adapter.rest_wire import MessageReader
from reliable_channel.core.wire import WakuMessage, waku_message_hash
from tests.support.rest import OTHER, TOPIC, StandIn, stand_in
from tests.support.virtual_loop import START_NS, virtual_time


def fill(network: Network, count: int, topic: str = TOPIC) -> list[bytes]:
    hashes = []
    carrier = network.shard_topic(topic)
    for number in range(count):
        message = WakuMessage(b"%d" % number, topic, timestamp=START_NS + number)
        network.publish(network.nodes[0], carrier, message)
        hashes.append(waku_message_hash(carrier, message))
    return hashes


def store_over(
    transport: httpx.AsyncBaseTransport, network: StandIn, peers: Sequence[str] = ()
) -> tuple[RestStore, RestClient, Refusals]:
    parameters = RestParameters.parse("waku+http://node:1")
    client = RestClient(parameters, clock=network.clock, transport=transport)
    refusals = Refusals(network.clock)
    reader = MessageReader(network.network.shard_topic, 200_000, refusals)
    return RestStore(client, reader, refusals, peers), client, refusals


@asynccontextmanager
async def store() -> AsyncIterator[tuple[RestStore, StandIn]]:
    async with stand_in() as network:
        found, client, _ = store_over(network.wires[0], network)
        yield found, network
        await client.close()


@virtual_time
async def test_presence_names_what_is_there_and_nothing_else() -> None:
    async with store() as (asked, network):
        hashes = fill(network.network, 3)
        assert await asked.present([hashes[1], bytes(32)]) == {hashes[1]}


@virtual_time
async def test_lookup_keeps_the_order_asked_over_several_requests() -> None:
    async with store() as (asked, network):
        hashes = fill(network.network, 100)
        wanted = [*reversed(hashes), hashes[0], bytes(32)]
        found = await asked.lookup(wanted)
        assert [item.message_hash for item in found] == wanted[:100]
        assert network.wires[0].paths["GET /store/v3/messages"] == 6


@virtual_time
async def test_pages_give_everything_since_a_time_oldest_first() -> None:
    async with store() as (asked, network):
        hashes = fill(network.network, 250)
        fill(network.network, 5, OTHER)
        carrier = network.network.shard_topic(TOPIC)
        pages = [page async for page in asked.hashes_since(carrier, [TOPIC], START_NS + 10)]
        assert [len(page) for page in pages] == [100, 100, 40]
        assert [item for page in pages for item in page] == hashes[10:]
        messages = [
            item.payload
            async for page in asked.messages_since(carrier, [TOPIC], START_NS + 200)
            for item in page
        ]
        assert messages == [b"%d" % number for number in range(200, 250)]


def canned(*answers: tuple[int, object]) -> httpx.MockTransport:
    given = iter(answers)
    last = answers[-1]

    def handle(request: httpx.Request) -> httpx.Response:
        status, body = next(given, last)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx.Response(status, stream=httpx.ByteStream(content))

    return httpx.MockTransport(handle)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (412, b"No suitable service peer & no discovery method", "No suitable service peer"),
        (500, b"No history response received (timeout)", "timeout"),
        (400, b"time parsing error: x", "time parsing error"),
        (404, b"/store endpoints are not available", "not available"),
        (200, {"statusCode": 503, "statusDesc": "down", "messages": []}, "503: down"),
        (200, b'{"messages": [', "cannot be read"),
        (200, b"", "cannot be read"),
        (200, [], "cannot be read"),
    ],
)
@virtual_time
async def test_what_is_no_answer_is_an_error_with_the_stores_words(
    status: int, body: object, words: str
) -> None:
    async with stand_in() as network:
        asked, client, _ = store_over(canned((status, body)), network)
        for question in (asked.present([bytes(32)]), asked.lookup([bytes(32)])):
            with pytest.raises(RestError, match=words):
                await question
        await client.close()


@virtual_time
async def test_a_store_that_names_pages_in_a_circle_or_without_end_is_left() -> None:
    def page(number: int) -> tuple[int, object]:
        return 200, {"messages": [], "paginationCursor": f"0x{number:064x}"}

    async with stand_in() as network:
        asked, client, refusals = store_over(canned(page(1), page(2), page(1)), network)
        assert len([page async for page in asked.hashes_since("/p", [TOPIC], 0)]) == 3
        assert refusals.counts == {"cursor_loop": 1}
        await client.close()
        endless = canned(*(page(number) for number in range(MAX_PAGES + 10)))
        asked, client, refusals = store_over(endless, network)
        assert len([page async for page in asked.hashes_since("/p", [TOPIC], 0)]) == MAX_PAGES
        assert refusals.counts == {"endless_pages": 1}
        await client.close()


@virtual_time
async def test_a_store_node_that_fails_is_replaced_by_the_next() -> None:
    asked_of: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked_of.append(request.url.params["peerAddr"])
        good = asked_of[-1] == "/b"
        body = b'{"messages": []}' if good else b"cannot dial"
        return httpx.Response(200 if good else 500, stream=httpx.ByteStream(body))

    async with stand_in() as network:
        transport = httpx.MockTransport(handle)
        asked, client, _ = store_over(transport, network, ["/a", "/b"])
        with pytest.raises(RestError):
            await asked.present([bytes(32)])
        assert await asked.present([bytes(32)]) == set()
        assert await asked.present([bytes(32)]) == set()
        assert asked_of == ["/a", "/b", "/b"]
        await client.close()
