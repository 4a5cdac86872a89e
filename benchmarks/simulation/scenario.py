"""What decides the course of a simulation, as data: who takes part, what goes wrong, when.

`Scenario` can be written as one line of JSON and as the command that plays it again. It must not play anything, and
knows no machine, network or journal.

Spec: RELIABLE-CHANNEL-API, Type definitions, for the settings in it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A time in which some participants and the others do not hear each other; milliseconds from the beginning."""

    from_ms: float
    until_ms: float
    side: tuple[int, ...]
    """Indexes of those on one side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A participant that opens the channel later than the others, milliseconds from the beginning."""

    participant: int
    at_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A crash, and a new start from the kept rows; milliseconds from the beginning."""

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
    """A process that dies at a moment of its work and is started again; times in milliseconds."""

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
    """Before all that, everybody sends until nobody's channel is new: only then is everybody promised everything."""
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
    settle_ms: float = 120_000.0
    """Longest time after the last send until the run ends; it ends earlier when nothing is left to do."""
    faults: LinkFaults = field(default_factory=LinkFaults)
    """Of each receiver's copy."""
    node: NodeFaults = field(default_factory=NodeFaults)
    store: StoreFaults = field(default_factory=StoreFaults)
    partitions: tuple[Partition, ...] = ()
    joins: tuple[Join, ...] = ()
    restarts: tuple[Restart, ...] = ()
    crashes: tuple[Crash, ...] = ()
    """With any, a message need not arrive whose request ended in an error, or which the receiver reported lost."""
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
            if name in values:
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
        if is_dataclass(mine):
            found[item.name] = _differences(mine, theirs)
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
