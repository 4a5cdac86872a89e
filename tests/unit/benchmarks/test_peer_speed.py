"""Both sides deliver what is measured, and a ratio is theirs over ours."""

from __future__ import annotations

import pytest

from benchmarks import peer_speed
from benchmarks.peer_speed import Duel, Turn


def test_a_ratio_says_how_many_times_as_fast_we_are() -> None:
    duel = Duel(
        ours=(Turn(10, 1.0, 2.0), Turn(10, 1.0, 1.0)),
        theirs=(Turn(10, 3.0, 4.0), Turn(10, 7.0, 5.0)),
    )
    assert duel.times("send") == 5.0
    assert duel.times("receive") == 3.0
    assert duel.times("send", turns=slice(-1, None)) == 7.0


def test_our_side_delivers_every_message() -> None:
    ours = peer_speed.Ours()
    assert ours.turn(20).messages == 20
    assert ours.delivered == 20


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
    with peer_speed.Peer(node) as peer, pytest.raises(RuntimeError, match="None of 5"):
        peer.turn(5)
