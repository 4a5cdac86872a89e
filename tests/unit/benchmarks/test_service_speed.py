"""Both servers accept the same requests; every message is measured from its own beginning."""

from __future__ import annotations

import base64
import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import service_speed
from benchmarks.http_load import Answers, connected, get
from benchmarks.service_speed import PAYLOAD_BYTES, ServerProcess

pytestmark = pytest.mark.timeout(120)  # processes start


def payload_of(request: bytes) -> bytes:
    body = json.loads(request.partition(b"\r\n\r\n")[2])
    assert set(body) == {"payload"}
    return base64.b64decode(body["payload"])


def test_requests_carry_payloads_of_one_size_that_begin_with_their_numbers() -> None:
    payloads = [payload_of(request) for request in service_speed.sends(3)]
    assert [len(payload) for payload in payloads] == [PAYLOAD_BYTES] * 3
    assert [int.from_bytes(payload[:8], "big") for payload in payloads] == [0, 1, 2]


async def test_sends_are_accepted_and_published(tmp_path: Path) -> None:
    async with service_speed.process("services", str(tmp_path), "1") as service:
        (port,) = service.ports
        await service_speed.open_channel(port, "alice")
        found = await service_speed.load(service, 4, 20, service_speed.wait_published)
        async with connected(port) as connection:
            _, answer = await connection.ask(get(service_speed.CHANNEL_PATH))
    assert found.answers.statuses == Counter({202: 20})
    assert found.cpu_seconds > 0
    counters = json.loads(answer)["status"]["counters"]
    assert counters["requests"] == 20
    assert counters["transmissions"] >= 20


async def test_a_load_counts_the_cpu_time_of_its_process_and_what_is_refused_is_no_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(*arguments: object) -> Answers:
        return Answers(1.0, Counter({202: 1, 429: 1}), [0.1, 0.1])

    async with service_speed.process("empty") as nothing:
        before = await nothing.cpu_seconds()
        found = await service_speed.load(nothing, 2, 200)
        assert 0 < before < before + found.cpu_seconds <= await nothing.cpu_seconds()
        monkeypatch.setattr(service_speed, "drive", refused)
        with pytest.raises(RuntimeError, match="429: 1"):
            await service_speed.load(nothing, 1, 2)


async def test_a_server_that_does_not_listen_is_said_to_have_ended(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended before it listened"):
        async with service_speed.process("services", str(tmp_path / "missing"), "1"):
            pass


async def test_each_round_but_the_first_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[tuple[int, bool]] = []
    load = service_speed.load

    async def counted(server: ServerProcess, *arguments: object) -> service_speed.Load:
        loads.append((server.ports[0], len(arguments) == 3))
        return await load(server, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(service_speed, "load", counted)
    found = await service_speed.measure_acceptance(2, rounds=1, messages=10)
    assert [is_ours for _, is_ours in loads] == [True, False] * 2
    assert len({port for port, is_ours in loads if not is_ours}) == 1
    assert found.connections == 2
    assert (len(found.ours), len(found.empty)) == (1, 1)
    accepted, cpu, half, slow = service_speed.figures(found)
    assert accepted.ratio is not None
    assert accepted.theirs is not None
    assert accepted.ratio.median == pytest.approx(accepted.ours.median / accepted.theirs.median)
    assert 0 < half.ours.median <= slow.ours.median
    assert cpu.ours.median > 0


def test_the_tables_have_all_connections_and_the_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_speed, "CONNECTIONS", (2,))
    monkeypatch.setattr(service_speed, "ROUNDS", 1)
    monkeypatch.setattr(service_speed, "MESSAGES", 10)
    monkeypatch.setattr(service_speed, "LATENCY_SEC", 0.2)
    accepted, latency = service_speed.tables()
    assert isinstance(accepted, service_speed.Table)
    assert isinstance(latency, service_speed.Table)
    assert [item.name.split(":")[0] for item in accepted.figures] == ["2 connections"] * 4
    assert latency.notes == ("20 messages",)


async def test_each_message_is_measured_once_at_the_other_service() -> None:
    found = await service_speed.measure_latency(rate=100, seconds=0.3)
    assert found.messages == 30
    assert 0 < found.middle_ms <= found.slow_ms <= found.worst_ms
