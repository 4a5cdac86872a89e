"""The manifest is read as it was written, and has a digest once all cells are finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.manifest import (
    FILE,
    Finished,
    Manifest,
    described,
    read,
    versions,
    write,
)
from tests.support.laboratory import tiny


def manifest() -> Manifest:
    grid = tiny(2)
    return Manifest(
        grid=described(grid.name, grid.cells), versions=versions("17.0.1"), seed=3, channels=4
    )


def finished(digest: int) -> Finished:
    return Finished(channels=4, problems=1, digest_high=digest, digest_low=-digest, cpu_seconds=0.5)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    made = manifest()
    made.finished[made.keys[0]] = finished(1 << 62)
    write(tmp_path, made)
    made.seconds = 2.5
    write(tmp_path, made)
    assert read(tmp_path) == made
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_the_digest_comes_with_the_last_cell() -> None:
    made = manifest()
    first, second = made.keys
    made.finished[second] = finished(2)
    made.conclude()
    assert (made.complete, made.digest, made.problems) == (False, "", 1)
    made.finished[first] = finished(1)
    made.conclude()
    other = manifest()
    other.finished = {first: finished(1), second: finished(2)}
    other.conclude()
    assert made.digest == other.digest != ""
    assert made.problems == 2


def test_a_cell_is_described_by_what_is_played() -> None:
    cell = manifest().grid["cells"][1]
    assert cell["name"] == "loss 1"
    assert cell["labels"] == {"faults.loss": 0.1}
    assert cell["parameters"]["faults"]["loss"] == 0.1
    assert cell["key"] == tiny(2).cells[1].key


def test_versions_are_texts() -> None:
    found = versions()
    assert found["java"] == ""
    assert found["numpy"]
    assert found["python"].startswith("3.")


def test_a_folder_without_a_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaboratoryError, match=r"holds no results: there is no manifest\.json"):
        read(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2, "finished": {}}', '{"a": 1}'])
def test_another_format_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(LaboratoryError, match="format"):
        read(tmp_path)
