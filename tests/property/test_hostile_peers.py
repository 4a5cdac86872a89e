"""Two honest participants talk while a hostile one, who hears everything, says whatever it likes.

Nothing raises, no bound is passed, one message has bounded effects, and honest messages still get through: those sent
meanwhile unless somebody honest is told otherwise, those sent afterwards without exception.

Complements ``test_machine_laws``, whose stranger is tamer and whose laws are about the machine, not the conversation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from reliable_channel.core.effects import Effects
from reliable_channel.core.requests import RequestState
from reliable_channel.core.sds.bloom import BloomFilter
from reliable_channel.core.wire import HistoryEntry, SdsKind, SdsMessage, SegmentMessage
from reliable_channel.errors import ChannelFullError
from reliable_channel.events import (
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    SenderIdConflictEvent,
)
from reliable_channel.identifiers import is_clean
from reliable_channel.records import AcknowledgementRecord, PendingRecord
from reliable_channel.types import MS, SECOND
from tests.support.builders import (
    ALICE,
    BOB,
    CHANNEL,
    NO_FILTER,
    NOW,
    NOW_MS,
    PARITY,
    SMALL,
    Participant,
    Transmission,
    content_message,
    cut,
    entries,
    entry,
    ephemeral_message,
    hash_of,
    messages_of,
    sync_message,
)
from tests.support.cpu_time import cpu_seconds
from tests.support.hostile import (
    SDS,
    SEGMENTATION,
    excess,
    flip,
    problems,
    segment_in,
    signed,
    sizes,
)

PICK = st.integers(0, 1 << 16)
"""Chooses one of what there is."""

MALLORY = "mallory"
NAMES = st.sampled_from([MALLORY, "m2", "m3", "m4", "m5", "m6", ALICE, BOB])
LAMPORTS = st.sampled_from(
    [0, 1, NOW_MS - 1, NOW_MS + 1_000, NOW_MS + 400_000, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
)
ODD_IDS = st.sampled_from(
    [
        "",
        "x",
        "x" * 256,
        "x" * 257,
        "é" * 128,
        "é" * 129,
        "\0",
        "a\nb",
        "\x7f",
        "\x85",
        "\\ud800",
        "\ufffe\U0010ffff",
        "sync:1",
    ]
)
FILTER = BloomFilter(SDS.bloom_capacity, SDS.bloom_error_rate).shape.byte_length
FILTERS = st.sampled_from(
    [
        None,
        b"",
        b"\xff",
        bytes(FILTER),
        b"\xff" * FILTER,
        b"\x55" * FILTER,
        b"\xff" * (FILTER // 2) + bytes(FILTER - FILTER // 2),
        b"\xff" * (FILTER + 8),
    ]
)
HINTS = st.sampled_from([None, b"", b"short", bytes(32), b"\1" * 32, bytes(33)])
SIZES = st.lists(st.sampled_from([12, 64, 100, 300]), min_size=1, max_size=3)
KINDS = st.sampled_from(list(SdsKind))
STEPS_MS = st.sampled_from([1, 300, 1_000, 6_000, 41_000, 700_000])

QUIET_NS = 2_500 * SECOND
"""After it everything that the hostile party left behind has timed out: three epochs, five minutes of clock lead."""


class HostilePeer(RuleBasedStateMachine):
    """Honest participants, a network that loses nothing for good, and somebody who adds to it."""

    @initialize(capacity=st.sampled_from([0, SDS.bloom_capacity]), parity=st.booleans())
    def begin(self, capacity: int, parity: bool) -> None:
        sds = replace(SDS, bloom_capacity=capacity)
        segmentation = replace(SEGMENTATION, enable_reed_solomon=parity)
        self.pair = [
            Participant(name, seed=seed, sds=sds, segmentation=segmentation)
            for seed, name in enumerate((ALICE, BOB))
        ]
        self.now = NOW
        self.taken = [0, 0]
        self.late: list[tuple[int, Transmission]] = []
        self.heard: list[Transmission] = []
        self.store: dict[bytes, bytes] = {}
        self.answered = [0, 0]
        self.forged: list[bytes] = []
        self.sent: list[tuple[int, str, bytes]] = []
        self.count = 0
        self.wire: dict[str, bytes] = {}
        for who in (0, 1):
            self.say(who, 100)

    # -- an honest conversation ---------------------------------------------------------------

    def say(self, who: int, size: int) -> bool:
        """Send a payload that is like no other; say whether there was room."""
        self.count += 1
        payload = (b"%d of %d:" % (self.count, who)).ljust(size, b".")
        try:
            request_id = self.pair[who].send(payload)
        except ChannelFullError:
            return False
        self.sent.append((who, request_id, payload))
        self.notice()
        return True

    def notice(self) -> None:
        """Let the network, the store and the hostile party have what was published."""
        for who, peer in enumerate(self.pair):
            while self.taken[who] < len(peer.transmissions):
                item = peer.transmissions[self.taken[who]]
                self.taken[who] += 1
                self.late.append((1 - who, item))
                self.heard.append(item)
                self.wire.setdefault(item.message.message_id, item.data)
                if not item.ephemeral:
                    self.store[hash_of(item.data)] = item.data

    def hear(self, place: int) -> None:
        """Let an honest message arrive."""
        who, item = self.late.pop(place)
        self.pair[who].receive(item.data, hint=None if item.ephemeral else hash_of(item.data))
        self.notice()

    def exchange(self) -> None:
        """Let nodes report, stores answer truthfully and everything arrive, until nobody has more to say."""
        for _ in range(200):
            for who, peer in enumerate(self.pair):
                peer.published()
                self.answer(who, [])
            self.notice()
            if not self.late:
                return
            while self.late:
                self.hear(0)
        pytest.fail("they never stop talking")

    def answer(self, who: int, lies: list[tuple[bytes, bytes | None]]) -> None:
        """Answer the last query of the store, with what it has and with lies."""
        peer = self.pair[who]
        while self.answered[who] < len(peer.fetches):
            asked = peer.fetches[self.answered[who]].hashes
            self.answered[who] += 1
            found = [(item, self.store[item]) for item in asked if item in self.store]
            peer.carry_out(peer.machine.fetched([*lies, *found], self.now))
        self.notice()

    def pass_time(self, duration: int, steps: int = 20) -> None:
        """Let time pass for both, with everything arriving in between."""
        end = self.now + duration
        for _ in range(steps * 1_000):
            deadlines = [peer.machine.next_deadline() or end for peer in self.pair]
            self.now = min(end, max(self.now, min(deadlines)))
            for peer in self.pair:
                peer.now = self.now
                peer.carry_out(peer.machine.tick(self.now))
            self.exchange()
            if self.now >= end:
                return
        pytest.fail("deadlines never end")

    @rule(who=st.integers(0, 1), sizes=SIZES, arrive=st.booleans())
    def honest_send(self, who: int, sizes: list[int], *, arrive: bool) -> None:
        for size in sizes:
            self.say(who, size)
        self.pair[who].published()
        self.notice()
        if arrive:
            self.exchange()

    @rule(who=st.integers(0, 1), size=st.sampled_from([12, 150]), pick=PICK)
    def honest_answer(self, who: int, size: int, pick: int) -> None:
        """Say something and have one message arrive: most of an attack is between the two."""
        self.say(who, size)
        self.pair[who].published()
        self.notice()
        if self.late:
            self.hear(pick % len(self.late))

    @rule(picks=st.lists(PICK, min_size=1, max_size=6))
    def honest_messages_arrive(self, picks: list[int]) -> None:
        for peer in self.pair:
            peer.published()
        self.notice()
        for pick in picks:
            if self.late:
                self.hear(pick % len(self.late))

    @rule(step_ms=STEPS_MS)
    def time_passes(self, step_ms: int) -> None:
        self.pass_time(step_ms * MS)

    @rule()
    def all_arrives(self) -> None:
        self.exchange()

    # -- a hostile party ----------------------------------------------------------------------

    def inject(self, who: int, data: bytes) -> None:
        """Let one participant hear something hostile."""
        self.forged.append(data)
        peer = self.pair[who]
        self.judge(peer, peer.machine.receive(data, hash_of(data), self.now))

    def judge(self, peer: Participant, effects: Effects) -> None:
        """Carry out what something hostile led to, unless it is too much."""
        assert excess(effects) == []
        peer.carry_out(effects)
        self.notice()

    def overheard(self, pick: int) -> SdsMessage:
        """Return an honest message, or a made-up one before anybody has said anything."""
        if not self.heard:
            return content_message(cut(b"made up")[0])
        return self.heard[pick % len(self.heard)].message

    @rule(who=st.integers(0, 1), data=st.binary(max_size=60))
    def random_bytes(self, who: int, data: bytes) -> None:
        self.inject(who, data)

    @rule(who=st.integers(0, 1), pick=PICK, cut_at=PICK, bits=st.lists(st.integers(0), max_size=4))
    def damaged(self, who: int, pick: int, cut_at: int, bits: list[int]) -> None:
        data = self.overheard(pick).encode()
        self.inject(who, flip(data[: len(data) - cut_at % 7 * (cut_at % 3)], bits))

    @rule(who=st.integers(0, 1), picks=st.lists(PICK, min_size=1, max_size=12), own=st.booleans())
    def replays(self, who: int, picks: list[int], own: bool) -> None:
        """Repeat honest or hostile messages in any order."""
        if own and self.forged:
            for pick in picks:
                self.inject(who, self.forged[pick % len(self.forged)])
        elif self.heard:
            for pick in picks:
                self.inject(who, self.heard[pick % len(self.heard)].data)

    @rule(
        who=st.integers(0, 1),
        pick=PICK,
        other=PICK,
        changes=st.fixed_dictionaries(
            {},
            optional={
                "sender_id": st.one_of(NAMES, ODD_IDS),
                "message_id": ODD_IDS,
                "lamport_timestamp": st.none() | LAMPORTS,
                "bloom_filter": FILTERS,
                "content": st.one_of(st.none(), st.binary(max_size=30)),
            },
        ),
        swapped=st.lists(
            st.sampled_from(
                ["sender_id", "message_id", "lamport_timestamp", "causal_history", "content"]
            ),
            max_size=3,
        ),
        sign=st.booleans(),
    )
    def alters(
        self,
        who: int,
        pick: int,
        other: int,
        changes: dict[str, Any],
        swapped: list[str],
        sign: bool,
    ) -> None:
        """Change fields of a message, take some from another one, and compute the id anew or not."""
        second = self.overheard(other)
        message = replace(self.overheard(pick), **{name: getattr(second, name) for name in swapped})
        message = replace(message, **changes)
        self.inject(who, (signed(message) if sign else message).encode())

    @rule(
        who=st.integers(0, 1),
        sender=NAMES,
        kind=KINDS,
        count=st.sampled_from([2, 3, 8, 12, 256]),
        indices=st.lists(st.integers(0, 13), min_size=1, max_size=14),
        size=st.sampled_from([1, 64, 65, 400, 5_000]),
        parity=st.sampled_from([0, 1, 4, 300]),
        length=st.sampled_from([0, 1, 128, 129, 1 << 40, (1 << 64) - 1]),
        wrap=st.sampled_from([0, 1, NOW, (1 << 64) - 1]),
        sets=st.integers(1, 6),
    )
    def makes_up_segments(
        self,
        who: int,
        sender: str,
        kind: SdsKind,
        count: int,
        indices: list[int],
        size: int,
        parity: int,
        length: int,
        wrap: int,
        sets: int,
    ) -> None:
        """Begin payloads, contradict them and never end them."""
        for number in range(sets):
            for place, index in enumerate(indices):
                segment = SegmentMessage(
                    entire_message_hash=bytes([number]) * 32,
                    data_segment_index=index,
                    data_segment_count=count,
                    payload=bytes([place]) * size,
                    parity_segment_index=index,
                    parity_segment_count=parity,
                    is_parity=kind is SdsKind.EPHEMERAL and bool(place % 2),
                    original_payload_length=length,
                    parity_code=number % 3,
                    wrap_time_ns=wrap,
                )
                message = content_message(segment, sender_id=sender, lamport=NOW_MS + place)
                if kind is SdsKind.EPHEMERAL:
                    message = replace(message, lamport_timestamp=None)
                self.inject(who, message.encode())

    @rule(
        who=st.integers(0, 1),
        sender=NAMES,
        kind=KINDS,
        count=st.sampled_from([1, 3, 60, 80, 81, 3_000]),
        hint=HINTS,
        lamport=LAMPORTS,
        real=st.booleans(),
        asks=st.booleans(),
    )
    def names_too_much(
        self,
        who: int,
        sender: str,
        kind: SdsKind,
        count: int,
        hint: bytes | None,
        lamport: int,
        real: bool,
        asks: bool,
    ) -> None:
        """Name, or ask for, many ids: real ones, made-up ones, with and without hints."""
        self.count += 1
        ids = list(self.wire) if real else []
        ids += [f"nothing {self.count} {number}" for number in range(count)]
        named = tuple(
            HistoryEntry(item, hint or (None if hint is None else hash_of(item.encode())), sender)
            for item in ids[:count]
        )
        message = SdsMessage(
            sender_id=sender,
            message_id=f"hostile {self.count}",
            channel_id=CHANNEL,
            lamport_timestamp=None if kind is SdsKind.EPHEMERAL else lamport,
            causal_history=() if asks else named,
            repair_request=named if asks else (),
            content=None if kind is SdsKind.SYNC else b"hostile",
        )
        self.inject(who, message.encode())

    @rule(
        who=st.integers(0, 1),
        sender=NAMES,
        kind=st.sampled_from([SdsKind.SYNC, SdsKind.EPHEMERAL]),
        pick=PICK,
        filter_=FILTERS,
    )
    def takes_real_ids(
        self, who: int, sender: str, kind: SdsKind, pick: int, filter_: bytes | None
    ) -> None:
        """Send syncs and ephemerals under the ids of honest messages."""
        ephemeral = kind is SdsKind.EPHEMERAL
        message = replace(
            self.overheard(pick),
            sender_id=sender,
            bloom_filter=filter_,
            content=b"hostile" if ephemeral else None,
            lamport_timestamp=None if ephemeral else NOW_MS,
        )
        self.inject(who, message.encode())

    @rule(
        who=st.integers(0, 1),
        sender=NAMES,
        number=st.integers(0, 7),
        causes=st.lists(st.integers(0, 8), max_size=6),
        lamport=LAMPORTS,
    )
    def goes_in_circles(
        self, who: int, sender: str, number: int, causes: list[int], lamport: int
    ) -> None:
        message = content_message(
            b"circle",
            sender_id=sender,
            message_id=f"circle {number}",
            lamport=lamport,
            history=entries(*(f"circle {cause}" for cause in causes)),
        )
        self.inject(who, message.encode())

    @rule(
        who=st.integers(0, 1),
        sender=NAMES,
        count=st.sampled_from([5, 70, 200]),
        lead_ms=st.sampled_from([-1_000_000, 0, 400_000]),
        chained=st.booleans(),
    )
    def floods(self, who: int, sender: str, count: int, lead_ms: int, chained: bool) -> None:
        """Send more whole messages than ids are remembered."""
        for _ in range(count):
            self.count += 1
            cause = f"flood {self.count - 1 if chained else self.count + 1_000}"
            message = content_message(
                b"flood",
                sender_id=sender,
                message_id=f"flood {self.count}",
                lamport=self.now // MS + lead_ms,
                history=entries(cause),
            )
            self.inject(who, message.encode())

    @rule(
        who=st.integers(0, 1),
        picks=st.lists(PICK, max_size=4),
        garbage=st.none() | st.binary(max_size=20),
        right=st.booleans(),
    )
    def store_lies(self, who: int, picks: list[int], garbage: bytes | None, right: bool) -> None:
        """Answer with other messages than were asked for, with garbage, twice, or unasked."""
        peer = self.pair[who]
        asked = peer.fetches[-1].hashes if peer.fetches and right else (bytes(32),)
        data = [self.overheard(pick).encode() for pick in picks] if self.heard else []
        lies: list[tuple[bytes, bytes | None]] = [
            (asked[pick % len(asked)], item) for pick, item in zip(picks, data, strict=False)
        ]
        lies += [(asked[0], garbage)] * 2
        self.answered[who] = len(peer.fetches)
        self.judge(peer, peer.machine.fetched(lies, self.now))

    @rule(who=st.integers(0, 1))
    def store_fails(self, who: int) -> None:
        peer = self.pair[who]
        self.answered[who] = len(peer.fetches)
        self.judge(peer, peer.machine.fetch_failed(self.now))

    # -- laws ---------------------------------------------------------------------------------

    @invariant()
    def no_bound_is_passed(self) -> None:
        for peer in getattr(self, "pair", ()):
            assert problems(peer.machine) == []
            # Five minutes ahead of the clock at most, and a tick for each message of ours.
            lead = peer.machine.status().lamport_timestamp - self.now // MS
            assert lead <= 300_000 + 10 * len(peer.transmissions)

    def teardown(self) -> None:
        if not hasattr(self, "pair"):
            return
        self.pass_time(QUIET_NS)
        self.no_bound_is_passed()
        self.whoever_is_not_reached_is_told()
        self.afterwards_all_is_well()

    def whoever_is_not_reached_is_told(self) -> None:
        """What was sent meanwhile arrived, or an honest participant knows that it may not have.

        A message is refused while bounds are used up, and repeated only so often: then the sender has a delivery
        error. A forged acknowledgement ends the repetition: then the receiver has an event that it is lost.
        """
        for who, request_id, payload in self.sent:
            if payload in self.pair[1 - who].received:
                continue
            failures = (MessageDeliveryErrorEvent, MessageSendErrorEvent)
            failed = {
                event.request_id for event in self.pair[who].events if isinstance(event, failures)
            }
            lost = self.pair[1 - who].of(MessageLostEvent)
            assert request_id in failed or lost, f"{payload[:20]!r} vanished without a word"

    def afterwards_all_is_well(self) -> None:
        """Honest messages sent when the attack is over arrive once and in order, and are acknowledged.

        They may be held back for the dependency timeout, no longer: what they name may be hostile messages that only
        their sender was given. That is causal order, as long as nobody repairs them (SDS-R).
        """
        self.sent.clear()
        before = [len(peer.events) for peer in self.pair]
        for size in (12, 300, 64):
            for who in (0, 1):
                assert self.say(who, size), "no room for an honest message"
            self.pass_time(2 * SECOND)
        self.pass_time(SDS.dependency_timeout_ms * MS + 60 * SECOND)
        for who, peer in enumerate(self.pair):
            own = [
                (request_id, payload) for sender, request_id, payload in self.sent if sender == who
            ]
            events = self.pair[1 - who].events[before[1 - who] :]
            received = [item for item in events if isinstance(item, MessageReceivedEvent)]
            payloads = [payload for _, payload in own]
            # A flood pushes honest ids out of memory; those that others still name are delivered again.
            new = [item for item in received if item.message in payloads]
            assert [item.message for item in new] == payloads
            assert not any(item.late for item in new)
            for request_id, _ in own:
                status = peer.machine.request_status(request_id)
                assert status.state is RequestState.DELIVERED
                assert self.pair[1 - who].sender_id in status.recipients


HostilePeer.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.timeout(240)
class TestHostilePeer(HostilePeer.TestCase):  # type: ignore[misc]
    """Runs ``HostilePeer``."""


# --- What is known to get the better of us -------------------------------------------------------
# Each fails until it is mended; then its mark goes, and with it what `inject` leaves out.


def shown(peer: Participant) -> list[bytes]:
    """Return the payloads that were delivered as honest ones."""
    return [event.message for event in peer.of(MessageReceivedEvent) if event.sender_id == ALICE]


@pytest.mark.parametrize("accept_unsegmented", [True, False])
def test_an_id_cannot_be_burned(*, accept_unsegmented: bool) -> None:
    """Whoever sees a message first must not be able to put another in its place under its id."""
    segmentation = replace(SMALL, accept_unsegmented=accept_unsegmented)
    bob = Participant(BOB, sds=NO_FILTER, segmentation=segmentation)
    (real,) = messages_of(b"what alice said")
    other = cut(b"something else", wrap_time_ns=0)[0]
    forged = content_message(
        b"something else" if accept_unsegmented else other,
        sender_id=MALLORY,
        message_id=real.message_id,
    )
    bob.receive(forged, real)
    assert shown(bob) == [b"what alice said"]


@pytest.mark.parametrize("parity", [False, True])
def test_one_forged_segment_poisons_nothing(*, parity: bool) -> None:
    """WIRE: segments that disagree are different sets, so that one bad segment poisons nothing."""
    payload = bytes(range(180))
    bob = Participant(BOB, sds=NO_FILTER, segmentation=PARITY)
    real = messages_of(payload, parity_count=2)
    index = 3 if parity else 1
    segment = replace(cut(payload, parity_count=2)[index], payload=b"z" * 64)
    make: Callable[..., SdsMessage] = ephemeral_message if parity else content_message
    forged = make(segment, sender_id=ALICE)
    bob.receive(real[0], *([real[1]] if parity else []), forged, *real[1:3], *real[:3])
    assert shown(bob) == [payload]
    assert bob.of(MessageLostEvent) == []


def test_acknowledged_segments_of_a_poisoned_set_come_again() -> None:
    """The sender must not be told delivered by a participant that has dropped the payload."""
    payload = bytes(range(180))
    alice, bob = (Participant(name, sds=NO_FILTER, segmentation=SMALL) for name in (ALICE, BOB))
    alice.send(payload)
    alice.published()
    real = [item.data for item in alice.transmissions]
    bob.receive(real[0], real[2])
    bob.advance(3 * SECOND)
    alice.receive(*(item.data for item in bob.transmissions))
    segment = segment_in(alice.transmissions[1].message)
    assert segment is not None
    bob.receive(content_message(replace(segment, payload=b"z" * 64), sender_id=ALICE))
    for _ in range(60):
        begin, answered = len(alice.transmissions), len(bob.transmissions)
        for peer in (alice, bob):
            peer.advance(SECOND)
            peer.published()
        bob.receive(*(item.data for item in alice.transmissions[begin:]))
        alice.receive(*(item.data for item in bob.transmissions[answered:]))
    assert (
        shown(bob) == [payload]
        or not alice.machine.request_status(
            alice.transmissions[0].segment_id.partition(":")[0]
        ).recipients
    )


@pytest.mark.parametrize("parked", [True, False])
def test_hints_count_towards_the_bounds(*, parked: bool) -> None:
    bob = Participant(BOB, sds=SDS, segmentation=SEGMENTATION)
    for number in range(4):
        content = b"x" if parked else cut(b"y" * 128, wrap_time_ns=NOW + number)[0]
        bob.receive(
            content_message(
                content,
                sender_id=f"m{number}",
                message_id=f"m{number}" if parked else "",
                history=[entry(f"gone {number}", hint=bytes(100_000))],
            )
        )
    assert problems(bob.machine) == []
    assert sum(len(row.history) for row in bob.rows_of(PendingRecord)) < 1 << 16  # type: ignore[attr-defined]


def test_names_of_missing_messages_are_bounded() -> None:
    bob = Participant(BOB, sds=NO_FILTER)
    bob.receive(sync_message(entry("gone", sender_id="s" * 140_000), sender_id=MALLORY))
    kept = str(sizes(bob.machine)["missing bytes"].value)
    assert int(kept) < 1_000


@pytest.mark.parametrize("by_filter", [True, False])
def test_acknowledgements_of_one_request_are_bounded(*, by_filter: bool) -> None:
    """Sender ids are free: max_participants bounds who is remembered, with each request too."""
    alice = Participant(ALICE, sds=SDS)
    alice.send(b"what alice said")
    (real,) = alice.transmissions
    bloom = BloomFilter(SDS.bloom_capacity, SDS.bloom_error_rate)
    bloom.add(real.message.message_id)
    for number in range(500):
        forged = sync_message(
            *([] if by_filter else entries(real.message.message_id)),
            sender_id=f"m{number}",
            bloom_filter=bloom.to_bytes() if by_filter else None,
        )
        alice.receive(forged)
    assert len(alice.rows_of(AcknowledgementRecord)) < 100
    assert problems(alice.machine) == []


def test_a_payload_dropped_as_known_leaves_nothing() -> None:
    bob = Participant(BOB, sds=SDS, segmentation=SEGMENTATION)
    for number in range(100):
        first, second, parity = messages_of(
            bytes([number]) * 128, sender_id=MALLORY, parity_count=1, wrap_time_ns=NOW + number
        )
        burned = content_message(b"junk", sender_id=MALLORY, message_id=second.message_id)
        bob.receive(burned, first, parity)
    assert problems(bob.machine) == []


def test_a_sync_does_not_hide_a_message() -> None:
    """What is named after its cause waits for it and looks for it, whoever used the cause's id meanwhile."""
    bob = Participant(BOB, sds=NO_FILTER)
    (cause,) = messages_of(b"cause")
    named = entry(cause.message_id, hint=hash_of(cause.encode()), sender_id=ALICE)
    effect = messages_of(b"effect", lamport=NOW_MS + 1, history=[named], wrap_time_ns=NOW + 1)
    bob.receive(sync_message(sender_id=MALLORY, message_id=cause.message_id))
    bob.receive(*effect)
    assert len(bob.fetches) == 1
    bob.receive(cause)
    assert bob.received == [b"cause", b"effect"]


