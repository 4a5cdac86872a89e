"""Models of the wire: in step with the library, strict, and never echoing what they refuse."""

from __future__ import annotations

import base64
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from api.models import (
    BASE64,
    Accepted,
    ChannelRequest,
    MessagePage,
    ProblemDocument,
    RequestView,
    SendRequest,
    segment_state,
)
from reliable_channel import (
    RateLimitConfig,
    SdsConfig,
    SegmentationConfig,
    SegmentState,
)

ROOM = {"channelId": "room", "contentTopic": "/test/1/room/proto", "senderId": "alice"}


def request(**more: object) -> ChannelRequest:
    return ChannelRequest.model_validate_json(json.dumps(ROOM | more))


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


@pytest.mark.parametrize("model", [Accepted, MessagePage, RequestView])
def test_examples_of_the_description_fit_their_models(model: type[BaseModel]) -> None:
    (example,) = model.model_json_schema()["examples"]
    assert model.model_validate(example).model_dump(mode="json") == example


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (ChannelRequest, {"channel_id": "a", "content_topic": "/a/1/b/c", "sender_id": "b"}),
        (ChannelRequest, ROOM | {"sds": {"max_in_flight": 4}}),
        (ChannelRequest, ROOM | {"encryption": {"scheme": "aes-256-gcm", "key_ref": "A"}}),
        (ChannelRequest, ROOM | {"rate_limit": {"enabled": False}}),
    ],
)
def test_fields_have_one_name_on_the_wire(model: type[BaseModel], given: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        model.model_validate(given)
