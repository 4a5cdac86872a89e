"""Parity shards and erasures recorded from the C++ library Leopard-RS.

The file's ``_about`` says how they came about. It has data of a generator, parity in hexadecimal,
and loss patterns with what the library made of them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from reliable_channel.core.reed_solomon import UnrecoverableError, encode_parity, recover
from reliable_channel.core.reed_solomon.leopard_code import field_of

Record: TypeAlias = dict[str, Any]

VECTORS: Final = json.loads(
    (Path(__file__).parent / "vectors" / "leopard_ff8.json").read_text(encoding="utf-8")
)["vectors"]

RECORDS: Final = [
    pytest.param(record, id=f"{record['id']}-{record['k']}-{record['m']}") for record in VECTORS
]


def data_shards(record: Record) -> list[bytes]:
    """Generate the data shards of a record; the last one is zero-padded."""
    size, last = record["shard_bytes"], record["k"] - 1
    shards = [
        bytes(
            data_byte(record["seed"], j, i)
            for i in range(record["last_len"] if j == last else size)
        )
        for j in range(record["k"])
    ]
    return [shard.ljust(size, b"\0") for shard in shards]


def data_byte(seed: int, shard: int, byte: int) -> int:
    x = (byte + 1) * (2 * shard + 3) * 40503 + seed * 69069 + byte * 131 + shard * 8191
    x %= 1 << 32
    return (x ^ x >> 8 ^ x >> 16) & 255


def parity_shards(record: Record) -> list[bytes]:
    return [bytes.fromhex(shard) for shard in record["parity"]]


def without(shards: list[bytes], lost: list[int]) -> list[bytes | None]:
    return [None if index in lost else shard for index, shard in enumerate(shards)]


@pytest.mark.parametrize("record", RECORDS)
def test_generated_data_is_the_recorded_one(record: Record) -> None:
    digest = hashlib.sha256(b"".join(data_shards(record))).hexdigest()
    assert digest == record["data_sha256"]


@pytest.mark.parametrize("record", RECORDS)
def test_parity_has_the_same_bytes(record: Record) -> None:
    assert encode_parity(data_shards(record), record["m"], "leopard") == parity_shards(record)


@pytest.mark.parametrize("record", RECORDS)
def test_parity_of_long_shards_has_the_same_bytes(record: Record) -> None:
    """Long shards are coded another way than short ones; parity does not depend on the length."""
    shards = [shard * 100 for shard in data_shards(record)]
    expected = [shard * 100 for shard in parity_shards(record)]
    assert encode_parity(shards, record["m"], "leopard") == expected


@pytest.mark.parametrize("record", RECORDS)
def test_field_is_the_one_the_library_takes(record: Record) -> None:
    two_bytes = record["path"] == "ff16"
    assert field_of(record["k"], record["m"]).symbol_bytes == 1 + two_bytes


@pytest.mark.parametrize("record", RECORDS)
def test_erasures_end_as_recorded(record: Record) -> None:
    data, parity = data_shards(record), parity_shards(record)
    for erasure in record["erasures"]:
        arrived = without(data, erasure["lost_data"]), without(parity, erasure["lost_parity"])
        if erasure["recoverable"]:
            assert recover(*arrived, "leopard") == data
        else:
            with pytest.raises(UnrecoverableError):
                recover(*arrived, "leopard")
