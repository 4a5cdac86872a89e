"""How many segments of a request go out again together."""

from __future__ import annotations

import pytest

from reliable_channel.core.sds.rounds import RetransmissionRound


def sizes(*rounds: tuple[int, bool], parity_count: int = 0) -> list[int]:
    """Return the sizes of rounds that begin with so many segments lacking, with news or without."""
    current = RetransmissionRound()
    found = []
    for lacking, is_news in rounds:
        current.begin(1, lacking, parity_count, is_news=is_news)
        found.append(current.size)
    return found


@pytest.mark.parametrize(
    ("rounds", "parity_count", "expected"),
    [
        pytest.param([(40, False)] * 7, 0, [1, 2, 4, 8, 16, 32, 40], id="silence: each twice"),
        pytest.param([(40, False)] * 3, 10, [1, 2, 4], id="silence, with parity"),
        pytest.param([(3, True)], 0, [3], id="news: what is lacking is missing"),
        pytest.param([(40, False), (39, True)], 0, [1, 39], id="news after silence"),
        pytest.param([(10, True)], 10, [1], id="news: parity may fill it all"),
        pytest.param([(14, True)], 10, [4], id="news: more than parity can fill"),
        pytest.param([(8, True)] * 5, 10, [1, 2, 4, 8, 8], id="parity that did not come either"),
        pytest.param([(1, False)], 0, [1], id="a single segment"),
    ],
)
def test_how_many_go_out_again(
    rounds: list[tuple[int, bool]], parity_count: int, expected: list[int]
) -> None:
    assert sizes(*rounds, parity_count=parity_count) == expected


def test_a_round_lets_out_as_many_as_it_is_large() -> None:
    current = RetransmissionRound()
    assert not current.take()
    current.begin(5, 3, 0, is_news=True)
    assert [current.take() for _ in range(5)] == [True, True, True, False, False]
    assert current.ends_ns == 5
