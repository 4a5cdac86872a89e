"""The machine as a whole: determinism, the contract of inputs, timers, questions, kept settings."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from reliable_channel.config import SdsConfig, SegmentationConfig
from reliable_channel.core.machine import ChannelMachine, ChannelStatus
from reliable_channel.core.requests import RequestState, SegmentState
from reliable_channel.errors import ConfigurationError, RequestNotFoundError
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageReceivedEvent,
)
from reliable_channel.records import ChannelRecord
from reliable_channel.types import MS, SECOND
from tests.support.builders import (
    ALICE,
    BOB,
    CAROL,
    CHANNEL,
    NO_FILTER,
    NOW,
    NOW_MS,
    PARITY,
    SMALL,
    TOPIC,
    Participant,
    Transmission,
    content_message,
    cut,
    deliver,
    entries,
    entry,
    hash_of,
    limited,
    messages_of,
    sync_message,
)

GROUP = (ALICE, BOB, CAROL)


# --- Determinism ---------------------------------------------------------------------------------


class Conversation:
    """Three participants on a lossy network with a store, for twenty minutes.

    Args:
        seed: Of the network and of the participants.
        loss: Share of copies that are lost.
    """

    def __init__(self, seed: int, loss: float) -> None:
        self.rng = Random(seed)
        self.loss = loss
        self.trace: list[Transmission] = []
        self.stored: dict[bytes, bytes] = {}
        self.members = [
            Participant(who, seed=seed + number, segmentation=PARITY, sds=NO_FILTER)
            for number, who in enumerate(GROUP)
        ]
        for step in range(1_200):
            if step < 12:
                size = self.rng.choice([1, 64, 100, 200])
                self.rng.choice(self.members).send(self.rng.randbytes(size))
            for member in self.members:
                self.carry(member)
            for member in self.members:
                member.advance(SECOND)

    def carry(self, member: Participant) -> None:
        """Bring what a member sent to the others and to the store; answer its queries."""
        member.published()
        fresh, member.transmissions = member.transmissions, []
        self.trace += fresh
        self.stored.update({hash_of(item.data): item.data for item in fresh if not item.ephemeral})
        for other in self.members:
            if other is not member:
                deliver([other], (item for item in fresh if self.rng.random() >= self.loss))
        fetches, member.fetches = member.fetches, []
        for fetch in fetches:
            found = [(item, self.stored[item]) for item in fetch.hashes if item in self.stored]
            member.carry_out(member.machine.fetched(found, member.now))

    def outcome(self) -> list[object]:
        """Return all that can be observed."""
        return [self.trace, *(member.events for member in self.members)]

    def inversions(self) -> int:
        """Count the messages that came out before something that they build on."""
        payload_of: dict[str, str] = {}
        needs: dict[str, set[str]] = {}
        first: dict[str, str] = {}
        for item in self.trace:
            if item.message.content and item.message.lamport_timestamp:
                request_id = item.segment_id.partition(":")[0]
                if item.segment_id.endswith(":1"):
                    first[request_id] = item.message.message_id
        for item in self.trace:
            request_id = item.segment_id.partition(":")[0]
            if request_id in first and item.message.lamport_timestamp:
                payload_of[item.message.message_id] = first[request_id]
                named = {entry.message_id for entry in item.message.causal_history}
                needs.setdefault(first[request_id], set()).update(named)
        count = 0
        for member in self.members:
            order = [event.message_id for event in member.of(MessageReceivedEvent)]
            place = {message_id: number for number, message_id in enumerate(order)}
            for message_id in order:
                wanted = {payload_of[item] for item in needs[message_id]} - {message_id}
                count += any(place.get(item, -1) > place[message_id] for item in wanted)
        return count


def test_the_same_inputs_and_seed_give_the_same_effects() -> None:
    assert Conversation(7, 0.3).outcome() == Conversation(7, 0.3).outcome()


def test_the_seed_makes_ids_and_back_offs() -> None:
    first, second = Participant(ALICE, seed=1), Participant(ALICE, seed=2)
    assert first.send(b"x") != second.send(b"x")
    for participant in (first, second):
        participant.receive(*messages_of(b"hi", sender_id=BOB))
        participant.published()
    assert first.transmissions[0].data == second.transmissions[0].data
    assert first.machine.next_deadline() != second.machine.next_deadline()


@pytest.mark.parametrize("seed", range(10))
def test_through_loss_every_message_arrives_once_and_in_causal_order(seed: int) -> None:
    conversation = Conversation(seed, 0.3)
    copies: dict[str, int] = {}
    for member in conversation.members:
        for event in member.of(MessageReceivedEvent):
            copies[event.message_id] = copies.get(event.message_id, 0) + 1
        assert member.lost == []
    assert list(copies.values()) == [2] * 12
    delivered = [len(member.of(MessageDeliveredEvent)) for member in conversation.members]
    assert sum(delivered) == 12
    assert conversation.inversions() == 0


# --- The contract of inputs ----------------------------------------------------------------------


def test_before_the_start_nothing_is_published() -> None:
    sender = Participant(ALICE, started=False)
    sender.send(b"x")
    assert sender.transmissions == []
    sender.start()
    assert len(sender.transmissions) == 1


def test_the_channels_row_is_written_when_it_changes_only() -> None:
    receiver = Participant(BOB)
    assert len(receiver.rows_of(ChannelRecord)) == 1
    assert not receiver.machine.tick(NOW)
    assert not receiver.machine.refuse("decrypt_failed", NOW)
    effects = receiver.receive(sync_message(lamport=NOW_MS + 5))
    row = effects.changes[ChannelRecord, ()]
    assert isinstance(row, ChannelRecord)
    assert (row.lamport_clock, row.last_seen_ns) == (NOW_MS + 5, NOW)
    assert not receiver.receive(sync_message(lamport=NOW_MS + 5)).changes


def test_waking_too_early_does_nothing() -> None:
    sender = Participant(ALICE)
    sender.send(b"x")
    sender.published()
    deadline = sender.machine.next_deadline()
    assert deadline is not None
    assert not sender.machine.tick(deadline - 1)
    assert sender.machine.next_deadline() == deadline


def test_waking_late_makes_up_for_everything_at_once() -> None:
    receiver = Participant(BOB, sds=NO_FILTER)
    receiver.receive(content_message(cut(b"hello")[0]))
    receiver.now += 3600 * SECOND
    receiver.carry_out(receiver.machine.tick(receiver.now))
    assert receiver.status().owed_acknowledgements == 0
    deadline = receiver.machine.next_deadline()
    assert deadline is not None
    assert deadline > receiver.now


def test_the_clock_may_stand_still() -> None:
    """A clock that was set back is held until the time has come again."""
    sender = Participant(ALICE)
    for _ in range(5):
        sender.send(b"x")
    assert len({item.message.message_id for item in sender.transmissions}) == 5
    assert len({item.message.lamport_timestamp for item in sender.transmissions}) == 5


def test_garbage_never_raises() -> None:
    rng = Random(3)
    receiver = Participant(BOB, sds=NO_FILTER)
    valid = [message.encode() for message in messages_of(b"x" * 150, parity_count=2)]
    valid.append(sync_message(*entries("a", "b")).encode())
    for _ in range(3_000):
        data = bytearray(rng.choice(valid))
        for _ in range(rng.randrange(1, 4)):
            match rng.randrange(3):
                case 0 if data:
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                case 1 if data:
                    start = rng.randrange(len(data))
                    del data[start : start + rng.randrange(5)]
                case _:
                    data[rng.randrange(len(data) + 1) :][:0] = rng.randbytes(2)
        receiver.receive(bytes(data))
    assert sum(receiver.dropped().values()) > 500


def test_hostile_mixtures_of_valid_parts_never_raise_and_pass_no_bound() -> None:
    """No exception leaves receive, no bound is passed, honest messages still get through."""
    for seed in range(12):
        rng = Random(seed)
        receiver = Participant(
            BOB,
            seed=seed,
            sds=replace(
                NO_FILTER,
                max_known_ids=64,
                max_parked_messages=4,
                dependency_timeout_ms=2_000,
                enable_repair=False,
            ),
            segmentation=SegmentationConfig(
                max_incomplete_payloads=6,
                max_completed_payloads=2,
                incomplete_timeout_ms=1_000,
            ),
        )
        pool = [
            message
            for wrap_time_ns in (0, 1, 2)
            for sender_id in GROUP
            for message in messages_of(
                rng.randbytes(rng.choice([10, 100, 200])),
                sender_id=sender_id,
                wrap_time_ns=wrap_time_ns,
                parity_count=rng.choice([0, 1]),
                lamport=NOW_MS + rng.randrange(-1000, 1000),
            )
        ]
        ids = [message.message_id for message in pool]
        for _ in range(250):
            message = rng.choice(pool)
            match rng.randrange(8):
                case 0:
                    turned = None if message.lamport_timestamp is not None else NOW_MS
                    message = replace(message, lamport_timestamp=turned)
                case 1:
                    message = replace(message, causal_history=entries(*rng.sample(ids, 3)))
                case 2:
                    message = replace(message, message_id=rng.choice(ids))
                case 3:
                    message = replace(message, sender_id=rng.choice(GROUP))
                case 4:
                    message = sync_message(
                        *entries(*rng.sample(ids, 3)), message_id=rng.choice(ids)
                    )
                case 5:
                    receiver.advance(rng.choice([MS, SECOND, 5 * SECOND]))
                    receiver.published()
            receiver.receive(message)
        status = receiver.status()
        assert status.parked_messages <= 4
        assert status.incomplete_payloads <= 6
        receiver.receive(
            *messages_of(b"honest" * 20, sender_id="dave", wrap_time_ns=9, lamport=NOW_MS + 900_000)
        )
        assert b"honest" * 20 in receiver.received


# --- Timers --------------------------------------------------------------------------------------


def test_the_next_deadline_is_that_of_the_earliest_timer() -> None:
    sender = Participant(ALICE, sds=NO_FILTER)
    sender.send(b"x")
    sender.published()
    assert sender.machine.next_deadline() == NOW + 5 * SECOND


def test_what_the_limit_holds_back_goes_out_by_itself() -> None:
    sender = Participant(ALICE, segmentation=SMALL, sds=NO_FILTER, budget=limited(4))
    request_id = sender.send(b"x" * 300)
    sender.published()
    assert len(sender.sent_since(0)) == 4
    sender.advance(700 * SECOND)
    assert f"{request_id}:5" in sender.sent_since(4)


@pytest.mark.interpreted
def test_a_copied_machine_goes_its_own_way() -> None:
    original = Participant(BOB, sds=NO_FILTER)
    twin = copy.deepcopy(original)
    message = content_message(cut(b"hello")[0])
    assert twin.receive(message) == original.receive(message)
    assert twin.received == original.received == [b"hello"]
    assert twin.rows == original.rows


# --- Questions -----------------------------------------------------------------------------------


def test_a_request_that_nobody_made_is_not_found() -> None:
    sender = Participant(ALICE)
    with pytest.raises(RequestNotFoundError) as caught:
        sender.request("nothing")
    assert caught.value.request_id == "nothing"


def test_a_final_request_is_forgotten_above_the_bound() -> None:
    sender = Participant(ALICE, sds=replace(NO_FILTER, max_finished_requests=1))
    first, second = sender.send(b"x"), sender.send(b"y")
    sender.failed(retryable=False)
    assert sender.request(second).is_final
    with pytest.raises(RequestNotFoundError):
        sender.request(first)


def test_a_request_can_be_followed() -> None:
    sender = Participant(ALICE, segmentation=SMALL, sds=replace(NO_FILTER, max_in_flight=1))
    request_id = sender.send(b"x" * 100)
    states = [[item.state for item in sender.request(request_id).segments]]
    sender.published(f"{request_id}:1")
    states.append([item.state for item in sender.request(request_id).segments])
    assert states == [
        [SegmentState.IN_FLIGHT, SegmentState.QUEUED],
        [SegmentState.SENT, SegmentState.IN_FLIGHT],
    ]
    status = sender.request(request_id)
    assert [item.segment_id for item in status.segments] == [f"{request_id}:1", f"{request_id}:2"]
    assert [item.transmissions for item in status.segments] == [1, 1]
    assert (status.state, status.is_final, status.sent, status.ephemeral, status.error) == (
        RequestState.OPEN,
        False,
        False,
        False,
        "",
    )


def test_the_status_says_how_much_there_is_of_everything() -> None:
    member = Participant(
        BOB, segmentation=SMALL, sds=replace(NO_FILTER, max_in_flight=1), content_topic=TOPIC
    )
    member.receive(content_message(cut(b"hello")[0]))
    member.advance(10 * SECOND)
    member.published()
    later = NOW_MS + 20_000
    member.receive(
        messages_of(b"x" * 150, lamport=later)[0],
        content_message(b"parked", message_id="p", lamport=later, history=[entry("gap")]),
        b"garbage",
    )
    member.send(b"y" * 100)
    status = member.status()
    assert (status.channel_id, status.sender_id, status.content_topic) == (CHANNEL, BOB, TOPIC)
    assert status.lamport_timestamp == later + 2
    assert status.known_messages == 1 + 1 + 1 + 2
    assert (status.open_requests, status.open_bytes) == (1, 100)
    assert (status.waiting, status.in_flight) == (1, 1)
    assert (status.incomplete_payloads, status.parked_messages) == (1, 1)
    assert status.missing_messages == 1
    assert status.participants == 1
    assert status.dropped == {"malformed": 1}
    assert list(status.counters) == sorted(status.counters)
    assert status.counters["messages_received"] == 1
    assert status.counters["requests"] == 1
    assert {item.name for item in fields(ChannelStatus)} >= {"owed_acknowledgements"}


def test_room_is_what_send_would_find() -> None:
    sender = Participant(ALICE, sds=replace(NO_FILTER, max_outgoing_messages=1))
    assert sender.machine.has_room(10)
    sender.send(b"x")
    assert not sender.machine.has_room(0)


# --- Settings ------------------------------------------------------------------------------------


def test_without_settings_there_are_defaults() -> None:
    machine = ChannelMachine(
        channel_id=CHANNEL, sender_id=ALICE, content_topic=TOPIC, now=NOW, seed=1
    )
    assert machine.state.sds == SdsConfig()
    assert machine.state.segmentation == SegmentationConfig()
    assert not machine.budget.enabled
    machine.start(NOW)
    _, effects = machine.send(b"x", NOW)
    assert len(effects.publishes) == 1


def test_an_unknown_encryption_overhead_is_taken_as_1024_bytes() -> None:
    """WIRE: declared encryption overhead (else 1,024)."""
    large = SegmentationConfig(segment_size_bytes=1 << 20)
    chunks = [
        Participant(
            ALICE, segmentation=large, encryption_overhead=overhead
        ).machine.outgoing.segmenter.chunk_bytes
        for overhead in (0, 1024, None)
    ]
    assert chunks[0] == chunks[1] + 1024
    assert chunks[1] == chunks[2]


def test_a_limit_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="leave no room"):
        Participant(ALICE, max_message_bytes=1000)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"content_topic": "/app/1/other/proto"}, ["content_topic"]),
        ({"sender_id": CAROL}, ["sender_id"]),
        ({"sds": SdsConfig(bloom_capacity=11)}, ["bloom_capacity"]),
        (
            {"sds": SdsConfig(bloom_capacity=10, bloom_error_rate=0.01)},
            ["bloom_error_rate"],
        ),
        (
            {
                "content_topic": "/app/1/other/proto",
                "sender_id": CAROL,
                "sds": SdsConfig(bloom_capacity=0, bloom_error_rate=0.1),
            },
            ["content_topic", "sender_id", "bloom_capacity", "bloom_error_rate"],
        ),
    ],
)
def test_kept_state_is_not_continued_under_other_settings(
    changes: dict[str, Any], names: list[str]
) -> None:
    kept = Participant(BOB, sds=SdsConfig(bloom_capacity=10)).snapshot()
    settings: dict[str, Any] = {
        "channel_id": CHANNEL,
        "content_topic": TOPIC,
        "sender_id": BOB,
        "sds": SdsConfig(bloom_capacity=10),
        "now": NOW,
        "seed": 1,
        "snapshot": kept,
    }
    ChannelMachine(**settings)
    with pytest.raises(ConfigurationError) as caught:
        ChannelMachine(**{**settings, **changes})
    assert [problem.split(" ")[0] for problem in caught.value.problems] == names
    assert all("purge" in problem for problem in caught.value.problems)
    assert "\n" not in str(caught.value)


def test_settings_that_may_change_do() -> None:
    receiver = Participant(BOB, sds=NO_FILTER)
    receiver.receive(content_message(cut(b"hello")[0]))
    other = replace(NO_FILTER, acknowledgement_timeout_ms=100, causal_history_size=5)
    again = Participant(BOB, snapshot=receiver.snapshot(), sds=other, segmentation=PARITY)
    assert again.status().known_messages == 1
