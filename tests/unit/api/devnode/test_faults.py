"""Faults of a node: defaults, bounds, forced answers."""

from __future__ import annotations

from typing import Any

import pytest

from api.devnode.faults import NodeFaults
from messaging_adapter.faults import LinkFaults
from reliable_channel import ConfigurationError


def test_nothing_goes_wrong_by_itself() -> None:
    faults = NodeFaults()
    assert faults.link == LinkFaults()
    assert (faults.timeout_rate, faults.timeout_s, faults.self_echo) == (0.0, 5.0, True)
    assert faults.forced_for("GET", "/health") is None


@pytest.mark.parametrize(
    "given", [{"loss": 1.1}, {"delay_ms": -1.0}, {"drop_every": 1.5}, {"stalled": {"rely"}}]
)
def test_bounds(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(given))):
        NodeFaults(**given)


def test_the_link_follows_changes() -> None:
    faults = NodeFaults()
    faults.loss = 0.5
    assert faults.link.loss == 0.5


def test_forced_answers_fit_method_and_path_and_run_out() -> None:
    faults = NodeFaults()
    faults.answer("/a", 503, method="POST", times=2)
    faults.answer("/a/b", 500)
    asked = [("GET", "/a"), ("POST", "/a/b"), ("GET", "/a/b"), ("POST", "/a"), ("POST", "/a")]
    answers = [faults.forced_for(*request) for request in asked]
    assert [item.status if item else None for item in answers] == [None, 503, 500, 503, None]
