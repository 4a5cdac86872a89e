"""Where the randomness of a channel comes from: streams named by purpose, keyed by what is played and which channel.

A stream depends on the root seed, the hash of the scenario's parameters, the channel's number and its purpose; never on
the partition, the engine or the order. Network, workload and protocol have families of their own, so that another
workload does not change what the network does. It must not draw anything itself.

Spec: none of its own; numpy.random.SeedSequence.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from numpy.random import SeedSequence

FAMILIES: Final = {"link": 0, "node": 0, "store": 0, "protocol": 2}
"""Families of streams by the first part of their purpose: network 0, protocol 2; all others are workload, 1."""

WORKLOAD: Final = 1

STATE_WORDS: Final = 8
"""Of 32 bits: what a family's streams have in common; each hashes it together with its purpose."""


def streams(root: int, scenario_hash: bytes, channel: int) -> Callable[[str], Random]:
    """Return what gives the stream of a purpose, such as ``link/0`` or ``workload``.

    Args:
        root: The run's seed, 0 or more.
        scenario_hash: Of the scenario's parameters, a multiple of 4 bytes.
        channel: Its number in the scenario, from 0.
    """
    words = tuple(
        int.from_bytes(scenario_hash[place : place + 4], "big")
        for place in range(0, len(scenario_hash), 4)
    )
    roots: dict[int, bytes] = {}

    def stream(purpose: str) -> Random:
        family = FAMILIES.get(purpose.partition("/")[0], WORKLOAD)
        if family not in roots:
            sequence = SeedSequence(entropy=root, spawn_key=(*words, channel, family))
            roots[family] = sequence.generate_state(STATE_WORDS).tobytes()
        return Random(roots[family] + purpose.encode())

    return stream
