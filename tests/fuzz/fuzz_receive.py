"""Fuzz target: bytes as a script of inputs to one machine; nothing raises, bounds hold, honest messages get through.

The first byte is an opcode, the rest its arguments; ``Script`` reads them. Left out is what is known to get the better
of us (``tests/property/test_hostile_peers.py``): taking the id of a message that is still on its way, and
segments of honest payloads with other bytes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Final

from reliable_channel.core.effects import Effects
from reliable_channel.core.wire import HistoryEntry, SdsMessage
from reliable_channel.events import MessageReceivedEvent
from reliable_channel.types import MS, SECOND
from tests.fuzz.harness import main
from tests.support.builders import (
    ALICE,
    BOB,
    NOW,
    NOW_MS,
    Participant,
    content_message,
    cut,
    entries,
    ephemeral_message,
    hash_of,
    messages_of,
    sync_message,
)
from tests.support.hostile import (
    SDS,
    SEGMENTATION,
    excess,
    flip,
    problems,
    segment_in,
    signed,
)

MAX_STEPS: Final = 40
"""Inputs that one script gives: longer ones find nothing else, only later."""

QUIET_NS: Final = 2_500 * SECOND
"""After it what a script left behind has timed out: three epochs, five minutes of clock lead."""

TEXTS: Final = ("", "x", "x" * 256, "x" * 257, "\0", ALICE, BOB, "mallory", "m2", "m3", "é" * 127)
NUMBERS: Final = (0, 1, NOW_MS, NOW_MS + 400_000, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
COUNTS: Final = (0, 1, 2, 3, 8, 12, 13, 256, (1 << 32) - 1)
STEPS_MS: Final = (0, 1, 300, 1_000, 6_000, 41_000, 700_000, 3_000_000)


class Script:
    """Reads numbers, choices and bytes; when nothing is left it gives zeros.

    Args:
        data: The bytes.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def __bool__(self) -> bool:
        return self.place < len(self.data)

    def number(self) -> int:
        """Return the next byte."""
        self.place += 1
        return self.data[self.place - 1] if self.place <= len(self.data) else 0

    def choice(self, options: Any) -> Any:
        """Return one of a sequence."""
        return options[self.number() % len(options)]

    def octets(self) -> bytes:
        """Return bytes whose number comes first."""
        size = self.number()
        self.place += size
        return self.data[self.place - size : self.place]


@cache
def pool() -> tuple[SdsMessage, ...]:
    """Return valid messages of an honest participant and of others: all kinds, sizes, parity."""
    ids = [f"foreign {number}" for number in range(6)]
    honest = [
        *messages_of(b"one", wrap_time_ns=NOW + 1),
        *messages_of(bytes(range(200)), lamport=NOW_MS + 1, parity_count=2, wrap_time_ns=NOW + 2),
        *messages_of(b"x" * 130, lamport=NOW_MS + 9, history=entries("gone"), wrap_time_ns=NOW + 3),
    ]
    others = [
        *messages_of(b"hostile" * 30, sender_id="mallory", parity_count=3, code="leopard"),
        *messages_of(b"z" * 128, sender_id="m2", parity_count=1, with_length=False),
        *messages_of(b"no wrap time" * 9, sender_id="m3", wrap_time_ns=0),
        ephemeral_message(cut(b"in passing")[0], sender_id="mallory"),
        ephemeral_message(b"whole", sender_id="mallory", message_id="whole"),
        sync_message(*entries(*ids), sender_id="mallory", bloom_filter=b"\x55" * 40),
        sync_message(*entries(honest[0].message_id), sender_id=BOB),
    ]
    others += [
        content_message(
            b"foreign", sender_id="m4", message_id=name, history=entries(ids[number - 1], ids[-1])
        )
        for number, name in enumerate(ids)
    ]
    return (*honest, *others)


