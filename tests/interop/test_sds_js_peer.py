"""A conversation with the published JavaScript implementation of SDS, `@waku/sds` 0.0.8, unpatched.

A Node.js process plays Alice, our machine plays Bob; both run in one virtual time, and encoded SDS messages pass
between them. Only the pipe drops any. Our messages carry segments, which the peer takes as plain content; its messages
are unsegmented and come out whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pytest

from reliable_channel.config import SdsConfig
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.requests import RequestState
from reliable_channel.core.wire import SdsKind, SdsMessage, SegmentMessage
from reliable_channel.events import MessageDeliveredEvent, MessageReceivedEvent
from reliable_channel.types import MS, SECOND, MessageId, Nanoseconds, RequestId
from tests.support.builders import ALICE, BOB, CHANNEL, NOW, Participant, hash_of
from tests.support.js_peer import ACKNOWLEDGED, DELIVERED, FAILED, JsPeer

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]

EACH: Final = 40
"""Messages of each participant."""

LOSS: Final = 0.25
STEP: Final[Nanoseconds] = 250 * MS
ROUNDS: Final = 480
"""Two minutes in which everything has to have arrived and to be acknowledged."""

RESEND_ROUNDS: Final = 4
SYNC_ROUNDS: Final = 6


@dataclass(repr=False)
class Pipe:
    """Carries messages between our machine and the peer, and loses some.

    Attributes:
        bob: Ours.
        alice: The published implementation.
        random: Decides what is lost.
        requests: Of ours, with their payloads.
        sent: The peer's content messages by id, as they were when first sent.
        lost: How many messages were lost on the way to each.
        taken: How many transmissions of ours have been carried or lost.
    """

    bob: Participant
    alice: JsPeer
    random: Random
    requests: dict[RequestId, bytes] = field(default_factory=dict)
    sent: dict[MessageId, SdsMessage] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=lambda: {ALICE: 0, BOB: 0})
    taken: int = 0

    def drops(self, receiver: str) -> bool:
        """Decide whether a message is lost."""
        if self.random.random() >= LOSS:
            return False
        self.lost[receiver] += 1
        return True

    def speak(self, number: int) -> list[bytes]:
        """Let both send a message before either hears of the other's; return the peer's."""
        payload = f"{BOB} says {number}".encode()
        self.requests[self.bob.send(payload)] = payload
        return list(self.alice.send(f"{ALICE} says {number}".encode(), self.bob.now))

    def carry(self, wires: list[bytes]) -> None:
        """Carry what both have sent, in either direction."""
        for data in wires:
            message = SdsMessage.decode(data)
            if message.kind is SdsKind.CONTENT:
                first = self.sent.setdefault(message.message_id, message)
                assert message == first, "a retransmission has the bytes of the first one"
            if not self.drops(BOB):
                self.bob.receive(data)
        self.bob.published()
        for transmission in self.bob.transmissions[self.taken :]:
            self.taken += 1
            if not self.drops(ALICE):
                self.alice.receive(transmission.data, self.bob.now)
        self.alice.sweep(self.bob.now)

    def round(self, number: int, wires: list[bytes]) -> None:
        """Let a step of time pass, in which the peer does its periodic work."""
        self.bob.advance(STEP)
        if number % RESEND_ROUNDS == 0:
            wires += self.alice.resend(self.bob.now)
        if number % SYNC_ROUNDS == 0:
            wires += self.alice.sync(self.bob.now)
        self.carry(wires)

    def is_done(self) -> bool:
        """Tell whether both have everything and know that the other has."""
        if self.bob.status().open_requests or len(self.bob.received) < EACH:
            return False
        state = self.alice.state(self.bob.now)
        return not state.outgoing and len(state.history) == 2 * EACH

    def run(self) -> None:
        """Hold the conversation."""
        for number in range(ROUNDS):
            wires = self.speak(number) if number < EACH else []
            self.round(number, wires)
            if number >= EACH and self.is_done():
                return


def own_ids(bob: Participant, requests: dict[RequestId, bytes]) -> dict[MessageId, bytes]:
    """Return the payloads of our requests by the id of their only segment."""
    found = {}
    for request_id, payload in requests.items():
        (segment,) = bob.request(request_id).segments
        found[segment.message_id] = payload
    return found


def payload_of(content: bytes) -> bytes:
    """Return the payload in a segment of ours that is the only one."""
    segment = SegmentMessage.decode(content)
    assert (segment.data_segment_index, segment.data_segment_count) == (0, 1)
    assert keccak256(segment.payload) == segment.entire_message_hash
    return segment.payload


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("causal_history_size", [2, 10, 200])
def test_forty_messages_each_way_arrive_in_order_and_are_acknowledged(
    causal_history_size: int, seed: int
) -> None:
    """Both ends hold all messages in one order, and each knows that the other does; a quarter of all was lost.

    LIP-109 (SDS): participants deliver messages in causal order, retransmit what is not acknowledged, and sort their
    local histories by Lamport time, then message id. 200 ids in a history are the peer's default; with 2 of them it
    acknowledges most messages by its bloom filter alone. The peer raises its delivered event again for every copy of
    a message, and before an earlier one that only waits in its buffer, so of its side its local history counts.
    """
    bob = Participant(BOB, seed=seed)
    options = {"causalHistorySize": causal_history_size, "enableRepair": False}
    with JsPeer(ALICE, CHANNEL, NOW, **options) as alice:
        pipe = Pipe(bob, alice, Random(seed))
        pipe.run()
        state = alice.state(bob.now)
    lost = tuple(pipe.lost.values())
    assert min(lost) >= EACH // 5
    assert bob.counted("retransmissions") > 0
    assert alice.of(FAILED) == []
    assert bob.dropped() == {}
    assert bob.lost == []

    # Ours: each of theirs once, whole, and after everything that it names.
    deliveries = bob.of(MessageReceivedEvent)
    assert {event.sender_id for event in deliveries} == {ALICE}
    assert sorted(event.message for event in deliveries) == sorted(
        f"{ALICE} says {number}".encode() for number in range(EACH)
    )
    assert not any(event.late for event in deliveries)
    ours = own_ids(bob, pipe.requests)
    before = set(ours)
    for event in deliveries:
        message = pipe.sent[event.message_id]
        assert message.content == event.message
        assert {entry.message_id for entry in message.causal_history} <= before
        before.add(event.message_id)

    # Theirs: each of ours, byte for byte, and one order on both sides.
    assert state.incoming == ()
    held = {
        message.message_id: payload_of(message.content)
        for message in state.history
        if message.sender_id == BOB
    }
    assert held == ours
    assert set(ours) <= set(alice.of(DELIVERED))
    places = [(message.lamport, message.message_id) for message in state.history]
    assert len(set(places)) == 2 * EACH
    assert places == sorted(places)
    assert bob.machine.state.log.order == places

    # Acknowledgements: of each message once, on both sides.
    assert state.outgoing == ()
    assert sorted(alice.of(ACKNOWLEDGED)) == sorted(pipe.sent)
    events = {event.request_id: event.recipients for event in bob.of(MessageDeliveredEvent)}
    assert len(bob.of(MessageDeliveredEvent)) == EACH
    assert events == dict.fromkeys(pipe.requests, (ALICE,))
    for request_id in pipe.requests:
        assert bob.request(request_id).state is RequestState.DELIVERED


@pytest.fixture
def pair() -> Any:
    """Make a participant of ours and the peer, between whom nothing is lost but what the test withholds."""
    with JsPeer(ALICE, CHANNEL, NOW, enableRepair=False) as alice:
        yield Participant(BOB), alice


def test_we_fetch_by_the_hint_in_a_history_of_the_peer(pair: tuple[Participant, JsPeer]) -> None:
    """LIP-109: a retrieval hint in a history entry lets a receiver fetch a missing dependency from a store."""
    bob, alice = pair
    (first,) = alice.send(b"first", bob.now, hint=b"\x11" * 32)
    (second,) = alice.send(b"second", bob.now)
    bob.receive(second)
    assert bob.received == []
    (fetch,) = bob.fetches
    assert fetch.hashes == (b"\x11" * 32,)
    bob.carry_out(bob.machine.fetched([(b"\x11" * 32, first)], bob.now))
    assert bob.received == [b"first", b"second"]


def test_the_peer_misses_under_the_hint_that_we_give(pair: tuple[Participant, JsPeer]) -> None:
    """LIP-109: an entry names id, retrieval hint and original sender of what its sender depends on."""
    bob, alice = pair
    bob.send(b"first")
    bob.published()
    bob.send(b"second")
    bob.published()
    first, second = bob.transmissions
    alice.receive(second.data, bob.now)
    (missing,) = alice.sweep(bob.now)
    assert missing.message_id == first.message.message_id
    assert missing.hint == hash_of(first.data)
    assert missing.sender_id == BOB
    alice.receive(first.data, bob.now)
    assert alice.sweep(bob.now) == ()
    assert [payload_of(message.content) for message in alice.state(bob.now).history] == [
        b"first",
        b"second",
    ]


def test_a_lost_last_message_shows_in_a_sync_of_either(pair: tuple[Participant, JsPeer]) -> None:
    """LIP-109, sync messages: histories of syncs let others find what they miss, also a last message."""
    bob, alice = pair
    (theirs,) = alice.send(b"theirs", bob.now)
    bob.receive(*alice.sync(bob.now))
    assert bob.status().missing_messages == 1
    bob.receive(theirs)
    assert bob.received == [b"theirs"]

    bob.send(b"ours")
    bob.published()
    while not bob.syncs:
        bob.advance(SECOND)
        bob.published()
    (ours,) = {item.data for item in bob.transmissions if item.message.content}
    alice.receive(bob.syncs[0].data, bob.now)
    assert [entry.message_id for entry in alice.sweep(bob.now)] == [
        SdsMessage.decode(ours).message_id
    ]
    assert alice.of(ACKNOWLEDGED) == [SdsMessage.decode(theirs).message_id]


def test_ephemeral_messages_pass_between_both(pair: tuple[Participant, JsPeer]) -> None:
    """LIP-109: ephemeral messages are delivered at once and enter no log.

    The peer raises no event for one (the layer above it takes the content), but must not choke on ours either.
    """
    bob, alice = pair
    (theirs,) = alice.send_ephemeral(b"theirs", bob.now)
    bob.receive(theirs)
    (event,) = bob.of(MessageReceivedEvent)
    assert (event.message, event.sender_id, event.ephemeral) == (b"theirs", ALICE, True)
    bob.send(b"ours", ephemeral=True)
    alice.receive(bob.transmissions[0].data, bob.now)
    assert alice.of(FAILED) == []
    state = alice.state(bob.now)
    assert (state.history, state.incoming) == ((), ())
    assert bob.machine.state.log.order == []


def test_lamport_times_are_milliseconds_on_both_sides(pair: tuple[Participant, JsPeer]) -> None:
    """LIP-109: a Lamport time begins at the Unix time in milliseconds, and a received one raises ours."""
    bob, alice = pair
    (theirs,) = alice.send(b"theirs", bob.now)
    assert SdsMessage.decode(theirs).lamport_timestamp == NOW // MS + 1
    bob.receive(theirs)
    bob.send(b"ours")
    (ours,) = bob.transmissions
    assert ours.message.lamport_timestamp == NOW // MS + 2
    alice.receive(ours.data, bob.now)
    assert alice.state(bob.now).lamport == NOW // MS + 2
    (second,) = alice.send(b"second", bob.now)
    assert SdsMessage.decode(second).lamport_timestamp == NOW // MS + 3


def test_settings_of_both_ends_agree_by_default() -> None:
    """The peer's filter has a fixed size, so ours has to have it for either to be read."""
    with JsPeer(ALICE, CHANNEL, NOW) as alice:
        (data,) = alice.send(b"theirs", NOW)
    bob = Participant(BOB, sds=SdsConfig())
    bob.send(b"ours")
    theirs, ours = SdsMessage.decode(data).bloom_filter, bob.transmissions[0].message.bloom_filter
    assert theirs is not None
    assert ours is not None
    assert len(theirs) == len(ours)
