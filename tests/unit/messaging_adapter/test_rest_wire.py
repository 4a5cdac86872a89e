"""The node's JSON: what is read, what is refused, hashes."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging_adapter import ConnectionStatus
from messaging_adapter.rest_client import Refusals
from messaging_adapter.rest_wire import (
    MessageReader,
    hash_to_text,
    message_to_json,
    read_connection_status,
    read_hash,
    read_request_id,
    read_send_events,
)
from reliable_channel.clock import SystemClock
from reliable_channel.core.wire import WakuMessage, parse_content_topic, waku_message_hash
from reliable_channel.errors import DecodeError

TOPIC = "/app/1/room/proto"
CARRIER = "/waku/2/rs/1/0"
HASH = "0x" + "ab" * 32


def carrier_of(topic: str) -> str:
    parse_content_topic(topic)
    return CARRIER


def new_reader() -> tuple[MessageReader, Refusals]:
    refusals = Refusals(SystemClock())
    return MessageReader(carrier_of, 1_000, refusals), refusals


def raw(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "payload": "aGVsbG8=",
        "contentTopic": TOPIC,
        "version": 0,
        "timestamp": 1_700_000_000_000_000_001,
        "ephemeral": False,
        "proof": "",
        **changes,
    }
    return {name: value for name, value in fields.items() if value is not ...}


def test_the_published_vector_is_hashed_as_published() -> None:
    reader = MessageReader(lambda _: "/waku/2/default-waku/proto", 1_000, new_reader()[1])
    found = reader.message(
        {
            "payload": b64encode(bytes.fromhex("010203045445535405060708")).decode(),
            "contentTopic": "/waku/2/default-content/proto",
            "meta": b64encode(bytes.fromhex("73757065722d736563726574")).decode(),
            "timestamp": 0x175789BFA23F8400,
        }
    )
    expected = "64cce733fed134e83da02b02c6f689814872b1a0ac97ea56b76095c3c72bfe05"
    assert found.message_hash.hex() == expected


@given(
    payload=st.binary(min_size=1, max_size=50),
    meta=st.none() | st.binary(min_size=1, max_size=64),
    timestamp=st.integers(-(1 << 63), (1 << 63) - 1),
    ephemeral=st.booleans(),
)
def test_a_message_survives_the_way_there_and_back(
    payload: bytes, meta: bytes | None, timestamp: int, ephemeral: bool
) -> None:
    message = WakuMessage(payload, TOPIC, timestamp=timestamp, meta=meta, ephemeral=ephemeral)
    found = new_reader()[0].message(message_to_json(message))
    assert (found.payload, found.content_topic, found.meta) == (payload, TOPIC, meta)
    assert (found.timestamp_ns, found.ephemeral) == (timestamp, ephemeral)
    assert found.message_hash == waku_message_hash(CARRIER, message)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        "text",
        raw(payload=...),
        raw(payload=None),
        raw(payload=5),
        raw(payload="a"),
        raw(payload="aGVsbG8"),  # no padding
        raw(payload="aGVs-_8="),  # the other alphabet
        raw(payload="aGVsbG8=\n"),
        raw(payload="é"),
        raw(payload=b64encode(bytes(1_001)).decode()),
        raw(contentTopic=...),
        raw(contentTopic=""),
        raw(contentTopic=7),
        raw(contentTopic="room"),
        raw(contentTopic="/app/1/\ud800/proto"),
        raw(contentTopic="/app/1/" + "x" * 3_000 + "/proto"),
        raw(timestamp="5"),
        raw(timestamp=1.5),
        raw(timestamp=True),
        raw(timestamp=1 << 63),
        raw(meta=5),
        raw(meta="!"),
        raw(ephemeral="yes"),
    ],
    ids=repr,
)
def test_what_is_no_message_is_refused_and_spoils_no_other(bad: Any) -> None:
    reader, refusals = new_reader()
    with pytest.raises(DecodeError):
        reader.message(bad)
    assert [item.payload for item in reader.messages([bad, raw(), bad])] == [b"hello"]
    assert refusals.counts == {"bad_entry": 2}


def test_what_a_node_may_leave_out_may_be_left_out() -> None:
    reader, _ = new_reader()
    found = reader.message({"payload": "aA==", "contentTopic": TOPIC, "meta": "", "other": 1})
    assert (found.timestamp_ns, found.meta, found.ephemeral) == (0, None, False)


def test_where_a_message_travelled_is_part_of_its_hash() -> None:
    reader, _ = new_reader()
    assert reader.message(raw()).message_hash == reader.message(raw(), CARRIER).message_hash
    assert reader.message(raw()).message_hash != reader.message(raw(), "/other").message_hash
    with pytest.raises(DecodeError):
        reader.message(raw(), "/\ud800")


@pytest.mark.parametrize("extra", [{}, {"source": "live"}, {"source": "history", "new": None}])
def test_received_events_of_both_generations_are_read(extra: dict[str, Any]) -> None:
    reader, refusals = new_reader()
    good = {"messageHash": HASH, "message": raw(), **extra}
    found = reader.received([good, {"message": raw()}, {"messageHash": HASH}, 5])
    assert [item.message_hash.hex() for item in found] == ["ab" * 32]
    assert refusals.counts == {"bad_entry": 3}


def stored(**changes: Any) -> dict[str, Any]:
    right = new_reader()[0].message(raw()).message_hash
    return {
        "messageHash": hash_to_text(right),
        "message": raw(),
        "pubsubTopic": CARRIER,
        **changes,
    }


def test_a_page_of_a_store_is_read() -> None:
    reader, refusals = new_reader()
    page = reader.page(
        {
            "requestId": "1",
            "statusCode": 200,
            "statusDesc": "OK",
            "messages": [stored(), {"messageHash": HASH}, stored(messageHash=HASH), {}],
            "paginationCursor": HASH,
        }
    )
    first, second = page.entries
    assert first.message is not None
    assert first.message.payload == b"hello"
    assert (second.message_hash.hex(), second.message) == ("ab" * 32, None)
    assert (page.cursor, page.status, page.words) == (HASH, 200, "OK")
    assert refusals.counts == {"bad_entry": 2}  # another message under that hash; no hash


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        {"messages": {}},
        {"messages": None},
        {"messages": [], "statusCode": "200"},
        {"messages": [], "paginationCursor": 5},
        {"messages": [], "paginationCursor": ""},
    ],
    ids=repr,
)
def test_what_is_no_page_is_refused(bad: Any) -> None:
    with pytest.raises(DecodeError):
        new_reader()[0].page(bad)


@pytest.mark.parametrize("bad", [None, 5, "", "0x", "zz" * 32, "ab" * 31, "ab" * 33, ["ab"]])
def test_what_is_no_hash_is_refused(bad: Any) -> None:
    with pytest.raises(DecodeError):
        read_hash(bad)


def test_a_hash_is_read_with_and_without_prefix() -> None:
    assert read_hash(HASH) == read_hash("AB" * 32) == bytes.fromhex("ab" * 32)
    assert hash_to_text(read_hash(HASH)) == HASH


@pytest.mark.parametrize("status", list(ConnectionStatus))
def test_the_status_of_the_connection_is_read(status: ConnectionStatus) -> None:
    assert read_connection_status({"connectionStatus": str(status), "nodeHealth": 1}) is status


@pytest.mark.parametrize("bad", [None, {}, {"connectionStatus": "Fine"}, {"connectionStatus": 1}])
def test_an_unknown_status_is_refused(bad: Any) -> None:
    with pytest.raises(DecodeError):
        read_connection_status(bad)


def test_send_events_of_both_generations_are_read() -> None:
    found = read_send_events(
        {
            "requestId": "x",
            "events": [
                {"kind": "queued", "messageHash": "", "expectedPublishTimestamp": 5},
                {"kind": "propagated", "messageHash": HASH, "timestamp": 1},
                {"kind": "error", "messageHash": HASH, "error": "no peers"},
            ],
        }
    )
    assert [(item.kind, item.error) for item in found] == [
        ("queued", ""),
        ("propagated", ""),
        ("error", "no peers"),
    ]
    assert found[0].message_hash is None
    assert found[1].message_hash == bytes.fromhex("ab" * 32)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        {},
        {"events": {}},
        {"events": [1]},
        {"events": [{}]},
        {"events": [{"kind": "sent", "messageHash": "x"}]},
    ],
    ids=repr,
)
def test_what_are_no_send_events_is_refused(bad: Any) -> None:
    with pytest.raises(DecodeError):
        read_send_events(bad)


@pytest.mark.parametrize("bad", [None, {}, {"requestId": ""}, {"requestId": 5}])
def test_an_answer_without_id_is_refused(bad: Any) -> None:
    with pytest.raises(DecodeError):
        read_request_id(bad)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.just(HASH),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["message", "messageHash", "payload", "contentTopic", "messages", "events", "kind"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_understood_or_refused(value: Any) -> None:
    reader, _ = new_reader()
    for read in (
        reader.message,
        reader.messages,
        reader.received,
        reader.page,
        read_send_events,
        read_request_id,
        read_connection_status,
    ):
        try:
            read(value)
        except DecodeError:
            continue