def test_one_message_costs_little_however_much_is_parked() -> None:
    """The release of one id must not take time with the cube of what waits: with all bounds used, minutes."""
    bob = Participant(BOB, sds=NO_FILTER)
    ids = [f"{number:x}" for number in range(250)]
    for own in reversed(ids):
        named = [item for item in ids if item != own]
        last = ["never"] if own == ids[0] else []
        bob.receive(
            content_message(
                b"z", sender_id=MALLORY, message_id=own, history=entries(*named, *last, "soon")
            )
        )
    soon = content_message(b"z", sender_id=MALLORY, message_id="soon")
    assert cpu_seconds(lambda: bob.receive(soon)) < 0.3


def test_refused_sender_ids_are_not_kept() -> None:
    is_clean.cache_clear()
    bob = Participant(BOB, sds=NO_FILTER)
    bob.receive(content_message(b"x", sender_id="s" * 100_000, message_id="x"))
    kept = is_clean.cache_info().currsize
    is_clean.cache_clear()
    assert not kept


def test_own_messages_do_not_come_back() -> None:
    """Floods with Lamport times ahead of the clock evict honest ids first: eviction goes by Lamport time."""
    alice = Participant(ALICE, sds=SDS, segmentation=SEGMENTATION)
    alice.send(b"what alice said")
    (real,) = alice.transmissions
    alice.published()
    for number in range(70):
        alice.receive(
            content_message(
                b"x", sender_id=MALLORY, message_id=f"m{number}", lamport=NOW_MS + 300_000
            )
        )
    named = entry(real.message.message_id, hint=hash_of(real.data))
    alice.receive(sync_message(named, sender_id=BOB, lamport=NOW_MS + 300_001))
    alice.fetched(real.message)
    assert shown(alice) == []
    assert alice.of(SenderIdConflictEvent) == []
