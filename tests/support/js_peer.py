"""The published JavaScript implementation of SDS as a peer: a Node.js process, one command at a time.

``tests/interop/js/peer.mjs`` is the other end. The process has no clock of its own: every command says what time it
is. It ends with its standard input, so it outlives neither the test nor the test run. Nothing here judges.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, Final

import pytest

from reliable_channel.types import MS, ChannelId, MessageId, Nanoseconds, ParticipantId

FOLDER: Final = Path(__file__).parents[1] / "interop" / "js"

OLDEST_NODE: Final = 18
"""The packages ask for 22; they work from 18 on."""

ANSWER_SECONDS: Final = 15.0
"""How long a command may take, the start of the process included."""

DELIVERED: Final = "sds:in:message-delivered"
ACKNOWLEDGED: Final = "sds:out:message-acknowledged"
FAILED: Final = "sds:error-task"
REPAIR_REQUESTED: Final = "sds:repair:request-received"


def node_program() -> str:
    """Return the path of Node.js; skip the test where it or the packages are missing."""
    node = shutil.which("node")
    if node is None or node_version(node) < OLDEST_NODE:
        pytest.skip(
            f"needs Node.js {OLDEST_NODE} or later and npm; install them, then run `make interop`"
        )
    if not (FOLDER / "node_modules" / ".package-lock.json").is_file():  # npm writes it at the end
        pytest.skip("needs the packages of tests/interop/js; `make interop` installs them")
    return node


@cache
def node_version(node: str) -> int:
    """Return the major version of a Node.js program; 0 when it does not say."""
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"v(\d+)", done.stdout)
    return int(found[1]) if found else 0


class JsPeerError(Exception):
    """The process did not answer, or a command failed in it."""


@dataclass(frozen=True)
class JsEntry:
    """A dependency that the peer misses."""

    message_id: MessageId
    sender_id: ParticipantId | None
    hint: bytes | None


@dataclass(frozen=True)
class JsMessage:
    """A message in the peer's local history."""

    message_id: MessageId
    sender_id: ParticipantId
    lamport: int
    content: bytes


@dataclass(frozen=True)
class JsState:
    """What the peer holds.

    Attributes:
        lamport: Its Lamport time.
        history: Its local history, in order.
        outgoing: Ids of its messages that are not acknowledged.
        incoming: Ids of messages whose dependencies it misses.
    """

    lamport: int
    history: tuple[JsMessage, ...]
    outgoing: tuple[MessageId, ...]
    incoming: tuple[MessageId, ...]


class JsPeer:
    """One participant that the published package plays.

    What its channel raised is in ``events``: pairs of a name and a message id, or what went wrong, in order.

    Args:
        sender_id: Who it is.
        channel_id: The channel.
        now: When it begins.
        options: Of the package's MessageChannel, by the names they have there.
    """

    def __init__(
        self,
        sender_id: ParticipantId,
        channel_id: ChannelId,
        now: Nanoseconds,
        **options: Any,
    ) -> None:
        node = node_program()
        self.events: list[tuple[str, str]] = []
        self.answers: SimpleQueue[bytes] = SimpleQueue()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        env = {
            name: value
            for name, value in os.environ.items()
            if name != "DEBUG" and not name.startswith("NODE_")
        }
        self.process = subprocess.Popen(
            [node, "peer.mjs"],
            cwd=FOLDER,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        self.reader = Thread(target=self.read, name="answers of the peer", daemon=True)
        self.reader.start()
        try:
            self.ask("create", now, channel_id=channel_id, sender_id=sender_id, options=options)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> JsPeer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process, by force if need be."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.close()
            self.process.wait(2)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.reader.join(ANSWER_SECONDS)
        self.process.stdout.close()
        self.log.close()

    # -- what it is told ---------------------------------------------------------------------------

    def send(
        self, payload: bytes, now: Nanoseconds, *, hint: bytes | None = None
    ) -> Sequence[bytes]:
        """Let it send a payload, of which its transport gives the hint; return the message."""
        return self.ask("send", now, payload=text(payload), hint=hint and text(hint))[0]

    def send_ephemeral(self, payload: bytes, now: Nanoseconds) -> Sequence[bytes]:
        """Let it send an ephemeral payload; return the message."""
        return self.ask("send_ephemeral", now, payload=text(payload))[0]

    def resend(self, now: Nanoseconds) -> Sequence[bytes]:
        """Let it send again what nobody has acknowledged; return the messages."""
        return self.ask("resend", now)[0]

    def receive(self, message: bytes, now: Nanoseconds, *, hint: bytes | None = None) -> None:
        """Give it a message, of which its transport gives the hint."""
        self.ask("receive", now, message=text(message), hint=hint and text(hint))

    def sweep(self, now: Nanoseconds) -> tuple[JsEntry, ...]:
        """Let it deliver what waits for nothing more; return the dependencies that it misses."""
        answer = self.ask("sweep", now)[1]
        return tuple(
            JsEntry(item["message_id"], item["sender_id"], item["hint"] and b64decode(item["hint"]))
            for item in answer["missing"]
        )

    def sync(self, now: Nanoseconds) -> Sequence[bytes]:
        """Let it send a sync message; return it, or nothing where it has nothing to say."""
        return self.ask("sync", now)[0]

    def repair(self, now: Nanoseconds) -> Sequence[bytes]:
        """Let it send the messages that others asked for and whose time has come; return them."""
        return self.ask("repair", now)[0]

    def state(self, now: Nanoseconds) -> JsState:
        """Return what it holds."""
        answer = self.ask("state", now)[1]
        return JsState(
            lamport=answer["lamport"],
            history=tuple(
                JsMessage(
                    item["message_id"],
                    item["sender_id"],
                    item["lamport"],
                    b64decode(item["content"]),
                )
                for item in answer["history"]
            ),
            outgoing=tuple(answer["outgoing"]),
            incoming=tuple(answer["incoming"]),
        )

    def of(self, name: str) -> list[str]:
        """Return what the events of one name are about, in order."""
        return [subject for event, subject in self.events if event == name]

    # -- the pipe ----------------------------------------------------------------------------------

    def read(self) -> None:
        """Queue the answers; an empty one says that the process has ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(b"")

    def ask(self, do: str, now: Nanoseconds, **arguments: Any) -> tuple[list[bytes], Any]:
        """Give a command; return the messages it put on the wire, and the whole answer.

        Raises:
            JsPeerError: It failed, or there was no answer in time.
        """
        assert self.process.stdin is not None
        command = json.dumps({"do": do, "now_ms": now // MS, **arguments})
        try:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
            line = self.answers.get(timeout=ANSWER_SECONDS)
        except (OSError, Empty):
            line = b""
        if not line:
            self.process.kill()
            self.process.wait()
            self.log.seek(0)
            told = self.log.read().decode(errors="replace")[-2000:]
            raise JsPeerError(f"no answer to {do!r}\n{told}")
        answer = json.loads(line)
        self.events += [(name, item) for name, items in answer["events"] for item in items]
        if "error" in answer:
            raise JsPeerError(f"{do!r} failed: {answer['error']}")
        return [b64decode(wire) for wire in answer["wires"]], answer


def text(data: bytes) -> str:
    """Return bytes as they travel through the pipe."""
    return b64encode(data).decode()
