"""Bytes recorded from the JavaScript implementation of SDS, `@waku/sds` 0.0.8.

Where a record is flagged as a defect or a peculiarity of that implementation, nothing is asserted.
`vectors/README.md` says how the records came about.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reliable_channel.core.sds.bloom import BloomFilter, BloomShape, hash_pair
from reliable_channel.core.wire import (
    DecodeError,
    HistoryEntry,
    SdsMessage,
    WakuMessage,
    waku_message_hash,
)
from tests.support.js_vectors import VECTORS, Record, blob, optional_blob


def records(section: str, *, skip: str = "") -> list[Any]:
    """Return the records of a section, less those that have the `skip` flag, as parameters."""
    return [
        pytest.param(record, id=f"{number}-{record.get('note') or ''}".rstrip("-"))
        for number, record in enumerate(VECTORS[section])
        if not (skip and record.get(skip))
    ]


def optional_int(value: str | None) -> int | None:
    """Return a recorded 64-bit number that may be absent."""
    return None if value is None else int(value)


def entries(recorded: list[Record]) -> tuple[HistoryEntry, ...]:
    """Return recorded history entries."""
    return tuple(
        HistoryEntry(
            entry["message_id"], optional_blob(entry["retrieval_hint"]), entry["sender_id"]
        )
        for entry in recorded
    )


def sds_message(fields: Record) -> SdsMessage:
    """Return the message with recorded fields."""
    return SdsMessage(
        sender_id=fields["sender_id"],
        message_id=fields["message_id"],
        channel_id=fields["channel_id"],
        lamport_timestamp=optional_int(fields["lamport_timestamp"]),
        causal_history=entries(fields["causal_history"]),
        bloom_filter=optional_blob(fields["bloom_filter"]),
        repair_request=entries(fields["repair_request"]),
        content=optional_blob(fields["content"]),
    )


def nth_hash(item: str, n: int, max_value: int) -> int:
    """Return the n-th hash of an item below a maximum, from the pair that our filter works with."""
    first, step = hash_pair(item)
    return (first + n * step) % max_value


def test_no_section_is_empty() -> None:
    sizes = {section: len(VECTORS[section]) for section in VECTORS if section != "meta"}
    assert sizes["sds_messages"] == 70
    assert sizes["sds_decode"] == 42
    assert sizes["bloom"] == 21
    assert sizes["bloom_foreign_size"] == 8
    assert sizes["nim_hashn"] == 138
    assert sizes["waku_message_hash"] == 22


@pytest.mark.parametrize("record", records("sds_messages", skip="peer_defect"))
def test_message_is_encoded_as_the_peer_encodes_it(record: Record) -> None:
    message = sds_message(record["fields"])
    encoded = blob(record["encoded"])
    assert len(encoded) == record["encoded_len"]
    assert message.encode() == encoded
    assert message.kind == record["kind_on_decode"]


@pytest.mark.parametrize("record", records("sds_messages", skip="peer_defect"))
def test_message_of_the_peer_is_read_field_by_field(record: Record) -> None:
    assert SdsMessage.decode(blob(record["encoded"])) == sds_message(record["fields"])


@pytest.mark.parametrize("record", records("sds_decode", skip="peer_specific"))
def test_bytes_mean_what_they_mean_to_the_peer(record: Record) -> None:
    data = blob(record["bytes"])
    if record["fields"] is not None:
        message = SdsMessage.decode(data)
        expected = sds_message(record["fields"])
        # The peer's sync messages have no content at all, not even an empty one.
        assert replace(message, content=message.content or None) == expected
        assert message.kind == record["kind"]
        return
    # The peer refuses malformed protobuf and messages of no kind in one step; here they are two.
    try:
        message = SdsMessage.decode(data)
    except DecodeError:
        return
    assert message.kind is None


@pytest.mark.parametrize("record", records("bloom", skip="explicit_k"))
def test_filter_has_the_bytes_of_the_peers_filter(record: Record) -> None:
    """Those for which the peer was told a hash count have a test of their own."""
    bloom = BloomFilter(record["capacity"], record["error_rate"])
    assert bloom.shape.hash_count == record["k_hashes"]
    assert bloom.shape.bit_count == record["total_bits"]
    for item in record["inserted"]:
        bloom.add(item)
    assert len(bloom.to_bytes()) == record["bytes_len"]
    assert bloom.to_bytes() == blob(record["bytes"])


@pytest.mark.parametrize("record", records("bloom", skip="explicit_k"))
def test_filter_of_the_peer_answers_lookups_as_it_does_there(record: Record) -> None:
    data = blob(record["bytes"])
    bloom = BloomFilter.from_bytes(data, record["capacity"], record["error_rate"])
    items, answers = zip(*record["lookups"], strict=True)
    assert tuple(item in bloom for item in items) == answers
    pairs = [hash_pair(item) for item in items]
    assert tuple(bloom.shape.matches(data, pairs)) == answers


@pytest.mark.parametrize(
    "record",
    [item for item in VECTORS["bloom"] if item.get("explicit_k")],
    ids=lambda item: f"k={item['explicit_k']} of {item['capacity']}",
)
def test_filter_with_a_hash_count_of_its_own_has_the_same_layout(record: Record) -> None:
    """The peer can be told a hash count; ours cannot, but its bits and its bytes are laid out alike."""
    shape = BloomShape(record["capacity"], record["error_rate"])
    sizes = {
        "hash_count": record["k_hashes"],
        "bit_count": record["total_bits"],
        "byte_length": record["bytes_len"],
    }
    for name, value in sizes.items():
        object.__setattr__(shape, name, value)
    data = bytearray(record["bytes_len"])
    for item in record["inserted"]:
        for n in range(record["k_hashes"]):
            word, bit = divmod(nth_hash(item, n, record["total_bits"]), 64)
            data[8 * word + 7 - bit // 8] |= 1 << bit % 8
    assert bytes(data) == blob(record["bytes"])
    for item, answer in record["lookups"]:
        assert shape.has_pair(blob(record["bytes"]), hash_pair(item)) is answer


@pytest.mark.parametrize("record", records("bloom"))
def test_bits_of_an_id_are_those_that_the_peer_sets(record: Record) -> None:
    if record["inserted"]:
        indexes = [
            nth_hash(record["inserted"][0], n, record["total_bits"])
            for n in range(record["k_hashes"])
        ]
        assert indexes == record["bit_indexes_of_first"]


@pytest.mark.parametrize("record", records("bloom_foreign_size"))
def test_filter_of_another_length_is_refused(record: Record) -> None:
    """The peer throws on a shorter one and takes a longer one as it comes; ours refuses both."""
    defaults = VECTORS["meta"]["defaults"]["bloom"]
    capacity, error_rate = defaults["capacity"], defaults["errorRate"]
    data = bytes.fromhex(record["fill"]) * record["len"]
    if record["len"] == BloomShape(capacity, error_rate).byte_length:
        assert ("any id" in BloomFilter.from_bytes(data, capacity, error_rate)) is record["lookup"]
    else:
        with pytest.raises(DecodeError):
            BloomFilter.from_bytes(data, capacity, error_rate)


@pytest.mark.parametrize("record", records("nim_hashn", skip="note"))
def test_hashes_of_ascii_items_are_those_of_the_peer(record: Record) -> None:
    """Records with a note are of other than ASCII items, which the peer hashes in its own way."""
    result = nth_hash(record["item"], record["n"], record["max_value"])
    if record["error"] is None:
        assert result == record["result"]
    else:  # The peer's 32-bit arithmetic gives up; ours has no such limit.
        assert record["error"] == "overflow"
        assert 0 <= result < record["max_value"]


@pytest.mark.parametrize("record", records("waku_message_hash"))
def test_waku_message_has_the_hash_that_the_peer_gives_it(record: Record) -> None:
    message = WakuMessage(
        payload=blob(record["payload"]),
        content_topic=record["content_topic"],
        timestamp=optional_int(record["timestamp_ns"]),
        meta=optional_blob(record["meta"]),
    )
    assert waku_message_hash(record["pubsub_topic"], message) == blob(record["hash"])
