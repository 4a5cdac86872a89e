"""Names for the strings and numbers that travel through every layer.

They are plain ``str`` and ``int`` at run time; nothing here computes.

Spec: RELIABLE-CHANNEL-API, Type definitions; LIP-109 (SDS), Message.
"""

from __future__ import annotations

from typing import Final, TypeAlias

ChannelId: TypeAlias = str
"""Identifies the reliable session; 1-255 bytes of UTF-8 without control characters."""

ParticipantId: TypeAlias = str
"""A ``sender_id``; 1-255 bytes of UTF-8 without control characters. Not authenticated."""

MessageId: TypeAlias = str
"""Identifies one SDS message: of ours 64 lower-case hex digits, of others up to 256 bytes."""

RequestId: TypeAlias = str
"""Identifies one ``send``; its segments are ``<request>:1`` … ``<request>:N``."""

Nanoseconds: TypeAlias = int
"""Unix time, or a duration, in nanoseconds."""

MS: Final = 1_000_000
"""Nanoseconds in a millisecond."""

SECOND: Final = 1_000_000_000
"""Nanoseconds in a second."""
