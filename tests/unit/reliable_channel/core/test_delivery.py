"""From a complete set to the received event: what is rebuilt, delivered, given up and not delivered twice."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import pytest

from reliable_channel.config import SegmentationConfig
from reliable_channel.core.assembly import MAX_ASSEMBLIES
from reliable_channel.core.payload import SEGMENT_OCTETS
from reliable_channel.core.requests import RequestState
from reliable_channel.core.sds.log import history_octets
from reliable_channel.core.wire import HistoryEntry, SdsMessage, SegmentMessage
from reliable_channel.events import (
    MessageLostEvent,
    MessageReceivedEvent,
    event_from_record,
    event_to_record,
)
from reliable_channel.records import (
    CompletedRecord,
    EventRecord,
    LostRecord,
    ParityRecord,
    PendingRecord,
)
from reliable_channel.types import SECOND
from tests.support.builders import (
    ALICE,
    CAROL,
    DAY,
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
    deliver,
    entries,
    entry,
    ephemeral_message,
    limited,
    messages_of,
    salted,
    settled,
    single,
)

# --- Whole and broken payloads -------------------------------------------------------------------


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


def test_a_hash_that_does_not_match_ends_nothing_before_its_time() -> None:
    receiver = bob(segmentation=SegmentationConfig(incomplete_timeout_ms=60_000))
    segments = cut(PAYLOAD)
    bad = content_message(replace(segments[0], payload=b"!" * 64))
    receiver.receive(bad, content_message(segments[1]), content_message(segments[2]))
    assert receiver.received == []
    assert receiver.counted("assemblies_failed") == 1
    assert receiver.lost == []
    assert receiver.status().owed_acknowledgements == 3
    receiver.advance(60 * SECOND)
    assert receiver.lost == [(bad.message_id, "incomplete_timeout")]
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


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("kept", "explanation"),
    [
        ((0,), "2 of 3 segments missing, no progress for 3600 s"),
        ((2, 1), "1 of 3 segments missing, no progress for 3600 s"),
        ((1, 3), "2 of 3 segments missing and 1 of parity came, no progress for 3600 s"),
        (
            (-1, 1, 2),
            "3 of 3 segments came, but not all of them are its own: the hash differs, "
            "no progress for 3600 s",
        ),
    ],
)
def test_a_lost_event_says_what_was_missing(
    kept: tuple[int, ...], explanation: str, *, restart: bool
) -> None:
    receiver = settled()
    messages = messages_of(PAYLOAD, parity_count=1, lamport=NOW_MS + 20_000)
    first = replace(cut(PAYLOAD, parity_count=1)[0], payload=b"!" * 64)
    messages.append(content_message(first, lamport=NOW_MS + 20_000))
    receiver.receive(*(replace(messages[place], causal_history=()) for place in kept))
    if restart:
        receiver = receiver.reopened()
    receiver.advance(3_600 * SECOND)
    (lost,) = receiver.of(MessageLostEvent)
    assert (lost.reason, lost.explanation) == ("incomplete_timeout", explanation)
    assert event_from_record("room", event_to_record(lost)) == lost


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


def test_an_incomplete_ephemeral_payload_is_dropped_without_a_lost_event() -> None:
    """WIRE: a dropped set whose segments were acknowledged raises a lost event; these never are."""
    receiver = bob(segmentation=SegmentationConfig(incomplete_timeout_ms=60_000))
    messages = [ephemeral_message(segment) for segment in cut(PAYLOAD)]
    receiver.receive(messages[0], messages[1])
    receiver.advance(60 * SECOND)
    assert receiver.status().incomplete_payloads == 0
    assert receiver.lost == []


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


# --- Parity --------------------------------------------------------------------------------------


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


def test_a_rebuilt_segment_that_still_comes_is_a_duplicate() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD, parity_count=1)
    receiver.receive(messages[0], messages[2], messages[3], messages[1])
    assert receiver.received == [PAYLOAD]
    assert receiver.counted("duplicates") == 1
    assert receiver.counted("parity_recoveries") == 1
    assert receiver.counted("segments_rebuilt") == 1


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


def test_what_claimed_to_be_ephemeral_says_nothing_about_the_time_of_rebuilt_segments() -> None:
    """A copy without Lamport time is of another set, whatever comes first."""
    receiver = settled()
    messages = messages_of(PAYLOAD, parity_count=2, lamport=NOW_MS + 20_000)
    copy = replace(messages[2], lamport_timestamp=None, causal_history=entries("x", "y"))
    receiver.receive(copy, messages[0])
    octets = {item.ephemeral: item.octets for item in receiver.machine.reassembler.sets.values()}
    assert octets == {True: 22 + SEGMENT_OCTETS, False: 64 + SEGMENT_OCTETS}
    receiver.receive(*messages[3:])
    assert receiver.received == [PAYLOAD]
    known = receiver.machine.state.log.known
    lamports = [known[message.message_id].lamport for message in messages[:3]]
    assert lamports == [NOW_MS + 20_000 + place for place in range(3)]


@pytest.mark.parametrize("missing", [None, 0, 1])
def test_only_where_the_first_segment_is_missing_does_a_payload_depend_on_what_parity_names(
    missing: int | None,
) -> None:
    """Anybody can send parity; it names what the first segment names, which says so itself when it is there."""
    receiver = settled()
    *data, parity = messages_of(PAYLOAD, parity_count=1, lamport=NOW_MS + 20_000)
    last = data.pop() if missing is None else None
    receiver.receive(*(item for place, item in enumerate(data) if place != missing))
    parity = replace(parity, causal_history=entries("made up"))
    if last is not None:
        parity = replace(
            parity, content=replace(cut(PAYLOAD, parity_count=1)[3], payload=b"!" * 64).encode()
        )
        parity = replace(parity, message_id=salted(ALICE, NOW, parity.content or b""))
    receiver.receive(parity)
    if last is not None:
        receiver.receive(last)
    assert receiver.received == ([] if missing == 0 else [PAYLOAD])
    assert receiver.status().parked_messages == (missing == 0)


@pytest.mark.parametrize("restart", [False, True])
def test_what_forged_parity_names_is_nobodys_word(*, restart: bool) -> None:
    """Only the parity with which the payload was put together says what its first segment depends on."""
    receiver = settled()
    messages = messages_of(
        PAYLOAD, parity_count=2, lamport=NOW_MS + 20_000, history=[entry("before")]
    )
    segments = cut(PAYLOAD, parity_count=2)
    forged = ephemeral_message(replace(segments[3], payload=b"!" * 64), history=entries("made up"))
    receiver.receive(messages[1], forged, messages[2])
    if restart:
        receiver = receiver.reopened()
    receiver.receive(messages[4], single("before", lamport=NOW_MS + 10_000))
    assert receiver.received[-2:] == [b"before", PAYLOAD]
    assert receiver.rows_of(PendingRecord) == receiver.rows_of(ParityRecord) == []


@pytest.mark.parametrize("parity_first", [True, False])
@pytest.mark.parametrize("content_first", [True, False])
def test_a_copy_that_claims_to_be_ephemeral_keeps_no_parity_away(
    *, content_first: bool, parity_first: bool
) -> None:
    """Nothing tells an ephemeral payload's parity from another's: it goes where content is."""
    receiver = settled()
    messages = messages_of(PAYLOAD, parity_count=1, lamport=NOW_MS + 20_000)
    copies = [ephemeral_message(segment) for segment in cut(PAYLOAD)]
    parity = messages.pop()
    pairs = [messages[2], copies[0]] if content_first else [copies[0], messages[2]]
    receiver.receive(*([parity, *pairs] if parity_first else [*pairs, parity]))
    assert receiver.status().incomplete_payloads == 2
    receiver.receive(messages[1])
    assert receiver.received == [PAYLOAD]
    assert receiver.status().incomplete_payloads == 1
    event = receiver.of(MessageReceivedEvent)[-1]
    assert not event.ephemeral


def test_more_segments_for_an_index_that_is_held_keep_no_set_alive() -> None:
    """WIRE: time without progress; who sends them would keep a dead set for ever."""
    receiver = settled()
    segments = cut(PAYLOAD, parity_count=1)
    first, _, _, parity = messages_of(PAYLOAD, parity_count=1, lamport=NOW_MS + 20_000)
    receiver.receive(first, parity)
    for mark in (b"!", b"?"):
        receiver.advance(DAY // 48)
        receiver.receive(
            content_message(replace(segments[0], payload=mark * 64), lamport=NOW_MS + 20_000),
            ephemeral_message(replace(segments[3], payload=mark * 64)),
        )
    assert [reason for _, reason in receiver.lost] == ["incomplete_timeout"]


def test_a_segment_that_goes_does_not_take_along_what_parity_names() -> None:
    """It named the same; the one that is rebuilt in its place keeps its dependencies all the same."""
    receiver = settled()
    proof = content_message(cut(b"proof")[0], lamport=NOW_MS + 20_000)
    claim, *rest, parity = cut(PAYLOAD, wrap_time_ns=0, parity_count=1)
    named = entries("before")
    receiver.receive(
        content_message(claim, message_id=proof.message_id, history=named),
        ephemeral_message(parity, history=named),
        proof,
        *(content_message(item, lamport=NOW_MS + 20_001) for item in rest),
    )
    assert receiver.received == [b"proof"]
    receiver.receive(single("before"))
    assert receiver.received == [b"proof", b"before", PAYLOAD]


def test_parity_before_all_data_helps_as_well() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD, parity_count=2)
    receiver.receive(messages[4], messages[3])
    assert receiver.received == []
    receiver.receive(messages[1])
    assert receiver.received == [PAYLOAD]


def test_late_segments_keep_the_bounds_of_what_may_wait() -> None:
    receiver = settled(sds=replace(NO_FILTER, max_parked_bytes=1 << 16))
    payload = bytes(64 * 200)
    *data, _ = messages_of(
        payload,
        parity_count=2,
        wrap_time_ns=0,
        salt_ns=NOW,
        lamport=NOW_MS + 20_000,
        history=[entry("before")],
    )
    receiver.receive(*data[:198], *messages_parity(payload))
    assert receiver.status().parked_messages == 1
    long = entries(*(f"{number:0200}" for number in range(400)))
    receiver.receive(replace(data[198], causal_history=long))
    assert receiver.status().parked_messages == 0
    assert receiver.lost[0][1] == "parking_full"


def messages_parity(payload: bytes) -> list[SdsMessage]:
    """Return the parity of a payload without wrap time, naming what its first segment names."""
    messages = messages_of(
        payload, parity_count=2, wrap_time_ns=0, salt_ns=NOW, history=[entry("before")]
    )
    return messages[-2:]


def test_parity_that_came_first_does_not_take_the_place_of_its_payload() -> None:
    small = SegmentationConfig(segment_size_bytes=64, max_incomplete_payloads_per_sender=1)
    receiver = settled(segmentation=small)
    messages = messages_of(PAYLOAD, parity_count=1, lamport=NOW_MS + 20_000)
    receiver.receive(messages[3], messages[0], messages[2])
    assert receiver.received == [PAYLOAD]
    assert receiver.dropped() == {}


def test_a_copy_that_claims_to_be_ephemeral_does_not_hide_what_parity_names() -> None:
    """The parity turns out to be content's, whose first segment is missing."""
    receiver = settled()
    messages = messages_of(
        PAYLOAD, parity_count=1, lamport=NOW_MS + 20_000, history=[entry("before")]
    )
    receiver.receive(ephemeral_message(cut(PAYLOAD, parity_count=1)[0]), messages[3], messages[1])
    assert "before" in receiver.machine.gaps.missing


