"""A process with a channel, made to be killed: it runs a `Talker` on a store of its own, through a `Relay`.

`Mortals` is the side of the test. Its one helper process imports everything once and then forks a new life on demand,
so that a restart takes no longer than the library needs. Nothing outlives the test: the helper ends when its standard
input does, and a life when its relay is gone.

Lines to the helper: the settings of a life as JSON, or ``reap``. Lines from it: ``started PID``, ``gone STATUS``, and
from the life itself ``open NUMBER REFUSALS``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import traceback
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from persistence import open_store
from reliable_channel import (
    ChannelExistsError,
    MessagingNode,
    RateLimitConfig,
    ReliableChannel,
    SdsConfig,
    SegmentationConfig,
    create_reliable_channel,
)
from reliable_channel.store import ChannelStore
from tests.support.relay import relay_node
from tests.support.talker import SEGMENT_BYTES, Notebook, Talker

ROOT: Final = Path(__file__).parents[2]
TOPIC: Final = "/app/1/room/proto"

SDS: Final = SdsConfig(
    acknowledgement_timeout_ms=400,
    sync_interval_ms=100,
    max_sync_interval_ms=200,
    max_retransmissions=1_000,
)
"""Timers for tests in real time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What one life of the process is given."""

    number: int
    url: str
    """Of its store."""
    relay: str
    """The relay's socket."""
    notebook: str
    """Where it writes down what happened."""
    parity: bool
    """Send parity segments too."""
    messages_per_epoch: int = 0
    """Budget of its node for each second; 0 is none."""
    talks: bool
    """Begin to send at once; otherwise it only goes on with what was begun, until told to end by SIGTERM."""


def segmentation(*, parity: bool) -> SegmentationConfig:
    """Return settings that make messages of one and of several segments."""
    return SegmentationConfig(
        segment_size_bytes=SEGMENT_BYTES, enable_reed_solomon=parity, parity_rate=0.34
    )


def rate_limit(messages: int) -> RateLimitConfig:
    """Return a budget for each second, or none."""
    if not messages:
        return RateLimitConfig()
    return RateLimitConfig(enabled=True, epoch_period_sec=1, messages_per_epoch=messages)


# --- In the process that is killed ---------------------------------------------------------------


async def open_channel(node: MessagingNode) -> tuple[ReliableChannel, int]:
    """Return the channel as soon as it can be had, and how often it was refused."""
    refusals = 0
    while True:
        try:
            return await create_reliable_channel(node, "room", TOPIC, "alice"), refusals
        except ChannelExistsError:
            refusals += 1


async def live(life: Life) -> None:
    """Be the application until it is killed, its relay is gone, or it is told to end and has nothing more to do."""
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    async with AsyncExitStack() as stack:
        store: ChannelStore = await stack.enter_async_context(open_store(life.url))
        node = await relay_node(
            life.relay,
            "alice",
            store,
            sds=SDS,
            segmentation=segmentation(parity=life.parity),
            rate_limit=rate_limit(life.messages_per_epoch),
        )
        await stack.enter_async_context(node)
        orphaned = asyncio.create_task(node.lost.wait())
        orphaned.add_done_callback(die)
        stack.callback(orphaned.remove_done_callback, die)
        channel, refusals = await open_channel(node)
        await stack.enter_async_context(channel)
        say(f"open {life.number} {refusals}")
        notebook = Notebook(Path(life.notebook))
        stack.callback(notebook.close)
        talker = Talker(channel, notebook, life.number)
        tasks = [asyncio.create_task(talker.listen())]
        if life.talks:
            tasks.append(asyncio.create_task(talker.send_for_ever()))
        end = asyncio.create_task(ending.wait())
        await asyncio.wait([*tasks, end], return_when=asyncio.FIRST_COMPLETED)
        if not end.done():
            await asyncio.gather(*tasks)  # raises why it ended
        await talker.finish()


def die(cause: object) -> None:
    """End at once: the test is gone."""
    os._exit(1)


def say(line: str) -> None:
    """Tell the test something."""
    os.write(1, f"{line}\n".encode())  # at once and whole


# --- In the helper -------------------------------------------------------------------------------


def serve() -> None:
    """Fork lives for the test until its end."""
    pid = 0
    for line in sys.stdin:
        if line == "reap\n":
            say(f"gone {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
        elif pid := os.fork():
            say(f"started {pid}")
        else:
            run(Life(**json.loads(line)))


def run(life: Life) -> None:
    """Live in the forked process, and end it."""
    try:
        asyncio.run(live(life))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(2)
    os._exit(0)


# --- In the test ---------------------------------------------------------------------------------


class Mortals:
    """Lives one after another, each in a process of its own; an asynchronous context manager.

    Args:
        log: Where the processes write what is not for the test: why one ended by itself.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._log_file: IO[bytes] | None = None
        self._helper: asyncio.subprocess.Process | None = None
        self.pid = 0
        """Of the life that is being lived; 0 where none is."""

    async def __aenter__(self) -> Self:
        self._log_file = self._log.open("ab")
        self._helper = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.mortal",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log_file,
            cwd=ROOT,
            # A process with threads cannot be forked, and numpy's library would have some.
            env=os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._helper is not None
        assert self._helper.stdin is not None
        assert self._log_file is not None
        if self.pid:
            self.strike()
        self._helper.stdin.close()
        await self._helper.communicate()
        self._log_file.close()

    async def start(self, life: Life) -> None:
        """Begin a life."""
        self._tell(json.dumps(asdict(life)))
        self.pid = int((await self._hear("started"))[0])

    async def opened(self, life: Life) -> int:
        """Wait until a life has its channel, and return how often it was refused."""
        while True:
            number, refusals = await self._hear("open")
            if int(number) == life.number:
                return int(refusals)

    def strike(self) -> None:
        """Kill the life."""
        os.kill(self.pid, signal.SIGKILL)

    async def reap(self) -> None:
        """Wait until nothing is left of a life that was killed.

        Raises:
            RuntimeError: It had ended before, by itself.
        """
        await self._reap(-signal.SIGKILL)

    async def finish(self) -> None:
        """Let the life end what it has begun, and close.

        Raises:
            RuntimeError: It ended otherwise.
        """
        os.kill(self.pid, signal.SIGTERM)
        await self._reap(0)

    async def _reap(self, expected: int) -> None:
        self._tell("reap")
        status = int((await self._hear("gone"))[0])
        self.pid = 0
        if status != expected:
            raise RuntimeError(f"it ended with {status}: {self._log.read_text()[-4000:]}")

    def _tell(self, line: str) -> None:
        assert self._helper is not None
        assert self._helper.stdin is not None
        self._helper.stdin.write(f"{line}\n".encode())

    async def _hear(self, what: str) -> list[str]:
        """Return the rest of the next line that begins with a word; others before it are of no interest any more."""
        assert self._helper is not None
        assert self._helper.stdout is not None
        while True:
            line = (await self._helper.stdout.readline()).decode().split()
            if not line:
                raise EOFError(f"the helper ended: {self._log.read_text()[-2000:]}")
            if line[0] == what:
                return line[1:]


if __name__ == "__main__":
    serve()
