"""The service as a process, as far as one process of tests can tell; tests/api/test_serve.py runs it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from api.cli import FAILED, MISUSED, PROGRAM, run
from api.serving import (
    CLOSING_SEC,
    COLLECT_AFTER,
    SOCKET_SLACK_BYTES,
    Collecting,
    ServeFailedError,
    Server,
    Stop,
    check_node,
    listening,
    loop_factory,
    read_secrets,
    run_check,
    run_to_end,
    server_config,
    shown_host,
)
from api.settings import PREFIX, ServiceSettings
from api.sockets import MAX_FRAME_SLACK
from reliable_channel import ConfigurationError
from tests.support.edge_app import wrapped
from tests.support.hung_up import assert_hung_up

# Not through the CLI: what needs a process is in tests/api/test_serve.py.
MISTAKES = [
    (["--host", "0.0.0.0", "--check"], "there are no tokens: name a --token-file"),
    (["--port", "70000"], "port (--port) must be less than or equal to 65535, not 70000"),
    (["--port", "http"], "--port"),
    (["--log-level", "loud"], "log_level (--log-level) must be 'debug', 'info'"),
    (["--log-format", "xml"], "log_format (--log-format) must be 'text' or 'json', not 'xml'"),
    (["--shutdown-timeout", "-1"], "shutdown_timeout_sec (--shutdown-timeout) must be greater"),
    (["--workers", "0"], "workers (--workers) must be 1"),
    (["--cors-origin", "app.example"], "cors_origins (--cors-origin) must be origins"),
    (["--database", "mysql://u:hidden@h/d", "--check"], "not a store: 'mysql://u:***@h/d'"),
    (["--database", "u:hidden@h"], "database (--database) must be a URL"),
    (["--node", "carrier+pigeon://u:hidden@h", "--check"], "no transport 'carrier+pigeon'"),
    (["--node", "memory://lab?loss=2", "--check"], "loss"),
    (["--config", "no-such.toml"], "no-such.toml cannot be read: No such file"),
    (["--token-file", "no-such-tokens"], "no-such-tokens cannot be read: No such"),
    (["--keys-file", "no-such-keys"], "no-such-keys cannot be read: No such file"),
    (["--frob"], "--frob"),
]


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(("arguments", "text"), MISTAKES)
def test_a_mistake_is_one_line_and_nothing_is_opened(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", *arguments]) == MISUSED
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{PROGRAM}: ")
    assert text in err
    assert err.count("\n") == 1
    assert "hidden" not in err


def test_check_says_what_would_be_served(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ServiceSettings(
        host="::1", port=1, database="sqlite:///x.db", epoch_period_sec=60, messages_per_epoch=5
    )
    run_check(settings, {f"{PREFIX}KEY_room": "5e" * 32})
    expected = "ok: [::1]:1, database sqlite:///x.db, node memory://lab, 1 keys, 0 tokens\n"
    assert capsys.readouterr() == (expected, "")
    assert not Path("x.db").exists()


def test_every_flag_reaches_its_field(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[ServiceSettings] = []
    monkeypatch.setattr("api.serving.run_serve", lambda settings, environ: seen.append(settings))
    given = {
        "host": "::1",
        "port": "1",
        "database": "memory://",
        "node": "memory://x",
        "token-file": str(tmp_path / "t"),
        "keys-file": str(tmp_path / "k"),
        "cors-origin": "https://a.example",
        "allowed-host": "a.example",
        "log-level": "debug",
        "log-format": "json",
        "shutdown-timeout": "2.5",
        "workers": "1",
    }
    arguments = [part for name, value in given.items() for part in (f"--{name}", value)]
    assert run(["serve", *arguments, "--cors-origin", "https://b.example", "--allow-insecure"]) == 0
    assert seen == [
        ServiceSettings(
            host="::1",
            port=1,
            database="memory://",
            node="memory://x",
            token_file=tmp_path / "t",
            keys_file=tmp_path / "k",
            allow_insecure=True,
            cors_origins=("https://a.example", "https://b.example"),
            allowed_hosts=("a.example",),
            log_level="debug",
            log_format="json",
            shutdown_timeout_sec=2.5,
        )
    ]


def test_secrets_are_read_before_anything_is_opened() -> None:
    secrets = read_secrets(
        ServiceSettings(host="0.0.0.0"),
        {f"{PREFIX}WRITE_TOKENS": "0123456789abcdef", f"{PREFIX}KEY_room": "5e" * 32},
    )
    assert (secrets.keys.names, len(secrets.tokens)) == (("room",), 1)
    assert "5e5e" not in repr(secrets)
    with pytest.raises(ConfigurationError, match="no tokens"):
        read_secrets(ServiceSettings(host="0.0.0.0"), {})


@pytest.mark.parametrize("node", ["memory://lab?loss=2", "memory://lab?frob=1", "nothing://x"])
def test_a_node_that_cannot_be_is_found_without_opening_it(node: str) -> None:
    with pytest.raises(ConfigurationError):
        check_node(ServiceSettings(node=node))


# --- Listening -----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_free_port(host: str) -> None:
    with listening(host, 0) as sock:
        port = sock.getsockname()[1]
        socket.create_connection((host, port), timeout=5).close()
        with pytest.raises(
            ServeFailedError, match=f"{host}:{port}: Address already in use; choose"
        ):
            listening(host, port).__enter__()
    with listening(host, port):  # free again
        pass


async def test_small_answers_are_sent_at_once() -> None:
    """Without TCP_NODELAY each answer waits 40 ms for the client's system."""
    seen: list[int] = []

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        seen.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with listening("127.0.0.1", 0) as sock:
        async with await asyncio.start_server(accepted, sock=sock.dup()):
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            assert await reader.read() == b""
            writer.close()
    assert seen != [0]
    assert len(seen) == 1


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_an_address_of_others_is_one_line(host: str) -> None:
    with pytest.raises(ServeFailedError, match=f"cannot listen on {host}:1: ") as caught:
        listening(host, 1).__enter__()
    assert "\n" not in str(caught.value)
    assert FAILED != MISUSED


