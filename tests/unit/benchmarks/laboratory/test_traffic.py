"""What the rows say of logs whose every line is known."""

from __future__ import annotations

import heapq
import tracemalloc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.laboratory.measures import RATIOS
from benchmarks.laboratory.results import OTHER, SCHEMA, Trial
from benchmarks.laboratory.traffic import (
    NOTES,
    SEND,
    UNKNOWN,
    UNKNOWN_ALONE,
    UNKNOWN_RATIOS,
    ChannelCounter,
    Happening,
    Log,
    Sending,
    cell_of,
)
from reliable_channel.types import MS, SECOND

HOUR = 3_600 * SECOND
ALWAYS = 10**19
QUEUED, SENT, DELIVERED, SEND_ERROR, DELIVERY_ERROR, RECEIVED, LOST = (
    f"reliable:message:{name}"
    for name in ("queued", "sent", "delivered", "send-error", "delivery-error", "received", "lost")
)
ALICE = Log(sender_id="alice", until_ns=ALWAYS, has_sends=True)
BOB = Log(sender_id="bob", until_ns=ALWAYS, has_sends=True)
CAROL = Log(sender_id="carol", until_ns=ALWAYS, has_sends=True)


def send(time_ms: float, name: str, sender: str, **more: int) -> Happening:
    return Happening(int(time_ms * MS), SEND, message_id=name, sender_id=sender, **more)


def of_request(time_ms: float, event: str, name: str) -> Happening:
    return Happening(int(time_ms * MS), event, request_id=name)


def received(
    time_ms: float, name: str, sender: str, *, sent_ms: int = 0, late: bool = False
) -> Happening:
    return Happening(
        int(time_ms * MS),
        RECEIVED,
        message_id=name,
        sender_id=sender,
        sent_ns=sent_ms * MS,
        late=late,
    )


def lost(time_ms: float, name: str, sender: str = "") -> Happening:
    return Happening(int(time_ms * MS), LOST, message_id=name, sender_id=sender)


@dataclass
class Result:
    rows: list[Trial]
    notes: dict[str, int]

    @property
    def row(self) -> Trial:
        (row,) = self.rows
        return row


def count(*logs: tuple[Log, Iterable[Happening]], **settings: int) -> Result:
    counter = ChannelCounter("key", [log for log, _ in logs], **settings)
    streams = [[(place, item) for item in items] for place, (_, items) in enumerate(logs)]
    merged = heapq.merge(*streams, key=lambda item: item[1].time_ns)
    return Result(list(counter.rows(merged)), {k: n for k, n in counter.notes.items() if n})


# --- One log -------------------------------------------------------------------------------------


def test_times_of_own_requests_count_from_their_send() -> None:
    log = Log(
        sender_id="alice", until_ns=ALWAYS, has_sends=True, requests={"r": Sending(5 * MS, False)}
    )
    row = count(
        (
            log,
            [
                send(5, "m", "alice", segments=3, payload_bytes=700),
                of_request(6, QUEUED, "r"),
                of_request(25, SENT, "r"),
                of_request(105, DELIVERED, "r"),
            ],
        )
    ).row
    assert (row.messages, row.confirmed, row.segments, row.payload_bytes) == (1, 1, 3, 700)
    assert (row.queue_ms, row.confirm_ms) == ([20], [100])
    assert (row.owed, row.delivered, row.complete, row.receivers) == (0, 0, 0, [])
    assert (row.channel, row.virtual_ms) == (0, 100)


def test_what_receivers_got_says_how_large_a_message_was() -> None:
    got = received(9, "m", "alice")._replace(payload_bytes=77)
    found = count((ALICE, [send(1, "m", "alice"), send(2, "n", "alice")]), (BOB, [got]))
    assert (found.row.payload_bytes, found.notes) == (77, {"sizeless": 1})


