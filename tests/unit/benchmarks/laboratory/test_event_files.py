"""Which lines of files are events, and what becomes of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api.readers import event_json
from benchmarks.laboratory.event_files import (
    NAMED,
    Broken,
    FileEvent,
    LineError,
    events_of,
    files_of,
    read_events,
)
from benchmarks.laboratory.traffic import Happening
from reliable_channel.errors import ConfigurationError
from reliable_channel.events import (
    DURABLE_EVENTS,
    ChannelEvent,
    MessageProgressEvent,
    MessageReceivedEvent,
    MessageSentEvent,
    SenderIdConflictEvent,
)

TIME_NS = 1_700_000_000_123_456_000
SENT = MessageSentEvent(channel_id="room", sequence=3, time_ns=TIME_NS, request_id="r")


def shown(event: ChannelEvent = SENT, **changes: Any) -> str:
    """Return an event as the service shows it, with some members changed."""
    return json.dumps({**event_json(event), **changes})


def sent(sequence: int, channel_id: str = "room") -> str:
    return shown(sequence=sequence, channelId=channel_id)


def events(text: str) -> list[FileEvent]:
    return list(events_of(text.encode()))


# --- Lines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DURABLE_EVENTS)
def test_every_durable_event_is_read_as_the_service_shows_it(name: str) -> None:
    kind: Any = DURABLE_EVENTS[name]
    values = {
        "message": b"hello",
        "sender_id": "bob",
        "message_id": "m",
        "request_id": "r",
        "error": "no",
        "reason": "dependency_timeout",
        "expected_at": TIME_NS,
        "late": True,
        "ephemeral": True,
    }
    names = kind.__dataclass_fields__
    event = kind(
        channel_id="room",
        sequence=7,
        time_ns=TIME_NS,
        **{name: value for name, value in values.items() if name in names},
    )
    assert events(shown(event)) == [
        FileEvent(
            "room",
            7,
            Happening(
                TIME_NS,
                name,
                request_id="r" if "request_id" in names else "",
                message_id="m" if "message_id" in names else "",
                sender_id="bob" if "sender_id" in names else "",
                ephemeral="ephemeral" in names,
                late="late" in names,
            ),
        )
    ]


@pytest.mark.parametrize(
    ("line", "sequences"),
    [
        (shown(), [3]),
        (f"\ufeff {shown()}\r\n", [3]),
        (f"data: {shown()}\n", [3]),
        (f"data:{shown()}", [3]),
        (f'{{"events": [{sent(1)}, {sent(2)}], "next": 2}}', [1, 2]),
        (f'{{"events": [{sent(1)}], "next": 1}}{{"events": [{sent(2)}], "next": 2}}', [1, 2]),
        ('{"events": [], "next": 2}', []),
        ("", []),
        ("\n", []),
        ("id: 7", []),
        ("event: reliable:message:sent", []),
        (": still here", []),
        ("retry: 1000", []),
        ('data: {"name": "stream:closing", "channelId": "room", "resumeAfter": 3}', []),
        ('{"type": "accepted", "id": "1", "requestId": "r"}', []),
    ],
)
def test_all_forms_in_which_the_service_gives_events(line: str, sequences: list[int]) -> None:
    assert [event.sequence for event in events(line)] == sequences


def test_what_is_live_only_is_no_event_of_a_log() -> None:
    live = MessageProgressEvent(channel_id="room", request_id="r", sent=1, acknowledged=(), total=2)
    assert events(shown(live)) == []
    conflict = SenderIdConflictEvent(channel_id="room", sequence=1, sender_id="bob", message_id="m")
    assert len(events(shown(conflict))) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\xff", "not UTF-8"),
        (b"hello", "not JSON"),
        (b'{"name": ', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "no JSON object"),
        (b"{}", "it has no name of one"),
        (b'{"name": "greeting"}', "it has no name of one"),
        (shown(sequence="3").encode(), "sequence or channelId is missing"),
        (shown(sequence=0).encode(), "sequence or channelId is missing"),
        (shown(channelId="").encode(), "sequence or channelId is missing"),
        (shown(channelId=7).encode(), "channelId is no text"),
        (shown(requestId="").encode(), "requestId or messageId is missing"),
        (shown(time="yesterday").encode(), "its time is none of RFC 3339"),
        (shown(time=7).encode(), "its time is none of RFC 3339"),
        (shown(time="2026-01-31T12:00:00").encode(), "its time is none of RFC 3339"),
    ],
)
def test_everything_else_is_broken(line: bytes, reason: str) -> None:
    with pytest.raises(LineError) as broken:
        list(events_of(line))
    assert str(broken.value).endswith(reason)


# --- Files ---------------------------------------------------------------------------------------


def test_broken_lines_are_counted_named_and_left_out(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join([sent(1), "{", sent(2), *["?"] * 20, sent(3)]))
    broken = Broken()
    assert [event.sequence for event in read_events([file], broken)] == [1, 2, 3]
    assert broken.count == 21
    assert len(broken.named) == NAMED
    assert broken.named[:2] == [f"{file}:2: not JSON", f"{file}:4: not JSON"]


def test_a_repeated_event_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join([sent(1), sent(2), sent(2), sent(1, "hall"), sent(1), sent(3)]))
    broken = Broken()
    found = [(event.channel_id, event.sequence) for event in read_events([file], broken)]
    assert found == [("room", 1), ("room", 2), ("hall", 1), ("room", 3)]
    assert (broken.repeated, broken.count) == (2, 0)


def test_a_log_may_be_in_several_files(tmp_path: Path) -> None:
    for name, sequences in (("2.jsonl", (3, 4)), ("1.jsonl", (1, 2)), (".hidden", (9,))):
        (tmp_path / name).write_text("\n".join(sent(number) for number in sequences))
    files = files_of(tmp_path)
    assert [file.name for file in files] == ["1.jsonl", "2.jsonl"]
    assert [event.sequence for event in read_events(files, Broken())] == [1, 2, 3, 4]


def test_logs_of_two_participants_in_one_folder_are_refused(tmp_path: Path) -> None:
    for name in ("alice.jsonl", "bob.jsonl"):
        (tmp_path / name).write_text(sent(1))
    with pytest.raises(ConfigurationError, match="with an --events of its own") as refused:
        list(read_events(files_of(tmp_path), Broken()))
    assert "bob.jsonl has event 1 of channel 'room'" in str(refused.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        files_of(tmp_path / "no.jsonl")
    with pytest.raises(ConfigurationError, match="there are no files in it"):
        files_of(tmp_path)


def test_received_events_need_no_payload() -> None:
    """Who exports events may leave payloads out."""
    event = MessageReceivedEvent(
        channel_id="room", sequence=1, message=b"x", sender_id="bob", message_id="m"
    )
    value = event_json(event)
    del value["payload"]
    assert events(json.dumps(value))[0].happening.sender_id == "bob"
