"""Our machine beside ``@waku/sds``, the published JavaScript implementation: send, and receive with delivery.

Both have one sender and one receiver of the same payloads, a causal history of 2 and a filter of 10,000 ids, and take
turns of a few hundred messages, each in a process of its own; what counts is CPU seconds. The peer keeps no state, cuts
nothing into segments and hashes each payload once, with SHA-256; ours does all that its users get.

Spec: none of its own; https://www.npmjs.com/package/@waku/sds
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from benchmarks import machine_speed
from reliable_channel.config import SdsConfig
from reliable_channel.core.effects import Effects
from reliable_channel.events import MessageReceivedEvent

PROGRAM: Final = Path(__file__).parent / "peers" / "sds_speed.mjs"

PACKAGE: Final = Path(__file__).parents[1] / "tests/interop/js/node_modules/@waku/sds"
"""Where ``make interop`` installs it."""

INSTALL_PEER: Final = (
    "note: needs Node.js 18 or later and the packages that `make interop` installs"
)

MESSAGES: Final = 10_000
TURN: Final = 500
PAYLOAD_BYTES: Final = 1024
SYNC_EVERY: Final = 10
"""The peer's receiver acknowledges once in so many messages; ours when it is due."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What some messages in a row took, CPU seconds."""

    messages: int
    send: float
    receive: float


@dataclass(frozen=True, slots=True)
class Duel:
    """Both, turn by turn."""

    ours: tuple[Turn, ...]
    theirs: tuple[Turn, ...]

    def times(self, name: str, *, turns: slice = slice(None)) -> float:
        """Return how many times as fast we are in some turns, by default in all of them.

        Args:
            name: ``send`` or ``receive``.
            turns: Which.
        """
        ours, theirs = (
            float(sum(getattr(turn, name) for turn in side[turns]))
            for side in (self.ours, self.theirs)
        )
        return theirs / max(ours, 1e-9)


class Peer:
    """The Node.js process."""

    def __init__(self, node: str) -> None:
        self.process = subprocess.Popen(
            [node, str(PROGRAM), str(PACKAGE), str(PAYLOAD_BYTES), str(SYNC_EVERY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.sent = 0

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.communicate()

    def turn(self, messages: int) -> Turn:
        """Let it send and receive.

        Raises:
            RuntimeError: It ended, or did not deliver all.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{messages}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        self.sent += messages
        found = json.loads(line) if line else {}
        if found.get("delivered") != self.sent:
            text = f"@waku/sds delivered {found.get('delivered')} of {self.sent} messages"
            raise RuntimeError(text)
        return Turn(messages, found["send"], found["receive"])


class Ours:
    """The same with our machines, in this process; whoever calls carries the effects out."""

    def __init__(self) -> None:
        config = SdsConfig(max_outgoing_messages=1 << 20, max_in_flight=1024)
        self.sender = machine_speed.machine("alice", config)
        self.receiver = machine_speed.machine("bob", config)
        self.sent = 0
        self.delivered = 0

    def turn(self, messages: int) -> Turn:
        """Send and receive.

        Raises:
            RuntimeError: Not all was delivered.
        """
        seconds = {"send": 0.0, "receive": 0.0}
        for _ in range(messages):
            self._message(seconds)
        if self.delivered != self.sent:
            text = f"{self.delivered} of {self.sent} messages delivered"
            raise RuntimeError(text)
        return Turn(messages, seconds["send"], seconds["receive"])

    def _message(self, seconds: dict[str, float]) -> None:
        now = machine_speed.START_NS + self.sent * machine_speed.MESSAGE_DISTANCE_NS
        payload = self.sent.to_bytes(8, "big") * (PAYLOAD_BYTES // 8)
        self.sent += 1
        began = time.process_time()
        _, effects = self.sender.send(payload, now)
        for publish in effects.publishes:
            self.sender.published(publish.segment_id, machine_speed.HASH, now)
        seconds["send"] += time.process_time() - began
        began = time.process_time()
        answers: list[Effects] = [
            self.receiver.receive(publish.data, machine_speed.HASH, now)
            for publish in effects.publishes
        ]
        seconds["receive"] += time.process_time() - began
        for answer in (*answers, *machine_speed.turn(self.receiver, now)):
            self.delivered += sum(
                isinstance(event, MessageReceivedEvent) for event in answer.events
            )
            for publish in answer.publishes:
                self.receiver.published(publish.segment_id, machine_speed.HASH, now)
                self.sender.receive(publish.data, machine_speed.HASH, now)


def rate(turns: Sequence[Turn], name: str) -> float:
    """Return the messages a CPU second of some turns.

    Args:
        turns: Of one side.
        name: ``send`` or ``receive``.
    """
    seconds = float(sum(getattr(turn, name) for turn in turns))
    return sum(turn.messages for turn in turns) / max(seconds, 1e-9)


def peer_program() -> str | None:
    """Return the path of Node.js where it and the package are there."""
    node = shutil.which("node")
    return node if node is not None and (PACKAGE / "package.json").is_file() else None


def duel(node: str, messages: int = MESSAGES, turn: int = TURN) -> Duel:
    """Let both send and receive so many messages, in turns."""
    ours, theirs = zip(*_turns(node, messages, turn), strict=True)
    return Duel(ours, theirs)


def _turns(node: str, messages: int, turn: int) -> Iterator[tuple[Turn, Turn]]:
    mine = Ours()
    with Peer(node) as peer:
        for start in range(0, messages, turn):
            count = min(turn, messages - start)
            yield mine.turn(count), peer.turn(count)
