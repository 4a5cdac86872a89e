"""The store of a stand-in network: order, pages, lag, bounds."""

from __future__ import annotations

import pytest

from api.devnode.archive import Archive, StoreQuery
from reliable_channel.core.wire import WakuMessage
from reliable_channel.types import SECOND

TOPIC = "/waku/2/rs/1/0"
NOW = 1_000 * SECOND


def make(**changes: float) -> Archive:
    return Archive(**{"lag_s": 0.0, "max_messages": 1_000, "max_bytes": 1 << 20, **changes})  # type: ignore[arg-type]


def digest(number: int) -> bytes:
    return bytes([number]) * 32


def add(archive: Archive, *numbers: int, time: int | None = None, octets: int = 1) -> None:
    for number in numbers:
        moment = number if time is None else time
        message = WakuMessage(bytes(octets), "/a/1/b/c", timestamp=moment)
        archive.add(digest(number), TOPIC, message, NOW)


def found(archive: Archive, now: int = NOW, **query: object) -> list[int]:
    page = archive.query(StoreQuery(**query), now)  # type: ignore[arg-type]
    return [item.digest[0] for item in page.items]


def test_messages_are_in_the_order_of_their_times_and_then_hashes() -> None:
    archive = make()
    add(archive, 5, 2, 9)
    add(archive, 8, 3, time=7)
    assert found(archive) == [2, 5, 3, 8, 9]


def test_a_message_is_shown_after_the_lag() -> None:
    archive = make(lag_s=3.0)
    add(archive, 1)
    for after, shown in ((0, False), (3 * SECOND - 1, False), (3 * SECOND, True)):
        assert archive.has(digest(1), NOW + after) is shown
        assert (found(archive, NOW + after) == [1]) is shown
        assert (archive.find(digest(1), NOW + after) is not None) is shown


def test_the_oldest_go_when_there_are_too_many() -> None:
    archive = make(max_messages=3)
    add(archive, 4, 1, 3, 2, 5)
    assert (found(archive), len(archive)) == ([3, 4, 5], 3)


def test_the_oldest_go_when_they_are_too_large_but_one_stays() -> None:
    archive = make(max_bytes=2_500)
    add(archive, 1, 2, 3, octets=1_000)
    assert found(archive) == [2, 3]
    add(archive, 4, octets=9_000)
    assert found(archive) == [4]


def test_a_message_is_kept_once_and_an_ephemeral_one_never() -> None:
    archive = make()
    add(archive, 1, 1)
    archive.add(digest(2), TOPIC, WakuMessage(b"x", "/a/1/b/c", ephemeral=True), NOW)
    assert len(archive) == 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"start": 3}, [3, 4, 5]),
        ({"end": 3}, [1, 2, 3]),
        ({"start": 2, "end": 2}, [2]),
        ({"content_topics": frozenset({"/x", "/a/1/b/c"})}, [1, 2, 3, 4, 5]),
        ({"content_topics": frozenset({"/x"})}, []),
        ({"pubsub_topic": TOPIC, "page_size": 2}, [1, 2]),
        ({"pubsub_topic": "/x"}, []),
        ({"hashes": (digest(4), digest(9), digest(2))}, [2, 4]),
        ({"hashes": (digest(4), digest(2)), "start": 3}, [4]),
        ({"cursor": digest(3)}, [4, 5]),
        ({"cursor": digest(3), "forward": False}, [1, 2]),
        ({"cursor": digest(9)}, []),
        ({"forward": False, "page_size": 2}, [4, 5]),
        ({"page_size": 0}, [1, 2, 3, 4, 5]),
        ({"cursor": digest(2), "start": 4}, [4, 5]),
    ],
)
def test_queries(query: dict[str, object], expected: list[int]) -> None:
    archive = make()
    add(archive, 1, 2, 3, 4, 5)
    assert found(archive, **query) == expected


@pytest.mark.parametrize("forward", [True, False])
def test_the_cursor_ends_with_the_last_page(forward: bool) -> None:
    archive = make()
    add(archive, *range(10))
    page = archive.query(StoreQuery(page_size=5, forward=forward), NOW)
    assert page.cursor == digest(4 if forward else 5)
    page = archive.query(StoreQuery(page_size=5, forward=forward, cursor=page.cursor), NOW)
    assert (len(page.items), page.cursor) == (5, None)


def test_a_page_has_at_most_a_hundred() -> None:
    archive = make()
    add(archive, *range(150))
    assert len(archive.query(StoreQuery(page_size=1_000), NOW).items) == 100
