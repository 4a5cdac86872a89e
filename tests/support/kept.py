"""What tests of stores have in common."""

from __future__ import annotations

from typing import Final

from reliable_channel.records import LostRecord

A_MOMENT: Final = 0.05
"""For the worker thread to run into a lock, seconds: too little weakens a test, but fails none."""


def lost(message_id: str) -> LostRecord:
    """Return a small row under this id."""
    return LostRecord(message_id=message_id, lost_ns=1)
