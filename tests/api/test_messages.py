"""Sending and reading messages over REST, against whole services on one network."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.served import Served, new_network, path_of, problem_name, served

MESSAGES = f"{path_of()}/messages"
OCTETS = {"Content-Type": "application/octet-stream"}


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Served, Served]]:
    """Two services that have the same channel open."""
    network = new_network()
    async with AsyncExitStack() as stack:
        alice = await stack.enter_async_context(served(node=network))
        bob = await stack.enter_async_context(served(node=network))
        await alice.open(sender_id="alice")
        await bob.open(sender_id="bob")
        yield alice, bob


async def wait_for_events(it: Served, *names: str) -> list[dict[str, object]]:
    """Return the first events of some kinds, one for each name, when they are there."""
    found: list[dict[str, object]] = []
    after = 0
    while len(found) < len(names):
        page = await it.client.get(
            f"{path_of()}/events", params={"after": after, "limit": 1, "wait": 10}
        )
        assert page.status_code == 200
        assert page.json()["events"], "nothing came"
        after = page.json()["next"]
        found += [event for event in page.json()["events"] if event["name"] in names]
    return found


RECEIVED = "reliable:message:received"
DELIVERED = "reliable:message:delivered"


async def test_a_message_goes_from_service_to_service(ends: tuple[Served, Served]) -> None:
    alice, bob = ends
    body = {"payload": base64.b64encode(b"hello").decode()}
    sent = await alice.client.post(MESSAGES, json=body)
    assert sent.status_code == 202
    request_id = sent.json()["requestId"]
    assert sent.headers["location"] == f"{path_of()}/requests/{quote(request_id, safe='')}"
    await wait_for_events(bob, RECEIVED)
    page = (await bob.client.get(MESSAGES)).json()
    (message,) = page["messages"]
    assert base64.b64decode(message["payload"]) == b"hello"
    assert (message["senderId"], message["sequence"]) == ("alice", page["next"])
    assert message["receivedAt"].endswith("Z")
    assert (await bob.send(b"thanks")).status_code == 202
    await wait_for_events(alice, DELIVERED)
    state = (await alice.client.get(sent.headers["location"])).json()
    assert (state["state"], state["final"], state["recipients"]) == ("delivered", True, ["bob"])


async def test_messages_are_read_in_order_from_a_cursor(ends: tuple[Served, Served]) -> None:
    alice, bob = ends
    for number in range(7):
        await alice.send(str(number).encode())
    await wait_for_events(bob, *[RECEIVED] * 7)
    seen: list[bytes] = []
    after = 0
    while True:
        page = (await bob.client.get(MESSAGES, params={"after": after, "limit": 3})).json()
        assert len(page["messages"]) <= 3
        if page["next"] == after:
            break
        seen += [base64.b64decode(message["payload"]) for message in page["messages"]]
        after = page["next"]
    assert seen == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]


async def test_the_cursor_passes_events_that_are_no_messages(ends: tuple[Served, Served]) -> None:
    alice, bob = ends
    await alice.send(b"one")
    await wait_for_events(bob, RECEIVED)
    await wait_for_events(alice, "reliable:message:sent")
    page = (await alice.client.get(MESSAGES)).json()
    assert page["messages"] == []
    assert page["next"] >= 1


@pytest.mark.parametrize(
    "query", ["after=-1", "after=x", f"after={1 << 63}", "limit=0", "limit=1001", "a=1"]
)
async def test_a_page_that_cannot_be_is_refused(query: str) -> None:
    async with served() as it:
        await it.open()
        answer = await it.client.get(f"{MESSAGES}?{query}")
        assert (answer.status_code, problem_name(answer)) == (422, "invalid-request")


JSON_BODIES = {
    "no base64": '{"payload": "***"}',
    "URL-safe base64": '{"payload": "_-_-"}',
    "without padding": '{"payload": "aGk"}',
    "line breaks": '{"payload": "aGVs\\nbG8="}',
    "stray bits": '{"payload": "aGl="}',
    "no text": '{"payload": 5}',
    "a list": '{"payload": ["aGk="]}',
    "null": '{"payload": null}',
    "no payload": "{}",
    "unknown field": '{"payload": "aGk=", "colour": "red"}',
    "ephemeral of a wrong type": '{"payload": "aGk=", "ephemeral": "yes"}',
    "broken": '{"payload": "aGk="',
    "nothing": "",
    "no UTF-8": b'{"payload": "\xff"}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("body", JSON_BODIES.values(), ids=list(JSON_BODIES))
async def test_what_is_no_message_is_refused_without_an_echo(
    body: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as it:
        await it.open()
        answer = await it.client.post(
            MESSAGES, content=body, headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, problem_name(answer)) == (422, "invalid-request")
        assert answer.json()["errors"]
        for given in ("***", "_-_-", "aGVs", "aGl="):
            assert given not in answer.text + caplog.text
        assert (await it.client.get(path_of())).json()["status"]["openRequests"] == 0


async def test_an_empty_payload_is_refused() -> None:
    async with served() as it:
        await it.open()
        for answer in (await it.send(b""), await it.client.post(MESSAGES, json={"payload": ""})):
            assert (answer.status_code, problem_name(answer)) == (422, "empty-payload")


async def test_a_payload_above_the_limit_is_refused() -> None:
    async with served() as it:
        opened = await it.open(sds={"maxOutgoingBytes": 1000})
        assert opened.json()["maxPayloadBytes"] == 1000
        answer = await it.send(bytes(1001))
        assert (answer.status_code, problem_name(answer)) == (413, "message-too-large")
        assert (answer.json()["size"], answer.json()["limit"]) == (1001, 1000)
        assert (await it.send(bytes(1000))).status_code == 202


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"},
    ],
    ids=["none", "text", "form", "compressed"],
)
async def test_other_bodies_are_refused(headers: dict[str, str]) -> None:
    async with served() as it:
        await it.open()
        for path in (MESSAGES, "/v1/channels"):
            answer = await it.client.post(path, content=b"hello", headers=headers)
            assert (answer.status_code, problem_name(answer)) == (415, "unsupported-media-type")


@pytest.mark.parametrize("how", ["query", "json", "json with charset"])
async def test_an_ephemeral_message_says_so(how: str, ends: tuple[Served, Served]) -> None:
    alice, bob = ends
    if how == "query":
        sent = await alice.client.post(f"{MESSAGES}?ephemeral=true", content=b"hi", headers=OCTETS)
    else:
        kind = "application/json" + ("; charset=utf-8" if "charset" in how else "")
        body = json.dumps({"payload": "aGk=", "ephemeral": True})
        sent = await alice.client.post(MESSAGES, content=body, headers={"Content-Type": kind})
    assert sent.status_code == 202
    await wait_for_events(bob, RECEIVED)
    (message,) = (await bob.client.get(MESSAGES)).json()["messages"]
    assert message["ephemeral"] is True
    assert (await alice.client.get(sent.headers["location"])).json()["ephemeral"] is True


async def test_a_full_channel_has_stored_nothing(tmp_path: Path) -> None:
    async with served(database=f"sqlite:///{tmp_path}/a.db") as it:
        await it.open(sds={"maxOutgoingMessages": 1})
        assert (await it.send(b"first")).status_code == 202
        before = (await it.client.get(path_of())).json()
        refused = await it.send(b"second")
        assert (refused.status_code, problem_name(refused)) == (429, "channel-full")
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["messages"] == 1
        after = (await it.client.get(path_of())).json()
        assert after["status"]["openRequests"] == before["status"]["openRequests"] == 1


# --- Idempotency-Key -----------------------------------------------------------------------------


async def test_a_repeat_with_the_same_key_sends_nothing(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/a.db"
    async with served(database=database) as it:
        await it.open()
        first = await it.send(b"pay", idempotency_key="order 7")
        again = await it.send(b"pay", idempotency_key="order 7")
        assert (first.status_code, again.status_code) == (202, 202)
        assert again.json() == first.json()
        assert (await it.send(b"pay")).json() != first.json()
        other = await it.send(b"other", idempotency_key="order 7")
        assert (other.status_code, problem_name(other)) == (409, "idempotency-conflict")
    async with served(database=database) as it:
        await it.service.wait_started()
        assert (await it.send(b"pay", idempotency_key="order 7")).json() == first.json()
        assert (await it.client.get(path_of())).json()["status"]["openRequests"] == 2


async def test_repeats_at_once_are_one_request() -> None:
    async with served() as it:
        await it.open()
        answers = await asyncio.gather(*(it.send(b"pay", idempotency_key="ü") for _ in range(8)))
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.json()["requestId"] for answer in answers}) == 1


@pytest.mark.parametrize("key", [b"", b"x" * 256, b"a\x7fb", b"\xff", b"\xc2\x80"])
async def test_a_key_that_cannot_be_is_refused(key: bytes) -> None:
    async with served() as it:
        await it.open()
        answer = await it.client.post(
            MESSAGES,
            content=b"pay",
            headers=[(b"Content-Type", b"application/octet-stream"), (b"Idempotency-Key", key)],
        )
        assert (answer.status_code, problem_name(answer)) == (422, "invalid-request")
        assert answer.json()["errors"][0]["at"] == "header.Idempotency-Key"
        assert (await it.client.get(path_of())).json()["status"]["openRequests"] == 0


async def test_two_keys_are_refused() -> None:
    async with served() as it:
        await it.open()
        headers = [*OCTETS.items(), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
        answer = await it.client.post(MESSAGES, content=b"pay", headers=headers)
        assert (answer.status_code, problem_name(answer)) == (422, "invalid-request")


# --- Requests ------------------------------------------------------------------------------------


async def test_a_request_is_shown_segment_by_segment() -> None:
    async with served() as it:
        await it.open(segmentation={"segmentSizeBytes": 64})
        sent = await it.send(bytes(range(200)))
        body = (await it.client.get(sent.headers["location"])).json()
        assert (body["state"], body["final"], body["error"]) == ("open", False, None)
        ids = [segment["id"] for segment in body["segments"]]
        assert ids == [f"{sent.json()['requestId']}:{number}" for number in (1, 2, 3, 4)]
        assert {segment["state"] for segment in body["segments"]} <= {"queued", "sent"}


@pytest.mark.parametrize("request_id", ["none", "..", "a/b", "%", "\u2603"])
async def test_an_unknown_request_is_not_found(request_id: str) -> None:
    async with served() as it:
        await it.open()
        answer = await it.raw("GET", f"{path_of()}/requests/{quote(request_id, safe='')}")
        assert (answer.status_code, problem_name(answer)) == (404, "request-not-found")


@pytest.mark.parametrize("path", ["", "/messages", "/requests/x", "/events"])
async def test_routes_of_an_unknown_channel_are_not_found(path: str) -> None:
    async with served() as it:
        answer = await it.client.get(f"{path_of('none')}{path}")
        assert (answer.status_code, problem_name(answer)) == (404, "channel-not-found")
