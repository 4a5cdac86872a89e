"""Filter's routes beyond the table of tests/api/test_devnode.py: what stays after leaving, and bounds."""

from __future__ import annotations

import json

import pytest

from api.devnode import routes_filter
from api.devnode.http import Answer, Call, RefusedError
from api.devnode.network import Network
from api.devnode.node import Node
from api.devnode.routes_filter import pairs, subscribe, unsubscribe
from api.devnode.settings import DevnodeSettings
from tests.support.devnode import ManualTimers

TOPIC = "/myapp/1/room/proto"


def make_node() -> Node:
    return Network(DevnodeSettings(), ManualTimers()).nodes[0]


def call(node: Node, **body: object) -> Call:
    data = json.dumps({"requestId": "a", **body}).encode()
    headers = [("content-type", "application/json")]
    return Call(node, "POST", "/", headers=headers, body=data)


async def test_a_topic_stays_while_one_of_its_shards_does() -> None:
    node = make_node()
    for shard in ("/waku/2/rs/1/0", "/waku/2/rs/1/1"):
        await subscribe(call(node, contentFilters=[TOPIC], pubsubTopic=shard))
    await unsubscribe(call(node, contentFilters=[TOPIC]))
    assert node.filtered == {("/waku/2/rs/1/1", TOPIC)}
    assert node.filter.take(("content", TOPIC)) == []
    await unsubscribe(call(node, contentFilters=[TOPIC], pubsubTopic="/waku/2/rs/1/1"))
    assert node.filter.take(("content", TOPIC)) is None


async def test_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_filter, "MAX_PLACES", 1)
    node = make_node()
    answers: list[Answer] = [
        await subscribe(call(node, contentFilters=[TOPIC], pubsubTopic=f"/waku/2/rs/1/{shard}"))
        for shard in (1, 2)
    ]
    assert [answer.status for answer in answers] == [200, 503]


def test_a_topic_has_a_bound() -> None:
    with pytest.raises(RefusedError):
        pairs(make_node(), "a", "/waku/2/rs/1/1", ["x" * 2_000])
