"""The JSON of a node's REST API: messages, pages of a store, health, events of the messaging API.

Total functions: an answer is understood or refused with `DecodeError`, one bad entry of a list does
not spoil the others. Nothing here sends or waits.

Spec: 14/WAKU2-MESSAGE; 13/WAKU2-STORE; MESSAGING-API, Messaging type definitions. Both generations
of the messaging API's answers are read: ``queued`` events and ``source`` came with the second.
"""

from __future__ import annotations

import binascii
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from messaging_adapter.events import ConnectionStatus
from messaging_adapter.rest_client import Refusals
from reliable_channel.core.wire import WakuMessage, waku_message_hash
from reliable_channel.errors import ConfigurationError, DecodeError
from reliable_channel.ports import IncomingMessage

HASH_BYTES: Final = 32

MAX_TEXT: Final = 2_048
"""Longest text that is taken as a cursor, an id or a topic, characters."""

T = TypeVar("T")

PubsubTopicOf = Callable[[str], str]
"""Gives the pubsub topic that carries a content topic, or raises ``ConfigurationError``."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One entry of a store's answer."""

    message_hash: bytes
    message: IncomingMessage | None
    """None unless data was asked for."""


@dataclass(frozen=True, slots=True)
class StorePage:
    """One answer of a store."""

    entries: tuple[StoredMessage, ...]
    cursor: str | None
    """Where the next page begins; None on the last one."""
    status: int
    """The status within the answer, like HTTP's."""
    words: str
    """What the store says about it."""


@dataclass(frozen=True, slots=True)
class SendEvent:
    """What the messaging API tells about a message that was given to it."""

    kind: str
    """``queued``, ``propagated``, ``sent`` or ``error``."""
    message_hash: bytes | None
    error: str


def message_to_json(message: WakuMessage) -> dict[str, Any]:
    """Return a message as the API takes it."""
    shown: dict[str, Any] = {
        "payload": b64encode(message.payload).decode(),
        "contentTopic": message.content_topic,
        "version": message.version or 0,
        "timestamp": message.timestamp or 0,
        "ephemeral": bool(message.ephemeral),
    }
    if message.meta:
        shown["meta"] = b64encode(message.meta).decode()
    return shown


def hash_to_text(message_hash: bytes) -> str:
    """Return a message's hash as the API writes it."""
    return "0x" + message_hash.hex()


