"""HTTP with bounds: kinds of errors, sizes, pauses, back-off, refusals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from messaging_adapter.rest_client import (
    BACKOFF_SEC,
    MAX_BODY_BYTES,
    Answer,
    Backoff,
    Refusals,
    RestClient,
    RestError,
    Trouble,
    shown,
)
from messaging_adapter.rest_url import RestParameters
from reliable_channel.clock import LoopClock
from reliable_channel.errors import DecodeError, NodeClosedError
from tests.support.virtual_loop import START_NS, virtual_time

URL = "waku+http://user:hunter2@node:8645"


@asynccontextmanager
async def client_of(
    handler: Callable[[httpx.Request], httpx.Response], url: str = URL
) -> AsyncIterator[RestClient]:
    clock = LoopClock(asyncio.get_running_loop(), START_NS)
    parameters = RestParameters.parse(url)
    client = RestClient(parameters, clock=clock, transport=httpx.MockTransport(handler))
    yield client
    await client.close()


def reply(status: int, body: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body.encode()))


async def failure(handler: Callable[[httpx.Request], httpx.Response]) -> RestError:
    async with client_of(handler) as client:
        with pytest.raises(RestError) as caught:
            await client.request("GET", "/relay/v1/x")
        return caught.value


@virtual_time
async def test_a_request_carries_body_query_and_password_and_nothing_from_the_environment() -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return reply(200, "OK")

    async with client_of(handle, URL + "/prefix") as client:
        answer = await client.request(
            "POST", "/relay/v1/messages/%2Fa%2Fb", body=["x"], query={"q": "1,2 3"}
        )
    assert (answer.ok, answer.body) == (True, b"OK")
    assert seen[0].url.raw_path == b"/prefix/relay/v1/messages/%2Fa%2Fb?q=1%2C2+3"
    assert seen[0].content == b'["x"]'
    assert seen[0].headers["content-type"] == "application/json"
    assert seen[0].headers["authorization"].startswith("Basic ")
    assert seen[0].headers["accept-encoding"] == "identity"
    assert client.requests == {"relay": 1}


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (httpx.ConnectError("no"), Trouble.REFUSED),
        (httpx.ReadError("no"), Trouble.BROKEN),
        (httpx.RemoteProtocolError("no"), Trouble.BROKEN),
        (OSError("no"), Trouble.BROKEN),
    ],
)
@virtual_time
async def test_errors_of_the_connection_have_kinds(error: Exception, trouble: Trouble) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        raise error

    found = await failure(handle)
    assert found.trouble is trouble
    assert "hunter2" not in str(found)


@virtual_time
async def test_an_answer_that_does_not_come_ends_in_time() -> None:
    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await asyncio.Event().wait()
            raise AssertionError

    loop = asyncio.get_running_loop()
    clock = LoopClock(loop, START_NS)
    client = RestClient(RestParameters.parse(URL), clock=clock, transport=Silent())
    with pytest.raises(RestError) as caught:
        await client.request("GET", "/store/v3/messages")
    assert caught.value.trouble is Trouble.TIMEOUT
    assert loop.time() == pytest.approx(10.0)
    await client.close()


@virtual_time
async def test_an_answer_without_end_is_left() -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1 << 20
            yield bytes(1 << 20)

    found = await failure(lambda _: httpx.Response(200, content=endless()))
    assert found.trouble is Trouble.BROKEN
    assert "is above" in str(found)
    assert sent <= MAX_BODY_BYTES + (2 << 20)


@pytest.mark.parametrize(
    ("header", "pause"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "Tue, 14 Nov 2023 22:13:29 GMT"}, 9.0),
        ({"Retry-After": "1e9"}, 300.0),
        ({"Retry-After": "-3"}, 0.0),
        ({"Retry-After": "nan"}, 0.0),
        ({"Retry-After": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
@virtual_time
async def test_a_pause_is_kept_for_that_part_of_the_node(
    header: dict[str, str], pause: float
) -> None:
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return reply(429, "Request rate limmit reached", header)

    async with client_of(handle) as client:
        with pytest.raises(RestError, match="rate limmit") as caught:
            await client.request("GET", "/store/v3/messages")
        assert caught.value.trouble is Trouble.BUSY
        assert caught.value.retry_after_sec == pytest.approx(pause)
        if not pause:
            return
        with pytest.raises(RestError, match="a pause"):
            await client.request("GET", "/store/v3/messages")
        with pytest.raises(RestError, match="limmit"):
            await client.request("GET", "/relay/v1/messages/x")
        assert len(asked) == 2
        await asyncio.sleep(pause)
        with pytest.raises(RestError, match="limmit"):
            await client.request("GET", "/store/v3/messages")
        assert len(asked) == 3


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, b"/relay endpoints are not available. Please check: --relay", True),
        (400, b"Bad request initiated. Invalid path or method used.", True),
        (404, b"/app/1/room/proto", False),
        (400, b"Invalid content body", False),
        (200, b"endpoints are not available", False),
    ],
)
def test_a_route_that_is_not_there_is_told_from_other_refusals(
    status: int, body: bytes, expected: bool
) -> None:
    assert Answer(status, body).is_no_route is expected


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"Failed to publish: no", "Failed to publish: no"),
        (b'{"statusDesc": "no peers"}', "no peers"),
        (b'{"statusDesc": 3}', '{"statusDesc": 3}'),
        (b'{"statusDesc": "no pe', '{"statusDesc": "no pe'),
        (b"", "HTTP 500 without a reason"),
        (b"a\nb\x00c\xff", "a b c\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_the_nodes_words_are_one_printable_line(body: bytes, words: str) -> None:
    assert Answer(500, body).words == words


def test_long_words_are_cut() -> None:
    assert len(shown("x" * 10_000)) == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"a": ', b"[1,", b"\xff\xfe", b"[" * 100_000, b"[" + b"1," * 400_000]
)
@virtual_time
async def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        await Answer(200, body).json()


@virtual_time
async def test_json_of_any_length_is_read() -> None:
    assert await Answer(200, b"[" + b"1," * 400_000 + b"1]").json() == [1] * 400_001


def test_waits_grow_by_kind_up_to_a_longest_and_begin_anew_after_a_success() -> None:
    backoff = Backoff(lambda: 0.0)
    for trouble, (first, longest) in BACKOFF_SEC.items():
        error = RestError(trouble, "no")
        waits = [backoff.after(error) for _ in range(20)]
        assert waits[:2] == [first, 2 * first]
        assert waits[-1] == longest
    backoff.reset()
    assert backoff.after(RestError(Trouble.REFUSED, "no")) == BACKOFF_SEC[Trouble.REFUSED][0]
    assert backoff.after(ValueError()) == BACKOFF_SEC[Trouble.BROKEN][0]


def test_what_the_node_asks_for_is_waited_and_jitter_only_adds() -> None:
    error = RestError(Trouble.BUSY, "no", retry_after_sec=40.0)
    assert Backoff(lambda: 0.0).after(error) == 40.0
    assert 40.0 <= Backoff(lambda: 0.999).after(error) < 48.0


@virtual_time
async def test_refusals_are_counted_and_logged_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = Refusals(LoopClock(asyncio.get_running_loop(), START_NS))
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            refusals.count("bad_entry", "x" * 1_000)
        assert len(caplog.records) == 1
        await asyncio.sleep(1.0)
        refusals.count("other")
    assert len(caplog.records) == 2
    assert refusals.counts == {"bad_entry": 100, "other": 1}
    assert all(len(record.getMessage()) < 500 for record in caplog.records)


@virtual_time
async def test_a_closed_client_says_so() -> None:
    async with client_of(lambda _: reply(200, "OK")) as client:
        await client.close()
        with pytest.raises(NodeClosedError):
            await client.request("GET", "/health")
