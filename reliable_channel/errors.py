"""Every exception that this project raises on purpose, in one tree.

Names say what went wrong, attributes keep the data, the text is one line that says what to do. Outcomes that are
part of ordinary work (a duplicate, a parked message, an exhausted epoch budget) are values, never exceptions.

::

    ReliableChannelError
    ├── ConfigurationError (ValueError)          a setting or an argument of an opening call is unusable
    │   └── InvalidContentTopicError             not a content topic of 23/TOPICS
    ├── ChannelError
    │   ├── ChannelExistsError                   the id is open already
    │   ├── ChannelClosedError                   the handle was closed
    │   ├── ChannelFailedError                   a background task of the channel died
    │   ├── ChannelFullError                     too much is unacknowledged or queued
    │   └── SendOutcomeUnknownError              the channel ended before it knew whether a message was stored
    ├── LocalProtocolError                       the caller asked for something that the protocol forbids
    │   ├── EmptyPayloadError
    │   ├── IdempotencyConflictError             the key belongs to another message
    │   ├── InvalidPayloadError (TypeError)      not bytes
    │   └── MessageTooLargeError
    ├── RemoteProtocolError                      bytes from the network; never leaves the core
    │   ├── DecodeError (ValueError)
    │   ├── InvalidSegmentError
    │   └── UnrecoverableError                   too few shards to rebuild the rest
    ├── EncryptionError
    │   ├── EncryptError
    │   └── DecryptError
    ├── NodeError
    │   ├── NodeClosedError
    │   ├── NodeUnavailableError                 may work later
    │   └── PublishRejectedError                 will not work when tried again
    ├── StoreError
    │   ├── StoreUnavailableError                may work later
    │   │   └── StoreOutcomeUnknownError         it failed while committing: all was applied, or nothing
    │   ├── StoreClosedError
    │   ├── LeaseLostError                       another process drives the channel by now
    │   ├── BudgetInUseError                     another node counts in the epoch budget
    │   ├── EventsExpiredError                   the asked events are no longer retained
    │   └── CursorAheadError                     the log of events ends before what was asked for
    ├── RequestError
    │   ├── RequestNotFoundError                 no such request on this channel
    │   └── RequestFailedError                   the request ended in an error event
    └── SlowConsumerError                        an event stream was not read fast enough
"""

from __future__ import annotations

from collections.abc import Sequence


def one_line(cause: BaseException) -> str:
    """Return the text of an exception without line breaks."""
    return " ".join(str(cause).split())


class ReliableChannelError(Exception):
    """Root of the tree: catching it catches everything this project raises on purpose."""


class ConfigurationError(ReliableChannelError, ValueError):
    """A configuration value, or an argument of an opening call, is unusable; nothing was opened.

    Args:
        problems: One sentence, or one for each problem found.
    """

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("; ".join(self.problems))


class InvalidContentTopicError(ConfigurationError):
    """A content topic is not of the form that 23/TOPICS prescribes.

    Args:
        content_topic: What was given.
        reason: What is wrong with it.
    """

    def __init__(self, content_topic: str, reason: str) -> None:
        self.content_topic = content_topic
        self.reason = reason
        shown = content_topic if len(content_topic) <= 120 else content_topic[:117] + "..."
        super().__init__(
            f"content topic {shown!r} {reason}; use /application/version/name/encoding (23/TOPICS)"
        )


class ChannelError(ReliableChannelError):
    """Something about the channel as a whole.

    Args:
        channel_id: The channel concerned.
        text: The whole message.
    """

    def __init__(self, channel_id: str, text: str) -> None:
        self.channel_id = channel_id
        super().__init__(text)


class ChannelExistsError(ChannelError):
    """The channel id is open already, on this node or on this store."""

    def __init__(self, channel_id: str, where: str = "on this node") -> None:
        super().__init__(
            channel_id, f"channel already exists {where}: {channel_id!r}; close it first"
        )


class ChannelClosedError(ChannelError):
    """The channel handle was closed."""

    def __init__(self, channel_id: str) -> None:
        super().__init__(channel_id, f"channel {channel_id!r} is closed; create it again")


