"""Strict reading of protobuf messages: a value, or one error whatever is wrong.

Nothing here knows what a message means.

Spec: Protocol Buffers, Encoding.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf import message as protobuf
from google.protobuf.unknown_fields import UnknownFieldSet

from reliable_channel.errors import DecodeError

MessageT = TypeVar("MessageT", bound=protobuf.Message)


def parse(message_type: type[MessageT], data: bytes) -> MessageT:
    """Return the protobuf message that the bytes encode; fields of other numbers are kept unread.

    Args:
        message_type: A generated class.
        data: What was received.

    Raises:
        DecodeError: Malformed protobuf, a text that is not UTF-8, or a field of another wire type
            than its own; for messages inside this one, that is up to `check_wire_types`.
    """
    try:
        raw = message_type.FromString(data)
    # The runtime without its C extension also lets out UnicodeDecodeError, and, up to 6.31.0,
    # RecursionError.
    except (protobuf.DecodeError, ValueError, RecursionError) as error:
        raise DecodeError(message_type.__name__, str(error)) from error
    check_wire_types(raw)
    return raw


def check_wire_types(raw: protobuf.Message) -> None:
    """Raise DecodeError if a field came under another wire type than its own.

    The runtime takes such a field for an unknown one and leaves it absent: a message would lose its
    sender, or, without its Lamport time, pass for an ephemeral one. The JavaScript peer refuses
    such bytes, too.
    """
    unknown = UnknownFieldSet(raw)
    if not unknown:
        return
    for index in range(len(unknown)):
        item = unknown[index]
        if item.field_number in raw.DESCRIPTOR.fields_by_number:
            detail = f"field {item.field_number} has wire type {item.wire_type}"
            raise DecodeError(type(raw).__name__, detail)
