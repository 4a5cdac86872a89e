"""The same ``send`` again: which request has a key already, and whether it is of the same message.

A key lives in its request's row and is forgotten with it. Payloads are compared by their digest: the bytes of what has
ended are not kept. It must not make requests nor forget them.

Spec: none: keys never leave this participant.
"""

from __future__ import annotations

from hashlib import sha256

from reliable_channel.core.requests import Request, RequestBook
from reliable_channel.errors import IdempotencyConflictError
from reliable_channel.identifiers import check_identifier
from reliable_channel.types import ChannelId


def payload_digest(payload: bytes, *, ephemeral: bool) -> bytes:
    """Return what tells a message from others under its key, 32 bytes."""
    hasher = sha256(b"\1" if ephemeral else b"\0")
    hasher.update(payload)
    return hasher.digest()


def earlier_request(
    book: RequestBook, channel_id: ChannelId, given: object, payload: bytes, *, ephemeral: bool
) -> Request | None:
    """Return the request that a key belongs to; None where it is new.

    Raises:
        ConfigurationError: It cannot be a key.
        IdempotencyConflictError: It belongs to another message.
    """
    key = check_identifier("idempotency_key", given)
    request = book.by_key.get(key)
    if request is not None and request.payload_digest != payload_digest(
        payload, ephemeral=ephemeral
    ):
        raise IdempotencyConflictError(channel_id, key)
    return request
