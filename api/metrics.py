"""What the service counts, as Prometheus text.

Numbers come from three places: the commits of the store (`ObservedStore`), which carry every durable event and when
its request was made; ``channel.status()``; and the requests and streams of the service. Nothing is registered with
prometheus-client's global registry. It must not hold payloads, nor label anything with what strangers choose.

Counters of a channel never go back while the process lives, also when the channel is closed and opened again. They
are kept for as many channels as the service may have; a purged channel's vanish.

Spec: Prometheus, Metric and label naming; docs/operations.md has the table.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from api.readers import OpenStreams
from reliable_channel import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageQueuedEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    MessagingNode,
    ReliableChannel,
    SenderIdConflictEvent,
)
from reliable_channel.errors import StoreError, one_line
from reliable_channel.records import Changes, EventRecord, RequestRecord
from reliable_channel.types import SECOND, ChannelId

PREFIX: Final = "reliable_channel_"

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text that `Metrics.render` returns: names without quotes, no escaping."""


class Name(NamedTuple):
    """A metric's name without prefix (and without ``_total``), and what it says."""

    name: str
    help: str


EVENT_TOTALS: Final[dict[str, Name]] = {
    MessageReceivedEvent.name: Name("messages_received", "Messages received whole."),
    MessageSentEvent.name: Name("messages_sent", "Messages handed to the network whole."),
    MessageDeliveredEvent.name: Name("messages_delivered", "Messages that somebody has whole."),
    MessageSendErrorEvent.name: Name("messages_send_error", "Messages that could not be sent."),
    MessageDeliveryErrorEvent.name: Name(
        "messages_delivery_error", "Messages sent and never acknowledged."
    ),
    MessageQueuedEvent.name: Name("messages_queued", "Messages that waited for the rate limit."),
    MessageLostEvent.name: Name("messages_lost", "Others' messages that were given up."),
    SenderIdConflictEvent.name: Name(
        "sender_id_conflicts", "Times that somebody else used our sender id."
    ),
}
"""Durable events by name; one metric each, labelled with the channel."""

STATUS_TOTALS: Final[dict[str, Name]] = {
    "requests": Name("messages_accepted", "Messages accepted for sending."),
    "transmissions": Name(
        "transmissions", "Everything given to the node: segments, repeats, parity, syncs, repairs."
    ),
    "segments_sent": Name("segments_sent", "Data segments given to the node for the first time."),
    "retransmissions": Name("retransmissions", "Data segments given to the node again."),
    "parity_transmissions": Name("parity_segments_sent", "Parity segments given to the node."),
    "syncs_sent": Name("syncs_sent", "Sync messages given to the node."),
    "repairs_answered": Name("repairs_answered", "Others' messages sent again for them."),
    "publish_failures": Name("publish_failures", "Transmissions that the node did not take."),
    "acknowledgements": Name("acknowledgements", "Acknowledgements of segments that were news."),
    "segments_received": Name("segments_received", "Data segments received."),
    "parity_received": Name("parity_segments_received", "Parity segments received."),
    "parity_recoveries": Name("parity_recoveries", "Messages completed by parity."),
    "duplicates": Name("duplicates", "Messages received again."),
    "syncs_received": Name("syncs_received", "Sync messages received."),
    "store_queries": Name("store_queries", "Questions for missing messages to the node's store."),
}
"""Counters of ``channel.status()``, and ``segments_sent``, which is the rest of the transmissions."""

