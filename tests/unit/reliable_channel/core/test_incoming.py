"""The way in: what is refused and why, what is acknowledged, rebuilt, delivered, waited for, lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import pytest

from reliable_channel.config import SdsConfig, SegmentationConfig
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.requests import RequestState
from reliable_channel.core.sds.bloom import BloomFilter
from reliable_channel.core.wire import HistoryEntry, SdsMessage
from reliable_channel.events import (
    MessageLostEvent,
    MessageReceivedEvent,
    SenderIdConflictEvent,
)
from reliable_channel.identifiers import is_identifier
from reliable_channel.records import (
    CompletedRecord,
    DebtRecord,
    EventRecord,
    LogRecord,
    LostRecord,
    PendingRecord,
)
from reliable_channel.types import MS, SECOND
from tests.support.builders import (
    ALICE,
    BOB,
    CAROL,
    NO_FILTER,
    NOW,
    NOW_MS,
    PARITY,
    Participant,
    content_message,
    cut,
    deliver,
    entries,
    entry,
    ephemeral_message,
    hash_of,
    limited,
    messages_of,
    salted,
    sync_message,
)

TIMEOUT = 300 * SECOND
GRACE = 10 * SECOND
DAY = 86_400 * SECOND

HELLO = content_message(cut(b"hello")[0])


def bob(**settings: Any) -> Participant:
    """Return a receiver without filter, unless the settings say otherwise."""
    return Participant(BOB, **{"sds": NO_FILTER, **settings})


def settled(**settings: Any) -> Participant:
    """Return a receiver whose first moments are over: what it lacks is not from before its time."""
    receiver = bob(**settings)
    receiver.receive(HELLO)
    receiver.advance(GRACE)
    receiver.published()
    receiver.events.clear()
    receiver.transmissions.clear()
    return receiver


def single(
    text: str,
    *needs: str,
    sender_id: str = ALICE,
    lamport: int = NOW_MS + 20_000,
    hint: bytes | None = None,
) -> SdsMessage:
    """Return a message of one segment under an id that is easy to name."""
    return content_message(
        text.encode(),
        sender_id=sender_id,
        message_id=text,
        lamport=lamport,
        history=[entry(item, hint=hint, sender_id=sender_id) for item in needs],
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
    "no channel": (replace(HELLO, channel_id=""), "foreign_channel"),
    "neither time nor content": (
        replace(HELLO, lamport_timestamp=None, content=None),
        "malformed_kind",
    ),
    "no time, empty content": (
        replace(HELLO, lamport_timestamp=None, content=b""),
        "malformed_kind",
    ),
    "no sender": (replace(HELLO, sender_id=""), "invalid_sender_id"),
    "a sender of 256 bytes": (replace(HELLO, sender_id="x" * 256), "invalid_sender_id"),
    "a sender of 86 wide letters": (replace(HELLO, sender_id="€" * 86), "invalid_sender_id"),
    "a sender with a control character": (replace(HELLO, sender_id="a\n"), "invalid_sender_id"),
    "no message id": (replace(HELLO, message_id=""), "invalid_message_id"),
    "a message id of 257 bytes": (replace(HELLO, message_id="x" * 257), "invalid_message_id"),
    "a message id of 86 wide letters": (
        replace(HELLO, message_id="€" * 86),
        "invalid_message_id",
    ),
    "a sync without message id": (
        replace(sync_message(), message_id=""),
        "invalid_message_id",
    ),
    "a negative time to others": (
        replace(HELLO, lamport_timestamp=1 << 63),
        "invalid_lamport_timestamp",
    ),
    "the largest time": (
        replace(HELLO, lamport_timestamp=(1 << 64) - 1),
        "invalid_lamport_timestamp",
    ),
    "a history of 1025": (replace(HELLO, causal_history=MANY), "history_too_long"),
    "1025 repair requests": (replace(HELLO, repair_request=MANY), "history_too_long"),
    "a sync with a history of 1025": (
        replace(sync_message(), causal_history=MANY),
        "history_too_long",
    ),
    "an entry without id": (
        replace(HELLO, causal_history=(HistoryEntry("a"), HistoryEntry())),
        "invalid_history_entry",
    ),
    "an entry of 257 bytes": (
        replace(HELLO, causal_history=entries("x" * 257)),
        "invalid_history_entry",
    ),
    "an entry of 86 wide letters": (
        replace(HELLO, causal_history=entries("€" * 86)),
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
    "257 segments": (content_message(replace(FIRST, data_segment_count=256)), "too_many_segments"),
    "an empty segment": (content_message(replace(FIRST, payload=b"")), "empty_segment"),
    "a length that cannot be": (
        content_message(replace(FIRST, original_payload_length=500)),
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


@pytest.mark.parametrize(
    "message",
    [
        replace(HELLO, causal_history=MANY[:1024]),
        replace(HELLO, lamport_timestamp=(1 << 63) - 1),
        replace(HELLO, lamport_timestamp=0),
        replace(HELLO, lamport_timestamp=1_700_000_000),  # the Nim implementation counts seconds
        replace(HELLO, causal_history=entries("x" * 256)),
        content_message(b"plain", message_id="x" * 256, sender_id="y" * 255),
        content_message(b"plain", message_id="€" * 85, sender_id="€" * 85),
    ],
    ids=["1024 entries", "latest", "zero", "seconds", "entry", "longest ids", "widest ids"],
)
def test_what_is_just_within_a_bound_is_accepted(message: SdsMessage) -> None:
    receiver = bob()
    receiver.receive(message)
    assert receiver.dropped() == {}
    assert receiver.status().known_messages == 1


def test_the_bound_of_histories_is_a_setting() -> None:
    receiver = bob(sds=replace(NO_FILTER, max_history_entries=2))
    receiver.receive(replace(HELLO, causal_history=entries("a", "b", "c")))
    assert receiver.dropped() == {"history_too_long": 1}
    receiver.receive(replace(HELLO, causal_history=entries("a", "b")))
    assert receiver.status().known_messages == 1


def test_what_the_driver_could_not_decrypt_is_counted() -> None:
    receiver = bob()
    assert not receiver.machine.refuse("decrypt_failed", NOW)
    assert receiver.dropped() == {"decrypt_failed": 1}


def test_unknown_fields_are_skipped() -> None:
    receiver = bob()
    receiver.receive(HELLO.encode() + b"\xf2\x07\x03abc")
    assert receiver.received == [b"hello"]


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


def test_a_received_event_says_from_whom_when_and_under_which_id() -> None:
    receiver = bob()
    receiver.receive(HELLO)
    event = receiver.of(MessageReceivedEvent)[0]
    assert event == MessageReceivedEvent(
        channel_id="room",
        sequence=1,
        time_ns=NOW,
        message=b"hello",
        sender_id=ALICE,
        message_id=HELLO.message_id,
    )
    assert len(receiver.rows_of(EventRecord)) == 1


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

PAYLOAD = bytes(range(150))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_segments_make_the_payload_in_whichever_order_they_come(order: tuple[int, ...]) -> None:
    """WIRE: a segment goes to reassembly as soon as SDS has accepted it."""
    receiver = settled()
    messages = messages_of(PAYLOAD, lamport=NOW_MS + 20_000)
    for place in order:
        assert receiver.received == []
        receiver.receive(messages[place])
    assert receiver.received == [PAYLOAD]
    assert receiver.of(MessageReceivedEvent)[0].message_id == messages[0].message_id
    assert receiver.status().incomplete_payloads == 0
    assert receiver.status().missing_messages == 0


def test_each_segment_is_owed_when_it_is_accepted_not_when_the_payload_is_whole() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD)
    receiver.receive(messages[0], messages[2])
    assert receiver.status().owed_acknowledgements == 2
    assert receiver.status().known_messages == 2
    assert receiver.machine.state.log.newest(5) == ()
    assert len(receiver.rows_of(PendingRecord)) == 2
    receiver.receive(messages[1])
    assert receiver.rows_of(PendingRecord) == []
    assert len(receiver.rows_of(DebtRecord)) == 3
    assert receiver.machine.state.log.newest(5) == tuple(item.message_id for item in messages)


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


def test_a_second_segment_for_an_index_is_refused_and_not_acknowledged() -> None:
    receiver = bob()
    first = cut(PAYLOAD)[0]
    receiver.receive(content_message(first))
    receiver.receive(content_message(replace(first, payload=b"!" * 64)))
    assert receiver.dropped() == {"conflicting_segment": 1}
    assert receiver.status().owed_acknowledgements == 1
    assert receiver.status().known_messages == 1


def test_a_hash_that_does_not_match_ends_in_a_lost_event_that_says_why() -> None:
    receiver = bob()
    segments = cut(PAYLOAD)
    bad = content_message(replace(segments[0], payload=b"!" * 64))
    receiver.receive(bad, content_message(segments[1]), content_message(segments[2]))
    assert receiver.received == []
    assert receiver.dropped() == {"hash_mismatch": 1}
    assert receiver.lost == [(bad.message_id, "hash_mismatch")]
    assert receiver.status().incomplete_payloads == 0
    assert receiver.rows_of(PendingRecord) == []
    assert len(receiver.rows_of(LostRecord)) == 3


def test_an_incomplete_payload_without_progress_ends_in_a_lost_event_that_says_why() -> None:
    """WIRE: a dropped set whose segments were acknowledged raises a lost event."""
    receiver = bob(segmentation=SegmentationConfig(incomplete_timeout_ms=60_000))
    messages = messages_of(PAYLOAD, lamport=NOW_MS)
    receiver.receive(messages[1])
    receiver.advance(50 * SECOND)
    receiver.receive(messages[2])
    receiver.advance(60 * SECOND - 1)
    assert receiver.status().incomplete_payloads == 1
    receiver.advance(1)
    assert receiver.status().incomplete_payloads == 0
    assert (messages[1].message_id, "incomplete_timeout") in receiver.lost
    assert receiver.counted("incomplete_dropped") == 1
    receiver.receive(messages[0])
    assert receiver.received == []


def test_parity_alone_is_dropped_without_a_lost_event() -> None:
    receiver = bob(segmentation=SegmentationConfig(incomplete_timeout_ms=60_000))
    receiver.receive(*messages_of(PAYLOAD, parity_count=2)[3:])
    assert receiver.status().incomplete_payloads == 1
    receiver.advance(60 * SECOND)
    assert receiver.status().incomplete_payloads == 0
    assert receiver.lost == []


def test_an_incomplete_payload_is_kept_for_three_epochs() -> None:
    """WIRE: time without progress at least 1 h and 3 epochs."""
    receiver = bob(budget=limited(100, epoch_period_sec=3600))
    messages = messages_of(PAYLOAD)
    receiver.receive(*messages[:2])
    for _ in range(179):
        receiver.advance(60 * SECOND)
        receiver.published()
    receiver.receive(messages[2])
    assert receiver.received == [PAYLOAD]


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
    assert 1 << 16 <= receiver.machine.incoming.reassembler.octets <= 1 << 17
    assert receiver.status().known_messages >= 2


def test_a_refused_segment_can_come_again_when_there_is_room() -> None:
    receiver = bob(segmentation=SegmentationConfig(max_incomplete_payloads=1))
    first = messages_of(PAYLOAD)
    second = messages_of(PAYLOAD, wrap_time_ns=NOW + 1, lamport=NOW_MS + 5)
    receiver.receive(first[0], *second)
    assert receiver.dropped() == {"incomplete_payloads_full": 3}
    receiver.receive(*first[1:], *second)
    assert receiver.received == [PAYLOAD, PAYLOAD]


def test_256_segments_are_accepted() -> None:
    """WIRE: we send at most 255 segments and accept 256."""
    payload = bytes(number % 251 for number in range(256 * 64))
    receiver = bob()
    receiver.receive(*messages_of(payload))
    assert receiver.received == [payload]


# --- Parity --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["reedsolo", "leopard"])
@pytest.mark.parametrize("kept", list(combinations(range(5), 3)))
def test_any_k_segments_rebuild_and_are_acknowledged_under_the_senders_ids(
    code: str, kept: tuple[int, ...]
) -> None:
    """WIRE: the ids of its missing data segments are recomputed exactly."""
    receiver = settled()
    messages = messages_of(PAYLOAD, parity_count=2, code=code, lamport=NOW_MS + 20_000)
    receiver.receive(*(messages[place] for place in kept))
    assert receiver.received == [PAYLOAD]
    data = [message.message_id for message in messages[:3]]
    assert receiver.of(MessageReceivedEvent)[0].message_id == data[0]
    known = receiver.machine.state.log.known
    assert [known[item].lamport for item in data] == [NOW_MS + 20_000 + place for place in range(3)]
    receiver.advance(3 * SECOND)
    (sync,) = receiver.syncs
    named = {item.message_id for item in sync.message.causal_history}
    assert set(data) <= named
    assert receiver.status().owed_acknowledgements == 0
    assert receiver.rows_of(PendingRecord) == []


@pytest.mark.parametrize("segmentation", [PARITY, replace(PARITY, parity_code="leopard")])
def test_what_parity_repaired_is_never_retransmitted(segmentation: SegmentationConfig) -> None:
    sender = Participant(ALICE, segmentation=segmentation, sds=NO_FILTER)
    receiver = bob()
    request_id = sender.send(b"x" * 250)
    sender.published()
    deliver([receiver], [sender.transmissions[place] for place in (0, 3, 4, 5)])
    assert receiver.received == [b"x" * 250]
    receiver.advance(3 * SECOND)
    deliver([sender], receiver.transmissions)
    assert sender.request(request_id).state is RequestState.DELIVERED
    sender.advance(20 * SECOND)
    assert len(sender.sent_since(0)) == 6


def test_rebuilt_segments_enter_the_filter() -> None:
    receiver = bob(sds=SdsConfig(bloom_capacity=100))
    messages = messages_of(PAYLOAD, parity_count=1)
    receiver.receive(messages[0], messages[2], messages[3])
    bloom = receiver.machine.state.log.bloom
    assert bloom is not None
    assert all(message.message_id in bloom for message in messages[:3])


def test_a_rebuilt_segment_that_still_comes_is_a_duplicate() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD, parity_count=1)
    receiver.receive(messages[0], messages[2], messages[3], messages[1])
    assert receiver.received == [PAYLOAD]
    assert receiver.counted("duplicates") == 1
    assert receiver.counted("parity_recoveries") == 1
    assert receiver.counted("segments_rebuilt") == 1


def test_late_parity_is_counted_and_forgotten() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD, parity_count=1)
    receiver.receive(*messages, messages[3])
    assert receiver.received == [PAYLOAD]
    assert receiver.counted("late_segments") == 1
    assert receiver.counted("duplicates") == 1
    assert receiver.status().incomplete_payloads == 0


def test_a_rebuilt_first_segment_keeps_its_dependencies() -> None:
    """WIRE: parity carries the history of the first segment, so that a rebuilt one keeps it."""
    receiver = settled()
    before = single("before")
    messages = messages_of(
        PAYLOAD, parity_count=1, lamport=NOW_MS + 30_000, history=[entry("before")]
    )
    receiver.receive(messages[3], messages[2], messages[1])
    assert receiver.received == []
    assert receiver.status().parked_messages == 1
    receiver.receive(before)
    assert receiver.received == [b"before", PAYLOAD]


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


def test_what_waits_for_a_rebuilt_segment_is_set_free() -> None:
    receiver = settled()
    messages = messages_of(PAYLOAD, parity_count=1, lamport=NOW_MS + 20_000)
    after = single("after", messages[1].message_id, lamport=NOW_MS + 30_000)
    receiver.receive(after, messages[0], messages[2])
    assert receiver.received == []
    receiver.receive(messages[3])
    assert receiver.received == [PAYLOAD, b"after"]


def test_parity_before_all_data_helps_as_well() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD, parity_count=2)
    receiver.receive(messages[4], messages[3])
    assert receiver.received == []
    receiver.receive(messages[1])
    assert receiver.received == [PAYLOAD]


def test_nothing_is_inferred_for_senders_without_wrap_time() -> None:
    """WIRE: otherwise, and from senders without wrap time, nothing is inferred."""
    receiver = settled()
    messages = [
        replace(message, causal_history=())
        for message in messages_of(PAYLOAD, parity_count=1, wrap_time_ns=0)
    ]
    receiver.receive(messages[1], messages[2], messages[3])
    assert receiver.received == [PAYLOAD]
    assert receiver.of(MessageReceivedEvent)[0].message_id == messages[1].message_id
    assert messages[0].message_id not in receiver.machine.state.log
    assert receiver.counted("segments_rebuilt") == 0


def test_a_segment_that_was_rebuilt_without_its_id_is_acknowledged_when_it_comes() -> None:
    receiver = settled()
    messages = messages_of(PAYLOAD, parity_count=1, wrap_time_ns=0, lamport=NOW_MS + 20_000)
    receiver.receive(messages[1], messages[2], messages[3])
    # The second segment names the first, and nothing tells that it is of the same payload.
    assert receiver.received == []
    receiver.receive(single("after", messages[0].message_id, lamport=NOW_MS + 30_000))
    receiver.receive(messages[0])
    assert receiver.received == [PAYLOAD, b"after"]
    assert receiver.counted("late_segments") == 1
    assert messages[0].message_id in list(receiver.machine.state.debt)


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


def test_the_memory_of_completed_payloads_is_bounded() -> None:
    receiver = bob(segmentation=SegmentationConfig(max_completed_payloads=2))
    for number in range(4):
        receiver.receive(*messages_of(PAYLOAD, wrap_time_ns=NOW + number, lamport=NOW_MS + number))
    assert len(receiver.rows_of(CompletedRecord)) == 2
    assert len(receiver.machine.incoming.reassembler.completed) == 2


def test_a_rebuilt_payload_whose_ids_are_known_is_not_delivered() -> None:
    """WIRE: a rebuilt payload whose ids are already known is not delivered."""
    receiver = bob(segmentation=SegmentationConfig(max_completed_payloads=1))
    messages = messages_of(PAYLOAD, parity_count=2)
    receiver.receive(*messages[:3])
    receiver.receive(*messages_of(PAYLOAD, wrap_time_ns=NOW + 1, lamport=NOW_MS + 9))
    log = receiver.machine.state.log
    log.withdraw(messages[0].message_id, ())  # forgotten, as eviction does
    receiver.receive(messages[0], messages[3], messages[4])
    assert receiver.received == [PAYLOAD, PAYLOAD]
    assert receiver.status().incomplete_payloads == 0


def test_nobody_waits_for_a_rebuilt_payload_that_is_not_delivered() -> None:
    """Somebody used the id of the lost segment for something else before."""
    receiver = settled()
    messages = messages_of(PAYLOAD, parity_count=1, lamport=NOW_MS + 20_000)
    receiver.receive(content_message(b"burnt", message_id=messages[0].message_id))
    receiver.receive(single("after", messages[1].message_id, lamport=NOW_MS + 30_000))
    receiver.receive(*messages[1:])
    assert receiver.status().incomplete_payloads == 0
    assert b"after" in receiver.received


def test_a_received_segment_under_a_wrong_id_stops_all_inference() -> None:
    """WIRE: only when re-encoding and hashing every received one gives its own id."""
    receiver = settled()
    segments = cut(PAYLOAD, parity_count=1)
    # The same segment with its fields in another order decodes alike and hashes otherwise.
    odd = b"".join(reversed(fields_of(segments[1].encode())))
    odd_message = content_message(odd, message_id=salted(ALICE, NOW, odd), lamport=NOW_MS + 20_001)
    receiver.receive(
        odd_message,
        content_message(segments[2], lamport=NOW_MS + 20_002),
        ephemeral_message(segments[3]),
    )
    assert receiver.received == [PAYLOAD]
    assert receiver.counted("segments_rebuilt") == 0


def fields_of(data: bytes) -> list[bytes]:
    """Return the encoded fields of a protobuf message of varints and octets."""
    fields, start = [], 0
    while start < len(data):
        position = start + 1
        value, shift = 0, 0
        while True:
            octet = data[position]
            value |= (octet & 0x7F) << shift
            position, shift = position + 1, shift + 7
            if octet < 0x80:
                break
        if data[start] & 7 == 2:
            position += value
        fields.append(data[start:position])
        start = position
    return fields


@pytest.mark.parametrize(
    "changes",
    [{"payload": b"!" * 64}, {"payload": bytes(63)}],
    ids=["corrupt", "another size"],
)
def test_bad_parity_ends_in_a_lost_event_not_in_a_wrong_payload(changes: dict[str, Any]) -> None:
    receiver = bob()
    segments = cut(PAYLOAD, parity_count=1, with_length=False)
    receiver.receive(
        content_message(segments[0]),
        content_message(segments[1]),
        ephemeral_message(replace(segments[3], **changes)),
    )
    assert receiver.received == []
    assert [reason for _, reason in receiver.lost] == ["hash_mismatch"]


def test_the_parity_of_one_segment_is_no_second_message() -> None:
    """A foreign sender may add parity to a single segment: it is the same bytes once more."""
    receiver = bob()
    data, parity = cut(b"x" * 64, parity_count=1)
    assert data.payload == parity.payload
    receiver.receive(content_message(data), ephemeral_message(parity))
    assert receiver.received == [b"x" * 64]


# --- Ephemeral messages --------------------------------------------------------------------------


def test_an_ephemeral_message_is_delivered_at_once_and_only_once() -> None:
    """WIRE: never logged, parked or acknowledged; delivered at once."""
    receiver = settled()
    message = ephemeral_message(cut(b"now")[0], history=entries("unknown"))
    known = receiver.status().known_messages
    receiver.receive(message, message)
    (event,) = receiver.of(MessageReceivedEvent)
    assert (event.message, event.ephemeral, event.late) == (b"now", True, False)
    assert event.message_id == message.message_id
    status = receiver.status()
    assert (status.known_messages, status.owed_acknowledgements) == (known, 0)
    assert (status.missing_messages, status.participants) == (0, 1)
    assert receiver.counted("duplicates") == 1


def test_an_unsegmented_ephemeral_message_is_delivered_whole() -> None:
    receiver = bob()
    receiver.receive(ephemeral_message(b"now"))
    assert receiver.received == [b"now"]


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("reverse", [False, True])
def test_ephemeral_segments_make_a_payload(count: int, *, reverse: bool) -> None:
    payload = bytes(number % 256 for number in range(count * 64))
    messages = [ephemeral_message(segment) for segment in cut(payload)]
    receiver = bob()
    receiver.receive(*(messages[::-1] if reverse else messages))
    (event,) = receiver.of(MessageReceivedEvent)
    assert (event.message, event.ephemeral) == (payload, True)
    assert event.message_id == messages[0].message_id
    assert receiver.status().known_messages == 0
    assert receiver.status().owed_acknowledgements == 0
    assert receiver.rows_of(PendingRecord) == []


@pytest.mark.parametrize("kept", list(combinations(range(4), 3)))
def test_parity_rebuilds_ephemeral_payloads(kept: tuple[int, ...]) -> None:
    messages = [ephemeral_message(segment) for segment in cut(PAYLOAD, parity_count=1)]
    receiver = bob()
    receiver.receive(*(messages[place] for place in kept))
    (event,) = receiver.of(MessageReceivedEvent)
    assert (event.message, event.ephemeral) == (PAYLOAD, True)


def test_an_incomplete_ephemeral_payload_is_dropped_without_a_lost_event() -> None:
    """WIRE: a dropped set whose segments were acknowledged raises a lost event; these never are."""
    receiver = bob(segmentation=SegmentationConfig(incomplete_timeout_ms=60_000))
    messages = [ephemeral_message(segment) for segment in cut(PAYLOAD)]
    receiver.receive(messages[0], messages[1])
    receiver.advance(60 * SECOND)
    assert receiver.status().incomplete_payloads == 0
    assert receiver.lost == []


@pytest.mark.parametrize("ephemeral_first", [True, False])
def test_the_same_segment_as_content_and_as_ephemeral_never_raises(
    *, ephemeral_first: bool
) -> None:
    """Whoever sees a segment can send it once more without its Lamport time, under its true id."""
    receiver = bob()
    segments = cut(PAYLOAD)
    content = content_message(segments[1])
    copies = [ephemeral_message(segments[0]), ephemeral_message(segments[2])]
    receiver.receive(*([*copies, content] if ephemeral_first else [content, *copies]))
    receiver.receive(*messages_of(PAYLOAD))
    assert receiver.received.count(PAYLOAD) == 1


# --- Missing dependencies ------------------------------------------------------------------------


def test_what_a_message_names_and_we_lack_is_fetched_and_comes_first() -> None:
    receiver = settled()
    before = single("before")
    hint = hash_of(before.encode())
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000, hint=hint))
    assert [fetch.hashes for fetch in receiver.fetches] == [(hint,)]
    assert receiver.counted("store_queries") == 1
    assert receiver.status().parked_messages == 1
    receiver.fetched(before)
    assert receiver.received == [b"before", b"after"]
    assert receiver.status().missing_messages == 0
    assert [event.late for event in receiver.of(MessageReceivedEvent)] == [False, False]
    receiver.advance(60 * SECOND)
    assert len(receiver.fetches) == 1


def test_the_store_is_asked_again_at_3_and_10_seconds() -> None:
    receiver = settled()
    start = receiver.now
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000, hint=b"h" * 32))
    asked = [0]
    receiver.fetched()
    for _ in range(600):
        count = len(receiver.fetches)
        receiver.advance(100 * MS)
        if len(receiver.fetches) > count:
            asked.append((receiver.now - start) // MS)
            receiver.fetched()
    assert asked == [0, 3_000, 10_000]


def test_a_store_that_cannot_be_asked_is_asked_again() -> None:
    receiver = settled()
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000, hint=b"h" * 32))
    for _ in range(5):
        receiver.carry_out(receiver.machine.fetch_failed(receiver.now))
        receiver.advance(3 * SECOND)
    assert len(receiver.fetches) == 6


def test_a_useless_answer_is_not_asked_for_again() -> None:
    receiver = settled()
    other = single("other")
    hint = hash_of(other.encode())
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000, hint=hint))
    receiver.fetched(other)
    assert receiver.received == [b"other"]
    receiver.advance(30 * SECOND)
    assert len(receiver.fetches) == 1


def test_garbage_from_the_store_is_counted() -> None:
    receiver = settled()
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000, hint=b"h" * 32))
    receiver.carry_out(receiver.machine.fetched([(b"h" * 32, b"\xff\xff")], receiver.now))
    assert receiver.dropped() == {"malformed": 1}


def test_what_the_store_has_and_we_cannot_decrypt_is_useless() -> None:
    receiver = settled()
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000, hint=b"h" * 32))
    receiver.carry_out(receiver.machine.fetched([(b"h" * 32, None)], receiver.now))
    assert receiver.dropped() == {"decrypt_failed": 1}
    receiver.advance(30 * SECOND)
    assert len(receiver.fetches) == 1


def test_what_a_sync_names_and_we_lack_is_fetched() -> None:
    """WIRE: entries of a received sync that we lack are missing dependencies."""
    receiver = settled()
    last = single("last")
    hint = hash_of(last.encode())
    receiver.receive(sync_message(entry("last", hint=hint), lamport=NOW_MS + 30_000))
    assert [fetch.hashes for fetch in receiver.fetches] == [(hint,)]
    receiver.fetched(last)
    assert receiver.received == [b"last"]


def test_the_hint_of_what_we_received_is_that_of_the_first_stored_copy() -> None:
    """WIRE: others': that of the first non-ephemeral copy received."""
    receiver = bob()
    receiver.receive(HELLO)
    receiver.receive(HELLO, hint=b"1" * 32)
    receiver.receive(HELLO, hint=b"2" * 32)
    receiver.send(b"reply")
    (named,) = receiver.transmissions[-1].message.causal_history
    assert named == HistoryEntry(HELLO.message_id, b"1" * 32, ALICE)


