"""Settings of the service: which source wins, one line for every mistake, no passwords shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.settings import (
    PREFIX,
    ServiceSettings,
    flag_of,
    is_loopback,
    listed,
    load_settings,
    masked,
    read_toml,
)
from reliable_channel.errors import ConfigurationError


def file_with(folder: Path, text: str) -> Path:
    path = folder / "serve.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_any_source_the_defaults_hold() -> None:
    assert load_settings({}, {}) == ServiceSettings()


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    path = file_with(tmp_path, "port = 1\nmax_channels = 2\nlog_level = 'error'\n")
    environ = {f"{PREFIX}PORT": "3", f"{PREFIX}MAX_CHANNELS": "4"}
    settings = load_settings({"port": 5, "node": None}, environ, path)
    assert (settings.port, settings.max_channels, settings.log_level) == (5, 4, "error")


def test_the_environment_names_the_file_unless_a_flag_does(tmp_path: Path) -> None:
    path = file_with(tmp_path, "port = 7")
    assert load_settings({}, {f"{PREFIX}CONFIG": str(path)}).port == 7
    assert load_settings({}, {f"{PREFIX}CONFIG": "/nowhere.toml"}, path).port == 7


def test_an_empty_variable_or_list_is_not_given() -> None:
    assert load_settings({"allowed_hosts": []}, {f"{PREFIX}PORT": ""}) == ServiceSettings()


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a, b,,c", ("a", "b", "c")), ("", ()), (["a"], ["a"]), (3, 3)],
)
def test_lists_come_as_one_text(value: object, expected: object) -> None:
    assert listed(value) == expected


def test_environment_variables_are_text_for_every_type() -> None:
    environ = {
        f"{PREFIX}PORT": "0",
        f"{PREFIX}ALLOW_INSECURE": "true",
        f"{PREFIX}CORS_ORIGINS": "https://a.example,http://b:3000",
        f"{PREFIX}TOKEN_FILE": "tokens",
        f"{PREFIX}HEARTBEAT_SEC": "2.5",
    }
    settings = load_settings({}, environ)
    assert settings.allow_insecure is True
    assert settings.cors_origins == ("https://a.example", "http://b:3000")
    assert settings.token_file == Path("tokens")
    assert (settings.port, settings.heartbeat_sec) == (0, 2.5)


BAD_FLAGS = [
    ({"port": 70_000}, "port (--port) must be less than or equal to 65535, not 70000"),
    ({"host": ""}, "host (--host) must have at least 1 character"),
    ({"log_level": "loud"}, "log_level (--log-level) must be 'debug', 'info'"),
    ({"shutdown_timeout_sec": -1}, "shutdown_timeout_sec (--shutdown-timeout) must be"),
    ({"cors_origins": ["app"]}, "cors_origins (--cors-origin) must be origins such as"),
    ({"cors_origins": ["https://a.example/path"]}, "must be origins such as"),
    ({"database": "u:secret@host"}, "database (--database) must be a URL, such as"),
    ({"workers": 2}, "workers (--workers) must be 1: a channel is driven by one process"),
    ({"epoch_period_sec": 600}, "epoch_period_sec and messages_per_epoch go together"),
    ({"requests_per_second": float("nan")}, "requests_per_second"),
    ({"prot": 1}, "there is no setting 'prot' (--prot); did you mean port?"),
    ({"xyzzy": 1}, "there is no setting 'xyzzy' (--xyzzy); docs/configuration.md lists all"),
]


@pytest.mark.parametrize(("flags", "text"), BAD_FLAGS)
def test_a_mistake_names_field_source_and_what_would_do(
    flags: dict[str, object], text: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(flags, {})
    line = str(caught.value)
    assert text in line
    assert "\n" not in line
    assert "secret" not in line


def test_each_source_is_named_and_all_problems_are() -> None:
    flags = {"workers": 0}
    environ = {f"{PREFIX}PORT": "tcp://u:secret@10.0.0.1:80"}  # as Kubernetes sets it
    with pytest.raises(ConfigurationError) as caught:
        load_settings(flags, environ)
    port, workers = caught.value.problems
    assert port.startswith("port (environment, RELIABLE_CHANNEL_PORT) must be a valid integer")
    assert "secret" not in port
    assert workers.startswith("workers (--workers) ")


def test_a_mistake_in_the_file_names_the_file(tmp_path: Path) -> None:
    path = file_with(tmp_path, "prot = 8080")
    with pytest.raises(ConfigurationError, match=r"serve\.toml\); did you mean port"):
        load_settings({}, {}, path)


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"port = ", "is no TOML"), (b"host = '\xff'", "is not UTF-8"), (None, "cannot be read: No")],
)
def test_a_file_that_cannot_be_used_is_one_line(
    tmp_path: Path, content: bytes | None, text: str
) -> None:
    path = tmp_path / "serve.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=text) as caught:
        read_toml(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "flag"),
    [
        ("shutdown_timeout_sec", "--shutdown-timeout"),
        ("token_file", "--token-file"),
        ("cors_origins", "--cors-origin"),
    ],
)
def test_flags_are_called_like_their_fields(field: str, flag: str) -> None:
    assert flag_of(field) == flag


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("localhost.example", False),
        ("example.org", False),
    ],
)
def test_loopback(host: str, *, expected: bool) -> None:
    assert is_loopback(host) is expected
    assert ServiceSettings(host=host).is_loopback is expected


@pytest.mark.parametrize(
    ("host", "given", "expected"),
    [("::1", None, 0), ("::", None, 50), ("::", 0, 0), ("::1", 3.5, 3.5)],
)
def test_requests_are_limited_beyond_loopback(
    host: str, given: float | None, expected: float
) -> None:
    assert ServiceSettings(host=host, requests_per_second=given).request_rate == expected


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("memory://lab?loss=0.2", "memory://lab?loss=0.2"),
        ("postgresql+psycopg://u:p@h/d", "postgresql+psycopg://u:***@h/d"),
        ("postgresql+psycopg://u:p@s:s@h:1/d", "postgresql+psycopg://u:***@h:1/d"),
        ("waku+http://u:p@h?x=1&password=q", "waku+http://u:***@h?x=1&password=***"),
        ("a://h?sslkey=q&b=1#f", "a://h?sslkey=***&b=1#f"),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_settings_show_no_password() -> None:
    settings = ServiceSettings(
        database="postgresql+psycopg://u:secret@h/d", node="waku+http://h?token=secret"
    )
    for text in (repr(settings), str(settings), str(settings.shown())):
        assert "secret" not in text
        assert "***" in text
