"""What decides the course of a simulation, as data: who takes part, what goes wrong, when.

`Scenario` can be written as one line of JSON and as the command that plays it again. It must not play anything, and
knows no machine, network or journal.

Spec: RELIABLE-CHANNEL-API, Type definitions, for the settings in it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from math import inf
from typing import Any, Final, Literal, TypeAlias, get_args

from benchmarks.simulation.breakage import BREAKAGES
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.types import SECOND

START_NS: Final = 1_700_000_000 * SECOND
"""Virtual Unix time at which every simulation begins: some day in November 2023."""

SCALED_SDS: Final = SdsConfig(
    acknowledgement_timeout_ms=500,
    sync_interval_ms=3_000,
    max_sync_interval_ms=60_000,
    dependency_timeout_ms=60_000,
    repair_t_min_ms=3_000,
    repair_t_max_ms=12_000,
    bloom_capacity=500,
)
"""The default settings with times a tenth as long, and a filter for conversations of a few hundred messages.

The dependency timeout alone is longer: it has to leave room for repairs.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFaults:
    """How the messaging node of each participant behaves; without faults it transmits at once.

    Rates are from 0 to 1, times in milliseconds.
    """

    transmit_ms: float = 0.0
    """Between the machine's ``Publish`` and the network; a crash in between loses the message."""
    late_ms: float = 0.0
    """Up to this much longer, drawn evenly, a message that the node has taken is on its way to the network, also when
    the process dies meanwhile; it counts in the epochs of both ends."""
    report_ms: float = 10.0
    """Between the transmission and the report of its outcome."""
    report_jitter_ms: float = 0.0
    """Up to this much more, drawn evenly, so that reports overtake each other."""
    failure: float = 0.0
    """Rate of publications that fail; the same may work later."""
    false_failure: float = 0.0
    """Rate of publications that reach the network and are reported as failed all the same."""
    rejection: float = 0.0
    """Rate of publications that fail for good."""
    echo: float = 0.0
    """Rate of own messages that come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFaults:
    """How the network's store behaves; rates are from 0 to 1, times in milliseconds."""

    enabled: bool = True
    """Without it every query finds nothing."""
    loss: float = 0.0
    """Rate of transmissions that the store never gets."""
    lag_ms: float = 0.0
    """Between a transmission and the moment from which it can be looked up."""
    answer_ms: float = 100.0
    """Between a query and its answer."""
    failure: float = 0.0
    """Rate of queries that fail."""
    catch_up: bool = True
    """Whether a restarted participant asks for what it missed before it goes on."""


def check_range(
    part: str, values: object, names: str, low: float, high: float, *, above: bool = False
) -> None:
    """Refuse fields that are out of bounds.

    Args:
        part: What they belong to.
        values: Has them as attributes.
        names: Of the fields, with spaces between them.
        low: Smallest value.
        high: Largest value.
        above: The smallest value itself is refused.

    Raises:
        ValueError: One is, or is no number.
    """
    for name in names.split():
        value = getattr(values, name)
        if low <= value <= high and not (above and value == low) and value < inf:
            continue
        if high == inf:
            text = f"{part}.{name} must be {f'above {low:g}' if above else f'{low:g} or more'}"
        else:
            text = f"{part}.{name} must be from {low:g} to {high:g}"
        message = f"{text}, not {value!r}"
        raise ValueError(message)


DelayKind: TypeAlias = Literal["constant", "uniform", "exponential", "lognormal"]

