"""The way in: what is refused and why, what counts as ours, what is taken and what it says of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reliable_channel.config import SdsConfig, SegmentationConfig
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.payload import SEGMENT_OCTETS
from reliable_channel.core.sds.bloom import BloomFilter
from reliable_channel.core.wire import HistoryEntry, SdsMessage, SegmentMessage
from reliable_channel.events import MessageReceivedEvent, SenderIdConflictEvent
from reliable_channel.records import LogRecord, LostRecord, ParityRecord, PendingRecord
from reliable_channel.types import MS, SECOND
from tests.support.builders import (
    ALICE,
    BOB,
    CAROL,
    GRACE,
    HELLO,
    NO_FILTER,
    NOW,
    NOW_MS,
    PARITY,
    PAYLOAD,
    TIMEOUT,
    Participant,
    bob,
    content_message,
    cut,
    entries,
    entry,
    ephemeral_message,
    hash_of,
    messages_of,
    settled,
    single,
    sync_message,
)

# --- Refusals ------------------------------------------------------------------------------------

FIRST, _, LAST, SPARE = cut(bytes(range(150)), parity_count=1)

MANY = tuple(HistoryEntry(str(number)) for number in range(1025))

REFUSED: dict[str, tuple[SdsMessage | bytes, str]] = {
    "garbage": (b"\xff\xff\xff", "malformed"),
    "a field of another type": (b"\x08\x01", "malformed"),
    "cut off": (HELLO.encode()[:-1], "malformed"),
    "nothing at all": (b"", "foreign_channel"),
    "another channel": (replace(HELLO, channel_id="other"), "foreign_channel"),
    "no time, empty content": (
        replace(HELLO, lamport_timestamp=None, content=b""),
        "malformed_kind",
    ),
    "no sender": (replace(HELLO, sender_id=""), "invalid_sender_id"),
    "a sync without message id": (
        replace(sync_message(), message_id=""),
        "invalid_message_id",
    ),
    "the largest time": (
        replace(HELLO, lamport_timestamp=(1 << 64) - 1),
        "invalid_lamport_timestamp",
    ),
    "a history of 1025": (replace(HELLO, causal_history=MANY), "history_too_long"),
    "an entry without id": (
        replace(HELLO, causal_history=(HistoryEntry("a"), HistoryEntry())),
        "invalid_history_entry",
    ),
    "parity that claims a place in the order": (content_message(SPARE), "parity_not_ephemeral"),
    "an id that its content does not give": (
        replace(HELLO, message_id="0" * 64),
        "forged_id",
    ),
    "another sender's id": (replace(HELLO, sender_id=CAROL), "forged_id"),
    "an id in capital letters": (
        replace(HELLO, message_id=HELLO.message_id.upper()),
        "forged_id",
    ),
    "a forged ephemeral id": (
        replace(ephemeral_message(FIRST), message_id="0" * 64),
        "forged_id",
    ),
    "a forged parity id": (replace(ephemeral_message(SPARE), message_id="0" * 64), "forged_id"),
    "a single segment with another hash": (
        content_message(replace(cut(b"hello")[0], entire_message_hash=keccak256(b"bye"))),
        "hash_mismatch",
    ),
    "an ephemeral segment with another hash": (
        ephemeral_message(replace(cut(b"hello")[0], entire_message_hash=keccak256(b"bye"))),
        "hash_mismatch",
    ),
    "a data index too high": (
        content_message(replace(FIRST, data_segment_index=3)),
        "data_index",
    ),
    "a parity index too high": (
        ephemeral_message(replace(SPARE, parity_segment_index=1)),
        "parity_index",
    ),
    "parity of none": (
        ephemeral_message(replace(SPARE, parity_segment_count=0)),
        "parity_without_count",
    ),
    "data with an index of parity": (
        content_message(replace(FIRST, parity_segment_count=2, parity_segment_index=1)),
        "index_of_other_class",
    ),
    "parity with an index of data": (
        ephemeral_message(replace(SPARE, data_segment_index=1)),
        "index_of_other_class",
    ),
    "more leopard than data": (
        content_message(replace(FIRST, parity_segment_count=4, parity_code=0)),
        "parity_count",
    ),
    "256 segments of reedsolo": (
        ephemeral_message(replace(SPARE, parity_segment_count=253)),
        "parity_count",
    ),
    "a code without parity": (
        content_message(replace(FIRST, parity_segment_count=0, parity_code=1)),
        "parity_code_without_count",
    ),
    "parity of an unknown code": (
        ephemeral_message(replace(SPARE, parity_code=2)),
        "unknown_parity_code",
    ),
    "parity of one segment": (
        ephemeral_message(cut(b"x" * 64, parity_count=1)[1]),
        "parity_of_one_segment",
    ),
    "257 segments": (content_message(replace(FIRST, data_segment_count=256)), "too_many_segments"),
    "an empty segment": (content_message(replace(FIRST, payload=b"")), "empty_segment"),
    "a length that cannot be": (
        content_message(replace(FIRST, original_payload_length=500)),
        "length",
    ),
    "a last segment of chunks above the network limit": (
        content_message(
            replace(FIRST, data_segment_index=2, original_payload_length=(1 << 64) - 2)
        ),
        "length",
    ),
    "a segment above the network limit": (
        content_message(replace(FIRST, payload=bytes(150 * 1024 + 1), original_payload_length=0)),
        "segment_too_large",
    ),
}


@pytest.mark.parametrize(("message", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_counted_by_reason_and_leaves_no_trace(
    message: SdsMessage | bytes, reason: str
) -> None:
    receiver = bob()
    before, deadline = receiver.status(), receiver.machine.next_deadline()
    effects = receiver.receive(message)
    after = receiver.status()
    assert after.dropped == {reason: 1}
    assert effects.events == []
    assert effects.publishes == []
    assert effects.fetches == []
    assert replace(after, dropped={}) == before
    if reason in ("hash_mismatch", "parity_not_ephemeral") or "forged" in reason:
        assert receiver.machine.next_deadline() == deadline


def test_a_refused_message_writes_nothing_that_grows() -> None:
    """What a stranger sent and we refused never enters the durable log."""
    receiver = bob()
    rows = set(receiver.rows)
    for message, reason in REFUSED.values():
        if reason != "invalid_history_entry":
            receiver.receive(message)
    assert set(receiver.rows) == rows


def test_after_everything_that_is_refused_honest_messages_still_arrive() -> None:
    receiver = bob()
    for message, _ in REFUSED.values():
        receiver.receive(message)
    receiver.receive(content_message(cut(b"honest")[0]))
    assert receiver.received[-1] == b"honest"


def test_what_the_driver_could_not_decrypt_is_counted() -> None:
    receiver = bob()
    assert not receiver.machine.refuse("decrypt_failed", NOW)
    assert receiver.dropped() == {"decrypt_failed": 1}


def test_unknown_fields_are_skipped() -> None:
    receiver = bob()
    receiver.receive(HELLO.encode() + b"\xf2\x07\x03abc")
    assert receiver.received == [b"hello"]


def test_garbage_from_the_store_is_counted() -> None:
    receiver = settled()
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000, hint=b"h" * 32))
    receiver.carry_out(receiver.machine.fetched([(b"h" * 32, b"\xff\xff")], receiver.now))
    assert receiver.dropped() == {"malformed": 1}


# --- Whole messages ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"hello",
        b"\x0a\x03abc",
        b"\xff" * 100,
        cut(b"x")[0].encode()[:-1],
        replace(FIRST, data_segment_count=0, wrap_time_ns=0).encode(),
        replace(FIRST, entire_message_hash=b"h" * 31, wrap_time_ns=0).encode(),
    ],
    ids=["text", "another protobuf", "garbage", "cut off", "no count", "short hash"],
)
def test_content_that_is_no_segment_is_delivered_whole(content: bytes) -> None:
    """WIRE: content without a valid 32-byte hash and count is an unsegmented message."""
    receiver = bob()
    message = content_message(content)
    receiver.receive(message, message)
    assert receiver.received == [content]
    event = receiver.of(MessageReceivedEvent)[0]
    assert (event.message_id, event.sender_id) == (message.message_id, ALICE)
    assert receiver.status().owed_acknowledgements == 1


def test_unsegmented_messages_can_be_refused() -> None:
    receiver = bob(segmentation=SegmentationConfig(accept_unsegmented=False))
    receiver.receive(content_message(b"hello"), ephemeral_message(b"hello"))
    assert receiver.dropped() == {"unsegmented": 2}
    assert receiver.received == []
    receiver.receive(HELLO)
    assert receiver.received == [b"hello"]


def test_a_duplicate_is_not_delivered_again_but_acknowledged_again() -> None:
    """WIRE: so does every duplicate of it (our acknowledgement was lost)."""
    receiver = bob()
    receiver.receive(HELLO)
    receiver.advance(3 * SECOND)
    receiver.published()
    assert receiver.status().owed_acknowledgements == 0
    receiver.receive(HELLO)
    assert receiver.received == [b"hello"]
    assert receiver.counted("duplicates") == 1
    assert receiver.status().owed_acknowledgements == 1
    receiver.advance(3 * SECOND)
    assert len(receiver.syncs) == 2


@pytest.mark.parametrize(("taken", "named"), [(6, 6), (4, 4)], ids=["whole", "incomplete"])
def test_a_duplicate_asks_for_all_that_we_have_of_its_payload(taken: int, named: int) -> None:
    """docs/adr/0014: its sender may have sent one segment to ask for all."""
    receiver = settled()
    messages = messages_of(b"x" * 6 * 64, lamport=NOW_MS + 30_000)
    receiver.receive(*messages[:taken])
    receiver.advance(3 * SECOND)
    receiver.published()
    assert receiver.status().owed_acknowledgements == 0
    receiver.receive(messages[2])
    assert receiver.status().owed_acknowledgements == named
    receiver.advance(3 * SECOND)
    ids = {entry.message_id for entry in receiver.syncs[-1].message.causal_history}
    assert ids >= {message.message_id for message in messages[:taken]}


def test_a_duplicate_asks_for_all_once_within_a_timeout() -> None:
    """docs/adr/0014: a sender asks no faster, so whoever does makes us say little."""
    receiver = settled()
    messages = messages_of(b"x" * 6 * 64, lamport=NOW_MS + 30_000)
    receiver.receive(*messages)
    receiver.advance(3 * SECOND)
    receiver.published()

    def owed_for_a_duplicate() -> int:
        receiver.machine.state.debt.settle(message.message_id for message in messages)
        receiver.receive(messages[2])
        return receiver.status().owed_acknowledgements

    assert [owed_for_a_duplicate() for _ in range(3)] == [6, 1, 1]
    receiver.now += 2500 * MS - 1
    assert owed_for_a_duplicate() == 1
    receiver.now += 1
    assert [owed_for_a_duplicate() for _ in range(2)] == [6, 1]


def test_a_message_is_taken_although_its_time_is_far_ahead() -> None:
    """WIRE: a received Lamport time beyond now + 5 min is taken as now + 5 min."""
    receiver = bob()
    receiver.receive(replace(HELLO, lamport_timestamp=NOW_MS + 10_000_000))
    assert receiver.received == [b"hello"]
    assert receiver.status().lamport_timestamp == NOW_MS + 300_000


def test_when_a_message_was_last_taken_in_is_remembered() -> None:
    receiver = bob()
    receiver.receive(b"garbage")
    assert receiver.machine.state.last_seen_ns == 0
    receiver.advance(5 * SECOND)
    receiver.receive(sync_message())
    assert receiver.machine.state.last_seen_ns == NOW + 5 * SECOND


# --- Our own name --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["content", "ephemeral", "sync", "parity"])
def test_what_we_sent_is_an_echo(kind: str) -> None:
    """WIRE: a message with our sender_id and a known id is an echo."""
    sender = bob(segmentation=PARITY)
    sender.send(b"x" * (100 if kind == "parity" else 10), ephemeral=kind == "ephemeral")
    if kind == "sync":
        sender.receive(HELLO)
        sender.advance(3 * SECOND)
    before = sender.status()
    sender.receive(sender.transmissions[-1].data)
    after = sender.status()
    assert sender.counted("echoes") == 1
    assert replace(after, counters={}) == replace(before, counters={})
    assert sender.of(SenderIdConflictEvent) == []


def old_message(receiver: Participant) -> SdsMessage:
    """Return a message of ours that we have forgotten, below the floor of what we know."""
    receiver.machine.state.last_wrap_ns = NOW + 5
    receiver.machine.causal.floor = NOW_MS + 10
    (message,) = messages_of(b"old", sender_id=BOB, lamport=NOW_MS + 10, wrap_time_ns=NOW + 5)
    return message


@pytest.mark.parametrize("stored", [True, False])
def test_what_we_have_forgotten_of_ours_is_an_echo(stored: bool) -> None:
    receiver = settled()
    old = old_message(receiver)
    effect = messages_of(
        b"effect", lamport=NOW_MS + 11, history=[entry(old.message_id)], wrap_time_ns=NOW + 6
    )
    receiver.receive(*effect)
    assert receiver.status().missing_messages == 1
    if stored:
        receiver.fetched(old)
    else:
        receiver.receive(old)
    assert receiver.counted("echoes") == 1
    assert receiver.received == [b"effect"]
    assert receiver.of(SenderIdConflictEvent) == []
    assert receiver.status().missing_messages == 0
    assert receiver.status().parked_messages == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"lamport": NOW_MS + 11},
        {"wrap_time_ns": NOW + 6},
        {"wrap_time_ns": 0},
    ],
    ids=["above the floor", "a time we never had", "no time"],
)
def test_what_cannot_be_an_old_one_of_ours_is_a_conflict(changes: dict[str, int]) -> None:
    receiver = settled()
    old_message(receiver)
    message = messages_of(
        b"x", sender_id=BOB, **{"lamport": NOW_MS, "wrap_time_ns": NOW + 5, **changes}
    )
    receiver.receive(*message)
    assert receiver.received == [b"x"]
    assert len(receiver.of(SenderIdConflictEvent)) == 1


def test_a_forged_old_one_of_ours_excuses_nothing() -> None:
    receiver = settled()
    old = old_message(receiver)
    receiver.receive(replace(old, message_id="somebody else's"))
    assert receiver.dropped() == {"forged_id": 1}
    assert "somebody else's" not in receiver.machine.causal.passing


def test_ids_of_open_requests_outlive_a_flood() -> None:
    """A flood with Lamport times ahead of the clock must not make our own messages strangers'."""
    sender = bob(sds=replace(NO_FILTER, max_known_ids=64))
    sender.send(b"mine")
    (mine,) = sender.transmissions
    for number in range(200):
        sender.receive(content_message(b"x", message_id=f"m{number}", lamport=NOW_MS + 300_000))
    assert mine.message.message_id in sender.machine.state.log
    assert sender.status().known_messages <= 65
    sender.receive(mine.data)
    assert sender.counted("echoes") == 1