def test_missing_ids_are_bounded_in_all_and_by_participant() -> None:
    receiver = settled(sds=replace(NO_FILTER, max_missing_ids=5, max_missing_ids_per_sender=3))
    for sender_id in (ALICE, CAROL):
        named = entries(*(f"{sender_id} {number}" for number in range(10)))
        receiver.receive(sync_message(*named, sender_id=sender_id, lamport=NOW_MS + 20_000))
    assert receiver.status().missing_messages == 5
    assert receiver.dropped() == {"missing_ids_full": 15}


# --- Waiting and giving up -----------------------------------------------------------------------


def test_a_payload_waits_for_the_dependency_timeout_from_its_own_completion() -> None:
    """WIRE: then it is delivered whatever is still missing, with a lost event naming it."""
    receiver = settled()
    receiver.receive(single("after", "before", "also", lamport=NOW_MS + 30_000))
    receiver.advance(TIMEOUT - 1)
    assert receiver.received == []
    receiver.advance(1)
    assert receiver.received == [b"after"]
    assert receiver.lost == [("before", "dependency_timeout"), ("also", "dependency_timeout")]
    assert {event.sender_id for event in receiver.of(MessageLostEvent)} == {ALICE}
    kinds = [type(event) for event in receiver.events]
    assert kinds == [MessageLostEvent, MessageLostEvent, MessageReceivedEvent]
    assert receiver.status().missing_messages == 0


