"""What is outside causal order: ephemeral messages, and parity."""

from __future__ import annotations

import pytest

from reliable_channel.events import MessageReceivedEvent
from reliable_channel.records import PendingRecord
from tests.support.builders import (
    CAROL,
    PARITY,
    PAYLOAD,
    bob,
    content_message,
    cut,
    entries,
    ephemeral_message,
    messages_of,
    settled,
    sync_message,
)


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


def test_late_parity_is_counted_and_forgotten() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD, parity_count=1)
    receiver.receive(*messages, messages[3])
    assert receiver.received == [PAYLOAD]
    assert receiver.counted("late_segments") == 1
    assert receiver.counted("duplicates") == 1
    assert receiver.status().incomplete_payloads == 0


def test_the_parity_of_one_segment_is_no_second_message() -> None:
    """A foreign sender may add parity to a single segment: it is the same bytes once more."""
    receiver = bob()
    data, parity = cut(b"x" * 64, parity_count=1)
    assert data.payload == parity.payload
    receiver.receive(content_message(data), ephemeral_message(parity))
    assert receiver.received == [b"x" * 64]


def test_a_claim_does_not_keep_parity_away() -> None:
    receiver = bob(segmentation=PARITY)
    messages = messages_of(PAYLOAD, parity_count=1)
    receiver.receive(sync_message(sender_id=CAROL, message_id=messages[3].message_id))
    receiver.receive(messages[0], messages[1], messages[3])
    assert receiver.received == [PAYLOAD]