def test_a_forgotten_request_is_timed_from_its_sent_event_and_that_is_said() -> None:
    found = count((ALICE, [of_request(25, SENT, "r"), of_request(105, DELIVERED, "r")]))
    assert (found.row.queue_ms, found.row.confirm_ms) == ([], [80])
    assert found.notes == {"confirmed_from_sent": 1}


def test_a_forgotten_request_that_was_queued_is_timed_from_there() -> None:
    steps = [(5, QUEUED), (25, SENT), (105, DELIVERED)]
    found = count((ALICE, [of_request(time_ms, event, "r") for time_ms, event in steps]))
    assert (found.row.queue_ms, found.row.confirm_ms) == ([20], [100])
    assert found.notes == {}


def test_errors_are_counted() -> None:
    found = count(
        (
            ALICE,
            [
                of_request(1, QUEUED, "a"),
                of_request(2, SEND_ERROR, "a"),
                of_request(3, SENT, "b"),
                of_request(4, DELIVERY_ERROR, "b"),
            ],
        )
    )
    assert (found.row.send_errors, found.row.delivery_errors, found.row.confirmed) == (1, 1, 0)


@pytest.mark.parametrize("requests", [{"r": Sending(0, True)}, {}])
def test_ephemeral_messages_are_not_counted(requests: dict[str, Sending]) -> None:
    log = Log(sender_id="alice", until_ns=ALWAYS, has_sends=True, requests=requests)
    heard = received(2, "x", "bob")._replace(ephemeral=True)
    found = count((log, [of_request(1, SENT, "r"), heard]))
    assert sum((row.messages, row.owed, row.delivered) != (0, 0, 0) for row in found.rows) == 0
    assert found.notes == {"ephemeral": 2}


def test_received_messages_are_owed_and_timed_by_their_lamport_time() -> None:
    row = count(
        (
            ALICE,
            [
                received(30, "m", "bob", sent_ms=10),
                received(90, "n", "bob", sent_ms=20, late=True),
            ],
        )
    ).row
    assert (row.messages, row.owed, row.delivered, row.late) == (0, 2, 2, 1)
    assert (row.latency_ms, row.round) == ([20, 70], [OTHER, OTHER])


def test_a_message_that_seems_older_than_its_sending_took_no_time() -> None:
    found = count((ALICE, [received(30, "m", "bob", sent_ms=45)]))
    assert found.row.latency_ms == [0]
    assert found.notes == {"clamped": 1}


def test_a_lost_message_is_owed_unless_it_comes_after_all() -> None:
    found = count(
        (ALICE, [lost(1, "m", "bob"), lost(2, "n", "bob"), received(9, "m", "bob", sent_ms=1)])
    )
    assert (found.row.lost, found.row.owed, found.row.delivered) == (2, 2, 1)


def test_what_comes_twice_is_delivered_once() -> None:
    row = count((ALICE, [received(1, "m", "bob"), received(2, "m", "bob")])).row
    assert (row.owed, row.delivered, row.duplicated) == (1, 1, 1)


def test_what_began_before_the_log_is_not_counted() -> None:
    log = Log(
        sender_id="alice",
        since_ns=100 * MS,
        until_ns=ALWAYS,
        has_sends=True,
        requests={"old": Sending(99 * MS, False)},
    )
    found = count(
        (log, [of_request(101, DELIVERED, "old"), of_request(102, DELIVERED, "forgotten")])
    )
    assert found.rows == []


# --- Several logs --------------------------------------------------------------------------------


def test_logs_are_joined_by_message_id() -> None:
    row = count(
        (ALICE, [send(0, "a1", "alice"), send(1, "a2", "alice"), received(9, "b1", "bob")]),
        (BOB, [send(2, "b1", "bob"), received(30, "a1", "alice"), received(31, "a2", "alice")]),
        (CAROL, [received(50, "a1", "alice"), received(60, "b1", "bob"), lost(99, "a2", "alice")]),
    ).row
    assert (row.messages, row.owed, row.delivered, row.complete, row.lost) == (3, 6, 5, 2, 1)
    assert row.receivers == [2, 1, 2], "in the order of sending"
    assert row.latency_ms == [7, 30, 30, 50, 58], "from the sender's own time, in order of delivery"


