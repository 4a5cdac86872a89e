"""A channel as lines for people: what is in them, and that they agree with what was counted."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.grids import load_grid
from benchmarks.laboratory.parameters import scenario_with
from benchmarks.laboratory.tracing import Recorder, digest, readable, record
from benchmarks.laboratory.trial import run_trial
from benchmarks.simulation.engine import Simulation

GRID = load_grid("smoke")

LINE = re.compile(r" *\d+\.\d{3} s  (p\d+|  )  +\S.*\S")


def cell_of(**changes: object) -> Cell:
    values = {name.replace("__", "."): value for name, value in changes.items()}
    return Cell(name="a", scenario=scenario_with({"messages": 3, "store.enabled": False, **values}))


def words(lines: list[str]) -> list[str]:
    """The word after time and participant, of each line."""
    return [line[19:].split()[0] for line in lines]


@pytest.mark.parametrize("cell", GRID.cells, ids=lambda cell: cell.name)
def test_lines_agree_with_the_counts_of_the_trial(cell: Cell) -> None:
    trial = run_trial(cell, 5, 1)
    assert trial.problem == ""
    lines = record(cell, 5, 1)
    assert all(LINE.fullmatch(line) for line in lines)
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)
    found = words(lines)
    assert found.count("send") == trial.messages
    assert found.count("receive") == trial.copies
    assert found.count("deliver") == trial.delivered + trial.duplicated
    assert found.count("parity") == trial.parity
    assert found.count("repair") == trial.repairs
    assert found.count("sync") == trial.syncs
    sent = sum(found.count(word) for word in ("publish", "retransmit", "parity", "repair", "sync"))
    assert sent == trial.transmissions


def test_a_quiet_channel_line_by_line() -> None:
    lines = record(cell_of(messages=1, faults__delay_ms=50), 0, 0)
    texts = [line[19:] for line in lines]
    assert texts[:2] == ["start", "start"]
    assert texts[2] == "send        message 1: 1024 bytes, segments: 4"
    assert re.fullmatch(r"publish     message 1 segment 1/4, \d+ bytes  #1", texts[3])
    assert "receive     message 1 segment 4/4  #4" in texts
    assert "deliver     message 1, 0.050 s after it was sent" in texts
    assert "event       MessageSentEvent: message 1" in texts
    assert "event       MessageDeliveredEvent: message 1, recipients ('p1',)" in texts
    assert not [text for text in texts if "missed" in text]


def test_lost_copies_and_what_is_sent_again_are_told() -> None:
    cell = cell_of(faults__loss=0.4, participants=3)
    lines = record(cell, 0, 0)
    assert run_trial(cell, 0, 0).retransmissions == words(lines).count("retransmit") > 0
    assert any(re.search(r"retransmit  message \d segment \d/4, try 2, .*#\d+", it) for it in lines)
    assert any(line.endswith("missed by p1, p2") for line in lines if "  p0  " in line)
    missed = sum(line.partition("missed by ")[2].count("p") for line in lines)
    trial = run_trial(cell, 0, 0)
    assert trial.copies == 2 * trial.transmissions - missed


def test_a_crash_and_what_the_store_brings_are_told() -> None:
    lines = record(
        cell_of(
            store__enabled=True,
            restarts=[{"participant": 1, "at_ms": 500, "down_ms": 2_000}],
            faults__loss=0.3,
        ),
        0,
        0,
    )
    assert "crash" in words(lines)
    assert any("catch up" in line for line in lines)


def test_a_channel_that_cannot_be_played_says_why() -> None:
    cell = cell_of(segmentation__segment_size_bytes=64)
    cell = replace(cell, scenario=replace(cell.scenario, payload_bytes=(60_000, 60_000)))
    lines = record(cell, 0, 0)
    problem = run_trial(cell, 0, 0).problem
    assert problem.startswith("MessageTooLargeError: ")
    assert lines[-1].endswith(f"problem     {problem}")


def test_a_channel_in_which_nothing_is_sent_has_lines() -> None:
    assert words(record(cell_of(messages=0), 0, 0)) == ["start", "start"]


def test_what_a_scripted_simulation_did_can_be_read() -> None:
    recorder = Recorder()
    simulation = Simulation(
        cell_of().scenario,
        trace=recorder.trace,
        wire=recorder.wire,
        on_event=recorder.on_event,
    )
    simulation.start()
    simulation.send(0, b"short")
    simulation.inject(1, b"nonsense")
    simulation.run(100)
    texts = [line[19:] for line in readable(recorder, simulation)]
    assert "send        message 1: 5 bytes, segments: 1" in texts
    assert "receive     what is of no transmission" in texts


def test_bytes_go_by_the_digest_of_the_trace() -> None:
    trace: list[bytes] = []
    simulation = Simulation(cell_of().scenario, trace=trace)
    simulation.start()
    simulation.send(0, b"a payload")
    assert any(line.decode().endswith(digest(b"a payload")) for line in trace)


def test_equal_bytes_that_are_under_way_at_once_are_told_apart() -> None:
    lines = record(cell_of(messages=1, faults__delay_ms=8_000, sds__bloom_capacity=0), 0, 0)
    assert "retransmit" in words(lines)
    assert not [line for line in lines if "missed" in line]
    arrived = [line.partition("#")[2] for line in lines if "receive " in line]
    assert len(set(arrived)) == len(arrived)
