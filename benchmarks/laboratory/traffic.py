"""From the event logs of one channel, of one or several of its participants, to rows like those of trials.

A channel's time is cut into windows; a row has what became of the messages sent in one. What no log can know stays 0:
`UNKNOWN`. It reads no file and no database: logs come as happenings, roughly in the order of their times. It keeps what
is open, and no more: a window is closed, and its messages forgotten, when `PATIENCE_NS` have passed after it.

Spec: RELIABLE-CHANNEL-API, Events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.results import OTHER, Trial
from benchmarks.simulation.scenario import Scenario
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageQueuedEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.types import MS, SECOND, Nanoseconds

SEND: Final = "send"
"""Name of the happening that no event tells of: an own message, where the log's owner knows when it was sent."""

WINDOW_NS: Final = 3_600 * SECOND
"""Length of a window unless said otherwise: an hour."""

PATIENCE_NS: Final = 24 * 3_600 * SECOND
"""How long after its end a window waits for what becomes of its messages: a day."""

MAX_MS: Final = 2**31 - 1
"""Longest time that a column holds, milliseconds: 24 days."""

UNKNOWN: Final = (
    *("disordered", "put_off", "parity", "retransmissions", "repairs", "syncs"),
    *("transmissions", "others", "sent_bytes", "copies", "fetches", "round", "tries"),
)
"""Columns that stay empty, or say `OTHER`: no log has them."""

UNKNOWN_RATIOS: Final = ("data_sends", "overhead", "bytes", "repairs")
"""Ratios of `measures.RATIOS` that are made of those columns."""

UNKNOWN_ALONE: Final = ("complete", "receivers")
"""Columns that stay empty, too, where a channel has the log of one participant only: who else got what it sent is told
by acknowledgements alone. The ratio ``completion`` is unknown with them."""

UNKNOWN_OF_FILES: Final = ("segments", "payload_bytes", "latency_ms")
"""Columns that stay empty, too, where logs are files of events: these do not say what was sent, nor when."""

NOTES: Final = {
    "after_close": "events more than a day after the window of their message, not counted",
    "clamped": "deliveries before their sending, as clocks differ, taken as 0 ms",
    "confirmed_from_sent": "confirmations timed from the sent event, since their requests are forgotten",
    "deliveries_untimed": "deliveries without latency, since no log says when they were sent",
    "sizeless": "own messages whose size no log says any more, not in the bytes of payloads",
    "ephemeral": "ephemeral messages, not counted",
    "undecided": "requests with a sent event alone, so open or ephemeral, not counted",
}
"""What is counted about the counting, and what each count means."""


@dataclass(frozen=True, kw_only=True)
class TrafficCell(Cell):
    """Stands for one channel's real traffic; its scenario says no more than how many logs there were, at least two."""

    channel_id: str
    sources: tuple[str, ...]
    """Names of the logs, without secrets."""
    window_ns: Nanoseconds

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """What tells it from others: not a scenario, which would be the same for all."""
        return {
            "channel": self.channel_id,
            "logs": list(self.sources),
            "window_sec": self.window_ns // SECOND,
        }


def cell_of(channel_id: str, sources: Sequence[str], window_ns: Nanoseconds) -> TrafficCell:
    """Return the cell of a channel whose logs have these names."""
    return TrafficCell(
        name=f"channel {channel_id}",
        labels=(("channel", channel_id), ("logs", str(len(sources)))),
        scenario=Scenario(participants=max(2, len(sources)), messages=0),
        channel_id=channel_id,
        sources=tuple(sources),
        window_ns=window_ns,
    )


class Happening(NamedTuple):
    """An event of a log, or a `SEND`, with what is counted of it."""

    time_ns: Nanoseconds
    name: str
    request_id: str = ""
    message_id: str = ""
    sender_id: str = ""
    """Of a received or lost message; empty where it is not known."""
    sent_ns: Nanoseconds = 0
    """When a received message was sent, as its Lamport time says; 0 where it is not known."""
    payload_bytes: int = 0
    segments: int = 0
    """Of a `SEND`: data segments."""
    ephemeral: bool = False
    late: bool = False


