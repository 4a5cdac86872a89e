"""A cell's folder is replaced as a whole, and rows come back as they were written."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.laboratory import storage
from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.results import Trial, batch_of
from benchmarks.laboratory.storage import clear, folder_of, literal, sums_of, writing


def trial(key: str, channel: int, problem: str = "") -> Trial:
    return Trial(scenario=key, channel=channel, problem=problem, latency_ms=[1, 2], cpu_us=5).seal()


def write(out: Path, rows: list[Trial]) -> None:
    with writing(out) as writer:
        writer.add(batch_of(rows))


@pytest.mark.parametrize("key", ["00ff", "12345678", "1e5", "00000017"])
def test_rows_are_summed_up_as_written(tmp_path: Path, key: str) -> None:
    rows = [trial(key, 0), trial(key, 1, "broken"), trial("other", 0)]
    write(tmp_path, rows)
    sums = sums_of(tmp_path, key)
    assert (sums.rows, sums.distinct, sums.problems, sums.cpu_us) == (2, 2, 1, 10)
    assert sums.digest_high == rows[0].digest_high ^ rows[1].digest_high
    assert sums.digest_low == rows[0].digest_low ^ rows[1].digest_low
    found = storage.dataset(tmp_path, [key]).to_table()
    assert found.column("scenario").to_pylist() == [key, key]
    assert found.column("latency_ms").to_pylist() == [[1, 2], [1, 2]]


def test_a_cell_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, [trial("aa", 0), trial("aa", 1)])
    file = folder_of(tmp_path, "aa") / "part-00000.parquet"
    file.rename(file.with_name("part-00007-of-another-engine.parquet"))
    write(tmp_path, [trial("aa", 0)])
    assert sums_of(tmp_path, "aa").rows == 1


def test_a_channel_that_comes_twice_is_seen(tmp_path: Path) -> None:
    write(tmp_path, [trial("aa", 0), trial("aa", 0)])
    assert (sums_of(tmp_path, "aa").rows, sums_of(tmp_path, "aa").distinct) == (2, 1)


def test_nothing_is_left_of_a_writer_that_was_interrupted(tmp_path: Path) -> None:
    def interrupted() -> None:
        with writing(tmp_path) as writer:
            writer.add(batch_of([trial("aa", 0)]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list((tmp_path / storage.FOLDER).iterdir()) == []


def test_rows_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "ROWS_IN_MEMORY", 10)
    with writing(tmp_path) as writer:
        for number in range(40):
            writer.add(batch_of([trial("aa", number), trial("bb", number)]))
            assert sum(writer._rows.values()) <= 10
    assert [sums_of(tmp_path, key).distinct for key in ("aa", "bb")] == [40, 40]


def test_all_but_what_is_kept_is_removed(tmp_path: Path) -> None:
    write(tmp_path, [trial("aa", 0), trial("bb", 0)])
    (tmp_path / storage.FOLDER / "_temporary" / "0").mkdir(parents=True)
    (tmp_path / storage.FOLDER / "._SUCCESS.crc").touch()
    clear(tmp_path, ["aa", "cc"])
    names = [path.name for path in (tmp_path / storage.FOLDER).iterdir()]
    assert names == ["scenario=aa"]


def test_a_torn_file_is_named(tmp_path: Path) -> None:
    folder_of(tmp_path, "aa").mkdir(parents=True)
    (folder_of(tmp_path, "aa") / "part-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(LaboratoryError, match="scenario=aa cannot be read; remove"):
        sums_of(tmp_path, "aa")


def test_the_first_problem_is_found(tmp_path: Path) -> None:
    write(tmp_path, [trial("aa", 2, "late"), trial("aa", 1, "early"), trial("aa", 0)])
    assert storage.first_problem(tmp_path, "aa") == (1, "early")
    write(tmp_path, [trial("aa", 0)])
    assert storage.first_problem(tmp_path, "aa") is None


@pytest.mark.parametrize(
    ("path", "text"), [("/a b", "file:///a b"), ("/[x]{y}*", "file:///\\[x\\]\\{y\\}\\*")]
)
def test_a_path_is_no_pattern(path: str, text: str) -> None:
    assert literal(Path(path)) == text
