"""Relay's routes beyond the table of tests/api/test_devnode.py: which paths, and bounds."""

from __future__ import annotations

import pytest

from api.devnode import caches
from api.devnode.network import Network
from api.devnode.routes_relay import keep, leave, routes
from api.devnode.settings import DevnodeSettings
from tests.support.devnode import ManualTimers


def test_every_path_takes_options() -> None:
    paths = {route.path for route in routes()}
    assert {route.path for route in routes() if route.method == "OPTIONS"} == paths
    assert len(paths) == 5


def test_too_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "MAX_PLACES", 1)
    node = Network(DevnodeSettings(), ManualTimers()).nodes[0]
    assert keep(node, [("pubsub", "a"), ("pubsub", "b")]).body.startswith(b"Subscribe failed: ")
    assert leave(node, [("pubsub", "a")]).status == 200
    assert keep(node, [("pubsub", "b")]).status == 200
