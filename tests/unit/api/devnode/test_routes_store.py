"""Parameters of store queries; whole answers are in tests/api/test_devnode.py."""

from __future__ import annotations

import pytest

from api.devnode.archive import StoreQuery
from api.devnode.http import RefusedError
from api.devnode.routes_store import read_flag, read_hash, read_query, read_size, read_time

DIGEST = bytes(range(32))


def test_every_parameter_is_read() -> None:
    given = {
        "pubsubTopic": "/p",
        "contentTopics": "/a,/b",
        "startTime": "1",
        "endTime": "2",
        "hashes": f"0x{DIGEST.hex()},{DIGEST.hex()}",
        "cursor": DIGEST.hex(),
        "ascending": "false",
        "pageSize": "3",
        "peerAddr": "/ip4/…",
    }
    assert read_query(given) == StoreQuery(
        pubsub_topic="/p",
        content_topics=frozenset({"/a", "/b"}),
        start=1,
        end=2,
        hashes=(DIGEST, DIGEST),
        cursor=DIGEST,
        forward=False,
        page_size=3,
    )


@pytest.mark.parametrize("given", [{}, {"pubsubTopic": "", "contentTopics": "", "startTime": ""}])
def test_what_is_not_said_is_not_asked(given: dict[str, str]) -> None:
    assert read_query(given) == StoreQuery()


@pytest.mark.parametrize(
    ("ascending", "forward"), [("true", True), ("false", False), ("yes", False), ("", False)]
)
def test_only_true_is_forward(ascending: str, forward: bool) -> None:
    assert read_query({"ascending": ascending}).forward is forward


def refusal(reader: object, given: str) -> str:
    with pytest.raises(RefusedError) as caught:
        reader(given)  # type: ignore[operator]
    assert caught.value.answer.status == 400
    return caught.value.answer.body.decode()


def test_refusals() -> None:
    assert refusal(read_hash, "0x12") == "waku message hash parsing error: invalid hash length: 1"
    assert refusal(read_hash, "1").startswith("waku message hash parsing error: ")
    for given in ("x", "0", "-1", "9" * 30, "1.5", "٣"):
        assert refusal(read_time, given).startswith("time parsing error: ")
    assert refusal(read_flag, "1").startswith("include data parsing error: ")
    assert refusal(read_size, "-1").startswith("page size parsing error: ")
