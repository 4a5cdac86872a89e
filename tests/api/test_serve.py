"""``reliable-channel serve`` as people run it: it begins, says where, ends, and says in one line why it does not."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest

from api.cli import FAILED, MISUSED
from tests.support.serve_process import ROOT, ServeProcess, serve_once, serving

pytestmark = pytest.mark.timeout(120)

SAMPLE = ROOT / "docs" / "deployment" / "serve.toml"
TOKEN = "0123456789abcdef"


def secret_file(folder: Path, text: str) -> str:
    path = folder / "secret"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return str(path)


@contextmanager
def half_a_request(service: ServeProcess) -> Iterator[IO[bytes]]:
    """Ask for something whose body a route waits for: the two bytes ``{}``."""
    sock = socket.create_connection(("127.0.0.1", service.port), timeout=30)
    with sock, sock.makefile("rwb") as stream:
        stream.write(
            b"POST /v1/channels HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n"
        )
        stream.flush()
        assert stream.readline().startswith(b"HTTP/1.1 100 ")
        yield stream


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_listens_and_ends_well(number: int, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/a.db"
    with serving("--database", database) as service, service.client() as client:
        assert service.url.startswith("http://127.0.0.1:")
        assert client.get("/health/live").status_code == 200
        service.signal(number)
        ended = service.wait()
    assert (ended.code, ended.out) == (0, "")
    assert ended.log.splitlines()[-1].endswith("INFO reliable_channel.serving: stopped")
    assert (tmp_path / "a.db").exists()
    assert not (tmp_path / "a.db-wal").exists()  # closed properly


def test_a_request_under_way_is_answered_before_the_end() -> None:
    """Its body comes only after the signal."""
    with serving("--database", "memory://") as service:
        with half_a_request(service) as stream:
            service.signal(signal.SIGTERM)
            stream.write(b"{}")
            stream.flush()
            assert b"application/problem+json" in stream.read()
        assert service.wait().code == 0


def test_event_streams_end_with_a_reason() -> None:
    body = {"channelId": "room", "contentTopic": "/app/1/room/proto", "senderId": "alice"}
    with (
        serving("--database", "memory://", "--shutdown-timeout", "3600") as service,
        service.client() as client,
    ):
        assert client.post("/v1/channels", json=body).status_code == 201
        with client.stream("GET", "/v1/channels/room/events?after=0") as stream:
            assert stream.status_code == 200
            service.signal(signal.SIGTERM)
            text = stream.read().decode()
        ended = service.wait()
    assert "event: stream:closing" in text
    assert ended.code == 0
    assert "GET /v1/channels/room/events 200 " in ended.log


def test_a_request_that_never_ends_is_given_up_after_the_timeout() -> None:
    with (
        serving("--database", "memory://", "--shutdown-timeout", "0.1") as service,
        half_a_request(service),
    ):
        ended = service.stop()
    assert ended.code == 0
    assert "POST /v1/channels 499" in ended.log


def test_a_second_signal_ends_it_at_once() -> None:
    with (
        serving("--database", "memory://", "--shutdown-timeout", "3600") as service,
        half_a_request(service),
    ):
        service.signal(signal.SIGTERM)
        while not any("stopping within" in line for line in service.log()):
            assert service.process.poll() is None
        service.signal(signal.SIGTERM)
        ended = service.wait()
    assert ended.code == 128 + signal.SIGTERM
    assert "again, ending at once" in ended.log


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = serve_once("--port", str(port), "--database", "memory://")
    assert (ended.code, ended.out) == (FAILED, "")
    assert ended.log == (
        f"reliable-channel: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "choose others with --host and --port\n"
    )


MISTAKES = [
    (["--workers", "2"], MISUSED, "workers (--workers) must be 1: a channel is driven by one"),
    (["--host", "0.0.0.0"], MISUSED, "there are no tokens: name a --token-file"),
    (["--database", "mysql://u:hidden@h/d"], MISUSED, "not a store: 'mysql://u:***@h/d'"),
    (["--database", "sqlite:////no/such/folder/a.db"], FAILED, "/no/such/folder"),
    (["--node", "carrier+pigeon://u:hidden@h"], MISUSED, "no transport 'carrier+pigeon'"),
]


@pytest.mark.parametrize(("arguments", "code", "text"), MISTAKES)
def test_a_mistake_is_one_line(arguments: list[str], code: int, text: str) -> None:
    """Others are in the unit tests; these come up only when the service starts, or matter most."""
    ended = serve_once("--port", "0", "--database", "memory://", "--log-level", "error", *arguments)
    assert ended.out == ""
    (complaint,) = ended.log.splitlines()
    assert complaint.startswith("reliable-channel: ")
    assert text in complaint
    assert "hidden" not in complaint
    assert ended.code == code


def test_check_reads_everything_and_opens_nothing(tmp_path: Path) -> None:
    tokens = secret_file(tmp_path, f"read {TOKEN}r\nwrite {TOKEN}w\n")
    config = tmp_path / "serve.toml"
    config.write_text(f'host = "0.0.0.0"\ntoken_file = "{tokens}"\n', encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = serve_once(
            *("--check", "--config", str(config), "--database", f"sqlite:///{tmp_path}/a.db"),
            *("--port", str(taken.getsockname()[1])),
            env={"RELIABLE_CHANNEL_KEY_room": "5e" * 32},
        )
    assert (ended.code, ended.log) == (0, "")
    assert ended.out.startswith("ok: 0.0.0.0:")
    assert ended.out.endswith(", node memory://lab, 1 keys, 2 tokens\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "serve.toml"]


def test_the_sample_file_is_usable() -> None:
    environ = {"RELIABLE_CHANNEL_WRITE_TOKENS": TOKEN}
    ended = serve_once("--config", str(SAMPLE), "--check", env=environ)
    assert (ended.code, ended.log) == (0, "")


def test_settings_come_from_all_three_sources(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text('log_format = "json"\nlog_level = "error"\n', encoding="utf-8")
    env = {"RELIABLE_CHANNEL_CONFIG": str(config), "RELIABLE_CHANNEL_LOG_LEVEL": "info"}
    with serving("--database", "memory://", env=env) as service:
        lines = service.stop().log.splitlines()
    assert all(line.startswith('{"time": ') for line in lines)
    assert any('"level": "info"' in line for line in lines)


def test_tokens_and_keys_are_in_no_line(tmp_path: Path) -> None:
    key = "5e" * 32
    env = {
        "RELIABLE_CHANNEL_WRITE_TOKENS": TOKEN,
        "RELIABLE_CHANNEL_KEY_room": key,
        "RELIABLE_CHANNEL_NODE": "memory://lab?seed=1",
    }
    arguments = ("--database", f"sqlite:///{tmp_path}/a.db", "--log-level", "debug")
    with serving(*arguments, env=env) as service:
        with service.client() as client:
            body = {
                "channelId": "room",
                "contentTopic": "/app/1/room/proto",
                "senderId": "alice",
                "encryption": {"scheme": "aes-256-gcm", "keyRef": "room"},
            }
            headers = {"Authorization": f"Bearer {TOKEN}"}
            assert client.get("/v1/channels").status_code == 401
            assert client.post("/v1/channels", json=body, headers=headers).status_code == 201
            sent = {"payload": "c2VjcmV0LXBheWxvYWQ="}
            answer = client.post("/v1/channels/room/messages", json=sent, headers=headers)
            assert answer.status_code == 202
        ended = service.stop()
    assert ended.code == 0
    for secret in (TOKEN, key, sent["payload"], "secret-payload"):
        assert secret not in ended.log
    assert "POST /v1/channels/room/messages 202 " in ended.log


def test_beyond_this_machine_with_leave() -> None:
    arguments = ("--host", "0.0.0.0", "--allow-insecure", "--database", "memory://")
    with serving(*arguments) as service:
        answer = httpx.get(f"http://127.0.0.1:{service.port}/v1/channels", timeout=30)
        log = service.log()
    assert answer.status_code == 200
    assert any("WARNING" in line and "everybody who reaches 0.0.0.0" in line for line in log)


def test_refusals_are_counted_and_are_no_faults(tmp_path: Path) -> None:
    """Also those before a route is reached, and bodies whose size shows only as they come."""
    tokens = secret_file(tmp_path, f"write {TOKEN}\n")

    def chunks() -> Iterator[bytes]:
        for _ in range(9):
            yield b"x" * 500

    arguments = ("--database", "memory://", "--token-file", tokens)
    limit = {"RELIABLE_CHANNEL_MAX_BODY_BYTES": "4000"}
    with serving(*arguments, env=limit) as service, service.client() as client:
        assert client.get("/v1/channels").status_code == 401
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        room = {"channelId": "room", "contentTopic": "/test/1/room/proto", "senderId": "alice"}
        assert client.post("/v1/channels", json=room).status_code == 201
        for path, kind in (("/room/messages", "octet-stream"), ("", "json")):
            headers = {"Content-Type": f"application/{kind}"}
            answer = client.post(f"/v1/channels{path}", content=chunks(), headers=headers)
            assert answer.status_code == 413
        assert client.post("/v1/channels", content=b"x" * 5_000).status_code == 413
        counted = client.get("/metrics").text
        log = service.stop().log
    found = set(
        re.findall(r'http_requests_total\{method="(\w+)",route="(.*?)",status="(\d+)"', counted)
    )
    assert found == {
        ("GET", "none", "401"),
        ("POST", "/v1/channels", "201"),
        ("POST", "/v1/channels/{channelId}/messages", "413"),
        ("POST", "/v1/channels", "413"),
        ("POST", "none", "413"),
    }
    assert " ERROR " not in log
