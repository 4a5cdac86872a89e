"""The URL of a node: what it may say, what is refused, what is masked."""

from __future__ import annotations

import pytest

from messaging_adapter.rest_url import RestParameters
from reliable_channel.errors import ConfigurationError


def test_everything_that_a_url_can_say_is_read() -> None:
    url = (
        "waku+https://us%40er:p%3Ass@node.example:8645/prefix/?publish=lightpush&receive=filter"
        "&store=off&poll_ms=100&timeout_ms=200&confirm_ms=300&give_up_ms=400&check_ms=500"
        "&window_ms=6000"
    )
    assert RestParameters.parse(url) == RestParameters(
        base_url="https://node.example:8645/prefix",
        auth=("us@er", "p:ss"),
        publish="lightpush",
        receive="filter",
        store="off",
        poll_ms=100,
        timeout_ms=200,
        confirm_ms=300,
        give_up_ms=400,
        check_ms=500,
        window_ms=6_000,
    )


@pytest.mark.parametrize(
    ("url", "base_url"),
    [
        ("waku+http://127.0.0.1:8645", "http://127.0.0.1:8645"),
        ("waku+http://127.0.0.1:8645/", "http://127.0.0.1:8645"),
        ("waku+https://node.example", "https://node.example"),
        ("waku+http://[::1]:8645", "http://[::1]:8645"),
    ],
)
def test_the_defaults_are_those_of_the_specification(url: str, base_url: str) -> None:
    found = RestParameters.parse(url)
    assert found == RestParameters(base_url=base_url)
    assert (found.confirm_ms, found.give_up_ms) == (3_000, 60_000)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("waku+http://", "cannot be read"),
        ("waku+http:///path", "cannot be read"),
        ("waku+http://host:port", "cannot be read"),
        ("waku+http://host:0", "cannot be read"),
        ("waku+http://[host", "cannot be read"),
        ("waku+http://host#x", "cannot be read"),
        ("waku+http://ho st", "cannot be read"),
        ("waku+http://host?speed=1", "has no parameter 'speed'; it has publish, receive"),
        ("waku+http://host?poll_ms=soon", "poll_ms must be a whole number, not 'soon'"),
        ("waku+http://host?poll_ms=", "poll_ms must be a whole number, not ''"),
        ("waku+http://host?poll_ms=1", "poll_ms must be from 20"),
        ("waku+http://host?poll_ms=50&poll_ms=60", "poll_ms is given twice"),
        ("waku+http://host?publish=filter", "publish must be one of auto, relay, static"),
        ("waku+http://host?receive=lightpush", "receive must be one of auto, relay, static"),
        ("waku+http://host?store=on", "store must be one of auto, off"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(url: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        RestParameters.parse(url)


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        RestParameters.parse("waku+http://host?a=1&poll_ms=x&check_ms=5&check_ms=6")
    assert len(caught.value.problems) == 3


def test_the_password_is_shown_nowhere() -> None:
    found = RestParameters.parse("waku+http://user:hunter2@host:1?poll_ms=100&store=auto")
    assert str(found) == "waku+http://user:***@host:1?poll_ms=100"
    assert "hunter2" not in repr(found)
    for bad in ("waku+http://u:hunter2@host?x=1", "waku+http://u:hunter2@ho st"):
        with pytest.raises(ConfigurationError) as caught:
            RestParameters.parse(bad)
        assert "hunter2" not in str(caught.value)
