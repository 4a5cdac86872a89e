"""Both sides deliver what is measured, and a ratio is ours over theirs."""

from __future__ import annotations

import pytest

from benchmarks import peer_speed
from benchmarks.machine_speed import Turn
from benchmarks.peer_speed import Duel


def test_a_ratio_says_how_many_times_as_fast_we_are() -> None:
    duel = Duel(
        ours=(Turn(10, 10, 0, 1.0, 2.0), Turn(10, 10, 0, 1.0, 1.0)),
        theirs=(Turn(10, 10, 0, 3.0, 4.0), Turn(10, 10, 0, 7.0, 5.0)),
    )
    send, send_turns, receive, receive_turns = peer_speed.figures(20, duel)
    ratios = [item.ratio for item in (send, receive, send_turns, receive_turns)]
    assert [ratio and ratio.median for ratio in ratios] == [5.0, 3.0, 5.0, 3.5]
    assert send_turns.ratio is not None
    assert (send_turns.ratio.low, send_turns.ratio.high) == (3.0, 7.0)


def test_without_the_peer_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_speed, "peer_program", lambda: None)
    assert list(peer_speed.tables()) == [peer_speed.INSTALL_PEER]


@pytest.mark.real
def test_the_peer_delivers_as_many() -> None:
    node = peer_speed.peer_program()
    if node is None:
        pytest.skip(peer_speed.INSTALL_PEER)
    found = peer_speed.duel(node, messages=30, turn=20)
    assert [turn.messages for turn in found.theirs] == [20, 10]
    assert all(turn.receive > 0 for turn in (*found.theirs, *found.ours))


@pytest.mark.real
def test_a_peer_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    node = peer_speed.peer_program()
    if node is None:
        pytest.skip(peer_speed.INSTALL_PEER)
    monkeypatch.setattr(peer_speed, "PACKAGE", peer_speed.PROGRAM.parent / "nowhere")
    with peer_speed.peer(node) as peer, pytest.raises(RuntimeError, match="None of 5"):
        peer.turn(5)
