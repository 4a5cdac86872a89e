"""Plays one channel of a cell and counts what came of it.

::

    cell, root, channel ─► streams ─► Workload on Simulation ─► journals, transmissions ─► Trial

What was sent is counted where it reaches the network, not in the machines: those of a process that died would not tell.
It must not know who asks for it, Spark or a process of its own, nor keep anything between two trials.

Spec: RELIABLE-CHANNEL-API, Events, for what is counted.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.results import OTHER, REPAIR, STORE, Trial
from benchmarks.laboratory.seeds import streams
from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.invariants import names_of, order_problems
from benchmarks.simulation.journal import FROM_STORE, Journal, Step
from benchmarks.simulation.network import Transmission
from benchmarks.simulation.scenario import START_NS
from benchmarks.simulation.workload import Workload
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.types import MS, MessageId, Nanoseconds

MOST_ROUNDS: Final = 32_767
"""Largest round that a row can have; more retransmissions than any setting allows."""


def run_trials(cells: list[Cell], root: int, work: Iterable[tuple[int, int]]) -> Iterator[Trial]:
    """Play channels one after the other.

    Args:
        cells: All cells of a run.
        root: The run's seed.
        work: Index of the cell and number of the channel, of each.
    """
    for place, channel in work:
        yield run_trial(cells[place], root, channel)


def run_trial(cell: Cell, root: int, channel: int, *, trace: list[bytes] | None = None) -> Trial:
    """Play one channel to its end.

    What goes wrong in it is in its ``problem``: one channel of millions must not end a run, nor go unseen.

    Args:
        cell: What is played.
        root: The run's seed.
        channel: Which channel of the cell.
        trace: Takes a line for every input and effect.
    """
    began = time.process_time_ns()
    with collected_at_once():
        try:
            trial = play(cell, root, channel, trace)
            trial.check()
        except Exception as error:  # the row that says so is how to find it and play it again
            trial = Trial(scenario=cell.key, channel=channel)
            trial.problem = f"{type(error).__name__}: {error}"
    trial.seal()
    trial.cpu_us = (time.process_time_ns() - began) // 1000
    return trial


@contextmanager
def collected_at_once() -> Iterator[None]:
    """Collect cyclic garbage once, at the end, and only what was made meanwhile: all machines of a trial are cycles.

    Collecting while they live finds nothing, and takes a tenth of a trial's time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if was_enabled:
            gc.enable()


def play(cell: Cell, root: int, channel: int, trace: list[bytes] | None) -> Trial:
    """Play one channel and return its row, not sealed."""
    wire: list[Transmission] = []
    simulation = Simulation(
        cell.scenario,
        trace=trace,
        wire=wire,
        streams=streams(root, cell.hash, channel),
        keeps_rows=False,
    )
    workload = Workload(simulation)
    workload.play()
    return count(Trial(scenario=cell.key, channel=channel), simulation, wire, workload.began_ns)


def count(
    trial: Trial, simulation: Simulation, wire: Sequence[Transmission], began_ns: Nanoseconds
) -> Trial:
    """Fill in what a simulation came to.

    Args:
        trial: The row.
        simulation: At its end.
        wire: All that reached its network.
        began_ns: When the warm-up was over.
    """
    journals = simulation.journals
    steps = [
        step
        for journal in journals
        for step in journal.sent()
        if not step.ephemeral and step.time_ns >= began_ns
    ]
    # The order of sending; the journals' where two were sent at one time.
    sent = {step.message_id: step for step in sorted(steps, key=lambda step: step.time_ns)}
    trial.messages = len(sent)
    trial.segments = sum(len(step.segments) for step in sent.values())
    trial.payload_bytes = sum(len(step.payload) for step in sent.values())
    rounds = count_transmissions(trial, sent, wire, began_ns)
    count_deliveries(trial, sent, journals, rounds)
    count_events(trial, sent, simulation, began_ns)
    trial.disordered = len(order_problems(journals, excused=simulation.scenario.is_excused))
    trial.put_off = simulation.counters["sends_put_off"]
    trial.copies = simulation.counters["copies_received"]
    trial.fetches = simulation.counters["fetches"]
    trial.virtual_ms = (simulation.now - START_NS) // MS
    return trial