class ChannelFailedError(ChannelError):
    """A background task of the channel died; the cause is chained."""

    def __init__(self, channel_id: str, cause: BaseException) -> None:
        super().__init__(
            channel_id,
            f"channel {channel_id!r} stopped working ({type(cause).__name__}: {one_line(cause)}); "
            "close it and create it again",
        )


class ChannelFullError(ChannelError):
    """Unacknowledged and queued data of the channel reached its bound; nothing was stored or sent.

    Args:
        channel_id: The channel concerned.
        messages: Requests that are not final yet.
        octets: Payload bytes of those requests.
    """

    def __init__(self, channel_id: str, messages: int, octets: int) -> None:
        self.messages = messages
        self.octets = octets
        super().__init__(
            channel_id,
            f"channel {channel_id!r} is full ({messages} messages, {octets} bytes not yet "
            "acknowledged); wait for deliveries or raise max_outgoing_messages/max_outgoing_bytes",
        )


class SendOutcomeUnknownError(ChannelError):
    """The channel ended while the store could not say whether a message was stored.

    It may be sent after the next opening. Had it an idempotency key, sending it again with that key is harmless.

    Args:
        channel_id: The channel concerned.
    """

    def __init__(self, channel_id: str) -> None:
        super().__init__(
            channel_id,
            f"channel {channel_id!r} ended before its store could say whether the message was stored; it may be "
            "sent: look at the channel's events before you send it again, or repeat its idempotency key",
        )


class LocalProtocolError(ReliableChannelError):
    """The caller asked for something that the protocol does not allow; nothing was changed."""


class EmptyPayloadError(LocalProtocolError):
    """An empty payload cannot be sent: on the wire it would be a sync message."""

    def __init__(self) -> None:
        super().__init__("empty payload; send at least one byte")


class IdempotencyConflictError(LocalProtocolError):
    """An idempotency key was used again for another payload, or for the same as an ephemeral one.

    Args:
        channel_id: The channel concerned.
        key: The key.
    """

    def __init__(self, channel_id: str, key: str) -> None:
        self.channel_id = channel_id
        self.key = key
        super().__init__(
            f"idempotency key {key!r} was used on channel {channel_id!r} for another message; "
            "repeat that one unchanged, or take a new key"
        )


class InvalidPayloadError(LocalProtocolError, TypeError):
    """A payload is not bytes."""

    def __init__(self, given: object) -> None:
        super().__init__(f"payload must be bytes, not {type(given).__name__}")


class MessageTooLargeError(LocalProtocolError):
    """A payload, or a message made from it, is above a limit.

    Args:
        size: Size in bytes of what was given.
        limit: Largest size in bytes that is possible here.
        what: What was measured.
    """

    def __init__(self, size: int, limit: int, what: str = "payload") -> None:
        self.size = size
        self.limit = limit
        super().__init__(
            f"{what} of {size} bytes is above the limit of {limit} bytes; send less at once"
        )


class RemoteProtocolError(ReliableChannelError):
    """Bytes from the network break the protocol. Counted by reason inside, never raised to a user."""


class DecodeError(RemoteProtocolError, ValueError):
    """Bytes are not an encoded message of the expected type.

    Args:
        what: The type that was expected, for example ``SdsMessage``.
        detail: What is wrong.
    """

    def __init__(self, what: str, detail: str) -> None:
        self.what = what
        self.detail = detail
        super().__init__(f"not a valid {what}: {detail}")


class InvalidSegmentError(RemoteProtocolError):
    """A decoded segment contradicts itself.

    Args:
        reason: A short snake_case word; it is also the name of the drop counter.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"invalid segment: {reason}")


class UnrecoverableError(RemoteProtocolError):
    """More data shards are lost than parity shards are there.

    Args:
        held: Data and parity shards that are there.
        needed: How many would be enough, whichever they are.
    """

    def __init__(self, held: int, needed: int) -> None:
        self.held = held
        self.needed = needed
        super().__init__(f"too few shards to rebuild from: {held} of the {needed} that it takes")


class EncryptionError(ReliableChannelError):
    """The encryption hook failed."""


class EncryptError(EncryptionError):
    """The encryption hook failed, or answered nonsense, for an outgoing message."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"encryption failed: {reason}")


