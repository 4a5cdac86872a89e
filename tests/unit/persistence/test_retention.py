"""How many events are kept, in numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from persistence.retention import EventRetention, EventTotals, event_size
from persistence.testing import sample_event
from reliable_channel.errors import ConfigurationError


def test_an_event_counts_payload_detail_and_a_share_for_the_rest() -> None:
    bare = replace(sample_event(1, payload=None), detail="")
    assert event_size(bare) > 0
    assert event_size(replace(bare, payload=b"four")) == event_size(bare) + 4
    assert event_size(replace(bare, detail='{"a":1}')) == event_size(bare) + 7


@pytest.mark.parametrize("name", ["max_events", "max_event_bytes"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "many"])
def test_bounds_are_checked(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=name):
        EventRetention(**{name: value})  # type: ignore[arg-type]


def test_within_the_bounds_nothing_goes() -> None:
    retention = EventRetention(max_events=3, max_event_bytes=30)
    totals = EventTotals(count=3, octets=30, removed_through=7)
    assert not retention.is_exceeded(totals)
    assert retention.trim(totals, iter([(8, 10)])) == totals


def test_the_oldest_go_until_the_count_fits() -> None:
    retention = EventRetention(max_events=2, max_event_bytes=1_000)
    totals = EventTotals(count=4, octets=40)
    oldest_first = iter([(1, 10), (2, 10), (3, 10), (4, 10)])
    assert retention.trim(totals, oldest_first) == EventTotals(2, 20, removed_through=2)
    assert next(oldest_first) == (4, 10), "no more is read than needed"


def test_the_oldest_go_until_the_size_fits() -> None:
    retention = EventRetention(max_events=9, max_event_bytes=25)
    totals = EventTotals(count=3, octets=60)
    kept = retention.trim(totals, [(5, 30), (6, 10), (7, 20)])
    assert kept == EventTotals(1, 20, removed_through=6)


def test_the_newest_stays_whatever_its_size() -> None:
    retention = EventRetention(max_events=9, max_event_bytes=25)
    kept = retention.trim(EventTotals(count=2, octets=130), [(1, 30), (2, 100)])
    assert retention.trim(kept, [(2, 100)]) == kept
    assert kept == EventTotals(1, 100, removed_through=1)
    assert not retention.is_exceeded(kept)
