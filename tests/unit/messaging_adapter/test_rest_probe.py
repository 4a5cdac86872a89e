"""Finding out what a node has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import httpx
import pytest

from messaging_adapter.rest_client import RestClient, RestError
from messaging_adapter.rest_probe import ORDER, REPEATS, choose, probe
from messaging_adapter.rest_url import RestParameters
from reliable_channel.errors import ConfigurationError
from tests.support.rest import StandIn, stand_in
from tests.support.virtual_loop import virtual_time

EVERYTHING = {"static", "relay", "filter", "lightpush", "store", "messaging", "health"}


async def probed(network: StandIn, transport: httpx.AsyncBaseTransport | None = None) -> set[str]:
    parameters = RestParameters.parse("waku+http://node:1")
    wire = transport or network.wires[0]
    client = RestClient(parameters, clock=network.clock, transport=wire)
    try:
        return set(await probe(client))
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("settings", "lacks"),
    [
        ({}, set()),
        ({"without": ("relay",)}, {"static", "relay"}),
        ({"without": ("filter", "lightpush", "store")}, {"filter", "lightpush", "store"}),
        ({"messaging_api": "none"}, {"messaging"}),
        ({"auto_sharding": False}, {"relay"}),
    ],
)
@virtual_time
async def test_what_a_node_has_is_found_out_and_nothing_changed(
    settings: dict[str, object], lacks: set[str]
) -> None:
    async with stand_in(**settings) as network:
        assert await probed(network) == EVERYTHING - lacks
        node = network.nodes[0]
        assert not node.relay.places
        assert not node.filtered
        assert not node.messaging.topics
        assert node.arrived == 0
        assert len(network.wires[0].times) == 7


@virtual_time
async def test_a_node_without_peers_has_what_it_has() -> None:
    async with stand_in() as network:
        network.nodes[0].faults.isolated = True
        assert await probed(network) == EVERYTHING


@virtual_time
async def test_a_node_that_is_starting_is_waited_for() -> None:
    async with stand_in() as network:
        network.nodes[0].faults.starting = True
        with pytest.raises(RestError, match="while initializing"):
            await probed(network)


class Torn(httpx.AsyncBaseTransport):
    """A way to a node on which so many answers to each question break off."""

    def __init__(self, wire: httpx.AsyncBaseTransport, breaks: int) -> None:
        self._wire = wire
        self._breaks = breaks
        self.asked: Counter[str] = Counter()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.asked[path] += 1
        if self.asked[path] <= self._breaks:
            raise httpx.RemoteProtocolError("the answer broke off")
        return await self._wire.handle_async_request(request)


@virtual_time
async def test_what_breaks_off_is_asked_for_again() -> None:
    async with stand_in() as network:
        torn = Torn(network.wires[0], REPEATS)
        assert await probed(network, torn) == EVERYTHING
        assert [*torn.asked.values()] == [REPEATS + 1] * 7


@virtual_time
async def test_a_node_whose_answers_always_break_off_is_waited_for() -> None:
    async with stand_in() as network:
        torn = Torn(network.wires[0], REPEATS + 1)
        with pytest.raises(RestError, match="broke off"):
            await probed(network, torn)
        assert [*torn.asked.values()] == [REPEATS + 1]


def always(status: int, body: bytes) -> httpx.MockTransport:
    return httpx.MockTransport(lambda _: httpx.Response(status, stream=httpx.ByteStream(body)))


@pytest.mark.parametrize("status", [500, 502, 503])
@virtual_time
async def test_a_sick_node_is_waited_for(status: int) -> None:
    async with stand_in() as network:
        with pytest.raises(RestError, match="oh no"):
            await probed(network, always(status, b"oh no"))


@pytest.mark.parametrize("status", [401, 403])
@virtual_time
async def test_a_node_that_does_not_let_us_in_says_so(status: int) -> None:
    async with stand_in() as network:
        with pytest.raises(ConfigurationError, match="check user and password"):
            await probed(network, always(status, b"go away"))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b"Bad request initiated. Invalid path or method used."),
        (404, b"<html>Not Found</html>"),
        (200, b"\n<!doctype html><html>Welcome</html>"),
        (302, b""),
        (308, b"moved"),
    ],
)
@virtual_time
async def test_another_kind_of_server_has_nothing(status: int, body: bytes) -> None:
    async with stand_in() as network:
        assert await probed(network, always(status, body)) == set()


@pytest.mark.parametrize(
    ("wanted", "mode", "areas", "expected"),
    [
        ("auto", "core", EVERYTHING, ("relay", "relay")),
        ("auto", "core", EVERYTHING - {"relay"}, ("static", "static")),
        ("auto", "core", EVERYTHING - {"relay", "static"}, ("lightpush", "filter")),
        ("auto", "core", {"messaging"}, ("messaging", "messaging")),
        ("auto", "edge", EVERYTHING, ("lightpush", "filter")),
        ("auto", "edge", {"relay", "messaging"}, ("messaging", "messaging")),
        ("static", "core", EVERYTHING, ("static", "static")),
        ("messaging", "edge", EVERYTHING, ("messaging", "messaging")),
    ],
)
def test_the_best_way_that_a_node_has_is_taken(
    wanted: str, mode: str, areas: set[str], expected: Sequence[str]
) -> None:
    publish, receive = ORDER["core" if mode == "core" else "edge"]
    assert choose(wanted, publish, areas, "publish") == expected[0]
    assert choose(wanted, receive, areas, "receive") == expected[1]


def test_a_way_that_is_not_there_is_refused_with_what_is_there() -> None:
    with pytest.raises(ConfigurationError, match="publish by lightpush; it has relay, store"):
        choose("lightpush", (), {"store", "relay"}, "publish")
    with pytest.raises(ConfigurationError, match="by any of filter, messaging; it has nothing"):
        choose("auto", ("filter", "messaging"), (), "receive")
