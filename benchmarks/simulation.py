"""A group of real channel machines on a lossy network, in virtual time: a whole conversation in a fraction of a second.

::

    workload ─► send ─► machine ─► persist ─► node ─► network ─► receive ─► machine ─► …
                           ▲          │         │        └─► store ─► fetched
                           └ snapshot ┘         └─► published / publish_failed

A `Scenario` is data and says everything: who takes part, what the network, the nodes and the store do wrong, when
somebody joins, restarts or is cut off. `Simulation` plays it, or is driven step by step. The same scenario gives the
same trace, byte for byte: every draw comes from a stream of its own, named by seed and purpose, so that another
workload does not change the faults and another machine does not change the workload. The functions named
``*_problems`` say what must hold of any run, whatever went wrong in it.

Nothing here sleeps, reads a clock or runs concurrently. Encryption and segment sizes of a real node are not
simulated; machines see the bytes that other machines published.

``python -m benchmarks.simulation --seed 7 --scenario '{"faults": {"loss": 0.3}}'`` plays one scenario; it is the line
that a failed check prints.

Spec: RELIABLE-CHANNEL-API; LIP-109 (SDS); docs/wire.md for what is checked.
"""

from __future__ import annotations

import argparse
import heapq
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from messaging_adapter.faults import LinkFaults
from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.core.effects import Effects, Publish
from reliable_channel.core.machine import ChannelMachine, ChannelStatus
from reliable_channel.core.rate_limit import ChannelBudget, EpochRateLimiter
from reliable_channel.errors import ChannelFullError
from reliable_channel.events import (
    ChannelEvent,
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.records import ChannelRecord, LedgerRecord, Record, RecordKey
from reliable_channel.types import (
    MS,
    SECOND,
    MessageId,
    Nanoseconds,
    ParticipantId,
    RequestId,
)

START_NS: Final = 1_700_000_000 * SECOND
"""Virtual Unix time at which every simulation begins: some day in November 2023."""

CHANNEL_ID: Final = "simulation"
CONTENT_TOPIC: Final = "/simulation/1/group/proto"

CATCH_UP_MARGIN_NS: Final = 5 * SECOND
"""After a restart the store is asked from this long before the last message seen, as the driver does."""

SETTLE_STEP_MS: Final = 250.0
"""How often `Simulation.settle` looks whether there is anything left to do, milliseconds of virtual time."""

SHOWN_PROBLEMS: Final = 12
"""Problems that the text of a failed check lists."""

SCALED_SDS: Final = SdsConfig(
    acknowledgement_timeout_ms=500,
    sync_interval_ms=3_000,
    max_sync_interval_ms=60_000,
    dependency_timeout_ms=60_000,
    repair_t_min_ms=3_000,
    repair_t_max_ms=12_000,
    bloom_capacity=500,
)
"""The default settings with times a tenth as long, and a filter for conversations of a few hundred messages."""


# -- what goes wrong --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFaults:
    """How the messaging node of each participant behaves; without faults it transmits at once.

    Rates are from 0 to 1, times in milliseconds.
    """

    transmit_ms: float = 0.0
    """Between the machine's ``Publish`` and the network; a crash in between loses the message."""
    report_ms: float = 10.0
    """Between the transmission and the report of its outcome."""
    report_jitter_ms: float = 0.0
    """Up to this much more, drawn evenly, so that reports overtake each other."""
    failure: float = 0.0
    """Rate of publications that fail; the same may work later."""
    false_failure: float = 0.0
    """Rate of publications that reach the network and are reported as failed all the same."""
    rejection: float = 0.0
    """Rate of publications that fail for good."""
    echo: float = 0.0
    """Rate of own messages that come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFaults:
    """How the network's store behaves; rates are from 0 to 1, times in milliseconds."""

    enabled: bool = True
    """Without it every query finds nothing."""
    loss: float = 0.0
    """Rate of transmissions that the store never gets."""
    lag_ms: float = 0.0
    """Between a transmission and the moment from which it can be looked up."""
    answer_ms: float = 100.0
    """Between a query and its answer."""
    failure: float = 0.0
    """Rate of queries that fail."""
    catch_up: bool = True
    """Whether a restarted participant asks for what it missed before it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A time in which some participants and the others do not hear each other; milliseconds from the beginning."""

    from_ms: float
    until_ms: float
    side: tuple[int, ...]
    """Indexes of those on one side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A participant that opens the channel later than the others, milliseconds from the beginning."""

    participant: int
    at_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A crash, and a new start from the kept rows; milliseconds from the beginning."""

    participant: int
    at_ms: float
    down_ms: float = 500.0
    torn: bool = False
    """The crash comes with the next effects: they are kept, but nothing of them is carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that decides the course of a simulation."""

    seed: int = 0
    participants: int = 3
    messages: int = 200
    """Payloads sent in all, each by somebody drawn from those present."""
    interval_ms: float = 50.0
    """Average distance of two sends."""
    payload_bytes: tuple[int, int] = (40, 80)
    """Smallest and largest payload, bytes."""
    ephemeral: float = 0.0
    """Share of the payloads that are sent as ephemeral."""
    clock_skew_ms: float = 0.0
    """Clocks of participants are wrong by up to this much, either way."""
    settle_ms: float = 120_000.0
    """Longest time after the last send until the run ends; it ends earlier when nothing is left to do."""
    faults: LinkFaults = field(default_factory=LinkFaults)
    """Of each receiver's copy."""
    node: NodeFaults = field(default_factory=NodeFaults)
    store: StoreFaults = field(default_factory=StoreFaults)
    partitions: tuple[Partition, ...] = ()
    joins: tuple[Join, ...] = ()
    restarts: tuple[Restart, ...] = ()
    sds: SdsConfig = SCALED_SDS
    segmentation: SegmentationConfig = field(default_factory=SegmentationConfig)
    rate_limit: RateLimitConfig = field(default_factory=RateLimitConfig)

    def to_json(self) -> str:
        """Return all that differs from the default but the seed, as one line of JSON."""
        return json.dumps(_differences(self, Scenario(seed=self.seed)))

    @classmethod
    def from_json(cls, text: str, *, seed: int = 0) -> Scenario:
        """Return the scenario that ``to_json`` wrote.

        Raises:
            ValueError: Not JSON, or values that no scenario can have.
            TypeError: Names that a scenario does not have.
        """
        values: dict[str, Any] = json.loads(text)
        values.setdefault("seed", seed)
        for name, build in _PARTS.items():
            if name in values:
                values[name] = build(values[name])
        return cls(**values)

    @property
    def command(self) -> str:
        """One line that plays it again."""
        line = ["python", "-m", "benchmarks.simulation", "--seed", str(self.seed)]
        text = self.to_json()
        return shlex.join(line if text == "{}" else [*line, "--scenario", text])


def _differences(value: Any, default: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that are not as in another one, in JSON's types."""
    found: dict[str, Any] = {}
    for item in fields(value):
        mine, theirs = getattr(value, item.name), getattr(default, item.name)
        if mine == theirs:
            continue
        if is_dataclass(mine):
            found[item.name] = _differences(mine, theirs)
        elif isinstance(mine, tuple) and mine and is_dataclass(mine[0]):
            found[item.name] = [
                {part.name: getattr(entry, part.name) for part in fields(entry)} for entry in mine
            ]
        else:
            found[item.name] = mine
    return found


def _sds(values: dict[str, Any]) -> SdsConfig:
    scaled = {item.name: getattr(SCALED_SDS, item.name) for item in fields(SdsConfig)}
    return SdsConfig(**{**scaled, **values})


_PARTS: Final[dict[str, Callable[[Any], Any]]] = {
    "payload_bytes": tuple,
    "faults": lambda values: LinkFaults(**values),
    "node": lambda values: NodeFaults(**values),
    "store": lambda values: StoreFaults(**values),
    "partitions": lambda values: tuple(
        Partition(**{**entry, "side": tuple(entry["side"])}) for entry in values
    ),
    "joins": lambda values: tuple(Join(**entry) for entry in values),
    "restarts": lambda values: tuple(Restart(**entry) for entry in values),
    "sds": _sds,
    "segmentation": lambda values: SegmentationConfig(**values),
    "rate_limit": lambda values: RateLimitConfig(**values),
}


# -- what happened ----------------------------------------------------------------------------------


class Transmission(NamedTuple):
    """One message that a node gave to the network."""

    number: int
    """From 1, over all participants; its transport hash is made of it."""
    sender: int
    segment_id: RequestId
    data: bytes
    message_hash: bytes
    ephemeral: bool
    time_ns: Nanoseconds


class Step(NamedTuple):
    """One message at one participant: its own when sent, another's when delivered."""

    message_id: MessageId
    """Of its first data segment."""
    sender_id: ParticipantId
    payload: bytes
    time_ns: Nanoseconds
    ephemeral: bool = False
    late: bool = False
    """Delivered, but marked as later than what depends on it."""
    request_id: RequestId = ""
    """Of an own message; empty for one of another participant."""


@dataclass(slots=True)
class Journal:
    """What the application of one participant did and was told, in order, restarts included."""

    sender_id: ParticipantId
    joined_ns: Nanoseconds = 0
    """From then on it is to get every message."""
    is_live: bool = True
    """It is open at the end."""
    steps: list[Step] = field(default_factory=list)
    events: list[ChannelEvent] = field(default_factory=list)
    """All events that have a sequence."""

    def delivered(self) -> list[Step]:
        """Return the messages of others that were delivered."""
        return [step for step in self.steps if not step.request_id]

    def sent(self) -> list[Step]:
        """Return its own messages."""
        return [step for step in self.steps if step.request_id]


class StoredMessage(NamedTuple):
    """What the network's store has of a transmission."""

    sent_ns: Nanoseconds
    visible_ns: Nanoseconds
    """From then on it can be found."""
    data: bytes


class Charge(NamedTuple):
    """A transmission as an epoch budget sees it."""

    sender_id: ParticipantId
    made_ns: Nanoseconds
    reported_ns: Nanoseconds
    """When its outcome was reported; it counts in that epoch too."""


# -- what must hold ---------------------------------------------------------------------------------


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


# -- the run ----------------------------------------------------------------------------------------

LinkFilter: TypeAlias = Callable[[Transmission, int], bool]
"""Says whether the network carries a transmission to the participant with this index."""

Refusal: TypeAlias = Callable[[Publish, int], bool | None]
"""What the node of a participant says to a publication: None takes it, True fails it for now, False for good."""

Rows: TypeAlias = dict[type[Record], dict[RecordKey, Record]]


@dataclass(slots=True)
class Participant:
    """One participant: its machine while it is up, and what outlives the machine."""

    index: int
    sender_id: ParticipantId
    journal: Journal
    link: Random
    """Draws what becomes of its copies."""
    node: Random
    """Draws what its node does."""
    offset_ns: Nanoseconds = 0
    """How far its clock is ahead."""
    machine: ChannelMachine | None = None
    rows: Rows = field(default_factory=dict)
    generation: int = 0
    """Starts so far; reports to an earlier one are lost."""
    node_free_ns: Nanoseconds = 0
    wake_ns: Nanoseconds | None = None
    torn: bool = False

    def __repr__(self) -> str:
        return f"<Participant {self.sender_id}>"


class Simulation:
    """A group in virtual time.

    ``play`` runs a whole scenario. To script one instead: ``start``, then ``send``, ``after``, ``run``, ``settle``.

    Args:
        scenario: What to play.
        trace: Takes a line for every input and effect; None writes none.
        wire: Takes every transmission that reaches the network; None keeps none.
        carries: Asked for each copy besides the scenario's partitions; None carries all.
        refusal: Asked for each publication besides the scenario's faults; None takes all.
        on_event: The application of all participants: told of each event after its effects are carried out.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        trace: list[bytes] | None = None,
        wire: list[Transmission] | None = None,
        carries: LinkFilter | None = None,
        refusal: Refusal | None = None,
        on_event: Callable[[int, ChannelEvent], None] | None = None,
    ) -> None:
        self.scenario = scenario
        self.trace = trace
        self.wire = wire
        self.carries = carries
        self.refusal = refusal
        self.on_event = on_event
        self.now: Nanoseconds = START_NS
        self.transmissions = 0
        self.charges: list[Charge] = []
        self.counters: Counter[str] = Counter()
        self.workload = self._stream("workload")
        self._store = self._stream("store")
        self._stored: dict[bytes, StoredMessage] = {}
        self._events: list[tuple[Nanoseconds, int, Callable[[], None]]] = []
        self._order = 0
        self._under_way = 0
        self.participants = [self._participant(index) for index in range(scenario.participants)]

    def _stream(self, purpose: str) -> Random:
        """Return a random stream that depends on nothing but the seed and its purpose."""
        return Random(f"{self.scenario.seed}/{purpose}")

    def _participant(self, index: int) -> Participant:
        sender_id = f"p{index}"
        skew = self._stream(f"clock/{index}").uniform(-1, 1) * self.scenario.clock_skew_ms
        return Participant(
            index=index,
            sender_id=sender_id,
            journal=Journal(sender_id=sender_id, is_live=False),
            link=self._stream(f"link/{index}"),
            node=self._stream(f"node/{index}"),
            offset_ns=int(skew * MS),
        )

    # -- time -------------------------------------------------------------------------------------

    def at(self, time_ns: Nanoseconds, action: Callable[[], None]) -> None:
        """Do something at a time; what is set for the same time is done in the order of setting."""
        self._under_way += 1
        self._push(time_ns, partial(self._act, action))

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Do something later; 0 does it next."""
        self.at(self.now + int(delay_ms * MS), action)

    def _act(self, action: Callable[[], None]) -> None:
        self._under_way -= 1
        action()

    def _push(self, time_ns: Nanoseconds, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (max(time_ns, self.now), self._order, action))

    def run(self, duration_ms: float) -> None:
        """Let time pass."""
        end = self.now + int(duration_ms * MS)
        events = self._events
        while events and events[0][0] <= end:
            self.now, _, action = heapq.heappop(events)
            action()
        self.now = end

    def settle(self, limit_ms: float | None = None) -> bool:
        """Let time pass until nothing is left to do; say whether that was within the limit.

        Args:
            limit_ms: Longest time, the scenario's ``settle_ms`` when None.
        """
        limit = self.scenario.settle_ms if limit_ms is None else limit_ms
        end = self.now + int(limit * MS)
        while not self.is_settled():
            if self.now >= end:
                return False
            self.run(SETTLE_STEP_MS)
        return True

    def is_settled(self) -> bool:
        """Tell whether nothing is under way, every channel is quiet and everybody has everything."""
        return (
            not self._under_way
            and not quiet_problems(self.statuses())
            and not delivery_problems(self.journals)
        )

    # -- who is there -----------------------------------------------------------------------------

    @property
    def journals(self) -> list[Journal]:
        """The journals of all participants."""
        return [participant.journal for participant in self.participants]

    def machine(self, index: int) -> ChannelMachine:
        """Return the machine of a participant that is up."""
        machine = self.participants[index].machine
        assert machine is not None, f"p{index} is down"
        return machine

    def statuses(self) -> list[ChannelStatus]:
        """Return the status of every channel that is up."""
        return [item.machine.status() for item in self.participants if item.machine is not None]

    def counted(self, name: str) -> int:
        """Return the sum of a counter over the channels that are up."""
        return sum(status.counters.get(name, 0) for status in self.statuses())

    def start(self, *indexes: int) -> None:
        """Open the channel at participants, at all when none is named; kept rows are gone on from."""
        for index in indexes or range(len(self.participants)):
            self._start(self.participants[index])

    def _start(self, who: Participant) -> None:
        scenario, now = self.scenario, self.now + who.offset_ns
        limiter = EpochRateLimiter(scenario.rate_limit, restored=self._ledger(who))
        who.generation += 1
        who.machine = machine = ChannelMachine(
            channel_id=CHANNEL_ID,
            sender_id=who.sender_id,
            content_topic=CONTENT_TOPIC,
            now=now,
            seed=self._stream(f"protocol/{who.index}/{who.generation}").getrandbits(64),
            sds=scenario.sds,
            segmentation=scenario.segmentation,
            budget=ChannelBudget(limiter, None, CHANNEL_ID),
            snapshot={kind: list(table.values()) for kind, table in who.rows.items() if table},
        )
        who.node_free_ns = self.now
        who.wake_ns = None
        who.torn = False
        effects = Effects()
        if who.generation == 1:
            who.journal.joined_ns = self.now
        elif scenario.store.catch_up and scenario.store.enabled:
            effects.merge(self._catch_up(who, machine, now))
        who.journal.is_live = True
        effects.merge(machine.start(now))
        self._note(who, "start", b"")
        self._carry_out(who, effects)

    def _ledger(self, who: Participant) -> LedgerRecord | None:
        for record in who.rows.get(LedgerRecord, {}).values():
            assert isinstance(record, LedgerRecord)
            return record
        return None

    def _catch_up(self, who: Participant, machine: ChannelMachine, now: Nanoseconds) -> Effects:
        """Take what the store has since the last message seen, as the driver does before it starts."""
        effects = Effects()
        for record in who.rows.get(ChannelRecord, {}).values():
            assert isinstance(record, ChannelRecord)
            since = record.last_seen_ns - who.offset_ns - CATCH_UP_MARGIN_NS
            if not record.last_seen_ns:
                continue
            for message_hash, stored in self._stored.items():
                if stored.sent_ns >= since and stored.visible_ns <= self.now:
                    self._note(who, "catch up", stored.data)
                    effects.merge(machine.receive(stored.data, message_hash, now))
        return effects

    def crash(self, index: int) -> None:
        """Let a participant vanish at once: what its node has not transmitted is lost, the kept rows stay."""
        who = self.participants[index]
        who.machine = None
        who.journal.is_live = False
        self._note(who, "crash", b"")

    def tear(self, index: int) -> None:
        """Let a participant crash with its next effects, after they are kept and before they are carried out."""
        self.participants[index].torn = True

    # -- inputs -----------------------------------------------------------------------------------

    def send(self, index: int, payload: bytes, *, ephemeral: bool = False) -> RequestId:
        """Send a payload and carry the effects out."""
        who, machine = self.participants[index], self.machine(index)
        request_id, effects = machine.send(payload, self.now + who.offset_ns, ephemeral=ephemeral)
        step = Step(
            message_id=machine.request_status(request_id).segments[0].message_id,
            sender_id=who.sender_id,
            payload=payload,
            time_ns=self.now,
            ephemeral=ephemeral,
            request_id=request_id,
        )
        who.journal.steps.append(step)
        self._note(who, "send", payload)
        self._carry_out(who, effects)
        return request_id

    def inject(self, index: int, data: bytes, message_hash: bytes | None = None) -> None:
        """Let a participant receive bytes from nowhere."""
        who, machine = self.participants[index], self.machine(index)
        self._note(who, "receive", data)
        self._carry_out(who, machine.receive(data, message_hash, self.now + who.offset_ns))

    def _wake(self, who: Participant, generation: int) -> None:
        if who.machine is None or who.generation != generation or who.wake_ns != self.now:
            return
        who.wake_ns = None
        self._note(who, "tick", b"")
        self._carry_out(who, who.machine.tick(self.now + who.offset_ns))

    def _arrive(self, who: Participant, transmission: Transmission) -> None:
        self._under_way -= 1
        if who.machine is None:
            return
        self.counters["copies_received"] += 1
        self.inject(
            who.index,
            transmission.data,
            None if transmission.ephemeral else transmission.message_hash,
        )

    def _report(
        self,
        who: Participant,
        generation: int,
        transmission: Transmission,
        retryable: bool | None,
    ) -> None:
        """Tell a machine what became of a publication; None: it was published."""
        self._under_way -= 1
        if who.machine is None or who.generation != generation:
            return
        segment_id, now = transmission.segment_id, self.now + who.offset_ns
        if retryable is None:
            self._note(who, "published", segment_id.encode())
            effects = who.machine.published(segment_id, transmission.message_hash, now)
        else:
            self._note(who, f"failed {retryable}", segment_id.encode())
            effects = who.machine.publish_failed(
                segment_id, "the node failed", now, retryable=retryable
            )
        self._carry_out(who, effects)

    def _answer(
        self, who: Participant, generation: int, found: list[tuple[bytes, bytes]] | None
    ) -> None:
        """Give a machine the answer of the store; None: it could not be asked."""
        self._under_way -= 1
        if who.machine is None or who.generation != generation:
            return
        now = self.now + who.offset_ns
        if found is None:
            self._note(who, "fetch failed", b"")
            effects = who.machine.fetch_failed(now)
        else:
            self._note(who, "fetched", b"".join(data for _, data in found))
            effects = who.machine.fetched(found, now)
        self._carry_out(who, effects)

    # -- effects ----------------------------------------------------------------------------------

    def _carry_out(self, who: Participant, effects: Effects) -> None:
        """Carry effects out in the order persist, publish, fetch, emit."""
        self._persist(who, effects)
        if who.torn:
            self.crash(who.index)
            return
        for publish in effects.publishes:
            self._publish(who, publish)
        for fetch in effects.fetches:
            self._fetch(who, fetch.hashes)
        self._schedule(who)
        for event in effects.events:
            self._note(who, "emit", repr(event).encode())
            if self.on_event is not None:
                self.on_event(who.index, event)

    def _persist(self, who: Participant, effects: Effects) -> None:
        for (kind, key), record in effects.changes.items():
            table = who.rows.setdefault(kind, {})
            if record is None:
                table.pop(key, None)
            else:
                table[key] = record
            if self.trace is not None:
                self._note(who, f"persist {kind.__name__}", repr((key, record)).encode())
        # Durable events are kept with their effects: an application that was down reads them later.
        for event in effects.events:
            if event.sequence:
                who.journal.events.append(event)
            if isinstance(event, MessageReceivedEvent):
                step = Step(
                    message_id=event.message_id,
                    sender_id=event.sender_id,
                    payload=event.message,
                    time_ns=self.now,
                    ephemeral=event.ephemeral,
                    late=event.late,
                )
                who.journal.steps.append(step)

    def _schedule(self, who: Participant) -> None:
        """See to it that the machine is woken at its deadline."""
        deadline = who.machine.next_deadline() if who.machine is not None else None
        if deadline is None:
            return
        wake_ns = max(self.now, deadline - who.offset_ns)
        if who.wake_ns is None or wake_ns < who.wake_ns:
            who.wake_ns = wake_ns
            self._push(wake_ns, partial(self._wake, who, who.generation))

    def _publish(self, who: Participant, publish: Publish) -> None:
        """Hand a message to the node, which transmits one after the other."""
        self._note(who, f"publish {publish.segment_id} {publish.ephemeral}", publish.data)
        who.node_free_ns = max(self.now, who.node_free_ns) + int(
            self.scenario.node.transmit_ms * MS
        )
        if who.node_free_ns <= self.now:
            self._transmit(who, who.generation, publish)
        else:
            self._under_way += 1
            again = partial(self._transmit_later, who, who.generation, publish)
            self._push(who.node_free_ns, again)

    def _transmit_later(self, who: Participant, generation: int, publish: Publish) -> None:
        self._under_way -= 1
        if who.machine is not None and who.generation == generation:
            self._transmit(who, generation, publish)

    def _transmit(self, who: Participant, generation: int, publish: Publish) -> None:
        """Give a message to the network, unless the node fails, and report the outcome in time."""
        faults = self.scenario.node
        outcome = self._node_outcome(who, publish)
        self.transmissions += 1
        transmission = Transmission(
            number=self.transmissions,
            sender=who.index,
            segment_id=publish.segment_id,
            data=publish.data,
            message_hash=self.transmissions.to_bytes(32, "big"),
            ephemeral=publish.ephemeral,
            time_ns=self.now,
        )
        in_doubt = outcome is True and who.node.random() < faults.false_failure
        delay_ms = faults.report_ms + who.node.random() * faults.report_jitter_ms
        reported_ns = self.now + int(delay_ms * MS)
        if outcome is None or in_doubt:
            self._broadcast(transmission)
            if self.scenario.rate_limit.enabled:
                offset = who.offset_ns
                charge = Charge(who.sender_id, self.now + offset, reported_ns + offset)
                self.charges.append(charge)
        else:
            self.counters["publish_failures"] += 1
        self._under_way += 1
        self._push(reported_ns, partial(self._report, who, generation, transmission, outcome))

    def _node_outcome(self, who: Participant, publish: Publish) -> bool | None:
        """Draw what the node says: None takes the message, True fails it for now, False for good."""
        faults, draw = self.scenario.node, who.node.random()
        if self.refusal is not None and (said := self.refusal(publish, who.index)) is not None:
            return said
        if draw < faults.rejection:
            return False
        if draw < faults.rejection + faults.failure + faults.false_failure:
            return True
        return None

    def _broadcast(self, transmission: Transmission) -> None:
        """Put a copy on its way to each participant, and one into the store."""
        if self.wire is not None:
            self.wire.append(transmission)
        faults = self.scenario.faults
        for receiver in self.participants:
            if receiver.index == transmission.sender:
                delays = [0] if receiver.node.random() < self.scenario.node.echo else []
            else:
                delays = faults.copies(receiver.link)
                if not self._is_carried(transmission, receiver.index):
                    delays = []
            for delay in delays:
                self._under_way += 1
                self._push(self.now + delay, partial(self._arrive, receiver, transmission))
        store = self.scenario.store
        lost = self._store.random() < store.loss
        if store.enabled and not transmission.ephemeral and not lost:
            visible_ns = self.now + int(store.lag_ms * MS)
            stored = StoredMessage(self.now, visible_ns, transmission.data)
            self._stored[transmission.message_hash] = stored

    def _is_carried(self, transmission: Transmission, receiver: int) -> bool:
        elapsed_ms = (self.now - START_NS) / MS
        for cut in self.scenario.partitions:
            apart = (transmission.sender in cut.side) != (receiver in cut.side)
            if apart and cut.from_ms <= elapsed_ms < cut.until_ms:
                return False
        return self.carries is None or self.carries(transmission, receiver)

    def _fetch(self, who: Participant, hashes: Sequence[bytes]) -> None:
        """Ask the store; what it can be asked for now is in its answer."""
        store = self.scenario.store
        self._note(who, "fetch", b"".join(hashes))
        self.counters["fetches"] += 1
        found = [
            (message_hash, stored.data)
            for message_hash in hashes
            if (stored := self._stored.get(message_hash)) and stored.visible_ns <= self.now
        ]
        failed = self._store.random() < store.failure
        self._under_way += 1
        answered_ns = self.now + int(store.answer_ms * MS)
        answer = None if failed else found
        self._push(answered_ns, partial(self._answer, who, who.generation, answer))

    def _note(self, who: Participant, what: str, data: bytes) -> None:
        """Write a line of the trace."""
        if self.trace is not None:
            digest = blake2b(data, digest_size=16).hexdigest()
            line = f"{self.now - START_NS} {who.sender_id} {what} {len(data)} {digest}"
            self.trace.append(line.encode())

    # -- a whole scenario -------------------------------------------------------------------------

    def play(self) -> Simulation:
        """Run the scenario to its end; nothing is checked."""
        scenario = self.scenario
        late = {join.participant: join.at_ms for join in scenario.joins}
        self.start(*(index for index in range(scenario.participants) if index not in late))
        for index, at_ms in late.items():
            self.after(at_ms, partial(self.start, index))
        for restart in scenario.restarts:
            end = self.tear if restart.torn else self.crash
            self.after(restart.at_ms, partial(end, restart.participant))
            self.after(restart.at_ms + restart.down_ms, partial(self._revive, restart.participant))
        for number in range(scenario.messages):
            when = (number + self.workload.random()) * scenario.interval_ms
            self.after(when, partial(self._send_something, number))
        self.run(scenario.messages * scenario.interval_ms)
        for cut in scenario.partitions:
            self.run(max(0.0, cut.until_ms - (self.now - START_NS) / MS))
        self.settle()
        return self

    def _revive(self, index: int) -> None:
        if self.participants[index].machine is not None:
            self.crash(index)
        self.start(index)

    def _send_something(self, number: int) -> None:
        """Send the payload with this number from somebody who is there; later where there is no room."""
        low, high = self.scenario.payload_bytes
        choice, size = self.workload.random(), self.workload.randint(low, high)
        ephemeral = self.workload.random() < self.scenario.ephemeral
        payload = (b"%d:" % number + self.workload.randbytes(size))[: max(size, 8)]
        present = [item.index for item in self.participants if item.machine is not None]
        if not present:
            self.after(self.scenario.interval_ms, partial(self._send_something, number))
            return
        try:
            self.send(present[int(choice * len(present))], payload, ephemeral=ephemeral)
        except ChannelFullError:
            self.counters["sends_put_off"] += 1
            self.after(self.scenario.interval_ms, partial(self._send_something, number))

    # -- what must hold ---------------------------------------------------------------------------

    def problems(self) -> dict[str, list[str]]:
        """Return what the run broke, by the name of what must hold; empty when all is well."""
        journals = self.journals
        found = {
            "delivery": delivery_problems(journals),
            "order": order_problems(journals),
            "requests": request_problems(journals),
            "sequence": sequence_problems(journals),
            "quiet": quiet_problems(self.statuses()),
        }
        if self.scenario.rate_limit.enabled:
            found["budget"] = budget_problems(self.charges, self.scenario.rate_limit)
        return {name: texts for name, texts in found.items() if texts}

    def check(self, *, besides: Collection[str] = ()) -> Simulation:
        """Raise unless everything holds that must.

        Args:
            besides: Names of what need not hold here: ``delivery``, ``order``, ``requests``, ``sequence``, ``quiet``,
                ``budget``.

        Raises:
            InvariantError: With the seed, and the command that plays the scenario again.
        """
        found = {name: texts for name, texts in self.problems().items() if name not in besides}
        if found:
            raise InvariantError(self.scenario, found)
        return self


def play(scenario: Scenario, *, trace: list[bytes] | None = None) -> Simulation:
    """Play a scenario to its end and return the simulation; nothing is checked."""
    return Simulation(scenario, trace=trace).play()


def main(arguments: Sequence[str] | None = None) -> int:
    """Play one scenario, say how it went, and return 0 only when everything held.

    Args:
        arguments: Of the command line, without the program.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulation", description="Play one scenario in virtual time."
    )
    parser.add_argument("--seed", type=int, default=0, help="makes every draw (default: 0)")
    parser.add_argument(
        "--scenario", default="{}", metavar="JSON", help="what differs from the default scenario"
    )
    parser.add_argument("--trace", metavar="FILE", help="write every input and effect to FILE")
    options = parser.parse_args(arguments)
    try:
        scenario = Scenario.from_json(options.scenario, seed=options.seed)
    except (TypeError, ValueError) as error:
        parser.error(f"--scenario: {error}")
    trace: list[bytes] | None = [] if options.trace else None
    simulation = play(scenario, trace=trace)
    if trace is not None:
        with open(options.trace, "wb") as file:
            file.writelines(line + b"\n" for line in trace)
    problems = simulation.problems()
    for status in simulation.statuses():
        counters = " ".join(f"{name}={value}" for name, value in status.counters.items())
        sys.stdout.write(f"{status.sender_id}: {counters}\n")
    seconds = (simulation.now - START_NS) / SECOND
    sys.stdout.write(f"{seconds:.1f} s, {simulation.transmissions} transmissions\n")
    if problems:
        sys.stdout.write(f"{InvariantError(scenario, problems)}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
