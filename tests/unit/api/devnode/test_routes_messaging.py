"""What the messaging API's answers are made of; whole answers are in tests/api/test_devnode.py."""

from __future__ import annotations

from api.devnode.http import Call
from api.devnode.messaging import SendEvent
from api.devnode.network import Network
from api.devnode.routes_messaging import join, request_json
from api.devnode.settings import DevnodeSettings
from tests.support.devnode import ManualTimers


def test_an_event_has_its_hash_and_what_belongs_to_its_kind() -> None:
    events = [SendEvent("error", b"\x01", 7, {"error": "why"}), SendEvent("sent", b"\x02", 8)]
    assert request_json("5e", events) == {
        "requestId": "5e",
        "events": [
            {"kind": "error", "messageHash": "0x01", "error": "why", "timestamp": 7},
            {"kind": "sent", "messageHash": "0x02", "timestamp": 8},
        ],
    }


def test_joining_needs_a_shard() -> None:
    node = Network(DevnodeSettings(), ManualTimers()).nodes[0]
    call = Call(node, "POST", "/")
    assert join(call, "/myapp/1/room/proto") is None
    assert "must start with slash" in (join(call, "x") or "")
    assert node.messaging.topics == {"/myapp/1/room/proto"}
