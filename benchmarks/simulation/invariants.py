"""What must hold of any run, whatever went wrong in it.

The functions named ``*_problems`` read journals, statuses and charges and return a sentence for each breach. They must
not change what they read, nor know how it came about.

Spec: RELIABLE-CHANNEL-API; LIP-109 (SDS); docs/wire.md for what is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from benchmarks.simulation.journal import Charge, Journal, Step
from benchmarks.simulation.participant import Participant
from benchmarks.simulation.scenario import START_NS, Scenario
from reliable_channel.config import RateLimitConfig
from reliable_channel.core.machine import ChannelMachine, ChannelStatus
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.records import (
    AcknowledgementRecord,
    AnswerRecord,
    AskedRecord,
    BodyRecord,
    CompletedRecord,
    DebtRecord,
    LogRecord,
    LostRecord,
    MissingRecord,
    OutgoingRecord,
    ParityRecord,
    PendingRecord,
    Record,
    RecordKey,
    RequestRecord,
)
from reliable_channel.types import SECOND, MessageId, Nanoseconds, ParticipantId, RequestId

SHOWN_PROBLEMS: Final = 12
"""Problems that the text of a failed check lists."""


class InvariantError(AssertionError):
    """A run broke what must hold of every run.

    Args:
        scenario: What was played.
        problems: By the name of what was broken.
    """

    def __init__(self, scenario: Scenario, problems: Mapping[str, Sequence[str]]) -> None:
        self.scenario = scenario
        self.problems = problems
        lines = [f"seed {scenario.seed}; to see it again: {scenario.command}"]
        for name, found in problems.items():
            lines.extend(f"{name}: {text}" for text in found[:SHOWN_PROBLEMS])
            if len(found) > SHOWN_PROBLEMS:
                lines.append(f"{name}: and {len(found) - SHOWN_PROBLEMS} more")
        super().__init__("\n".join(lines))


def failed_requests(journals: Iterable[Journal]) -> set[RequestId]:
    """Return the requests that ended in a send error: nobody has to get those messages."""
    return {
        event.request_id
        for journal in journals
        for event in journal.events
        if isinstance(event, MessageSendErrorEvent)
    }


def undelivered_requests(journals: Iterable[Journal]) -> set[RequestId]:
    """Return the requests that ended in a delivery error: nobody is known to have those messages."""
    return {
        event.request_id
        for journal in journals
        for event in journal.events
        if isinstance(event, MessageDeliveryErrorEvent)
    }


def lost_ids(journal: Journal) -> set[MessageId]:
    """Return what a participant was told is lost."""
    return {event.message_id for event in journal.events if isinstance(event, MessageLostEvent)}


def names_of(journals: Iterable[Journal]) -> dict[MessageId, MessageId]:
    """Return of each segment's id that of its message: one whose first segment was rebuilt may go by another's."""
    return {
        segment: step.message_id
        for journal in journals
        for step in journal.sent()
        for segment in step.segments
    }


def delivery_problems(journals: Sequence[Journal], *, excused: bool = False) -> list[str]:
    """Say where a message was not delivered exactly once, unchanged, at each live participant.

    Ephemeral messages may get lost. A participant that joined later may have messages from before, once.

    Args:
        journals: Of all participants.
        excused: There were crashes. A message need not arrive of which its sender was told that nobody acknowledged it,
            or its receiver that it is lost; an ephemeral one may come again after a restart.
    """
    failed = failed_requests(journals)
    if excused:
        failed |= undelivered_requests(journals)
    sent = {step.message_id: step for journal in journals for step in journal.sent()}
    names = names_of(journals)
    problems: list[str] = []
    for journal in journals:
        counts: Counter[MessageId] = Counter()
        for step in journal.delivered():
            name = names.get(step.message_id, step.message_id)
            counts[name] += 1
            origin = sent.get(name)
            if origin is None:
                problems.append(
                    f"{journal.sender_id} delivered {step.message_id}, which nobody sent"
                )
            elif (origin.payload, origin.sender_id, origin.ephemeral) != (
                step.payload,
                step.sender_id,
                step.ephemeral,
            ):
                problems.append(f"{journal.sender_id} delivered {step.message_id} changed")
            if counts[name] == 2 and not (excused and step.ephemeral):
                problems.append(f"{journal.sender_id} delivered {step.message_id} again")
        if journal.is_live:
            lost = lost_ids(journal) if excused else set()
            problems.extend(
                f"{journal.sender_id} lacks {step.message_id} of {step.sender_id}"
                for step in sent.values()
                if step.message_id not in counts
                and _is_owed(step, journal, failed)
                and lost.isdisjoint(step.segments or (step.message_id,))
            )
    return problems


def _is_owed(step: Step, journal: Journal, failed: Collection[RequestId]) -> bool:
    return (
        step.sender_id != journal.sender_id
        and not step.ephemeral
        and step.time_ns >= journal.joined_ns
        and step.request_id not in failed
    )


def order_problems(journals: Sequence[Journal], *, excused: bool = False) -> list[str]:
    """Say where a message came before one that its sender had sent or delivered before it.

    Ephemeral messages have no place in the order; one that is marked late has lost its own, and what was sent before
    a participant joined has none for that participant.

    Args:
        journals: Of all participants.
        excused: There were crashes. What a message comes after is not known to a receiver that was told that the one
            between them is lost.
    """
    names = names_of(journals)
    sent_ns = {step.message_id: step.time_ns for journal in journals for step in journal.sent()}
    places_of = [_places(journal, sent_ns, names) for journal in journals]
    lost_of = [
        {names.get(item, item) for item in lost_ids(journal)} if excused else set()
        for journal in journals
    ]
    problems: list[str] = []
    for sender in journals:
        steps = _in_order(sender, names)
        for receiver, places, lost in zip(journals, places_of, lost_of, strict=True):
            if receiver is sender:
                continue
            latest, cause = -1, ""
            for name, step in steps:
                if name in lost:
                    latest = -1
                place = places.get(name, -1)
                if step.request_id and -1 < place < latest:
                    problems.append(
                        f"{receiver.sender_id} delivered {step.message_id} of {sender.sender_id} "
                        f"before {cause}, which comes before it"
                    )
                if place > latest:
                    latest, cause = place, step.message_id
    return problems


def _places(
    receiver: Journal,
    sent_ns: Mapping[MessageId, Nanoseconds],
    names: Mapping[MessageId, MessageId],
) -> dict[MessageId, int]:
    """Return where each message that has a place in the order first came in a journal."""
    found: dict[MessageId, int] = {}
    for place, step in enumerate(receiver.steps):
        name = names.get(step.message_id, step.message_id)
        if step.late or step.ephemeral or sent_ns.get(name, START_NS) < receiver.joined_ns:
            continue
        found.setdefault(name, place)
    return found


def _in_order(
    sender: Journal, names: Mapping[MessageId, MessageId]
) -> list[tuple[MessageId, Step]]:
    """Return what a participant sent and what came before that, each message once."""
    found: dict[MessageId, Step] = {}
    end = 0
    for step in sender.steps:
        if step.ephemeral:
            continue
        # An equal payload: with ids of the content the same message again.
        found.setdefault(names.get(step.message_id, step.message_id), step)
        if step.request_id:
            end = len(found)
    return list(found.items())[:end]


def request_problems(journals: Sequence[Journal]) -> list[str]:
    """Say where a request did not end in exactly one final event, or one came for no request.

    Final are delivered, send-error and delivery-error; of an ephemeral request sent and send-error.
    """
    problems: list[str] = []
    for journal in journals:
        own = {step.request_id: step for step in journal.sent()}
        finals: Counter[RequestId] = Counter()
        for event in journal.events:
            match event:
                case (
                    MessageSendErrorEvent() | MessageDeliveredEvent() | MessageDeliveryErrorEvent()
                ):
                    finals[event.request_id] += 1
                case MessageSentEvent() if event.request_id in own:
                    finals[event.request_id] += own[event.request_id].ephemeral
        problems.extend(
            f"{journal.sender_id}: request {request_id} ended {finals[request_id]} times"
            for request_id in own
            if finals[request_id] > 1 or (journal.is_live and not finals[request_id])
        )
        problems.extend(
            f"{journal.sender_id}: {request_id}, which is no request, ended"
            for request_id in finals
            if request_id not in own
        )
    return problems


def key_problems(journals: Sequence[Journal]) -> list[str]:
    """Say where more than one message was sent under one idempotency key."""
    return [
        f"{journal.sender_id}: {count} messages were sent under the key {key!r}"
        for journal in journals
        for key, count in Counter(step.key for step in journal.sent()).items()
        if key and count > 1
    ]


def sequence_problems(journals: Sequence[Journal]) -> list[str]:
    """Say where the durable events of a participant are not numbered from 1 without gaps."""
    return [
        f"{journal.sender_id}: event {event.name} at place {place} has sequence {event.sequence}"
        for journal in journals
        for place, event in enumerate(journal.events, start=1)
        if event.sequence != place
    ]


def shown_problems(journals: Iterable[Journal]) -> list[str]:
    """Say where an application that reads on from its last event was not given each kept event once, as it was kept."""
    problems = []
    for journal in journals:
        expected = journal.events if journal.is_live else journal.events[: len(journal.shown)]
        if journal.shown == expected:
            continue
        place = next(
            (
                at
                for at, (one, other) in enumerate(zip(journal.shown, expected, strict=False))
                if one != other
            ),
            min(len(journal.shown), len(expected)),
        )
        problems.append(
            f"{journal.sender_id}: {len(journal.shown)} events were shown and {len(expected)} kept; "
            f"the first that differ are {journal.shown[place : place + 1]} and "
            f"{expected[place : place + 1]}"
        )
    return problems


def wrap_problems(journals: Iterable[Journal]) -> list[str]:
    """Say where a wrap time was not later than the one before it of the same sender."""
    problems = []
    for journal in journals:
        latest = 0
        for step in journal.sent():
            if step.wrap_ns and step.wrap_ns <= latest:
                problems.append(
                    f"{journal.sender_id}: {step.message_id} has wrap time {step.wrap_ns}, "
                    f"{latest - step.wrap_ns} ns before one that was used"
                )
            latest = max(latest, step.wrap_ns)
    return problems


def acknowledgement_problems(participants: Sequence[Participant]) -> list[str]:
    """Say what a sender was told that a participant has, and that participant does not keep."""
    by_name = {who.sender_id: who for who in participants}
    problems = []
    for who in participants:
        own = {step.request_id: step for step in who.journal.sent()}
        for record in who.rows.get(AcknowledgementRecord, {}).values():
            assert isinstance(record, AcknowledgementRecord)
            receiver, step = by_name[record.participant_id], own[record.request_id]
            mask = int.from_bytes(record.segments, "little")
            held = receiver.rows.get(LogRecord, {})
            lost = lost_ids(receiver.journal)
            problems += [
                f"{receiver.sender_id} acknowledged {message_id} of {who.sender_id}, "
                "which is not in its log"
                for index, message_id in enumerate(step.segments)
                if mask >> index & 1
                and (message_id,) not in held
                and lost.isdisjoint(step.segments)
            ]
    return problems


QUIET_FIELDS: Final = (
    "open_requests",
    "waiting",
    "in_flight",
    "incomplete_payloads",
    "parked_messages",
    "missing_messages",
    "owed_acknowledgements",
)
"""What is 0 in the status of a channel that has nothing left to do."""


def quiet_problems(statuses: Iterable[ChannelStatus]) -> list[str]:
    """Say what a channel still has open, parked, missing or owed."""
    return [
        f"{status.sender_id}: {name} is {getattr(status, name)}"
        for status in statuses
        for name in QUIET_FIELDS
        if getattr(status, name)
    ]


def row_problems(participants: Iterable[Participant]) -> list[str]:
    """Say which rows a channel keeps of what it has let go, and of what it holds keeps none.

    Rows of segments are looked at where nothing is incomplete and nothing parked.
    """
    problems = []
    for who in participants:
        if who.machine is None or who.committing:
            continue
        status = who.machine.status()
        if not status.incomplete_payloads and not status.parked_messages:
            problems += [
                f"{who.sender_id}: {len(rows)} rows of {kind.__name__} are left"
                for kind in (PendingRecord, ParityRecord)
                if (rows := who.rows.get(kind))
            ]
        for kind, held, lasting in held_rows(who.machine):
            kept = set(who.rows.get(kind, ()))
            if left := len(kept - held):
                problems.append(f"{who.sender_id}: {left} rows of {kind.__name__} are left")
            if lasting and (lacking := len(held - kept)):
                problems.append(f"{who.sender_id}: {lacking} rows of {kind.__name__} are lacking")
    return problems


def held_rows(machine: ChannelMachine) -> list[tuple[type[Record], set[RecordKey], bool]]:
    """Return the keys of the rows that what a machine holds can have, and whether each must be there."""
    book, state = machine.outgoing.book, machine.state
    answers = machine.outgoing.responder.answers
    acknowledged = {
        (request.request_id, participant)
        for request in book.requests.values()
        for participant in request.acknowledged
    }
    outgoing = {(item.request.request_id, item.index) for item in book.segments.values()}
    bodies = {item.message_id for item in book.segments.values()} | set(state.archive.messages)
    return [
        (LogRecord, {(item,) for item in state.log.known}, True),
        (RequestRecord, {(item,) for item in book.requests}, True),
        (OutgoingRecord, set(outgoing), True),
        (AcknowledgementRecord, set(acknowledged), True),
        (DebtRecord, {(item,) for item in state.debt}, True),
        (LostRecord, {(item,) for item in machine.causal.lost.ids}, True),
        (MissingRecord, {(item,) for item in machine.gaps.missing.messages}, True),
        (
            AskedRecord,
            {(key,) for key, item in state.repairs.requests.items() if item.is_kept},
            True,
        ),
        (
            AnswerRecord,
            {(item,) for item in (*answers.pending, *answers.answered)},
            True,
        ),
        (CompletedRecord, {(item,) for item in machine.reassembler.completed}, False),
        (
            BodyRecord,
            {(item, part) for item in bodies for part in ("message", "header", "content")},
            False,
        ),
    ]


def budget_problems(charges: Iterable[Charge], config: RateLimitConfig) -> list[str]:
    """Say where a participant used more than the budget of an epoch.

    What is made or reported after a boundary counts in both epochs, also when the process had died by then.
    """
    period = config.epoch_period_sec * SECOND
    used: Counter[tuple[ParticipantId, int]] = Counter()
    for charge in charges:
        for epoch in {
            charge.taken_ns // period,
            charge.made_ns // period,
            charge.reported_ns // period,
        }:
            used[charge.sender_id, epoch] += 1
    return [
        f"{sender_id} used {count} of {config.messages_per_epoch} messages in epoch {epoch}"
        for (sender_id, epoch), count in sorted(used.items())
        if count > config.messages_per_epoch
    ]


def problems_of(
    scenario: Scenario, participants: Sequence[Participant], charges: Iterable[Charge]
) -> dict[str, list[str]]:
    """Return what a run broke, by the name of what must hold; empty when all is well.

    Args:
        scenario: What was played; with crashes or churn in it, what was reported as failed or lost is excused.
        participants: All of them.
        charges: What counts against their budgets.
    """
    journals = [who.journal for who in participants]
    machines = [who.machine for who in participants if who.machine is not None]
    excused = scenario.is_excused
    found = {
        "delivery": delivery_problems(journals, excused=excused),
        "order": order_problems(journals, excused=excused),
        "requests": request_problems(journals),
        "keys": key_problems(journals),
        "sequence": sequence_problems(journals),
        "shown": shown_problems(journals),
        "wraps": wrap_problems(journals),
        "acknowledged": acknowledgement_problems(participants),
        "quiet": quiet_problems(machine.status() for machine in machines),
        "rows": row_problems(participants),
    }
    if scenario.rate_limit.enabled:
        found["budget"] = budget_problems(charges, scenario.rate_limit)
    return {name: texts for name, texts in found.items() if texts}