class DecryptError(EncryptionError):
    """An incoming message does not decrypt: another key, or altered bytes."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"decryption failed: {reason}")


class NodeError(ReliableChannelError):
    """The messaging node could not do what was asked."""


class NodeClosedError(NodeError):
    """The node was closed."""

    def __init__(self) -> None:
        super().__init__("the node is closed; create another")


class NodeUnavailableError(NodeError):
    """The node cannot be reached or is not ready; the same call may work later."""


class PublishRejectedError(NodeError):
    """The node refused a message for good; sending the same again would be refused again."""


class StoreError(ReliableChannelError):
    """The persistence backend could not do what was asked."""


class StoreUnavailableError(StoreError):
    """The store failed (disk full, locked, server gone); nothing of the operation was applied."""


class StoreOutcomeUnknownError(StoreUnavailableError):
    """The store failed while it was committing: all of the operation was applied, or nothing.

    Args:
        reason: What failed.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}; it may have been applied all the same")


class StoreClosedError(StoreError):
    """The store was closed."""

    def __init__(self) -> None:
        super().__init__("the store is closed; open it again")


class LeaseLostError(StoreError):
    """Another process took the channel while its database could not be reached; nothing was applied.

    Args:
        channel_id: The channel concerned.
    """

    def __init__(self, channel_id: str) -> None:
        self.channel_id = channel_id
        super().__init__(
            f"channel {channel_id!r} was taken by another process while its store could not be "
            "reached; close it here"
        )


class BudgetInUseError(StoreError):
    """Another node counts in this epoch budget: two that do not know of each other would spend it twice.

    Args:
        scope: The budget concerned.
    """

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__(
            f"epoch budget {scope!r} is in use on this store, by another process or node; close "
            "that one, or give each a database, or a PostgreSQL schema, of its own"
        )


class EventsExpiredError(StoreError):
    """Events were asked for that retention has removed.

    Args:
        after: The sequence asked for.
        oldest: The oldest sequence still there.
    """

    def __init__(self, after: int, oldest: int) -> None:
        self.after = after
        self.oldest = oldest
        super().__init__(
            f"events after {after} are no longer retained; the oldest is {oldest}: "
            f"read from {oldest - 1} and treat the gap as lost"
        )


class CursorAheadError(StoreError):
    """Events were asked for that follow one that the channel has not shown: the cursor is not of this log.

    The channel was purged and made again, its database is a backup older than the cursor, or it keeps nothing.

    Args:
        after: The sequence asked for.
        last: The last sequence shown; 0 when there was none.
    """

    def __init__(self, after: int, last: int) -> None:
        self.after = after
        self.last = last
        given = str(after) if after.bit_length() <= 64 else "a number of more than 64 bits"
        super().__init__(
            f"events after {given} were asked for, but the log ends at {last}: it is not the log that the "
            "cursor was kept for; read from 0, or go on from channel.last_event_sequence"
        )


class RequestError(ReliableChannelError):
    """Something about one send request.

    Args:
        request_id: The request concerned.
        text: The whole message.
    """

    def __init__(self, request_id: str, text: str) -> None:
        self.request_id = request_id
        super().__init__(text)


class RequestNotFoundError(RequestError):
    """The channel does not know the request: never made here, or final and forgotten."""

    def __init__(self, request_id: str) -> None:
        super().__init__(request_id, f"no request {request_id!r} on this channel")


class RequestFailedError(RequestError):
    """A request ended in a send-error or a delivery-error event.

    Args:
        request_id: The request concerned.
        event_name: The specification's name of the final event.
        error: Its human-readable description.
    """

    def __init__(self, request_id: str, event_name: str, error: str) -> None:
        self.event_name = event_name
        self.error = error
        super().__init__(request_id, f"request {request_id} ended in {event_name}: {error}")


class SlowConsumerError(ReliableChannelError):
    """An event stream overflowed: it was not read as fast as events came.

    Nothing is lost: the events are in the store; open a new stream with ``after=last_sequence``.

    Args:
        last_sequence: Sequence of the last event that the stream gave out.
        pending: Events that were waiting when it overflowed.
    """

    def __init__(self, last_sequence: int, pending: int) -> None:
        self.last_sequence = last_sequence
        self.pending = pending
        super().__init__(
            f"event stream not read fast enough ({pending} events waiting); "
            f"resume with events(after={last_sequence})"
        )
