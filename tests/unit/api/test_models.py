"""Models of the wire: in step with the library, strict, and never echoing what they refuse."""

from __future__ import annotations

import base64
import dataclasses
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from api.models import (
    BASE64,
    ChannelRequest,
    ProblemDocument,
    RateLimitModel,
    SdsModel,
    SegmentationModel,
    SendRequest,
    StatusModel,
    segment_state,
)
from reliable_channel import (
    ChannelStatus,
    ConfigurationError,
    RateLimitConfig,
    SdsConfig,
    SegmentationConfig,
    SegmentState,
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

ROOM = {"channelId": "room", "contentTopic": "/test/1/room/proto", "senderId": "alice"}


def request(**more: object) -> ChannelRequest:
    return ChannelRequest.model_validate_json(json.dumps(ROOM | more))


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


def test_absent_settings_are_the_defaults() -> None:
    assert request().configs() == (SdsConfig(), SegmentationConfig(), RateLimitConfig())
    sds, _, limit = request(sds={"maxInFlight": 3}, rateLimit={"enabled": True}).configs()
    assert sds == SdsConfig(max_in_flight=3)
    assert limit == RateLimitConfig(enabled=True)


@pytest.mark.parametrize(
    ("one", "other", "differences"),
    [
        ({}, {"sds": {}}, ()),
        ({}, {"sds": None, "encryption": None}, ()),
        ({}, {"sds": {"bloomCapacity": 10_000}}, ()),
        ({}, {"sds": {"bloomCapacity": 9_999}}, ("sds",)),
        ({}, {"senderId": "bob", "rateLimit": {"enabled": True}}, ("senderId", "rateLimit")),
        (
            {"encryption": {"scheme": "aes-256-gcm", "keyRef": "A"}},
            {"encryption": {"scheme": "aes-256-gcm", "keyRef": "B"}},
            ("encryption",),
        ),
    ],
)
def test_requests_differ_in_what_they_ask_for(
    one: dict[str, object], other: dict[str, object], differences: tuple[str, ...]
) -> None:
    assert request(**one).differences(request(**other)) == differences


def test_the_kept_text_gives_the_same_request() -> None:
    asked = request(
        channelId="ü/☃",
        encryption={"scheme": "aes-256-gcm", "keyRef": "A"},
        sds={"retransmissionBackoff": None, "bloomErrorRate": 0.01},
    )
    again = ChannelRequest.model_validate_json(asked.to_text())
    assert again == asked
    assert again.to_text() == asked.to_text()


@given(st.binary(max_size=100))
def test_payloads_come_back(payload: bytes) -> None:
    text = base64.b64encode(payload).decode()
    message = SendRequest.model_validate_json(json.dumps({"payload": text}))
    assert message.payload == payload


def is_accepted(text: str) -> bool:
    try:
        SendRequest.model_validate({"payload": text})
    except ValidationError:
        return False
    return True


@given(st.text(alphabet="AQgwZ+/=-_ \n\u00e9", max_size=9))
def test_only_one_text_stands_for_each_payload(text: str) -> None:
    try:
        is_canonical = base64.b64encode(base64.b64decode(text, validate=True)).decode() == text
    except ValueError:
        is_canonical = False
    assert is_accepted(text) == is_canonical


@pytest.mark.parametrize(
    "text", ["", "QQ==", "QUI=", "QUJD", "QR==", "QUJ=", "QQ", "Q===", "QQ==\n"]
)
def test_the_documented_pattern_is_the_rule(text: str) -> None:
    assert (re.search(BASE64.replace("$", r"\Z"), text) is not None) == is_accepted(text)


def test_what_is_refused_is_not_in_the_error() -> None:
    with pytest.raises(ValidationError) as caught:
        SendRequest.model_validate({"payload": "c2VjcmV0!"})
    assert "c2VjcmV0" not in str(caught.value)


@pytest.mark.parametrize("state", SegmentState)
def test_segment_states_are_those_of_the_wire(state: SegmentState) -> None:
    assert segment_state(state) in ("queued", "sent", "possibly-acknowledged", "acknowledged")
    assert (segment_state(state) == "queued") == (
        state in (SegmentState.QUEUED, SegmentState.IN_FLIGHT)
    )


def test_problem_documents_may_have_members_of_their_own() -> None:
    document = ProblemDocument(type="/problems/x", title="X", status=410, oldest=7)  # type: ignore[call-arg]
    assert document.model_dump(exclude_none=True)["oldest"] == 7
