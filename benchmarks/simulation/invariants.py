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
from reliable_channel.core.machine import ChannelStatus
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.records import ParityRecord, PendingRecord
from reliable_channel.types import SECOND, MessageId, ParticipantId, RequestId

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


def delivery_problems(journals: Sequence[Journal]) -> list[str]:
    """Say where a message was not delivered exactly once, unchanged, at each live participant.

    Ephemeral messages may get lost. A participant that joined later may have messages from before, once.
    """
    failed = failed_requests(journals)
    sent = {step.message_id: step for journal in journals for step in journal.sent()}
    problems: list[str] = []
    for journal in journals:
        counts: Counter[MessageId] = Counter()
        for step in journal.delivered():
            counts[step.message_id] += 1
            origin = sent.get(step.message_id)
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
            if counts[step.message_id] == 2:
                problems.append(f"{journal.sender_id} delivered {step.message_id} again")
        if journal.is_live:
            problems.extend(
                f"{journal.sender_id} lacks {step.message_id} of {step.sender_id}"
                for step in sent.values()
                if step.message_id not in counts and _is_owed(step, journal, failed)
            )
    return problems


def _is_owed(step: Step, journal: Journal, failed: Collection[RequestId]) -> bool:
    return (
        step.sender_id != journal.sender_id
        and not step.ephemeral
        and step.time_ns >= journal.joined_ns
        and step.request_id not in failed
    )


def order_problems(journals: Sequence[Journal]) -> list[str]:
    """Say where a message came before one that its sender had sent or delivered before it.

    Ephemeral messages have no place in the order; one that is marked late has lost its own, and what was sent before
    a participant joined has none for that participant.
    """
    sent_ns = {step.message_id: step.time_ns for journal in journals for step in journal.sent()}
    problems: list[str] = []
    for sender in journals:
        steps = [step for step in sender.steps if not step.ephemeral]
        for receiver in journals:
            if receiver is sender:
                continue
            places = {
                step.message_id: place
                for place, step in enumerate(receiver.steps)
                if not step.late
                and not step.ephemeral
                and sent_ns.get(step.message_id, START_NS) >= receiver.joined_ns
            }
            latest, cause = -1, ""
            for step in steps:
                place = places.get(step.message_id, -1)
                if step.request_id and -1 < place < latest:
                    problems.append(
                        f"{receiver.sender_id} delivered {step.message_id} of {sender.sender_id} "
                        f"before {cause}, which comes before it"
                    )
                if place > latest:
                    latest, cause = place, step.message_id
    return problems


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


def sequence_problems(journals: Sequence[Journal]) -> list[str]:
    """Say where the durable events of a participant are not numbered from 1 without gaps."""
    return [
        f"{journal.sender_id}: event {event.name} at place {place} has sequence {event.sequence}"
        for journal in journals
        for place, event in enumerate(journal.events, start=1)
        if event.sequence != place
    ]


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
    """Say which rows of segments a channel keeps that has nothing incomplete and nothing parked."""
    problems = []
    for who in participants:
        status = who.machine.status() if who.machine is not None else None
        if status is None or status.incomplete_payloads or status.parked_messages:
            continue
        problems += [
            f"{who.sender_id}: {len(rows)} rows of {kind.__name__} are left"
            for kind in (PendingRecord, ParityRecord)
            if (rows := who.rows.get(kind))
        ]
    return problems


def budget_problems(charges: Iterable[Charge], config: RateLimitConfig) -> list[str]:
    """Say where a participant used more than the budget of an epoch.

    What is reported after a boundary counts in both epochs.
    """
    period = config.epoch_period_sec * SECOND
    used: Counter[tuple[ParticipantId, int]] = Counter()
    for charge in charges:
        for epoch in {charge.made_ns // period, charge.reported_ns // period}:
            used[charge.sender_id, epoch] += 1
    return [
        f"{sender_id} used {count} of {config.messages_per_epoch} messages in epoch {epoch}"
        for (sender_id, epoch), count in sorted(used.items())
        if count > config.messages_per_epoch
    ]
