"""The original bytes of the newest content messages, so that others' repair requests can be answered.

Only bytes as their sender encoded them are kept: who rebuilt a message from parity does not have them. It must not
decide who answers (``repair``), nor keep anything that is not known (``log``).

Spec: LIP-109 (SDS), SDS-R participant state, augmented local history log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reliable_channel.config import SdsConfig
from reliable_channel.core.outbox import Outbox
from reliable_channel.records import BodyRecord
from reliable_channel.types import MessageId


@dataclass(slots=True, eq=False)
class ArchivedMessage:
    """One message that can be sent again.

    Attributes:
        parts: Its encoded bytes by the name of the row that holds them; in a row they are the message.
        in_store: It came from the node's store, so the store has it.
    """

    parts: dict[str, bytes]
    in_store: bool = False

    @property
    def data(self) -> bytes:
        """The encoded message."""
        return b"".join(self.parts.values())

    @property
    def octets(self) -> int:
        """Its size in bytes."""
        return sum(map(len, self.parts.values()))


class MessageArchive:
    """Full messages by id, oldest first, bounded in number and bytes.

    Args:
        config: The bounds, and whether repair is on; where it is off nothing is kept.
        outbox: Where row changes go.
    """

    def __init__(self, config: SdsConfig, outbox: Outbox) -> None:
        self.config = config
        self.outbox = outbox
        self.messages: dict[MessageId, ArchivedMessage] = {}
        self.octets = 0

    def __contains__(self, message_id: MessageId) -> bool:
        return message_id in self.messages

    def __len__(self) -> int:
        return len(self.messages)

    def find(self, message_id: MessageId) -> ArchivedMessage | None:
        """Return a message, or None when it is not kept (any more)."""
        return self.messages.get(message_id)

    def has_room(self, octets: int) -> bool:
        """Tell whether a message of that size is kept at all."""
        config = self.config
        return (
            config.enable_repair
            and config.max_full_messages > 0
            and octets <= config.max_full_bytes
        )

    def keep_received(self, message_id: MessageId, data: bytes, *, in_store: bool) -> None:
        """Keep a message of another participant, and write its row."""
        if self.has_room(len(data)):
            row = BodyRecord(message_id=message_id, part="message", data=data)
            self.outbox.put_at((message_id, "message"), row)
            self.add(message_id, ArchivedMessage({"message": data}, in_store))

    def keep_own(self, message_id: MessageId, header: bytes, suffix: bytes) -> bool:
        """Keep a message of ours whose request has ended; say whether its rows have to stay.

        A copy of it that came back from others gives way: ours has its rows already.
        """
        self.forget((message_id,))
        if self.has_room(len(header) + len(suffix)):
            self.add(message_id, ArchivedMessage({"header": header, "content": suffix}))
        return message_id in self.messages

    def take_out_own(self, message_id: MessageId) -> bytes | None:
        """Give a message of ours back to its sender, who sends an equal one (``message_id="content"``).

        Returns:
            Its header, whose rows are the sender's from now on; None where no message of ours is kept under the id.
        """
        message = self.messages.get(message_id)
        if message is None or "header" not in message.parts:
            self.forget((message_id,))
            return None
        del self.messages[message_id]
        self.octets -= message.octets
        return message.parts["header"]

    def add(self, message_id: MessageId, message: ArchivedMessage) -> None:
        """Enter a message whose rows are written, and let the oldest go that have no room."""
        if message_id in self.messages:
            return
        self.messages[message_id] = message
        self.octets += message.octets
        while (
            len(self.messages) > self.config.max_full_messages
            or self.octets > self.config.max_full_bytes
        ):
            self.forget((next(iter(self.messages)),))

    def forget(self, message_ids: Iterable[MessageId]) -> None:
        """Let messages go, rows included; harmless where one is not kept."""
        for message_id in message_ids:
            message = self.messages.pop(message_id, None)
            if message is not None:
                self.octets -= message.octets
                for part in message.parts:
                    self.outbox.delete(BodyRecord, message_id, part)
