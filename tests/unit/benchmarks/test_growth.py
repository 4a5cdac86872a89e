"""Many channels carry as many messages as one, and both are waited for."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from benchmarks import growth
from benchmarks.growth import Countdown, Pairs, Spent
from benchmarks.machine_speed import Turn


@pytest.mark.timeout(60)
async def test_messages_are_spread_over_the_pairs_and_acknowledged() -> None:
    async with AsyncExitStack() as stack:
        pairs = await Pairs.open(stack, 2)
        spent = await pairs.turn(4)
        counts = [channel.status().counters["requests"] for channel in pairs.senders]
        open_requests = [channel.status().open_requests for channel in pairs.senders]
    assert counts == [2, 2]
    assert open_requests == [0, 0]
    assert 0 < spent.received <= spent.acknowledged


def test_a_countdown_ends_with_the_last() -> None:
    countdown = Countdown()
    countdown.start(2)
    countdown.count(None)
    assert not countdown.done.is_set()
    countdown.count(None)
    assert countdown.done.is_set()
    countdown.start(1)
    assert not countdown.done.is_set()


def test_the_old_exchange_has_more_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []

    class Counting:
        def turn(self, messages: int) -> Turn:
            turns.append(messages)
            return Turn(messages, messages, 0, 1.0, 1.0)

    monkeypatch.setattr(growth, "Exchange", Counting)
    late, early = growth.measure_messages(young=20, old=100, turn=5, turns=2)
    assert turns == [95, 15, 5, 5, 5, 5]
    assert (len(late), len(early)) == (2, 2)


def test_both_tables_are_of_the_cost_of_a_message() -> None:
    table = growth.channel_table([Spent(2.0, 6.0)], [Spent(1.0, 2.0)], 10, 1_000)
    assert [item.ours.median for item in table.figures] == [2_000, 6_000]
    assert [item.ratio and item.ratio.median for item in table.figures] == [2, 3]
    turn, other = Turn(10, 10, 0, 1.0, 3.0), Turn(10, 10, 0, 1.0, 1.0)
    table = growth.message_table([turn], [other], 20, 100)
    assert [item.ratio and item.ratio.median for item in table.figures] == [1, 3]
