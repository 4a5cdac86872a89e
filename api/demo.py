"""``reliable-channel demo``: a file through a lossy network, from one sender to two receivers.

The network is in this process; all else is what an application does, by the library's public names only. The file is
read, sent and checked in pieces: it must never be in memory as a whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import stat
import sys
import sysconfig
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from messaging_adapter import NodeConfig, create_node
from persistence import open_store
from reliable_channel import (
    AesGcmEncryption,
    ConfigurationError,
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageProgressEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    ReliableChannel,
    ReliableChannelError,
    SdsConfig,
    SegmentationConfig,
    create_reliable_channel,
)

SENDER: Final = "alice"
RECEIVERS: Final = ("bob", "carol")

MAX_MESSAGE_BYTES: Final = 8 << 20
"""A larger file goes as several messages."""

MAX_OUTGOING_BYTES: Final = 2 * MAX_MESSAGE_BYTES
"""``send`` waits while so much is not acknowledged; so the file is read as fast as it arrives."""

MAX_EVENT_BYTES: Final = 1 << 20
"""Nobody replays events here: the stores need keep no received message but the newest."""

ACKNOWLEDGEMENT_TIMEOUT_MS: Final = 500
SYNC_INTERVAL_MS: Final = 1_000
"""A tenth and a thirtieth of the defaults, which are made for networks with seconds of delay. The silences between
syncs do not grow either: they would only let the demo wait when the last message and a sync after it are lost."""

BLOOM_CAPACITY: Final = 1_000
"""Every message carries the filter: 1.8 kB at this capacity, 18 kB at the default. A file of several
MB has a few hundred segments. Beyond the capacity the filter is no evidence any more, and the exact
acknowledgements do alone."""

DELAY_MS: Final = 5
JITTER_MS: Final = 15
"""A copy is under way for 5 to 20 ms."""

REFRESH_SEC: Final = 0.1
"""How often progress is looked at."""

COUNTERS: Final = {
    "rebuilt from parity": "segments_rebuilt",
    "transmissions": "transmissions",
    "retransmissions": "retransmissions",
    "store queries": "store_queries",
    "duplicates dropped": "duplicates",
}
"""Rows of the table and the counters of a channel that they show."""


class DemoFailedError(ReliableChannelError):
    """The file did not arrive at everybody whole and in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What the network does to each receiver's copies."""

    loss: float
    """Probability that a copy is lost."""
    duplicate: float
    """Probability that it arrives twice."""
    reorder: float
    """Probability that it is held back, so that later ones overtake it."""
    seed: int | None = None
    """Draws the faults; None is another each time."""

    @property
    def transport(self) -> str:
        """The URL of a network with these faults."""
        values = {
            "loss": self.loss,
            "duplicate": self.duplicate,
            "reorder": self.reorder,
            "delay_ms": DELAY_MS,
            "jitter_ms": JITTER_MS,
            "seed": self.seed,
        }
        return "memory://demo?" + "&".join(f"{name}={value}" for name, value in values.items())

    def __str__(self) -> str:
        """Return the faults in words."""
        return (
            f"{100 * self.loss:g} % loss, {100 * self.duplicate:g} % duplicates, "
            f"{100 * self.reorder:g} % out of order, {DELAY_MS}-{DELAY_MS + JITTER_MS} ms, "
            f"seed {self.seed}"
        )


def run_demo(file: Path | None, faults: Faults, *, parity: bool, timeout: int) -> None:
    """Send a file and show what happens.

    Args:
        file: What to send; None is the largest file of the running Python.
        faults: What the network does.
        parity: Add Reed-Solomon segments.
        timeout: Seconds before it gives up.

    Raises:
        ConfigurationError: The file cannot be sent, or a number is out of its bounds.
        DemoFailedError: Not everybody has the whole file, or not everything was acknowledged.
    """
    if faults.seed is None:
        faults = replace(faults, seed=secrets.randbelow(1_000_000))
    path = default_file() if file is None else file
    with open_file(path) as handle:
        asyncio.run(transfer(handle, faults, parity=parity, timeout=timeout))


# --- The file ------------------------------------------------------------------------------------


def default_file() -> Path:
    """Return the larger one of the running interpreter's binary and its shared library.

    Raises:
        ConfigurationError: Neither can be found.
    """
    found = [path for path in python_files() if path.is_file()]
    if not found:
        problem = "this Python does not say where its files are; name a FILE to send"
        raise ConfigurationError(problem)
    return max(found, key=lambda path: path.stat().st_size)


