"""Settings: the specification's names and defaults, every bound, all problems in one error."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields
from typing import Any, TypeAlias

import pytest

from reliable_channel.config import (
    RATE_LIMIT_BOUNDS,
    SDS_BOUNDS,
    SEGMENTATION_BOUNDS,
    Bounds,
    RateLimitConfig,
    SdsConfig,
    SegmentationConfig,
    check_bounds,
)
from reliable_channel.errors import ConfigurationError

Config: TypeAlias = SegmentationConfig | SdsConfig | RateLimitConfig

KINDS: list[tuple[type[Config], Bounds]] = [
    (SegmentationConfig, SEGMENTATION_BOUNDS),
    (SdsConfig, SDS_BOUNDS),
    (RateLimitConfig, RATE_LIMIT_BOUNDS),
]

NUMBERS = [
    pytest.param(kind, name, low, high, id=f"{kind.__name__}.{name}")
    for kind, bounds in KINDS
    for name, (low, high) in bounds.items()
]

COMPANIONS: dict[str, dict[str, Any]] = {
    "dependency_timeout_ms": {"enable_repair": False},
    "repair_t_min_ms": {"repair_t_max_ms": 1 << 40, "enable_repair": False},
    "repair_t_max_ms": {"repair_t_min_ms": 1, "enable_repair": False},
    "sync_interval_ms": {"max_sync_interval_ms": 1 << 40},
    "max_sync_interval_ms": {"sync_interval_ms": 1},
}
"""What has to be set with a field so that its bounds do not contradict another field."""

CONTRADICTIONS = {
    ("repair_t_min_ms", 1 << 40): "repair_t_max_ms must be above repair_t_min_ms",
    ("repair_t_max_ms", 1): "repair_t_max_ms must be above repair_t_min_ms",
}
"""Bounds that no other value of another field goes with."""


def build(kind: type[Config], **values: Any) -> Config:
    """Make a config from values of any type."""
    return kind(**values)


@pytest.mark.parametrize(
    ("kind", "name", "default"),
    [
        (SegmentationConfig, "enable_reed_solomon", False),
        (SegmentationConfig, "segment_size_bytes", 102_400),
        (SegmentationConfig, "parity_rate", 0.125),
        (SegmentationConfig, "parity_code", "reedsolo"),
        (SegmentationConfig, "max_total_segments", 256),
        (SegmentationConfig, "accept_unsegmented", True),
        (SegmentationConfig, "persistence", None),
        (SdsConfig, "persistence", None),
        (SdsConfig, "acknowledgement_timeout_ms", 5_000),
        (SdsConfig, "max_retransmissions", 5),
        (SdsConfig, "causal_history_size", 2),
        (SdsConfig, "bloom_capacity", 10_000),
        (SdsConfig, "bloom_error_rate", 0.001),
        (SdsConfig, "message_id", "salted"),
        (SdsConfig, "dependency_timeout_ms", 300_000),
        (SdsConfig, "sync_interval_ms", 30_000),
        (SdsConfig, "max_sync_interval_ms", 600_000),
        (SdsConfig, "retransmission_backoff", None),
        (SdsConfig, "possible_ack_threshold", 2),
        (SdsConfig, "repair_t_min_ms", 30_000),
        (SdsConfig, "repair_t_max_ms", 120_000),
        (SdsConfig, "num_response_groups", 1),
        (SdsConfig, "enable_repair", True),
        (SdsConfig, "max_full_messages", 1_000),
        (SdsConfig, "max_known_ids", 100_000),
        (RateLimitConfig, "enabled", False),
        (RateLimitConfig, "epoch_period_sec", 600),
        (RateLimitConfig, "messages_per_epoch", 100),
    ],
)
def test_defaults_are_those_of_the_specification(
    kind: type[Config], name: str, default: object
) -> None:
    assert getattr(kind(), name) == default


def test_a_payload_may_lack_segments_for_an_hour() -> None:
    """WIRE: time without progress at least 1 h."""
    assert SegmentationConfig().incomplete_timeout_ms >= 3_600_000


@pytest.mark.parametrize(("kind", "bounds"), KINDS)
def test_every_numeric_field_has_bounds_and_every_bound_a_field(
    kind: type[Config], bounds: Bounds
) -> None:
    numeric = {
        item.name
        for item in fields(kind)
        if item.type in ("int", "float", "float | None", "int | None")
    }
    assert numeric == bounds.keys()


@pytest.mark.parametrize(("kind", "name", "low", "high"), NUMBERS)
def test_both_bounds_are_accepted(kind: type[Config], name: str, low: float, high: float) -> None:
    for value in (low, high):
        values = {name: value, **COMPANIONS.get(name, {})}
        if problem := CONTRADICTIONS.get((name, int(value))):
            with pytest.raises(ConfigurationError) as caught:
                build(kind, **values)
            assert caught.value.problems == (problem,)
        else:
            assert getattr(build(kind, **values), name) == value


@pytest.mark.parametrize(("kind", "name", "low", "high"), NUMBERS)
def test_what_is_beyond_a_bound_is_refused_with_both(
    kind: type[Config], name: str, low: float, high: float
) -> None:
    real = isinstance(low, float)
    below, above = (low / 2 - 1, high * 2) if real else (low - 1, high + 1)
    for value in (below, above):
        with pytest.raises(ConfigurationError) as caught:
            build(kind, **{name: value})
        expected = f"{name} must be from {low} to {high}, not {value!r}"
        assert caught.value.problems == (expected,)


@pytest.mark.parametrize(("kind", "name", "low", "high"), NUMBERS)
@pytest.mark.parametrize("value", [True, "5", b"5", [5], 1 + 2j], ids=repr)
def test_what_is_no_number_is_refused(
    kind: type[Config], name: str, low: float, high: float, value: object
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(kind, **{name: value})
    what = "a number" if isinstance(low, float) else "a whole number"
    assert caught.value.problems == (f"{name} must be {what}, not {value!r}",)


@pytest.mark.parametrize(("kind", "name", "low", "high"), NUMBERS)
def test_none_is_accepted_only_where_it_is_the_default(
    kind: type[Config], name: str, low: float, high: float
) -> None:
    if name == "retransmission_backoff":
        assert build(kind, **{name: None}) == kind()
    else:
        with pytest.raises(ConfigurationError, match=f"{name} must be .*, not None"):
            build(kind, **{name: None})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["bloom_error_rate", "retransmission_backoff"])
def test_numbers_that_compare_with_nothing_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=name):
        build(SdsConfig, **{name: value})


def test_dependencies_are_waited_for_long_enough_to_be_repaired() -> None:
    """WIRE: refused below 2 T_max + 30 s when repair is on."""
    times = {"repair_t_min_ms": 1_000, "repair_t_max_ms": 4_000}
    assert build(SdsConfig, dependency_timeout_ms=38_000, **times)
    with pytest.raises(ConfigurationError, match="dependency_timeout_ms must be at least 38000"):
        build(SdsConfig, dependency_timeout_ms=37_999, **times)
    assert build(SdsConfig, dependency_timeout_ms=1, enable_repair=False)


def test_whole_numbers_are_numbers() -> None:
    assert SdsConfig(retransmission_backoff=2).retransmission_backoff == 2
    assert SegmentationConfig(parity_rate=1).parity_rate == 1


def test_fractions_are_no_whole_numbers() -> None:
    with pytest.raises(ConfigurationError, match=r"must be a whole number, not 2\.0"):
        build(SdsConfig, max_retransmissions=2.0)


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        (
            SegmentationConfig,
            {"parity_code": "xor"},
            "parity_code must be 'reedsolo' or 'leopard', not 'xor'",
        ),
        (
            SdsConfig,
            {"message_id": "uuid"},
            "message_id must be 'salted' or 'content', not 'uuid'",
        ),
        (
            SdsConfig,
            {"repair_t_min_ms": 120_000},
            "repair_t_max_ms must be above repair_t_min_ms",
        ),
        (
            SdsConfig,
            {"sync_interval_ms": 600_001},
            "max_sync_interval_ms must not be below sync_interval_ms",
        ),
        (
            SdsConfig,
            {"max_known_ids": 64, "causal_history_size": 33},
            "max_known_ids must be at least twice causal_history_size",
        ),
    ],
)
def test_values_that_mean_nothing_or_contradict_others_are_refused(
    kind: type[Config], values: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(kind, **values)
    assert caught.value.problems == (problem,)


@pytest.mark.parametrize(
    "values",
    [
        {"repair_t_min_ms": 119_999},
        {"sync_interval_ms": 600_000},
        {"max_known_ids": 64, "causal_history_size": 32},
        {"message_id": "content"},
    ],
)
def test_values_just_short_of_a_contradiction_are_accepted(values: dict[str, Any]) -> None:
    build(SdsConfig, **values)


def test_all_problems_are_in_one_error_of_one_line() -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(SdsConfig, max_retransmissions=-1, bloom_error_rate=2.0, message_id="\n")
    assert caught.value.problems == (
        "max_retransmissions must be from 0 to 1000, not -1",
        "bloom_error_rate must be from 1e-09 to 0.5, not 2.0",
        "message_id must be 'salted' or 'content', not '\\n'",
    )
    assert str(caught.value) == "; ".join(caught.value.problems)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_several_contradictions_are_all_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(SdsConfig, repair_t_min_ms=500_000, sync_interval_ms=700_000)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS])
def test_settings_are_frozen_and_compared_by_value(kind: type[Config]) -> None:
    config = kind()
    assert config == kind()
    with pytest.raises(FrozenInstanceError):
        setattr(config, fields(config)[0].name, 1)


def test_a_store_is_no_part_of_what_is_compared_or_shown() -> None:
    """Its URL may hold a password."""
    store: Any = "postgresql://user:secret@host"
    assert SdsConfig(persistence=store) == SdsConfig()
    assert "secret" not in repr(SdsConfig(persistence=store))
    assert SegmentationConfig(persistence=store) == SegmentationConfig()


def test_fields_without_bounds_are_not_checked() -> None:
    assert check_bounds(RateLimitConfig(), {}) == []
