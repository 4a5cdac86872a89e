"""The real service is given messages at a rate, spread over its channels."""

from __future__ import annotations

import json

import pytest

from benchmarks import channel_load
from benchmarks.channel_load import Answers, Case, Found


def test_posts_go_to_one_channel_after_the_other() -> None:
    paths = [request.split(b" ")[1] for request in channel_load.requests(3, 2)]
    assert paths == [
        b"/v1/channels/bench-0/messages",
        b"/v1/channels/bench-1/messages",
        b"/v1/channels/bench-0/messages",
    ]
    body = json.loads(next(channel_load.requests(1, 1)).partition(b"\r\n\r\n")[2])
    assert set(body) == {"payload"}


@pytest.mark.timeout(120)
async def test_all_channels_are_opened_and_given_their_share() -> None:
    case = Case("once", bloom_capacity=500, timeout_ms=channel_load.LONG_MS)
    found = await channel_load.measure(case, channels=3, rate=60, seconds=0.1)
    assert found.answers.statuses == {202: 6}
    assert found.refused == 0
    assert found.counters["requests"] == 6
    assert len(found.answers.latencies) == 6
    assert min(found.cpu, *found.answers.cores) > 0
    assert found.counters["requests_delivered"] == 0


@pytest.mark.timeout(120)
async def test_what_is_acknowledged_is_waited_for() -> None:
    case = Case("acknowledged", bloom_capacity=500, is_acknowledged=True)
    found = await channel_load.measure(case, channels=3, rate=60, seconds=0.1)
    assert found.counters["requests_delivered"] == found.counters["transmissions"] == 6
    assert found.behind == 0


@pytest.mark.timeout(120)
async def test_the_empty_handler_accepts_the_same_posts() -> None:
    found = await channel_load.measure_empty(rate=60, seconds=0.1)
    assert found.statuses == {202: 6}


def test_what_was_refused_is_no_acceptance() -> None:
    answers = Answers(wall=2.0, latencies=[0.001, 0.002, 0.004], cores=[0.5, 0.7])
    answers.statuses.update({202: 2, 429: 1})
    counters = {"requests": 2, "requests_delivered": 1, "transmissions": 3}
    found = Found(answers, channel_load.Counter(counters), 4, 0.003)
    empty = Answers(wall=1.0, latencies=[0.001], cores=[0.1, 0.2, 0.05])
    made = list(channel_load.figures("x", [found], [empty], 100))
    assert {item.name: item.ours.median for item in made} == pytest.approx(
        {
            "x: accepted": 1,
            "x: CPU that the rate needs": 0.15,
            "x: answered, half": 2,
            "x: answered, 99 %": 4,
            "x: refused": 1,
            "x: not on the network yet": 4,
            "x: transmissions of a message": 1.5,
            "x: acknowledged": 50,
        }
    )
    ratios = {item.name: item.ratio.median for item in made if item.ratio is not None}
    assert ratios == pytest.approx(
        {"x: CPU that the rate needs": 1.5, "x: answered, half": 2, "x: answered, 99 %": 4}
    )
