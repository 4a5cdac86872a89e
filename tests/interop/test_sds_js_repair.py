"""SDS-R between our machine and the published JavaScript implementation, `@waku/sds` 0.0.8, unpatched.

A message is withheld on purpose, nobody retransmits it, and no store has it: only repair brings it. Alice is the peer
(a Node.js process that does what it is told, in our virtual time), Bob is ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from reliable_channel.config import SdsConfig
from reliable_channel.core.wire import SdsMessage, SegmentMessage
from reliable_channel.types import MS, SECOND, Nanoseconds, ParticipantId
from tests.support.builders import ALICE, BOB, CAROL, CHANNEL, NOW, Participant, Transmission
from tests.support.js_peer import DELIVERED, FAILED, REPAIR_REQUESTED, JsPeer

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]

T_MIN_MS: Final = 2_000
T_MAX_MS: Final = 8_000

CONFIG: Final = SdsConfig(
    repair_t_min_ms=T_MIN_MS,
    repair_t_max_ms=T_MAX_MS,
    num_response_groups=1,
    acknowledgement_timeout_ms=1_000,
    max_retransmissions=0,
    dependency_timeout_ms=120_000,
)
"""Nothing of ours is sent again but on request, and a new channel's time of grace is over soon."""

OPTIONS: Final = {
    "repairConfig": {"tMin": T_MIN_MS, "tMax": T_MAX_MS, "numResponseGroups": 1},
    "causalHistorySize": 4,
}
"""The peer has SDS-R switched on unless it is told otherwise (``enableRepair: false``)."""

SLACK: Final[Nanoseconds] = 3 * SECOND
"""How long after T_req a request may wait for the message that carries it: ours is a sync's back-off."""


@dataclass
class Line:
    """Between Bob and the peer: what Bob sends gets there, unless it is withheld.

    Attributes:
        bob: Ours.
        alice: The peer.
        taken: How many transmissions of Bob's have been carried or withheld.
    """

    bob: Participant
    alice: JsPeer
    taken: int = 0

    def withhold(self) -> list[Transmission]:
        """Report what Bob has sent as published, and keep it from the peer."""
        self.bob.published()
        sent = self.bob.transmissions[self.taken :]
        self.taken += len(sent)
        return sent

    def carry(self) -> list[Transmission]:
        """Give the peer what Bob has sent; return it."""
        sent = self.withhold()
        for transmission in sent:
            self.alice.receive(transmission.data, self.bob.now)
        return sent

    def wait(self, duration: Nanoseconds) -> list[Transmission]:
        """Let time pass in which the peer hears everything that Bob sends; return that."""
        end = self.bob.now + duration
        sent = self.carry()
        while self.bob.now < end:
            self.bob.advance(min(50 * MS, end - self.bob.now))
            sent += self.carry()
        return sent


@pytest.fixture
def line() -> Iterator[Line]:
    """Make the two hear of each other, and let Bob's first moments pass, in which nobody asks for anything."""
    with JsPeer(ALICE, CHANNEL, NOW, **OPTIONS) as alice:
        bob = Participant(BOB, sds=CONFIG)
        found = Line(bob, alice)
        bob.receive(*alice.send(b"hello", bob.now))
        found.wait(20 * SECOND)
        bob.send(b"hello to you")
        found.wait(SECOND)
        assert alice.sweep(bob.now) == ()
        yield found


def number_of(*texts: str) -> int:
    """Return the hash that both ends have to agree on."""
    return int.from_bytes(hashlib.sha256("".join(texts).encode()).digest()[:8], "big")


def t_req(participant_id: ParticipantId, message: SdsMessage, now: Nanoseconds) -> Nanoseconds:
    """Return when a participant asks for a message that it begins to miss now."""
    offset = number_of(participant_id, message.message_id) % (T_MAX_MS - T_MIN_MS)
    return now + (offset + T_MIN_MS) * MS


def t_resp(participant_id: ParticipantId, message: SdsMessage, now: Nanoseconds) -> Nanoseconds:
    """Return when a participant answers a request that it hears now."""
    distance = number_of(participant_id) ^ number_of(message.sender_id)
    return now + distance * number_of(message.message_id) % T_MAX_MS * MS


def asks(sent: list[Transmission]) -> list[Transmission]:
    """Return those messages that ask for others."""
    return [item for item in sent if item.message.repair_request]


def test_the_peer_repairs_what_we_miss(line: Line) -> None:
    """LIP-109 (SDS-R): T_req after it was found missing, the next message asks; the original sender answers at once.

    The request names the id and its original sender, or nobody could tell response group and distance; the answer has
    the original bytes.
    """
    bob, alice = line.bob, line.alice
    (lost,) = alice.send(b"lost", bob.now)
    (seen,) = alice.send(b"seen", bob.now)
    bob.receive(seen)
    assert bob.received == [b"hello"]
    missing = SdsMessage.decode(lost)
    due = t_req(BOB, missing, bob.now)

    assert asks(line.wait(due - bob.now - MS)) == []
    assert alice.of(REPAIR_REQUESTED) == []
    asking = asks(line.wait(SLACK))[0]
    assert asking.time_ns >= due
    (entry,) = asking.message.repair_request
    assert (entry.message_id, entry.sender_id) == (missing.message_id, ALICE)
    assert alice.of(REPAIR_REQUESTED)[0] == missing.message_id

    assert t_resp(ALICE, missing, bob.now) == bob.now
    answers = alice.repair(bob.now)
    assert list(answers) == [lost]
    bob.receive(*answers)
    assert bob.received == [b"hello", b"lost", b"seen"]
    assert bob.status().missing_messages == 0
    assert bob.lost == []

    assert asks(line.wait(3 * T_MAX_MS * MS)) == []
    assert alice.of(FAILED) == []


