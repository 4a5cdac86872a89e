"""The logs that an analysis reads: databases of services, or files of events, and what one task takes of them.

A task is a channel, with the logs of all participants that are there; of files, all channels that lie in the same files
are one task, so that each file is read once. A task opens what it reads by itself. Nothing here counts, nor knows
engines.

Spec: RELIABLE-CHANNEL-API, events.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from benchmarks.laboratory.event_files import Broken, FileEvent, files_of, read_events
from benchmarks.laboratory.traffic import SEND, Happening, Log, Sending
from persistence.past import ChannelPast, Past, PastEvent, PastRequest
from reliable_channel.errors import ConfigurationError
from reliable_channel.events import MessageReceivedEvent
from reliable_channel.types import MS, Nanoseconds

WITH_DETAIL: Final = (MessageReceivedEvent.name,)
"""Events of which more is counted than the columns say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A service's database."""

    url: str = field(repr=False)
    """May hold a password."""
    name: str
    """Without it."""
    channels: tuple[ChannelPast, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePast:
    """What a log in files tells of a channel when it is looked through."""

    channel_id: str
    events: int
    since_ns: Nanoseconds
    until_ns: Nanoseconds
    senders: frozenset[str]
    """Whose messages came."""
    has_requests: bool
    """Its owner sent something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """One participant's log in files."""

    files: tuple[Path, ...]
    name: str
    channels: tuple[FilePast, ...] = ()
    broken: Broken = field(default_factory=Broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is read at once."""

    channels: tuple[str, ...]
    databases: tuple[Database, ...] = ()
    """Of which only the task's channels are read."""
    files: tuple[Files, ...] = ()

    @property
    def weight(self) -> int:
        """Events that are read."""
        of_databases = (
            past.newest - past.oldest for database in self.databases for past in database.channels
        )
        of_files = (past.events for source in self.files for past in source.channels)
        return sum(of_databases) + sum(of_files)

    def sources(self, channel_id: str) -> list[str]:
        """Return the names of a channel's logs."""
        sources: tuple[Database | Files, ...] = (*self.databases, *self.files)
        return [
            source.name
            for source in sources
            if any(past.channel_id == channel_id for past in source.channels)
        ]


# --- Databases -----------------------------------------------------------------------------------


def look_into(url: str) -> Database:
    """Return what a database has.

    Raises:
        ConfigurationError: There is no such database, or its tables are not those of this release.
        StoreUnavailableError: It cannot be read.
    """
    past = Past(url)
    place = url
    if url.startswith("sqlite:"):  # whoever reads it may have another working directory
        place = f"sqlite:///{past.name}"
    return Database(url=place, name=past.name, channels=past.channels())


def tasks_of_databases(databases: Sequence[Database]) -> list[Task]:
    """Return a task for each channel.

    Raises:
        ConfigurationError: Two databases have the same participant's log of a channel.
    """
    found: dict[str, list[Database]] = {}
    for database in databases:
        for past in database.channels:
            only = Database(url=database.url, name=database.name, channels=(past,))
            for other in found.setdefault(past.channel_id, []):
                if other.channels[0].sender_id == past.sender_id:
                    problem = (
                        f"{other.name} and {database.name} both have the log of {past.sender_id!r} on "
                        f"channel {past.channel_id!r}; name one of them"
                    )
                    raise ConfigurationError(problem)
            found[past.channel_id].append(only)
    return [
        Task(channels=(channel_id,), databases=tuple(parts))
        for channel_id, parts in sorted(found.items())
    ]


def read_database(database: Database) -> tuple[Log, Iterator[Happening]]:
    """Return what is known of the log of its first channel, and what happened, by time."""
    (past,) = database.channels
    reader = Past(database.url)
    requests = reader.requests(past.channel_id)
    log = Log(
        sender_id=past.sender_id,
        since_ns=past.since_ns,
        until_ns=past.until_ns,
        requests={
            request.request_id: Sending(request.created_ns, request.ephemeral)
            for request in requests
        },
        has_sends=True,
    )
    return log, heapq.merge(
        map(happening_of, reader.events(past)),
        _sendings(reader, past, requests),
        key=itemgetter(0),
    )


def _sendings(
    reader: Past, past: ChannelPast, requests: Iterable[PastRequest]
) -> Iterator[Happening]:
    """Give the own messages; those whose requests are forgotten at their Lamport time."""
    known = {item.lamport_timestamp: item for item in requests if not item.ephemeral}
    for message in reader.sent(past):
        request = known.get(message.lamport_timestamp)
        lamport_ns = max(message.lamport_timestamp * MS, past.since_ns)
        time_ns = lamport_ns if request is None else request.created_ns
        if time_ns >= past.since_ns:
            yield Happening(
                time_ns,
                SEND,
                message_id=message.message_id,
                sender_id=past.sender_id,
                payload_bytes=0 if request is None else request.payload_bytes,
                segments=message.segment_count,
            )


def happening_of(event: PastEvent) -> Happening:
    """Return what a row of the event log tells."""
    details: dict[str, Any] = {}
    if event.name in WITH_DETAIL and event.detail:
        details = json.loads(event.detail)
    return Happening(
        event.time_ns,
        event.name,
        request_id=event.request_id or "",
        message_id=event.message_id or "",
        sender_id=event.sender_id or "",
        sent_ns=event.lamport_timestamp * MS,
        payload_bytes=event.payload_bytes,
        ephemeral=details.get("ephemeral") is True,
        late=details.get("late") is True,
    )


# --- Files ---------------------------------------------------------------------------------------


def look_through(path: Path) -> Files:
    """Return what a file, or the files of a folder, have; it reads all of them.

    Raises:
        ConfigurationError: There is none, or two of them are logs of different participants.
        OSError: One cannot be read.
    """
    return looked_through(Files(files=tuple(files_of(path.absolute())), name=str(path)))


def looked_through(source: Files) -> Files:
    """Return a source with what its files have."""
    broken = Broken()
    times: dict[str, list[int]] = {}
    senders: dict[str, set[str]] = {}
    asking: set[str] = set()
    for channel_id, _, happening in read_events(source.files, broken):
        seen = times.setdefault(channel_id, [0, happening.time_ns, happening.time_ns])
        seen[0] += 1
        seen[1] = min(seen[1], happening.time_ns)
        seen[2] = max(seen[2], happening.time_ns)
        if happening.request_id:
            asking.add(channel_id)
        elif happening.name == MessageReceivedEvent.name:
            senders.setdefault(channel_id, set()).add(happening.sender_id)
    return Files(
        files=source.files,
        name=source.name,
        broken=broken,
        channels=tuple(
            FilePast(
                channel_id=channel_id,
                events=count,
                since_ns=first,
                until_ns=last,
                senders=frozenset(senders.get(channel_id, ())),
                has_requests=channel_id in asking,
            )
            for channel_id, (count, first, last) in sorted(times.items())
        ),
    )


def tasks_of_files(sources: Sequence[Files]) -> list[Task]:
    """Return a task for each group of channels that lie in the same files."""
    groups: list[tuple[set[str], list[Files]]] = []
    for source in sources:
        channels = {past.channel_id for past in source.channels}
        if not channels:
            continue
        near = [group for group in groups if group[0] & channels]
        groups = [group for group in groups if group not in near]
        for others, parts in near:
            channels |= others
            parts.append(source)
        found = {id(part): part for _, parts in near for part in parts} | {id(source): source}
        groups.append((channels, list(found.values())))
    order = {id(source): place for place, source in enumerate(sources)}
    return [
        Task(
            channels=tuple(sorted(channels)),
            files=tuple(sorted(parts, key=lambda part: order[id(part)])),
        )
        for channels, parts in groups
    ]


def logs_of_files(sources: Sequence[Files], channel_id: str) -> list[Log]:
    """Return what is known of a channel's logs in files.

    Events do not say whose log they are in. A participant receives nothing of its own: so the log that has received
    nothing from a sender is that sender's, where there is one such log, or one such that has requests.
    """
    pasts = [
        past for source in sources for past in source.channels if past.channel_id == channel_id
    ]
    may_be: dict[str, set[int]] = {}
    for sender in sorted(set().union(*(past.senders for past in pasts))):
        places = {place for place, past in enumerate(pasts) if sender not in past.senders}
        may_be[sender] = {place for place in places if pasts[place].has_requests} or places
    owners = _owners(may_be)
    exempt = {
        place: frozenset(sender for sender, places in may_be.items() if place in places)
        for place in range(len(pasts))
    }
    return [
        Log(
            sender_id=owners.get(place, ""),
            since_ns=past.since_ns,
            until_ns=past.until_ns,
            exempt=exempt[place],
        )
        for place, past in enumerate(pasts)
    ]


def _owners(may_be: dict[str, set[int]]) -> dict[int, str]:
    """Return whose logs are whose for certain, and take those from what others may have.

    Args:
        may_be: By sender, the places of the logs that may be its own.
    """
    owners: dict[int, str] = {}
    while True:
        sure: dict[int, list[str]] = {}
        for sender, places in may_be.items():
            if len(places) == 1:
                sure.setdefault(next(iter(places)), []).append(sender)
        found = {
            place: senders[0]
            for place, senders in sure.items()
            if len(senders) == 1 and place not in owners
        }
        if not found:
            return owners
        owners |= found
        for sender, places in may_be.items():
            places -= {place for place, owner in found.items() if owner != sender}


def read_files(sources: Sequence[Files]) -> Iterator[tuple[int, FileEvent]]:
    """Give the events of several logs in the order of their times, each with the place of its log.

    Broken lines were named when the files were looked through.
    """

    def numbered(place: int, events: Iterable[FileEvent]) -> Iterator[tuple[int, FileEvent]]:
        return ((place, event) for event in events)

    streams = [
        numbered(place, read_events(source.files, Broken())) for place, source in enumerate(sources)
    ]
    return heapq.merge(*streams, key=lambda item: item[1].happening.time_ns)
