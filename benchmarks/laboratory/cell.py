"""One cell of a grid: a scenario under a name, and the stable key by which its results are found.

It must not play anything, nor know engines or files.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from benchmarks.simulation.scenario import Scenario

Label: TypeAlias = str | int | float | bool

KEY_BYTES: Final = 8
"""Of the hash of a scenario's parameters: 64 bits."""

NOT_PARAMETERS: Final = ("seed", "broken")
"""Fields of a scenario that do not say what is played, or that the laboratory never uses."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A scenario of a grid.

    Two cells of equal parameters have the same key, and so the same results, whatever grid they are in.
    """

    name: str
    """For people; unique in its grid."""
    labels: tuple[tuple[str, Label], ...] = ()
    """What sets it apart from the others of its grid: dotted parameter names and values, in the grid's order."""
    scenario: Scenario
    """What each channel plays; its seed is not used."""
    max_channels: int | None = None
    """Most channels of it in a run; None is as many as the run has. For groups that are large."""

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """All parameters, in JSON's types."""
        values: dict[str, Any] = json.loads(
            json.dumps(asdict(replace(self.scenario, seed=0)), default=repr)
        )
        for name in NOT_PARAMETERS:
            values.pop(name, None)
        return values

    @cached_property
    def hash(self) -> bytes:
        """Stable hash of the parameters, 8 bytes."""
        text = json.dumps(self.parameters, sort_keys=True, separators=(",", ":"))
        return blake2b(text.encode(), digest_size=KEY_BYTES).digest()

    @property
    def key(self) -> str:
        """The hash in 16 hexadecimal digits: the name of its folder of results."""
        return self.hash.hex()

    def label(self, name: str, default: Label | None = None) -> Label | None:
        """Return the value of a label."""
        return dict(self.labels).get(name, default)

    def channels(self, wanted: int) -> int:
        """Return how many channels are played where a run wants so many."""
        return wanted if self.max_channels is None else min(wanted, self.max_channels)
