"""The request book: evidence by participant, the leader, what is kept of final requests."""

from __future__ import annotations

from itertools import permutations

import pytest

from reliable_channel.core.outbox import Outbox
from reliable_channel.core.requests import (
    OutgoingSegment,
    Request,
    RequestBook,
    RequestState,
    SegmentState,
)
from reliable_channel.records import (
    AcknowledgementRecord,
    OutgoingRecord,
    Record,
    RequestRecord,
)
from tests.support.builders import BOB, CAROL, NOW


def make_request(
    request_id: str = "r", count: int = 3, *, ephemeral: bool = False, octets: int = 10
) -> Request:
    """Return a request with its segments."""
    request = Request(
        request_id=request_id,
        created_ns=NOW,
        payload_bytes=octets,
        segment_count=count,
        ephemeral=ephemeral,
    )
    request.segments = [
        OutgoingSegment(
            request=request,
            index=index,
            message_id=f"{request_id}-{index}",
            lamport=index,
            history=("h",),
            suffix=b"s",
        )
        for index in range(count)
    ]
    return request


@pytest.fixture
def book() -> RequestBook:
    return RequestBook(2, Outbox())


# --- Evidence ------------------------------------------------------------------------------------


def test_nobody_has_anything_at_first() -> None:
    request = make_request()
    assert request.leader is None
    assert request.recipients == ()
    assert not request.leader_has(0)
    assert not request.leader_has_all()
    assert not request.anybody_has(0)
    assert not request.is_final


def test_evidence_is_news_once() -> None:
    request = make_request()
    assert request.acknowledge(BOB, 1)
    assert not request.acknowledge(BOB, 1)
    assert request.acknowledge(CAROL, 1)
    assert request.counts() == ((BOB, 1), (CAROL, 1))


def test_evidence_of_two_participants_does_not_add_up() -> None:
    """WIRE: delivered means that at least one participant has all of it."""
    request = make_request(count=2)
    request.acknowledge(BOB, 0)
    request.acknowledge(CAROL, 1)
    assert not request.leader_has_all()
    assert request.anybody_has(0)
    assert request.anybody_has(1)
    request.acknowledge(CAROL, 0)
    assert request.leader_has_all()
    assert request.leader == CAROL
    assert request.recipients == (CAROL,)


def test_the_leader_holds_most() -> None:
    request = make_request()
    request.acknowledge(BOB, 0)
    assert request.leader == BOB
    request.acknowledge(CAROL, 1)
    assert request.leader == BOB
    request.acknowledge(CAROL, 2)
    assert request.leader == CAROL
    assert not request.leader_has(0)
    assert request.leader_has(1)


def test_ties_go_to_the_earliest() -> None:
    """WIRE: the leader is the participant that holds most of its data segments (ties: the earliest)."""
    request = make_request()
    for participant in ("first", "second", "third"):
        request.acknowledge(participant, 0)
        assert request.leader == "first"
    request.acknowledge("first", 1)
    request.acknowledge("second", 1)
    assert request.leader == "first"


def test_recipients_are_in_the_order_of_first_evidence() -> None:
    request = make_request(count=2)
    for participant, index in ((BOB, 0), (CAROL, 0), (CAROL, 1), (BOB, 1)):
        request.acknowledge(participant, index)
    assert request.recipients == (BOB, CAROL)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_participant_has_all_in_whichever_order_it_said_so(order: tuple[int, ...]) -> None:
    request = make_request()
    for index in order:
        assert not request.leader_has_all()
        request.acknowledge(BOB, index)
    assert request.leader_has_all()


def test_evidence_is_kept_as_bits_with_its_place() -> None:
    request = make_request(count=10)
    request.acknowledge(BOB, 0)
    for index in (0, 8, 9):
        request.acknowledge(CAROL, index)
    assert request.acknowledgement_record(CAROL) == AcknowledgementRecord(
        request_id="r", participant_id=CAROL, position=1, segments=b"\x01\x03"
    )


def test_places_are_those_of_first_evidence_whoever_says_more() -> None:
    request = make_request()
    for participant, index in ((BOB, 0), (CAROL, 0), ("dave", 1), (BOB, 1), (CAROL, 2)):
        request.acknowledge(participant, index)
    places = {who: request.acknowledgement_record(who).position for who in request.acknowledged}
    assert places == {BOB: 0, CAROL: 1, "dave": 2}


# --- Segments ------------------------------------------------------------------------------------


def test_segment_ids_count_from_one() -> None:
    assert [item.segment_id for item in make_request("q").segments] == ["q:1", "q:2", "q:3"]