def test_what_needless_parity_names_is_not_looked_for() -> None:
    receiver = settled()
    messages = messages_of(PAYLOAD, parity_count=1, lamport=NOW_MS + 20_000)
    forged = replace(cut(PAYLOAD, parity_count=1)[3], payload=b"!" * 64)
    receiver.receive(messages[0], ephemeral_message(forged, history=entries("made up")))
    receiver.receive(*messages[1:3])
    receiver.advance(TIMEOUT)
    assert receiver.received == [PAYLOAD]
    assert receiver.lost == []


@pytest.mark.parametrize(
    "changes",
    [{"payload": b"!" * 64}, {"payload": bytes(63)}],
    ids=["corrupt", "another size"],
)
@pytest.mark.parametrize("then", ["data", "parity"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_set_outlives_bad_parity(changes: dict[str, Any], then: str, *, restart: bool) -> None:
    receiver = bob()
    segments = cut(PAYLOAD, parity_count=1, with_length=False)
    receiver.receive(
        content_message(segments[0]),
        content_message(segments[1]),
        ephemeral_message(replace(segments[3], **changes)),
    )
    assert receiver.received == []
    assert receiver.lost == []
    if restart:
        receiver = receiver.reopened()
    if then == "data":
        receiver.receive(content_message(segments[2]))
    else:
        receiver.receive(ephemeral_message(segments[3]))
    assert receiver.received == [PAYLOAD]
    assert receiver.status().incomplete_payloads == 0
    assert receiver.rows_of(PendingRecord) == []


def chained(
    segments: list[SegmentMessage], *history: HistoryEntry, lamport: int = NOW_MS
) -> list[SdsMessage]:
    """Return content messages of segments, each naming the one before: as a sender, or a forger, makes them."""
    made: list[SdsMessage] = []
    for place, segment in enumerate(segments):
        made.append(content_message(segment, lamport=lamport + place, history=history))
        history = (entry(made[-1].message_id),)
    return made


def forged(index: int, mark: bytes = b"!", count: int = 3) -> SegmentMessage:
    """Return a segment of the payload with other bytes."""
    segment = cut(PAYLOAD, parity_count=count - 3)[index]
    return replace(segment, payload=mark * len(segment.payload))


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_forged_segment_keeps_none_of_the_true_ones_away(
    order: tuple[int, ...], index: int, *, restart: bool
) -> None:
    """What was acknowledged of it before stays acknowledged; what was forged is forgotten."""
    receiver = bob()
    true = messages_of(PAYLOAD)
    false = [content_message(forged(index, mark), history=entries("junk")) for mark in (b"!", b"?")]
    receiver.receive(false[0], true[order[0]], false[1], true[order[1]])
    if restart:
        receiver = receiver.reopened()
    receiver.receive(true[order[2]])
    assert receiver.received == [PAYLOAD]
    assert receiver.lost == []
    log = receiver.machine.state.log
    assert log.newest(9) == tuple(item.message_id for item in true)
    assert set(log.known) == set(log.newest(9))
    assert receiver.status().owed_acknowledgements == 3
    assert receiver.rows_of(PendingRecord) == []
    assert receiver.machine.acceptance.payloads == {}
    assert receiver.machine.causal.holder == {}
    assert receiver.machine.reassembler.octets == 0
    assert receiver.machine.reassembler.senders == {}


def test_a_forged_segment_in_the_place_of_a_lost_one_is_forgotten() -> None:
    """Parity fills the place; the id that was acknowledged meanwhile is nobody's."""
    receiver = bob()
    true = messages_of(PAYLOAD, parity_count=2)
    false = content_message(forged(1, count=5), history=entries("junk"))
    receiver.receive(false, true[0], true[2], true[3])
    assert receiver.received == [PAYLOAD]
    log = receiver.machine.state.log
    assert set(log.known) == {item.message_id for item in true[:3]}
    assert log.newest(9) == tuple(item.message_id for item in true[:3])
    assert receiver.rows_of(PendingRecord) == []
    assert receiver.machine.causal.holder == {}
    assert receiver.machine.reassembler.senders == {}


@pytest.mark.parametrize("parity", [0, 1])
def test_a_payload_that_waits_counts_its_bytes_and_histories_only(parity: int) -> None:
    receiver = settled()
    true = messages_of(
        PAYLOAD, parity_count=parity, lamport=NOW_MS + 20_000, history=entries("before")
    )
    false = content_message(forged(0, count=3 + parity), lamport=NOW_MS + 20_000)
    receiver.receive(false, *true[parity:])
    (payload,) = receiver.machine.causal.parked.values()
    named = sum(history_octets(item.causal_history) for item in true[parity : 3 + parity])
    assert payload.octets == len(PAYLOAD) + named


@pytest.mark.parametrize("true_first", [False, True])
def test_the_true_chain_is_found_among_chains_that_are_made_up(*, true_first: bool) -> None:
    receiver = bob()
    true = messages_of(PAYLOAD)
    false = [
        message
        for mark in (b"1", b"2", b"3")
        for message in chained([forged(index, mark) for index in range(3)])
    ]
    receiver.receive(*([*true, *false] if true_first else [*false, *true]))
    assert receiver.received == [PAYLOAD]


def test_a_segment_that_others_of_its_set_name_has_a_place_of_its_own() -> None:
    receiver = bob()
    true = messages_of(PAYLOAD)
    false = [content_message(forged(1, bytes([48 + number]))) for number in range(6)]
    receiver.receive(*false)
    assert receiver.dropped() == {"conflicting_segment": 2}
    receiver.receive(true[1])
    assert receiver.dropped() == {"conflicting_segment": 3}
    assert receiver.status().owed_acknowledgements == 4
    receiver.receive(true[0], true[2], true[1])
    assert receiver.received == [PAYLOAD]


def test_one_segment_has_a_bounded_number_of_payloads_put_together() -> None:
    receiver = bob()
    for index in range(3):
        for number in range(4):
            before = receiver.counted("assemblies_failed")
            receiver.receive(content_message(forged(index, bytes([48 + number]))))
            assert receiver.counted("assemblies_failed") - before <= MAX_ASSEMBLIES
    assert receiver.counted("assemblies_failed") >= 20


def test_forged_segments_count_in_the_bytes_of_their_sender() -> None:
    receiver = bob(segmentation=SegmentationConfig(max_incomplete_bytes_per_sender=1 << 16))
    first = cut(bytes(100_000), chunk=30_000)[0]
    for number in range(4):
        receiver.receive(content_message(replace(first, payload=bytes([number]) * 30_000)))
    assert receiver.dropped() == {"incomplete_bytes_of_sender_full": 2}


def test_ephemeral_segments_have_candidates_too() -> None:
    receiver = bob()
    segments = [forged(1), *cut(PAYLOAD)]
    receiver.receive(*(ephemeral_message(segment) for segment in segments))
    assert receiver.received == [PAYLOAD]
    assert receiver.status().known_messages == 0


def test_a_set_that_is_given_up_leaves_no_candidates() -> None:
    receiver = bob(segmentation=SegmentationConfig(incomplete_timeout_ms=60_000))
    receiver.receive(*(content_message(forged(0, bytes([48 + number]))) for number in range(3)))
    receiver.advance(60 * SECOND)
    assert [reason for _, reason in receiver.lost] == ["incomplete_timeout"]
    assert receiver.status().known_messages == 0
    assert receiver.status().owed_acknowledgements == 0
    assert receiver.rows_of(PendingRecord) == []
    assert receiver.machine.causal.holder == {}


def test_what_waits_for_a_forged_segment_waits_no_longer_than_for_its_payload() -> None:
    receiver = settled()
    false = content_message(forged(1), lamport=NOW_MS + 20_000)
    receiver.receive(false, single("after", false.message_id, lamport=NOW_MS + 30_000))
    assert receiver.received == []
    receiver.receive(*messages_of(PAYLOAD, lamport=NOW_MS + 20_000))
    assert sorted(receiver.received) == sorted([PAYLOAD, b"after"])


def test_a_payload_rebuilt_a_second_time_leaves_no_id_that_is_never_evicted() -> None:
    receiver = bob(segmentation=SegmentationConfig(max_completed_payloads=1))
    messages = messages_of(PAYLOAD, parity_count=2)
    receiver.receive(messages[0], messages[1], messages[3])
    receiver.receive(*messages_of(bytes(150), wrap_time_ns=NOW + 1))
    log = receiver.machine.state.log
    log.forget(messages[0].message_id)
    log.forget(messages[1].message_id)
    receiver.receive(messages[0], messages[1], messages[4])
    assert receiver.received == [PAYLOAD, bytes(150)]
    assert all(item.logged for item in log.known.values())


@pytest.mark.parametrize("kept", list(combinations(range(4), 3)))
def test_parity_rebuilds_ephemeral_payloads(kept: tuple[int, ...]) -> None:
    messages = [ephemeral_message(segment) for segment in cut(PAYLOAD, parity_count=1)]
    receiver = bob()
    receiver.receive(*(messages[place] for place in kept))
    (event,) = receiver.of(MessageReceivedEvent)
    assert (event.message, event.ephemeral) == (PAYLOAD, True)


# --- Nothing twice -------------------------------------------------------------------------------


def test_the_memory_of_completed_payloads_is_bounded() -> None:
    receiver = bob(segmentation=SegmentationConfig(max_completed_payloads=2))
    for number in range(4):
        receiver.receive(*messages_of(PAYLOAD, wrap_time_ns=NOW + number, lamport=NOW_MS + number))
    assert len(receiver.rows_of(CompletedRecord)) == 2
    assert len(receiver.machine.reassembler.completed) == 2


# --- A full parking lot --------------------------------------------------------------------------


def test_a_full_parking_lot_releases_its_oldest() -> None:
    """WIRE: a full parking lot releases its oldest."""
    receiver = settled(sds=replace(NO_FILTER, max_parked_messages=2))
    for number in range(4):
        receiver.receive(single(f"m{number}", f"needs {number}", lamport=NOW_MS + 30_000 + number))
    assert receiver.received == [b"m0", b"m1"]
    assert receiver.lost == [("needs 0", "parking_full"), ("needs 1", "parking_full")]
    assert {event.explanation for event in receiver.of(MessageLostEvent)} == {
        "too many messages wait for others; the oldest was delivered without this one"
    }
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