@pytest.mark.parametrize(
    ("host", "shown"), [("a", "a"), ("::1", "[::1]"), ("[::1]", "[::1]"), ("1.2.3.4", "1.2.3.4")]
)
def test_hosts_in_urls(host: str, shown: str) -> None:
    assert shown_host(host) == shown


async def test_it_says_where_it_listens_and_serves(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ServiceSettings(port=0)
    thresholds = gc.get_threshold()
    with listening(settings.host, 0) as sock:
        port = sock.getsockname()[1]
        server = Server(server_config(wrapped(), settings), settings)
        before = signal.getsignal(signal.SIGTERM)
        running = asyncio.create_task(server.serve([sock]))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            assert (await client.get("/v1/channels")).json() == {"role": "write"}
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold() == COLLECT_AFTER != thresholds
        assert signal.getsignal(signal.SIGTERM) is before
        server.should_exit = True
        await running
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == thresholds
    assert capsys.readouterr().out == f"Listening on http://127.0.0.1:{port}\n"


class Prompt(Server):
    """A server that ends in the turn in which it is told to."""

    def __init__(self) -> None:
        settings = ServiceSettings(port=0, shutdown_timeout_sec=1)
        super().__init__(server_config(wrapped(), settings), settings)
        self.told = asyncio.Event()

    async def main_loop(self) -> None:
        await self.told.wait()


@pytest.mark.parametrize("turns", range(6))
async def test_who_connects_while_it_ends_is_hung_up_on(turns: int) -> None:
    server = Prompt()
    with listening("127.0.0.1", 0) as sock:
        running = asyncio.create_task(server.serve([sock]))
        while not server.started:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
        with socket.create_connection(sock.getsockname(), timeout=5) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            server.told.set()
            await running
            assert_hung_up(client)
    assert not server.server_state.connections


def test_the_collector_is_as_before_when_the_last_server_has_ended() -> None:
    usual = gc.get_threshold()
    collecting = Collecting()
    collecting.begin()
    collecting.begin()
    assert gc.get_threshold() == COLLECT_AFTER
    collecting.end()
    assert gc.get_threshold() == COLLECT_AFTER
    assert gc.get_freeze_count() > 0
    collecting.end()
    assert gc.get_threshold() == usual
    assert gc.get_freeze_count() == 0


async def test_it_says_each_port_where_it_listens(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ServiceSettings(port=0)
    with listening(settings.host, 0) as first, listening(settings.host, 0) as second:
        server = Server(server_config(wrapped(), settings), settings)
        ports = [str(sock.getsockname()[1]) for sock in (first, second)]
        server.should_exit = True
        await server.serve([first, second])
    said = re.findall(r"Listening on http://127\.0\.0\.1:(\d+)\n", capsys.readouterr().out)
    assert said == ports


def test_the_server_believes_only_known_proxies() -> None:
    assert not server_config(wrapped(), ServiceSettings()).proxy_headers
    config = server_config(wrapped(), ServiceSettings(trusted_proxies=("10.0.0.1",)))
    assert config.proxy_headers
    assert config.forwarded_allow_ips == ["10.0.0.1"]


def test_the_server_takes_messages_as_large_as_bodies() -> None:
    assert SOCKET_SLACK_BYTES == MAX_FRAME_SLACK
    config = server_config(wrapped(), ServiceSettings(max_body_bytes=5_000))
    assert config.ws_max_size == 5_000 + MAX_FRAME_SLACK


# --- Ending --------------------------------------------------------------------------------------


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the process would have ended with."""
    seen: list[Any] = []

    def end(code: int) -> None:
        seen.append(code)
        raise SystemExit(code)

    monkeypatch.setattr("os._exit", end)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    return seen


async def test_the_first_signal_asks_and_the_second_ends(ends: list[Any]) -> None:
    settings = ServiceSettings()
    server = uvicorn.Server(server_config(wrapped(), settings))
    begun: list[bool] = []
    stop = Stop(server, 5, lambda: begun.append(server.should_exit))
    stop(signal.SIGTERM)
    assert begun == [True]
    assert ends == []
    with pytest.raises(SystemExit):
        stop(signal.SIGINT)
    assert ends == [128 + signal.SIGINT]
    stop.done()


async def test_an_end_that_takes_too_long_is_cut_short(ends: list[Any]) -> None:
    loop = asyncio.get_running_loop()
    stop = Stop(uvicorn.Server(server_config(wrapped(), ServiceSettings())), 5, lambda: None)
    before = loop.time()
    stop(signal.SIGTERM)
    assert stop.deadline == pytest.approx(before + 5 + CLOSING_SEC, abs=1)
    stop.done()
    assert stop.deadline is None


# --- The event loop --------------------------------------------------------------------------------


def test_the_service_runs_on_uvloop_where_that_is_installed() -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed (extra fast)")

    async def loop_in_use() -> None:
        used.append(asyncio.get_running_loop())

    used: list[asyncio.AbstractEventLoop] = []
    run_to_end(loop_in_use())
    assert isinstance(used[0], uvloop.Loop)


def test_without_uvloop_the_service_runs_on_the_loop_of_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_factory() is None
    ended = []

    async def end() -> None:
        ended.append(asyncio.get_running_loop())

    run_to_end(end())
    assert len(ended) == 1