def test_a_chain_is_released_whole_when_its_beginning_is_lost() -> None:
    receiver = settled()
    receiver.receive(single("b", "a", lamport=NOW_MS + 30_000))
    receiver.advance(100 * SECOND)
    receiver.receive(single("c", "b", lamport=NOW_MS + 31_000))
    receiver.advance(200 * SECOND)
    assert receiver.received == [b"b", b"c"]
    assert receiver.lost == [("a", "dependency_timeout")]


def test_what_was_lost_and_still_comes_is_delivered_late() -> None:
    """WIRE: what arrives later is delivered then, marked late."""
    receiver = settled()
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000))
    receiver.advance(TIMEOUT)
    receiver.receive(single("before"))
    assert [(event.message, event.late) for event in receiver.of(MessageReceivedEvent)] == [
        (b"after", False),
        (b"before", True),
    ]


def test_a_payload_that_names_what_was_lost_does_not_wait() -> None:
    receiver = settled()
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000))
    receiver.advance(TIMEOUT)
    receiver.receive(single("later", "before", lamport=NOW_MS + 40_000))
    assert receiver.received == [b"after", b"later"]
    assert len(receiver.lost) == 1


def test_what_only_a_sync_named_is_lost_after_the_dependency_timeout() -> None:
    receiver = settled()
    receiver.receive(sync_message(entry("gone", sender_id=CAROL), lamport=NOW_MS + 20_000))
    receiver.advance(TIMEOUT)
    assert receiver.lost == [("gone", "dependency_timeout")]
    assert receiver.of(MessageLostEvent)[0].sender_id == CAROL
    assert receiver.status().missing_messages == 0


