"""The client sends what it is given, each request once, and reads answers whole."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from api.serving import stop_accepting
from benchmarks import http_load
from benchmarks.http_load import Answers, Pool, connected, drive, get, parse_head, post, quantile

OK = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok"


@dataclass(slots=True)
class Heard:
    """What a server was asked, and on how many connections."""

    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0


@asynccontextmanager
async def server(heard: Heard, answer: Callable[[bytes], Awaitable[bytes]]) -> AsyncIterator[int]:
    """Answer requests whose body is two bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.connections += 1
        try:
            while True:
                await reader.readuntil(http_load.HEAD_END)
                body = await reader.readexactly(2)
                heard.bodies.append(body)
                writer.write(await answer(body))
        except asyncio.IncompleteReadError:
            pass  # the client left
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]
        await stop_accepting([listening])


async def accept(body: bytes) -> bytes:
    return OK


async def test_requests_are_shared_by_the_connections_and_each_is_sent_once() -> None:
    heard = Heard()
    bodies = [b"%02d" % number for number in range(20)]
    all_connected = asyncio.Event()

    async def accept_together(body: bytes) -> bytes:
        if heard.connections == 3:
            all_connected.set()
        await all_connected.wait()
        return OK if body != b"07" else OK.replace(b"202", b"429")

    async with server(heard, accept_together) as port:
        answers = await drive(port, 3, (post("/", body) for body in bodies))
    assert sorted(heard.bodies) == bodies
    assert heard.connections == 3
    assert answers.statuses == Counter({202: 19, 429: 1})
    assert answers.latencies == sorted(answers.latencies)
    assert len(answers.latencies) == 20
    assert answers.latencies[-1] <= answers.seconds


def test_the_rate_counts_answers_a_second() -> None:
    assert Answers(2.0, Counter(), [0.1] * 10).rate == 5


@pytest.mark.parametrize(
    ("head", "parsed"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", (200, 0)),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 12\r\n\r\n", (404, 12)),
        (b"HTTP/1.1 202 Accepted\r\nA: b\r\nContent-Length:7\r\nC: d\r\n\r\n", (202, 7)),
    ],
)
def test_an_answers_head_says_status_and_length(head: bytes, parsed: tuple[int, int]) -> None:
    assert parse_head(head) == parsed


def test_requests_say_where_they_go_and_how_long_they_are() -> None:
    assert get("/a?b=1").startswith(b"GET /a?b=1 HTTP/1.1\r\n")
    assert get("/").endswith(http_load.HEAD_END)
    head, body = post("/a", b"abc").split(http_load.HEAD_END)
    assert body == b"abc"
    assert {b"POST /a HTTP/1.1", b"Content-Length: 3"} <= set(head.split(b"\r\n"))


async def test_a_pool_has_as_many_connections_as_are_in_use_at_once() -> None:
    heard = Heard()
    async with server(heard, accept) as port, Pool.of(port) as pool:
        async with pool.connection() as first, pool.connection() as second:
            assert first is not second
            assert await first.ask(post("/", b"01")) == (202, b"ok")
            await second.ask(post("/", b"02"))
        async with pool.connection() as third:
            await third.ask(post("/", b"03"))
            assert third in (first, second)
        assert heard.connections == 2


@pytest.mark.parametrize("reason", ["idle", "failed"])
async def test_a_pool_gives_no_connection_that_may_be_broken(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    async with server(heard, accept) as port, Pool.of(port) as pool:
        if reason == "idle":
            monkeypatch.setattr(http_load, "MAX_IDLE_SEC", -1.0)
            async with pool.connection() as first:
                await first.ask(post("/", b"01"))
        else:
            with pytest.raises(ValueError, match="failed"):
                async with pool.connection() as first:
                    raise ValueError(reason)
        async with pool.connection() as second:
            assert second is not first
            assert await second.ask(post("/", b"02")) == (202, b"ok")


async def test_a_connection_is_closed_after_use() -> None:
    async with server(Heard(), accept) as port:
        async with connected(port) as connection:
            await connection.ask(post("/", b"01"))
        with pytest.raises(asyncio.IncompleteReadError):
            await connection.ask(post("/", b"02"))


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1.0), (0.5, 3.0), (0.75, 4.0), (0.99, 4.0), (1.0, 4.0)]
)
def test_a_quantile_is_one_of_the_values(share: float, value: float) -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0], share) == value