@pytest.mark.parametrize(
    ("since_ms", "until_ms", "owed"),
    [(0, 100, 1), (0, 10, 1), (10, 20, 1), (11, 20, 0), (0, 9, 0)],
)
def test_a_message_is_owed_to_those_whose_log_covers_its_sending(
    since_ms: int, until_ms: int, owed: int
) -> None:
    bob = Log(sender_id="bob", since_ns=since_ms * MS, until_ns=until_ms * MS, has_sends=True)
    row = count((ALICE, [send(10, "m", "alice")]), (bob, [])).row
    assert (row.owed, row.delivered, row.receivers) == (owed, 0, [0])
    assert row.complete == (not owed), "nobody else was there"


def test_the_order_of_logs_whose_clocks_differ_does_not_matter() -> None:
    """Bob's clock is behind: he has it before it was sent."""
    found = count(
        (ALICE, [send(50, "m", "alice", segments=2)]), (BOB, [received(40, "m", "alice")])
    )
    assert [(row.messages, row.owed, row.delivered) for row in found.rows] == [(1, 1, 1)]
    assert found.row.segments == 2


def test_senders_whose_logs_are_not_there_owe_everybody() -> None:
    row = count((ALICE, [received(9, "d", "dave")]), (BOB, [])).row
    assert (row.messages, row.owed, row.delivered, row.complete) == (0, 2, 1, 0)


def test_logs_that_do_not_say_what_was_sent() -> None:
    """Files: own messages are known by their requests, and by who received them."""
    alice = Log(sender_id="alice", until_ns=ALWAYS, exempt=frozenset({"alice"}))
    bob = Log(sender_id="bob", until_ns=ALWAYS, exempt=frozenset({"bob"}))
    found = count(
        (
            alice,
            [
                of_request(1, SENT, "r"),
                of_request(5, DELIVERED, "r"),
                of_request(6, SENT, "s"),
                of_request(7, DELIVERY_ERROR, "s"),
                of_request(8, SENT, "open, or ephemeral"),
            ],
        ),
        (bob, [received(3, "m", "alice"), lost(9, "n", "alice")]),
    )
    row = found.row
    assert (row.messages, row.confirmed, row.delivery_errors) == (2, 1, 1)
    assert (row.owed, row.delivered, row.complete, row.receivers) == (2, 1, 1, [1])
    assert (row.latency_ms, row.confirm_ms) == ([], [4])
    assert found.notes == {"confirmed_from_sent": 1, "deliveries_untimed": 1, "undecided": 1}


def test_nothing_is_owed_to_who_may_be_the_sender() -> None:
    unclear = [Log(until_ns=ALWAYS, exempt=frozenset({"alice"})) for _ in range(2)]
    bob = Log(sender_id="bob", until_ns=ALWAYS)
    row = count((unclear[0], []), (unclear[1], []), (bob, [received(3, "m", "alice")])).row
    assert (row.owed, row.delivered) == (1, 1)


# --- Windows -------------------------------------------------------------------------------------


def test_what_becomes_of_a_message_is_in_the_window_of_its_send() -> None:
    hour_ms = HOUR // MS
    found = count(
        (ALICE, [send(hour_ms - 1, "m", "alice"), send(3 * hour_ms, "n", "alice")]),
        (BOB, [received(hour_ms + 5, "m", "alice"), received(4 * hour_ms, "n", "alice")]),
    )
    assert [(row.channel, row.messages, row.delivered) for row in found.rows] == [
        (0, 1, 1),
        (3, 1, 1),
    ]
    assert [row.latency_ms for row in found.rows] == [[6], [hour_ms]]