@pytest.mark.parametrize("sender_id", ["y" * 256, "\0", "", "x" * 100_000])
def test_a_sender_that_may_be_none_never_gets_into_an_event(sender_id: str) -> None:
    """WIRE: sender ids: 1-255 bytes of UTF-8. A stranger's text would stay in the durable log."""
    receiver = settled()
    receiver.receive(sync_message(entry("gone", sender_id=sender_id), lamport=NOW_MS + 20_000))
    receiver.advance(TIMEOUT)
    assert all(
        event.sender_id is None or is_identifier(event.sender_id)
        for event in receiver.of(MessageLostEvent)
    )


def test_what_a_parked_payload_waits_for_ends_with_it_not_before() -> None:
    receiver = settled()
    receiver.receive(sync_message(*entries("before"), lamport=NOW_MS + 20_000))
    receiver.advance(200 * SECOND)
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000))
    receiver.advance(200 * SECOND)
    assert receiver.lost == []
    assert receiver.status().missing_messages == 1
    receiver.advance(100 * SECOND)
    assert receiver.lost == [("before", "dependency_timeout")]
    assert receiver.received == [b"after"]


def test_a_full_parking_lot_releases_its_oldest() -> None:
    """WIRE: a full parking lot releases its oldest."""
    receiver = settled(sds=replace(NO_FILTER, max_parked_messages=2))
    for number in range(4):
        receiver.receive(single(f"m{number}", f"needs {number}", lamport=NOW_MS + 30_000 + number))
    assert receiver.received == [b"m0", b"m1"]
    assert receiver.lost == [("needs 0", "parking_full"), ("needs 1", "parking_full")]
    assert receiver.status().parked_messages == 2
    assert receiver.counted("parked") == 4