STATUS_GAUGES: Final[dict[str, Name]] = {
    "open_requests": Name("open_requests", "Own messages that have not ended."),
    "open_bytes": Name("open_bytes", "Payload bytes of those."),
    "waiting": Name("waiting_transmissions", "Transmissions that wait for their turn."),
    "in_flight": Name("in_flight_transmissions", "Transmissions the node has not reported on."),
    "incomplete_payloads": Name("incomplete_messages", "Messages received in part."),
    "parked_messages": Name("parked_messages", "Messages that wait for what they depend on."),
    "missing_messages": Name("missing_messages", "Messages known to exist and not received."),
    "repair_requests": Name("repair_requests", "Missing messages that others are asked for."),
    "repair_answers": Name("repair_answers", "Others' requests that are to be answered."),
    "full_messages": Name("repair_buffer_messages", "Messages kept whole to answer others."),
    "owed_acknowledgements": Name("owed_acknowledgements", "Acknowledgements still to be sent."),
    "participants": Name("participants", "Other participants heard lately."),
    "known_messages": Name("log_messages", "Message ids in the log."),
}
"""Sizes of ``channel.status()``, labelled with the channel."""

DROPPED: Final = Name("dropped", "What the network sent and was refused, by reason.")

NOT_SEGMENTS: Final = ("retransmissions", "parity_transmissions", "syncs_sent", "repairs_answered")
"""Counters of transmissions that are no first transmission of a data segment."""

LATENCY_BUCKETS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600, 3600
)  # fmt: skip
"""Seconds; an epoch is ten minutes."""

COMMIT_BUCKETS: Final = (
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5
)  # fmt: skip
"""Seconds."""

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods with a label of their own; a client may make up others."""


class MeasuredSettings(Protocol):
    """The settings that metrics need."""

    @property
    def max_channels(self) -> int:
        """Channels that may be open."""


class MeasuredService(Protocol):
    """What metrics need of the service."""

    @property
    def settings(self) -> MeasuredSettings:
        """The settings that metrics need."""

    @property
    def channels(self) -> Mapping[str, ReliableChannel]:
        """The open channels."""

    def find(self, channel_id: ChannelId) -> ReliableChannel | None:
        """Return an open channel, or None."""


@dataclass(slots=True)
class StoreHealth:
    """How the store's last commits went."""

    commits: int = 0
    failures: int = 0
    last_commit_ns: int = 0
    """Unix time of the last commit that worked; 0 before the first."""
    failing_since_ns: int = 0
    """Unix time of the first of the failures since then; 0 when the last commit worked."""
    error: str = ""
    """What the last failure said; empty when the last commit worked."""


@dataclass(slots=True)
class Totals:
    """What a channel has counted since the process began.

    Attributes:
        closed: Counters and drops of handles that are closed, by name.
        events: Durable events by name.
        channel: The open handle.
        folded: The last handle whose counters are in ``closed``.
    """

    closed: Counter[str] = field(default_factory=Counter)
    closed_dropped: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    channel: ReliableChannel | None = None
    folded: weakref.ref[ReliableChannel] | None = None

    def counters(self) -> tuple[Counter[str], Counter[str]]:
        """Return counters and drops, those of the open handle included."""
        counters, dropped = Counter(self.closed), Counter(self.closed_dropped)
        if self.channel is not None:
            status = self.channel.status()
            counters.update(status.counters)
            dropped.update(status.dropped)
            others = sum(status.counters.get(name, 0) for name in NOT_SEGMENTS)
            counters["segments_sent"] += max(0, status.counters.get("transmissions", 0) - others)
        return counters, dropped

    def fold(self) -> None:
        """Keep what the open handle has counted; it counts no more."""
        if self.channel is not None:
            self.closed, self.closed_dropped = self.counters()
            self.folded = weakref.ref(self.channel)
            self.channel = None


