"""JSON and messages in it as a node reads and writes them."""

from __future__ import annotations

import json

import pytest

from api.devnode.bodies import (
    Base64Error,
    BodyError,
    encode,
    field_of,
    hash_text,
    message_json,
    message_of,
    present,
    read_json,
    read_object,
    read_texts,
)
from reliable_channel.core.wire import WakuMessage

FULL = WakuMessage(b"hi", "/a/1/b/c", 1, -5, b"me", b"proof", ephemeral=True)


@pytest.mark.parametrize("proof", [True, False])
def test_a_message_survives_its_body(proof: bool) -> None:
    body = json.loads(encode(message_json(FULL, proof=proof)))
    read = message_of(body, lambda: 7)
    assert (read == FULL) is proof
    assert ("proof" in body) is proof


@pytest.mark.parametrize("given", [{}, {"timestamp": 0}, {"timestamp": None}])
def test_a_message_without_a_time_gets_the_time(given: dict[str, object]) -> None:
    body = {"payload": "aGk=", "contentTopic": "/a/1/b/c", "meta": "", "proof": "", **given}
    assert message_of(body, lambda: 7) == WakuMessage(b"hi", "/a/1/b/c", 0, 7, ephemeral=False)


def test_an_empty_meta_is_left_out_and_a_proof_is_empty() -> None:
    body = message_json(WakuMessage(b"", "/a", meta=b""))
    assert body == {
        "payload": "",
        "contentTopic": "/a",
        "version": 0,
        "timestamp": 0,
        "ephemeral": False,
        "proof": "",
    }


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[1,]", b"NaN", b'{"a":1,"a":1}', b'{"b":{"a":1,"a":2}}', b"\xff", b"[" * 10**5],
)
def test_what_is_no_json_of_a_node(data: bytes) -> None:
    with pytest.raises(BodyError, match=r"^Unable to deserialize data: "):
        read_json(data)


@pytest.mark.parametrize(
    ("reader", "data"), [(read_object, b"[]"), (read_texts, b"{}"), (read_texts, b"[1]")]
)
def test_what_has_another_form(reader: object, data: bytes) -> None:
    with pytest.raises(BodyError):
        reader(data)  # type: ignore[operator]


def test_fields() -> None:
    assert field_of({"a": None}, "a", str) is None
    assert present({"a": ""}, "a") == ""
    with pytest.raises(BodyError):
        present({}, "a")
    with pytest.raises(BodyError):
        field_of({"a": True}, "a", int)


@pytest.mark.parametrize("payload", ["aGk", "a_-=", "ä", "a Gk="])
def test_base64_is_strict(payload: str) -> None:
    with pytest.raises(Base64Error):
        message_of({"payload": payload, "contentTopic": "/a"}, lambda: 1)


def test_hashes_are_written_with_0x() -> None:
    assert hash_text(b"\x00\xff") == "0x00ff"