class Run:
    """One machine that lives through a script."""

    def __init__(self) -> None:
        self.bob = Participant(BOB, sds=SDS, segmentation=SEGMENTATION)
        self.given: list[bytes] = []
        self.made = [message.encode() for message in pool()]

    def hear(self, data: bytes, *, stored: bool) -> None:
        """Let the machine receive bytes."""
        self.given.append(data)
        self.judge(self.bob.machine.receive(data, hash_of(data) if stored else None, self.bob.now))

    def judge(self, effects: Effects) -> None:
        """Carry effects out, unless they are too much."""
        assert excess(effects) == []
        self.bob.carry_out(effects)
        assert problems(self.bob.machine) == []
        lead = self.bob.machine.status().lamport_timestamp - self.bob.now // MS
        assert lead <= 300_000 + 10 * len(self.bob.transmissions)

    def altered(self, script: Script) -> bytes:
        """Return a message of the pool with some fields changed."""
        message: SdsMessage = script.choice(pool())
        for _ in range(script.number() % 4):
            match script.number() % 10:
                case 0:
                    message = replace(message, sender_id=script.choice(TEXTS))
                case 1:
                    message = replace(message, message_id=script.choice(TEXTS))
                case 2:
                    message = replace(message, message_id=script.choice(pool()).message_id)
                case 3:
                    message = replace(message, lamport_timestamp=script.choice((None, *NUMBERS)))
                case 4:
                    message = replace(message, content=script.choice((None, b"", script.octets())))
                case 5:
                    message = replace(message, content=script.choice(pool()).content)
                case 6:
                    message = replace(message, bloom_filter=script.octets())
                case 7:
                    message = self.altered_segment(message, script)
                case 8:
                    message = replace(message, causal_history=self.history(script))
                case _:
                    message = replace(message, repair_request=self.history(script))
        return (signed(message) if script.number() % 2 else message).encode()

    def history(self, script: Script) -> tuple[HistoryEntry, ...]:
        """Return ids of the pool and others, with and without hints."""
        hint = script.choice((None, b"", b"short", bytes(32), bytes(33)))
        known = [script.choice(pool()).message_id for _ in range(script.number() % 4)]
        many = script.choice((0, 1, 5, 70, 90))
        base = script.number()
        ids = known + [f"gone {base + number}" for number in range(many)]
        return tuple(HistoryEntry(item, hint, script.choice(TEXTS)) for item in ids)

    def altered_segment(self, message: SdsMessage, script: Script) -> SdsMessage:
        """Return a message with fields of its segment changed."""
        segment = segment_in(message) or cut(b"made up")[0]
        name, value = script.choice(
            (
                ("data_segment_index", COUNTS),
                ("data_segment_count", COUNTS),
                ("parity_segment_index", COUNTS),
                ("parity_segment_count", COUNTS),
                ("parity_code", COUNTS),
                ("is_parity", (False, True)),
                ("original_payload_length", (*COUNTS, 64, 65, 128, (1 << 64) - 1)),
                ("wrap_time_ns", NUMBERS),
                ("payload", (b"", b"x", bytes(64), bytes(65), bytes(20_000))),
                ("entire_message_hash", (b"", bytes(31), bytes(32), b"\1" * 32)),
            )
        )
        return replace(message, content=replace(segment, **{name: script.choice(value)}).encode())

    def step(self, script: Script) -> None:
        """Carry out one operation."""
        bob = self.bob
        match script.number() % 12:
            case 0:
                self.hear(script.octets(), stored=False)
            case 1 | 2:
                self.hear(script.choice(self.made), stored=bool(script.number() % 2))
            case 3 | 4 | 5:
                self.hear(self.altered(script), stored=False)
            case 6:
                data = script.choice(self.made)
                self.hear(flip(data, script.octets()[:4]), stored=True)
            case 7:
                if self.given:
                    self.hear(script.choice(self.given), stored=False)
            case 8:
                bob.now += script.choice(STEPS_MS) * MS
                self.judge(bob.machine.tick(bob.now))
            case 9:
                asked = bob.fetches[-1].hashes if bob.fetches else (bytes(32),)
                found = script.choice((None, b"", script.octets(), script.choice(self.made)))
                if found is None or found in self.made:
                    self.judge(bob.machine.fetched([(script.choice(asked), found)] * 2, bob.now))
            case 10:
                for number in range(script.choice((1, 20, 80))):
                    message = content_message(
                        b"flood",
                        sender_id=script.choice(TEXTS[5:10]) if number < 5 else "m3",
                        message_id=f"flood {len(self.given)}",
                        lamport=NOW_MS + number,
                        history=entries(f"flood {len(self.given) - 1}"),
                    )
                    self.hear(message.encode(), stored=False)
            case _:
                if bob.machine.has_room(150):
                    bob.send(b"ours".ljust(1 + script.number() % 150, b"."))
                bob.published()

    def end(self) -> None:
        """When all is quiet again, an honest message arrives and is acknowledged."""
        bob = self.bob
        end = bob.now + QUIET_NS
        while (deadline := bob.machine.next_deadline()) is not None and deadline <= end:
            bob.now = max(bob.now, deadline)
            self.judge(bob.machine.tick(bob.now))
            bob.published()
        bob.now = end
        messages = messages_of(
            b"afterwards" * 10, lamport=bob.now // MS, wrap_time_ns=bob.now, sender_id=ALICE
        )
        begin = len(bob.events), len(bob.transmissions)
        for message in messages:
            self.judge(bob.machine.receive(message.encode(), None, bob.now))
        for _ in range(3):
            bob.advance(SECOND)
            bob.published()
        received = [
            event for event in bob.events[begin[0] :] if isinstance(event, MessageReceivedEvent)
        ]
        assert [event.message for event in received] == [b"afterwards" * 10]
        named = {
            item.message_id
            for transmission in bob.transmissions[begin[1] :]
            for item in transmission.message.causal_history
        }
        assert {message.message_id for message in messages} <= named
        assert problems(bob.machine) == []


def one_input(data: bytes) -> None:
    """Run a script."""
    run, script = Run(), Script(data)
    for _ in range(MAX_STEPS):
        if not script:
            break
        run.step(script)
    run.end()


if __name__ == "__main__":
    main("receive")
