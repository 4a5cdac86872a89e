"""Two services talk over a network that loses messages; their logs tell afterwards what happened."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from api.readers import event_json
from benchmarks.laboratory.analysis import Analysis, analyze
from benchmarks.laboratory.storage import folder_of
from messaging_adapter import NodeConfig, create_node
from persistence import open_store
from reliable_channel import (
    ChannelEvent,
    MessageDeliveredEvent,
    MessageLostEvent,
    MessageReceivedEvent,
    MessageSentEvent,
    ReliableChannel,
    SdsConfig,
    SegmentationConfig,
    create_reliable_channel,
)
from reliable_channel.types import MS

NAMES = ("alice", "bob")
MESSAGES = 120
EPHEMERAL = 6
"""Of each; every twentieth is ephemeral."""
NETWORK = "memory://past?loss=0.15&delay_ms=3&seed=5"
TIMES = {"acknowledgement_timeout_ms": 200, "sync_interval_ms": 300, "max_retransmissions": 1_000}
SEGMENTS = SegmentationConfig(segment_size_bytes=600, enable_reed_solomon=False)

pytestmark = [pytest.mark.timeout(120)]


@dataclass
class Talk:
    """What was done, and what the channels told while they were open."""

    urls: dict[str, str]
    sent_ns: dict[str, int] = field(default_factory=dict)
    """By request, when `send` was called."""
    stored_ns: dict[str, int] = field(default_factory=dict)
    """By request, when it returned."""
    payload_bytes: int = 0
    """Of all that is not ephemeral."""
    events: dict[str, list[ChannelEvent]] = field(default_factory=dict)

    def count(self, kind: type[ChannelEvent]) -> int:
        return sum(
            isinstance(event, kind) and not getattr(event, "ephemeral", False)
            for events in self.events.values()
            for event in events
        )


async def say(channel: ReliableChannel, talk: Talk) -> None:
    for number in range(MESSAGES):
        payload = bytes([number]) * (20 if number % 4 else 1_500)
        ephemeral = number % 20 == 7
        before = time.time_ns()
        request_id = await channel.send(payload, ephemeral=ephemeral)
        talk.sent_ns[request_id], talk.stored_ns[request_id] = before, time.time_ns()
        talk.payload_bytes += 0 if ephemeral else len(payload)
        await asyncio.sleep(0)


async def all_events(channel: ReliableChannel) -> list[ChannelEvent]:
    return await channel.read_events(after=0, limit=10_000)


async def converse(urls: dict[str, str], *, max_finished: int = 1_000) -> Talk:
    """Send from both until everything has arrived and was acknowledged."""
    talk, channels, closing = Talk(urls), [], []
    for name, url in urls.items():
        store = open_store(url)
        sds = SdsConfig(persistence=store, max_finished_requests=max_finished, **TIMES)
        config = NodeConfig(transport=NETWORK, sds_config=sds, segmentation_config=SEGMENTS)
        node = await create_node(config)
        channels.append(await create_reliable_channel(node, "room", "/app/1/room/proto", name))
        closing += [store, node]
    await asyncio.gather(*(say(channel, talk) for channel in channels))
    expected = 2 * (MESSAGES - EPHEMERAL)
    while True:
        talk.events = {
            name: await all_events(channel) for name, channel in zip(urls, channels, strict=True)
        }
        if min(talk.count(MessageReceivedEvent), talk.count(MessageDeliveredEvent)) >= expected:
            break
        await asyncio.sleep(0.05)
    for closed in (*channels, *reversed(closing)):
        await closed.close()
    return talk


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Talk:
    folder = tmp_path_factory.mktemp("services")
    urls = {name: f"sqlite:///{folder}/{name}.db" for name in NAMES}
    return asyncio.run(converse(urls))


def rows(found: Analysis, out: Path) -> list[dict[str, Any]]:
    return [
        row
        for cell in found.grid.cells
        for row in pq.read_table(folder_of(out, cell.key), partitioning=None).to_pylist()
    ]


def total(found: list[dict[str, Any]], column: str) -> Any:
    """Return the sum, or all values, of a column."""
    values = [row[column] for row in found]
    return sum(values, start=[] if isinstance(values[0], list) else 0)


def in_process(talk: Talk, out: Path, *names: str) -> list[dict[str, Any]]:
    urls = [talk.urls[name] for name in names]
    return rows(analyze(urls, None, out, engine="process", tell=_nothing), out)


def _nothing(line: str) -> None:
    pass


def check_both(talk: Talk, found: list[dict[str, Any]]) -> None:
    """See that rows of both logs say what happened."""
    messages = 2 * (MESSAGES - EPHEMERAL)
    exact = {
        "messages": messages,
        "owed": messages,
        "delivered": messages,
        "complete": messages,
        "confirmed": messages,
        "duplicated": 0,
        "send_errors": 0,
        "delivery_errors": 0,
        "payload_bytes": talk.payload_bytes,
        "lost": talk.count(MessageLostEvent),
        "receivers": [1] * messages,
        "transmissions": 0,
    }
    assert {name: total(found, name) for name in exact} == exact
    assert total(found, "segments") > messages, "some had several"
    check_times(talk, found)


def check_times(talk: Talk, found: list[dict[str, Any]]) -> None:
    """See that times lie between those that were taken around `send`."""
    for column, kind in (("confirm_ms", MessageDeliveredEvent), ("queue_ms", MessageSentEvent)):
        longest, shortest = [], []
        for events in talk.events.values():
            for event in events:
                if isinstance(event, kind) and event.request_id in talk.sent_ns:
                    longest.append((event.time_ns - talk.sent_ns[event.request_id]) // MS)
                    shortest.append((event.time_ns - talk.stored_ns[event.request_id]) // MS)
        measured = total(found, column)
        assert min(measured) >= 0
        assert sum(shortest) - len(shortest) <= sum(measured)
        if column == "confirm_ms":
            assert sum(measured) <= sum(longest)
    latency = total(found, "latency_ms")
    assert len(latency) == total(found, "delivered")
    assert min(latency) >= 0
    assert max(latency) <= max(
        (event.time_ns - min(talk.sent_ns.values())) // MS
        for events in talk.events.values()
        for event in events
    )


# --- In this process -----------------------------------------------------------------------------


def test_both_logs_tell_what_happened(talk: Talk, tmp_path: Path) -> None:
    check_both(talk, in_process(talk, tmp_path, *NAMES))


def test_one_log_tells_its_own_part(talk: Talk, tmp_path: Path) -> None:
    told = Counter(
        type(event) for event in talk.events["bob"] if not getattr(event, "ephemeral", False)
    )
    others, confirmed = told[MessageReceivedEvent], told[MessageDeliveredEvent]
    found = in_process(talk, tmp_path, "bob")
    assert total(found, "messages") == MESSAGES - EPHEMERAL
    assert total(found, "confirmed") == confirmed
    assert (total(found, "owed"), total(found, "delivered")) == (others, others)
    assert (total(found, "complete"), total(found, "receivers")) == (0, [])
    assert len(total(found, "latency_ms")) == others, "by the Lamport time of each"


def test_latency_by_lamport_time_is_that_of_the_sender(talk: Talk, tmp_path: Path) -> None:
    """The receiver's log alone gives nearly what both logs give: never more, and only a burst makes it less."""
    alone = in_process(talk, tmp_path / "bob", "bob")
    both = in_process(talk, tmp_path / "both", *NAMES)
    counted = Counter(total(both, "latency_ms"))
    assert sum(total(alone, "latency_ms")) <= sum(counted.elements()) + len(alone)


