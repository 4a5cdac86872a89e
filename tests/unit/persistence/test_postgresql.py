"""The store in a PostgreSQL schema: the suite for all stores, and what only a server has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from persistence import SqlStore, open_store, postgresql
from persistence.postgresql import PostgresqlBackend
from persistence.testing import DurableStoreSuite, exact, rows_of, sample_records, written
from reliable_channel.errors import ConfigurationError, StoreUnavailableError
from reliable_channel.ports import ChannelStore
from reliable_channel.records import RequestRecord
from tests.support.kept import lost
from tests.support.postgres import run_sql

NOWHERE = "postgresql+psycopg://user:secret@127.0.0.1:9/db"
"""Nobody listens there."""

real = pytest.mark.real
"""What needs a server."""


@real
@pytest.mark.timeout(60)  # the first one waits for the server
class TestPostgresqlStore(DurableStoreSuite):
    @pytest.fixture(autouse=True)
    def _in_schema(self, postgres_url: str) -> None:
        self._url = postgres_url

    async def make_store(self, **limits: Any) -> SqlStore:
        self._limits = limits
        return self._make()

    async def reopen_store(self, store: ChannelStore) -> SqlStore:
        return self._make()

    def _make(self) -> SqlStore:
        return SqlStore(self._url, **self._limits)


@real
async def test_a_schema_of_another_program_is_left_alone(postgres_url: str) -> None:
    run_sql(postgres_url, "CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(ConfigurationError, match="another program; name an empty schema") as error:
        await SqlStore(postgres_url).open()
    assert "\n" not in str(error.value)
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    assert run_sql(postgres_url, tables) == [("bookmarks",)]


@real
async def test_text_that_the_server_would_refuse_is_stored_without_it(postgres_url: str) -> None:
    request = replace(sample_records(RequestRecord)[1], error="refused:\0")
    async with SqlStore(postgres_url) as store:
        await store.commit("room", written([request]))
        stored = replace(request, error="refused:\ufffd")
        assert rows_of(await store.acquire_channel("room")) == exact([stored])


@real
async def test_two_schemas_share_nothing(postgres_url: str, postgres_server: str) -> None:
    run_sql(postgres_server, "CREATE SCHEMA other_schema")
    other_url = postgres_url.rpartition("%3D")[0] + "%3Dother_schema"
    try:
        async with open_store(postgres_url) as one, open_store(other_url) as other:
            await one.commit("room", written([lost("a")]))
            assert rows_of(await one.acquire_channel("room")) == exact([lost("a")])
            assert rows_of(await other.acquire_channel("room")) == exact([])
    finally:
        run_sql(postgres_server, "DROP SCHEMA other_schema CASCADE")


@real
async def test_a_schema_that_is_not_there_is_refused(postgres_url: str) -> None:
    url = postgres_url.rpartition("%3D")[0] + "%3Dnowhere"
    with pytest.raises(ConfigurationError, match="no schema of its search_path exists"):
        await SqlStore(url).open()


@real
async def test_a_database_that_is_not_in_utf8_is_refused(postgres_server: str) -> None:
    run_sql(postgres_server, "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1'")
    try:
        with pytest.raises(ConfigurationError, match="encoded in LATIN1"):
            await SqlStore(postgres_server.replace("/postgres?", "/latin?")).open()
    finally:
        run_sql(postgres_server, "DROP DATABASE latin")


SHOW_CHECK = "SHOW client_connection_check_interval"


def shown(url: str) -> str:
    """Return how often the server looks after a store's sessions."""
    backend = PostgresqlBackend(url, busy_timeout_ms=1)
    return backend.look(lambda connection: str(connection.exec_driver_sql(SHOW_CHECK).scalar()))


@real
def test_the_server_looks_whether_its_client_is_there(postgres_url: str) -> None:
    assert shown(postgres_url) == "200ms"
    assert shown(f"{postgres_url}%20-cclient_connection_check_interval%3D7s") == "7s"


@real
def test_a_server_that_cannot_look_after_its_client_is_good_enough(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of some systems do, it refuses the setting."""
    monkeypatch.setattr(postgresql, "CHECK_INTERVAL_MS", -1)
    assert shown(postgres_url) == "0"


async def test_a_server_that_does_not_answer_is_unavailable() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreUnavailableError, match="refused") as failed:
        await SqlStore(NOWHERE).open()
    assert "\n" not in str(failed.value)
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize(
    ("options", "is_watched"),
    [
        ("", True),
        ("?connect_timeout=1", True),
        ("?connect_timeout=600", True),
        ("?connect_timeout=0", False),
        ("?connect_timeout=-1", False),
        ("?connect_timeout=0.9", False),  # the driver takes it for 0
        ("?connect_timeout=soon", True),  # the driver refuses it, and the next
        ("?connect_timeout=inf", True),
    ],
)
def test_who_waits_for_ever_to_connect_asks_for_no_other_session(
    options: str, *, is_watched: bool
) -> None:
    backend = PostgresqlBackend(f"postgresql+psycopg://h/d{options}", busy_timeout_ms=1)
    assert (backend.patience_s is not None) is is_watched


def test_settings_of_sqlite_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="synchronous"):
        open_store(NOWHERE, synchronous="NORMAL")


@pytest.mark.parametrize("busy_timeout_ms", [-1, 3_600_001])
def test_settings_are_checked(busy_timeout_ms: int) -> None:
    with pytest.raises(ConfigurationError, match="busy_timeout_ms"):
        SqlStore(NOWHERE, busy_timeout_ms=busy_timeout_ms)


@pytest.mark.parametrize("url", ["postgresql+psycopg://host:port/db", "postgresql://host/db"])
def test_unusable_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"postgresql\+psycopg://"):
        PostgresqlBackend(url, busy_timeout_ms=1)


def test_the_name_holds_no_secret() -> None:
    backend = PostgresqlBackend(f"{NOWHERE}?sslpassword=secret", busy_timeout_ms=1)
    assert "secret" not in backend.name
    assert "127.0.0.1" in backend.name
