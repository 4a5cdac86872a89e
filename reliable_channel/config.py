"""Settings of a channel: frozen, validated at once, all problems in one error.

Field names and defaults of the specification in snake_case; the rest are this implementation's bounds. Each field
says its unit. Nothing here reads the environment.

Spec: RELIABLE-CHANNEL-API, Type definitions (SegmentationConfig, SdsConfig, RateLimitConfig).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final, Literal

from reliable_channel.errors import ConfigurationError
from reliable_channel.store import ChannelStore

REPAIR_MARGIN_MS: Final = 30_000
"""What the dependency timeout leaves a repair beyond twice ``repair_t_max_ms``, milliseconds."""

Bounds = dict[str, tuple[float, float]]

SEGMENTATION_BOUNDS: Final[Bounds] = {
    "segment_size_bytes": (64, 1 << 20),
    "parity_rate": (0.0, 1.0),
    "max_total_segments": (1, 256),
    "max_incomplete_payloads": (1, 1 << 20),
    "max_incomplete_payloads_per_sender": (1, 1 << 20),
    "max_incomplete_bytes": (1 << 16, 1 << 40),
    "max_incomplete_bytes_per_sender": (1 << 16, 1 << 40),
    "incomplete_timeout_ms": (1, 1 << 40),
    "max_completed_payloads": (1, 1 << 24),
}
"""Smallest and largest accepted value of each numeric field."""

SDS_BOUNDS: Final[Bounds] = {
    "acknowledgement_timeout_ms": (1, 1 << 40),
    "max_retransmissions": (0, 1000),
    "causal_history_size": (1, 64),
    "bloom_capacity": (0, 1 << 20),
    "bloom_error_rate": (1e-9, 0.5),
    "dependency_timeout_ms": (1, 1 << 40),
    "sync_interval_ms": (1, 1 << 40),
    "max_sync_interval_ms": (1, 1 << 40),
    "retransmission_backoff": (1.0, 16.0),
    "possible_ack_threshold": (1, 1000),
    "repair_t_min_ms": (1, 1 << 40),
    "repair_t_max_ms": (1, 1 << 40),
    "num_response_groups": (1, 1 << 20),
    "max_full_messages": (0, 1 << 20),
    "max_full_bytes": (0, 1 << 40),
    "max_repair_answers": (1, 1 << 20),
    "max_outgoing_messages": (1, 1 << 20),
    "max_outgoing_bytes": (1, 1 << 40),
    "max_in_flight": (1, 1024),
    "dispatch_timeout_ms": (1, 1 << 40),
    "max_known_ids": (64, 1 << 24),
    "max_lost_ids": (1, 1 << 20),
    "max_parked_messages": (1, 1 << 20),
    "max_parked_messages_per_sender": (1, 1 << 20),
    "max_parked_bytes": (1 << 16, 1 << 40),
    "max_parked_bytes_per_sender": (1 << 16, 1 << 40),
    "max_missing_ids": (1, 1 << 20),
    "max_missing_ids_per_sender": (1, 1 << 20),
    "max_participants": (1, 1 << 20),
    "max_clock_lead_ms": (1_000, 1 << 40),
    "max_history_entries": (1, 1 << 16),
    "max_finished_requests": (1, 1 << 20),
}
"""Smallest and largest accepted value of each numeric field."""

RATE_LIMIT_BOUNDS: Final[Bounds] = {
    "epoch_period_sec": (1, 1 << 31),
    "messages_per_epoch": (1, 1 << 31),
}
"""Smallest and largest accepted value of each numeric field."""


def check_bounds(config: object, bounds: Bounds) -> list[str]:
    """Return one sentence for each numeric field that is no number or outside its bounds.

    A field that is None by default may be None.
    """
    problems = []
    for item in fields(config):  # type: ignore[arg-type]
        if item.name not in bounds:
            continue
        value = getattr(config, item.name)
        if value is None and item.default is None:
            continue
        low, high = bounds[item.name]
        numeric = (int, float) if isinstance(low, float) else int
        if isinstance(value, bool) or not isinstance(value, numeric):
            kind = "a number" if isinstance(low, float) else "a whole number"
            problems.append(f"{item.name} must be {kind}, not {value!r}")
        elif not low <= value <= high:
            problems.append(f"{item.name} must be from {low} to {high}, not {value!r}")
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentationConfig:
    """How payloads are split, and how much of others' incomplete payloads is kept.

    Raises:
        ConfigurationError: A value is out of its bounds; all problems are named.

    Spec: RELIABLE-CHANNEL-API, SegmentationConfig; LIP-243.
    """

    enable_reed_solomon: bool = False
    """Add parity segments."""
    segment_size_bytes: int = 102_400
    """Largest chunk of payload in one segment, bytes; less where the message header needs the room."""
    parity_rate: float = 0.125
    """Parity segments for each data segment, used when ``enable_reed_solomon``."""
    parity_code: Literal["reedsolo", "leopard"] = "reedsolo"
    """Which Reed-Solomon code makes the parity."""
    max_total_segments: int = 256
    """Largest number of data and parity segments of one received payload."""
    accept_unsegmented: bool = True
    """Deliver content that is no segment message as a whole message."""
    max_incomplete_payloads: int = 256
    """Payloads being reassembled at once, in all."""
    max_incomplete_payloads_per_sender: int = 64
    """Payloads being reassembled at once, from one sender."""
    max_incomplete_bytes: int = 128 << 20
    """Bytes held for reassembly, in all."""
    max_incomplete_bytes_per_sender: int = 64 << 20
    """Bytes held for reassembly, from one sender."""
    incomplete_timeout_ms: int = 3_600_000
    """An incomplete payload that makes no progress for this long is dropped, milliseconds."""
    max_completed_payloads: int = 10_000
    """Rebuilt payloads that are remembered so that late segments deliver nothing twice."""
    persistence: ChannelStore | None = field(default=None, repr=False, compare=False)
    """Where partial reassembly is kept; None is memory. One store serves both configs."""

    def __post_init__(self) -> None:
        problems = check_bounds(self, SEGMENTATION_BOUNDS)
        if self.parity_code not in ("reedsolo", "leopard"):
            problems.append(
                f"parity_code must be 'reedsolo' or 'leopard', not {self.parity_code!r}"
            )
        if problems:
            raise ConfigurationError(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class SdsConfig:
    """Timers, sizes and bounds of Scalable Data Sync.

    Raises:
        ConfigurationError: A value is out of its bounds, or values contradict each other; all problems are named.

    Spec: RELIABLE-CHANNEL-API, SdsConfig; LIP-109.
    """

    persistence: ChannelStore | None = field(default=None, repr=False, compare=False)
    """Where the channel's state is kept; None is memory."""
    acknowledgement_timeout_ms: int = 5_000
    """Wait for an acknowledgement before a segment is sent again, milliseconds."""
    max_retransmissions: int = 5
    """Retransmissions of a segment before its request ends in a delivery error."""
    causal_history_size: int = 2
    """Message ids in the causal history of a content message."""
    bloom_capacity: int = 10_000
    """Ids that the bloom filter is made for; all participants must agree. 0 sends none."""
    bloom_error_rate: float = 0.001
    """Rate of false positives at capacity; all participants must agree."""
    message_id: Literal["salted", "content"] = "salted"
    """``salted``: every send is a new message. ``content``: equal segments are one message (the seed's wording)."""
    dependency_timeout_ms: int = 300_000
    """How long a complete message waits for what it depends on, milliseconds."""
    sync_interval_ms: int = 30_000
    """Silence before the first idle sync message, milliseconds."""
    max_sync_interval_ms: int = 600_000
    """Idle syncs double their distance up to this, milliseconds."""
    retransmission_backoff: float | None = None
    """Each retransmission waits this factor longer; None: 2 where the rate is limited, else 1."""
    possible_ack_threshold: int = 2
    """Messages of one participant whose bloom filter holds an id that make an acknowledgement."""
    enable_repair: bool = True
    """SDS-R: ask other participants for messages that the store does not have, and answer them."""
    repair_t_min_ms: int = 30_000
    """SDS-R: earliest repair request after a message was found missing, milliseconds; all participants must agree."""
    repair_t_max_ms: int = 120_000
    """SDS-R: latest first request, and latest answer to one, milliseconds; all participants must agree."""
    num_response_groups: int = 1
    """SDS-R: of so many groups one answers a request: one for every 128 participants; all must agree."""
    max_full_messages: int = 1_000
    """SDS-R: messages kept whole so that others' requests can be answered."""
    max_full_bytes: int = 64 << 20
    """SDS-R: bytes of those messages."""
    max_repair_answers: int = 128
    """SDS-R: answers planned or given within ``repair_t_max_ms``; more are refused."""
    max_outgoing_messages: int = 1_000
    """Requests that are not final before ``send`` waits."""
    max_outgoing_bytes: int = 64 << 20
    """Payload bytes of requests that are not final before ``send`` waits."""
    max_in_flight: int = 16
    """Messages given to the node whose outcome it has not reported yet."""
    dispatch_timeout_ms: int = 60_000
    """A segment that the node fails to take for this long ends its request in a send error, milliseconds."""
    max_known_ids: int = 100_000
    """Ids of delivered and own messages that are remembered; segments of incomplete payloads may be half as many."""
    max_lost_ids: int = 10_000
    """Ids declared lost that are remembered."""
    max_parked_messages: int = 2_000
    """Complete messages that wait for what they depend on, in all."""
    max_parked_messages_per_sender: int = 1_000
    """Those of one sender."""
    max_parked_bytes: int = 128 << 20
    """Bytes of complete messages that wait, in all."""
    max_parked_bytes_per_sender: int = 64 << 20
    """Bytes of those of one sender."""
    max_missing_ids: int = 4_096
    """Missing dependencies that are tracked, in all."""
    max_missing_ids_per_sender: int = 1_024
    """Missing dependencies that are tracked because one participant named them."""
    max_participants: int = 1_024
    """Participants that are remembered, in all and as those who have a message of ours."""
    max_clock_lead_ms: int = 300_000
    """A received Lamport time further ahead of our clock is taken as this far ahead, milliseconds."""
    max_history_entries: int = 1_024
    """Entries of a received causal history that are read; a longer one is refused."""
    max_finished_requests: int = 1_000
    """Final requests whose state can still be asked, and whose idempotency keys are remembered."""

    def __post_init__(self) -> None:
        problems = check_bounds(self, SDS_BOUNDS)
        if self.message_id not in ("salted", "content"):
            problems.append(f"message_id must be 'salted' or 'content', not {self.message_id!r}")
        if not problems:
            if self.repair_t_max_ms <= self.repair_t_min_ms:
                problems.append("repair_t_max_ms must be above repair_t_min_ms")
            shortest = 2 * self.repair_t_max_ms + REPAIR_MARGIN_MS
            if self.enable_repair and self.dependency_timeout_ms < shortest:
                problems.append(
                    f"dependency_timeout_ms must be at least {shortest} (twice repair_t_max_ms and "
                    f"{REPAIR_MARGIN_MS}) for repairs to arrive in time, not "
                    f"{self.dependency_timeout_ms}; raise it, lower repair_t_max_ms, "
                    "or set enable_repair=False"
                )
            if self.max_sync_interval_ms < self.sync_interval_ms:
                problems.append("max_sync_interval_ms must not be below sync_interval_ms")
            if self.max_known_ids < 2 * self.causal_history_size:
                problems.append("max_known_ids must be at least twice causal_history_size")
        if problems:
            raise ConfigurationError(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitConfig:
    """The RLN epoch budget.

    Raises:
        ConfigurationError: A value is out of its bounds; all problems are named.

    Spec: RELIABLE-CHANNEL-API, RateLimitConfig; 17/WAKU2-RLN-RELAY.
    Deviation: the specification's text says milliseconds beside a default of 600; it is seconds (17/WAKU2-RLN-RELAY).
    """

    enabled: bool = False
    """Enforce the limit; should be on where the network checks RLN proofs."""
    epoch_period_sec: int = 600
    """Length of an epoch, seconds; must match the network's."""
    messages_per_epoch: int = 100
    """Transmissions allowed in an epoch; must match the membership's."""

    def __post_init__(self) -> None:
        problems = check_bounds(self, RATE_LIMIT_BOUNDS)
        if problems:
            raise ConfigurationError(problems)