def test_a_window_is_closed_when_its_patience_is_over() -> None:
    hour_ms = HOUR // MS
    found = count(
        (ALICE, [send(10, "m", "alice", payload_bytes=1), send(11, "n", "alice", payload_bytes=1)]),
        (
            BOB,
            [
                received(3 * hour_ms - 1, "m", "alice", sent_ms=10),
                received(3 * hour_ms + 1, "n", "alice", sent_ms=11),
            ],
        ),
        patience_ns=2 * HOUR,
    )
    assert [(row.channel, row.delivered, row.owed) for row in found.rows] == [(0, 1, 2)]
    assert found.notes == {"after_close": 1}


def test_rows_come_while_the_logs_are_read() -> None:
    hour_ms = HOUR // MS
    counter = ChannelCounter("key", [ALICE], patience_ns=0)
    assert counter.add(0, received(1, "m", "bob")) == []
    assert [row.channel for row in counter.add(0, received(hour_ms, "n", "bob"))] == [0]
    assert [row.channel for row in counter.end()] == [1]


def test_a_window_may_be_of_any_length() -> None:
    steps = [received(time_ms, f"m{time_ms}", "bob") for time_ms in (0, 999, 1_000, 7_500)]
    rows = count((ALICE, steps), window_ns=SECOND).rows
    assert [(row.channel, row.delivered) for row in rows] == [(0, 2), (1, 1), (7, 1)]


# --- Any log -------------------------------------------------------------------------------------

ENDS = st.sampled_from([(), (DELIVERED,), (SEND_ERROR,), (DELIVERY_ERROR,)])


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[Log, list[Happening]]]:
    """Two or three participants; each message is received, lost or neither by each of the others."""
    who = ["alice", "bob", "carol"][: draw(st.integers(2, 3))]
    happenings: dict[str, list[Happening]] = {name: [] for name in who}
    requests: dict[str, dict[str, Sending]] = {name: {} for name in who}
    for number in range(draw(st.integers(0, 6))):
        sender, start = draw(st.sampled_from(who)), draw(st.integers(0, 20_000))
        name = f"{sender}-{number}"
        happenings[sender].append(send(start, name, sender, segments=draw(st.integers(1, 3))))
        if draw(st.booleans()):
            requests[sender][name] = Sending(start * MS, False)
        events = ((SENT,) if draw(st.booleans()) else (QUEUED, SENT)) + draw(ENDS)
        time_ms = start
        for event in events:
            time_ms += draw(st.integers(0, 5_000))
            happenings[sender].append(of_request(time_ms, event, name))
        for other in who:
            arrival = start + draw(st.integers(0, 30_000))
            fate = draw(st.sampled_from(["received", "lost", "late", "under way"]))
            if other == sender or fate == "under way":
                continue
            if fate != "received":
                happenings[other].append(lost(arrival, name, sender))
            if fate != "lost":
                late = fate == "late"
                happenings[other].append(received(arrival + late, name, sender, late=late))
    return [
        (
            Log(sender_id=name, until_ns=ALWAYS, has_sends=True, requests=requests[name]),
            sorted(happenings[name], key=lambda item: item.time_ns),
        )
        for name in who
    ]


def interleaved(logs: list[list[Happening]], random: Random) -> Iterator[tuple[int, Happening]]:
    """Give the events of each log in their order, and its sends; otherwise in no order."""
    streams = [
        [(place, item) for item in reversed(items) if (item.name == SEND) == sends]
        for place, items in enumerate(logs)
        for sends in (True, False)
    ]
    while left := [stream for stream in streams if stream]:
        yield random.choice(left).pop()