def test_we_repair_what_the_peer_misses(line: Line) -> None:
    """LIP-109 (SDS-R): the original sender is at distance 0, so it sends the original bytes again at once."""
    bob, alice = line.bob, line.alice
    bob.send(b"lost")
    (lost,) = line.withhold()
    bob.send(b"seen")
    (seen,) = line.carry()
    assert [entry.message_id for entry in alice.sweep(bob.now)] == [lost.message.message_id]
    due = t_req(ALICE, lost.message, bob.now)

    line.wait(due - bob.now - MS)
    (sync,) = alice.sync(bob.now)
    assert SdsMessage.decode(sync).repair_request == ()
    line.wait(MS)
    (sync,) = alice.sync(bob.now)
    (entry,) = SdsMessage.decode(sync).repair_request
    assert (entry.message_id, entry.sender_id) == (lost.message.message_id, BOB)

    heard = bob.now
    bob.receive(sync)
    bob.advance(0)
    answers = [item for item in line.carry() if item.data == lost.data]
    assert [item.time_ns for item in answers] == [heard]
    assert alice.sweep(bob.now) == ()
    state = alice.state(bob.now)
    payloads = [
        SegmentMessage.decode(message.content).payload
        for message in state.history
        if message.sender_id == BOB
    ]
    assert payloads == [b"hello to you", b"lost", b"seen"]
    assert state.incoming == ()
    delivered = alice.of(DELIVERED)
    assert delivered.index(lost.message.message_id) < delivered.index(seen.message.message_id)

    # One answer to one question, and the peer asks no more.
    (sync,) = alice.sync(bob.now)
    assert SdsMessage.decode(sync).repair_request == ()
    bob.receive(sync)
    assert [item for item in line.wait(2 * T_MAX_MS * MS) if item.data == lost.data] == []
    assert alice.of(FAILED) == []


def test_the_peer_answers_for_a_sender_that_is_gone(line: Line) -> None:
    """LIP-109 (SDS-R): everybody in the response group that has a message answers, the later the farther away.

    Carol, ours, has sent a message that the peer has and Bob has not, and does not hear Bob.
    """
    bob, alice = line.bob, line.alice
    carol = Participant(CAROL, now=bob.now, seed=2, sds=CONFIG)
    carol.send(b"lost")
    lost = carol.transmissions[0]
    alice.receive(lost.data, bob.now)
    bob.receive(*alice.send(b"an answer to it", bob.now))
    assert bob.received == [b"hello"]

    due = t_req(BOB, lost.message, bob.now)
    assert asks(line.wait(due - bob.now - MS)) == []
    while not (asking := asks(line.wait(50 * MS))):
        assert bob.now < due + SLACK
    (entry,) = asking[0].message.repair_request
    assert (entry.message_id, entry.sender_id) == (lost.message.message_id, CAROL)
    answer_at = t_resp(ALICE, lost.message, bob.now)
    assert list(alice.repair(answer_at - MS)) == []
    answers = alice.repair(answer_at)
    assert list(answers) == [lost.data]
    bob.advance(answer_at - bob.now)
    bob.receive(*answers)
    assert bob.received == [b"hello", b"lost", b"an answer to it"]


def test_we_answer_for_a_sender_that_is_gone(line: Line) -> None:
    """LIP-109 (SDS-R): we keep the full messages of others, and answer with their original bytes at T_resp."""
    bob, alice = line.bob, line.alice
    carol = Participant(CAROL, now=bob.now, seed=2, sds=CONFIG)
    carol.send(b"lost")
    lost = carol.transmissions[0]
    bob.receive(lost.data)
    bob.send(b"an answer to it")
    line.carry()
    assert [entry.message_id for entry in alice.sweep(bob.now)] == [lost.message.message_id]

    line.wait(T_MAX_MS * MS)
    (sync,) = alice.sync(bob.now)
    (entry,) = SdsMessage.decode(sync).repair_request
    assert (entry.message_id, entry.sender_id) == (lost.message.message_id, CAROL)
    answer_at = t_resp(BOB, lost.message, bob.now)
    bob.receive(sync)
    sent = line.wait(answer_at - bob.now + SECOND)
    (answer,) = [item for item in sent if item.data == lost.data]
    assert answer.time_ns == answer_at
    assert alice.sweep(bob.now) == ()
    held = {message.message_id: message.content for message in alice.state(bob.now).history}
    assert SegmentMessage.decode(held[lost.message.message_id]).payload == b"lost"