def test_the_parking_lot_is_bounded_in_bytes_too() -> None:
    receiver = settled(sds=replace(NO_FILTER, max_parked_bytes=1 << 16))
    for number in range(3):
        message = single(f"m{number}", f"needs {number}", lamport=NOW_MS + 30_000 + number)
        receiver.receive(replace(message, content=b"x" * 30_000))
    assert receiver.lost == [("needs 0", "parking_full")]
    assert receiver.status().parked_messages == 2


def test_parked_payloads_of_a_full_lot_go_in_causal_order() -> None:
    receiver = settled(sds=replace(NO_FILTER, max_parked_messages=2))
    receiver.receive(single("c", "b", lamport=NOW_MS + 33_000))
    receiver.receive(single("b", "a", lamport=NOW_MS + 32_000))
    receiver.receive(single("d", "c", lamport=NOW_MS + 34_000))
    assert receiver.received == [b"b", b"c", b"d"]
    assert receiver.lost == [("a", "parking_full")]


def test_a_cycle_of_foreign_senders_is_delivered() -> None:
    receiver = settled()
    receiver.receive(single("a", "b", lamport=NOW_MS + 30_000))
    receiver.receive(single("b", "a", sender_id=CAROL, lamport=NOW_MS + 30_001))
    assert receiver.received == [b"a", b"b"]


