"""What happened in one channel, as lines for people: who sent, lost, got, repeated and was told what, and when.

It reads the trace that a simulation writes, and what reached the network; it must not change what is played.

Spec: RELIABLE-CHANNEL-API, Events; LIP-109 (SDS), for what messages are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Final, NamedTuple

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.seeds import streams
from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.network import Transmission
from benchmarks.simulation.scenario import START_NS
from benchmarks.simulation.workload import Workload
from reliable_channel.core.wire import SdsKind, SdsMessage
from reliable_channel.events import (
    ChannelEvent,
    MessageLostEvent,
    MessageProgressEvent,
    MessageReceivedEvent,
)
from reliable_channel.types import MS

QUIET: Final = ("persist", "published", "tick", "emit")
"""Lines of the simulation's trace that are left out: what they lead to has lines of its own."""

NOT_SHOWN: Final = ("channel_id", "sequence", "time_ns", "message", "request_id", "message_id")
"""Fields of events that have been said, or say nothing to people."""


class Told(NamedTuple):
    """An event that an application was told."""

    place: int
    """How many lines of the trace there were."""
    who: int
    event: ChannelEvent


@dataclass(slots=True)
class Recorder:
    """What a simulation has to be given to write down what happens in it."""

    trace: list[bytes] = field(default_factory=list)
    wire: list[Transmission] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)

    def on_event(self, who: int, event: ChannelEvent) -> None:
        """Take an event."""
        self.told.append(Told(len(self.trace), who, event))


def record(cell: Cell, root: int, channel: int) -> list[str]:
    """Play a channel once more for its lines, as `trial.run_trial` plays it.

    Where it cannot be played to its end, the lines end with the reason.
    """
    recorder = Recorder()
    simulation = Simulation(
        cell.scenario,
        trace=recorder.trace,
        wire=recorder.wire,
        on_event=recorder.on_event,
        streams=streams(root, cell.hash, channel),
    )
    problem = []
    try:
        Workload(simulation).play()
    except Exception as error:  # as in a trial, whatever it is
        elapsed = simulation.now - START_NS
        problem = [_line(elapsed, "", f"problem     {type(error).__name__}: {error}")]
    return [*readable(recorder, simulation), *problem]


def readable(recorder: Recorder, simulation: Simulation) -> Iterator[str]:
    """Give the lines of a simulation that is over, in the order of its time.

    Messages are numbered from 1 in the order of sending.
    """
    return _Reader(recorder, simulation).lines()


def digest(data: bytes) -> str:
    """Return the digest that stands for bytes in a trace."""
    return blake2b(data, digest_size=16).hexdigest()


