"""What frames may hold and how sockets end; over real connections it is in tests/api."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from api.readers import END_NAMES
from api.sockets import END_CODES, MAX_FRAME_ID, SendFrame, id_of

FRAME: dict[str, Any] = {"type": "send", "id": "a", "payload": "AP8="}


def test_a_frame_is_read() -> None:
    frame = SendFrame.read(json.dumps({**FRAME, "ephemeral": True, "idempotencyKey": "k"}))
    assert (frame.id, frame.payload, frame.ephemeral, frame.idempotency_key) == (
        "a",
        b"\x00\xff",
        True,
        "k",
    )


def test_what_may_be_left_out() -> None:
    frame = SendFrame.read(json.dumps(FRAME))
    assert (frame.ephemeral, frame.idempotency_key) == (False, None)


@pytest.mark.parametrize(
    "change",
    [
        {"type": "buy"},
        {"type": None},
        {"id": ""},
        {"id": "x" * (MAX_FRAME_ID + 1)},
        {"id": 7},
        {"payload": "AP8"},
        {"payload": "?"},
        {"payload": 7},
        {"ephemeral": "yes"},
        {"idempotencyKey": 7},
        {"idempotency_key": "k"},
        {"channelId": "room"},
    ],
    ids=str,
)
def test_anything_else_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SendFrame.read(json.dumps({**FRAME, **change}))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"id":"a"}', "a"),
        ('{"id":7}', None),
        ('{"id":"' + "x" * (MAX_FRAME_ID + 1) + '"}', None),
        ("{}", None),
        ("[]", None),
        ("", None),
        ("[" * 100_000, None),
    ],
    ids=["text", "number", "long", "none", "list", "nothing", "deep"],
)
def test_the_id_of_a_wrong_frame_is_found_where_there_is_one(text: str, found: str | None) -> None:
    assert id_of(text) == found


def test_every_ending_has_a_code() -> None:
    assert set(END_CODES) == set(END_NAMES)
    assert END_CODES["stream:slow"] == 1013
    assert END_CODES["stream:closing"] == 1001
