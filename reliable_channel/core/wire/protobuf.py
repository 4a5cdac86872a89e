"""Strict reading of protobuf messages: a value, or one error whatever is wrong.

Nothing here knows what a message means.

Spec: Protocol Buffers, Encoding.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final, TypeAlias, TypeVar

from google.protobuf import message as protobuf
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from reliable_channel.errors import DecodeError

MessageT = TypeVar("MessageT", bound=protobuf.Message)

Probe: TypeAlias = tuple[int, type[protobuf.Message], type[protobuf.Message] | None]
"""A wire type, a class with the fields of a message that must not have it, and one with the messages inside it, made
likewise; None where there are none. One class cannot have both: they have the same numbers."""

LENGTH_DELIMITED: Final = 2

FEW_BYTES: Final = 2048
"""Unknown fields in so many bytes are listed in less than a millisecond."""

WIRE_TYPES: Final = {
    FieldDescriptor.TYPE_DOUBLE: 1,
    FieldDescriptor.TYPE_FIXED64: 1,
    FieldDescriptor.TYPE_SFIXED64: 1,
    FieldDescriptor.TYPE_STRING: LENGTH_DELIMITED,
    FieldDescriptor.TYPE_BYTES: LENGTH_DELIMITED,
    FieldDescriptor.TYPE_MESSAGE: LENGTH_DELIMITED,
    FieldDescriptor.TYPE_FLOAT: 5,
    FieldDescriptor.TYPE_FIXED32: 5,
    FieldDescriptor.TYPE_SFIXED32: 5,
}
"""Wire type of each field type that is no varint, which is 0."""

PROBED: Final = (
    (0, FieldDescriptorProto.TYPE_UINT64),
    (1, FieldDescriptorProto.TYPE_FIXED64),
    (LENGTH_DELIMITED, FieldDescriptorProto.TYPE_BYTES),
    (3, FieldDescriptorProto.TYPE_GROUP),
    (5, FieldDescriptorProto.TYPE_FIXED32),
)
"""All wire types that a field can begin with, each with a field type that takes it and no other."""


def parse(message_type: type[MessageT], data: bytes, bulk_field: str = "") -> MessageT:
    """Return the protobuf message that the bytes encode; fields of other numbers are left unread.

    Args:
        message_type: A generated class without messages inside.
        data: What was received.
        bulk_field: The field that most bytes of a long message belong to.

    Raises:
        DecodeError: Malformed protobuf, a text that is not UTF-8, or a field of another wire type
            than its own.
    """
    raw = read(message_type, data)
    check_wire_types(raw, data, bulk=len(getattr(raw, bulk_field)) if bulk_field else 0)
    return raw


def read(message_type: type[MessageT], data: bytes) -> MessageT:
    """Return the protobuf message that the bytes encode; wire types are up to `check_wire_types`.

    Args:
        message_type: A generated class.
        data: What was received.

    Raises:
        DecodeError: Malformed protobuf, or a text that is not UTF-8.
    """
    try:
        return message_type.FromString(data)
    # The runtime without its C extension also lets out UnicodeDecodeError, and, up to 6.31.0,
    # RecursionError.
    except (protobuf.DecodeError, ValueError, RecursionError) as error:
        raise DecodeError(message_type.__name__, str(error)) from error


def undivided(message_type: type[protobuf.Message]) -> type[protobuf.Message]:
    """Return a class that reads the same messages, with all messages inside left as the bytes that encode them.

    Args:
        message_type: A generated class.
    """
    file = FileDescriptorProto()
    message_type.DESCRIPTOR.file.CopyToProto(file)
    for message in file.message_type:
        for item in message.field:
            if item.type == FieldDescriptorProto.TYPE_MESSAGE:
                item.type = FieldDescriptorProto.TYPE_BYTES
                item.ClearField("type_name")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(message_type.DESCRIPTOR.full_name))


def check_wire_types(
    raw: protobuf.Message,
    data: bytes,
    *,
    bulk: int = 0,
    inside: Iterable[protobuf.Message] = (),
) -> None:
    """Raise DecodeError if a field came under another wire type than its own; drop unknown fields.

    The runtime takes such a field for an unknown one and leaves it absent: a message would lose its
    sender, or, without its Lamport time, pass for an ephemeral one. The JavaScript peer refuses
    such bytes, too.

    The runtime's own list of unknown fields is asked first, where there can be few of them: it takes
    long by far for messages made of nothing else. Nothing encodes the known fields in fewer bytes
    than the runtime: where it needs as many as were received, no field was unknown. Otherwise the
    bytes are read again for each wire type, as a message whose fields are those that must not have it.

    Args:
        raw: What the runtime made of the bytes.
        data: The bytes.
        bulk: Bytes of known fields; no unknown fields are in them.
        inside: All messages inside this one.
    """
    if len(data) - bulk <= FEW_BYTES and not (
        UnknownFieldSet(raw) or any(map(UnknownFieldSet, inside))
    ):
        return
    raw.DiscardUnknownFields()
    if raw.ByteSize() == len(data):
        return
    for wire_type, probe, inner in probes(raw.DESCRIPTOR):
        seen = [probe.FromString(data)]
        if inner is not None:
            for _, items in inner.FromString(data).ListFields():
                seen.extend(items)
        for message in seen:
            for item, _ in message.ListFields():
                detail = f"field {item.number} has wire type {wire_type}"
                raise DecodeError(type(raw).__name__, detail)


@cache
def probes(descriptor: Descriptor) -> tuple[Probe, ...]:
    """Return, for each wire type, how to find the fields that must not have it.

    Args:
        descriptor: Of the message; those inside it have none inside them.
    """
    file = FileDescriptorProto(name=descriptor.full_name, package="probes", syntax="proto2")
    inside = [(item.number, item.message_type) for item in descriptor.fields if item.message_type]
    for wire_type, field_type in PROBED:
        add_probe(file, f"Own{wire_type}", descriptor, wire_type, field_type)
        into = DescriptorProto(name=f"Inside{wire_type}")
        for number, inner in inside:
            name = f"In{number}As{wire_type}"
            add_probe(file, name, inner, wire_type, field_type)
            into.field.add(
                name=f"f{number}",
                number=number,
                label=FieldDescriptorProto.LABEL_REPEATED,
                type=FieldDescriptorProto.TYPE_MESSAGE,
                type_name=f".probes.{name}",
            )
        file.message_type.append(into)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())

    def made(name: str) -> type[protobuf.Message]:
        return GetMessageClass(pool.FindMessageTypeByName(f"probes.{name}"))

    return tuple(
        (number, made(f"Own{number}"), made(f"Inside{number}") if inside else None)
        for number, _ in PROBED
    )


def add_probe(
    file: FileDescriptorProto,
    name: str,
    descriptor: Descriptor,
    wire_type: int,
    field_type: FieldDescriptorProto.Type.ValueType,
) -> None:
    """Add a message to a file whose fields are those of another that must not have a wire type.

    Args:
        file: Where it goes.
        name: What it is called.
        descriptor: Of the other message.
        wire_type: What they must not have.
        field_type: A type that takes it.
    """
    probe = file.message_type.add(name=name)
    is_group = field_type == FieldDescriptorProto.TYPE_GROUP
    for item in descriptor.fields:
        if WIRE_TYPES.get(item.type, 0) == wire_type:
            continue
        if is_group:
            probe.nested_type.add(name=f"F{item.number}")
        probe.field.add(
            name=f"f{item.number}",
            number=item.number,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
            type=field_type,
            type_name=f".probes.{name}.F{item.number}" if is_group else None,
        )
