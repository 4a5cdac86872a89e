"""One channel of a run again: found by key, name or number, equal to its row, or told that it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.grids import Grid, read_grid
from benchmarks.laboratory.manifest import Finished, Manifest, described, read, versions
from benchmarks.laboratory.replay import cells_of, replay, stored_digest
from benchmarks.laboratory.results import batch_of
from benchmarks.laboratory.storage import folder_of, writing
from benchmarks.laboratory.trial import run_trial
from reliable_channel.errors import ConfigurationError

GRID: Grid = read_grid(
    b"""
    title = "Two cells"
    [base]
    messages = 2
    store.enabled = false
    [axes]
    faults.loss = [0.0, 0.3]
    """,
    "two.toml",
)
SEED = 3


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A run of four channels a cell, of which the second cell is not finished."""
    manifest = Manifest(
        versions=versions(), grid=described(GRID.name, GRID.cells), seed=SEED, channels=4
    )
    manifest.write(tmp_path)
    with writing(tmp_path) as writer:
        writer.add(batch_of([run_trial(GRID.cells[0], SEED, number) for number in range(4)]))
    return tmp_path


@pytest.mark.parametrize("by", ["key", "name", "number"])
def test_the_same_comes_of_it(out: Path, by: str) -> None:
    cell = GRID.cells[0]
    scenario = {"key": cell.key, "name": cell.name, "number": "0"}[by]
    found = replay(out, scenario, 2)
    assert found.cell == cell
    assert found.trial.channel == 2
    assert not found.differs
    assert found.verdict == "equal: the stored row has the same digest"
    assert any("send        message 2" in line for line in found.trace)
    name, counts = found.summary()
    assert name == f"loss=0.0 ({cell.key}), channel 2"
    assert counts.startswith("messages=2 owed=2 delivered=2 ")
    assert "digest" not in counts


def test_another_result_is_told(out: Path) -> None:
    cell = GRID.cells[0]
    (file,) = folder_of(out, cell.key).glob("*.parquet")
    table = pq.read_table(file, partitioning=None)
    other = table.take([1, 0, 2, 3]).column("digest_low")
    changed = table.set_column(table.schema.get_field_index("digest_low"), "digest_low", other)
    pq.write_table(changed, file)
    assert replay(out, "0", 0).differs
    assert replay(out, "0", 0).verdict == "not equal: the stored row has another digest"
    assert not replay(out, "0", 2).differs


def test_another_seed_gives_another_digest(out: Path) -> None:
    values = json.loads((out / "manifest.json").read_text())
    values["seed"] = SEED + 1
    (out / "manifest.json").write_text(json.dumps(values))
    assert replay(out, "0", 0).differs


def test_a_row_that_is_not_there_is_not_compared(out: Path) -> None:
    found = replay(out, "1", 0)
    assert found.verdict == "not compared: this run has no row of it yet"
    assert not found.differs
    assert stored_digest(out, GRID.cells[0], 9) is None


def test_a_damaged_row_is_one_line(out: Path) -> None:
    (file,) = folder_of(out, GRID.cells[0].key).iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(LaboratoryError, match="cannot be read; remove that folder, run again"):
        replay(out, "0", 0)


def test_a_lost_row_of_a_finished_cell_is_told(out: Path) -> None:
    manifest = read(out)
    manifest.finished[GRID.cells[1].key] = Finished(
        channels=4, problems=0, digest_high=0, digest_low=0, cpu_seconds=0
    )
    manifest.write(out)
    assert replay(out, "1", 0).verdict.startswith("not compared: the row is not there any more")


def test_a_channel_that_cannot_be_played_says_so(tmp_path: Path) -> None:
    grid = read_grid(
        b'title = "x"\n[[cell]]\nname = "a"\nbase.warm_up = true\n'
        b"base.faults.loss = 0.9\nbase.sds.max_outgoing_messages = 1",
        "x.toml",
    )
    Manifest(grid=described("x", grid.cells), channels=1).write(tmp_path)
    lines = list(replay(tmp_path, "a", 0).summary())
    assert lines[-1].startswith("problem: ChannelFullError: ")


@pytest.mark.parametrize(
    ("scenario", "channel", "text"),
    [
        ("loss=0.2", 0, "did you mean 'loss=0.3'?"),
        ("2", 0, "grid two, 0 to 1: "),
        ("0", 4, "--channel must be from 0 to 3: 'loss=0.0' has 4 channels"),
        ("0", -1, "--channel must be from 0 to 3"),
    ],
)
def test_what_is_not_there_is_one_line(out: Path, scenario: str, channel: int, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        replay(out, scenario, channel)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(LaboratoryError, match="holds no results"):
        replay(tmp_path, "0", 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda parameters: parameters.update(colour="red"),
        lambda parameters: parameters.pop("commit_ms"),
        lambda parameters: parameters.update(messages=3),
    ],
    ids=["more", "fewer", "others"],
)
def test_scenarios_of_another_version_are_refused(change: object) -> None:
    grid = json.loads(json.dumps(described(GRID.name, GRID.cells)))
    assert callable(change)
    change(grid["cells"][1]["parameters"])
    if "commit_ms" not in grid["cells"][1]["parameters"]:
        grid["cells"][1]["key"] = "0" * 16
    with pytest.raises(LaboratoryError, match=r"cell 'loss=0.3' is of another version"):
        cells_of(grid)


@pytest.mark.parametrize("lacking", ["name", "key", "labels", "parameters", "max_channels"])
def test_a_damaged_manifest_is_one_line(lacking: str) -> None:
    grid = json.loads(json.dumps(described(GRID.name, GRID.cells)))
    del grid["cells"][1][lacking]
    with pytest.raises(LaboratoryError, match=rf"manifest.json is damaged: .*'{lacking}'"):
        cells_of(grid)


def test_a_manifest_s_cells_are_those_of_the_grid() -> None:
    found = cells_of(json.loads(json.dumps(described(GRID.name, GRID.cells))))
    assert found.name == GRID.name
    assert [cell.key for cell in found.cells] == [cell.key for cell in GRID.cells]
    assert found.cells == GRID.cells