def test_ids_of_syncs_and_ephemerals_are_met() -> None:
    """WIRE: ids of syncs and ephemerals seen or sent count as met: foreign implementations name them."""
    receiver = settled()
    sync = sync_message(lamport=NOW_MS + 20_000)
    ephemeral = ephemeral_message(cut(b"now")[0])
    receiver.receive(
        single("after", sync.message_id, ephemeral.message_id, lamport=NOW_MS + 30_000)
    )
    assert receiver.received == []
    receiver.receive(sync, ephemeral)
    assert sorted(receiver.received) == [b"after", b"now"]
    assert receiver.lost == []


def test_an_unknown_dependency_of_an_old_message_is_neither_waited_nor_looked_for() -> None:
    """WIRE: dependencies of messages below the floor count as met."""
    receiver = settled()
    receiver.receive(single("old", "older", lamport=NOW_MS - 30_000, hint=b"h" * 32))
    assert receiver.received == [b"old"]
    assert receiver.fetches == []
    assert receiver.status().missing_messages == 0


def test_what_eviction_forgets_raises_the_floor() -> None:
    """WIRE: floor raised to the Lamport time of what eviction forgets."""
    receiver = settled(sds=replace(NO_FILTER, max_known_ids=64))
    for number in range(70):
        receiver.receive(single(f"m{number}", lamport=NOW_MS + 20_000 + number))
    assert receiver.status().known_messages <= 64
    floor = receiver.machine.incoming.causal.floor
    assert floor > NOW_MS
    receiver.receive(single("old", "m0", lamport=floor - 1))
    assert b"old" in receiver.received
    receiver.receive(single("new", "unknown", lamport=floor))
    assert b"new" not in receiver.received


