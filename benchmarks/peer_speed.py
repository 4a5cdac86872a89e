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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from benchmarks.figures import Figure, Part, Table, figure
from benchmarks.machine_speed import (
    PAYLOAD_BYTES,
    RATE,
    Exchange,
    Turn,
    receptions,
    sends,
    turn_sizes,
)

PROGRAM: Final = Path(__file__).parent / "peers" / "sds_speed.mjs"

PACKAGE: Final = Path(__file__).parents[1] / "tests/interop/js/node_modules/@waku/sds"
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
        return Turn(messages, messages, 0, found["send"], found["receive"])


def peer_program() -> str | None:
    """Return the path of Node.js where it and the package are there."""
    node = shutil.which("node")
    return node if node is not None and (PACKAGE / "package.json").is_file() else None


def duel(node: str, messages: int, turn: int = TURN) -> Duel:
    """Let both send and receive so many messages, in turns."""
    ours, theirs = zip(*_turns(node, messages, turn), strict=True)
    return Duel(ours, theirs)


def _turns(node: str, messages: int, turn: int) -> Iterator[tuple[Turn, Turn]]:
    mine = Exchange()
    with Peer(node) as peer:
        for count in turn_sizes(messages, turn):
            yield mine.turn(count), peer.turn(count)


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
