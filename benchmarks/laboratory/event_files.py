"""Reads events that a service gave out over HTTP and somebody kept in files.

Taken are the events as the service shows them everywhere, one JSON object a line: frames of a WebSocket; pages of
``GET …/events?limit=``, one after the other; and Server-Sent Events as they came. Whatever else is in a line is broken:
it is named, and the lines after it are read. Nothing here knows what events mean together.

Spec: RELIABLE-CHANNEL-API, events; WHATWG HTML, Server-sent events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.laboratory.traffic import Happening
from reliable_channel.errors import ConfigurationError
from reliable_channel.events import DURABLE_EVENTS
from reliable_channel.types import Nanoseconds

NAMED: Final = 10
"""Broken lines that are named; further ones are only counted."""

FRAMES: Final = ("accepted", "problem")
"""Types of the answers on a WebSocket, which are no events."""

ENDS: Final = "stream:"
"""How the names of a stream's last words begin."""

EVENT: Final = "reliable:"
"""How the names of events begin."""

SSE_FIELDS: Final = ("id:", "event:", "retry:", ":")
"""How lines of an event stream begin that hold no data."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_decode: Final = json.JSONDecoder().raw_decode


class LineError(ValueError):
    """A line holds what is no event."""


NO_NAME: Final = "no event: it has no name of one"
NO_PLACE: Final = "no event: sequence or channelId is missing"
NO_ID: Final = "no event: requestId or messageId is missing"
NO_TIME: Final = "no event: its time is none of RFC 3339"
"""What is wrong with a line."""


class FileEvent(NamedTuple):
    """A durable event of a file."""

    channel_id: str
    sequence: int
    happening: Happening


@dataclass(slots=True)
class Broken:
    """Lines that hold what is no event."""

    count: int = 0
    named: list[str] = field(default_factory=list)
    """``FILE:LINE: reason`` of the first of them."""
    repeated: int = 0
    """Events that came again; they are counted once."""

    def add(self, place: str, reason: object) -> None:
        """Note one."""
        self.count += 1
        if len(self.named) < NAMED:
            self.named.append(f"{place}: {reason}")

    def extend(self, other: Broken) -> None:
        """Note those of another file."""
        self.count += other.count
        self.repeated += other.repeated
        self.named = [*self.named, *other.named][:NAMED]


def files_of(path: Path) -> list[Path]:
    """Return the files of one participant's log: the file itself, or those of a folder by name, without hidden ones.

    Raises:
        ConfigurationError: There is none.
    """
    if path.is_dir():
        found = sorted(
            item for item in path.iterdir() if item.is_file() and not item.name.startswith(".")
        )
        if found:
            return found
        problem = f"{path}: there are no files in it"
        raise ConfigurationError(problem)
    if not path.is_file():
        problem = f"{path}: there is no such file"
        raise ConfigurationError(problem)
    return [path]


def read_events(files: Sequence[Path], broken: Broken) -> Iterator[FileEvent]:
    """Give the durable events of one participant's log, each once.

    Args:
        files: In their order; together they are the log.
        broken: Takes the lines that hold what is no event.

    Raises:
        ConfigurationError: One file has events that another has: they are two participants' logs.
        OSError: One cannot be read.
    """
    newest: dict[str, tuple[int, Path]] = {}
    for file in files:
        for event in _events_in(file, broken):
            last, where = newest.get(event.channel_id, (0, file))
            if event.sequence > last:
                newest[event.channel_id] = (event.sequence, file)
                yield event
            elif where == file:
                broken.repeated += 1
            else:
                problem = (
                    f"{file} has event {event.sequence} of channel {event.channel_id!r} after {where} had "
                    f"{last}; name each participant's log with an --events of its own"
                )
                raise ConfigurationError(problem)


def _events_in(file: Path, broken: Broken) -> Iterator[FileEvent]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                found = list(events_of(line))
            except LineError as error:
                broken.add(f"{file}:{number}", error)
            else:
                yield from found


def events_of(line: bytes) -> Iterator[FileEvent]:
    """Give the durable events of a line.

    Raises:
        LineError: It holds something else.
    """
    try:
        text = line.decode("utf-8").lstrip("\ufeff").strip()
    except UnicodeDecodeError as error:
        raise LineError("not UTF-8") from error
    text = text.removeprefix("data:").strip()
    if not text or text.startswith(SSE_FIELDS):
        return
    place = 0
    while place < len(text):
        try:
            value, place = _decode(text, place)
        except (ValueError, RecursionError) as error:
            raise LineError("not JSON") from error
        while place < len(text) and text[place].isspace():
            place += 1
        for item in _items(value):
            event = event_of(item)
            if event is not None:
                yield event


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict) and isinstance(value.get("events"), list):
        return list(value["events"])  # a page
    return [value]


def event_of(value: Any) -> FileEvent | None:
    """Return the durable event that JSON holds; None for what is live only, and for what is said about a stream.

    Raises:
        LineError: It is no event.
    """
    if not isinstance(value, dict):
        raise LineError("no JSON object")
    name = value.get("name")
    if value.get("type") in FRAMES or (isinstance(name, str) and name.startswith(ENDS)):
        return None
    if not isinstance(name, str) or not name.startswith(EVENT):
        raise LineError(NO_NAME)
    if name not in DURABLE_EVENTS:
        return None
    sequence, channel_id = value.get("sequence"), _text(value, "channelId")
    if not isinstance(sequence, int) or sequence < 1 or not channel_id:
        raise LineError(NO_PLACE)
    names = ("requestId", "messageId", "senderId")
    request_id, message_id, sender_id = (_text(value, item) for item in names)
    if not (request_id or message_id):
        raise LineError(NO_ID)
    return FileEvent(
        channel_id,
        sequence,
        Happening(
            _time_ns(value.get("time")),
            name,
            request_id=request_id,
            message_id=message_id,
            sender_id=sender_id,
            ephemeral=value.get("ephemeral") is True,
            late=value.get("late") is True,
        ),
    )


def _text(value: dict[str, Any], name: str) -> str:
    found = value.get(name, "")
    if not isinstance(found, str):
        problem = f"no event: {name} is no text"
        raise LineError(problem)
    return found


def _time_ns(text: Any) -> Nanoseconds:
    try:
        moment = datetime.fromisoformat(text)
        return (moment - _EPOCH) // _MICROSECOND * 1_000
    except (TypeError, ValueError, OverflowError) as error:
        raise LineError(NO_TIME) from error