@pytest.mark.timeout(120)
@settings(max_examples=60)
@given(logs(), st.integers(1, 30), st.integers(0, 99))
def test_counts_add_up_in_any_interleaving(
    participants: list[tuple[Log, list[Happening]]], window_sec: int, seed: int
) -> None:
    everything = [item for _, items in participants for item in items]

    def number(*names: str) -> int:
        return sum(item.name in names for item in everything)

    in_order = count(*participants, window_ns=window_sec * SECOND)
    rows = in_order.rows
    assert sum(row.messages for row in rows) == number(SEND)
    assert sum(row.owed for row in rows) == number(SEND) * (len(participants) - 1)
    assert sum(row.delivered for row in rows) == number(RECEIVED)
    assert sum(row.lost for row in rows) == number(LOST)
    assert sum(row.confirmed for row in rows) == number(DELIVERED)
    assert sum(row.send_errors for row in rows) == number(SEND_ERROR)
    assert sum(row.delivery_errors for row in rows) == number(DELIVERY_ERROR)
    assert sum(row.segments for row in rows) == sum(item.segments for item in everything)
    assert sum(row.late for row in rows) == sum(item.late for item in everything)
    assert [row.channel for row in rows] == sorted({row.channel for row in rows})
    for row in rows:
        assert row.delivered == sum(row.receivers) == len(row.latency_ms) == len(row.round)
        assert row.complete == sum(got == len(participants) - 1 for got in row.receivers)
        assert len(row.receivers) == row.messages
        assert row.confirmed == len(row.confirm_ms)
        assert min((*row.latency_ms, *row.confirm_ms, *row.queue_ms), default=0) >= 0
    assert "after_close" not in in_order.notes

    mixed = interleaved([items for _, items in participants], Random(seed))
    counter = ChannelCounter("key", [log for log, _ in participants], window_ns=window_sec * SECOND)
    again = list(counter.rows(mixed))
    for column in ("delivered", "owed", "late", "lost", "confirmed", "complete", "messages"):
        assert sum(getattr(row, column) for row in again) == sum(
            getattr(row, column) for row in rows
        )


# --- Much ----------------------------------------------------------------------------------------


def long_log(events: int) -> Iterator[tuple[int, Happening]]:
    """Three a second: a send, its confirmation, a message that comes."""
    for number in range(events // 3):
        now = number * 1_000
        yield 0, send(now, f"own message {number}", "alice")
        yield 0, of_request(now + 100, SENT, f"request {number}")
        yield 0, of_request(now + 200, DELIVERED, f"request {number}")
        yield 0, received(now + 300, f"message of bob {number}", "bob", sent_ms=now)


@pytest.mark.timeout(120)
def test_memory_does_not_grow_with_the_log() -> None:
    def peak(events: int) -> int:
        counter = ChannelCounter("key", [ALICE], window_ns=60 * SECOND, patience_ns=60 * SECOND)
        tracemalloc.start()
        try:
            rows = sum(1 for _ in counter.rows(long_log(events)))
            assert rows == events // 3 // 60
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(90_000) < 1.5 * peak(9_000)


# --- What is not known ---------------------------------------------------------------------------


def test_what_is_unknown_names_columns_and_ratios() -> None:
    assert {*UNKNOWN, *UNKNOWN_ALONE} <= set(SCHEMA.names)
    made_of_them = {name for name, (over, under) in RATIOS.items() if {*over, under} & {*UNKNOWN}}
    assert set(UNKNOWN_RATIOS) == made_of_them
    assert all(not text.endswith(".") for text in NOTES.values())


def test_channels_have_cells_of_their_own() -> None:
    cells = [cell_of(name, ["alice.db"], HOUR) for name in ("room", "hall")]
    cells += [cell_of("room", ["alice.db", "bob.db"], HOUR), cell_of("room", ["alice.db"], SECOND)]
    assert len({cell.key for cell in cells}) == 4
    assert cells[0].key == cell_of("room", ["alice.db"], HOUR).key
    assert cells[0].labels == (("channel", "room"), ("logs", "1"))
    assert cells[0].parameters == {"channel": "room", "logs": ["alice.db"], "window_sec": 3_600}