def python_files() -> Iterator[Path]:
    """Give the places where the interpreter's binary and its shared library may be."""
    if sys.executable:
        yield Path(os.path.realpath(sys.executable))
    # A framework build's library has its path below the frameworks' folder; an interpreter that was
    # moved after it was built has a LIBDIR that is gone.
    variables = sysconfig.get_config_vars("LIBDIR", "PYTHONFRAMEWORKPREFIX")
    folders = [*filter(None, variables), os.path.join(sys.base_prefix, "lib")]
    for name in filter(None, sysconfig.get_config_vars("INSTSONAME", "LDLIBRARY")):
        if not name.endswith(".a"):  # not what runs
            yield from (Path(os.path.realpath(os.path.join(folder, name))) for folder in folders)


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Open what is to be sent.

    Raises:
        ConfigurationError: It is no file, cannot be read or is empty.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a named pipe would wait for its other end
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
            problem = f"{str(path)!r} is {kind}; name a file to send"
            raise ConfigurationError(problem)
        if not status.st_size:
            problem = f"{str(path)!r} is empty; there is nothing to send"
            raise ConfigurationError(problem)
        handle = path.open("rb")
    except OSError as error:
        problem = f"{str(path)!r} cannot be read: {error.strerror}"
        raise ConfigurationError(problem) from error
    with handle:
        yield handle


def piece_sizes(size: int, largest: int) -> list[int]:
    """Return the sizes of the messages that a file is sent as."""
    whole, rest = divmod(size, largest)
    return [largest] * whole + [rest] * bool(rest)


async def read_pieces(handle: BinaryIO, sizes: Iterable[int]) -> AsyncIterator[bytes]:
    """Read a file piece by piece, without holding up the event loop.

    Raises:
        DemoFailedError: It has become shorter, or cannot be read.
    """
    for size in sizes:
        try:
            piece = await asyncio.to_thread(handle.read, size)
        except OSError as error:
            problem = f"the file cannot be read any more: {error.strerror}"
            raise DemoFailedError(problem) from error
        if len(piece) < size:
            problem = "the file has become shorter while it was sent"
            raise DemoFailedError(problem)
        yield piece


# --- The participants ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Share:
    """How much of the file somebody has, or has proof of."""

    name: str
    what: str
    done: int
    """Segments."""
    total: int
    """Segments of the whole file; an estimate before all of it is segmented."""

    @property
    def percent(self) -> int:
        """The share in whole percent, rounded down."""
        return 100 * min(self.done, self.total) // max(self.total, 1)

    def __str__(self) -> str:
        """Return the share in words."""
        return f"{self.name} {self.what} {self.done} of {self.total} segments"


class Participant:
    """Somebody on the channel, and the digest of what went through their hands.

    Args:
        channel: Theirs, open.
    """

    def __init__(self, channel: ReliableChannel) -> None:
        self.channel = channel
        self.name = channel.sender_id
        self.events = channel.events()
        self.digest = hashlib.sha256()
        self.octets = 0
        self.started_at = asyncio.get_running_loop().time()
        self.seconds = 0.0  # until everything was done; 0 before

    def count(self, *names: str) -> int:
        """Return the sum of some of the channel's counters."""
        counters = self.channel.status().counters
        return sum(counters.get(name, 0) for name in names)

    def take(self, piece: bytes) -> None:
        """Take note of a piece of the file, in its order."""
        self.digest.update(piece)
        self.octets += len(piece)

    def finish(self) -> None:
        """Take note of the time at which everything was done."""
        self.seconds = asyncio.get_running_loop().time() - self.started_at