class Sending(NamedTuple):
    """What a database knows of a request beside its events."""

    created_ns: Nanoseconds
    ephemeral: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What is known of a participant's log before it is read."""

    sender_id: str = ""
    """Whose it is; empty where that cannot be told."""
    since_ns: Nanoseconds = 0
    until_ns: Nanoseconds = 0
    """Between them, everything that happened to the participant is in it."""
    requests: Mapping[str, Sending] = field(default_factory=dict)
    """By their ids, those that are not forgotten."""
    has_sends: bool = False
    """It says with `SEND` what was sent; otherwise only events of requests tell."""
    exempt: frozenset[str] = frozenset()
    """Senders whose messages it need not have received: its owner may be each of them."""


@dataclass(slots=True)
class _Message:
    message_id: str
    sent_ns: Nanoseconds
    is_timed: bool
    sender_id: str
    payload_bytes: int = 0
    """0 where no log has said it."""
    is_own: bool = False
    """A `SEND` told of it: it is one of the window's messages."""
    got: int = 0
    """A bit for each log that has received it."""
    waiting: list[Nanoseconds] = field(default_factory=list)
    """When it came to logs, before it was known when it was sent."""


@dataclass(slots=True)
class _Open:
    window: int
    start_ns: Nanoseconds
    has_start: bool
    is_sent: bool = False


@dataclass(slots=True)
class _Window:
    trial: Trial
    messages: list[_Message] = field(default_factory=list)
    requests: list[tuple[int, str]] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
    """Lost messages whose senders' logs are not here: a bit for each log that says so."""
    first_ns: Nanoseconds = 0
    last_ns: Nanoseconds = 0