class MessageReader:
    """Reads what a node answers.

    Args:
        pubsub_topic_of: Where a content topic travels; for the hash of a message.
        max_payload_bytes: Longer payloads are refused.
        refusals: Counts the entries of lists that are left out.
    """

    def __init__(
        self, pubsub_topic_of: PubsubTopicOf, max_payload_bytes: int, refusals: Refusals
    ) -> None:
        self._pubsub_topic_of = pubsub_topic_of
        self._max_payload_bytes = max_payload_bytes
        self._refusals = refusals

    def message(self, raw: object, pubsub_topic: str | None = None) -> IncomingMessage:
        """Return a message with the hash that its content gives.

        Args:
            raw: Parsed JSON.
            pubsub_topic: Where it travelled; None is where its content topic belongs.

        Raises:
            DecodeError: A field is missing, of another type, or too long.
        """
        fields = _object(raw, "message")
        topic = _text(fields, "contentTopic")
        payload = _bytes(fields.get("payload"), "payload")
        if len(payload) > self._max_payload_bytes:
            raise DecodeError("message", f"payload of {len(payload)} bytes")
        meta = fields.get("meta")
        timestamp = _integer(fields.get("timestamp", 0), "timestamp")
        ephemeral = fields.get("ephemeral", False)
        if not isinstance(ephemeral, bool):
            raise DecodeError("message", "ephemeral is not a boolean")
        message = WakuMessage(
            payload=payload,
            content_topic=topic,
            timestamp=timestamp,
            meta=None if meta is None else _bytes(meta, "meta"),
            ephemeral=ephemeral,
        )
        try:
            carrier = self._pubsub_topic_of(topic) if pubsub_topic is None else pubsub_topic
            message_hash = waku_message_hash(carrier, message)
        except (ConfigurationError, ValueError) as error:
            raise DecodeError("message", "an invalid topic") from error
        return IncomingMessage(
            content_topic=topic,
            payload=payload,
            message_hash=message_hash,
            timestamp_ns=timestamp,
            meta=message.meta or None,
            ephemeral=ephemeral,
        )

    def messages(self, raw: object, pubsub_topic: str | None = None) -> list[IncomingMessage]:
        """Return the readable ones of a list of messages.

        Raises:
            DecodeError: It is not a list.
        """
        return self._each(raw, lambda item: self.message(item, pubsub_topic))

    def received(self, raw: object) -> list[IncomingMessage]:
        """Return the readable ones of the messaging API's received events, under its hashes.

        Raises:
            DecodeError: It is not a list.
        """
        return self._each(raw, self._received)

    def page(self, raw: object) -> StorePage:
        """Return an answer of a store; entries that cannot be read are left out.

        Raises:
            DecodeError: It is not such an answer.
        """
        fields = _object(raw, "store answer")
        cursor = fields.get("paginationCursor")
        if cursor is not None:
            cursor = _text(fields, "paginationCursor")
        status = _integer(fields.get("statusCode", 200), "statusCode")
        words = fields.get("statusDesc")
        entries = self._each(fields.get("messages", []), self._stored)
        return StorePage(tuple(entries), cursor, status, words if isinstance(words, str) else "")

    def _received(self, raw: object) -> IncomingMessage:
        fields = _object(raw, "received event")
        message = self.message(fields.get("message"))
        return replace(message, message_hash=read_hash(fields.get("messageHash")))

    def _stored(self, raw: object) -> StoredMessage:
        fields = _object(raw, "stored message")
        message_hash = read_hash(fields.get("messageHash"))
        if fields.get("message") is None:
            return StoredMessage(message_hash, None)
        carrier = fields.get("pubsubTopic")
        message = self.message(fields["message"], carrier if isinstance(carrier, str) else None)
        if message.message_hash != message_hash:
            raise DecodeError("stored message", "its hash is that of another message")
        return StoredMessage(message_hash, message)

    def _each(self, raw: object, read: Callable[[object], T]) -> list[T]:
        if not isinstance(raw, list):
            raise DecodeError("answer", "a list was expected")
        found = []
        for item in raw:
            try:
                found.append(read(item))
            except DecodeError as error:
                self._refusals.count("bad_entry", error)
        return found


def read_hash(raw: object) -> bytes:
    """Return a hash of 32 bytes from hex, with or without ``0x``.

    Raises:
        DecodeError: It is none.
    """
    try:
        found = bytes.fromhex(raw.removeprefix("0x")) if isinstance(raw, str) else b""
    except ValueError:
        found = b""
    if len(found) != HASH_BYTES:
        raise DecodeError("message hash", "32 bytes of hex were expected")
    return found


def read_connection_status(raw: object) -> ConnectionStatus:
    """Return what an answer about health says of the connection.

    Raises:
        DecodeError: It says nothing known.
    """
    try:
        return ConnectionStatus(str(_object(raw, "health").get("connectionStatus")))
    except ValueError as error:
        raise DecodeError("health", "no known connectionStatus") from error


def read_request_id(raw: object) -> str:
    """Return the id that the messaging API gave to a message.

    Raises:
        DecodeError: There is none.
    """
    return _text(_object(raw, "send answer"), "requestId")


def read_send_events(raw: object) -> list[SendEvent]:
    """Return what the messaging API tells of one message, in order.

    Raises:
        DecodeError: It cannot be read.
    """
    events = _object(raw, "send events").get("events")
    if not isinstance(events, list):
        raise DecodeError("send events", "events is not a list")
    found = []
    for item in events:
        fields = _object(item, "send event")
        named = fields.get("messageHash")
        error = fields.get("error")
        found.append(
            SendEvent(
                _text(fields, "kind"),
                read_hash(named) if named else None,
                error if isinstance(error, str) else "",
            )
        )
    return found


def _object(raw: object, what: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise DecodeError(what, "an object was expected")
    return raw


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value or len(value) > MAX_TEXT:
        raise DecodeError(name, f"text of 1 to {MAX_TEXT} characters was expected")
    return value


def _integer(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise DecodeError(name, "a number of 64 bits was expected")
    return value


def _bytes(value: object, name: str) -> bytes:
    try:
        if isinstance(value, str):
            return binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        pass
    raise DecodeError(name, "base64 was expected")
