"""Two services and the stand-in nodes they use, each a process of its own: the scenarios that others test for channels.

Names in brackets are those of the tests of the reference implementation.
"""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from reliable_channel.core.wire import HistoryEntry, SdsMessage
from tests.support.serve_process import END_SEC, READY, ROOT, environment, serving

pytestmark = pytest.mark.timeout(150)

TOPIC = "/app/1/room/proto"
SPEED = "poll_ms=50&check_ms=500&confirm_ms=500"
SDS = {"acknowledgementTimeoutMs": 1_000, "bloomCapacity": 1_000}


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.05)


@contextmanager
def devnode(*arguments: str, nodes: int = 1) -> Iterator[list[str]]:
    """Run stand-in nodes as a process; give where they listen."""
    command = [sys.executable, "-W", "error", "-m", "api", "devnode", "--port", "0"]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [*command, "--nodes", str(nodes), *arguments],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=log,
            encoding="utf-8",
        ) as process,
    ):
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(nodes)]
            assert all(line.startswith(READY) for line in lines), lines
            yield [line.removeprefix(READY).strip() for line in lines]
            process.send_signal(signal.SIGTERM)
            assert process.wait(END_SEC) == 0
        finally:
            process.kill()


@dataclass
class Participant:
    """A service with one channel."""

    client: httpx.Client
    name: str
    channel: str = "room"
    requests: dict[bytes, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/v1/channels/{quote(self.channel, safe='')}"

    def open(self, **changes: Any) -> httpx.Response:
        body = {
            "channelId": self.channel,
            "contentTopic": TOPIC,
            "senderId": self.name,
            "sds": SDS,
            **changes,
        }
        return self.client.post("/v1/channels", json=body)

    def send(self, payload: bytes, *, ephemeral: bool = False) -> httpx.Response:
        body = {"payload": base64.b64encode(payload).decode(), "ephemeral": ephemeral}
        return self.client.post(f"{self.path}/messages", json=body)

    def messages(self) -> list[tuple[str, bytes]]:
        found = self.client.get(f"{self.path}/messages", params={"limit": 1000}).json()
        return [(m["senderId"], base64.b64decode(m["payload"])) for m in found["messages"]]

    def payloads(self) -> list[bytes]:
        return [payload for _, payload in self.messages()]

    def events(self) -> list[dict[str, Any]]:
        answer = self.client.get(f"{self.path}/events", params={"limit": 1000, "after": 0})
        found: list[dict[str, Any]] = answer.json()["events"]
        return found

    def state_of(self, answer: httpx.Response) -> str:
        request_id = answer.json()["requestId"]
        return str(self.client.get(f"{self.path}/requests/{request_id}").json()["state"])

    def sent(self, count: int) -> bool:
        """Say whether so many messages are with the network."""
        names = [event["name"] for event in self.events()]
        return names.count("reliable:message:sent") >= count

    def dropped(self) -> dict[str, int]:
        found: dict[str, int] = self.client.get(self.path).json()["status"]["dropped"]
        return found


@contextmanager
def participants(
    *names: str, database: Path | None = None, faults: tuple[str, ...] = (), shared: bool = False
) -> Iterator[tuple[list[Participant], list[str]]]:
    """Run a service for each name, each on a node of its own unless they share one."""
    with ExitStack() as stack:
        lag = () if "--store-lag-s" in faults else ("--store-lag-s", "0")
        urls = stack.enter_context(devnode(*lag, *faults, nodes=1 if shared else len(names)))
        found = []
        for number, name in enumerate(names):
            node = f"waku+{urls[0 if shared else number]}?{SPEED}"
            kept = f"sqlite:///{database}/{name}.db" if database else "memory://"
            service = stack.enter_context(serving("--database", kept, "--node", node))
            found.append(Participant(stack.enter_context(service.client()), name))
        yield found, urls


def say(url: str, payload: bytes, topic: str = TOPIC, *, marked: bool = True) -> None:
    """Publish something as a stranger would."""
    body: dict[str, Any] = {
        "payload": base64.b64encode(payload).decode(),
        "contentTopic": topic,
        "timestamp": time.time_ns(),
    }
    if marked:
        body["meta"] = base64.b64encode(b"RELIABLE-CHANNEL-API/1").decode()
    answer = httpx.post(f"{url}/relay/v1/auto/messages", json=body, timeout=END_SEC)
    assert answer.status_code == 200, answer.text


def test_messages_go_both_ways_and_are_delivered() -> None:
    """[RC05, N1, N5, G1]."""
    with participants("alice", "bob") as ([alice, bob], _):
        assert alice.open().status_code == 201
        assert bob.open().status_code == 201
        first = alice.send(b"hello")
        until(lambda: bob.messages() == [("alice", b"hello")])
        bob.send(b"hello yourself")
        until(lambda: alice.messages() == [("bob", b"hello yourself")])
        until(lambda: alice.state_of(first) == "delivered")
        assert alice.payloads() == [b"hello yourself"]  # its own does not come back


def test_the_same_id_twice_unknown_channels_and_empty_payloads() -> None:
    """[RC01, RC02, RC03, RC04]."""
    with participants("alice") as ([alice], _):
        assert alice.open().status_code == 201
        assert alice.open().status_code == 200
        assert alice.open(contentTopic="/app/1/other/proto").status_code == 409
        unknown = Participant(alice.client, "alice", "nowhere")
        assert unknown.send(b"x").status_code == 404
        assert alice.send(b"").status_code in (400, 422)
        ids = {alice.send(b"x").json()["requestId"] for _ in range(2)}
        ids.add(alice.send(b"x", ephemeral=True).json()["requestId"])
        assert len(ids) == 3
        assert all(ids)
        assert alice.client.delete(alice.path).status_code == 204
        assert alice.client.delete(alice.path).status_code == 404
        assert unknown.client.delete(unknown.path).status_code == 404


def test_foreign_traffic_on_the_topic_disturbs_nothing() -> None:
    """[N2, N12, G6, E1]."""
    with participants("alice", "bob") as ([alice, bob], urls):
        alice.open()
        bob.open()
        say(urls[0], b"not ours", marked=False)
        say(urls[0], b"\x00\xffgarbage")
        foreign = SdsMessage(
            sender_id="mallory",
            message_id="ab" * 32,
            channel_id="elsewhere",
            lamport_timestamp=1,
            content=b"x",
        )
        say(urls[0], foreign.encode())
        alice.send(b"hello")
        until(lambda: bob.payloads() == [b"hello"])
        until(lambda: bob.dropped().get("foreign_channel", 0) >= 1)
        assert bob.payloads() == [b"hello"]


def as_message(text: bytes, number: int, history: tuple[Any, ...] = ()) -> bytes:
    """Return an unsegmented message of a peer that knows neither segments nor our ids."""
    return SdsMessage(
        sender_id="carol",
        message_id=f"{number:064x}",
        channel_id="room",
        lamport_timestamp=int(time.time() * 1_000) + number,
        causal_history=history,
        content=text,
    ).encode()


def test_what_overtook_its_predecessor_waits_for_it() -> None:
    """[N10, N14]."""
    with participants("bob") as ([bob], urls):
        bob.open()
        say(urls[0], as_message(b"m0", 1))
        until(lambda: bob.payloads() == [b"m0"])
        first = as_message(b"m1", 2, (HistoryEntry(f"{1:064x}"),))
        second = as_message(b"m2", 3, (HistoryEntry(f"{2:064x}"),))
        say(urls[0], second)
        until(lambda: bob.client.get(bob.path).json()["status"]["parkedMessages"] == 1)
        assert bob.payloads() == [b"m0"]
        say(urls[0], first)
        until(lambda: bob.payloads() == [b"m0", b"m1", b"m2"])


def test_duplicate_envelopes_are_one_message_and_the_same_payload_twice_is_two() -> None:
    """[G7 and the wish for distinct ids]."""
    with participants("alice", "bob") as ([alice, bob], urls):
        alice.open()
        bob.open()
        say(urls[0], as_message(b"once", 1))
        say(urls[0], as_message(b"once", 1))
        until(lambda: ("carol", b"once") in bob.messages())
        alice.send(b"twice")
        alice.send(b"twice")
        until(lambda: bob.payloads().count(b"twice") == 2)
        say(urls[1], as_message(b"once", 1))
        alice.send(b"end")
        until(lambda: b"end" in bob.payloads())
        assert bob.payloads() == [b"once", b"twice", b"twice", b"end"]


def test_segments_make_one_message_also_with_loss() -> None:
    """[G2, G3, G12]."""
    with participants("alice", "bob", faults=("--loss", "0.2")) as ([alice, bob], _):
        small = {"segmentSizeBytes": 1_024}
        alice.open(segmentation=small)
        bob.open(segmentation=small)
        payload = bytes(range(256)) * 100
        sent = alice.send(payload)
        until(lambda: bob.payloads() == [payload], 60)
        until(lambda: alice.state_of(sent) == "delivered", 60)


def test_a_late_joiner_hears_what_comes_and_not_the_past() -> None:
    with participants("alice", "bob") as ([alice, bob], _):
        alice.open()
        for number in range(5):
            alice.send(b"past %d" % number)
        until(lambda: alice.sent(5))
        bob.open()
        alice.send(b"now")
        until(lambda: b"now" in bob.payloads())
        assert bob.payloads()[-1] == b"now"


def test_what_was_missed_while_closed_comes_and_nothing_comes_again(tmp_path: Path) -> None:
    """[replay after close and re-create; N3, N8]."""
    with participants("alice", "bob", database=tmp_path) as ([alice, bob], _):
        alice.open()
        bob.open()
        alice.send(b"before")
        until(lambda: bob.payloads() == [b"before"])
        assert bob.client.delete(bob.path).status_code == 204
        alice.send(b"during")
        until(lambda: alice.sent(2))
        assert bob.open().status_code == 201
        until(lambda: bob.payloads() == [b"before", b"during"])
        alice.send(b"after")
        until(lambda: bob.payloads() == [b"before", b"during", b"after"])


def test_two_channels_share_a_topic_and_closing_one_leaves_the_other() -> None:
    """[the subscription that closing a channel must not end]."""
    with participants("alice", "bob") as ([alice, bob], _):
        halls = [Participant(side.client, side.name, "hall") for side in (alice, bob)]
        for side in (alice, bob, *halls):
            assert side.open().status_code == 201
        alice.send(b"in the room")
        halls[0].send(b"in the hall")
        until(lambda: bob.payloads() == [b"in the room"])
        until(lambda: halls[1].payloads() == [b"in the hall"])
        assert halls[1].client.delete(halls[1].path).status_code == 204
        alice.send(b"still there")
        until(lambda: bob.payloads() == [b"in the room", b"still there"])


def test_three_participants_hear_each_other_in_order() -> None:
    with participants("alice", "bob", "carol", faults=("--loss", "0.1")) as (everybody, _):
        for side in everybody:
            assert side.open().status_code == 201
        for number in range(4):
            for side in everybody:
                side.send(b"%s %d" % (side.name.encode(), number))
        for side in everybody:
            until(lambda side=side: len(side.payloads()) == 8, 60)
            for other in everybody:
                if other is not side:
                    theirs = [p for sender, p in side.messages() if sender == other.name]
                    assert theirs == [b"%s %d" % (other.name.encode(), n) for n in range(4)]


def test_two_services_on_one_node() -> None:
    """They empty each other's cache; the store makes up for it."""
    with participants("alice", "bob", shared=True) as ([alice, bob], _):
        alice.open()
        bob.open()
        for number in range(5):
            alice.send(b"%d" % number)
            bob.send(b"re %d" % number)
        until(lambda: len(bob.payloads()) == len(alice.payloads()) == 5, 60)
        assert bob.payloads() == [b"%d" % number for number in range(5)]
        assert alice.payloads() == [b"re %d" % number for number in range(5)]


def test_a_service_killed_and_started_again_has_missed_nothing(tmp_path: Path) -> None:
    with devnode("--store-lag-s", "0", nodes=2) as urls, ExitStack() as stack:
        nodes = [f"waku+{url}?{SPEED}" for url in urls]
        far = stack.enter_context(serving("--database", "memory://", "--node", nodes[0]))
        alice = Participant(stack.enter_context(far.client()), "alice")
        alice.open()
        kept = ("--database", f"sqlite:///{tmp_path}/bob.db", "--node", nodes[1])
        with serving(*kept) as service, service.client() as client:
            bob = Participant(client, "bob")
            bob.open()
            alice.send(b"one")
            until(lambda: bob.payloads() == [b"one"])
            service.process.kill()
        for number in range(60):  # more than a node's cache holds
            alice.send(b"%d" % number)
        until(lambda: alice.sent(61))
        with serving(*kept) as service, service.client() as client:
            bob = Participant(client, "bob")
            until(lambda: client.get("/health").status_code == 200)  # its channel is open again
            until(lambda: len(bob.payloads()) == 61, 60)
            assert bob.payloads() == [b"one", *(b"%d" % number for number in range(60))]