def count_transmissions(
    trial: Trial,
    sent: Mapping[MessageId, Step],
    wire: Iterable[Transmission],
    began_ns: Nanoseconds,
) -> dict[int, int]:
    """Count what was transmitted.

    Returns:
        By the number of each transmission, the round of what its arrival brings.
    """
    places = {step.request_id: place for place, step in enumerate(sent.values())}
    data_segments = [len(step.segments) for step in sent.values()]
    trial.tries = [0] * len(sent)
    times: Counter[tuple[int, str]] = Counter()
    rounds: dict[int, int] = {}
    for item in wire:
        kind = item.kind
        counted = item.time_ns >= began_ns
        trial.transmissions += counted
        trial.sent_bytes += counted * len(item.data)
        if kind != "segment":
            rounds[item.number] = REPAIR if kind == "repair" else OTHER
            trial.repairs += counted and kind == "repair"
            trial.syncs += counted and kind == "sync"
            continue
        request_id, _, number = item.segment_id.rpartition(":")
        earlier = times[item.sender, item.segment_id]
        times[item.sender, item.segment_id] += 1
        rounds[item.number] = min(earlier, MOST_ROUNDS)
        place = places.get(request_id)
        if place is None:
            trial.others += counted
        elif int(number) > data_segments[place]:
            trial.parity += 1
        else:
            trial.tries[place] += 1
            trial.retransmissions += earlier > 0
    return rounds


def count_deliveries(
    trial: Trial,
    sent: Mapping[MessageId, Step],
    journals: Sequence[Journal],
    rounds: Mapping[int, int],
) -> None:
    """Count what was delivered, and what brought it."""
    places = {name: place for place, name in enumerate(sent)}
    names = names_of(journals)
    joined = [journal.joined_ns for journal in journals if journal.joined_ns]
    owed = [sum(time_ns <= step.time_ns for time_ns in joined) - 1 for step in sent.values()]
    trial.owed = sum(owed)
    trial.receivers = [0] * len(sent)
    for journal in journals:
        seen: set[MessageId] = set()
        for step in journal.delivered():
            name = names.get(step.message_id, "")
            origin = sent.get(name)
            if origin is None or origin.time_ns < journal.joined_ns:
                continue
            if name in seen:
                trial.duplicated += 1
                continue
            seen.add(name)
            trial.late += step.late
            trial.receivers[places[name]] += 1
            trial.latency_ms.append((step.time_ns - origin.time_ns) // MS)
            brought = STORE if step.cause == FROM_STORE else rounds.get(step.cause, OTHER)
            trial.round.append(brought)
    trial.delivered = len(trial.latency_ms)
    trial.complete = sum(map(int.__eq__, trial.receivers, owed))


def count_events(
    trial: Trial, sent: Mapping[MessageId, Step], simulation: Simulation, began_ns: Nanoseconds
) -> None:
    """Count what applications were told of the messages, and when."""
    starts = {step.request_id: step.time_ns for step in sent.values()}
    for journal in simulation.journals:
        for event, time_ns in zip(journal.events, journal.events_ns, strict=True):
            if isinstance(event, MessageLostEvent):
                trial.lost += time_ns >= began_ns
                continue
            start_ns = starts.get(getattr(event, "request_id", ""))
            if start_ns is None:
                continue
            elapsed_ms = (time_ns - start_ns) // MS
            match event:
                case MessageDeliveredEvent():
                    trial.confirmed += 1
                    trial.confirm_ms.append(elapsed_ms)
                case MessageSentEvent():
                    trial.queue_ms.append(elapsed_ms)
                case MessageSendErrorEvent():
                    trial.send_errors += 1
                case MessageDeliveryErrorEvent():
                    trial.delivery_errors += 1
