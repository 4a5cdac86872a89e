"""Tokens: where they come from, what they allow, that nothing shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.settings import ServiceSettings
from api.tokens import Tokens, check_exposure, digest, read_tokens
from reliable_channel.errors import ConfigurationError

ONE = "one-0123456789abcdef"
TWO = "two_0123456789.ABC~+"


def token_file(folder: Path, text: str) -> Path:
    path = folder / "tokens"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def test_roles() -> None:
    tokens = Tokens([ONE], [TWO])
    assert (tokens.role(ONE), tokens.role(TWO)) == ("read", "write")
    assert len(tokens) == 2


@pytest.mark.parametrize("other", ["", "x", ONE[:-1], ONE + "x", ONE.upper(), "\u00e9\ud800", " "])
def test_what_is_no_token_has_no_role(other: str) -> None:
    assert Tokens([ONE], [TWO]).role(other) is None


def test_a_token_of_both_roles_may_write() -> None:
    assert Tokens([ONE], [ONE]).role(ONE) == "write"


@pytest.mark.parametrize("token", ["", "short", "with space 0123456789", "\u00e9" * 20, "a" * 513])
def test_weak_and_unsendable_tokens_are_refused(token: str) -> None:
    with pytest.raises(ConfigurationError, match="openssl rand") as caught:
        Tokens(write=[token])
    assert not token or token not in str(caught.value)


def test_file_and_environment_add_up(tmp_path: Path) -> None:
    path = token_file(tmp_path, f"# ours\nread {ONE}\n\n  write   {TWO}  \n")
    environ = {
        "RELIABLE_CHANNEL_READ_TOKENS": f"{ONE}3, {ONE}4",
        "RELIABLE_CHANNEL_WRITE_TOKENS": f"{ONE}5",
    }
    tokens = read_tokens(path, environ)
    roles = [tokens.role(token) for token in (ONE, TWO, f"{ONE}3", f"{ONE}4", f"{ONE}5")]
    assert roles == ["read", "write", "read", "read", "write"]


def test_without_any_there_are_none() -> None:
    assert len(read_tokens(None, {})) == 0


@pytest.mark.parametrize("line", ["admin 5ec2e7" + "0" * 20, "5ec2e7" + "0" * 20, "read 5ec2e7"])
def test_a_bad_line_is_named_by_its_number_and_not_shown(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigurationError, match="tokens, line 2: write 'read TOKEN'") as caught:
        read_tokens(token_file(tmp_path, f"#\n{line}"), {})
    assert "5ec2e7" not in str(caught.value)


def test_a_file_without_tokens_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has no line"):
        read_tokens(token_file(tmp_path, "# later\n"), {})


def test_a_bad_variable_is_named_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="RELIABLE_CHANNEL_READ_TOKENS") as caught:
        read_tokens(None, {"RELIABLE_CHANNEL_READ_TOKENS": "5ec2e7"})
    assert "5ec2e7" not in str(caught.value)


def test_nothing_shows_a_token() -> None:
    tokens = Tokens([ONE], [TWO])
    assert repr(tokens) == str(tokens) == "Tokens(<2 hidden>)"
    assert not hasattr(tokens, "__dict__")
    assert ONE.encode() not in digest(ONE)


@pytest.mark.parametrize(
    ("host", "tokens", "insecure", "refused"),
    [
        ("127.0.0.1", 0, False, False),
        ("::1", 0, False, False),
        ("0.0.0.0", 0, False, True),
        ("::", 0, False, True),
        ("example.org", 0, False, True),
        ("0.0.0.0", 1, False, False),
        ("0.0.0.0", 0, True, False),
    ],
)
def test_beyond_this_machine_tokens_are_needed(
    host: str, tokens: int, *, insecure: bool, refused: bool
) -> None:
    settings = ServiceSettings(host=host, allow_insecure=insecure)
    known = Tokens([ONE] * tokens)
    if not refused:
        check_exposure(settings, known)
        return
    with pytest.raises(ConfigurationError, match=r"--token-file.*127\.0\.0\.1.*--allow-insecure"):
        check_exposure(settings, known)
