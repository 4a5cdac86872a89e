"""What can go wrong in the service beyond the library's own errors; `api.problems` has their statuses.

Nothing here may know HTTP.
"""

from __future__ import annotations

from reliable_channel import ChannelError, ConfigurationError, ReliableChannelError


class ServiceError(ReliableChannelError):
    """The service as a whole cannot do what was asked."""


class ServiceStartingError(ServiceError):
    """The channels that were open before the restart are being opened again."""

    def __init__(self) -> None:
        super().__init__("the service is opening its channels again; try again in a moment")


class ServiceClosingError(ServiceError):
    """The service is shutting down."""

    def __init__(self) -> None:
        super().__init__("the service is shutting down; try again when it is back")


class TooManyChannelsError(ServiceError):
    """No more channels may be open in this service.

    Args:
        limit: Setting ``max_channels``.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"{limit} channels are open, and no more may be; close one, or raise max_channels"
        )


class ChannelNotFoundError(ChannelError):
    """No such channel is open in this service."""

    def __init__(self, channel_id: str) -> None:
        super().__init__(channel_id, f"no channel {channel_id!r} here; POST /v1/channels opens one")


class ChannelConflictError(ChannelError):
    """The channel is open with other settings.

    Args:
        channel_id: The channel concerned.
        differences: The settings that differ, as they are spelled on the wire.
    """

    def __init__(self, channel_id: str, differences: tuple[str, ...]) -> None:
        self.differences = differences
        super().__init__(
            channel_id,
            f"channel {channel_id!r} is open with other settings ({', '.join(differences)}); "
            "DELETE it first to open its kept state with these",
        )


class ChannelUnavailableError(ChannelError):
    """The channel belongs to this service, but could not be opened again; it is tried again by itself.

    Args:
        channel_id: The channel concerned.
        reason: Why it could not be opened the last time.
        retry_after_sec: Seconds until the next try.
    """

    def __init__(self, channel_id: str, reason: str, retry_after_sec: float) -> None:
        self.reason = reason
        self.retry_after_sec = retry_after_sec
        super().__init__(channel_id, f"channel {channel_id!r} could not be opened again: {reason}")


class UnknownKeyError(ConfigurationError):
    """No key has the name that a channel's encryption refers to.

    Args:
        key_ref: The name.
    """

    def __init__(self, key_ref: str) -> None:
        self.key_ref = key_ref
        super().__init__(f"no key is named {key_ref!r}; add it to the service's keys")
