"""What a node keeps until it is asked: topics, order, eviction, second copies."""

from __future__ import annotations

import pytest

from api.devnode import caches
from api.devnode.caches import MessageCache, Place
from reliable_channel.core.wire import WakuMessage

PUBSUB: Place = ("pubsub", "/waku/2/rs/1/0")
CONTENT: Place = ("content", "/a/1/b/c")


def make(*places: Place, capacity: int = 50) -> MessageCache:
    cache = MessageCache(capacity)
    for place in places:
        assert cache.subscribe(place)
    return cache


def add(
    cache: MessageCache, number: int, *, again: bool = False, content: str = CONTENT[1]
) -> bool:
    message = WakuMessage(b"x", content, timestamp=number)
    return cache.add(bytes([number]), PUBSUB[1], message, again=again)


def taken(cache: MessageCache, place: Place) -> list[int | None] | None:
    messages = cache.take(place)
    return None if messages is None else [message.timestamp for message in messages]


def test_a_message_is_under_both_its_topics_and_given_once_under_each() -> None:
    cache = make(PUBSUB, CONTENT)
    add(cache, 2)
    add(cache, 1)
    add(cache, 3, content="/a/1/x/c")
    assert taken(cache, CONTENT) == [2, 1]
    assert taken(cache, CONTENT) == []
    assert taken(cache, PUBSUB) == [2, 1, 3]
    assert (taken(cache, PUBSUB), len(cache)) == ([], 0)


def test_what_nobody_subscribed_to_is_not_kept() -> None:
    cache = make(PUBSUB)
    assert taken(cache, CONTENT) is None
    assert add(cache, 1)
    cache.unsubscribe(PUBSUB)
    assert not add(cache, 2)
    assert (taken(cache, PUBSUB), len(cache)) == (None, 0)


def test_the_oldest_timestamp_goes_whenever_it_came() -> None:
    cache = make(CONTENT, capacity=3)
    for number in (5, 1, 4, 2, 3):
        add(cache, number)
    assert (taken(cache, CONTENT), cache.evicted) == ([5, 4, 3], 2)


def test_an_identical_message_is_kept_once() -> None:
    cache = make(CONTENT)
    add(cache, 1)
    add(cache, 1)
    assert [taken(cache, CONTENT), taken(cache, CONTENT)] == [[1], []]


def test_a_second_copy_comes_after_the_first_was_read() -> None:
    cache = make(CONTENT)
    for again in (False, True):
        add(cache, 1, again=again)
    add(cache, 2)
    assert [taken(cache, CONTENT) for _ in range(3)] == [[1, 2], [1], []]


def test_clearing_forgets_topics_too() -> None:
    cache = make(CONTENT)
    add(cache, 1)
    cache.clear()
    assert (cache.places, len(cache)) == (frozenset(), 0)


def test_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "MAX_PLACES", 1)
    cache = make(CONTENT)
    assert cache.subscribe(CONTENT)
    assert not cache.subscribe(PUBSUB)
