"""Sizes and rates: what is counted, what is refused, what is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Scope

from api.limits import Buckets, address_of, announced_bytes, header_bytes
from tests.support.edge_app import Clock, client_of, wrapped

PLENTY = {"max_body_bytes": 2_000, "max_header_bytes": 1_500}


async def chunks(sizes: list[int]) -> AsyncIterator[bytes]:
    for size in sizes:
        yield b"x" * size


@pytest.mark.parametrize(("size", "status"), [(0, 200), (2_000, 200), (2_001, 413)])
async def test_announced_bodies(size: int, status: int) -> None:
    async with client_of(wrapped(**PLENTY)) as client:
        assert (await client.post("/v1/channels", content=b"x" * size)).status_code == status


@pytest.mark.parametrize(
    ("sizes", "status"),
    [([1_000, 1_000], 200), ([1_000, 1_001], 413), ([5_000], 413), ([1] * 2_000, 200)],
)
async def test_bodies_are_counted_as_they_come(sizes: list[int], status: int) -> None:
    async with client_of(wrapped(**PLENTY)) as client:
        answer = await client.post("/v1/channels", content=chunks(sizes))
    assert answer.status_code == status
    if status == 200:
        assert answer.json() == {"octets": sum(sizes)}


async def test_what_a_route_makes_of_the_error_is_not_sent() -> None:
    """FastAPI answers 400 whatever breaks while it reads a body."""
    async with client_of(wrapped(**PLENTY)) as client:
        answer = await client.post(
            "/v1/json", content=chunks([3_000]), headers={"content-type": "application/json"}
        )
    assert answer.status_code == 413
    assert answer.json()["type"] == "/problems/payload-too-large"
    assert "2000" in answer.json()["detail"]


async def test_reading_stops_at_the_limit() -> None:
    asked = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal asked
        while True:
            asked += 1
            yield b"x" * 500

    async with client_of(wrapped(**PLENTY)) as client:
        assert (await client.post("/v1/channels", content=endless())).status_code == 413
    assert asked == 5


async def test_what_is_announced_as_too_large_is_not_read() -> None:
    async def unread() -> AsyncIterator[bytes]:
        raise AssertionError
        yield b""

    headers = {"content-length": "2001"}
    async with client_of(wrapped(**PLENTY)) as client:
        answer = await client.post("/v1/channels", content=unread(), headers=headers)
    assert answer.status_code == 413


@pytest.mark.parametrize(("size", "status"), [(1_000, 200), (1_600, 431)])
async def test_headers(size: int, status: int) -> None:
    async with client_of(wrapped(**PLENTY)) as client:
        headers = await client.get("/v1/channels", headers={"x": "y" * size})
        address = await client.get("/v1/channels", params={"x": "y" * size})
    assert (headers.status_code, address.status_code) == (status, status)


def test_header_bytes() -> None:
    scope: Scope = {"raw_path": b"/ab", "query_string": b"c", "headers": [(b"de", b"f")]}
    assert header_bytes(scope) == 3 + 1 + (2 + 1 + 4)
    assert header_bytes({"raw_path": None, "query_string": b"", "headers": []}) == 0


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], 0), ([b"5"], 5), ([b"5", b"7"], 7), ([b"-5"], 0), ([b"+5"], 0), ([b"5, 5"], 0)],
)
def test_announced_bytes(values: list[bytes], expected: int) -> None:
    headers = [(b"content-length", value) for value in values]
    assert announced_bytes({"headers": headers}) == expected


# --- Rates ---------------------------------------------------------------------------------------


def test_a_burst_then_the_rate() -> None:
    clock = Clock()
    buckets = Buckets(10, clock)
    assert [buckets.take("a") for _ in range(20)] == [0] * 20
    assert buckets.take("a") == pytest.approx(0.1)
    assert buckets.take("b") == 0
    clock.now = 0.05
    assert buckets.take("a") == pytest.approx(0.05)
    clock.now = 0.1001
    assert buckets.take("a") == 0
    assert buckets.take("a") > 0
    clock.now = 100
    assert [bool(buckets.take("a")) for _ in range(21)] == [False] * 20 + [True]


def test_a_slow_rate_still_admits_one_at_once() -> None:
    clock = Clock()
    buckets = Buckets(0.1, clock)
    assert buckets.take("a") == 0
    assert buckets.take("a") == pytest.approx(10)


def test_memory_is_bounded_and_the_quietest_goes_first() -> None:
    buckets = Buckets(1, Clock(), max_clients=3)
    for client in ("a", "b", "a", "c", "d"):  # b was quiet for longest
        buckets.take(client)
    assert len(buckets) == 3
    assert buckets.take("a") > 0
    assert buckets.take("b") == 0


@given(
    rate=st.floats(0.1, 100),
    gaps=st.lists(st.floats(0, 1), min_size=1, max_size=200),
)
def test_never_more_than_the_burst_and_the_rate(rate: float, gaps: list[float]) -> None:
    clock = Clock()
    buckets = Buckets(rate, clock)
    admitted = 0
    for gap in gaps:
        clock.now += gap
        wait = buckets.take("a")
        admitted += not wait
        assert wait <= 1 / rate + 1e-9
        assert admitted <= buckets.burst + rate * clock.now + 1e-6


async def test_too_many_requests_say_when_to_come_again() -> None:
    clock = Clock()
    async with client_of(wrapped(clock=clock, requests_per_second=1)) as client:
        statuses = [(await client.get("/v1/channels")).status_code for _ in range(3)]
        refused = await client.get("/v1/channels")
        live = await client.get("/health/live")
        clock.now = 1.5
        later = await client.get("/v1/channels")
    assert statuses == [200, 200, 429]
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["type"] == "/problems/rate-limited"
    assert (live.status_code, later.status_code) == (200, 200)


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (("10.0.0.1", 5), "10.0.0.1"),
        (("2001:db8::1", 5), "2001:db8::/64"),
        (("2001:db8::ffff:2", 5), "2001:db8::/64"),
        (("::ffff:10.0.0.1", 5), "10.0.0.1"),
        (("testclient", 5), "testclient"),
        (None, "unknown"),
    ],
)
def test_addresses(client: tuple[str, int] | None, expected: str) -> None:
    assert address_of({"client": client}) == expected
