"""Recorded runs of `@waku/sds` 0.0.8, with our machine in the place of one of its participants.

What a trace shows of a participant is compared as far as it can be observed from outside:

* It is given the recorded messages at the recorded times, and has to accept, deliver and acknowledge the same ids.
* The peer delivers what waited for a dependency only on its periodic sweep, ours at once. So after every step ours
  has delivered what the peer has, in the same order, and besides at most what still lies in the peer's incoming buffer.
* Own messages get other ids here (keccak of sender, time and content, not SHA-256 of the payload). So the machine is
  opened with kept rows in which it has sent what the trace lets the participant send, under the recorded ids: what
  others acknowledge of them can then be compared one to one, possible acknowledgements by bloom filters included.
* At the end our bloom filter has the bytes of the peer's: others learn of the same ids from either; and our next sync
  message names everything that we received.

Not compared: what the participant itself puts on the wire (ids, sync contents, sweeps, repair) and internal states.
Times of a trace may go back, for the clock is one for all; ours stands still then. Traces that depart from the
specification are skipped with the recorded reason.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, Final

import pytest

from reliable_channel.config import SdsConfig
from reliable_channel.core.requests import RequestState, SegmentState
from reliable_channel.core.wire import SdsMessage, content_suffix
from reliable_channel.events import MessageDeliveredEvent, MessageReceivedEvent
from reliable_channel.records import BodyRecord, LogRecord, OutgoingRecord, RequestRecord, Snapshot
from reliable_channel.types import MS, MessageId, ParticipantId
from tests.support.builders import Participant
from tests.support.js_vectors import VECTORS, Record, blob, optional_blob

DELIVERED: Final = "sds:in:message-delivered"
ACKNOWLEDGED: Final = "sds:out:message-acknowledged"

NEVER_MS: Final = 1 << 40
"""A timeout that no trace reaches: the peer of the traces waits for ever, too."""


def roles() -> list[Any]:
    """Return every trace with each participant that receives something in it."""
    found = []
    for trace in VECTORS["traces"]:
        flag = trace["diverges_from_spec"]
        marks = [pytest.mark.skip(reason=f"not as specified: {flag}")] if flag else []
        receivers = {step["who"] for step in trace["steps"] if step["op"] == "receive"}
        found += [
            pytest.param(trace, who, id=f"{trace['name']}, {who}", marks=marks)
            for who in sorted(receivers)
        ]
    return found


def sent_by(trace: Record, who: ParticipantId) -> dict[MessageId, SdsMessage]:
    """Return the content messages that a participant hands to its transport with success, by id."""
    found = {}
    for step in trace["steps"]:
        if step["op"] == "send" and step["who"] == who and step["transport"] == "ok":
            message = SdsMessage.decode(blob(trace["wires"][step["out"]["wire"]]))
            found.setdefault(message.message_id, message)
    return found


def rows_of_sent(sent: dict[MessageId, SdsMessage]) -> Snapshot:
    """Return what a store would hold of a channel in which these messages were sent."""
    log, requests, outgoing, bodies = [], [], [], []
    for message_id, message in sent.items():
        content = message.content or b""
        lamport = message.lamport_timestamp or 0
        log.append(
            LogRecord(
                message_id=message_id,
                lamport_timestamp=lamport,
                sender_id=message.sender_id,
                retrieval_hint=None,
                logged=True,
                segment_index=0,
                segment_count=1,
            )
        )
        requests.append(
            RequestRecord(
                request_id=message_id,
                created_ns=lamport * MS,
                payload_bytes=len(content),
                segment_count=1,
                ephemeral=False,
                sent=True,
                state=str(RequestState.OPEN),
                error="",
                leader=None,
            )
        )
        outgoing.append(
            OutgoingRecord(
                request_id=message_id,
                segment_index=0,
                message_id=message_id,
                lamport_timestamp=lamport,
                history=tuple(entry.message_id for entry in message.causal_history),
                propagated=True,
                transmissions=1,
                retransmissions=0,
                deadline_ns=0,
            )
        )
        header = replace(message, content=None).encode()
        bodies += [
            BodyRecord(message_id=message_id, part="content", data=content_suffix(content)),
            BodyRecord(message_id=message_id, part="header", data=header),
        ]
    return {LogRecord: log, RequestRecord: requests, OutgoingRecord: outgoing, BodyRecord: bodies}


def play(create: Record, sent: dict[MessageId, SdsMessage]) -> Participant:
    """Return our participant in the place of the recorded one."""
    options = create["options"]
    return Participant(
        create["who"],
        now=create["now_ms"] * MS,
        snapshot=rows_of_sent(sent),
        channel_id=create["channel_id"],
        sds=SdsConfig(
            possible_ack_threshold=options["possible_acks_threshold"],
            acknowledgement_timeout_ms=NEVER_MS,
            dependency_timeout_ms=NEVER_MS,
            sync_interval_ms=NEVER_MS,
            max_sync_interval_ms=NEVER_MS,
        ),
    )


def raised(step: Record, name: str) -> list[MessageId]:
    """Return what the events of one name in a step are about."""
    return [detail for event, detail in step["events"] if event == name]


def check_step(
    ours: Participant, step: Record, delivered: list[MessageId], acknowledged: set[MessageId]
) -> None:
    """Compare our participant with the recorded one after a step."""
    received = [event.message_id for event in ours.of(MessageReceivedEvent)]
    assert len(set(received)) == len(received)
    assert [item for item in received if item in set(delivered)] == delivered
    assert set(received) - set(delivered) <= set(step["state"]["incoming"])
    ended = [event.request_id for event in ours.of(MessageDeliveredEvent)]
    assert sorted(ended) == sorted(acknowledged)
    outgoing = set(step["state"]["outgoing"])
    possibly = {item for item, _ in step["state"]["possible_acks"]} & outgoing
    states = {item: ours.request(item).segments[0].state for item in outgoing - acknowledged}
    assert {
        item for item, state in states.items() if state is SegmentState.POSSIBLY_ACKNOWLEDGED
    } == possibly


@pytest.mark.parametrize(("trace", "who"), roles())
def test_we_do_what_the_recorded_participant_did(trace: Record, who: ParticipantId) -> None:
    """LIP-109 (SDS): accept, deliver in causal order, review acknowledgements; as recorded of the peer."""
    steps = [step for step in trace["steps"] if step.get("who") == who]
    assert steps[0]["op"] == "create"
    sent = sent_by(trace, who)
    ours = play(steps[0], sent)
    delivered: list[MessageId] = []
    acknowledged: set[MessageId] = set()
    accepted: dict[MessageId, SdsMessage] = {}
    named_by: dict[MessageId, set[ParticipantId]] = {}
    unsent = set(sent)
    for step in steps[1:]:
        unsent.discard((step.get("out") or {}).get("message_id", ""))
        if step["op"] == "receive":
            ours.advance(max(0, step["now_ms"] * MS - ours.now))
            data = blob(trace["wires"][step["wire"]])
            ours.receive(data, hint=optional_blob(step["retrieval_hint"]))
            message = SdsMessage.decode(data)
            assert "sds:error-task" not in [name for name, _ in step["events"]]
            if any(name.startswith("sds:in:") for name, _ in step["events"]):
                if message.content:
                    accepted[message.message_id] = message
                    assert message.message_id in ours.machine.state.log
                for item in raised(step, ACKNOWLEDGED):
                    named_by.setdefault(item, set()).add(message.sender_id)
        delivered += [item for item in raised(step, DELIVERED) if item not in delivered]
        acknowledged.update(raised(step, ACKNOWLEDGED))
        check_step(ours, step, delivered, acknowledged)
    assert unsent == set()
    assert ours.lost == []

    # What it gave out, it gave out whole; and who acknowledged, is said.
    for event in ours.of(MessageReceivedEvent):
        assert (event.message, event.sender_id, event.late) == (
            accepted[event.message_id].content,
            accepted[event.message_id].sender_id,
            False,
        )
    for request_id, participants in named_by.items():
        assert set(ours.request(request_id).recipients) == participants

    # What it accepted, it acknowledges: by the same filter, and by name.
    filter_bytes = ours.machine.state.log.bloom_bytes()
    assert filter_bytes is not None
    assert hashlib.sha256(filter_bytes).hexdigest() == steps[-1]["state"]["bloom_sha256"]
    assert ours.status().owed_acknowledgements == len(accepted)
    before = len(ours.syncs)
    ours.advance(NEVER_MS * MS // 2)
    named = {
        entry.message_id for sync in ours.syncs[before:] for entry in sync.message.causal_history
    }
    assert named >= set(accepted)


def test_every_trace_is_used_or_has_its_reason() -> None:
    traces = VECTORS["traces"]
    assert len(traces) == 33
    names = [role.values[0]["name"] for role in roles() if not role.marks]
    assert len(set(names)) == 17
    unused = {trace["name"] for trace in traces if not trace["diverges_from_spec"]} - set(names)
    assert unused == {
        "lamport clock under several sends in one millisecond",
        "transport failure then retry",
        "transport throws",
    }, "in these nobody receives anything"