def test_a_stranger_under_our_name_raises_one_event_and_is_accepted_like_anyone() -> None:
    """WIRE: with an unknown id it is accepted like anyone's, and a conflict event is raised once."""
    receiver = bob()
    messages = [
        content_message(cut(text)[0], sender_id=BOB, lamport=NOW_MS + number)
        for number, text in enumerate((b"one", b"two"))
    ]
    receiver.receive(*messages)
    assert receiver.received == [b"one", b"two"]
    (event,) = receiver.of(SenderIdConflictEvent)
    assert (event.sender_id, event.message_id) == (BOB, messages[0].message_id)
    assert receiver.status().participants == 0
    assert (
        receiver.reopened()
        .receive(content_message(cut(b"three")[0], sender_id=BOB, lamport=NOW_MS + 3))
        .events[0]
        .name.endswith("received")
    )


# --- Segments ------------------------------------------------------------------------------------


def test_a_late_duplicate_of_a_segment_delivers_nothing() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD)
    receiver.receive(*messages, *messages, *reversed(messages))
    assert receiver.received == [PAYLOAD]
    assert receiver.counted("duplicates") == 6


def test_a_payload_sent_again_on_purpose_is_delivered_again() -> None:
    """WIRE: a payload sent again on purpose is delivered again."""
    receiver = bob()
    receiver.receive(*messages_of(PAYLOAD))
    receiver.receive(*messages_of(PAYLOAD, wrap_time_ns=NOW + 1, lamport=NOW_MS + 9))
    assert receiver.received == [PAYLOAD, PAYLOAD]


