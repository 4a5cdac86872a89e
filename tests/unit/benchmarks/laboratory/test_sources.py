"""Which logs a channel has, whose they are, and what is read at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.laboratory.event_files import Broken
from benchmarks.laboratory.sources import (
    Database,
    FilePast,
    Files,
    happening_of,
    logs_of_files,
    look_into,
    look_through,
    read_files,
    tasks_of_databases,
    tasks_of_files,
)
from benchmarks.laboratory.traffic import Happening
from persistence import SqlStore
from persistence.past import ChannelPast, PastEvent
from reliable_channel.errors import ConfigurationError
from reliable_channel.types import MS


def past(channel_id: str, sender_id: str = "alice", newest: int = 9) -> ChannelPast:
    return ChannelPast(
        channel_id=channel_id,
        sender_id=sender_id,
        since_ns=0,
        until_ns=1,
        oldest=0,
        newest=newest,
        lamport_clock=1,
    )


def database(name: str, *channels: ChannelPast) -> Database:
    return Database(url=f"sqlite:////{name}.db", name=f"{name}.db", channels=channels)


def heard(*senders: str, sends: bool = True, channel_id: str = "room") -> FilePast:
    return FilePast(
        channel_id=channel_id,
        events=5,
        since_ns=0,
        until_ns=9,
        senders=frozenset(senders),
        has_requests=sends,
    )


def files(name: str, *channels: FilePast) -> Files:
    return Files(files=(Path(name),), name=name, channels=channels)


# --- Databases -----------------------------------------------------------------------------------


def test_each_channel_of_databases_is_a_task() -> None:
    tasks = tasks_of_databases(
        [
            database("alice", past("room"), past("hall", newest=3)),
            database("bob", past("room", "bob", 11)),
        ]
    )
    assert [task.channels for task in tasks] == [("hall",), ("room",)]
    assert tasks[1].sources("room") == ["alice.db", "bob.db"]
    assert [task.weight for task in tasks] == [3, 20]


def test_a_log_that_is_there_twice_is_refused() -> None:
    """Such as a backup beside the database that it was made of."""
    with pytest.raises(ConfigurationError, match="both have the log of 'alice' on channel 'room'"):
        tasks_of_databases([database("alice", past("room")), database("backup", past("room"))])


async def test_a_database_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqlStore(f"sqlite:///{tmp_path}/alice.db"):
        pass
    monkeypatch.chdir(tmp_path)
    found = look_into("sqlite:///alice.db")
    assert found.url == f"sqlite:///{found.name}"
    assert found.name.startswith("/")


def test_an_url_is_not_shown() -> None:
    shown = repr(Database(url="postgresql+psycopg://a:geheim@h/d", name="n", channels=()))
    assert "geheim" not in shown


def test_the_lamport_time_of_what_was_received_is_its_sending() -> None:
    event = PastEvent(
        *(4, "reliable:message:received", 77, None, "m", "bob", 5),
        '{"ephemeral":false,"late":true}',
        1_700,
    )
    assert happening_of(event) == Happening(
        77,
        "reliable:message:received",
        message_id="m",
        sender_id="bob",
        sent_ns=1_700 * MS,
        payload_bytes=5,
        late=True,
    )


# --- Files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pasts", "owners"),
    [
        ([heard("bob"), heard("alice")], "alice bob"),
        ([heard("bob"), heard("alice", "dave")], "- bob"),
        ([heard("bob", "carol"), heard("alice", "carol"), heard("alice")], "alice bob carol"),
        ([heard("bob"), heard(sends=True)], "- bob"),
        ([heard("bob", "dave"), heard("alice", "dave")], "alice bob"),
        ([heard("bob"), heard("alice"), heard(sends=False)], "alice bob -"),
        ([heard("bob")], "-"),
        ([heard("bob"), heard("alice"), heard("bob", "alice")], "alice bob -"),
    ],
    ids=[
        "two",
        "a stranger to one",
        "three",
        "one hears nothing",
        "a stranger",
        "a silent one",
        "alone",
        "a reader",
    ],
)
def test_a_log_is_of_whom_it_never_hears(pasts: list[FilePast], owners: str) -> None:
    sources = [files(str(place), found) for place, found in enumerate(pasts)]
    assert [log.sender_id or "-" for log in logs_of_files(sources, "room")] == owners.split()


def test_where_it_cannot_be_told_whose_a_log_is_nothing_is_owed_to_it() -> None:
    sources = [files("a", heard()), files("b", heard()), files("c", heard("alice"))]
    logs = logs_of_files(sources, "room")
    assert [(log.sender_id, log.exempt) for log in logs] == [
        ("", {"alice"}),
        ("", {"alice"}),
        ("", frozenset()),
    ]


def test_channels_that_share_files_are_read_together() -> None:
    sources = [
        files("1", heard(channel_id="a"), heard(channel_id="b")),
        files("2", heard(channel_id="c")),
        files("3", heard(channel_id="b"), heard(channel_id="d")),
        files("4"),
        files("5", heard(channel_id="e"), heard(channel_id="c")),
    ]
    tasks = tasks_of_files(sources)
    found = {task.channels: [source.name for source in task.files] for task in tasks}
    assert found == {("a", "b", "d"): ["1", "3"], ("c", "e"): ["2", "5"]}


def test_files_are_looked_through_and_read_by_time(tmp_path: Path) -> None:
    def line(sequence: int, second: int, sender: str = "") -> str:
        what = {"messageId": f"m{second}", "senderId": sender} if sender else {"requestId": "r"}
        name = "received" if sender else "sent"
        return json.dumps(
            {
                "sequence": sequence,
                "name": f"reliable:message:{name}",
                "channelId": "room",
                "time": f"2026-01-31T12:00:0{second}Z",
                **what,
            }
        )

    for name, lines in {
        "alice": [line(1, 1), line(2, 4, "bob"), "?"],
        "bob": [line(5, 2, "alice"), line(6, 3, "alice")],
    }.items():
        (tmp_path / name).write_text("\n".join(lines))
    alice, bob = (look_through(tmp_path / name) for name in ("alice", "bob"))
    (channel,) = alice.channels
    assert (channel.events, channel.senders, channel.has_requests) == (2, {"bob"}, True)
    assert channel.until_ns - channel.since_ns == 3 * 10**9
    assert (alice.broken.count, bob.broken) == (1, Broken())
    assert not bob.channels[0].has_requests
    order = [(place, event.sequence) for place, event in read_files([alice, bob])]
    assert order == [(0, 1), (1, 5), (1, 6), (0, 2)]