class _Reader:
    def __init__(self, recorder: Recorder, simulation: Simulation) -> None:
        self.recorder = recorder
        self.names = [item.sender_id for item in simulation.participants]
        steps = [step for journal in simulation.journals for step in journal.sent()]
        self.steps = sorted(steps, key=lambda step: step.time_ns)
        self.numbers = {step.request_id: number for number, step in enumerate(self.steps, 1)}
        self.sent = {
            (step.sender_id, step.time_ns, digest(step.payload)): number
            for number, step in enumerate(self.steps, 1)
        }
        self.segments = {
            segment: (number, place)
            for number, step in enumerate(self.steps, 1)
            for place, segment in enumerate(step.segments, 1)
        }
        self.tries: Counter[str] = Counter()
        self.copies: dict[str, list[Transmission]] = defaultdict(list)
        for transmission in recorder.wire:
            self.copies[digest(transmission.data)].append(transmission)
        self.arrived: dict[int, set[str]] = defaultdict(set)
        self.brought = list(self._arrivals())

    def _arrivals(self) -> Iterator[Transmission | None]:
        """Give what each line of the trace received, None for all other lines."""
        for line in self.recorder.trace:
            elapsed, who, what, _, hashed = _parts(line)
            found = None
            if what == "receive":
                now = START_NS + elapsed
                sent = [item for item in self.copies[hashed] if item.time_ns <= now]
                fresh = [item for item in sent if who not in self.arrived[item.number]]
                found = next(reversed(fresh or sent), None)
                if found is not None:
                    self.arrived[found.number].add(who)
            yield found

    def lines(self) -> Iterator[str]:
        """Give the lines."""
        told = iter(self.recorder.told)
        item = next(told, None)
        for place, line in enumerate(self.recorder.trace):
            elapsed, who, what, size, hashed = _parts(line)
            while item is not None and item.place <= place:
                yield from self.event(item)
                item = next(told, None)
            word = what.partition(" ")[0]
            if word in QUIET:
                continue
            text = self.text(elapsed, who, what, size, hashed, self.brought[place])
            yield _line(elapsed, who, text)
        while item is not None:
            yield from self.event(item)
            item = next(told, None)

    def text(
        self, elapsed: int, who: str, what: str, size: int, hashed: str, came: Transmission | None
    ) -> str:
        """Return what a line of the trace says."""
        word, *rest = what.split(" ")
        if word == "send":
            found = self.sent.get((who, START_NS + elapsed, hashed))
            if found is None:
                return f"send        {size} bytes"
            count = len(self.steps[found - 1].segments)
            return f"send        message {found}: {size} bytes, segments: {count}"
        if word == "receive":
            name = (
                "what is of no transmission"
                if came is None
                else self.what(came.data, came.segment_id)[1]
            )
            number = "" if came is None else f"  #{came.number}"
            return f"receive     {name}{number}"
        if word == "publish":
            return self.publish(START_NS + elapsed, who, rest[0], hashed, size)
        if word == "fetched":
            return f"fetched     {size} bytes from the store"
        if what == "fetch":
            return f"fetch       from the store: {size // 32}"
        return f"{what:11} {size} bytes" if size else what

    def publish(self, now: int, who: str, segment_id: str, hashed: str, size: int) -> str:
        """Return what became of a publication."""
        found = next(
            (
                item
                for item in self.copies[hashed]
                if item.segment_id == segment_id and item.time_ns >= now
            ),
            None,
        )
        if found is None:
            return f"publish     {size} bytes that never reached the network"
        word, name = self.what(found.data, segment_id)
        self.tries[segment_id] += 1
        tries = self.tries[segment_id]
        if word == "publish" and tries > 1:
            word, name = "retransmit", f"{name}, try {tries}"
        missed = [
            other
            for other in self.names
            if other != who and other not in self.arrived[found.number]
        ]
        lost = f", missed by {', '.join(missed)}" if missed else ""
        return f"{word:11} {name}, {size} bytes  #{found.number}{lost}"

    def what(self, data: bytes, segment_id: str) -> tuple[str, str]:
        """Return what a transmission is: a word for publishing it, and its name."""
        message = SdsMessage.decode(data)
        kind, _, number = segment_id.partition(":")
        if message.kind is SdsKind.SYNC:
            asks = len(message.repair_request)
            return "sync", f"sync that asks for {asks}" if asks else "sync"
        if message.message_id in self.segments:
            of, place = self.segments[message.message_id]
            name = f"message {of} segment {place}/{len(self.steps[of - 1].segments)}"
            return ("repair" if kind == "repair" else "publish"), name
        if kind in self.numbers:
            of = self.numbers[kind]
            beyond = int(number) - len(self.steps[of - 1].segments)
            return "parity", f"message {of} parity {beyond}" if beyond > 0 else f"message {of}"
        return "publish", segment_id

    def event(self, item: Told) -> Iterator[str]:
        """Give the line of an event; progress has none."""
        who, event = self.names[item.who], item.event
        elapsed = _parts(self.recorder.trace[item.place - 1])[0]
        if isinstance(event, MessageProgressEvent):
            return
        message_id = getattr(event, "message_id", "")
        number = self.numbers.get(getattr(event, "request_id", ""), 0)
        if message_id in self.segments:
            number = self.segments[message_id][0]
        name = f"message {number}" if number else "a message"
        if isinstance(event, MessageReceivedEvent):
            text = f"deliver     {name}"
            if number:
                waited = START_NS + elapsed - self.steps[number - 1].time_ns
                text += f", {waited / MS / 1000:.3f} s after it was sent"
            yield _line(elapsed, who, text + (", late" if event.late else ""))
            return
        if isinstance(event, MessageLostEvent) and number:
            name += f" segment {self.segments[message_id][1]}"
        more = "".join(
            f", {part.name} {getattr(event, part.name)}"
            for part in fields(event)
            if part.name not in NOT_SHOWN and getattr(event, part.name) not in ("", None, ())
        )
        yield _line(elapsed, who, f"event       {type(event).__name__}: {name}{more}")


def _parts(line: bytes) -> tuple[int, str, str, int, str]:
    """Return the parts of a line: nanoseconds, participant, what, size and digest."""
    elapsed, who, rest = line.decode().split(" ", 2)
    what, size, hashed = rest.rsplit(" ", 2)
    return int(elapsed), who, what, int(size), hashed


def _line(elapsed: int, who: str, text: str) -> str:
    return f"{elapsed / MS / 1000:10.3f} s  {who:4} {text.rstrip()}"
