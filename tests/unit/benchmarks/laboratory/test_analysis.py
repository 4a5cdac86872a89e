"""What an analysis writes, and the one line for each thing that can be wrong."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.laboratory import manifest as manifests
from benchmarks.laboratory.analysis import Analysis, analyze
from benchmarks.laboratory.storage import FILE_SCHEMA, folder_of
from persistence import SqlStore
from persistence.migrations import VERSION_TABLE
from persistence.testing import sample_event, sample_records, written
from reliable_channel.errors import ConfigurationError, StoreUnavailableError
from reliable_channel.records import ChannelRecord, EventRecord
from reliable_channel.types import MS, SECOND

START_NS = 1_700_000_000 * SECOND


def state(sender_id: str) -> ChannelRecord:
    return replace(
        sample_records(ChannelRecord)[1],
        sender_id=sender_id,
        created_ns=START_NS,
        last_seen_ns=START_NS,
        lamport_clock=START_NS // MS + 10**6,
    )


def event(sequence: int, name: str, second: int, **ids: str) -> EventRecord:
    none: dict[str, Any] = {"request_id": None, "message_id": None, "sender_id": None}
    return replace(
        sample_event(sequence, payload=None),
        name=f"reliable:message:{name}",
        time_ns=START_NS + second * SECOND,
        detail="",
        **{**none, **ids},
    )


def line(channel_id: str, sequence: int, name: str, second: int, **ids: str) -> str:
    value = {
        "sequence": sequence,
        "name": f"reliable:message:{name}",
        "channelId": channel_id,
        "time": f"2026-01-31T12:{second // 60:02}:{second % 60:02}.000000Z",
        **ids,
    }
    return json.dumps(value)


@pytest.fixture
async def url(tmp_path: Path) -> str:
    """A database with a channel that has events, one that has none, and a service's password in nobody's way."""
    url = f"sqlite:///{tmp_path}/alice.db"
    events = [
        event(1, "sent", 1, request_id="r"),
        event(2, "delivered", 3, request_id="r"),
        event(3, "received", 4_000, message_id="m", sender_id="bob"),
    ]
    async with SqlStore(url) as store:
        await store.commit("room", written([state("alice"), *events]))
        await store.commit("hall", written([state("alice")]))
    return url


def run(
    database: Any, events: Any, out: Path, tell: Callable[[str], object] = print, **more: Any
) -> Analysis:
    return analyze(database, events, out, engine="process", tell=tell, **more)


# --- What is written -----------------------------------------------------------------------------


def test_rows_manifest_and_measures(url: str, tmp_path: Path) -> None:
    out, told = tmp_path / "deep" / "out", []
    found = run(url, None, out, told.append)
    (cell,) = found.grid.cells
    table = pq.read_table(folder_of(out, cell.key) / "part-00000.parquet", partitioning=None)
    assert table.schema == FILE_SCHEMA
    hours = [START_NS // SECOND // 3_600 + number for number in (0, 1)]
    rows = table.to_pylist()
    assert [(row["channel"], row["confirmed"], row["delivered"]) for row in rows] == [
        (hours[0], 1, 0),
        (hours[1], 0, 1),
    ]
    manifest = manifests.read(out)
    assert manifest == found.manifest
    assert manifest.complete
    assert manifest.finished[cell.key].channels == 2
    assert manifest.grid["databases"] == [str(tmp_path / "alice.db")]
    assert manifest.grid["notes"]["confirmed_from_sent"] == 1
    assert told == [
        "confirmations timed from the sent event, since their requests are forgotten: 1",
        "deliveries without latency, since no log says when they were sent: 1",
    ]
    measures = found.measures[cell.key]
    assert (measures.channels, measures.sums["confirmed"], measures.sums["delivered"]) == (2, 1, 1)
    assert {"transmissions", "overhead", "complete", "completion"} <= measures.unknown
    assert not {"confirmed", "delivery", "confirmation"} & measures.unknown


def test_the_report_leaves_out_what_nobody_knows(url: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[spark]'")
    found = run(url, None, tmp_path / "out")
    assert {path.name for path in found.report} == {"report.html", "summary.csv"}
    (line,) = csv.DictReader((tmp_path / "out" / "summary.csv").read_text().splitlines())
    assert (line["confirmation"], line["delivery"], line["label:channel"]) != ("", "", "")
    assert [line[name] for name in ("transmissions", "sent_bytes", "bytes_per_payload_byte")] == [
        "",
        "",
        "",
    ]
    assert "Real traffic" in (tmp_path / "out" / "report.html").read_text()


def test_windows_may_be_shorter(url: str, tmp_path: Path) -> None:
    found = run(url, None, tmp_path / "out", window_ns=SECOND)
    assert found.manifest.grid["window_sec"] == 1
    (cell,) = found.grid.cells
    (row, _) = pq.read_table(folder_of(tmp_path / "out", cell.key)).to_pylist()
    assert row["channel"] == START_NS // SECOND + 1


async def test_a_database_that_is_in_use_is_read(url: str, tmp_path: Path) -> None:
    async with SqlStore(url) as store:
        await store.acquire_channel("room")
        found = run(url, None, tmp_path / "out")
        await store.commit("room", written([event(4, "sent", 5_000, request_id="s")]))
        again = run(url, None, tmp_path / "again")
    notes = [result.manifest.grid["notes"] for result in (found, again)]
    assert [found["undecided"] for found in notes] == [0, 0]
    assert [found["ephemeral"] for found in notes] == [0, 1], "it is read up to now"


def test_events_of_files(tmp_path: Path) -> None:
    """Two participants; one of their channels is in the same files, one in a file of its own."""
    logs = {
        "alice": [
            line("room", 1, "sent", 1, requestId="r"),
            line("hall", 1, "sent", 1, requestId="h"),
            line("room", 2, "delivered", 5, requestId="r"),
            line("room", 3, "received", 7, messageId="b", senderId="bob"),
            "broken",
        ],
        "bob": [
            line("room", 1, "received", 3, messageId="a", senderId="alice"),
            line("room", 2, "sent", 6, requestId="s"),
            line("room", 3, "delivered", 9, requestId="s"),
        ],
    }
    for name, lines in logs.items():
        (tmp_path / name).write_text("\n".join(lines))
    told: list[str] = []
    found = run(None, [tmp_path / "alice", tmp_path / "bob"], tmp_path / "out", told.append)
    hall, room = found.grid.cells
    assert (hall.name, room.name) == ("channel hall", "channel room")
    assert (hall.label("logs"), room.label("logs")) == ("1", "2")
    assert found.measures[hall.key].unknown - found.measures[room.key].unknown == {
        "complete",
        "completion",
        "receivers",
    }
    assert "payload_bytes" in found.measures[room.key].unknown
    sums = found.measures[room.key].sums
    assert {
        name: sums[name] for name in ("messages", "owed", "delivered", "complete", "confirmed")
    } == {"messages": 2, "owed": 2, "delivered": 2, "complete": 2, "confirmed": 2}
    assert told[0] == f"{tmp_path / 'alice'}:5: not JSON; the line is left out"
    assert found.manifest.grid["broken_lines"] == 1


def test_the_same_logs_give_the_same_digest(url: str, tmp_path: Path) -> None:
    digests = {run(url, None, tmp_path / name).manifest.digest for name in ("a", "b")}
    assert len(digests) == 1


# --- What can be wrong ---------------------------------------------------------------------------


def refusal(
    database: Any, events: Any, out: Path, error: type[Exception] = ConfigurationError, **more: Any
) -> str:
    with pytest.raises(error) as refused:
        run(database, events, out, **more)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_something_has_to_be_named(tmp_path: Path) -> None:
    for database, events in ((None, None), ([], []), ("sqlite:///a.db", tmp_path)):
        assert "one of the two" in refusal(database, events, tmp_path / "out")
    assert "named twice" in refusal(["sqlite:///a.db"] * 2, None, tmp_path / "out")
    assert "at least a second" in refusal(None, tmp_path, tmp_path / "out", window_ns=SECOND - 1)


def test_a_folder_with_results_is_left_alone(url: str, tmp_path: Path) -> None:
    run(url, None, tmp_path / "out")
    before = (tmp_path / "out" / "manifest.json").read_text()
    assert "has results already; name another folder" in refusal(url, None, tmp_path / "out")
    assert (tmp_path / "out" / "manifest.json").read_text() == before


def test_what_was_interrupted_can_be_done_again(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = run(url, None, out)
    (out / manifests.FILE).unlink()
    (cell,) = first.grid.cells
    (folder_of(out, cell.key) / "_part-7.unfinished").touch()
    again = run(url, None, out)
    assert again.manifest.digest == first.manifest.digest
    assert [path.name for path in folder_of(out, cell.key).iterdir()] == ["part-00000.parquet"]


async def test_databases_that_cannot_be_analyzed(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "there is no such file" in refusal(f"sqlite:///{tmp_path}/no.db", None, out)
    async with SqlStore(f"sqlite:///{tmp_path}/empty.db"):
        pass
    assert refusal(f"sqlite:///{tmp_path}/empty.db", None, out).endswith("the event log is empty")
    with closing(sqlite3.connect(tmp_path / "alice.db")) as connection, connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0001'")
    assert "has schema version 0001" in refusal(url, None, out)
    assert not out.exists()


def test_a_password_is_nowhere(tmp_path: Path) -> None:
    url = "postgresql+psycopg://alice:geheim@127.0.0.1:1/none?connect_timeout=1"
    assert "geheim" not in refusal(url, None, tmp_path / "out", StoreUnavailableError)


def test_files_that_cannot_be_analyzed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "there is no such file" in refusal(None, tmp_path / "no.jsonl", out)
    (tmp_path / "log.jsonl").write_text("\n")
    assert refusal(None, tmp_path / "log.jsonl", out).endswith("the event log is empty")
