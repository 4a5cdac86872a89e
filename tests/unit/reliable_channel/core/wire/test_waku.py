"""Waku messages on the wire, against bytes written by hand, and their hash."""

from __future__ import annotations

import hashlib
from dataclasses import FrozenInstanceError, replace

import pytest

from reliable_channel.core.wire.waku import WakuMessage, waku_message_hash
from reliable_channel.errors import DecodeError

FULL = WakuMessage(
    payload=b"hi",
    content_topic="/a/1/b/p",
    version=1,
    timestamp=-2,
    meta=b"m",
    rate_limit_proof=b"proof",
    ephemeral=True,
)
FULL_BYTES = (
    b"\x0a\x02hi"
    b"\x12\x08/a/1/b/p"
    b"\x18\x01"
    b"\x50\x03"  # field 10, zigzag: -2 is 3
    b"\x5a\x01m"
    b"\xaa\x01\x05proof"  # field 21
    b"\xf8\x01\x01"  # field 31
)

PUBSUB_TOPIC = "/waku/2/default-waku/proto"
HASHED = WakuMessage(
    payload=bytes.fromhex("010203045445535405060708"),
    content_topic="/waku/2/default-content/proto",
    timestamp=0x175789BFA23F8400,
    meta=bytes.fromhex("73757065722d736563726574"),
)


def test_default_message_encodes_to_no_bytes_and_back() -> None:
    assert WakuMessage().encode() == b""
    assert WakuMessage.decode(b"") == WakuMessage()


def test_fields_are_written_in_ascending_order_under_their_numbers() -> None:
    assert FULL.encode() == FULL_BYTES


def test_every_field_is_read_from_under_its_number() -> None:
    assert WakuMessage.decode(FULL_BYTES) == FULL


@pytest.mark.parametrize(
    ("message", "encoded"),
    [
        pytest.param(WakuMessage(version=0), b"\x18\x00", id="version"),
        pytest.param(WakuMessage(timestamp=0), b"\x50\x00", id="timestamp"),
        pytest.param(WakuMessage(meta=b""), b"\x5a\x00", id="meta"),
        pytest.param(WakuMessage(rate_limit_proof=b""), b"\xaa\x01\x00", id="rate_limit_proof"),
        pytest.param(WakuMessage(ephemeral=False), b"\xf8\x01\x00", id="ephemeral"),
    ],
)
def test_optional_field_that_is_set_and_empty_is_not_an_absent_one(
    message: WakuMessage, encoded: bytes
) -> None:
    assert message.encode() == encoded
    assert WakuMessage.decode(encoded) == message
    assert WakuMessage.decode(encoded) != WakuMessage()


@pytest.mark.parametrize("timestamp", [-(2**63), -1, 1, 2**63 - 1])
def test_timestamp_is_signed_with_64_bits(timestamp: int) -> None:
    message = WakuMessage(timestamp=timestamp)
    assert WakuMessage.decode(message.encode()) == message


def test_unknown_fields_are_skipped_and_not_written_again() -> None:
    data = b"\x98\x06\x07" + FULL_BYTES + b"\x92\x03\x02ab"
    assert WakuMessage.decode(data) == FULL
    assert WakuMessage.decode(data).encode() == FULL_BYTES


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(FULL_BYTES[:-1], id="truncated"),
        pytest.param(b"\x12\x01\xff", id="content topic not UTF-8"),
        pytest.param(b"\x0a\xff\xff\xff\xff\x0f", id="absurd length"),
    ],
)
def test_malformed_bytes_raise_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match="WakuMessage"):
        WakuMessage.decode(data)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(WakuMessage(version=-1), id="version below 0"),
        pytest.param(WakuMessage(version=2**32), id="version above 32 bits"),
        pytest.param(WakuMessage(timestamp=2**63), id="timestamp above 64 bits"),
        pytest.param(WakuMessage(timestamp=-(2**63) - 1), id="timestamp below 64 bits"),
        pytest.param(WakuMessage(content_topic="\ud800"), id="lone surrogate"),
    ],
)
def test_unencodable_values_raise_value_error_naming_the_message(message: WakuMessage) -> None:
    with pytest.raises(ValueError, match="WakuMessage cannot be encoded"):
        message.encode()


def test_hash_is_the_one_of_the_specification() -> None:
    expected = "64cce733fed134e83da02b02c6f689814872b1a0ac97ea56b76095c3c72bfe05"
    assert waku_message_hash(PUBSUB_TOPIC, HASHED).hex() == expected


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b""},
        {"content_topic": "/waku/2/other/proto"},
        {"timestamp": 0x175789BFA23F8401},
        {"timestamp": None},
        {"meta": None},
    ],
    ids=["payload", "content topic", "timestamp", "no timestamp", "no meta"],
)
def test_hash_covers_each_of_its_fields(change: dict[str, object]) -> None:
    changed = replace(HASHED, **change)  # type: ignore[arg-type]
    assert waku_message_hash(PUBSUB_TOPIC, changed) != waku_message_hash(PUBSUB_TOPIC, HASHED)


@pytest.mark.parametrize("size", [1, 2_046, 2_047, 2_048, 4_094, 4_095, 150_000])
def test_hash_covers_all_of_a_payload(size: int) -> None:
    payload = bytes(number % 251 for number in range(size))
    message = WakuMessage(payload, "/app/1/room/proto", timestamp=None)
    whole = hashlib.sha256(b"/waku/2/rs/0/1" + payload + b"/app/1/room/proto")
    assert waku_message_hash("/waku/2/rs/0/1", message) == whole.digest()


def test_hash_covers_the_pubsub_topic() -> None:
    other = waku_message_hash("/waku/2/rs/1/0", HASHED)
    assert other != waku_message_hash(PUBSUB_TOPIC, HASHED)


def test_hash_leaves_out_version_proof_and_ephemeral() -> None:
    changed = replace(HASHED, version=1, rate_limit_proof=b"proof", ephemeral=True)
    assert waku_message_hash(PUBSUB_TOPIC, changed) == waku_message_hash(PUBSUB_TOPIC, HASHED)


def test_hash_takes_timestamp_0_and_empty_meta_as_absent() -> None:
    empty = replace(HASHED, timestamp=0, meta=b"")
    absent = replace(HASHED, timestamp=None, meta=None)
    assert waku_message_hash(PUBSUB_TOPIC, empty) == waku_message_hash(PUBSUB_TOPIC, absent)


@pytest.mark.parametrize("timestamp", [2**63, -(2**63) - 1])
def test_hash_refuses_a_timestamp_above_64_bits(timestamp: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        waku_message_hash(PUBSUB_TOPIC, replace(HASHED, timestamp=timestamp))


def test_messages_are_immutable_and_compare_by_value() -> None:
    message = WakuMessage.decode(FULL_BYTES)
    assert hash(message) == hash(FULL)
    with pytest.raises(FrozenInstanceError):
        message.payload = b""  # type: ignore[misc]
    assert not hasattr(message, "__dict__")


def test_text_form_shows_no_payload() -> None:
    assert "secret" not in repr(WakuMessage(payload=b"secret"))
