"""Fuzz target: the decoders give a value or DecodeError, and encoding what they gave loses nothing."""

from __future__ import annotations

from typing import Final

from reliable_channel.core.wire import HistoryEntry, SdsMessage, SegmentMessage, WakuMessage
from reliable_channel.errors import DecodeError
from tests.fuzz.harness import main

DECODERS: Final = (SdsMessage, SegmentMessage, WakuMessage, HistoryEntry)


def one_input(data: bytes) -> None:
    """Decode the bytes as each kind of message."""
    for decoder in DECODERS:
        try:
            value = decoder.decode(data)
        except DecodeError:
            continue
        encoded = value.encode()
        assert decoder.decode(encoded) == value
        assert len(encoded) <= len(data) + 16, "encoding must not blow up what was received"


if __name__ == "__main__":
    main("decode")
