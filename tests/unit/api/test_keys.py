"""Encryption keys: where they come from, and that nothing shows them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from api.keys import KEY_VARIABLE, KeyRing, read_keys
from reliable_channel.errors import ConfigurationError

ONE = bytes(range(224, 256))  # in base64 with + or / in one alphabet, - or _ in the other
TWO = bytes(range(32))


def key_file(folder: Path, text: str) -> Path:
    path = folder / "keys"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    "line",
    [
        f"room={ONE.hex()}",
        f"room = {ONE.hex().upper()}",
        f"room = {base64.b64encode(ONE).decode()}",
        f"room = {base64.urlsafe_b64encode(ONE).decode()}",
        f"room={base64.b64encode(ONE).decode().rstrip('=')}",
        f'room = "{ONE.hex()}"  # since May',
        f"room = '{ONE.hex()}'",
    ],
)
def test_a_key_is_hex_or_base64(tmp_path: Path, line: str) -> None:
    assert read_keys(key_file(tmp_path, line), {}).get("room") == ONE


def test_the_environment_beats_the_file(tmp_path: Path) -> None:
    path = key_file(tmp_path, f"# ours\nroom = {ONE.hex()}\nhall = {ONE.hex()}\n")
    environ = {f"{KEY_VARIABLE}room": TWO.hex(), f"{KEY_VARIABLE}unset": "", "KEY_other": "x"}
    keys = read_keys(path, environ)
    assert keys.names == ("hall", "room")
    assert (keys.get("room"), keys.get("hall")) == (TWO, ONE)


def test_the_variable_of_the_file_is_no_key() -> None:
    assert read_keys(None, {"RELIABLE_CHANNEL_KEYS_FILE": "keys.toml"}).names == ()


def test_an_unknown_name_is_a_key_error() -> None:
    keys = KeyRing({"room": ONE})
    assert "room" in keys
    assert "hall" not in keys
    with pytest.raises(KeyError, match="hall"):
        keys.get("hall")


@pytest.mark.parametrize(
    "text",
    [
        "room 5ec2e7",
        "room =",
        "= 5ec2e7",
        "room = 5ec2e7",
        "room = " + "5ec2e7" * 20,
        "room = 5ec2e7!!",
        "room = !" + base64.b64encode(ONE).decode(),
        "ro om = 5ec2e7",
        "r\u00f6om = " + "5e" * 32,
        "room = " + "5e" * 32 + "\nroom = " + "c2" * 32,
    ],
)
def test_a_bad_line_is_named_by_its_number_and_not_shown(tmp_path: Path, text: str) -> None:
    path = key_file(tmp_path, text)
    with pytest.raises(ConfigurationError, match=r"keys, line [12]: ") as caught:
        read_keys(path, {})
    shown = str(caught.value)
    assert "5ec2e7" not in shown
    assert "5e5e" not in shown
    assert "c2c2" not in shown
    assert caught.value.__cause__ is None


def test_a_bad_variable_is_named_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match=f"environment, {KEY_VARIABLE}room: ") as caught:
        read_keys(None, {f"{KEY_VARIABLE}room": "5ec2e7"})
    assert "5ec2e7" not in str(caught.value)


@pytest.mark.parametrize("keys", [{"room": b"short"}, {"": ONE}, {"a b": ONE}, {"a" * 65: ONE}])
def test_names_and_keys_are_checked(keys: dict[str, bytes]) -> None:
    with pytest.raises(ConfigurationError):
        KeyRing(keys)


def test_no_text_shows_a_key() -> None:
    keys = KeyRing({"room": ONE, "hall": TWO})
    assert repr(keys) == str(keys) == f"{keys!s}" == "KeyRing(hall, room)"
    assert not hasattr(keys, "__dict__")
