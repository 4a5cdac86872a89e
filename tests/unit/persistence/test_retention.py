"""How many events are kept, in numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from persistence.retention import (
    NEVER,
    SWEEP_BYTES,
    EventRetention,
    EventTotals,
    Trimmed,
    event_size,
)
from persistence.testing import sample_event
from reliable_channel.errors import ConfigurationError
from reliable_channel.types import SECOND


def test_an_event_counts_payload_detail_and_a_share_for_the_rest() -> None:
    bare = replace(sample_event(1, payload=None), detail="")
    assert event_size(bare) > 0
    assert event_size(replace(bare, payload=b"four")) == event_size(bare) + 4
    assert event_size(replace(bare, detail='{"a":1}')) == event_size(bare) + 7


@pytest.mark.parametrize("name", ["max_events", "max_event_bytes", "max_event_age_sec"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "many"])
def test_bounds_are_checked(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=name):
        EventRetention(**{name: value})  # type: ignore[arg-type]


def rows(*sizes: int, first: int = 1, time_ns: int = 0) -> list[tuple[int, int, int]]:
    """Return sequence, size and time of events."""
    return [(first + place, size, time_ns) for place, size in enumerate(sizes)]


def test_within_the_bounds_nothing_goes() -> None:
    retention = EventRetention(max_events=3, max_event_bytes=30)
    totals = EventTotals(count=3, octets=30, removed_through=7)
    assert not retention.is_exceeded(totals)
    trimmed = retention.trim(totals, rows(10, first=8), 0)
    assert trimmed == Trimmed(totals, has_more=False, due_ns=NEVER)


def test_the_oldest_go_until_the_count_fits() -> None:
    retention = EventRetention(max_events=2, max_event_bytes=1_000)
    oldest_first = iter(rows(10, 10, 10, 10))
    trimmed = retention.trim(EventTotals(count=4, octets=40), oldest_first, 0)
    assert trimmed == Trimmed(EventTotals(2, 20, removed_through=2), False, NEVER)
    assert next(oldest_first) == (4, 10, 0), "no more is read than needed"


def test_the_oldest_go_until_the_size_fits() -> None:
    retention = EventRetention(max_events=9, max_event_bytes=25)
    trimmed = retention.trim(EventTotals(count=3, octets=60), rows(30, 10, 20, first=5), 0)
    assert trimmed.totals == EventTotals(1, 20, removed_through=6)


def test_the_oldest_go_until_none_is_too_old() -> None:
    retention = EventRetention(max_event_age_sec=10)
    oldest_first = [(place, 1, place * SECOND) for place in range(1, 6)]
    trimmed = retention.trim(EventTotals(count=5, octets=5), oldest_first, 13 * SECOND)
    assert trimmed == Trimmed(EventTotals(2, 2, removed_through=3), False, due_ns=14 * SECOND)


def test_the_newest_stays_whatever_its_size_and_age() -> None:
    retention = EventRetention(max_events=9, max_event_bytes=25, max_event_age_sec=1)
    trimmed = retention.trim(EventTotals(count=2, octets=130), rows(30, 100), 9 * SECOND)
    assert trimmed == Trimmed(EventTotals(1, 100, removed_through=1), False, due_ns=SECOND)
    assert not retention.is_exceeded(trimmed.totals)


def test_what_is_not_among_the_oldest_waits_for_another_transaction() -> None:
    retention = EventRetention(max_events=1)
    trimmed = retention.trim(EventTotals(count=9, octets=9), rows(1, 1, 1), 0)
    assert trimmed == Trimmed(EventTotals(6, 6, removed_through=3), has_more=True, due_ns=0)


def test_large_events_wait_for_another_transaction() -> None:
    retention = EventRetention(max_events=1)
    size = SWEEP_BYTES // 2 + 1
    trimmed = retention.trim(EventTotals(count=4, octets=4 * size), rows(*[size] * 4), 0)
    assert trimmed == Trimmed(EventTotals(2, 2 * size, removed_through=2), has_more=True, due_ns=0)


def test_an_empty_log_is_in_order() -> None:
    trimmed = EventRetention(max_events=1).trim(EventTotals(), [], 0)
    assert trimmed == Trimmed(EventTotals(), has_more=False, due_ns=0)