@pytest.mark.parametrize("with_parity", [False, True])
def test_a_segment_that_disagrees_poisons_nothing(*, with_parity: bool) -> None:
    """WIRE: segments that disagree are different sets, so that one bad segment poisons nothing."""
    receiver = bob()
    count = int(with_parity)
    honest = messages_of(PAYLOAD, parity_count=count)
    segments = cut(PAYLOAD, parity_count=count)
    for changes in (
        {"original_payload_length": 140},
        {"wrap_time_ns": NOW + 1},
        {"parity_segment_count": 2},
        {"data_segment_count": 4, "original_payload_length": 0},
        {"entire_message_hash": b"h" * 32},
    ):
        receiver.receive(content_message(replace(segments[0], payload=b"!" * 64, **changes)))  # type: ignore[arg-type]
    receiver.receive(*honest[1:], honest[0])
    assert receiver.received == [PAYLOAD]


def test_a_fifth_segment_for_an_index_is_refused_and_not_acknowledged() -> None:
    receiver = bob()
    first = cut(PAYLOAD)[0]
    for number in range(5):
        receiver.receive(content_message(replace(first, payload=bytes([number]) * 64)))
    assert receiver.dropped() == {"conflicting_segment": 1}
    assert receiver.status().owed_acknowledgements == 4
    assert receiver.status().known_messages == 4