class Sender(Participant):
    """Sends the file and waits for the proof that every message was delivered.

    Args:
        channel: Open.
        size: Of the file, bytes.
    """

    def __init__(self, channel: ReliableChannel, size: int) -> None:
        super().__init__(channel)
        self.size = size
        self.sizes = piece_sizes(size, min(MAX_MESSAGE_BYTES, channel.max_payload_bytes))
        self.segments = 0
        self.acknowledged: dict[str, int] = {}

    async def send(self, handle: BinaryIO) -> None:
        """Send the file; each message waits until there is room for it."""
        async for piece in read_pieces(handle, self.sizes):
            request_id = await self.channel.send(piece)
            self.take(piece)
            self.segments += len(self.channel.request_status(request_id).segments)

    async def follow(self) -> None:
        """Watch the requests until all of them are delivered.

        Raises:
            DemoFailedError: One of them ended otherwise.
        """
        delivered = 0
        async for event in self.events:
            match event:
                case MessageProgressEvent(request_id=request_id, acknowledged=acknowledged):
                    most = max((segments for _, segments in acknowledged), default=0)
                    self.acknowledged[request_id] = most
                case MessageSendErrorEvent(error=error) | MessageDeliveryErrorEvent(error=error):
                    problem = f"a message of {self.name} was not delivered: {error}"
                    raise DemoFailedError(problem)
                case MessageDeliveredEvent():
                    delivered += 1
                    if delivered == len(self.sizes):
                        self.finish()
                        return

    @property
    def plan(self) -> str:
        """What is to be sent, in words."""
        count = len(self.sizes)
        return f"{decimal(self.size)} in {count} message{'s' * (count > 1)}"

    @property
    def expected_segments(self) -> int:
        """Segments of the whole file; what is not segmented yet is taken to be like the rest."""
        if not self.octets:
            return 0
        return -(-self.segments * self.size // self.octets)

    @property
    def share(self) -> Share:
        """How much is acknowledged, by whoever has most of each message."""
        done = sum(self.acknowledged.values())
        return Share(self.name, "acknowledged", done, self.expected_segments)


class Receiver(Participant):
    """Receives the messages in the order in which they were sent, and so the file."""

    async def receive(self, size: int) -> None:
        """Take messages until so many bytes are there.

        Raises:
            DemoFailedError: Part of it is lost for good.
        """
        async for event in self.events:
            match event:
                case MessageReceivedEvent(message=message):
                    self.take(message)
                    if self.octets >= size:
                        self.finish()
                        return
                case MessageLostEvent(reason=reason):
                    problem = f"a message to {self.name} is lost: {reason}"
                    raise DemoFailedError(problem)

    def share(self, expected: int) -> Share:
        """Return how much is received, or rebuilt from parity."""
        done = self.count("segments_received", "segments_rebuilt")
        return Share(self.name, "received", done, expected)


# --- The transfer --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """Everybody on the channel."""

    sender: Sender
    receivers: tuple[Receiver, ...]

    @property
    def everybody(self) -> tuple[Participant, ...]:
        """The sender first."""
        return (self.sender, *self.receivers)

    @property
    def is_done(self) -> bool:
        """Whether everybody has the whole file, or the proof that it was delivered."""
        return all(participant.seconds for participant in self.everybody)

    @property
    def shares(self) -> list[Share]:
        """How far everybody is."""
        expected = self.sender.expected_segments
        return [self.sender.share, *(receiver.share(expected) for receiver in self.receivers)]


async def transfer(handle: BinaryIO, faults: Faults, *, parity: bool, timeout: int) -> None:
    """Open the channels, send a file, show what happens.

    Raises:
        ConfigurationError: The network cannot be what it should be.
        DemoFailedError: Not everybody has the whole file, or not everything was acknowledged.
    """
    console = Output(highlight=False, markup=False, emoji=False, soft_wrap=True)
    async with AsyncExitStack() as stack:
        encryption = AesGcmEncryption(AesGcmEncryption.generate_key())
        channels = [
            await join(stack, name, encryption, faults, parity=parity)
            for name in (SENDER, *RECEIVERS)
        ]
        sender = Sender(channels[0], os.fstat(handle.fileno()).st_size)
        group = Group(sender, tuple(Receiver(channel) for channel in channels[1:]))
        console.print(f"{SENDER} sends {handle.name!r} to {' and '.join(RECEIVERS)}, {sender.plan}")
        console.print(f"network: {faults}; encryption: AES-256-GCM")
        with view_for(console) as view:
            await carry(group, handle, timeout, view)
        report(group, console)


async def join(
    stack: AsyncExitStack, name: str, encryption: AesGcmEncryption, faults: Faults, *, parity: bool
) -> ReliableChannel:
    """Open a participant's store, node and channel; the stack closes them.

    Raises:
        ConfigurationError: The network cannot be what it should be.
    """
    store = open_store("memory://", max_event_bytes=MAX_EVENT_BYTES)
    await stack.enter_async_context(store)
    sds_config = SdsConfig(
        persistence=store,
        acknowledgement_timeout_ms=ACKNOWLEDGEMENT_TIMEOUT_MS,
        sync_interval_ms=SYNC_INTERVAL_MS,
        max_sync_interval_ms=SYNC_INTERVAL_MS,
        bloom_capacity=BLOOM_CAPACITY,
        max_outgoing_bytes=MAX_OUTGOING_BYTES,
    )
    node = await create_node(
        NodeConfig(
            transport=faults.transport,
            sds_config=sds_config,
            segmentation_config=SegmentationConfig(enable_reed_solomon=parity),
        )
    )
    await stack.enter_async_context(node)
    return await stack.enter_async_context(
        await create_reliable_channel(
            node,
            channel_id="demo",
            content_topic="/reliable-channel/1/demo/proto",
            sender_id=name,
            encryption=encryption,
        )
    )


async def carry(group: Group, handle: BinaryIO, timeout: int, view: View) -> None:
    """Send the file; return when everybody has it and the sender knows that everything was delivered.

    Args:
        group: Who sends and receives.
        handle: The file.
        timeout: Seconds before it gives up.
        view: Shows progress meanwhile.

    Raises:
        DemoFailedError: That did not happen, or not in time.
    """
    try:
        async with asyncio.timeout(timeout), asyncio.TaskGroup() as tasks:
            tasks.create_task(keep_showing(group, view))
            tasks.create_task(group.sender.send(handle))
            tasks.create_task(group.sender.follow())
            for receiver in group.receivers:
                tasks.create_task(receiver.receive(group.sender.size))
    except TimeoutError as error:
        problem = f"not finished within {timeout} s: {', '.join(map(str, group.shares))}"
        raise DemoFailedError(problem) from error
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


# --- What is shown -------------------------------------------------------------------------------


class Output(Console):
    """Standard output."""

    def on_broken_pipe(self) -> None:
        """Let the error out: rich would leave the process from within the event loop."""
        raise


class View(Protocol):
    """Shows how far everybody is."""

    def show(self, shares: Sequence[Share]) -> None:
        """Show it, if there is news."""


class LiveView:
    """Bars on a terminal.

    Args:
        progress: Draws them.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.tasks = {
            name: progress.add_task(name, total=None, what="") for name in (SENDER, *RECEIVERS)
        }

    def show(self, shares: Sequence[Share]) -> None:
        """Draw the bars anew."""
        for share in shares:
            self.progress.update(
                self.tasks[share.name],
                completed=share.done,
                total=share.total or None,
                what=f"{share.done} {share.what}",
            )
        self.progress.refresh()


class PlainView:
    """A line for each quarter of the way, for pipes, files and terminals that cannot draw.

    Args:
        console: Where the lines go.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.quarters = 0

    def show(self, shares: Sequence[Share]) -> None:
        """Write a line when the slowest has come to another quarter."""
        quarters = min(share.percent for share in shares) // 25
        if quarters > self.quarters:
            self.quarters = quarters
            texts = (f"{share.name} {share.what} {share.percent} %" for share in shares)
            self.console.print(", ".join(texts))


@contextmanager
def view_for(console: Console) -> Iterator[View]:
    """Give the view that suits where the output goes; environment variables cannot make a file draw."""
    if not (console.is_interactive and console.file.isatty()):
        yield PlainView(console)
        return
    columns = (
        TextColumn("{task.description:<5}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        yield LiveView(progress)


async def keep_showing(group: Group, view: View) -> None:
    """Show progress until everybody is done."""
    while not group.is_done:
        view.show(group.shares)
        await asyncio.sleep(REFRESH_SEC)
    view.show(group.shares)


def report(group: Group, console: Console) -> None:
    """Write the table and the digests.

    Raises:
        DemoFailedError: A receiver has another digest than the sender.
    """
    table = Table()
    table.add_column("")
    for participant in group.everybody:
        table.add_column(participant.name, justify="right")
    table.add_row("segments", *(str(share.done) for share in group.shares))
    for title, counter in COUNTERS.items():
        counts = [participant.count(counter) for participant in group.everybody]
        if any(counts) or counter != "segments_rebuilt":
            table.add_row(title, *map(str, counts))
    table.add_row("seconds", *(f"{participant.seconds:.2f}" for participant in group.everybody))
    console.print(table)
    for participant in group.everybody:
        console.print(f"sha256 {participant.name:<5}  {participant.digest.hexdigest()}")
    differing = [
        receiver.name
        for receiver in group.receivers
        if receiver.digest.digest() != group.sender.digest.digest()
    ]
    if differing:
        problem = f"what {' and '.join(differing)} received is not what {SENDER} sent"
        raise DemoFailedError(problem)
    console.print("delivered: every message is acknowledged and all digests agree")
