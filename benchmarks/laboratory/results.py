"""What one trial gives, as a row: its columns, their types in Arrow and Parquet, and the digest of the row.

Counts are whole numbers and times whole milliseconds, so that sums and digests are exact whoever computes them, and
wherever. It must not compute what rows mean together; that is ``measures``.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Final

import pyarrow as pa

STORE: Final = -1
REPAIR: Final = -2
OTHER: Final = -3
"""What brought a delivery, where no transmission of its sender did: the store's answer, somebody's repair (SDS-R), or
something else, such as the end of a wait for what came before it."""


LARGEST: Final = (1 << 31) - 1
"""Value in a list of a row: of milliseconds, 24 days."""


@dataclass(slots=True, kw_only=True)
class Trial:
    """What became of one channel.

    Counts are over all participants, from the end of the warm-up on, unless they say otherwise.
    """

    scenario: str
    """Key of the cell."""
    channel: int
    """Number of the channel in its cell, from 0."""
    messages: int = 0
    """Payloads that ``send`` took, all but ephemeral ones."""
    owed: int = 0
    """Deliveries of these that there should be: one at each other participant that had joined when it was sent."""
    delivered: int = 0
    """Of the owed, how many were made."""
    complete: int = 0
    """Messages that everybody got to whom they are owed."""
    late: int = 0
    """Deliveries marked as later than what depends on them."""
    duplicated: int = 0
    """Deliveries of what the same participant was given before; must be 0, also with churn. Ephemeral messages do not
    count, as nowhere here: they may come again after a restart."""
    disordered: int = 0
    """Deliveries before what they depend on. 0 wherever everybody was heard before the first of the messages (a
    warm-up, and nobody joins later) and nothing is reported lost; a new channel, and what is lost, leave gaps in the
    order."""
    lost: int = 0
    """Segments that participants reported lost (`MessageLostEvent`): one for each data segment of a message at each of
    them, those of messages of the warm-up too."""
    confirmed: int = 0
    """Requests that ended in `MessageDeliveredEvent`: somebody acknowledged all of it."""
    send_errors: int = 0
    """Requests that ended in `MessageSendErrorEvent`."""
    delivery_errors: int = 0
    """Requests that ended in `MessageDeliveryErrorEvent`."""
    put_off: int = 0
    """Times that ``send`` had no room and was made again later; the warm-up makes none again."""
    segments: int = 0
    """Data segments of the messages."""
    parity: int = 0
    """Transmissions of parity segments of the messages."""
    retransmissions: int = 0
    """Transmissions of data segments of the messages after their first, by whatever start of their sender."""
    repairs: int = 0
    """Transmissions that answer a repair request (SDS-R)."""
    syncs: int = 0
    """Transmissions of sync messages."""
    transmissions: int = 0
    """All that reached the network: ``tries``, ``parity``, ``repairs``, ``syncs`` and ``others``."""
    others: int = 0
    """Transmissions of none of these: segments of ephemeral messages, and what the warm-up left to send again."""
    sent_bytes: int = 0
    """Bytes of all transmissions, as the machines made them."""
    payload_bytes: int = 0
    """Bytes of the payloads."""
    copies: int = 0
    """Copies of transmissions that arrived at a participant that was up, those of the warm-up included."""
    fetches: int = 0
    """Queries to the store, those of the warm-up included, but those with which a restart begins."""
    latency_ms: list[int] = field(default_factory=list)
    """From ``send`` to each delivery, in the order of the deliveries."""
    round: list[int] = field(default_factory=list)
    """What brought each of these: `STORE`, `REPAIR`, `OTHER`, or the arrival of transmission 0, 1, 2… of a data or
    parity segment by its sender. What had to wait has the round of what ended the wait, be it another message's."""
    confirm_ms: list[int] = field(default_factory=list)
    """From ``send`` to `MessageDeliveredEvent`, of the confirmed."""
    queue_ms: list[int] = field(default_factory=list)
    """From ``send`` to `MessageSentEvent`, of what was sent: the wait for the epoch budget."""
    tries: list[int] = field(default_factory=list)
    """Transmissions of each message's data segments by its sender, in the order of sending."""
    receivers: list[int] = field(default_factory=list)
    """How many of those to whom it is owed got each message, in the order of sending."""
    virtual_ms: int = 0
    """From the start, before the warm-up, until nothing was left to do, or the scenario's longest time for that was
    over."""
    problem: str = ""
    """Why the trial could not be played to its end; all counts are 0 then."""
    digest_high: int = 0
    digest_low: int = 0
    """128-bit hash of everything above, as two signed numbers."""
    cpu_us: int = 0
    """CPU time that it took; not in the digest."""

    def check(self) -> None:
        """Raise where a time is longer than its column holds.

        Raises:
            OverflowError: Says which.
        """
        for name in LISTS:
            longest = max(getattr(self, name), default=0)
            if longest > LARGEST:
                text = f"{name}: {longest} is more than a row holds, {LARGEST}"
                raise OverflowError(text)

    def seal(self) -> Trial:
        """Fill in the digest and return the trial."""
        values = tuple(getattr(self, name) for name in DIGESTED)
        digest = blake2b(repr(values).encode(), digest_size=16).digest()
        self.digest_high = int.from_bytes(digest[:8], "big", signed=True)
        self.digest_low = int.from_bytes(digest[8:], "big", signed=True)
        return self


LISTS: Final = {
    "latency_ms": pa.list_(pa.int32()),
    "round": pa.list_(pa.int16()),
    "confirm_ms": pa.list_(pa.int32()),
    "queue_ms": pa.list_(pa.int32()),
    "tries": pa.list_(pa.int32()),
    "receivers": pa.list_(pa.int32()),
}
TEXTS: Final = ("scenario", "problem")

SCHEMA: Final = pa.schema(
    [
        pa.field(
            item.name,
            LISTS.get(item.name) or (pa.string() if item.name in TEXTS else pa.int64()),
            nullable=False,
        )
        for item in fields(Trial)
    ]
)
"""Of the rows: lists of int32, texts, and int64 for all the rest."""

DIGESTED: Final = tuple(
    item.name for item in fields(Trial) if item.name not in ("digest_high", "digest_low", "cpu_us")
)


def batch_of(trials: Iterable[Trial]) -> pa.RecordBatch:
    """Return rows as Arrow has them."""
    rows = list(trials)
    columns = [
        pa.array([getattr(row, item.name) for row in rows], type=item.type) for item in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def digest_of(parts: Iterable[tuple[str, int, int, int]]) -> str:
    """Return the digest of all results, whatever their order.

    Args:
        parts: Of each cell its key, the number of its rows, and the exclusive or of their digests, high and low.
    """
    return blake2b(repr(sorted(parts)).encode(), digest_size=16).hexdigest()
