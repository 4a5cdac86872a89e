"""Every channel comes once, every stretch has the same mix, and work is cut by what it costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.laboratory import plan
from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.plan import (
    LONGEST_TASK_SECONDS,
    MEASURED_ALIKE,
    MOST_CELLS,
    MOST_TASKS,
    WAVE_SECONDS,
    Mix,
    channels_by_key,
    cost_of,
    costs_of,
    tasks_of,
    waves_of,
)
from tests.support.laboratory import SCENARIO, SEED, tiny

COUNTS = st.lists(st.integers(0, 40), max_size=12)


@given(COUNTS)
def test_every_channel_comes_once(counts: list[int]) -> None:
    mix = Mix(counts)
    expected = {(place, number) for place, count in enumerate(counts) for number in range(count)}
    found = list(mix.items(0, len(mix)))
    assert len(found) == len(expected)
    assert set(found) == expected


@given(COUNTS, st.data())
def test_every_stretch_has_the_same_mix(counts: list[int], data: st.DataObject) -> None:
    mix = Mix(counts)
    start = data.draw(st.integers(0, len(mix)))
    stop = data.draw(st.integers(start, len(mix)))
    found = Counter(place for place, _ in mix.items(start, stop))
    groups = len({count for count in counts if count})
    for place, count in enumerate(counts):
        fair = count * (stop - start) / max(len(mix), 1)
        assert abs(found[place] - fair) <= 1 + groups


@pytest.mark.parametrize("number", [-1, 5])
def test_there_are_no_other_items(number: int) -> None:
    with pytest.raises(IndexError):
        Mix([2, 3])[number]


def test_an_item_of_many_millions_is_found_at_once() -> None:
    mix = Mix([10_000_000] * 50 + [200] * 3)
    assert {mix[len(mix) - 1][1], mix[0][1]} <= {0, 199, 9_999_999}


@pytest.mark.parametrize(
    ("seconds", "channels", "cores", "tasks"),
    [
        (0.1, 5_000, 2, 2),
        (0.1, 1, 2, 1),
        (12, 5_000, 2, 4),
        (13, 5_000, 2, 6),
        (60, 5_000, 2, 16),  # 20 would be 3 s each, but are more than 8 a core
        (80, 5_000, 2, 16),
        (100, 5_000, 2, 20),  # 16 would take more than 5 s each
        (1_000, 30, 4, 30),
    ],
)
def test_tasks(seconds: float, channels: int, cores: int, tasks: int) -> None:
    assert tasks_of(seconds, channels, cores) == tasks


@given(st.floats(0, 1e5), st.integers(1, 64))
def test_tasks_are_neither_long_nor_many(seconds: float, cores: int) -> None:
    tasks = tasks_of(seconds, 1 << 40, cores)
    assert seconds / tasks <= LONGEST_TASK_SECONDS
    assert tasks <= MOST_TASKS * cores or seconds / (tasks - cores) > LONGEST_TASK_SECONDS


def test_waves_are_cut_by_cost() -> None:
    cells = tiny(5).cells
    half = WAVE_SECONDS
    costs = (half, half, 9 * half, 1, 1)
    work = [(cell, 10, cost / 10) for cell, cost in zip(cells, costs, strict=True)]
    waves = waves_of(work, 2)
    assert [wave.cells for wave in waves] == [cells[:2], cells[2:3], cells[3:]]
    assert [wave.channels for wave in waves] == [20, 10, 20]
    assert waves_of([], 2) == []


def test_the_number_of_pieces_can_be_given() -> None:
    (wave,) = waves_of([(tiny().cells[0], 10, 0.0)], 2, 7)
    assert wave.tasks == 7


def test_cells_of_equal_parameters_are_played_once() -> None:
    cell = tiny().cells[0]
    twin = Cell(name="twin", scenario=cell.scenario, max_channels=3)
    assert channels_by_key([twin, cell], 10) == {cell.key: 10}
    assert channels_by_key([twin], 10) == {cell.key: 3}


def test_a_wave_is_not_of_too_many_cells() -> None:
    work = [(tiny(1).cells[0], 1, 0.0)] * (2 * MOST_CELLS + 1)
    assert [len(wave.cells) for wave in waves_of(work, 2)] == [MOST_CELLS, MOST_CELLS, 1]


def sized(*sizes: int) -> list[Cell]:
    return [
        Cell(name=str(number), scenario=replace(SCENARIO, participants=size))
        for number, size in enumerate(sizes)
    ]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the names of the cells that are measured, each of which takes three seconds."""
    names: list[str] = []

    def cost(cell: Cell, seed: int) -> float:
        names.append(cell.name)
        return float(cell.scenario.participants)

    monkeypatch.setattr(plan, "cost_of", cost)
    return names


def test_measuring_ends_soon_and_the_rest_is_guessed(measured: list[str]) -> None:
    told: list[tuple[int, int]] = []
    cells = sized(20, 2, 3, 6)
    costs = costs_of(
        cells, SEED, lambda *given: told.append(given), clock=lambda: 3.0 * len(measured)
    )
    assert measured == ["1", "2"]
    assert costs == [3 * (20 / 3) ** 2, 2, 3, 12]
    assert told == [(number, 4) for number in range(5)]


def test_what_is_known_is_not_measured(measured: list[str]) -> None:
    (other,) = sized(2)
    costs = costs_of(sized(2, 3), SEED, lambda *given: None, [(other, 7.0)], lambda: 0.0)
    assert (measured, costs) == (["1"], [7.0, 3.0])
    assert costs_of([], SEED, lambda *given: None) == []


def test_some_of_many_alike_are_measured(measured: list[str]) -> None:
    costs_of(sized(*[2] * 30), SEED, lambda *given: None, clock=lambda: 0.0)
    assert len(measured) == MEASURED_ALIKE


def test_the_cost_is_that_of_a_channel() -> None:
    assert 0 < cost_of(tiny().cells[0], SEED) < 5
