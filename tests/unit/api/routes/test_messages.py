"""Pages of received messages; the routes are tested in tests/api/test_messages.py."""

from __future__ import annotations

import base64

import pytest
from starlette.requests import Request

from api.routes import messages
from api.routes.messages import idempotency_key, message_page
from tests.support.streaming import room


async def received(count: int, size: int) -> list[list[int]]:
    """Return the sizes of the payloads on each page of a channel that has received some."""
    async with room() as (alice, bob):
        async with bob.events() as heard:
            for _ in range(count):
                await alice.send(bytes(size), ephemeral=True)
            for _ in range(count):
                await anext(heard)
        pages, after = [], 0
        while True:
            page = await message_page(bob, after=after, limit=1000)
            if page.next == after:
                return pages
            assert page.next > after
            pages.append([len(base64.b64decode(item.payload)) for item in page.messages])
            after = page.next


@pytest.mark.parametrize(("count", "pages"), [(1, [1]), (16, [16]), (17, [17]), (50, [50])])
async def test_a_page_takes_what_fits(count: int, pages: list[int]) -> None:
    assert [len(page) for page in await received(count, 10)] == pages


@pytest.mark.parametrize(
    ("limit", "pages"), [(100, [1, 1, 1]), (250, [3]), (201, [3]), (200, [2, 1])]
)
async def test_large_payloads_end_a_page(
    limit: int, pages: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MAX_PAGE_BYTES", limit)
    assert [len(page) for page in await received(3, 100)] == pages


async def test_a_call_looks_through_a_bounded_number_of_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "MAX_SCANNED", 1)
    assert [len(page) for page in await received(20, 10)] == [16, 4]


@pytest.mark.parametrize(
    ("headers", "key"), [([], None), ([(b"idempotency-key", "ü 1".encode())], "ü 1")]
)
def test_the_key_is_utf8(headers: list[tuple[bytes, bytes]], key: str | None) -> None:
    assert idempotency_key(Request({"type": "http", "headers": headers})) == key