def test_exported_events_tell_the_same(talk: Talk, tmp_path: Path) -> None:
    """What the service gives out of one log, one event a line, and of the other as pages."""
    shown = {name: [event_json(event) for event in events] for name, events in talk.events.items()}
    (tmp_path / "alice.jsonl").write_text("\n".join(map(json.dumps, shown["alice"])))
    pages = [shown["bob"][place : place + 50] for place in range(0, len(shown["bob"]), 50)]
    (tmp_path / "bob.jsonl").write_text("".join(json.dumps({"events": page}) for page in pages))
    out = tmp_path / "out"
    paths = [tmp_path / f"{name}.jsonl" for name in NAMES]
    found = analyze(None, paths, out, engine="process", tell=_nothing)
    messages = 2 * (MESSAGES - EPHEMERAL)
    columns = ("messages", "owed", "delivered", "complete", "confirmed")
    assert {total(rows(found, out), name) for name in columns} == {messages}
    assert found.manifest.grid["notes"]["undecided"] == 2 * EPHEMERAL


async def test_what_is_forgotten_is_found_in_the_log(tmp_path: Path) -> None:
    """Requests that ended long ago are forgotten; their messages and events are not."""
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in NAMES}
    talk = await converse(urls, max_finished=10)
    found = await asyncio.to_thread(in_process, talk, tmp_path / "out", *NAMES)
    messages = 2 * (MESSAGES - EPHEMERAL)
    columns = ("messages", "owed", "delivered", "complete", "confirmed")
    assert {total(found, name) for name in columns} == {messages}
    assert len(total(found, "queue_ms")) < messages


@pytest.mark.real
async def test_postgresql(postgres_url: str, postgres_server: str, tmp_path: Path) -> None:
    from tests.support.postgres import schema_url

    with schema_url(postgres_server) as other:
        talk = await converse({"alice": postgres_url, "bob": other})
        check_both(talk, await asyncio.to_thread(in_process, talk, tmp_path, *NAMES))
    assert "search_path" not in (tmp_path / "manifest.json").read_text()


# --- With Spark ----------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_spark_writes_the_same_rows(talk: Talk, tmp_path: Path) -> None:
    """In a process of its own: a session of other tests must not be in the way."""
    pytest.importorskip("pyspark", reason="no PySpark: pip install '.[spark]'")
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        pytest.skip("no Java: apt-get install openjdk-17-jre-headless")
    urls, out = [talk.urls[name] for name in NAMES], tmp_path / "spark"
    program = (
        "import sys, pathlib; from benchmarks.laboratory.analysis import analyze\n"
        "found = analyze(sys.argv[2:], None, pathlib.Path(sys.argv[1]), master='local[2]', tell=print)\n"
        "cell, = found.grid.cells; print(found.manifest.digest, found.measures[cell.key].sums['owed'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(out), *urls],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    here = analyze(urls, None, tmp_path / "here", engine="process", tell=_nothing)
    assert done.stdout.splitlines()[-1].split() == [
        here.manifest.digest,
        str(2 * (MESSAGES - EPHEMERAL)),
    ]
    (cell,) = here.grid.cells
    tables = [pq.read_table(folder_of(folder, cell.key)) for folder in (out, tmp_path / "here")]
    assert tables[0].equals(tables[1])
