"""Where lightpush sends a message; whole answers are in tests/api/test_devnode.py."""

from __future__ import annotations

import pytest

from api.devnode.network import Network
from api.devnode.routes_lightpush import PushError, pushed_to
from api.devnode.settings import DevnodeSettings
from reliable_channel.core.wire import WakuMessage
from tests.support.devnode import ManualTimers

MESSAGE = WakuMessage(b"x", "/myapp/1/room/proto")


@pytest.mark.parametrize(
    ("topic", "settings", "expected"),
    [
        (None, {}, "/waku/2/rs/1/0"),
        ("/waku/2/rs/1/5", {}, "/waku/2/rs/1/5"),
        ("/waku/2/rs/1/5", {"auto_sharding": False}, "/waku/2/rs/1/5"),
        (None, {"auto_sharding": False}, 500),
        ("room", {}, 421),
        ("/waku/2/rs/1/5", {"shards": 5}, 421),
        ("/waku/2/rs/2/5", {}, 421),
    ],
)
def test_pubsub_topics(topic: str | None, settings: dict[str, int], expected: str | int) -> None:
    node = Network(DevnodeSettings(**settings), ManualTimers()).nodes[0]  # type: ignore[arg-type]
    if isinstance(expected, str):
        assert pushed_to(node, topic, MESSAGE) == expected
    else:
        with pytest.raises(PushError) as caught:
            pushed_to(node, topic, MESSAGE)
        assert caught.value.status == expected
