"""Settings of a stand-in network: bounds, and the faults that follow from them."""

from __future__ import annotations

from typing import Any

import pytest

from api.devnode.faults import NodeFaults
from api.devnode.settings import DevnodeSettings, make_settings, read_log_format, read_log_level
from reliable_channel import ConfigurationError


@pytest.mark.parametrize(
    "given",
    [
        {"port": 70_000},
        {"nodes": 0},
        {"port": 65_535, "nodes": 2},
        {"loss": 2},
        {"shards": 0},
        {"cache_capacity": 0},
        {"store_lag_s": -1.0},
        {"without": ("rely",)},
        {"messaging_api": "2027-01"},
    ],
)
def test_what_cannot_be_is_named(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(given))):
        DevnodeSettings(**given)


def test_all_problems_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)loss.*without"):
        DevnodeSettings(loss=2, without=("x",))


def test_nodes_begin_with_the_faults_of_the_settings() -> None:
    settings = DevnodeSettings(loss=0.1, drop_every=2, self_echo=False, queue_s=1, cut_rate=0.5)
    expected = NodeFaults(loss=0.1, drop_every=2, self_echo=False, queue_s=1, cut_rate=0.5)
    assert settings.faults() == expected


def test_options_become_settings() -> None:
    settings = make_settings({"without": ["relay"], "allow_origin": None, "loss": 1})
    assert settings == DevnodeSettings(without=("relay",), loss=1)
    assert [settings.has(name) for name in ("relay", "store")] == [False, True]


def test_log_options() -> None:
    assert (read_log_level("info"), read_log_format("json"), read_log_format("text")) == (
        "info",
        "json",
        "text",
    )
    with pytest.raises(ConfigurationError, match="log_level"):
        read_log_level("loud")
    with pytest.raises(ConfigurationError, match="log_format"):
        read_log_format("xml")
