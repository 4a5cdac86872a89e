"""Bodies of requests and answers: JSON as a node reads and writes it, and messages in it.

A node ignores fields that it does not know, refuses a key that comes twice, and wants base64 with padding. Nothing
here knows routes.

Spec: 14/WAKU2-MESSAGE.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from reliable_channel.core.wire import WakuMessage
from reliable_channel.types import Nanoseconds

T = TypeVar("T")

UNREADABLE: Final = "Unable to deserialize data: "

MAX_UINT: Final = (1 << 32) - 1
MAX_INT64: Final = (1 << 63) - 1


class BodyError(Exception):
    """A body cannot be read, for the reason given."""

    def __init__(self, reason: str) -> None:
        super().__init__(UNREADABLE + reason)


class Base64Error(BodyError):
    """A field of a message is no base64."""


def read_json(data: bytes) -> Any:
    """Return what a body says.

    Raises:
        BodyError: It is no JSON, or a key comes twice.
    """
    try:
        return json.loads(data, object_pairs_hook=_unrepeated, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BodyError(str(error)) from error


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        problem = f"Multiple `{twice}` fields found"
        raise BodyError(problem)
    return found


def _no_constant(text: str) -> Any:
    raise BodyError(text)


def read_object(data: bytes) -> dict[str, Any]:
    """Return the object that a body is.

    Raises:
        BodyError: It is none.
    """
    found = read_json(data)
    if not isinstance(found, dict):
        problem = "object expected"
        raise BodyError(problem)
    return found


def read_texts(data: bytes) -> list[str]:
    """Return the list of texts that a body is.

    Raises:
        BodyError: It is none.
    """
    return check_texts(read_json(data))


def check_texts(found: object) -> list[str]:
    """Return a list of texts.

    Raises:
        BodyError: It is none.
    """
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        problem = "array of strings expected"
        raise BodyError(problem)
    return found


def field_of(body: dict[str, Any], name: str, kind: type[T]) -> T | None:
    """Return a field, or None where it is absent or null.

    Raises:
        BodyError: It is of another type.
    """
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        problem = f"Field `{name}` is not of type {kind.__name__}"
        raise BodyError(problem)
    return value


def required(body: dict[str, Any], name: str) -> str:
    """Return a text that must be there and not be blank.

    Raises:
        BodyError: It is not.
    """
    value = present(body, name)
    if not value.strip():
        problem = f"Field `{name}` is missing"
        raise BodyError(problem)
    return value


def present(body: dict[str, Any], name: str) -> str:
    """Return a text that must be there.

    Raises:
        BodyError: It is not.
    """
    value = field_of(body, name, str)
    if value is None:
        problem = f"Field `{name}` is missing"
        raise BodyError(problem)
    return value


def binary(body: dict[str, Any], name: str) -> bytes | None:
    """Return a field of base64 with padding, or None.

    Raises:
        BodyError: It is none.
    """
    text = field_of(body, name, str)
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        problem = f"Field `{name}` is not base64: {error}"
        raise Base64Error(problem) from error


def number(body: dict[str, Any], name: str, low: int, high: int) -> int | None:
    """Return a whole number within bounds, or None.

    Raises:
        BodyError: It is none.
    """
    value = field_of(body, name, int)
    if value is not None and not low <= value <= high:
        problem = f"Field `{name}` is out of range"
        raise BodyError(problem)
    return value


def message_of(body: object, now: Callable[[], Nanoseconds]) -> WakuMessage:
    """Return the message of a RelayWakuMessage.

    Args:
        body: What JSON gave.
        now: The time of a message that has none.

    Raises:
        BodyError: It is none.
    """
    if not isinstance(body, dict):
        problem = "object expected"
        raise BodyError(problem)
    required(body, "payload")
    return WakuMessage(
        payload=binary(body, "payload") or b"",
        content_topic=required(body, "contentTopic"),
        version=number(body, "version", 0, MAX_UINT) or 0,
        timestamp=number(body, "timestamp", -MAX_INT64 - 1, MAX_INT64) or now(),
        meta=binary(body, "meta") or None,
        ephemeral=field_of(body, "ephemeral", bool) or False,
        rate_limit_proof=binary(body, "proof") or None,
    )


def message_json(message: WakuMessage, *, proof: bool = True) -> dict[str, Any]:
    """Return a message as a RelayWakuMessage.

    Args:
        message: As it came.
        proof: Whether the proof is among the fields, empty where there is none.
    """
    body: dict[str, Any] = {
        "payload": text_of(message.payload),
        "contentTopic": message.content_topic,
        "version": message.version or 0,
        "timestamp": message.timestamp or 0,
        "ephemeral": bool(message.ephemeral),
    }
    if message.meta:
        body["meta"] = text_of(message.meta)
    if proof:
        body["proof"] = text_of(message.rate_limit_proof or b"")
    return body


def text_of(data: bytes) -> str:
    """Return bytes as base64 with padding."""
    return base64.b64encode(data).decode()


def hash_text(digest: bytes) -> str:
    """Return a hash as nodes write it."""
    return f"0x{digest.hex()}"


def encode(body: object) -> bytes:
    """Return the JSON of an answer."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(
        errors="surrogatepass"
    )