# --- A new channel -------------------------------------------------------------------------------


def test_in_its_first_moments_a_channel_waits_only_a_little() -> None:
    """WIRE: an unmet dependency that one store query does not give counts as before our time."""
    receiver = bob()
    message = single("first", "before our time", lamport=NOW_MS + 1, hint=b"h" * 32)
    receiver.receive(message)
    assert len(receiver.fetches) == 1
    receiver.fetched()
    assert receiver.received == []
    receiver.advance(GRACE - 1)
    assert receiver.received == []
    receiver.advance(1)
    assert receiver.received == [b"first"]
    receiver.advance(2 * TIMEOUT)
    assert receiver.lost == []
    assert receiver.status().missing_messages == 0


@pytest.mark.parametrize("behind_ms", [1, 3_000, 20_000])
def test_a_new_channel_keeps_the_order_of_a_sender_whose_clock_is_behind(behind_ms: int) -> None:
    receiver = bob()
    receiver.advance(20 * SECOND)
    lamport = receiver.now // MS - behind_ms
    hello = single("hello", lamport=lamport)
    receiver.receive(hello)
    assert receiver.machine.incoming.causal.floor == NOW_MS - behind_ms
    first = single("first", "hello", lamport=lamport + 1)
    receiver.receive(single("second", "first", lamport=lamport + 2))
    assert receiver.received == [b"hello"]
    receiver.receive(first)
    assert receiver.received == [b"hello", b"first", b"second"]