def test_quotas_are_by_reason_and_nothing_refused_is_acknowledged() -> None:
    receiver = bob(
        segmentation=SegmentationConfig(
            max_incomplete_payloads=3, max_incomplete_payloads_per_sender=2
        )
    )
    for number in range(4):
        receiver.receive(content_message(cut(PAYLOAD, wrap_time_ns=number + 1)[0]))
    assert receiver.dropped() == {"incomplete_payloads_of_sender_full": 2}
    for sender_id in (CAROL, "dave"):
        receiver.receive(messages_of(PAYLOAD, sender_id=sender_id)[0])
    assert receiver.dropped()["incomplete_payloads_full"] == 1
    assert receiver.status().owed_acknowledgements == 3
    assert receiver.status().known_messages == 3
    receiver.receive(HELLO)  # whole messages need no place
    assert receiver.received == [b"hello"]


def test_bytes_held_for_reassembly_are_limited_per_sender_and_in_all() -> None:
    receiver = bob(
        segmentation=SegmentationConfig(
            max_incomplete_bytes=1 << 17, max_incomplete_bytes_per_sender=1 << 16
        )
    )
    for sender_id in (ALICE, CAROL, "dave"):
        for message in messages_of(b"x" * (1 << 17), sender_id=sender_id, chunk=1 << 15)[:3]:
            receiver.receive(message)
    assert receiver.dropped().keys() == {
        "incomplete_bytes_of_sender_full",
        "incomplete_bytes_full",
    }
    assert 1 << 16 <= receiver.machine.reassembler.octets <= 1 << 17
    assert receiver.status().known_messages >= 2


def test_a_refused_segment_can_come_again_when_there_is_room() -> None:
    receiver = bob(segmentation=SegmentationConfig(max_incomplete_payloads=1))
    first = messages_of(PAYLOAD)
    second = messages_of(PAYLOAD, wrap_time_ns=NOW + 1, lamport=NOW_MS + 5)
    receiver.receive(first[0], *second)
    assert receiver.dropped() == {"incomplete_payloads_full": 3}
    receiver.receive(*first[1:], *second)
    assert receiver.received == [PAYLOAD, PAYLOAD]


def tiny(sender_id: str, number: int, lamport: int, count: int = 2) -> SdsMessage:
    """Return the first segment, of one byte, of a payload that nobody goes on with."""
    segment = SegmentMessage(
        entire_message_hash=b"h" * 32,
        data_segment_count=count,
        payload=b"x",
        wrap_time_ns=NOW + number,
    )
    return content_message(segment, sender_id=sender_id, lamport=lamport)


@pytest.mark.parametrize("names", [1, 2])
@pytest.mark.parametrize("restart", [False, True])
def test_a_payload_without_progress_gives_its_place_to_a_new_one(
    names: int, *, restart: bool
) -> None:
    """Of everybody's where all places are taken, of the sender's own where it has no more."""
    receiver = settled(
        segmentation=SegmentationConfig(
            max_incomplete_payloads=4, max_incomplete_payloads_per_sender=5 - names
        )
    )
    full = ["incomplete_payloads_full", "incomplete_payloads_of_sender_full"]
    taken = [tiny(CAROL, number, NOW_MS + 20_000) for number in range(3)]
    if names == 1:
        taken.append(tiny(CAROL, 3, NOW_MS + 20_000))
    else:
        taken.append(tiny("dave", 3, NOW_MS + 20_000))
    receiver.receive(*taken[:2])
    receiver.advance(SECOND)
    receiver.receive(*taken[2:])
    honest = messages_of(PAYLOAD, lamport=NOW_MS + 60_000, sender_id=CAROL, wrap_time_ns=NOW + 9)
    receiver.receive(honest[0])
    assert receiver.dropped().keys() <= set(full)
    assert sum(receiver.dropped().values()) == 1
    assert receiver.lost == []
    if restart:
        receiver = receiver.reopened()
        receiver.advance(SECOND)
        assert receiver.machine.reassembler.segments == 4
        assert receiver.machine.reassembler.octets > 4 * SEGMENT_OCTETS
    receiver.advance(59 * SECOND)
    receiver.receive(honest[0])
    assert receiver.status().incomplete_payloads == 4
    assert receiver.counted("incomplete_dropped") == 1
    ((message_id, reason),) = receiver.lost
    assert reason == "incomplete_payloads_full"
    assert message_id in {item.message_id for item in taken}
    assert message_id not in receiver.machine.state.log
    receiver.receive(*honest[1:])
    assert receiver.received == [PAYLOAD]


