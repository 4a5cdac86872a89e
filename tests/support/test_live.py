"""How two services in one process begin and end."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.live import live_pair


@pytest.mark.timeout(60)
def test_both_listen_and_end_when_nobody_needs_them(tmp_path: Path) -> None:
    with live_pair(tmp_path, "memory://pair") as pair:
        for port in pair.ports:
            assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        assert pair.process.poll() is None
    assert pair.process.returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"first.db", "second.db", "log"}
