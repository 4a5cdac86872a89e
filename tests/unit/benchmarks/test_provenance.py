"""A run says where its figures come from."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from benchmarks import provenance
from reliable_channel.core.build import IS_COMPILED


def test_a_run_names_commit_versions_machine_and_time() -> None:
    found = provenance.here()
    json.dumps(found)
    assert set(found) == {"commit", "time", "versions", "machine"}
    assert found["time"].endswith("+00:00")
    assert found["versions"]["python"] == platform.python_version()
    assert found["versions"]["core"] == ("compiled" if IS_COMPILED else "interpreted")
    assert {"sqlite", "numpy", "protobuf", "pycryptodome"} <= found["versions"].keys()
    assert all(found["versions"].values())
    assert found["machine"]["cores"] >= 1


def test_the_commit_is_empty_where_there_is_no_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.commit() == {"id": "", "changed": False}


def test_a_package_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "PACKAGES", {"nothing": "no-such-distribution"})
    assert "nothing" not in provenance.versions()


@pytest.mark.parametrize(
    ("text", "name"),
    [("processor : 0\nmodel name\t: A Processor: 5\nmodel name : B\n", "A Processor: 5")],
)
def test_the_processor_is_the_first_that_is_listed(tmp_path: Path, text: str, name: str) -> None:
    listing = tmp_path / "cpuinfo"
    listing.write_text(text)
    assert provenance.cpu_model(listing) == name
    assert provenance.cpu_model(tmp_path / "missing")


@pytest.mark.parametrize("arguments", [("no-such-program",), ("git", "no-such-command")])
def test_a_program_that_is_not_there_or_fails_says_nothing(arguments: tuple[str, ...]) -> None:
    assert provenance.output(*arguments) == ""
