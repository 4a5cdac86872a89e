from __future__ import annotations
from pathlib import Path
import pytest
from persistence import SqlStore
from persistence.testing import ChannelStoreSuite
from reliable_channel.ports import ChannelStore
class TestSqlStore(ChannelStoreSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.url = f"sqlite:///{tmp_path}/store.db"
        self.limits: dict[str, int] = {}

    async def make_store(self, *, max_events: int, max_event_bytes: int) -> SqlStore:
        self.limits={"max_events":max_events,"max_event_bytes":max_event_bytes}
        return SqlStore(self.url, **self.limits)
    async def reopen_store(self, store: ChannelStore) -> SqlStore:
        return SqlStore(self.url,**self.limits)
