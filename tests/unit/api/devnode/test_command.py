"""The command: which routes a node has, and what it says of mistakes; tests/api/test_devnode.py runs it."""

from __future__ import annotations

import pytest

from api.cli import FAILED, MISUSED, PROGRAM, run
from api.devnode import command
from api.devnode.command import make_application, make_router, server_config
from api.devnode.network import Network
from api.devnode.settings import DevnodeSettings
from api.serving import listening
from tests.support.devnode import ManualTimers

MISTAKES = [
    (["--loss", "2"], "loss must be from 0.0 to 1.0, not 2.0"),
    (["--port", "70000"], "port must be from 0 to 65535"),
    (["--port", "65535", "--nodes", "2"], "port must leave room for 2 ports"),
    (["--without", "rely"], "without must name some of relay, filter, lightpush, store"),
    (["--messaging-api", "new"], "messaging_api must be one of 2026-08, 2026-09, none"),
    (["--log-level", "loud"], "log_level must be one of debug, info, warning, error"),
    (["--log-format", "xml"], "log_format must be one of text, json"),
    (["--seed", "x"], "--seed"),
    (["--frob"], "--frob"),
]


@pytest.mark.parametrize(("arguments", "text"), MISTAKES)
def test_a_mistake_is_one_line(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["devnode", *arguments]) == MISUSED
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{PROGRAM}: ")
    assert text in err
    assert err.count("\n") == 1


def test_a_port_that_is_taken_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "configure_logging", lambda *_: None)
    with listening("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        assert run(["devnode", "--port", str(port)]) == FAILED
    assert f"127.0.0.1:{port}: Address already in use" in capsys.readouterr().err


def test_every_option_reaches_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[DevnodeSettings, dict[str, str]]] = []
    monkeypatch.setattr(command, "run_devnode", lambda s, **more: seen.append((s, more)))
    expected = DevnodeSettings(
        host="::1",
        port=1,
        nodes=2,
        peers=3,
        cluster_id=4,
        shards=5,
        auto_sharding=False,
        without=("relay", "store"),
        messaging_api="none",
        reliability=False,
        admin=True,
        allow_origin=("*",),
        cache_capacity=6,
        store_lag_s=7.5,
        store_loss=0.1,
        store_messages=8,
        store_mb=9,
        seed=10,
        loss=0.2,
        duplicate=0.3,
        reorder=0.4,
        delay_ms=11.0,
        jitter_ms=12.0,
        drop_every=13,
        self_echo=False,
        timeout_rate=0.5,
        answer_delay_ms=14.0,
        cut_rate=0.6,
        queue_s=15.0,
    )
    arguments = ["--log-level", "debug", "--log-format", "json"]
    for name in expected.__slots__:
        value = getattr(expected, name)
        assert value != getattr(DevnodeSettings(), name), name
        option = name.replace("_", "-")
        if value is False:
            arguments.append(f"--no-{option}")
        elif value is True:
            arguments.append(f"--{option}")
        else:
            for item in value if isinstance(value, tuple) else (value,):
                arguments += [f"--{option}", str(item)]
    assert run(["devnode", *arguments]) == 0
    assert run(["devnode"]) == 0
    assert seen == [
        (expected, {"log_level": "debug", "log_format": "json"}),
        (DevnodeSettings(), {"log_level": "info", "log_format": "text"}),
    ]


@pytest.mark.parametrize("name", ["relay", "filter", "lightpush", "store"])
def test_what_is_not_mounted_is_missing(name: str) -> None:
    assert make_router(DevnodeSettings(without=(name,))).missing == {name, "admin"}
    assert make_router(DevnodeSettings(admin=True)).missing == frozenset()


def test_each_node_has_its_port() -> None:
    network = Network(DevnodeSettings(nodes=2), ManualTimers())
    application = make_application(network, [7, 8])
    assert [application.sites[port][0] for port in (7, 8)] == network.nodes


def test_the_server_bounds_what_it_reads_of_a_head() -> None:
    network = Network(DevnodeSettings(), ManualTimers())
    config = server_config(make_application(network, [1]))
    assert config.h11_max_incomplete_event_size == 64 << 10