class Metrics:
    """Counts, and renders what it and others have counted; a ``StoreObserver``.

    Args:
        service: Its channels are shown.
    """

    def __init__(self, service: MeasuredService) -> None:
        self._service = service
        self._totals: dict[ChannelId, Totals] = {}
        self.store = StoreHealth()
        """How the last commits went."""
        self.streams: OpenStreams | None = None
        """All event streams and sockets, where there are some."""
        self.node: MessagingNode | None = None
        """Whose epoch budget is shown."""
        self._commit_seconds = _histogram(
            "store_commit_seconds", "Time of a transaction of the store.", COMMIT_BUCKETS
        )
        self._sent_seconds = _histogram(
            "message_sent_seconds", "Time from an accepted send to sent.", LATENCY_BUCKETS
        )
        self._delivered_seconds = _histogram(
            "message_delivered_seconds", "Time from an accepted send to delivered.", LATENCY_BUCKETS
        )
        self._requests = PrometheusCounter(
            f"{PREFIX}http_requests",
            "Requests answered.",
            ("method", "route", "status"),
            registry=None,
        )
        self._answers: dict[tuple[str, str, str], PrometheusCounter] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    # -- what is told -------------------------------------------------------------------------------

    def committed(self, channel_id: ChannelId, changes: Changes, seconds: float) -> None:
        """Count what a commit has made durable."""
        self._commit_seconds.observe(seconds)
        self.store.commits += 1
        self.store.last_commit_ns = time.time_ns()
        self.store.failing_since_ns, self.store.error = 0, ""
        if not channel_id:
            return  # the node's own ledger
        totals = self._totals_of(channel_id)
        if totals.channel is None:
            self._adopt(channel_id, totals)
        for row in changes.values():
            if isinstance(row, EventRecord):
                totals.events[row.name] += 1
                self._observe_latency(row, changes)

    def commit_failed(self, channel_id: ChannelId, error: StoreError, seconds: float) -> None:
        """Take note that nothing was stored."""
        self._commit_seconds.observe(seconds)
        self.store.failures += 1
        self.store.failing_since_ns = self.store.failing_since_ns or time.time_ns()
        self.store.error = one_line(error)

    def released(self, channel_id: ChannelId) -> None:
        """Keep what a closing channel has counted."""
        totals = self._totals.get(channel_id)
        if totals is None:
            return
        if totals.channel is None:
            self._adopt(channel_id, totals)
        totals.fold()

    def purged(self, channel_id: ChannelId) -> None:
        """Forget what a channel has counted."""
        self._totals.pop(channel_id, None)

    def request_answered(self, method: str, route: str, status: int) -> None:
        """Count an answer.

        Args:
            method: Of the request.
            route: The template of its path, never the path itself; empty where no route matched.
            status: Of the response.
        """
        key = (method if method in METHODS else "other", route or "none", str(status))
        answers = self._answers.get(key)
        if answers is None:
            answers = self._answers[key] = self._requests.labels(*key)
        answers.inc()

    def _observe_latency(self, row: EventRecord, changes: Changes) -> None:
        """Observe how long a request took; its row is written with the event that ends it."""
        if row.name == MessageSentEvent.name:
            histogram = self._sent_seconds
        elif row.name == MessageDeliveredEvent.name:
            histogram = self._delivered_seconds
        else:
            return
        request = changes.get((RequestRecord, (row.request_id or "",)))
        if isinstance(request, RequestRecord):
            histogram.observe(max(0, row.time_ns - request.created_ns) / SECOND)

    # -- channels -----------------------------------------------------------------------------------

    def _totals_of(self, channel_id: ChannelId) -> Totals:
        totals = self._totals.get(channel_id)
        if totals is None:
            self._make_room()
            totals = self._totals[channel_id] = Totals()
        return totals

    def _make_room(self) -> None:
        """Forget the channel that is known longest of those that are closed, where there are too many."""
        if len(self._totals) >= self._service.settings.max_channels:
            closed = (name for name, totals in self._totals.items() if totals.channel is None)
            oldest = next(closed, None)
            if oldest is not None:
                del self._totals[oldest]

    def _adopt(self, channel_id: ChannelId, totals: Totals) -> None:
        """Take the open handle of a channel, unless its counters were taken already."""
        channel = self._service.find(channel_id)
        if totals.folded is None or totals.folded() is not channel:
            totals.channel = channel

    def _open_channels(self) -> Iterator[tuple[ChannelId, ReliableChannel]]:
        """Bring the handles up to date; give those that are open."""
        for channel_id, channel in self._service.channels.items():
            totals = self._totals_of(channel_id)
            if totals.channel is not channel:
                totals.fold()
                self._adopt(channel_id, totals)
            if totals.channel is channel:
                yield channel_id, channel

    # -- what is shown ------------------------------------------------------------------------------

    def render(self) -> tuple[bytes, str]:
        """Return everything as text, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE

    def collect(self) -> Iterator[Metric]:
        """Give every metric; called by prometheus-client."""
        open_channels = dict(self._open_channels())
        yield GaugeMetricFamily(f"{PREFIX}channels", "Open channels.", value=len(open_channels))
        yield from self._channel_gauges(open_channels)
        yield from self._channel_totals()
        yield from self._node_gauges()
        yield from self._stream_metrics()
        yield CounterMetricFamily(
            f"{PREFIX}store_commit_failures",
            "Transactions of the store that failed.",
            value=self.store.failures,
        )
        for metric in (
            self._commit_seconds,
            self._sent_seconds,
            self._delivered_seconds,
            self._requests,
        ):
            yield from _without_created(metric.collect())

    def _channel_gauges(self, channels: Mapping[ChannelId, ReliableChannel]) -> Iterator[Metric]:
        statuses = {channel_id: channel.status() for channel_id, channel in channels.items()}
        for attribute, (name, text) in STATUS_GAUGES.items():
            gauge = GaugeMetricFamily(PREFIX + name, text, labels=["channel"])
            for channel_id, status in statuses.items():
                gauge.add_metric([channel_id], getattr(status, attribute))
            yield gauge

    def _channel_totals(self) -> Iterator[Metric]:
        counted = {
            channel_id: (*totals.counters(), totals.events)
            for channel_id, totals in self._totals.items()
        }
        for key, (name, text) in STATUS_TOTALS.items():
            total = CounterMetricFamily(PREFIX + name, text, labels=["channel"])
            for channel_id, (counters, _, _) in counted.items():
                total.add_metric([channel_id], counters[key])
            yield total
        for key, (name, text) in EVENT_TOTALS.items():
            total = CounterMetricFamily(PREFIX + name, text, labels=["channel"])
            for channel_id, (_, _, events) in counted.items():
                total.add_metric([channel_id], events[key])
            yield total
        drops = CounterMetricFamily(
            PREFIX + DROPPED.name, DROPPED.help, labels=["channel", "reason"]
        )
        for channel_id, (_, dropped, _) in counted.items():
            for reason, count in sorted(dropped.items()):
                drops.add_metric([channel_id, reason], count)
        yield drops

    def _node_gauges(self) -> Iterator[Metric]:
        if self.node is None or not self.node.epoch_budget.enabled:
            return
        budget, limits = self.node.epoch_budget, self.node.rate_limit_config
        yield GaugeMetricFamily(
            f"{PREFIX}epoch_messages_left",
            "Transmissions left in this epoch.",
            value=budget.remaining(self.node.clock.now_ns()),
        )
        yield GaugeMetricFamily(
            f"{PREFIX}epoch_messages_limit",
            "Transmissions that an epoch allows.",
            value=limits.messages_per_epoch,
        )

    def _stream_metrics(self) -> Iterator[Metric]:
        if self.streams is None:
            return
        count = GaugeMetricFamily(
            f"{PREFIX}open_streams", "Event streams and sockets that are open.", labels=["kind"]
        )
        for kind, number in sorted(self.streams.open.items()):
            count.add_metric([kind], number)
        yield count
        ended = CounterMetricFamily(
            f"{PREFIX}streams_ended",
            "Event streams and sockets that have ended, by reason.",
            labels=["kind", "reason"],
        )
        for (kind, reason), number in sorted(self.streams.ended.items()):
            ended.add_metric([kind, reason.removeprefix("stream:")], number)
        yield ended


def _histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(PREFIX + name, text, buckets=buckets, registry=None)


def _without_created(metrics: Iterable[Metric]) -> Iterator[Metric]:
    """Leave out when each series began: one sample more for each, and nobody asks."""
    for metric in metrics:
        metric.samples = [item for item in metric.samples if not item.name.endswith("_created")]
        yield metric
