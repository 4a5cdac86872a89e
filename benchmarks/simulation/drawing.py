"""Draws small scenarios in which processes die: what ``make torture`` and the tests play by the thousand.

A seed gives one scenario, whole: who takes part, what is sent, what the network does, and when who dies and comes back.
It must not play anything.

Spec: none; docs/performance.md for what it is for.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from benchmarks.simulation.scenario import (
    MOMENTS,
    SCALED_SDS,
    Crash,
    NodeFaults,
    Scenario,
    StoreFaults,
)
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig

DEPENDENCY_TIMEOUT_MS: Final = 32_000
"""Of all scenarios; some processes are down for longer."""

INCOMPLETE_TIMEOUT_MS: Final = 60_000

LONGEST_DOWN_MS: Final = 50_000.0

LATE_MS: Final = (0.0, 0.0, 300.0, 4_900.0)
"""How long nodes have messages at most: less than an epoch. A stream of its own draws it."""

SETTLE_MS: Final = 900_000.0
"""Longest time until nothing is left to do: several timeouts, in epochs that let little through."""


def crash_scenario(seed: int, *, broken: str = "") -> Scenario:
    """Return the scenario of a seed.

    Args:
        seed: Decides everything.
        broken: What is wrong on purpose.
    """
    draws = Random(f"{seed}/crash scenario")
    participants = draws.choice((2, 2, 3))
    messages, interval_ms = draws.randint(6, 12), draws.choice((30.0, 100.0, 300.0))
    limited = draws.random() < 0.3
    sds = _sds(draws)
    repeats = draws.choice((0.0, 0.4))
    if sds.message_id == "content" and not sds.enable_repair:
        # Without full messages nobody has the bytes of the first of two equal ones: their histories make a cycle.
        repeats = 0.0
    store = StoreFaults(
        enabled=draws.random() < 0.7,
        loss=draws.choice((0.0, 0.2)),
        lag_ms=draws.choice((0.0, 500.0)),
        failure=draws.choice((0.0, 0.3)),
        catch_up=draws.random() < 0.8,
    )
    return Scenario(
        seed=seed,
        participants=participants,
        messages=messages,
        warm_up=True,
        interval_ms=interval_ms,
        payload_bytes=draws.choice(((20, 40), (20, 40), (20, 300))),
        ephemeral=draws.choice((0.0, 0.0, 0.2)),
        repeats=repeats,
        retries=Random(f"{seed}/retries").choice((0, 0, 2)),
        settle_ms=SETTLE_MS,
        faults=LinkFaults(
            loss=draws.choice((0.0, 0.1, 0.3)),
            duplicate=draws.choice((0.0, 0.1)),
            reorder=draws.choice((0.0, 0.1)),
            delay_ms=draws.choice((1.0, 20.0)),
            jitter_ms=draws.choice((0.0, 50.0)),
        ),
        node=NodeFaults(
            transmit_ms=draws.choice((0.0, 5.0)),
            report_jitter_ms=draws.choice((0.0, 100.0)),
            failure=draws.choice((0.0, 0.1)),
            false_failure=draws.choice((0.0, 0.1)),
            echo=draws.choice((0.0, 0.5)),
            late_ms=Random(f"{seed}/late transmissions").choice(LATE_MS),
        ),
        store=store,
        crashes=_crashes(draws, participants, messages * interval_ms, clocks=not limited),
        commit_ms=draws.choice((0.0, 0.0, 3.0, 40.0)),
        broken=broken,
        sds=sds,
        segmentation=_segmentation(draws),
        rate_limit=RateLimitConfig(
            enabled=limited, epoch_period_sec=5, messages_per_epoch=draws.choice((6, 15, 30))
        ),
    )


def _crashes(
    draws: Random, participants: int, sending_ms: float, *, clocks: bool
) -> tuple[Crash, ...]:
    """Draw who dies when; half of it is while messages are sent, the rest is in a while after that."""
    found = []
    for _ in range(draws.randint(1, 3 * participants)):
        latest = draws.choice((sending_ms, sending_ms, sending_ms + 2_000, sending_ms + 20_000))
        down_ms = draws.choice((0.0, 0.0, 20.0, 300.0, 300.0, 3_000.0, 3_000.0, LONGEST_DOWN_MS))
        found.append(
            Crash(
                participant=draws.randrange(participants),
                at_ms=round(draws.uniform(0, latest), 1),
                moment=draws.choice(MOMENTS),
                passes=draws.choice((0, 0, 0, 1, 2, 4)),
                down_ms=round(down_ms * draws.uniform(0.5, 1), 1),
                clock_ms=draws.choice((0.0, 0.0, -300.0, 200.0)) if clocks else 0.0,
            )
        )
    return tuple(found)


def _sds(draws: Random) -> SdsConfig:
    repairs = draws.random() < 0.8
    return replace(
        SCALED_SDS,
        dependency_timeout_ms=DEPENDENCY_TIMEOUT_MS,
        repair_t_min_ms=300,
        repair_t_max_ms=1_000,
        enable_repair=repairs,
        bloom_capacity=draws.choice((0, 50)),
        message_id=draws.choice(("salted", "salted", "content")),
        dispatch_timeout_ms=draws.choice((3_000, 60_000)),
    )


def _segmentation(draws: Random) -> SegmentationConfig:
    size = draws.choice((64, 64, 100_000))
    return SegmentationConfig(
        segment_size_bytes=size,
        enable_reed_solomon=size == 64 and draws.random() < 0.5,
        parity_rate=0.5,
        incomplete_timeout_ms=INCOMPLETE_TIMEOUT_MS,
    )
