"""What ``inspect`` writes, for people and for programs."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from api.cli import FAILED, MISUSED, PROGRAM, run
from api.inspection import age, lines_above
from persistence import SqlStore
from persistence.inspection import StoreReport
from persistence.testing import sample_records, written
from reliable_channel.records import LedgerRecord, LogRecord, RequestRecord
from reliable_channel.types import SECOND


@pytest.fixture
async def url(tmp_path: Path) -> str:
    """A database with a channel, an old request and a budget."""
    url = f"sqlite:///{tmp_path / 'alice.db'}"
    created_ns = time.time_ns() - 7_300 * SECOND
    request = sample_records(RequestRecord)[0]
    request = replace(request, created_ns=created_ns, state="open")
    ledger = LedgerRecord(scope="node:600", epoch=time.time_ns() // (600 * SECOND) + 1, used=1_234)
    async with SqlStore(url) as store:
        await store.commit("[b]room", written([*sample_records(LogRecord), request, ledger]))
    return url


def test_people_get_tables(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "--database", url]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"{url.removeprefix('sqlite:///')}\nschema ")
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line
    ]
    assert ["[b]room", "no", "3", "0", "0 bytes", "0", "0", "0", "1", "2 h"] in rows
    assert [row[0] for row in rows[1:]] == ["node:600"]
    assert rows[1][2:] == ["1,234", "1,234"]


def test_programs_get_json(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "--database", url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    [channel] = found["channels"]
    assert (channel["channel_id"], channel["driven"], channel["log_entries"]) == (
        "[b]room",
        False,
        3,
    )
    assert 7_300 <= channel["oldest_unacknowledged"]["age_sec"] < 7_600
    assert found["ledgers"][0]["used"] == 1_234


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_channels_are_counted(count: int) -> None:
    report = StoreReport(database="x", schema_revision="1", channels=(None,) * count, ledgers=())  # type: ignore[arg-type]
    assert (
        lines_above(report)[1] == f"schema 1, {('no channels', '1 channel', '2 channels')[count]}"
    )


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.9, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (7_199, "1 h"),
        (86_400 * 9, "9 d"),
        (-3, "-3 s"),
    ],
)
def test_ages_are_rounded_down_to_their_largest_unit(seconds: float, expected: str) -> None:
    assert age(seconds) == expected


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("sqlite:////no/such/file.db", MISUSED),
        ("memory://", MISUSED),
        ("sqlite:////dev/null", MISUSED),
    ],
)
def test_a_database_that_cannot_be_read_is_one_line(
    name: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "--database", name]) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"{PROGRAM}: ")


def test_a_file_that_is_no_database_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").write_bytes(b"Dear diary, " * 200)
    assert run(["inspect", "--database", f"sqlite:///{tmp_path / 'notes'}"]) == FAILED
    assert capsys.readouterr().err.endswith("file is not a database\n")
