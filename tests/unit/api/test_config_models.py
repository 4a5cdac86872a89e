"""Models of settings and status are in step with the library."""

from __future__ import annotations

import dataclasses

import pytest
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from api.config_models import RateLimitModel, SdsModel, SegmentationModel, StatusModel
from reliable_channel import (
    ChannelStatus,
    ConfigurationError,
    RateLimitConfig,
    SdsConfig,
    SegmentationConfig,
)
from reliable_channel.config import (
    RATE_LIMIT_BOUNDS,
    SDS_BOUNDS,
    SEGMENTATION_BOUNDS,
    Bounds,
)

CONFIGS = [
    (SdsModel, SdsConfig, SDS_BOUNDS),
    (SegmentationModel, SegmentationConfig, SEGMENTATION_BOUNDS),
    (RateLimitModel, RateLimitConfig, RATE_LIMIT_BOUNDS),
]


@pytest.mark.parametrize(("model", "kind", "bounds"), CONFIGS)
def test_settings_have_the_fields_defaults_and_bounds_of_the_library(
    model: type[BaseModel], kind: type, bounds: Bounds
) -> None:
    properties = model.model_json_schema()["properties"]
    expected = {item.name: item for item in dataclasses.fields(kind) if item.name != "persistence"}
    assert list(properties) == [to_camel(name) for name in expected]
    for name, item in expected.items():
        schema = properties[to_camel(name)]
        assert schema["default"] == item.default
        assert schema["description"].endswith((".", ")"))
        number = next((one for one in schema.get("anyOf", []) if "minimum" in one), schema)
        if name in bounds:
            assert (number["minimum"], number["maximum"]) == bounds[name]


@pytest.mark.parametrize(("model", "kind", "bounds"), CONFIGS)
def test_model_and_library_refuse_the_same(
    model: type[BaseModel], kind: type, bounds: Bounds
) -> None:
    for name, (low, high) in bounds.items():
        whole = {to_camel(name): float(low)}  # 2.0 is an integer in JSON
        assert getattr(model.model_validate(whole), name) == low
        step = 1 if isinstance(low, int) else 0.25
        for value in (low, high, low - step, high + step, True, "5", float("nan")):
            try:
                model.model_validate({to_camel(name): value})
                accepted = True
            except ValidationError:
                accepted = False
            try:
                kind(**{name: value})
                fits = True
            except ConfigurationError as error:  # rules between fields are the library's own
                fits = not any(problem.startswith(f"{name} must be from") or "number" in problem
                               for problem in error.problems)  # fmt: skip
            assert accepted == fits, (name, value)


def test_status_has_the_fields_of_the_library() -> None:
    names = {item.name for item in dataclasses.fields(ChannelStatus)}
    assert StatusModel.model_fields.keys() == names - {"channel_id", "sender_id", "content_topic"}