@pytest.mark.parametrize("is_fetched", [False, True])
def test_what_says_nothing_about_a_clock_leaves_the_floor(*, is_fetched: bool) -> None:
    """A message of long ago, or one from a store, may be from before our time."""
    receiver = settled()
    floor = receiver.machine.incoming.causal.floor
    if is_fetched:
        receiver.receive(single("after", "old", hint=b"h" * 32))
        receiver.fetched(single("old", lamport=receiver.now // MS - 15_000))
        assert b"old" in receiver.received
    else:
        receiver.receive(single("old", lamport=receiver.now // MS - 20_001))
    assert receiver.machine.incoming.causal.floor == floor


def test_what_comes_within_the_first_moments_keeps_its_order() -> None:
    receiver = bob()
    receiver.receive(single("second", "first", lamport=NOW_MS + 2))
    receiver.advance(5 * SECOND)
    receiver.receive(single("first", lamport=NOW_MS + 1))
    assert receiver.received == [b"first", b"second"]
    assert not receiver.of(MessageReceivedEvent)[0].late


def test_what_comes_after_the_first_moments_was_late() -> None:
    receiver = bob()
    receiver.receive(single("second", "first", lamport=NOW_MS + 2))
    receiver.advance(GRACE)
    receiver.receive(single("first", lamport=NOW_MS + 1))
    assert [event.late for event in receiver.of(MessageReceivedEvent)] == [False, True]


def test_what_follows_a_message_of_our_time_is_of_our_time() -> None:
    receiver = bob()
    receiver.receive(single("a", lamport=NOW_MS + 1))
    receiver.receive(single("c", "a", "b", lamport=NOW_MS + 3))
    receiver.advance(2 * GRACE)
    assert receiver.received == [b"a"]
    receiver.advance(TIMEOUT)
    assert receiver.received == [b"a", b"c"]
    assert receiver.lost == [("b", "dependency_timeout")]


def test_each_early_gap_has_its_own_first_moments() -> None:
    receiver = bob()
    receiver.receive(single("b", "a", lamport=NOW_MS + 2))
    receiver.advance(6 * SECOND)
    receiver.receive(single("d", "c", lamport=NOW_MS + 4))
    receiver.advance(4 * SECOND)
    assert receiver.received == [b"b"]
    receiver.advance(6 * SECOND)
    assert receiver.received == [b"b", b"d"]
    assert receiver.counted("before_our_time") == 2


@pytest.mark.parametrize("history", ["oldest first", "newest first"])
def test_a_late_joiner_reports_nothing_of_before_its_time_as_lost(history: str) -> None:
    """WIRE: no repair request, no lost event. Syncs name the owed first, then the newest known."""
    receiver = bob()
    request_id = receiver.send(b"hello, I am new")
    receiver.published()
    ours = receiver.request(request_id).segments[0].message_id
    old = ["old 1", "old 2", "old 3"]
    named = [*old, ours] if history == "oldest first" else [ours, *reversed(old)]
    receiver.receive(sync_message(*entries(*named), lamport=NOW_MS + 100))
    receiver.advance(2 * TIMEOUT)
    assert receiver.lost == []


def test_a_late_joiner_of_a_quiet_group_reports_nothing_as_lost() -> None:
    """The same with a machine on the other side."""
    sender = Participant(ALICE, sds=NO_FILTER, seed=1)
    for number in range(3):
        sender.send(b"old %d" % number)
        sender.published()
    sender.advance(SECOND)
    receiver = Participant(BOB, sds=NO_FILTER, seed=2, now=sender.now)
    receiver.advance(SECOND)
    receiver.send(b"hello, I am new")
    receiver.published()
    sender.now = receiver.now
    deliver([sender], receiver.transmissions)
    sender.advance(3 * SECOND)
    receiver.advance(3 * SECOND)
    deliver([receiver], sender.syncs)
    receiver.advance(2 * TIMEOUT)
    assert receiver.lost == []


# --- Evidence ------------------------------------------------------------------------------------


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
    assert len(receiver.machine.incoming.causal.passing.ids) <= 4096
    assert len(receiver.machine.incoming.payloads) <= 16
    receiver.receive(
        *messages_of(PAYLOAD, sender_id=CAROL, wrap_time_ns=NOW + 5, lamport=NOW_MS + 60_000)
    )
    assert PAYLOAD in receiver.received


@pytest.mark.parametrize("reason", ["hash_mismatch", "incomplete_timeout"])
def test_payloads_that_never_become_whole_push_nothing_out(reason: str) -> None:
    """Every bound is enforced: known ids. What was dropped must not crowd out what was delivered."""
    receiver = settled(
        sds=replace(NO_FILTER, max_known_ids=64),
        segmentation=SegmentationConfig(incomplete_timeout_ms=1_000),
    )
    receiver.receive(single("honest", lamport=NOW_MS + 60_000))
    for number in range(200):
        messages = messages_of(PAYLOAD, wrap_time_ns=number + 1, lamport=NOW_MS + 20_000)
        if reason == "hash_mismatch":
            messages = [
                content_message(replace(segment, entire_message_hash=b"h" * 32))
                for segment in cut(PAYLOAD, wrap_time_ns=number + 1)
            ]
        receiver.receive(*messages[: 3 if reason == "hash_mismatch" else 2])
        receiver.advance(2 * SECOND)
        receiver.published()
    assert receiver.status().incomplete_payloads == 0
    assert receiver.status().known_messages <= 64 + 3
    receiver.receive(single("honest", lamport=NOW_MS + 60_000))
    assert receiver.received.count(b"honest") == 1


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
    assert len(receiver.machine.incoming.causal.passing.ids) == 4096


def test_a_late_joiner_does_not_fetch_the_past_without_end() -> None:
    receiver = bob()
    history = [single(f"m{number}", lamport=NOW_MS - 90_000 + number) for number in range(100)]
    chained = [
        replace(
            message,
            causal_history=(
                entry(history[number - 1].message_id, hint=number.to_bytes(32, "big")),
            ),
        )
        for number, message in enumerate(history)
        if number
    ]
    receiver.receive(
        single("now", "m99", lamport=NOW_MS + 1, hint=b"h" * 32),
    )
    receiver.receive(chained[-1])
    assert receiver.received == [b"m99", b"now"]
    assert sum(len(fetch.hashes) for fetch in receiver.fetches) <= 1
    receiver.advance(DAY // 24)
    assert receiver.lost == []