def test_the_state_of_a_segment_is_by_the_best_evidence_of_anybody() -> None:
    request = make_request()
    segment = request.segments[1]
    assert segment.state() is SegmentState.QUEUED
    segment.in_flight = True
    assert segment.state() is SegmentState.IN_FLIGHT
    segment.propagated = True
    assert segment.state() is SegmentState.SENT
    segment.possible[BOB] = 1
    assert segment.state() is SegmentState.POSSIBLY_ACKNOWLEDGED
    request.acknowledge(CAROL, 0)
    assert segment.state() is SegmentState.POSSIBLY_ACKNOWLEDGED
    request.acknowledge(CAROL, 1)
    assert segment.state() is SegmentState.ACKNOWLEDGED


def test_rows_hold_what_a_restart_needs() -> None:
    request = make_request(octets=99)
    request.sent = True
    segment = request.segments[2]
    segment.propagated, segment.transmissions, segment.retransmissions = True, 4, 3
    segment.deadline_ns = 7
    assert segment.record() == OutgoingRecord(
        request_id="r",
        segment_index=2,
        message_id="r-2",
        lamport_timestamp=2,
        history=("h",),
        propagated=True,
        transmissions=4,
        retransmissions=3,
        deadline_ns=7,
    )
    assert request.record() == RequestRecord(
        request_id="r",
        created_ns=NOW,
        payload_bytes=99,
        segment_count=3,
        ephemeral=False,
        sent=True,
        state="open",
        error="",
        leader=None,
    )


# --- The book ------------------------------------------------------------------------------------


def test_open_requests_are_found_by_the_ids_of_their_segments(book: RequestBook) -> None:
    request = make_request()
    book.open(request)
    assert book.requests == {"r": request}
    assert book.index["r-2"] == [(request, 2)]
    assert list(book.outstanding) == list(book.segments) == ["r:1", "r:2", "r:3"]
    assert book.segments["r:2"] is request.segments[1]
    assert (book.open_count, book.open_octets) == (1, 10)


def test_ephemeral_requests_wait_for_no_acknowledgement(book: RequestBook) -> None:
    book.open(make_request(ephemeral=True))
    assert not book.index
    assert not book.outstanding
    assert list(book.segments) == ["r:1", "r:2", "r:3"]
    assert book.open_count == 1


@pytest.mark.parametrize("ephemeral", [False, True])
def test_segments_of_final_requests_are_not_found_any_more(
    book: RequestBook, *, ephemeral: bool
) -> None:
    request = make_request(ephemeral=ephemeral)
    book.open(request)
    book.finish(request, RequestState.SENT)
    assert not book.segments
    assert not book.outstanding


def test_a_final_request_can_still_be_asked_and_acknowledged(book: RequestBook) -> None:
    """WIRE: later acknowledgements add recipients and change nothing else."""
    request = make_request()
    book.open(request)
    book.outbox.take()
    book.finish(request, RequestState.DELIVERY_ERROR, "nobody answered")
    assert request.is_final
    assert (book.open_count, book.open_octets) == (0, 0)
    assert not book.outstanding
    assert book.index["r-0"] == [(request, 0)]
    changes = book.outbox.take().changes
    assert changes[RequestRecord, ("r",)] == request.record()
    assert request.record().state == "delivery-error"
    assert request.record().error == "nobody answered"
    assert [changes[OutgoingRecord, ("r", index)] for index in range(3)] == [None] * 3


def test_the_oldest_final_requests_are_forgotten_above_the_bound(book: RequestBook) -> None:
    for number in range(4):
        request = make_request(f"r{number}")
        book.open(request)
        request.acknowledge(BOB, 0)
        book.finish(request, RequestState.DELIVERED)
    assert list(book.requests) == list(book.finished) == ["r2", "r3"]
    assert {request.request_id for ((request, _),) in book.index.values()} == {"r2", "r3"}
    expected: dict[tuple[type[Record], tuple[str, ...]], None] = {
        (RequestRecord, ("r0",)): None,
        (AcknowledgementRecord, ("r0", BOB)): None,
    }
    assert expected.items() <= book.outbox.take().changes.items()


def test_forgetting_leaves_the_ids_to_a_later_request_with_the_same_content(
    book: RequestBook,
) -> None:
    """With message_id="content" equal payloads have equal ids."""
    first, second = make_request("r1", 1), make_request("r2", 1)
    second.segments[0].message_id = first.segments[0].message_id
    book.open(first)
    book.finish(first, RequestState.DELIVERED)
    book.open(second)
    book.forget("r1")
    assert book.index["r1-0"] == [(second, 0)]


@pytest.mark.parametrize(
    ("state", "final"),
    [
        (RequestState.OPEN, False),
        (RequestState.SENT, True),
        (RequestState.DELIVERED, True),
        (RequestState.SEND_ERROR, True),
        (RequestState.DELIVERY_ERROR, True),
    ],
)
def test_all_states_but_open_are_final(state: RequestState, *, final: bool) -> None:
    request = make_request()
    request.state = state
    assert request.is_final is final
