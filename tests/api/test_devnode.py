"""``reliable-channel devnode`` over HTTP answers as a Waku node does: statuses, bodies, content types, gaps."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.support.devnode import Devnode, run_devnode, run_devnode_process
from tests.support.devnode_contract import CASES, MESSAGE, QUOTED, SHARD, TOPIC, Case
from tests.support.devnode_contract_services import SERVICE_CASES
from tests.support.serve_process import END_SEC


@pytest.fixture
async def one() -> AsyncIterator[Devnode]:
    async with run_devnode() as devnode:
        yield devnode


async def ask(
    client: httpx.AsyncClient, request: str, body: Any = None, **more: Any
) -> httpx.Response:
    method, _, path = request.partition(" ")
    given = {} if body is None else {"json": body}
    return await client.request(method, path, **{**given, **more})


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{number} {case}")
        for number, case in enumerate([*CASES, *SERVICE_CASES])
    ],
)
async def test_each_route_answers_as_a_node_does(case: Case) -> None:
    async with run_devnode(**case.settings) as devnode, devnode.client() as client:
        for request, body in case.first:
            assert (await ask(client, request, body)).status_code == 200
        for name, value in case.faults.items():
            setattr(devnode.node.faults, name, value)
        headers = {**case.headers, **({"content-type": case.kind} if case.body or case.raw else {})}
        raw = {"content": case.raw} if case.raw is not None else {}
        answer = await ask(client, case.request, case.body, headers=headers, **raw)
    assert answer.status_code == case.status, answer.text
    found: Any = answer.text
    if isinstance(case.says, re.Pattern):
        assert case.says.search(found)
        is_json = found.startswith(("{", "["))
    elif isinstance(case.says, str):
        assert found == case.says
        is_json = False
    else:
        found = answer.json()
        if isinstance(found, dict) and "statusCode" in found:
            assert re.fullmatch("[0-9a-f]{20}", found.pop("requestId"))
        assert found == case.says
        is_json = True
    assert answer.headers["content-type"] == ("application/json" if is_json else "text/plain")


# --- What a client has to live with --------------------------------------------------------------


def message(number: int, topic: str = TOPIC) -> dict[str, Any]:
    payload = base64.b64encode(f"m{number}".encode()).decode()
    return {**MESSAGE, "payload": payload, "contentTopic": topic, "timestamp": 10**18 + number}


async def publish(client: httpx.AsyncClient, *numbers: int, topic: str = TOPIC) -> None:
    for number in numbers:
        answer = await ask(client, "POST /relay/v1/auto/messages", message(number, topic))
        assert (answer.status_code, answer.text) == (200, "OK")


def numbers_of(messages: list[dict[str, Any]]) -> list[int]:
    return [int(base64.b64decode(item["payload"])[1:]) for item in messages]


async def poll(client: httpx.AsyncClient) -> list[int]:
    answer = await ask(client, f"GET /relay/v1/auto/messages/{QUOTED}")
    return numbers_of(answer.json())


async def join(*clients: httpx.AsyncClient) -> None:
    for client in clients:
        await ask(client, "POST /relay/v1/auto/subscriptions", [TOPIC])
        await ask(client, "POST /filter/v2/subscriptions", FILTER_BODY)
        await ask(client, "POST /messaging/v1/subscriptions", [TOPIC])


FILTER_BODY = {"requestId": "f", "contentFilters": [TOPIC]}


async def test_every_cache_keeps_the_newest_fifty(one: Devnode) -> None:
    async with one.client() as client:
        await join(client)
        await publish(client, *range(60))
        assert await poll(client) == [*range(10, 60)]
        filtered = await ask(client, f"GET /filter/v2/messages/{QUOTED}")
        assert numbers_of(filtered.json()) == [*range(10, 60)]
        received = await ask(client, "GET /messaging/v1/events/received")
        assert numbers_of([item["message"] for item in received.json()]) == [*range(10, 60)]
        assert await poll(client) == []


async def test_a_cache_evicts_by_time_and_not_by_arrival() -> None:
    async with run_devnode(cache_capacity=2) as devnode, devnode.client() as client:
        await join(client)
        await publish(client, 5, 1, 9)
        assert await poll(client) == [5, 9]


async def test_all_nodes_hear_what_one_relays_and_each_has_its_own_caches() -> None:
    async with (
        run_devnode(nodes=3) as devnode,
        devnode.client(0) as first,
        devnode.client(1) as second,
        devnode.client(2) as third,
    ):
        await join(first, second)
        await publish(first, 1)
        assert [await poll(first), await poll(first), await poll(second)] == [[1], [], [1]]
        await join(third)
        await publish(second, 2)
        assert [await poll(first), await poll(second), await poll(third)] == [[2], [2], [2]]


async def test_without_self_echo_only_the_others_hear_it() -> None:
    async with (
        run_devnode(nodes=2, self_echo=False) as devnode,
        devnode.client(0) as first,
        devnode.client(1) as second,
    ):
        await join(first, second)
        await publish(first, 1)
        assert [await poll(first), await poll(second)] == [[], [1]]


async def test_a_duplicate_comes_again_after_the_first_was_read() -> None:
    async with run_devnode(duplicate=1.0) as devnode, devnode.client() as client:
        await join(client)
        await publish(client, 1)
        assert [await poll(client), await poll(client), await poll(client)] == [[1], [1], []]


async def test_what_was_published_twice_arrives_once(one: Devnode) -> None:
    async with one.client() as client:
        await join(client)
        await publish(client, 1)
        assert await poll(client) == [1]
        await publish(client, 1)
        assert await poll(client) == []


async def test_later_messages_overtake() -> None:
    async with (
        run_devnode(reorder=0.5, delay_ms=100.0, seed=3) as devnode,
        devnode.client() as client,
    ):
        await join(client)
        await publish(client, *range(20))
        got: list[int] = []
        async with asyncio.timeout(END_SEC):
            while len(got) < 20:
                got += await poll(client)
    assert sorted(got) == [*range(20)]
    assert got != [*range(20)]


async def test_the_same_seed_loses_the_same() -> None:
    async def left(seed: int) -> list[int]:
        async with run_devnode(loss=0.5, seed=seed) as devnode, devnode.client() as client:
            await join(client)
            await publish(client, *range(30))
            return await poll(client)

    first = await left(1)
    assert 0 < len(first) < 30
    assert [await left(1) == first, await left(2) == first] == [True, False]


async def test_drop_every_loses_by_count() -> None:
    async with run_devnode(drop_every=3) as devnode, devnode.client() as client:
        await join(client)
        await publish(client, *range(1, 10))
        assert await poll(client) == [1, 2, 4, 5, 7, 8]


async def test_without_peers_relay_says_ok_and_nobody_gets_it() -> None:
    async with (
        run_devnode(nodes=2) as devnode,
        devnode.client(0) as first,
        devnode.client(1) as second,
    ):
        await join(first, second)
        await ask(first, "POST /relay/v1/subscriptions", [SHARD])
        devnode.node.faults.isolated = True
        quoted = SHARD.replace("/", "%2F")
        answer = await ask(first, f"POST /relay/v1/messages/{quoted}", message(1))
        assert (answer.status_code, answer.text) == (200, "OK")
        assert [await poll(first), await poll(second)] == [[1], []]
        assert (await ask(second, "GET /store/v3/messages")).json()["messages"] == []


async def test_the_store_lags_behind() -> None:
    async with run_devnode(store_lag_s=3_600.0) as devnode, devnode.client() as client:
        await join(client)
        await publish(client, 1)
        assert await poll(client) == [1]
        assert (await ask(client, "GET /store/v3/messages")).json()["messages"] == []


@pytest.mark.parametrize(("direction", "size"), [("true", 7), ("false", 7), ("true", 500)])
async def test_pages_hold_everything_once(one: Devnode, direction: str, size: int) -> None:
    async with one.client() as client:
        await publish(client, *range(130))
        pages: list[list[int]] = []
        query = f"includeData=true&ascending={direction}&pageSize={size}"
        body: dict[str, Any] = {"paginationCursor": None}
        while "paginationCursor" in body:
            cursor = body["paginationCursor"]
            more = "" if cursor is None else f"&cursor={cursor}"
            body = (await ask(client, f"GET /store/v3/messages?{query}{more}")).json()
            pages.append(numbers_of([item["message"] for item in body["messages"]]))
    assert {len(page) for page in pages[:-1]} == {min(size, 100)}
    ordered = pages if direction == "true" else pages[::-1]
    assert [number for page in ordered for number in page] == [*range(130)]


async def test_a_page_without_a_size_has_twenty(one: Devnode) -> None:
    async with one.client() as client:
        await publish(client, *range(21))
        body = (await ask(client, "GET /store/v3/messages")).json()
        assert len(body["messages"]) == 20
        assert re.fullmatch("0x[0-9a-f]{64}", body["paginationCursor"])


async def test_ephemeral_messages_are_not_kept(one: Devnode) -> None:
    async with one.client() as client:
        await join(client)
        await ask(client, "POST /relay/v1/auto/messages", {**message(1), "ephemeral": True})
        assert await poll(client) == [1]
        assert (await ask(client, "GET /store/v3/messages")).json()["messages"] == []


@pytest.mark.parametrize("generation", ["2026-08", "2026-09"])
async def test_both_generations_tell_what_became_of_a_message(generation: str) -> None:
    settings = {"messaging_api": generation, "queue_s": 0.001, "reliability": False}
    async with run_devnode(**settings) as devnode, devnode.client() as client:
        body = {"payload": "aGk=", "contentTopic": TOPIC}
        sent = (await ask(client, "POST /messaging/v1/messages", body)).json()["requestId"]
        events: list[dict[str, Any]] = []
        async with asyncio.timeout(END_SEC):
            while not events or events[-1]["kind"] != "propagated":
                answer = await ask(client, f"GET /messaging/v1/events/send/{sent}")
                if answer.status_code == 200:
                    assert answer.json()["requestId"] == sent
                    events += answer.json()["events"]
        newer = generation == "2026-09"
        assert [event["kind"] for event in events] == ["queued"] * newer + ["propagated"]
        assert ("expectedPublishTimestamp" in events[0]) == newer
        assert all({"messageHash", "timestamp"} <= event.keys() for event in events)
        (received,) = (await ask(client, "GET /messaging/v1/events/received")).json()
        assert received["messageHash"] == events[-1]["messageHash"]
        assert received.get("source") == ("live" if newer else None)


async def test_what_was_left_is_not_received(one: Devnode) -> None:
    async with one.client() as client:
        await join(client)
        await ask(client, "DELETE /messaging/v1/subscriptions", [TOPIC])
        await publish(client, 1)
        assert (await ask(client, "GET /messaging/v1/events/received")).json() == []


async def test_health_names_thirteen_protocols(one: Devnode) -> None:
    async with one.client() as client:
        body = (await ask(client, "GET /health")).json()
    assert (body["nodeHealth"], body["connectionStatus"]) == ("READY", "Connected")
    names = [name for item in body["protocolsHealth"] for name in item if name != "desc"]
    assert names == [
        "Relay",
        "Rln Relay",
        "Store",
        "Filter",
        "Lightpush",
        "Legacy Lightpush",
        "Peer Exchange",
        "Rendezvous",
        "Mix",
        "Store Client",
        "Filter Client",
        "Lightpush Client",
        "Legacy Lightpush Client",
    ]


async def test_admin_counts_the_peers() -> None:
    async with run_devnode(nodes=2, admin=True) as devnode, devnode.client() as client:
        peers = (await ask(client, "GET /admin/v1/peers")).json()
        assert len(peers) == 5
        assert {*peers[0]} == {
            "multiaddr",
            "protocols",
            "shards",
            "connected",
            "agent",
            "origin",
            "score",
        }
        peer_id = peers[0]["multiaddr"].rpartition("/")[2]
        assert (await ask(client, f"GET /admin/v1/peer/{peer_id}")).json() == peers[0]
        stats = (await ask(client, "GET /admin/v1/peers/stats")).json()
        assert stats["Sum"] == {"Total peers": 5}
        assert stats["Relay peers"]["Total relay peers"] == 5
        mesh = (await ask(client, "GET /admin/v1/peers/mesh")).json()
        assert [item["shard"] for item in mesh] == [*range(8)]
        async with devnode.client(1) as second:
            await ask(second, "POST /filter/v2/subscriptions", FILTER_BODY)
        (subscribed,) = (await ask(client, "GET /admin/v1/filter/subscriptions")).json()
        assert subscribed["filterCriteria"] == [{"pubsubTopic": SHARD, "contentTopic": TOPIC}]


@pytest.mark.parametrize(
    ("allowed", "origin", "expected"),
    [
        (("*",), "https://a.example", {"access-control-allow-origin": "*"}),
        (("*",), "https://a.example", {"access-control-allow-headers": "Content-Type"}),
        (("https://a.example",), "https://a.example", {"vary": "Origin"}),
    ],
)
async def test_allowed_origins(allowed: tuple[str], origin: str, expected: dict[str, str]) -> None:
    async with run_devnode(allow_origin=allowed) as devnode, devnode.client() as client:
        answer = await client.get("/info", headers={"origin": origin})
        assert answer.status_code == 200
        assert expected.items() <= dict(answer.headers).items()
        twice = await client.get("/info", headers=[("origin", origin), ("origin", origin)])
        assert (twice.status_code, twice.text) == (
            400,
            "Only a single Origin header must be specified",
        )


async def test_a_body_has_a_bound(one: Devnode) -> None:
    async with one.client() as client:
        headers = {"content-type": "text/plain"}
        path = "/relay/v1/subscriptions"
        fits = await client.post(path, content=b" " * ((16 << 20) - 2) + b"[]", headers=headers)
        assert fits.status_code == 200
        large = await client.post(path, content=b" " * ((16 << 20) - 1) + b"[]", headers=headers)
        assert large.status_code == 413


# --- What tests switch on ------------------------------------------------------------------------


async def test_an_answer_can_be_forced(one: Devnode) -> None:
    async with one.client() as client:
        await join(client)
        one.node.faults.answer("/relay/v1/auto/messages", 503, "stale", method="POST", times=2)
        answers = [await ask(client, "POST /relay/v1/auto/messages", message(n)) for n in range(3)]
        assert [answer.status_code for answer in answers] == [503, 503, 200]
        assert await poll(client) == [2]
        one.node.faults.answer("/relay/v1/auto/messages", 500, "lost", after=True)
        answer = await ask(client, "POST /relay/v1/auto/messages", message(9))
        assert (answer.status_code, answer.text, await poll(client)) == (500, "lost", [9])


async def test_answers_end_in_the_middle(one: Devnode) -> None:
    one.node.faults.cut_rate = 1.0
    async with one.client() as client:
        half = await client.get("/info")
        with pytest.raises(ValueError, match=r"Unterminated|Expecting|delimiter"):
            half.json()
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/info")


async def test_a_node_that_comes_back_has_forgotten_all_but_the_store(one: Devnode) -> None:
    async with one.client() as client:
        await join(client)
        await publish(client, 1)
        await one.stop()
        with pytest.raises(httpx.TransportError):
            await client.get("/health")
        await one.start()
        assert (await ask(client, f"GET /relay/v1/auto/messages/{QUOTED}")).status_code == 404
        assert len((await ask(client, "GET /store/v3/messages")).json()["messages"]) == 1


async def test_the_filter_peer_can_forget(one: Devnode) -> None:
    async with one.client() as client:
        await join(client)
        one.node.forget_filter()
        assert (await ask(client, "GET /filter/v2/subscriptions/f")).status_code == 404
        await publish(client, 1)
        assert (await ask(client, f"GET /filter/v2/messages/{QUOTED}")).json() == []


# --- The process ---------------------------------------------------------------------------------


@pytest.mark.timeout(60)
async def test_the_process_listens_on_several_ports_and_ends_with_0() -> None:
    options = ["--loss", "0.1", "--store-lag-s", "0", "--without", "filter", "--shards", "4"]
    async with run_devnode_process(*options, nodes=2) as process:
        assert len({*process.urls}) == 2
        for url in process.urls:
            async with httpx.AsyncClient(base_url=url, verify=False) as client:
                assert (await client.get("/health")).status_code == 200
                assert (await client.get("/filter/v2/messages/x")).status_code == 404
                await publish(client, 1)
                assert len((await client.get("/store/v3/messages")).json()["messages"]) == 1
        assert await process.stop() == 0
