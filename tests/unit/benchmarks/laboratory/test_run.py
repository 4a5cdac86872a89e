"""A folder holds one run; a run says what went wrong in it and how to see it again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.laboratory import run as laboratory
from benchmarks.laboratory import storage
from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.manifest import read
from benchmarks.laboratory.plan import Wave
from benchmarks.laboratory.process_engine import batches_of
from benchmarks.laboratory.progress import Plain, Silent
from benchmarks.laboratory.results import Trial
from tests.support.laboratory import grid_of, options, tiny


class Fake:
    """Writes rows that nobody played; channel 3 has a problem where ``bad`` is set."""

    name = "process"
    title = "fake"
    master = java = ""
    cores = 1
    bad = False
    short = 0

    def play(self, wave: Wave, seed: int, out: Path, advance: Callable[[int], None]) -> None:
        with storage.writing(out) as writer:
            for key, count in zip(wave.keys, wave.counts, strict=True):
                for batch in batches_of(self.rows(key, count - self.short)):
                    writer.add(batch)
        advance(wave.channels)

    def rows(self, key: str, count: int) -> Iterator[Trial]:
        for number in range(count):
            problem = "ValueError: odd" if self.bad and number == 3 else ""
            yield Trial(scenario=key, channel=number, problem=problem, cpu_us=1_000_000).seal()

    def sums(self, wave: Wave, out: Path) -> dict[str, storage.Sums]:
        return {key: storage.sums_of(out, key) for key in wave.keys}

    def close(self) -> None:
        raise AssertionError("it is not the run's to close")


@pytest.fixture(autouse=True)
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laboratory, "report", lambda *given: None)


def play(out: Path, engine: Any = None, tell: Any = None, **more: Any) -> Any:
    return laboratory.run(
        options(out, partitions=1, **more), tell or Silent(), engine=engine or Fake()
    )


def test_a_run_is_finished_once(tmp_path: Path) -> None:
    first = play(tmp_path)
    assert (first.complete, first.engine) == (True, "process")
    assert first.digest
    assert [cell.cpu_seconds for cell in first.finished.values()] == [12, 12, 5]
    engine = Fake()
    engine.short = 1  # would be seen
    assert play(tmp_path, engine).digest == first.digest == read(tmp_path).digest


@pytest.mark.parametrize("damage", ["folder", "rows", "torn", "digest"])
def test_damaged_results_are_played_again(tmp_path: Path, damage: str) -> None:
    whole = play(tmp_path).digest
    key = tiny().cells[1].key
    folder = storage.folder_of(tmp_path, key)
    (file,) = folder.iterdir()
    if damage == "folder":
        shutil.rmtree(folder)
    elif damage == "rows":
        file.unlink()
    elif damage == "torn":
        file.write_bytes(file.read_bytes()[:-9])
    else:
        manifest = read(tmp_path)
        manifest.finished[key].digest_low ^= 1
        manifest.write(tmp_path)
    lines: list[str] = []
    assert play(tmp_path, tell=Plain(lines.append)).digest == whole
    assert (
        lines[0] == f"results of cell {key} are missing or not what was written; it is played again"
    )
    assert storage.sums_of(tmp_path, key).rows == 12


@pytest.mark.parametrize(
    "more",
    [{"seed": 8}, {"channels": 13}, {"grid": tiny(2)}, {"grid": grid_of(*tiny().cells[::-1])}],
)
def test_another_run_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    play(tmp_path)
    with pytest.raises(LaboratoryError, match=r"another run \(tiny, 12 channels, seed 7") as got:
        play(tmp_path, **more)
    assert "name another folder with --out" in str(got.value)
    assert "\n" not in str(got.value)


def test_new_names_are_no_other_run(tmp_path: Path) -> None:
    play(tmp_path)
    cells = [
        Cell(name=f"n{n}", scenario=c.scenario, max_channels=c.max_channels)
        for n, c in enumerate(tiny().cells)
    ]
    assert play(tmp_path, grid=grid_of(*cells)).grid["cells"][0]["name"] == "n0"


def test_a_folder_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    with pytest.raises(LaboratoryError, match="is not empty and holds no run"):
        play(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_folder_takes_one_run_at_a_time(tmp_path: Path) -> None:
    tmp_path.mkdir(exist_ok=True)
    with (
        laboratory.locked(tmp_path),
        pytest.raises(LaboratoryError, match="another run is writing"),
    ):
        play(tmp_path)


def test_missing_rows_end_the_run(tmp_path: Path) -> None:
    engine = Fake()
    engine.short = 1
    with pytest.raises(LaboratoryError, match="has 11 rows for 12 channels"):
        play(tmp_path, engine)
    assert read(tmp_path).finished == {}
    assert play(tmp_path).complete


def test_problems_are_told_with_the_command_that_plays_one_again(tmp_path: Path) -> None:
    lines: list[str] = []
    engine = Fake()
    engine.bad = True
    manifest = play(tmp_path, engine, Plain(lines.append))
    assert manifest.problems == 3
    key = tiny().cells[0].key
    assert lines[-1] == (
        "3 channels could not be played, first 3 of loss 0 (ValueError: odd): "
        f"reliable-channel simulate replay --out {tmp_path} --scenario {key} --channel 3"
    )


def test_the_number_of_pieces_does_not_make_one_wave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.laboratory.plan.WAVE_SECONDS", 0.001)
    lines: list[str] = []
    play(tmp_path, tell=Plain(lines.append))  # of one piece
    assert lines[:2] == ["measuring what cells cost: 0 of 3", "29 channels, waves: 3, fake"]


def test_cells_of_equal_parameters_share_their_results(tmp_path: Path) -> None:
    cell = tiny().cells[0]
    grid = grid_of(cell, Cell(name="twin", scenario=replace(cell.scenario)))
    manifest = play(tmp_path, grid=grid)
    assert list(manifest.finished) == [cell.key]
    assert manifest.digest