class ChannelCounter:
    """Counts what the logs of one channel tell.

    Args:
        key: Of the channel's cell.
        logs: One for each participant whose log is there.
        window_ns: Length of a window.
        patience_ns: How long a window stays open after its end.
    """

    def __init__(
        self,
        key: str,
        logs: Sequence[Log],
        *,
        window_ns: Nanoseconds = WINDOW_NS,
        patience_ns: Nanoseconds = PATIENCE_NS,
    ) -> None:
        self.notes: Counter[str] = Counter()
        """By the names of `NOTES`."""
        self._key = key
        self._logs = logs
        self._window_ns = window_ns
        self._patience_ns = patience_ns
        self._told = {log.sender_id for log in logs if log.has_sends}
        self._untold = {log.sender_id for log in logs if not log.has_sends} - {""}
        self._windows: dict[int, _Window] = {}
        self._messages: dict[str, tuple[int, _Message]] = {}
        self._requests: dict[tuple[int, str], _Open] = {}
        self._now = 0
        self._closed_before: int | None = None

    def rows(self, happenings: Iterable[tuple[int, Happening]]) -> Iterator[Trial]:
        """Give the rows of all windows, each when it is closed, in their order.

        Args:
            happenings: Each with the place of its log.
        """
        for place, happening in happenings:
            yield from self.add(place, happening)
        yield from self.end()

    def add(self, place: int, happening: Happening) -> list[Trial]:
        """Count what happened in a log, and return the rows of the windows that it closes."""
        rows: list[Trial] = []
        if happening.time_ns > self._now:
            self._now = happening.time_ns
            before = (self._now - self._patience_ns) // self._window_ns
            if before != self._closed_before:
                self._closed_before = before
                rows = self._close([item for item in self._windows if item < before])
        self._take(place, happening)
        return rows

    def end(self) -> list[Trial]:
        """Return the rows of all windows that are open: nothing else will happen."""
        return self._close(list(self._windows))

    # -- one happening ------------------------------------------------------------------------------

    def _take(self, place: int, happening: Happening) -> None:
        match happening.name:
            case "send":
                self._sent(happening)
            case MessageReceivedEvent.name:
                self._received(place, happening)
            case MessageLostEvent.name:
                self._lost(place, happening)
            case (
                MessageQueuedEvent.name
                | MessageSentEvent.name
                | MessageDeliveredEvent.name
                | MessageSendErrorEvent.name
                | MessageDeliveryErrorEvent.name
            ):
                self._progressed(place, happening)

    def _sent(self, happening: Happening) -> None:
        message = self._message(happening, happening.time_ns, is_timed=True)
        if message is None or message.is_own:
            return
        window = self._windows[self._messages[happening.message_id][0]]
        message.is_own = True
        if message.waiting:
            message.sent_ns = happening.time_ns
            for time_ns in message.waiting:
                self._timed(window.trial, time_ns - message.sent_ns)
            message.waiting = []
        window.trial.messages += 1
        window.trial.segments += happening.segments
        message.payload_bytes = message.payload_bytes or happening.payload_bytes

    def _received(self, place: int, happening: Happening) -> None:
        if happening.ephemeral:
            self.notes["ephemeral"] += 1
            return
        sent_ns = happening.sent_ns
        message = self._message(happening, sent_ns or happening.time_ns, is_timed=sent_ns > 0)
        if message is None:
            return
        window = self._windows[self._messages[happening.message_id][0]]
        if message.got >> place & 1:
            window.trial.duplicated += 1
            return
        message.got |= 1 << place
        message.payload_bytes = message.payload_bytes or happening.payload_bytes
        window.trial.delivered += 1
        window.trial.late += happening.late
        window.last_ns = max(window.last_ns, happening.time_ns)
        if message.is_timed or message.is_own:
            self._timed(window.trial, happening.time_ns - message.sent_ns)
        else:
            message.waiting.append(happening.time_ns)

    def _timed(self, trial: Trial, elapsed_ns: Nanoseconds) -> None:
        self.notes["clamped"] += elapsed_ns < 0
        trial.latency_ms.append(_milliseconds(elapsed_ns))
        trial.round.append(OTHER)

    def _lost(self, place: int, happening: Happening) -> None:
        number = happening.time_ns // self._window_ns
        window = self._window(number, happening.time_ns)
        if window is None:
            return
        window.trial.lost += 1
        is_alone = len(self._logs) == 1
        if happening.sender_id not in self._told and (happening.sender_id or is_alone):
            bits = window.lost.get(happening.message_id, 0)
            window.lost[happening.message_id] = bits | 1 << place

    def _progressed(self, place: int, happening: Happening) -> None:
        request = self._request(place, happening)
        if request is None:
            return
        window = self._windows[request.window]
        window.last_ns = max(window.last_ns, happening.time_ns)
        elapsed_ms = _milliseconds(happening.time_ns - request.start_ns)
        trial = window.trial
        match happening.name:
            case MessageQueuedEvent.name:
                return
            case MessageSentEvent.name:
                if request.has_start:
                    trial.queue_ms.append(elapsed_ms)
                request.is_sent = True
                return
            case MessageDeliveredEvent.name:
                trial.confirmed += 1
                if request.has_start or request.is_sent:
                    self.notes["confirmed_from_sent"] += not request.has_start
                    trial.confirm_ms.append(elapsed_ms)
            case MessageSendErrorEvent.name:
                trial.send_errors += 1
            case MessageDeliveryErrorEvent.name:
                trial.delivery_errors += 1
        if not self._logs[place].has_sends:
            trial.messages += 1
        self._requests.pop((place, happening.request_id), None)

    # -- what is open -------------------------------------------------------------------------------

    def _message(
        self, happening: Happening, sent_ns: Nanoseconds, *, is_timed: bool
    ) -> _Message | None:
        """Return a message, new where it was not known; None where its window is closed."""
        known = self._messages.get(happening.message_id)
        if known is not None:
            return known[1]
        number = sent_ns // self._window_ns
        window = self._window(number, sent_ns)
        if window is None:
            return None
        message = _Message(happening.message_id, sent_ns, is_timed, happening.sender_id)
        window.messages.append(message)
        self._messages[happening.message_id] = (number, message)
        return message

    def _request(self, place: int, happening: Happening) -> _Open | None:
        """Return a request; None where it is not counted."""
        log, name = self._logs[place], (place, happening.request_id)
        request = self._requests.get(name)
        if request is not None:
            return request
        facts = log.requests.get(happening.request_id)
        start_ns = happening.time_ns if facts is None else facts.created_ns
        if facts is not None and facts.ephemeral:
            self.notes["ephemeral"] += happening.name == MessageSentEvent.name
            return None
        begins = happening.name in (MessageQueuedEvent.name, MessageSentEvent.name)
        if start_ns < log.since_ns or (facts is None and log.has_sends and not begins):
            return None  # it was sent before the log begins
        number = start_ns // self._window_ns
        window = self._window(number, start_ns)
        if window is None:
            return None
        has_start = facts is not None or happening.name == MessageQueuedEvent.name
        request = self._requests[name] = _Open(number, start_ns, has_start)
        window.requests.append(name)
        return request

    def _window(self, number: int, time_ns: Nanoseconds) -> _Window | None:
        """Return a window with a time that lies in it; None where it is closed."""
        if self._closed_before is not None and number < self._closed_before:
            self.notes["after_close"] += 1
            return None
        window = self._windows.get(number)
        if window is None:
            trial = Trial(scenario=self._key, channel=number)
            window = self._windows[number] = _Window(trial, first_ns=time_ns, last_ns=time_ns)
        window.first_ns = min(window.first_ns, time_ns)
        window.last_ns = max(window.last_ns, time_ns)
        return window

    # -- closing ------------------------------------------------------------------------------------

    def _close(self, numbers: list[int]) -> list[Trial]:
        rows = []
        for number in sorted(numbers):
            closed = self._windows[number]
            rows.append(self._row(closed))
            del self._windows[number]
            for message in closed.messages:
                del self._messages[message.message_id]
            for name in closed.requests:
                log = self._logs[name[0]]
                if self._requests.pop(name, None) is None or name[1] in log.requests:
                    continue
                self.notes["ephemeral" if log.has_sends else "undecided"] += 1
        return rows

    def _row(self, window: _Window) -> Trial:
        trial, is_joint = window.trial, len(self._logs) > 1
        for message in sorted(window.messages, key=lambda item: (item.sent_ns, item.message_id)):
            owed = self._owed(message)
            trial.owed += owed
            self.notes["deliveries_untimed"] += len(message.waiting)
            if message.is_own:
                trial.payload_bytes += message.payload_bytes
                self.notes["sizeless"] += not message.payload_bytes
            if is_joint and (message.is_own or message.sender_id in self._untold):
                got = message.got.bit_count()
                trial.receivers.append(got)
                trial.complete += got == owed
        for message_id, bits in window.lost.items():
            if message_id not in self._messages:
                trial.owed += bits.bit_count()
        trial.virtual_ms = (window.last_ns - window.first_ns) // MS
        return trial.seal()

    def _owed(self, message: _Message) -> int:
        """Return at how many participants a message should be: where it is, and where the log covers its sending."""
        owed = 0
        for place, log in enumerate(self._logs):
            has_it = message.got >> place & 1
            is_covered = log.since_ns <= message.sent_ns <= log.until_ns
            is_sender = message.sender_id == log.sender_id or message.sender_id in log.exempt
            owed += has_it or (is_covered and not is_sender)
        return owed


def _milliseconds(elapsed_ns: Nanoseconds) -> int:
    """Return a time in whole milliseconds, as the columns hold it."""
    return min(max(elapsed_ns, 0) // MS, MAX_MS)
