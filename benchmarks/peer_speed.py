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
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.figures import Figure, Part, Table, figure
from benchmarks.machine_speed import (
    PAYLOAD_BYTES,
    RATE,
    Turn,
    receptions,
    sends,
    turn_sizes,
)

ROOT: Final = Path(__file__).parents[1]

PROGRAM: Final = Path(__file__).parent / "peers" / "sds_speed.mjs"

PACKAGE: Final = ROOT / "tests/interop/js/node_modules/@waku/sds"
"""Where ``make interop`` installs it."""

INSTALL_PEER: Final = (
    "note: needs Node.js 18 or later and the packages that `make interop` installs"
)

PEER: Final = "@waku/sds"
SIZES: Final = (2_000, 10_000)
TURN: Final = 500

NO_LARGER: Final = (
    "100,000 messages are not measured: what a message costs the peer grows with those before it"
)
SYNC_EVERY: Final = 10
"""The peer's receiver acknowledges once in so many messages; ours when it is due."""


@dataclass(frozen=True, slots=True)
class Duel:
    """Both, turn by turn; the peer's turns have no acknowledgements that were timed."""

    ours: tuple[Turn, ...]
    theirs: tuple[Turn, ...]


class Side:
    """A program that does turns: it is told how many messages, and says what they took, line by line.

    Args:
        name: Whose it is, for errors.
        command: Runs it.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        self.sent = 0

    def __enter__(self) -> Self:
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
            text = f"{self.name} delivered {found.get('delivered')} of {self.sent} messages"
            raise RuntimeError(text)
        return Turn(messages, messages, 0, found["send"], found["receive"])


def ours() -> Side:
    """Start our machines."""
    return Side("ours", [sys.executable, "-m", "benchmarks.machine_turns"])


def peer(node: str) -> Side:
    """Start the peer."""
    program = [node, str(PROGRAM), str(PACKAGE), str(PAYLOAD_BYTES), str(SYNC_EVERY)]
    return Side(PEER, program)


def peer_program() -> str | None:
    """Return the path of Node.js where it and the package are there."""
    node = shutil.which("node")
    return node if node is not None and (PACKAGE / "package.json").is_file() else None


def duel(node: str, messages: int, turn: int = TURN) -> Duel:
    """Let both send and receive so many messages, in turns."""
    mine, theirs = zip(*_turns(node, messages, turn), strict=True)
    return Duel(mine, theirs)


def _turns(node: str, messages: int, turn: int) -> Iterator[tuple[Turn, Turn]]:
    with ours() as mine, peer(node) as theirs:
        for count in turn_sizes(messages, turn):
            yield mine.turn(count), theirs.turn(count)


def together(turns: Sequence[Turn]) -> Turn:
    """Return turns as one."""
    return Turn(
        *(
            sum(getattr(item, name) for item in turns)
            for name in ("messages", "receptions", "acknowledged", "send", "receive")
        )
    )


def figures(messages: int, found: Duel) -> Iterator[Figure]:
    """Give what one number of messages reached: all turns together, and turn by turn."""
    whole = Duel((together(found.ours),), (together(found.theirs),))
    for name, of in (("send", sends), ("receive with delivery", receptions)):
        for part, sides in (("all together", whole), ("turn by turn", found)):
            yield figure(
                f"{messages:,} messages: {name}, {part}",
                RATE,
                of(sides.ours),
                peer=PEER,
                theirs=of(sides.theirs),
            )


def tables() -> Iterator[Part]:
    """Measure all sizes beside the peer, where it is there."""
    node = peer_program()
    if node is None:
        yield INSTALL_PEER
        return
    found = [item for size in SIZES for item in figures(size, duel(node, size))]
    yield Table(
        "1 KiB beside @waku/sds, default bloom filter, causal history 2",
        tuple(found),
        (f"turns of {TURN} messages, each side in a process of its own, CPU seconds", NO_LARGER),
    )
