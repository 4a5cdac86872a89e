"""The command names what it knows."""

from __future__ import annotations

import pytest

from benchmarks import __main__ as command
from benchmarks import (
    durable_speed,
    opening_speed,
    payload_speed,
    reed_solomon_speed,
    segmentation_speed,
    service_speed,
    sync_cost,
)
from benchmarks.reed_solomon_speed import Shape


def test_the_table_has_a_row_for_each_size_and_the_floor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SIZES", (5, 10))
    monkeypatch.setattr(command, "FLOOR", 5)
    assert command.main(["machine"]) == 0
    shown = capsys.readouterr().out
    assert "received with delivery" in shown
    assert len([line for line in shown.splitlines() if line.startswith("│")]) == 3


def test_the_sync_table_is_markdown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_cost, "GROUPS", (2,))
    assert command.main(["sync"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(sync_cost.DELAYS_MS)
    assert all(line.startswith("|") for line in lines)


@pytest.mark.parametrize("is_there", [True, False])
def test_the_parity_table_compares_with_zfec_or_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    peer = reed_solomon_speed.peer_library() if is_there else None
    if is_there and peer is None:
        pytest.skip(reed_solomon_speed.INSTALL_PEER)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(reed_solomon_speed, "peer_library", lambda: peer)
    monkeypatch.setattr(reed_solomon_speed, "SHAPES", (Shape(4, 2, 64),))
    assert command.main(["codes"]) == 0
    shown = capsys.readouterr().out
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == ["encode", "decode"]
    for row in rows:
        assert [row[place].strip() == "-" for place in (2, 3, 4, 5, 6)] == (
            [False] * 5 if is_there else [True, False, True, False, True]
        )
    assert (reed_solomon_speed.INSTALL_PEER in shown) is not is_there


def test_the_segmentation_table_has_a_row_for_each_size(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segmentation_speed, "SIZES", (150_000, 250_000))
    monkeypatch.setenv("COLUMNS", "200")
    assert command.main(["segmentation"]) == 0
    shown = capsys.readouterr().out
    assert len([line for line in shown.splitlines() if line.startswith("│")]) == 2


def test_the_payload_table_has_a_row_for_each_filter(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_speed, "OCTETS", 150_000)
    monkeypatch.setattr(payload_speed, "ROUNDS", 1)
    monkeypatch.setattr(payload_speed, "BLOOM_CAPACITIES", (500, 1_000))
    monkeypatch.setenv("COLUMNS", "200")
    assert command.main(["payload"]) == 0
    shown = capsys.readouterr().out
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    assert [row[0].strip() for row in rows][-2:] == ["500", "1,000"]


def test_the_harm_table_leaves_out_what_a_code_cannot_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reed_solomon_speed, "HOSTILE_SHAPES", (Shape(128, 128, 64),))
    assert command.main(["harm"]) == 0
    shown = capsys.readouterr().out
    assert "leopard" in shown
    assert "reedsolo" not in shown


def test_the_durable_tables_have_a_row_for_each_load_and_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv(command.SERVER, raising=False)
    load = durable_speed.Load(2, 4)
    monkeypatch.setattr(durable_speed, "LOADS", (load,))
    monkeypatch.setattr(durable_speed, "ROUNDS", 1)
    monkeypatch.setattr(opening_speed, "SIZES", (3, 6))
    monkeypatch.setattr(opening_speed, "ROUNDS", 1)
    monkeypatch.setattr(opening_speed, "LOAD", load)
    assert command.main(["durable"]) == 0
    shown = capsys.readouterr().out
    assert len([line for line in shown.splitlines() if line.startswith("│")]) == 1 + 4 + 2
    assert "BodyRecord 2.0" in shown


def test_the_service_tables_have_a_row_for_each_number_of_connections_and_the_latency(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(service_speed, "CONNECTIONS", (2,))
    monkeypatch.setattr(service_speed, "ROUNDS", 1)
    monkeypatch.setattr(service_speed, "MESSAGES", 10)
    monkeypatch.setattr(service_speed, "LATENCY_SEC", 0.2)
    assert command.main(["service"]) == 0
    shown = capsys.readouterr().out
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    assert [row[0].strip() for row in rows] == ["2", "20"]


def test_only_the_quick_ones_are_run_when_none_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_cost, "GROUPS", ())
    monkeypatch.setattr(command, "SIZES", (5,))
    for name in ("SHAPES", "HOSTILE_SHAPES"):
        monkeypatch.setattr(reed_solomon_speed, name, ())
    monkeypatch.setattr(segmentation_speed, "SIZES", ())
    monkeypatch.setattr(payload_speed, "BLOOM_CAPACITIES", ())
    assert command.main([]) == 0
    shown = capsys.readouterr().out
    for title in (
        "received with delivery",
        "Reed-Solomon",
        "Segmentation",
        "all the way",
        "CPU seconds for a",
    ):
        assert title in shown
    assert "participants" not in shown


def test_an_unknown_name_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["machine", "nothing"]) == 2
    assert (
        capsys.readouterr().err == "no benchmark 'nothing'; there is: machine, peer, codes, "
        "segmentation, payload, harm, saving, sync, durable, service, laboratory\n"
    )