def test_a_sender_with_too_many_payloads_loses_its_own() -> None:
    receiver = settled(segmentation=SegmentationConfig(max_incomplete_payloads_per_sender=2))
    others = [tiny("dave", 1, NOW_MS + 20_000), *(tiny(CAROL, place, NOW_MS) for place in (1, 2))]
    receiver.receive(others[0])
    receiver.advance(SECOND)
    receiver.receive(*others[1:])
    receiver.advance(60 * SECOND)
    receiver.receive(tiny(CAROL, 3, NOW_MS))
    assert receiver.lost == [(others[1].message_id, "incomplete_payloads_full")]
    assert receiver.dropped() == {}


def test_who_fills_the_table_keeps_no_payload_away() -> None:
    """Invented names open a tiny payload every 3 s; a rate-limited sender goes on every 10 minutes."""
    receiver = settled(sds=replace(NO_FILTER, dependency_timeout_ms=2 * 3_600_000))
    slow = messages_of(bytes(range(256)) * 10, lamport=NOW_MS + 100_000)
    assert len(slow) == 40
    quick = messages_of(PAYLOAD, sender_id=CAROL, wrap_time_ns=NOW + 5, lamport=NOW_MS + 60_000)
    number = 0
    for place, message in enumerate(slow):
        for _ in range(200):
            number += 1
            receiver.receive(tiny(f"m{number % 4}", number, receiver.now // MS))
            receiver.advance(3 * SECOND)
        receiver.receive(message)
        if 20 <= place < 23:
            receiver.receive(quick[place - 20])
    assert receiver.status().incomplete_payloads > 200
    assert receiver.received == [PAYLOAD, bytes(range(256)) * 10]
    assert receiver.dropped() == {}
    assert {reason for _, reason in receiver.lost} <= {
        "incomplete_payloads_full",
        "incomplete_timeout",
    }


def test_segments_that_nobody_goes_on_with_leave_the_log_its_share() -> None:
    """Ids of incomplete payloads cannot be evicted: in their stead all others would be."""
    receiver = settled(
        sds=replace(NO_FILTER, max_known_ids=1024),
        segmentation=SegmentationConfig(max_total_segments=128),
    )
    honest = [
        content_message(
            cut(f"honest {number}".encode(), wrap_time_ns=NOW + number)[0],
            sender_id=CAROL,
            lamport=NOW_MS + 20_000 + number,
        )
        for number in range(400)
    ]
    receiver.receive(*honest)
    for name in ("m0", "m1", "m2"):
        for number in range(300):
            segment = SegmentMessage.decode(tiny(name, number // 120, 0, 128).content or b"")
            segment = replace(segment, data_segment_index=number % 120)
            receiver.receive(content_message(segment, sender_id=name, lamport=NOW_MS + 21_000))
    assert receiver.dropped() == {
        "incomplete_segments_of_sender_full": 44,
        "incomplete_segments_full": 344,
    }
    assert receiver.machine.reassembler.segments == 512
    before = len(receiver.received)
    receiver.receive(*honest)
    assert len(receiver.received) == before == 400
    assert receiver.counted("duplicates") == 400


def test_256_segments_are_accepted() -> None:
    """WIRE: we send at most 255 segments and accept 256."""
    payload = bytes(number % 251 for number in range(256 * 64))
    receiver = bob()
    receiver.receive(*messages_of(payload))
    assert receiver.received == [payload]


@pytest.mark.parametrize("parity_first", [True, False])
def test_what_only_parity_names_is_fetched_too(*, parity_first: bool) -> None:
    """WIRE: missing dependencies: by hint from the store."""
    receiver = settled()
    before = single("before")
    hint = hash_of(before.encode())
    messages = messages_of(
        PAYLOAD,
        parity_count=1,
        lamport=NOW_MS + 30_000,
        history=[entry("before", hint=hint, sender_id=ALICE)],
    )
    arrived = [messages[1], messages[2]]
    receiver.receive(*([messages[3], *arrived] if parity_first else [*arrived, messages[3]]))
    assert [fetch.hashes for fetch in receiver.fetches] == [(hint,)]
    receiver.fetched(before)
    assert receiver.received == [b"before", PAYLOAD]


def test_a_segment_that_was_rebuilt_without_its_id_is_acknowledged_when_it_comes() -> None:
    receiver = settled()
    messages = messages_of(
        PAYLOAD, parity_count=1, wrap_time_ns=0, salt_ns=NOW, lamport=NOW_MS + 20_000
    )
    receiver.receive(messages[1], messages[2], messages[3])
    # The second segment names the first last, so the payload does not wait for it; others do.
    assert receiver.received == [PAYLOAD]
    receiver.receive(single("after", messages[0].message_id, lamport=NOW_MS + 30_000))
    assert receiver.received == [PAYLOAD]
    receiver.receive(messages[0])
    assert receiver.received == [PAYLOAD, b"after"]
    assert receiver.counted("late_segments") == 1
    assert messages[0].message_id in list(receiver.machine.state.debt)


@pytest.mark.parametrize("restart", [False, True])
def test_what_names_a_late_segment_waits_for_its_payload(*, restart: bool) -> None:
    """Causal order is of whole payloads: a parked one's segment that comes late is not delivered yet."""
    receiver = settled()
    messages = messages_of(
        PAYLOAD,
        parity_count=1,
        wrap_time_ns=0,
        salt_ns=NOW,
        lamport=NOW_MS + 20_000,
        history=[entry("before")],
    )
    receiver.receive(messages[0], messages[1], messages[3])
    receiver.receive(single("after", messages[2].message_id, lamport=NOW_MS + 30_000))
    receiver.receive(messages[2])
    if restart:
        receiver = receiver.reopened()
    assert receiver.received == []
    assert receiver.status().parked_messages == 2
    assert messages[2].message_id not in receiver.machine.state.log.newest(9)
    receiver.receive(single("before", lamport=NOW_MS + 10_000))
    assert receiver.received == [b"before", PAYLOAD, b"after"]
    assert receiver.rows_of(PendingRecord) == receiver.rows_of(ParityRecord) == []


def test_what_is_no_part_of_a_parked_payload_does_not_become_one() -> None:
    """After a restart it would be put together with it, and make nothing."""
    receiver = settled()
    messages = messages_of(
        PAYLOAD,
        parity_count=1,
        wrap_time_ns=0,
        salt_ns=NOW,
        lamport=NOW_MS + 20_000,
        history=[entry("before")],
    )
    receiver.receive(messages[0], messages[1], messages[3])
    forged = replace(cut(PAYLOAD, parity_count=1, wrap_time_ns=0)[2], payload=b"!" * 22)
    receiver.receive(content_message(forged, lamport=NOW_MS + 20_000))
    assert receiver.dropped() == {"conflicting_segment": 1}
    receiver = receiver.reopened()
    receiver.receive(messages[2], single("before", lamport=NOW_MS + 10_000))
    assert receiver.received == [b"before", PAYLOAD]


def test_without_wrap_time_a_payload_sent_again_is_delivered_again() -> None:
    """WIRE: after completion only a data segment with a new id for an index already held opens a set."""
    receiver = bob()
    receiver.receive(*messages_of(PAYLOAD, wrap_time_ns=0))
    again = [
        replace(message, message_id=f"again {number}", lamport_timestamp=NOW_MS + 9 + number)
        for number, message in enumerate(messages_of(PAYLOAD, wrap_time_ns=0))
    ]
    receiver.receive(again[0])
    assert receiver.status().incomplete_payloads == 1
    receiver.receive(*again[1:])
    assert receiver.received == [PAYLOAD, PAYLOAD]


def test_with_wrap_time_a_late_segment_never_opens_a_set_again() -> None:
    """WIRE: completed sets are remembered: a late segment never delivers twice."""
    receiver = bob(sds=replace(NO_FILTER, max_known_ids=64))
    messages = messages_of(PAYLOAD)
    receiver.receive(*messages)
    for number in range(80):
        receiver.receive(single(f"filler {number}", lamport=NOW_MS + 100 + number))
    assert messages[0].message_id not in receiver.machine.state.log
    receiver.receive(*messages)
    assert receiver.received.count(PAYLOAD) == 1
    assert receiver.status().incomplete_payloads == 0


def test_data_beside_parity_of_an_unknown_code_makes_the_payload() -> None:
    receiver = bob()
    segments = [replace(item, parity_code=2) for item in cut(PAYLOAD, parity_count=1)]
    receiver.receive(ephemeral_message(segments[3]), *map(content_message, segments[:3]))
    assert receiver.dropped() == {"unknown_parity_code": 1}
    assert receiver.received == [PAYLOAD]


# --- Ids that are proven, and ids that are claimed -----------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("parked", [False, True])
def test_whoever_proves_an_id_gets_it(*, parked: bool, restart: bool) -> None:
    """The one who only claimed it gives way: out of the log, and undelivered where it still waits."""
    receiver = settled()
    real = content_message(cut(b"real")[0], lamport=NOW_MS + 20_000)
    needs = ["nothing"] if parked else []
    burned = single("burned", *needs, sender_id=CAROL, lamport=NOW_MS + 30_000)
    receiver.receive(replace(burned, message_id=real.message_id))
    if restart:
        events = receiver.events
        receiver = receiver.reopened()
        receiver.events = events
    receiver.receive(real, real)
    assert receiver.received == ([] if parked else [b"burned"]) + [b"real"]
    assert receiver.lost == []
    assert receiver.status().parked_messages == 0
    assert receiver.counted("ids_reclaimed") == 1
    assert receiver.rows_of(PendingRecord) == []
    log = receiver.machine.state.log
    assert log.newest(1) == (real.message_id,)
    assert [item for _, item in log.order].count(real.message_id) == 1


def test_an_id_of_content_alone_is_proven_too() -> None:
    receiver = settled()
    real = content_message(cut(b"real", wrap_time_ns=0)[0], lamport=NOW_MS + 20_000)
    forged = content_message(
        cut(b"forged", wrap_time_ns=0)[0], message_id=real.message_id, lamport=NOW_MS + 20_000
    )
    receiver.receive(forged, real, forged, real)
    assert receiver.received[-2:] == [b"forged", b"real"]


@pytest.mark.parametrize("how", ["claimed", "proven"])
def test_a_claim_never_takes_an_id_over(how: str) -> None:
    receiver = settled()
    first = single("first") if how == "claimed" else content_message(cut(b"first")[0])
    receiver.receive(first, replace(single("second"), message_id=first.message_id))
    assert receiver.received[-1] == b"first"
    assert receiver.counted("duplicates") == 1


def test_what_an_id_with_wrap_time_is_the_hash_of_does_not_prove_it() -> None:
    """Sender, wrap time and content in a row have the same hash, but are no segment."""
    receiver = settled()
    real = content_message(cut(b"real")[0], lamport=NOW_MS + 20_000)
    preimage = ALICE.encode() + str(NOW).encode() + (real.content or b"")
    forged = content_message(preimage, sender_id=CAROL, lamport=NOW_MS + 20_000)
    assert forged.message_id == real.message_id
    receiver.receive(forged, real)
    assert receiver.received[-1] == b"real"


def test_a_segment_under_a_burned_id_leaves_the_rest_of_its_set() -> None:
    receiver = settled()
    real = [content_message(item) for item in cut(PAYLOAD, wrap_time_ns=0)]
    forged = content_message(
        replace(cut(PAYLOAD, wrap_time_ns=0)[1], payload=b"!" * 64), message_id=real[1].message_id
    )
    receiver.receive(real[0], forged, real[1], real[2])
    assert receiver.received[-1] == PAYLOAD
    assert receiver.lost == []


def test_a_parked_payload_keeps_what_is_its_own_when_an_id_gives_way() -> None:
    receiver = settled()
    real = content_message(cut(b"real")[0], lamport=NOW_MS + 20_000)
    first, second, third = cut(PAYLOAD, wrap_time_ns=0)
    at = NOW_MS + 30_000
    receiver.receive(
        content_message(first, lamport=at, history=entries("cause")),
        content_message(second, lamport=at + 1, message_id=real.message_id),
        content_message(third, lamport=at + 2),
    )
    receiver.receive(real, single("cause"))
    assert receiver.received[-3:] == [b"real", b"cause", PAYLOAD]


# --- Evidence ------------------------------------------------------------------------------------


def test_ids_of_syncs_and_ephemerals_are_waited_for_only_a_short_time() -> None:
    """Foreign implementations name them, and nothing proves that no real message has the id."""
    receiver = settled()
    sync = sync_message(lamport=NOW_MS + 20_000)
    ephemeral = ephemeral_message(cut(b"now")[0])
    receiver.receive(sync, ephemeral)
    after = single("after", sync.message_id, ephemeral.message_id, lamport=NOW_MS + 30_000)
    receiver.receive(after)
    receiver.advance(GRACE - 1)
    assert receiver.received == [b"now"]
    receiver.advance(1)
    assert receiver.received == [b"now", b"after"]
    receiver.advance(2 * TIMEOUT)
    assert receiver.lost == []
    assert receiver.status().missing_messages == 0


def test_ids_of_our_own_syncs_and_ephemerals_are_met() -> None:
    receiver = settled()
    receiver.receive(single("owed"))
    receiver.advance(10 * SECOND)
    (sync,) = receiver.syncs
    receiver.send(b"now", ephemeral=True)
    own = [sync.message.message_id, receiver.transmissions[-1].message.message_id]
    receiver.receive(single("after", *own, lamport=NOW_MS + 60_000))
    assert receiver.received == [b"owed", b"after"]


def test_a_claimed_id_that_a_store_has_is_waited_for_like_any_other() -> None:
    receiver = settled()
    receiver.receive(sync_message(sender_id=CAROL, message_id="m1"))
    receiver.receive(single("m2", "m1", hint=hash_of(b"m1")))
    receiver.advance(TIMEOUT - 1)
    assert receiver.fetches
    assert receiver.received == []
    receiver.advance(1)
    assert receiver.lost == [("m1", "dependency_timeout")]


def test_a_claimed_id_that_proves_real_in_time_keeps_its_order() -> None:
    receiver = settled()
    receiver.receive(sync_message(sender_id=CAROL, message_id="m1"))
    receiver.receive(single("m2", "m1"), single("m1"))
    assert receiver.received == [b"m1", b"m2"]
    assert [event.late for event in receiver.of(MessageReceivedEvent)] == [False, False]


def test_a_claim_that_comes_later_does_not_shorten_a_search() -> None:
    receiver = settled()
    receiver.receive(single("m2", "m1"), sync_message(sender_id=CAROL, message_id="m1"))
    receiver.receive(single("m3", "m1"))
    receiver.advance(TIMEOUT - 1)
    assert receiver.received == []


def test_a_copy_without_lamport_time_does_not_hide_a_segment() -> None:
    """The content proves the id, but not that the message is an ephemeral one."""
    receiver = settled()
    messages = messages_of(PAYLOAD, lamport=NOW_MS + 20_000)
    receiver.receive(replace(messages[2], lamport_timestamp=None, causal_history=()))
    named = messages[2].message_id
    receiver.receive(single("after", named, lamport=NOW_MS + 30_000, hint=hash_of(b"2")))
    assert receiver.received == []
    receiver.receive(*messages)
    assert receiver.received == [PAYLOAD, b"after"]


def test_whoever_speaks_is_a_participant_for_a_while() -> None:
    receiver = bob()
    receiver.receive(HELLO)
    receiver.receive(sync_message(sender_id=CAROL))
    assert receiver.status().participants == 2


def test_a_debt_is_dropped_when_another_names_as_much() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD)
    receiver.receive(*messages)
    receiver.receive(
        sync_message(*entries(*(item.message_id for item in messages)), sender_id=CAROL)
    )
    assert receiver.status().owed_acknowledgements == 0
    receiver.advance(10 * SECOND)
    assert receiver.syncs == []


@pytest.mark.parametrize(
    "forged",
    [sync_message(sender_id=CAROL, message_id="m1"), ephemeral_message(b"x", message_id="m1")],
    ids=["sync", "ephemeral"],
)
def test_a_forged_copy_does_not_excuse_a_message_that_stores_keep(forged: SdsMessage) -> None:
    receiver = settled()
    receiver.receive(single("m2", "m1", hint=hash_of(b"m1")))
    receiver.receive(forged)
    assert b"m2" not in receiver.received
    receiver.events.clear()
    receiver.receive(single("m1"))
    assert receiver.received == [b"m1", b"m2"]
    assert [event.late for event in receiver.of(MessageReceivedEvent)] == [False, False]


def test_a_refused_message_does_not_lower_the_floor() -> None:
    receiver = bob()
    floor = receiver.machine.causal.floor
    behind = replace(HELLO, lamport_timestamp=NOW_MS - 15_000)
    receiver.receive(replace(behind, message_id="0" * 64))
    assert receiver.dropped() == {"forged_id": 1}
    assert receiver.machine.causal.floor == floor
    receiver.receive(behind)
    assert receiver.machine.causal.floor == floor - 15_000


def test_a_sync_heard_twice_counts_once() -> None:
    receiver = bob()
    receiver.receive(sync_message(), sync_message())
    assert receiver.counted("syncs_received") == 1
    assert receiver.counted("duplicates") == 1


def test_syncs_are_not_known_owed_or_logged() -> None:
    """WIRE: they are never parked, logged, retransmitted, added to filters or named in histories."""
    receiver = bob(sds=SdsConfig(bloom_capacity=50))
    sync = sync_message(lamport=NOW_MS + 500)
    receiver.receive(sync)
    status = receiver.status()
    assert (status.known_messages, status.owed_acknowledgements) == (0, 0)
    assert receiver.rows_of(LogRecord) == []
    assert status.lamport_timestamp == NOW_MS + 500
    receiver.send(b"x")
    assert receiver.transmissions[-1].message.causal_history == ()


def test_a_sync_of_others_is_in_no_filter_of_ours() -> None:
    """WIRE: syncs are never added to filters."""
    receiver = bob(sds=SdsConfig(bloom_capacity=50))
    sync = sync_message(lamport=NOW_MS + 500)
    receiver.receive(HELLO, sync)
    receiver.send(b"x")
    data = receiver.transmissions[-1].message.bloom_filter
    assert data is not None
    bloom = BloomFilter.from_bytes(data, 50, 0.001)
    assert HELLO.message_id in bloom
    assert sync.message_id not in bloom


def test_messages_of_our_own_create_no_debt() -> None:
    """WIRE: syncs, ephemerals and our own messages create no debt."""
    sender = bob()
    sender.send(b"x")
    sender.receive(sender.transmissions[0].data)
    sender.receive(ephemeral_message(cut(b"now")[0]))
    assert sender.status().owed_acknowledgements == 0


# --- Bounds --------------------------------------------------------------------------------------

FLOODS: dict[str, Callable[[int], SdsMessage]] = {
    "messages": lambda number: single(f"m{number}", lamport=NOW_MS + number),
    "gaps": lambda number: single(f"m{number}", f"x{number}", lamport=NOW_MS + 20_000 + number),
    "sets": lambda number: content_message(
        cut(PAYLOAD, wrap_time_ns=number + 1)[0], lamport=NOW_MS + number
    ),
    "parity": lambda number: ephemeral_message(
        cut(PAYLOAD, parity_count=1, wrap_time_ns=number + 1)[3]
    ),
    "syncs": lambda number: sync_message(
        *entries(*(f"{number} {place}" for place in range(10))), lamport=NOW_MS + number
    ),
    "ephemerals": lambda number: ephemeral_message(b"x", message_id=f"e{number}"),
    "senders": lambda number: single(f"m{number}", sender_id=f"s{number}", lamport=NOW_MS + number),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flood_passes_no_bound_and_others_still_get_through(
    flood: Callable[[int], SdsMessage],
) -> None:
    receiver = settled(
        sds=SdsConfig(
            bloom_capacity=0,
            max_known_ids=64,
            max_parked_messages=8,
            max_missing_ids=16,
            max_missing_ids_per_sender=8,
            max_lost_ids=8,
            max_participants=8,
        ),
        segmentation=SegmentationConfig(
            max_incomplete_payloads=8, max_incomplete_payloads_per_sender=4
        ),
    )
    for number in range(400):
        receiver.receive(flood(number))
    status = receiver.status()
    assert status.known_messages <= 64 + 8 + 8
    assert status.parked_messages <= 8
    assert status.missing_messages <= 16
    assert status.participants <= 8
    assert status.incomplete_payloads <= 8
    assert len(receiver.rows_of(LostRecord)) <= 8
    assert len(receiver.rows_of(PendingRecord)) <= 16
    assert len(receiver.machine.causal.passing.ids) <= 4096
    assert len(receiver.machine.acceptance.payloads) <= 16
    receiver.receive(
        *messages_of(PAYLOAD, sender_id=CAROL, wrap_time_ns=NOW + 5, lamport=NOW_MS + 60_000)
    )
    assert PAYLOAD in receiver.received


@pytest.mark.parametrize("place", ["reassembly", "parking lot"])
def test_bytes_that_are_held_include_histories(place: str) -> None:
    """A hostile sender floods: memory stays bounded. A message of 150 KiB may be all history."""
    bound = 1 << 20
    receiver = settled(
        sds=replace(NO_FILTER, max_parked_bytes=bound, max_missing_ids=10),
        segmentation=SegmentationConfig(
            max_incomplete_bytes=bound, max_incomplete_bytes_per_sender=bound
        ),
    )
    for number in range(60):
        history = entries(*(f"{number} {item}".ljust(100) for item in range(1000)))
        at = NOW_MS + 20_000 + number
        if place == "parking lot":
            receiver.receive(
                replace(single(f"m{number}", "gap", lamport=at), causal_history=history)
            )
        else:
            segment = cut(PAYLOAD, wrap_time_ns=number + 1)[0]
            receiver.receive(content_message(segment, lamport=at, history=history))
    rows = [row for row in receiver.rows_of(PendingRecord) if isinstance(row, PendingRecord)]
    assert sum(len(row.history) + len(row.content) for row in rows) <= 1.5 * bound


def test_ids_of_syncs_are_remembered_up_to_4096() -> None:
    receiver = bob()
    for number in range(4200):
        receiver.receive(replace(sync_message(), message_id=f"s{number}"))
    assert len(receiver.machine.causal.claimed.ids) == 4096
    assert len(receiver.machine.causal.passing.ids) == 0