DELAY_KINDS: Final[tuple[DelayKind, ...]] = get_args(DelayKind)
"""All of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long copies are under way, each on its own: with any spread, they overtake each other.

    Raises:
        ValueError: A value is none that the distribution can have.
    """

    kind: DelayKind = "constant"
    mean_ms: float = 0.0
    """Mean of all delays, milliseconds."""
    spread_ms: float | None = None
    """Milliseconds; None is as much as the mean, and 0 for ``constant``. ``uniform``: half the width. ``exponential``:
    mean of the exponential part, the rest of the mean being the shortest delay. ``lognormal``: standard deviation."""

    @property
    def spread(self) -> float:
        """The spread where none was given, too, milliseconds."""
        if self.spread_ms is not None:
            return self.spread_ms
        return 0.0 if self.kind == "constant" else self.mean_ms

    def __post_init__(self) -> None:
        if self.kind not in DELAY_KINDS:
            text = f"delays.kind must be one of {', '.join(DELAY_KINDS)}, not {self.kind!r}"
            raise ValueError(text)
        if self.kind == "constant":
            check_range("delays", self, "mean_ms", 0, inf)
            if self.spread:
                text = "delays.spread_ms must be 0 where delays.kind is 'constant'"
                raise ValueError(text)
            return
        check_range("delays", self, "mean_ms spread", 0, inf, above=True)
        if self.kind != "lognormal" and self.spread > self.mean_ms:
            text = f"delays.spread_ms must not be above delays.mean_ms where it is {self.kind!r}"
            raise ValueError(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """Losses that come together: each receiver's link is good or bad, for exponential times (Gilbert and Elliott).

    Raises:
        ValueError: A value is out of bounds, or no share of bad time gives that mean loss.
    """

    loss: float
    """Mean loss over all time, from 0 to 1."""
    burst_ms: float
    """Mean time in the bad state, milliseconds."""
    bad_loss: float = 1.0
    """Loss in the bad state."""
    good_loss: float = 0.0
    """Loss in the good state."""

    @property
    def bad_share(self) -> float:
        """Share of the time that is bad, from 0 to 1."""
        return (self.loss - self.good_loss) / (self.bad_loss - self.good_loss)

    def __post_init__(self) -> None:
        check_range("bursts", self, "loss bad_loss good_loss", 0, 1)
        check_range("bursts", self, "burst_ms", 0, inf, above=True)
        if self.good_loss >= self.bad_loss:
            text = "bursts.good_loss must be below bursts.bad_loss"
            raise ValueError(text)
        check_range("bursts", self, "loss", self.good_loss, self.bad_loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """Every participant goes down and comes back from its kept rows, again and again, while messages are sent.

    Raises:
        ValueError: A value is out of bounds.
    """

    every_ms: float
    """Mean time up, exponential, milliseconds."""
    down_ms: float
    """Mean time down, exponential, milliseconds."""

    def __post_init__(self) -> None:
        check_range("churn", self, "every_ms", 0, inf, above=True)
        check_range("churn", self, "down_ms", 0, inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A time in which some participants and the others do not hear each other.

    Milliseconds from the end of the warm-up, or from the beginning where there is none.
    """

    from_ms: float
    until_ms: float
    side: tuple[int, ...]
    """Indexes of those on one side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A participant that opens the channel later than the others, milliseconds as of a `Partition`."""

    participant: int
    at_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A crash, and a new start from the kept rows; milliseconds as of a `Partition`."""

    participant: int
    at_ms: float
    down_ms: float = 500.0
    torn: bool = False
    """The crash comes with the next effects: they are kept, but nothing of them is carried out."""


Moment: TypeAlias = Literal["now", "before", "within", "kept", "publish", "fetched", "event", "end"]
"""When a process dies: at once, or beside a step of carrying effects out: before anything is kept; between the budget's
transaction and the channel's; after both; after a message was given to the node; after all were, and the store was
asked; after an event was shown; after all of it."""

MOMENTS: Final[tuple[Moment, ...]] = get_args(Moment)
"""All of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """A process that dies at a moment of its work and is started again; milliseconds as of a `Partition`."""

    participant: int
    at_ms: float
    """From then on the moment is waited for, also in the next start of one that is down."""
    moment: Moment
    passes: int = 0
    """It survives so many of these moments."""
    down_ms: float = 500.0
    """Until it is started again."""
    clock_ms: float = 0.0
    """When it is, its clock is set ahead by so much; below 0 back."""

    def __post_init__(self) -> None:
        if self.moment not in MOMENTS:
            text = f"moment must be one of {', '.join(MOMENTS)}, not {self.moment!r}"
            raise ValueError(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that decides the course of a simulation."""

    seed: int = 0
    participants: int = 3
    messages: int = 200
    """Payloads sent in all, each by somebody drawn from those present."""
    warm_up: bool = False
    """Before all that, senders send until the channel of nobody who is there from the start is new: only then is
    everybody promised everything. All other times count from its end; who joins later comes with a new channel."""
    interval_ms: float = 50.0
    """Average distance of two sends."""
    payload_bytes: tuple[int, int] = (40, 80)
    """Smallest and largest payload, bytes."""
    ephemeral: float = 0.0
    """Share of the payloads that are sent as ephemeral."""
    repeats: float = 0.0
    """Share of the payloads that their sender has sent before."""
    retries: int = 0
    """Each payload has an idempotency key, and is sent under it so many times again."""
    clock_skew_ms: float = 0.0
    """Clocks of participants are wrong by up to this much, either way."""
    senders: int | None = None
    """Only the first so many participants send; None: all. In the warm-up two do at least: so all hear somebody."""
    settle_ms: float = 120_000.0
    """Longest time after the last send until the run ends; it ends earlier when nothing is left to do."""
    faults: LinkFaults = field(default_factory=LinkFaults)
    """Of each receiver's copy."""
    delays: Delays | None = None
    """Instead of the delay and jitter of ``faults``; None: those."""
    bursts: Bursts | None = None
    """Instead of the loss of ``faults``; None: that."""
    sync_loss: float | None = None
    """Loss of the copies of sync messages, each on its own, whatever that of all others is; None: as theirs."""
    node: NodeFaults = field(default_factory=NodeFaults)
    store: StoreFaults = field(default_factory=StoreFaults)
    partitions: tuple[Partition, ...] = ()
    joins: tuple[Join, ...] = ()
    restarts: tuple[Restart, ...] = ()
    churn: Churn | None = None
    """From the first send, or from when somebody joins, until ``messages`` times ``interval_ms`` later; then who is
    down comes up. None: nobody goes down."""
    crashes: tuple[Crash, ...] = ()
    """With any, or with ``churn``, a message need not arrive whose request ended in an error, or which the receiver
    reported lost."""
    commit_ms: float = 0.0
    """How long a transaction takes; inputs that come meanwhile share the next one."""
    broken: str = ""
    """What is wrong on purpose, to see that a check finds it: one of ``BREAKAGES``."""
    sds: SdsConfig = SCALED_SDS
    segmentation: SegmentationConfig = field(default_factory=SegmentationConfig)
    rate_limit: RateLimitConfig = field(default_factory=RateLimitConfig)

    def __post_init__(self) -> None:
        if self.broken and self.broken not in BREAKAGES:
            text = f"broken must be one of {', '.join(BREAKAGES)}, not {self.broken!r}"
            raise ValueError(text)
        if self.senders is not None and not 1 <= self.senders <= self.participants:
            text = f"senders must be from 1 to the {self.participants} participants, not {self.senders}"
            raise ValueError(text)
        if self.sync_loss is not None:
            check_range("scenario", self, "sync_loss", 0, 1)

    @property
    def is_excused(self) -> bool:
        """Whether processes die while messages are sent, so that not all of them have to arrive."""
        return bool(self.crashes) or self.churn is not None

    @property
    def starts_again(self) -> bool:
        """Whether anybody is started again, from rows."""
        return bool(self.restarts) or self.is_excused

    def to_json(self) -> str:
        """Return all that differs from the default but the seed, as one line of JSON."""
        return json.dumps(_differences(self, Scenario(seed=self.seed)))

    @classmethod
    def from_json(cls, text: str, *, seed: int = 0) -> Scenario:
        """Return the scenario that ``to_json`` wrote.

        Raises:
            ValueError: Not JSON, or values that no scenario can have.
            TypeError: Names that a scenario does not have.
        """
        values: dict[str, Any] = json.loads(text)
        values.setdefault("seed", seed)
        for name, build in _PARTS.items():
            if values.get(name) is not None:
                values[name] = build(values[name])
        return cls(**values)

    @property
    def command(self) -> str:
        """One line that plays it again."""
        line = ["python", "-m", "benchmarks.simulation", "--seed", str(self.seed)]
        text = self.to_json()
        return shlex.join(line if text == "{}" else [*line, "--scenario", text])


def _differences(value: Any, default: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that are not as in another one, in JSON's types."""
    found: dict[str, Any] = {}
    for item in fields(value):
        mine, theirs = getattr(value, item.name), getattr(default, item.name)
        if mine == theirs:
            continue
        if is_dataclass(mine) and not isinstance(mine, type):
            found[item.name] = asdict(mine) if theirs is None else _differences(mine, theirs)
        elif isinstance(mine, tuple) and mine and is_dataclass(mine[0]):
            found[item.name] = [
                {part.name: getattr(entry, part.name) for part in fields(entry)} for entry in mine
            ]
        else:
            found[item.name] = mine
    return found


def _sds(values: dict[str, Any]) -> SdsConfig:
    scaled = {item.name: getattr(SCALED_SDS, item.name) for item in fields(SdsConfig)}
    return SdsConfig(**{**scaled, **values})


_PARTS: Final[dict[str, Callable[[Any], Any]]] = {
    "payload_bytes": tuple,
    "faults": lambda values: LinkFaults(**values),
    "delays": lambda values: Delays(**values),
    "bursts": lambda values: Bursts(**values),
    "churn": lambda values: Churn(**values),
    "node": lambda values: NodeFaults(**values),
    "store": lambda values: StoreFaults(**values),
    "partitions": lambda values: tuple(
        Partition(**{**entry, "side": tuple(entry["side"])}) for entry in values
    ),
    "joins": lambda values: tuple(Join(**entry) for entry in values),
    "restarts": lambda values: tuple(Restart(**entry) for entry in values),
    "crashes": lambda values: tuple(Crash(**entry) for entry in values),
    "sds": _sds,
    "segmentation": lambda values: SegmentationConfig(**values),
    "rate_limit": lambda values: RateLimitConfig(**values),
}
